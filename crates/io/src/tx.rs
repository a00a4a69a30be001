//! The transmit interface.

use crate::{Frames, Layer, Mode};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Sends datagrams in batches.
///
/// ```
/// use mpps_io::{TxConfig, backend};
/// use std::net::UdpSocket;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let target = UdpSocket::bind("127.0.0.1:0")?;
/// let mut config = TxConfig::new(target.local_addr()?);
/// config.payload_bytes = 5;
/// let mut tx = backend::find("sendmmsg")?.open_tx(&config)?;
/// for payload in tx.frames(2) {
///     payload.copy_from_slice(b"hello");
/// }
/// assert_eq!(tx.send(0, 2)?.accepted, 2);
///
/// let mut came = [0; 16];
/// assert_eq!(target.recv(&mut came)?, 5);
/// # Ok(())
/// # }
/// ```
pub trait Tx: Send + fmt::Debug {
    /// Lends the payloads of the next `datagrams`, at most [`TxCaps::batch`], to be written.
    /// Unwritten bytes keep their value: zeros at first. A [`TxCaps::template`] sender lends one
    /// payload for all datagrams of a send.
    fn frames(&mut self, datagrams: usize) -> Frames<'_>;

    /// Passes the first `datagrams` frames, at most [`TxCaps::batch`], to the kernel as one flow,
    /// `flow` being below [`TxCaps::flows`]. Fewer than asked are dealt with if the kernel had no
    /// room in time: the rest is not offered and may be tried again.
    ///
    /// # Errors
    /// Only errors that make every send fail (`EINVAL`, `EMSGSIZE`, `EACCES`, ...). Refusals of
    /// single datagrams are in [`Sent::refused`].
    fn send(&mut self, flow: usize, datagrams: usize) -> io::Result<Sent>;

    /// Waits until the kernel has taken what was accepted, for a moment at the most. Only a ring has
    /// anything to wait for: what is in it is lost when it closes.
    fn flush(&mut self) {}

    /// A descriptor that is writable while the kernel has room for a flow's next datagrams. It is
    /// for poll(2) and epoll(7), as [`crate::Rx::readiness`] is for received ones. None if a send
    /// waits for nothing: packets inside this process, and the kernel's own generator.
    ///
    /// A socket is writable while less than half of its send buffer is in use (`sock_writeable`,
    /// include/net/sock.h). A ring is writable while it has a free slot; with AF_XDP, while half of
    /// the slots are free.
    ///
    /// A send of more than there is room for waits some milliseconds, and then returns how many it
    /// sent. After that, a socket reports an edge (`EPOLLET`). The file behind the descriptor
    /// belongs to the sender: only waiting is allowed.
    fn readiness(&self, flow: usize) -> Option<BorrowedFd<'_>> {
        let _ = flow;
        None
    }

    /// Asks the sender to keep a rate, in datagrams per second, by itself. It returns true if it
    /// can. Its [`Tx::send`] then takes the time that its datagrams are due in, or brings fewer.
    fn pace(&mut self, rate_pps: f64) -> bool {
        let _ = rate_pps;
        false
    }

    /// The datagrams offered and refused so far.
    fn counters(&self) -> &TxCounters;

    /// The properties of this sender, as granted.
    fn caps(&self) -> &TxCaps;
}

/// The result for the datagrams of one send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Taken by the kernel. It may still drop them without a word to the sender.
    pub accepted: u64,
    /// Refused with an error.
    pub refused: u64,
}

impl Sent {
    /// Datagrams dealt with: accepted and refused.
    pub fn offered(self) -> u64 {
        self.accepted + self.refused
    }
}

/// Refused datagrams by `errno`.
pub type Refusals = BTreeMap<i32, u64>;

/// The datagrams that a sender offered, counted from its opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Datagrams taken by the kernel.
    pub accepted: u64,
    /// Datagrams refused, by `errno`.
    pub refused: Refusals,
    /// System calls.
    pub calls: u64,
    /// Calls that found no room in the send buffer in time.
    pub blocked: u64,
}

/// The properties of a sender, as granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxCaps {
    /// The backend's name.
    pub backend: &'static str,
    /// The layer of a frame's bytes.
    pub layer: Layer,
    /// Most datagrams per send.
    pub batch: usize,
    /// Datagrams per train; 1 without GSO.
    pub train: usize,
    /// Flows that it has.
    pub flows: usize,
    /// Local address of each flow.
    pub local_addresses: Vec<SocketAddr>,
    /// The send buffer granted by the kernel, in bytes without its doubling.
    pub send_buffer_bytes: Option<usize>,
    /// True if all datagrams of a send have one payload, but for a [`crate::Stamp`] at its start,
    /// which the backend numbers for each of them.
    pub template: bool,
    /// How it works, as far as the kernel granted it.
    pub mode: Mode,
}
