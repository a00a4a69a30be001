//! What a Linux host did with packets: facts, counters, and the ledger that joins them.
#![forbid(unsafe_code)]

pub mod account;
pub mod carve_out;
pub mod cpu;
pub mod cpu_list;
pub mod delta;
pub mod drop_probe;
pub mod drop_reason;
mod error;
pub mod fingerprint;
pub mod interface_facts;
pub mod journal;
pub mod ledger;
mod link_counters;
pub mod moderation;
pub mod proc_stat;
mod queue_packets;
mod root;
pub mod snapshot;
pub mod snmp;
pub mod socket_buffer;
pub mod softnet;
pub mod sysctl;
mod tcp_trouble;
pub mod technique;

pub use account::{Account, Arrival, Departure, ReasonCount, RingDrop, Route};
pub use carve_out::{CarveOut, Leftover, Plan};
pub use cpu::{Cpu, CpuUnavailable, Relation, Topology};
pub use cpu_list::{CpuList, CpuListError};
pub use delta::{Delta, LinkDelta, SoftnetDelta};
pub use drop_probe::{DropCount, DropFilter, DropProbe, DropProbeError};
pub use drop_reason::DropReasons;
pub use error::{Error, Result};
pub use fingerprint::{Difference, Fingerprint};
pub use interface_facts::InterfaceFacts;
pub use journal::{Journal, Life};
pub use ledger::{Grouped, Ledger, Loss, Scope, Station, Witness};
pub use link_counters::LinkCounters;
pub use moderation::{Moderation, ModerationLeftover, ModerationPlan, Throttle};
pub use proc_stat::{CpuBusy, CpuTicks, ProcStat};
pub use queue_packets::QueuePackets;
pub use snapshot::{LinkSnapshot, Snapshot};
pub use snmp::Snmp;
pub use socket_buffer::{Direction, SocketBuffer};
pub use softnet::{Softnet, SoftnetRow};
pub use technique::{TECHNIQUES, Technique, Verdict};
