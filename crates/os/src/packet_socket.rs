//! Packet sockets: frames as they cross an interface, in rings that the kernel shares with us.
//!
//! `packet(7)`, `Documentation/networking/packet_mmap.rst`, `net/packet/af_packet.c`.

mod fanout;
mod ring_memory;
mod rx_ring;
mod tx_ring;

pub use fanout::{FanoutGroup, FanoutMode};
pub use rx_ring::{PacketRxRing, RxFrame, RxRingSize};
pub use tx_ring::{Flushed, TxRing, TxRingSize};

use crate::bpf::classic::{self, ClassicInstruction};
use crate::error::On;
use crate::option::{self, set_option, words};
use crate::{CallError, CallResult};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A packet socket (`AF_PACKET`, `SOCK_RAW`), which sees and sends frames with their link-layer
/// header. It sees nothing until [`PacketSocket::bind`].
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    /// The interface that it was opened for, which names it in errors.
    name: String,
}

/// Which frames a packet socket takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// None: it only sends.
    None,
    /// All (`ETH_P_ALL`): it sees them before `tc` and netfilter do, and outgoing ones too, unless
    /// [`PacketSocket::ignore_outgoing`] was called.
    All,
}

/// The frames that a packet socket took and lost (`struct tpacket_stats_v3`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketStatistics {
    /// Frames that passed its filter, those dropped included.
    pub frames: u64,
    /// Frames that found no room in the ring.
    pub drops: u64,
    /// How often the ring was found full; each time it then stays so for some frames.
    pub freezes: u64,
}

impl PacketSocket {
    /// Opens a socket that is not bound (`socket(2)` with protocol 0), so that nothing comes in
    /// before its filter is set. `name` is only for errors.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` if the kernel has no packet sockets.
    pub fn new(name: &str) -> CallResult<Self> {
        let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
        Ok(Self {
            fd: socket_with(family, SocketType::RAW, flags, None).on("socket AF_PACKET", name)?,
            name: name.to_owned(),
        })
    }

    /// Sets the program that decides which frames are taken (`SO_ATTACH_FILTER`, socket(7)), in
    /// place of the one before. It sees a frame from its link-layer header on.
    ///
    /// # Errors
    /// `EINVAL` for what is no program.
    pub fn set_filter(&self, program: &[ClassicInstruction]) -> CallResult<()> {
        classic::attach(self.fd.as_fd(), program)
    }

    /// Leaves out frames that this host sends (`PACKET_IGNORE_OUTGOING`, Linux 4.20). A fan-out
    /// group does not look at this option of its members; it has a flag of its own.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 4.20.
    pub fn ignore_outgoing(&self) -> CallResult<()> {
        let name = libc::PACKET_IGNORE_OUTGOING;
        self.set_int(name, "setsockopt PACKET_IGNORE_OUTGOING", 1)
    }

    /// Hands frames straight to the device, past the queueing discipline (`PACKET_QDISC_BYPASS`,
    /// Linux 3.14, packet(7)).
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 3.14.
    pub fn bypass_qdisc(&self) -> CallResult<()> {
        let name = libc::PACKET_QDISC_BYPASS;
        self.set_int(name, "setsockopt PACKET_QDISC_BYPASS", 1)
    }

    /// Asks for a send buffer of `bytes` and returns what the kernel granted, without its doubling
    /// (`SO_SNDBUFFORCE`, `SO_SNDBUF`, socket(7)).
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn set_send_buffer(&self, bytes: usize) -> CallResult<usize> {
        option::set_send_buffer(&self.fd, &self.name, bytes)
    }

    /// Bounds how long a send waits for room (`SO_SNDTIMEO`, socket(7)); zero for no limit.
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn set_send_timeout(&self, timeout: Duration) -> CallResult<()> {
        let timeout = (!timeout.is_zero()).then_some(timeout);
        sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Send, timeout)
            .on("setsockopt SO_SNDTIMEO", &self.name)
    }

    /// The send buffer in bytes, without the kernel's doubling (`SO_SNDBUF`, socket(7)).
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn send_buffer(&self) -> CallResult<usize> {
        option::send_buffer(&self.fd, &self.name)
    }

    /// Begins to take frames of the interface with this number, or of all interfaces if it is 0
    /// (`bind(2)` with `struct sockaddr_ll`, packet(7)).
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface, `ENETDOWN` if it is down and frames are to be taken.
    pub fn bind(&self, protocol: Protocol, interface_index: u32) -> CallResult<()> {
        let protocol = match protocol {
            Protocol::None => 0,
            Protocol::All => libc::ETH_P_ALL as u16,
        };
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: libc::c_int::try_from(interface_index).unwrap_or(-1),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: `address` is readable for the size given, and the kernel only reads it.
        let answer = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if answer != 0 {
            return Err(CallError::last("bind AF_PACKET", &self.name));
        }
        Ok(())
    }

    /// The frames taken and lost after the last call: reading sets the counts to zero
    /// (`PACKET_STATISTICS`, packet(7)). They have 32 bits in the kernel.
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn take_statistics(&self) -> CallResult<PacketStatistics> {
        // struct tpacket_stats_v3; a socket with another version of rings fills in the first two.
        let counts = words(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let [frames, drops, freezes] = counts.on("getsockopt PACKET_STATISTICS", &self.name)?;
        Ok(PacketStatistics {
            frames: frames.into(),
            drops: drops.into(),
            freezes: freezes.into(),
        })
    }

    /// The error that waits on the socket, and clears it (`SO_ERROR`, socket(7)). An interface that
    /// goes down leaves `ENETDOWN`, and until it is read `poll(2)` does not sleep.
    ///
    /// # Errors
    /// That error; `ENXIO` if the interface is gone. The kernel shows that only by the number that
    /// the socket is bound to (`packet_notifier` in net/packet/af_packet.c).
    pub fn pending_error(&self) -> io::Result<()> {
        let pending = sockopt::socket_error(&self.fd)?;
        if self.interface_index()? == -1 {
            return Err(io::Error::from_raw_os_error(libc::ENXIO));
        }
        Ok(pending?)
    }

    /// The number of the interface that it is bound to (`getsockname(2)`); -1 if that is gone.
    fn interface_index(&self) -> io::Result<libc::c_int> {
        // SAFETY: all bytes 0 are a `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut size = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is writable for the size given.
        let answer = unsafe {
            libc::getsockname(
                self.fd.as_raw_fd(),
                (&raw mut address).cast(),
                &raw mut size,
            )
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(address.sll_ifindex)
    }

    fn set_int(&self, name: libc::c_int, call: &'static str, value: libc::c_int) -> CallResult<()> {
        self.set(name, call, &value)
    }

    /// Sets an option of `SOL_PACKET`.
    fn set<T: Copy>(&self, name: libc::c_int, call: &'static str, value: &T) -> CallResult<()> {
        set_option(&self.fd, libc::SOL_PACKET, name, value).on(call, &self.name)
    }
}

/// Keeps a descriptor that a library opened from programs that are started later (`FD_CLOEXEC`,
/// fcntl(2)).
///
/// # Errors
/// None besides a closed descriptor.
pub fn close_on_exec(fd: BorrowedFd<'_>) -> CallResult<()> {
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC).on("fcntl F_SETFD", fd.as_raw_fd())
}

lends_descriptor!(PacketSocket, fd);
