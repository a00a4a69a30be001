//! Two hosts on one machine: network namespaces joined by a multi-queue veth pair.
//!
//! A [`Lab`] is a guard: while it lives there is a sender and a receiver. When it is dropped, or
//! its program is killed, nothing of them is left.
//!
//! ```no_run
//! use mpps_lab::{Lab, LabConfig};
//!
//! let lab = Lab::new(&LabConfig::default())?;
//! let socket = lab.receiver().run(|| std::net::UdpSocket::bind("0.0.0.0:4321"))?;
//! # Ok::<(), mpps_lab::LabError>(())
//! ```
#![forbid(unsafe_code)]

/// The addresses of the two hosts.
pub mod address;
/// The configuration of a lab, and its limits.
mod config;
/// Dropping packets before any program could receive them.
mod early_drop;
mod error;
/// One of the two hosts.
mod host;
/// The lab itself.
mod lab;
/// The setup of a link: no segmentation offloads, and no packets that no program sent.
mod link;
/// Which CPU serves which receive queue.
mod placement;
/// The kernel threads that poll the receive queues of one interface.
mod queue_threads;
/// Waiting until no packet moves.
mod settle;
/// Which queue a packet takes.
pub mod steering;

pub use config::{Delivery, LabConfig};
pub use early_drop::{EarlyDrop, Installed, Tracking, Unavailable};
pub use error::LabError;
pub use host::LabHost;
pub use lab::Lab;
pub use placement::NapiThread;
