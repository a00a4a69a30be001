//! The receive interface.

use crate::{Batch, Error, Layer, Mode, Requests, SendError, Sent, Transmit};
use mpps_os::CpuList;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How a receiver waits when nothing is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Return at once, with an empty batch. [`Wait::Block`] for no time does so as well, and then also
    /// asks the kernel whether the interface is still there.
    Poll,
    /// Sleep until a packet comes, or for so long.
    Block(Duration),
    /// Ask again and again until a packet comes, or for so long.
    Spin(Duration),
    /// Sleep until a packet comes, or until the time is over. If that brings fewer packets than
    /// polling, poll for up to 200 µs first. A receiver with more than 200 000 packets a second
    /// tries both from time to time; on a CPU that the sender also needs it sleeps. Receivers of
    /// one socket compare badly: a polling receiver takes packets that another would have had.
    Auto(Duration),
    /// Sleep in epoll_wait(2) until a packet comes, or for so long.
    Epoll(Duration),
}

/// How long a send waits for room for one message. `SO_SNDTIMEO` holds for each of a call's messages
/// anew, so that a call of 1024 may take five seconds where the link is very slow.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_millis(5);

impl Wait {
    /// How long answers may wait for room: not at all where the receiver does not wait either.
    pub(crate) fn send_timeout(self) -> Duration {
        SEND_TIMEOUT.min(self.time())
    }

    /// How long it waits.
    pub(crate) fn time(self) -> Duration {
        match self {
            Self::Poll => Duration::ZERO,
            Self::Block(time) | Self::Spin(time) | Self::Auto(time) | Self::Epoll(time) => time,
        }
    }

    /// The same, for so long at most.
    pub(crate) fn at_most(self, most: Duration) -> Self {
        match self {
            Self::Poll => Self::Poll,
            Self::Block(time) => Self::Block(time.min(most)),
            Self::Auto(time) => Self::Auto(time.min(most)),
            Self::Spin(time) => Self::Spin(time.min(most)),
            Self::Epoll(time) => Self::Epoll(time.min(most)),
        }
    }

    /// Its name, as a user writes it: `auto`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Block(_) => "block",
            Self::Auto(_) => "auto",
            Self::Spin(_) => "spin",
            Self::Epoll(_) => "epoll",
        }
    }
}

/// Receives packets in batches. A batch lends its packets: they live until the next call.
///
/// ```
/// use mpps_io::{RxConfig, Wait, backend};
/// use std::net::UdpSocket;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut rx = backend::find("recvmmsg")?.open_rx(&RxConfig::new("127.0.0.1:0".parse()?))?;
/// UdpSocket::bind("127.0.0.1:0")?.send_to(b"hello", rx.caps().local_address)?;
///
/// let batch = rx.recv(Wait::Auto(Duration::from_secs(1)))?;
/// for packet in &batch {
///     assert_eq!(packet.payload(), Some(&b"hello"[..]));
/// }
/// assert_eq!((rx.counters().datagrams, rx.counters().dropped), (1, 0));
/// # Ok(())
/// # }
/// ```
pub trait Rx: Send + fmt::Debug {
    /// Waits for packets and lends them; an empty batch means that none came in time.
    ///
    /// # Errors
    /// The kernel's refusal. A signal is not one, nor an error that an earlier *send* left on the
    /// socket.
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>>;

    /// Waits for packets as [`Rx::recv`], lets `answer` decide on an answer for each of them, and
    /// sends the answers: one call for all. The receiver must have been opened with
    /// [`crate::RxConfig::answers`].
    ///
    /// A socket answers from the address that was asked. A ring turns the headers of the frame around, where it lies. It
    /// sends the frame by the queue that it came by.
    ///
    /// ```
    /// use mpps_io::{RxConfig, Wait, backend};
    /// # use std::net::UdpSocket;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut config = RxConfig::new("127.0.0.1:0".parse()?);
    /// config.answers = true;
    /// let mut rx = backend::find("recvmmsg")?.open_rx(&config)?;
    /// # let client = UdpSocket::bind("127.0.0.1:0")?;
    /// # client.send_to(b"hello", rx.caps().local_address)?;
    /// let served = rx.serve(Wait::Auto(std::time::Duration::from_secs(1)), &mut |requests| {
    ///     for request in requests {
    ///         request.reply_in_place(|_room, bytes| Some(bytes));
    ///     }
    /// })?;
    /// assert_eq!(served.sent, 1);
    /// # let mut came = [0; 16];
    /// # assert_eq!(client.recv(&mut came)?, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Rx::recv`]; `Unsupported` if it was not opened for that. That a single answer could not
    /// be sent is none: [`Served::refused`].
    fn serve(&mut self, wait: Wait, answer: &mut dyn FnMut(Requests<'_>)) -> io::Result<Served> {
        let _ = (wait, answer);
        Err(not_opened_to_answer())
    }

    /// Sends datagrams from the address that it receives at, each to its own destination, and does not
    /// wait for room: of those that found none, the rest is not offered, and [`Rx::readiness`] is writable
    /// when there is room again. A train counts as one.
    ///
    /// ```
    /// use mpps_io::{RxConfig, Transmit, Wait, backend};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut config = RxConfig::new("127.0.0.1:0".parse()?);
    /// config.details.traffic_class = true;
    /// let [mut one, mut other] = [(); 2].map(|()| backend::find("best").and_then(|b| b.open_rx(&config)));
    /// let (one, other) = (one.as_mut().unwrap(), other.as_mut().unwrap());
    /// let mut datagram = Transmit::new(other.caps().local_address, b"hello");
    /// datagram.traffic_class = Some(1); // ECT(1), RFC 9331
    /// assert_eq!(one.transmit(&[datagram])?.accepted, 1);
    ///
    /// let batch = other.recv(Wait::Auto(std::time::Duration::from_secs(1)))?;
    /// let ecn = batch.packets().map(|packet| packet.details.and_then(|details| details.ecn()));
    /// assert_eq!(ecn.collect::<Vec<_>>(), [Some(1)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` by backends without a socket at the port. That the kernel refused single datagrams
    /// is none: [`crate::Sent::refused`].
    fn transmit(&mut self, transmits: &[Transmit<'_>]) -> io::Result<Sent> {
        let _ = transmits;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Errors of datagrams that were sent from here: a port without a socket, a path
    /// for shorter packets, a host that is not there. The kernel keeps them with [`crate::RxConfig::errors`], each
    /// until it is asked for.
    ///
    /// # Errors
    /// `Unsupported` by backends without a socket at the port.
    fn errors(&mut self) -> io::Result<Vec<SendError>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A descriptor that is readable once packets may be there, for poll(2), epoll(7) and code
    /// built upon them: `tokio::io::unix::AsyncFd`, `mio::unix::SourceFd`. None if there is nothing
    /// to wait for: packets inside this process, and drivers of DPDK that are polled.
    ///
    /// It is readable as long as something was not taken. It may also be readable when nothing is
    /// there.
    ///
    /// A program that waits for edges (`EPOLLET`, as tokio and mio do) must empty the receiver
    /// before it waits again. It receives by [`Wait::Block`] for no time until a batch is empty. A
    /// batch that is not full is no sign of that, because more may have come behind it.
    ///
    /// The descriptor does not report that the interface of an AF_XDP receiver went down or away.
    /// Only a receive does: make one now and then. The file behind the descriptor belongs to the
    /// receiver: only waiting is allowed.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The packets that came and those that the kernel dropped for this receiver so far.
    fn counters(&self) -> RxCounters;

    /// The packets that the kernel dropped for this receiver, by reason; the counts are disjoint
    /// and sum to [`RxCounters::dropped`].
    fn drops(&self) -> Vec<RxDrop>;

    /// The properties of this receiver, as granted.
    fn caps(&self) -> &RxCaps;

    /// Another receiver of the same traffic, for a second thread: on the *same* socket, on the next
    /// queue of the interface, or one more member of the fan-out group.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if one receiver owns what it reads; [`Error::Invalid`] if there is no
    /// further queue.
    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        Err(self.caps().unsupported("share"))
    }

    /// Steers packets among the receivers that share this one's address (`SO_REUSEPORT`): those
    /// received by `cpus[i]` go to the receiver that was opened `i`th.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the backend has no such group.
    fn steer_by_cpu(&self, cpus: &[usize]) -> Result<(), Error> {
        let _ = cpus;
        Err(self.caps().unsupported("steer_by_cpu"))
    }
}

/// The error of a receiver that is asked to answer but was not opened for it.
pub(crate) fn not_opened_to_answer() -> io::Error {
    let why = "the receiver was not opened with `RxConfig::answers`";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// The result for the packets of one [`Rx::serve`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Packets that came; none if the time was over.
    pub received: u64,
    /// Answers that the kernel took, or has in a ring to be sent.
    pub sent: u64,
    /// Answers that it refused, or had no room for in time. Of a ring no more than half of the frames
    /// may be on their way out.
    pub refused: u64,
}

/// The packets that a receiver got and lost, counted from its opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Datagrams received; those of a train count each.
    pub datagrams: u64,
    /// Buffers received: datagrams and trains.
    pub buffers: u64,
    /// Bytes received, those cut off included.
    pub wire_bytes: u64,
    /// Datagrams or trains that did not fit into the buffer.
    pub truncated: u64,
    /// Calls that brought something.
    pub calls: u64,
    /// Drops by the kernel at this socket or ring, in units of its queue: with GRO a train is one.
    pub dropped: u64,
    /// System calls made to receive: those that brought something, brought nothing, or waited.
    pub system_calls: u64,
    /// How it polled by [`Wait::Auto`].
    pub polls: RxPolls,
    /// How many frames the kernel was given at a time, by AF_XDP in copy mode without
    /// [`crate::RingConfig::frames`].
    pub fill_depth: Option<FillDepth>,
    /// Frames of its queue that the XDP program left to the kernel, because no receiver wants them; none
    /// where no program of ours decides.
    pub passed_on: Option<u64>,
}

pub use mpps_os::xdp::FillDepth;

/// How a receiver polled before it slept, by [`Wait::Auto`]. Packets that were there without a rest
/// are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RxPolls {
    /// Polls that found something.
    pub found: u64,
    /// Polls that found nothing in their time, and were followed by a sleep.
    pub missed: u64,
    /// How often it took up polling, or left off, trials included.
    pub changes: u64,
}

/// Packets that the kernel dropped for a receiver, for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxDrop {
    /// Why: `receive ring full`.
    pub reason: &'static str,
    /// The counter that says so: `SO_MEMINFO drops`.
    pub source: &'static str,
    /// How many, in units of the queue: with GRO a train is one.
    pub count: u64,
}

impl fmt::Display for RxDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.count, self.reason, self.source)
    }
}

impl RxDrop {
    /// The reason of what a socket dropped, which counts all of it in one.
    pub const AT_SOCKET: &str = "dropped at the socket: its buffer was full, or UDP refused them";
    /// The reason of packets that came by a queue which no receiver reads. A card sends a flow to
    /// one queue, so none of them is of a flow that was received.
    pub const OTHER_QUEUE: &str = "came by a queue without a receiver";
    /// The reason of datagrams that came to the receiver's port and were no frame that its ring takes. It
    /// is the rest of one counter, and names examples.
    pub const PAST_RING: &str = "came past the ring, which takes plain UDP of its interface only: such as \
                                 fragments, VLAN tags, IPv6 extension headers, another interface";
}

impl RxCounters {
    /// Adds one batch.
    #[inline]
    pub(crate) fn add(&mut self, batch: &Batch<'_>) {
        if batch.is_empty() {
            return;
        }
        self.calls += 1;
        self.buffers += batch.len() as u64;
        let totals = batch.totals();
        self.datagrams += totals.datagrams;
        self.wire_bytes += totals.wire_bytes;
        self.truncated += totals.truncated;
    }
}

/// A receive queue of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Its number, from 0 on.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// The CPUs that took its interrupts when the first receiver was opened, or may take the next
    /// ones: `effective_affinity_list` and `smp_affinity_list` in `/proc/irq`.
    ///
    /// None if the interface has no interrupts, such as a veth. Its queues are served where packets
    /// are sent, or by threads. None if their names do not show the queue, or if the card is not on
    /// a PCI bus. With threaded NAPI and with busy polling another CPU does the work.
    pub cpus: Vec<usize>,
    /// The NUMA node of the card, where the machine has nodes and says so (`numa_node` in `/sys`).
    pub node: Option<usize>,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of {}", self.number, self.of)?;
        if !self.cpus.is_empty() {
            write!(f, ", interrupts on CPU {}", CpuList(self.cpus.clone()))?;
        }
        match self.node {
            Some(node) => write!(f, ", node {node}"),
            None => Ok(()),
        }
    }
}

/// The properties of a receiver, as granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RxCaps {
    /// The backend's name.
    pub backend: &'static str,
    /// The layer of a packet's bytes.
    pub layer: Layer,
    /// The receive queue that it reads; none where the kernel, or the backend, reads all of them.
    pub queue: Option<Queue>,
    /// The address that it is bound to; the port is the true one.
    pub local_address: SocketAddr,
    /// Most buffers per call.
    pub batch: usize,
    /// Bytes kept of each buffer.
    pub buffer_bytes: usize,
    /// The receive buffer granted by the kernel, in bytes without its doubling.
    pub receive_buffer_bytes: Option<usize>,
    /// True if trains may come.
    pub gro: bool,
    /// How it works, as far as the kernel granted it.
    pub mode: Mode,
}

impl RxCaps {
    fn unsupported(&self, field: &'static str) -> Error {
        Error::Unsupported {
            backend: self.backend,
            field,
        }
    }
}
