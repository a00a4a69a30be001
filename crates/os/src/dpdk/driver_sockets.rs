//! The sockets of DPDK's socket drivers: what they drop, and what is left of them.
//!
//! `net_af_packet` of DPDK 22.11 has no counter of what the kernel dropped for want of room, and
//! `net_af_xdp` leaves out what found its ring full. Their sockets can be asked, and are found
//! among the descriptors that appear while the device is opened.

use crate::bpf::classic::{self, ClassicInstruction};
use crate::error::On;
use crate::{CallError, CallResult};
use rustix::event::epoll;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

/// The sockets that this process has open: descriptor, and the kernel's own name, as a number that
/// was closed may come again.
#[derive(Debug)]
pub(super) struct OpenSockets(BTreeSet<(RawFd, PathBuf)>);

/// A driver's own sockets.
#[derive(Debug, Default)]
pub(super) struct DriverSockets {
    packet: Vec<OwnedFd>,
    xdp: Vec<OwnedFd>,
}

/// AF_XDP sockets of a driver, which are closed with this value if the driver has not done so.
///
/// `net_af_xdp` of DPDK 22.11 closes its device and leaves the descriptor open, so that the queue
/// stays taken until the process ends (`EBUSY` for the next one).
#[derive(Debug)]
pub(super) struct Leftovers(Vec<(RawFd, PathBuf)>);

/// Packets that sockets dropped because their rings were full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SocketDrops {
    /// `tp_drops` of packet(7), counted from the last read.
    pub(super) packet_ring_full: u64,
    /// `rx_ring_full` of `struct xdp_statistics`, counted from the opening of the socket.
    pub(super) xdp_ring_full: u64,
}

impl OpenSockets {
    /// Those that are open now.
    ///
    /// # Errors
    /// No `/proc`.
    pub(super) fn now() -> CallResult<Self> {
        const PATH: &str = "/proc/self/fd";
        let listed = fs::read_dir(PATH).on("open", PATH)?;
        let open = listed.filter_map(std::result::Result::ok);
        let named = open.filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, socket_name(number)?))
        });
        Ok(Self(named.collect()))
    }
}

impl DriverSockets {
    /// The packet and AF_XDP sockets that were opened after `before`. They would include a socket
    /// that another thread opened at the same moment, so devices are opened before traffic.
    ///
    /// # Errors
    /// No `/proc`.
    pub(super) fn since(before: &OpenSockets) -> CallResult<(Self, Leftovers)> {
        let (mut found, mut leftovers) = (Self::default(), Leftovers(Vec::new()));
        for (number, name) in OpenSockets::now()?.0.difference(&before.0) {
            // SAFETY: the descriptor was open a moment ago. If it has been closed since, the calls
            // below fail or concern another socket; nothing is closed through this borrow.
            let socket = unsafe { BorrowedFd::borrow_raw(*number) };
            let Ok(domain) = rustix::net::sockopt::socket_domain(socket) else {
                continue;
            };
            let group = match i32::from(domain.as_raw()) {
                libc::AF_PACKET => &mut found.packet,
                libc::AF_XDP => {
                    leftovers.0.push((*number, name.clone()));
                    &mut found.xdp
                }
                _ => continue,
            };
            // Our own copy, so that the number cannot come to mean another file.
            if let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(socket, 0) {
                group.push(copy);
            }
        }
        Ok((found, leftovers))
    }

    /// A descriptor that is readable while one of them has packets (an epoll instance, epoll(7));
    /// none if there are no sockets.
    ///
    /// # Errors
    /// `EMFILE` if descriptors ran out.
    pub(super) fn readiness(&self) -> CallResult<Option<OwnedFd>> {
        let mut sockets = self.packet.iter().chain(&self.xdp).peekable();
        if sockets.peek().is_none() {
            return Ok(None);
        }
        let failed =
            |call| move |errno: rustix::io::Errno| CallError::new(call, "epoll", errno.into());
        let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create1"))?;
        for socket in sockets {
            let nobody = epoll::EventData::new_u64(0);
            epoll::add(&all, socket, nobody, epoll::EventFlags::IN).map_err(failed("epoll_ctl"))?;
        }
        Ok(Some(all))
    }

    /// Attaches a filter to the packet sockets, and forgets what they dropped before.
    ///
    /// # Errors
    /// As for [`classic::attach`].
    pub(super) fn set_filter(&self, program: &[ClassicInstruction]) -> CallResult<()> {
        for socket in &self.packet {
            classic::attach(socket.as_fd(), program)?;
            packet_drops(socket.as_fd());
        }
        Ok(())
    }

    /// Asks all of them.
    pub(super) fn drops(&self) -> SocketDrops {
        let mut drops = SocketDrops::default();
        for socket in &self.packet {
            drops.packet_ring_full += packet_drops(socket.as_fd());
        }
        for socket in &self.xdp {
            drops.xdp_ring_full += xdp_ring_full(socket.as_fd());
        }
        drops
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for (number, name) in &self.0 {
            if socket_name(*number).as_ref() == Some(name) {
                // SAFETY: this is still the socket that the driver opened and has forgotten: its
                // device is gone.
                drop(unsafe { OwnedFd::from_raw_fd(*number) });
            }
        }
    }
}

/// The kernel's name of the socket that this descriptor is, `socket:[INODE]` (proc(5)).
fn socket_name(number: RawFd) -> Option<PathBuf> {
    let name = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    name.to_string_lossy()
        .starts_with("socket:")
        .then_some(name)
}

/// `PACKET_STATISTICS` of packet(7), which starts again at each read. A socket that does not answer
/// counts as 0 drops.
fn packet_drops(socket: BorrowedFd<'_>) -> u64 {
    let mut statistics = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    option(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_STATISTICS,
        &mut statistics,
    );
    u64::from(statistics.tp_drops)
}

/// `XDP_STATISTICS` of Documentation/networking/af_xdp.rst.
fn xdp_ring_full(socket: BorrowedFd<'_>) -> u64 {
    let mut statistics = libc::xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    };
    option(socket, libc::SOL_XDP, libc::XDP_STATISTICS, &mut statistics);
    statistics.rx_ring_full
}

/// `getsockopt(2)` of a structure that consists of numbers; it stays as it is on a refusal.
fn option<T: Copy>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &mut T) {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` into `value`, which is made of plain numbers.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(value).cast(),
            &raw mut bytes,
        );
    }
}
