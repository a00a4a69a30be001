//! Packets in and out: one receive and one transmit interface over every Linux packet path.
//!
//! A [`Backend`] is one way to move packets; [`BACKENDS`] names them all. [`Rx`] lends received
//! packets until its next call; [`Tx`] lends the frames to write, and sends them in one call. Bytes of each sender, printed each second:
//!
//! ```no_run
//! use mpps_io::{RxConfig, Wait, backend};
//! use std::{collections::HashMap, time::Duration, time::Instant};
//!
//! let mut config = RxConfig::new("0.0.0.0:4321".parse()?);
//! config.details.source = true;
//! let mut rx = backend::find("best")?.open_rx(&config)?;
//! let mut bytes = HashMap::new();
//! let mut flush = Instant::now() + Duration::from_secs(1);
//! loop {
//!     let rest = flush.saturating_duration_since(Instant::now());
//!     for packet in &rx.recv(Wait::Auto(rest))? {
//!         *bytes.entry(packet.source()).or_insert(0) += packet.payload_bytes().unwrap_or(0);
//!     }
//!     if Instant::now() >= flush {
//!         println!("{:?} {:?}", std::mem::take(&mut bytes), rx.drops());
//!         flush += Duration::from_secs(1);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "tokio")]
mod async_rx;
pub mod backend;
mod batch;
mod carrier;
mod config;
mod error;
mod filter;
mod frames;
mod link_path;
mod mode;
mod requests;
mod ring_config;
mod rx;
mod socket_map;
#[cfg_attr(not(feature = "workers"), allow(dead_code, reason = "workers use it"))]
mod stamp;
mod tx;
mod waiting;
pub mod wire;
#[cfg(feature = "workers")]
mod worker;
mod xdp_switch;

/// A receiver in a tokio runtime.
#[cfg(feature = "tokio")]
pub use async_rx::AsyncRx;
/// The table of backends.
pub use backend::{BACKENDS, Backend};
/// A batch of received packets, lent by the receiver.
pub use batch::{Batch, Packet, PacketDescriptor, Packets};
/// The configuration of receivers and senders.
pub use config::{MulticastGroup, RxConfig, TxConfig};
/// Refusals by mpps.
pub use error::Error;
/// Which frames of an interface are a receiver's.
pub use filter::Destination;
/// Frames to write payloads into, lent by the sender.
pub use frames::Frames;
/// The layer of packets, and how a receiver or sender works, as far as it was granted.
pub use mode::{Layer, Mode, Property};
/// Details of a received datagram, a datagram to send, and its error.
pub use mpps_os::messages::{DatagramDetails, SendError, Transmit, TransmitClock, WantedDetails};
/// Received packets that may be answered where they lie.
pub use requests::{Request, Requests};
/// Options of rings over an interface.
pub use ring_config::{Attach, CopyMode, Fanout, OutQueue, RingConfig};
/// The receive interface.
pub use rx::{FillDepth, Queue, Rx, RxCaps, RxCounters, RxDrop, RxPolls, Served, Wait};
/// The map of an XDP program that is the user's own.
pub use socket_map::SocketMap;
/// The 16-byte header of stamped traffic.
pub use stamp::{STAMP_BYTES, Stamp, StampKind};
/// The transmit interface.
pub use tx::{Refusals, Sent, Tx, TxCaps, TxCounters};
/// Threads that receive and send; loss, duplicates, order and delay by sequence number.
#[cfg(feature = "workers")]
pub use worker::{
    FinishedWorker, FlowDecision, FlowKey, FlowReport, FlowTable, Inspect, RxProgress, RxReport,
    RxTask, RxWorker, Stop, TxProgress, TxReport, TxTask, TxWorker, Work,
};

/// Parts that only the command and the tests of these crates use. They change without notice.
#[doc(hidden)]
pub mod parts {
    pub use crate::carrier::await_carrier;
    pub use crate::filter::{FlowCounters, FlowCounts, FlowFilter, FlowProgram};
    pub use crate::link_path::LinkPath;
    pub use crate::xdp_switch::XdpSwitch;
}
