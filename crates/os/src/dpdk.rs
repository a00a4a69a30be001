//! DPDK: packets through its poll-mode drivers.
//!
//! Only with the feature `dpdk`. DPDK is one environment (EAL) per process, which is started once
//! and never ends; devices are added and removed while it runs. A [`Port`] is a device that
//! receives, an [`RxQueue`] one of its queues, [`Lent`] the packets that a thread holds.
//!
//! DPDK and its drivers print to stdout and stderr, and some of them end the process when memory
//! runs out. Here their output becomes the text of an error. An end by `rte_panic` cannot be
//! caught.

mod driver_sockets;
mod environment;
mod ffi;
mod packets;
mod port;

pub use environment::start;
pub use ffi::FrameAt;
pub use packets::Lent;
pub use port::{Port, PortDrops, PortFacts, PortOptions, RxQueue};
