//! The counters of a host at one moment, and their differences.

pub mod delta;
pub(crate) mod driver_counters;
pub mod drop_probe;
pub mod drop_reason;
pub(crate) mod link_counters;
pub mod lock_probe;
pub mod proc_stat;
pub(crate) mod queue_packets;
pub mod read_probe;
pub mod snapshot;
pub mod snmp;
pub mod softnet;
pub(crate) mod tcp_trouble;
