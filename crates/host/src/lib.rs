//! Accounts for the packets of a Linux host: facts, counters, and the ledger that joins them.
//!
//! ```
//! use mpps_host::{DoctorRequest, Overview, Watch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut watch = Watch::begin(None, DoctorRequest::default())?;
//! // Here the traffic passes that is to be accounted for.
//! watch.look()?;
//! let page = Overview::of(&watch.seen());
//! println!("{}", page.ledger);
//! for loss in &page.ledger.losses {
//!     println!("lost {}: {} ({})", loss.count, loss.reason, loss.source);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod check;
pub mod counters;
mod error;
pub mod facts;
pub mod fixing;
pub mod ledger;
mod root;
pub mod setting;

pub use check::overview::{CpuLoad, Overview, QueueLoad, SocketLoad};
pub use check::watch::Watch;
pub use check::{CHECKS, Check, Confidence, DoctorRequest, Evidence, Finding, Observed, WayOut};
pub use counters::delta::{Delta, LinkDelta, SoftnetDelta};
pub use counters::drop_probe::{DropCount, DropFilter, DropProbe, DropProbeError, ReasonCount};
pub use counters::drop_reason::DropReasons;
pub use counters::link_counters::LinkCounters;
pub use counters::lock_probe::LockProbe;
pub use counters::proc_stat::{CpuBusy, CpuTicks, ProcStat};
pub use counters::queue_packets::QueuePackets;
pub use counters::snapshot::{LinkSnapshot, Snapshot};
pub use counters::snmp::Snmp;
pub use counters::softnet::{Softnet, SoftnetRow};
pub use error::{CpuUnavailable, HostError, HostResult};
pub use facts::cpu::{Cpu, Relation, Topology};
pub use facts::fingerprint::{Difference, Fingerprint};
pub use facts::interface_facts::InterfaceFacts;
pub use facts::parent_interfaces::carries;
pub use facts::receive_path::{PathVerdict, RECEIVE_PATHS, ReceivePath};
pub use facts::socket_buffer::{Direction, SocketBuffer};
pub use facts::spreading::Spreading;
pub use facts::{
    Busy, Conntrack, Interface, Interrupt, JoinedGroup, Moment, Observation, Process, ProcessLoad,
    QueueCourse, QueueCourses, Quota, ThreadTime,
};
pub use ledger::account::{Account, Arrival, Departure, PacketRoute, RingDrop};
pub use ledger::host_pair::Between;
pub use ledger::{Grouped, Ledger, Loss, Scope, Station, Undecided, Witness};
pub use mpps_os::{CpuList, CpuListError};
pub use setting::carve_out::CarveOut;
pub use setting::hashing::Hashing;
pub use setting::moderation::{Moderation, Throttle, irq_suspension};
pub use setting::skb_defer::SkbDefer;
pub use setting::{Applied, Leftover, Life, SettingChange, Undone, UndoneStep, leftovers};
