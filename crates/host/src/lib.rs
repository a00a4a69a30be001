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

pub mod account;
pub mod carve_out;
pub mod check;
pub mod cpu;
pub mod delta;
mod driver_counters;
pub mod drop_probe;
pub mod drop_reason;
mod error;
pub mod facts;
pub mod fingerprint;
pub mod hashing;
pub mod host_pair;
pub mod interface_facts;
pub mod ledger;
mod link_counters;
pub mod moderation;
pub mod overview;
pub mod parent_interfaces;
pub mod preflight;
pub mod proc_stat;
mod queue_packets;
pub mod receive_path;
mod root;
pub mod rss;
pub mod setting;
pub mod skb_defer;
pub mod snapshot;
pub mod snmp;
pub mod socket_buffer;
pub mod softnet;
pub mod spreading;
pub mod sysctl;
mod tcp_trouble;
pub mod tune;
pub mod watch;

pub use account::{Account, Arrival, Departure, PacketRoute, ReasonCount, RingDrop};
pub use carve_out::CarveOut;
pub use check::{CHECKS, Check, Confidence, DoctorRequest, Evidence, Finding, Observed};
pub use cpu::{Cpu, Relation, Topology};
pub use delta::{Delta, LinkDelta, SoftnetDelta};
pub use drop_probe::{DropCount, DropFilter, DropProbe, DropProbeError};
pub use drop_reason::DropReasons;
pub use error::{CpuUnavailable, HostError, HostResult};
pub use facts::{
    Busy, Conntrack, Interrupt, Moment, NetworkCard, Observation, Process, Quota, ThreadTime,
};
pub use fingerprint::{Difference, Fingerprint};
pub use hashing::Hashing;
pub use host_pair::Between;
pub use interface_facts::InterfaceFacts;
pub use ledger::{Grouped, Ledger, Loss, Scope, Station, Undecided, Witness};
pub use link_counters::LinkCounters;
pub use moderation::{Moderation, Throttle, irq_suspension};
pub use mpps_os::{CpuList, CpuListError};
pub use overview::{CpuLoad, Overview, QueueLoad, SocketLoad};
pub use parent_interfaces::carries;
pub use proc_stat::{CpuBusy, CpuTicks, ProcStat};
pub use queue_packets::QueuePackets;
pub use receive_path::{PathVerdict, RECEIVE_PATHS, ReceivePath};
pub use setting::{Applied, Leftover, Life, SettingChange, Undone, UndoneStep, leftovers};
pub use skb_defer::SkbDefer;
pub use snapshot::{LinkSnapshot, Snapshot};
pub use snmp::Snmp;
pub use socket_buffer::{Direction, SocketBuffer};
pub use softnet::{Softnet, SoftnetRow};
pub use spreading::Spreading;
pub use watch::Watch;
