//! AF_XDP sockets: packets in memory that the kernel and this process share.
//!
//! Documentation/networking/af_xdp.rst. A socket serves one queue of one interface. Its memory
//! ("umem") is cut into frames; four rings say who owns which frame. A [`Receiver`] gives frames
//! to the kernel by the fill ring and gets them back with packets by the receive ring; a
//! [`XdpSender`] uses the transmit and the completion ring. Each has a memory of its own, so that
//! neither needs a lock.

mod depth;
mod memory;
mod receiver;
mod ring;
mod sender;
pub mod shared;
mod socket;
mod transmitter;
mod umem;

pub use depth::FillDepth;
pub use receiver::Receiver;
pub use sender::XdpSender;
pub use socket::Statistics;
pub use transmitter::Transmitter;

use crate::CallResult;
use crate::error::On;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// `XDP_PACKET_HEADROOM` of include/uapi/linux/bpf.h: the kernel leaves so much of a received
/// frame free in front of the packet.
pub const HEADROOM_BYTES: u32 = 256;

/// Most frames of a socket. With the largest frames they take 1 GiB, so that 32 bits can say where
/// a packet lies, and a tail still fits.
pub const FRAMES_MAX: u32 = 1 << 18;

/// The configuration of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketConfig<'a> {
    /// The interface's name, only for errors.
    pub interface: &'a str,
    /// The interface's number.
    pub interface_index: u32,
    /// The queue of that interface.
    pub queue: u32,
    /// Frames in the memory, 1 to [`FRAMES_MAX`].
    pub frames: u32,
    /// Bytes of a frame: 2048 or 4096, by the rule that a frame lies in one page.
    pub frame_bytes: u32,
    /// True demands zero-copy, false forbids it; none takes it where the driver has it.
    pub zero_copy: Option<bool>,
    /// Takes packets that are longer than a frame, in pieces (`XDP_USE_SG`, Linux 6.6).
    pub segments: bool,
    /// Puts the memory into huge pages.
    pub hugepages: bool,
    /// Lets a [`Receiver`] keep frames back that the kernel will not need soon, where it copies.
    pub adapts: bool,
    /// Lets a [`Receiver`] send back what came, from where it lies.
    pub transmits: bool,
    /// Lets it send what came by another queue, too; of another interface as a rule. No other socket
    /// may be at that queue.
    pub forwards: Option<InterfaceQueue<'a>>,
}

/// A queue of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceQueue<'a> {
    /// The interface's name, only for errors.
    pub interface: &'a str,
    /// The interface's number.
    pub interface_index: u32,
    /// The queue.
    pub queue: u32,
}

/// How a receive call polls the device ([`Receiver::wake`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakePolling {
    /// `SO_BUSY_POLL`, in microseconds. A call polls once and returns; the time matters for
    /// `poll(2)`, and 0 would turn polling off.
    pub time_us: u32,
    /// Packets of one poll at most (`SO_BUSY_POLL_BUDGET`).
    pub budget: u16,
}

impl<'a> SocketConfig<'a> {
    /// A socket with 4096 frames of 2048 bytes.
    pub fn new(interface: &'a str, interface_index: u32, queue: u32) -> Self {
        Self {
            interface,
            interface_index,
            queue,
            frames: 4096,
            frame_bytes: 2048,
            zero_copy: None,
            segments: false,
            hugepages: false,
            adapts: false,
            transmits: false,
            forwards: None,
        }
    }

    /// Where the socket is to be.
    fn place(&self) -> InterfaceQueue<'a> {
        InterfaceQueue {
            interface: self.interface,
            interface_index: self.interface_index,
            queue: self.queue,
        }
    }
}

/// Asks whether this process may have AF_XDP sockets at all (`socket(2)`).
///
/// # Errors
/// `EAFNOSUPPORT` if the kernel was built without them, `EPERM` without `CAP_NET_RAW`.
pub fn probe() -> CallResult<()> {
    socket_with(
        AddressFamily::XDP,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
    .map(drop)
    .on("socket AF_XDP", "probe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_frames_than_32_bits_can_point_to_are_refused() {
        if probe().is_err() {
            return;
        }
        for frames in [0, FRAMES_MAX + 1, u32::MAX] {
            let config = SocketConfig {
                frames,
                ..SocketConfig::new("lo", 1, 0)
            };
            let receiver = Receiver::open(&config, None).map(drop).unwrap_err();
            let sender = XdpSender::open(&config, None).map(drop).unwrap_err();
            for error in [receiver, sender] {
                assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
            }
        }
    }
}
