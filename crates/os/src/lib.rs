//! Linux made safe for packet programs.
//!
//! Every system call of mpps is wrapped here, and with a few named exceptions this is the only
//! crate with `unsafe` code.

pub mod bpf;
pub mod capability;
pub mod clock;
mod error;
pub mod ethtool;
pub mod messages;
pub mod namespace;
pub mod netlink;
pub mod process;
pub mod sched;
pub mod socket;
pub mod sysfs;
pub mod terminal;

pub use error::{Error, Result};
