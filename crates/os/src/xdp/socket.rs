//! The common part of receiving and sending AF_XDP sockets: opening, binding, asking.

use super::memory::MappedRing;
use super::ring::{Piece, RingSlot};
use super::umem::Umem;
use super::{FRAMES_MAX, InterfaceQueue, SocketConfig};
use crate::error::On;
use crate::option::{set_option, set_send_buffer, words};
use crate::{CallError, CallResult};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpMmapOffsets,
    XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

// Values from include/uapi/asm-generic/socket.h; `libc` does not have them on every target.
const SO_BUSY_POLL: libc::c_int = 46;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// `XDP_MAX_TX_SKB_BUDGET` of include/uapi/linux/if_xdp.h, Linux 6.17.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// How often a bind to a busy queue is tried. The kernel takes a closed socket off its queue
/// later, in a work item and after a grace period (`xp_put_pool`, net/xdp/xsk_buff_pool.c): the
/// pauses double from 1 ms to 64 ms and sum up to about a second.
const BIND_ATTEMPTS: u32 = 20;
const BIND_PAUSE_MS_MAX: u64 = 64;

/// An AF_XDP socket. An owner that also has the packets' memory closes the socket first, by the
/// order of its fields. The kernel holds the pages by itself, but no packet should be on its way
/// into them.
#[derive(Debug)]
pub(super) struct XdpSocket {
    fd: OwnedFd,
    /// Names the queue in errors: `eth0 queue 3`.
    name: String,
    offsets: XdpMmapOffsets,
}

/// Which of the four rings; each has its option and its place (if_xdp.h).
#[derive(Debug, Clone, Copy)]
pub(super) enum RingKind {
    Fill,
    Completion,
    Receive,
    Transmit,
}

/// The kernel's counters of a socket (`XDP_STATISTICS`, include/uapi/linux/if_xdp.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets dropped because no frame was free, or because they were longer than a frame.
    pub rx_dropped: u64,
    /// Received descriptors that were invalid.
    pub rx_invalid: u64,
    /// Descriptors to transmit that were invalid: outside the memory, or too long.
    pub tx_invalid: u64,
    /// Packets dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Times that the fill ring was found empty.
    pub fill_ring_empty: u64,
    /// Times that the transmit ring was found empty.
    pub tx_ring_empty: u64,
}

impl XdpSocket {
    /// Opens a socket, and registers memory with it (`XDP_UMEM_REG`).
    pub(super) fn with_memory(
        config: &SocketConfig<'_>,
        tail_bytes: usize,
    ) -> CallResult<(Self, Umem)> {
        let socket = Self::new(&config.place())?;
        // Beyond it, 32 bits could not say where a packet lies.
        if !(1..=FRAMES_MAX).contains(&config.frames) {
            Err(Errno::INVAL).on("setsockopt XDP_UMEM_REG", &socket.name)?;
        }
        let umem = Umem::new(config, tail_bytes)?;
        socket.register(umem.start(), umem.frame_area_bytes(), config.frame_bytes)?;
        Ok((socket, umem))
    }

    /// Registers memory that was mapped only for this, and lives as long as the descriptor.
    pub(super) fn register(
        &self,
        start: NonNull<u8>,
        bytes: usize,
        frame_bytes: u32,
    ) -> CallResult<()> {
        sockopt::set_xdp_umem_reg(
            &self.fd,
            XdpUmemReg {
                addr: start.as_ptr() as u64,
                len: bytes as u64,
                chunk_size: frame_bytes,
                headroom: 0,
                flags: XdpUmemRegFlags::empty(),
                tx_metadata_len: 0,
            },
        )
        .on("setsockopt XDP_UMEM_REG", &self.name)
    }

    /// A socket that another process opened and handed on.
    pub(super) fn of(fd: OwnedFd) -> CallResult<Self> {
        let name = "of the launcher".to_owned();
        let offsets = sockopt::xdp_mmap_offsets(&fd).on("getsockopt XDP_MMAP_OFFSETS", &name)?;
        Ok(Self { fd, name, offsets })
    }

    /// Opens a socket (`socket(2)`, `AF_XDP`) for a queue.
    pub(super) fn new(place: &InterfaceQueue<'_>) -> CallResult<Self> {
        let name = format!("{} queue {}", place.interface, place.queue);
        let fd = net::socket_with(
            AddressFamily::XDP,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .on("socket AF_XDP", &name)?;
        let offsets = sockopt::xdp_mmap_offsets(&fd).on("getsockopt XDP_MMAP_OFFSETS", &name)?;
        Ok(Self { fd, name, offsets })
    }

    /// Makes a ring of `slots` slots, a power of two, and maps it.
    pub(super) fn ring(&self, ring: RingKind, slots: u32) -> CallResult<MappedRing> {
        let fd = &self.fd;
        let (call, made) = match ring {
            RingKind::Fill => (
                "setsockopt XDP_UMEM_FILL_RING",
                sockopt::set_xdp_umem_fill_ring_size(fd, slots),
            ),
            RingKind::Completion => (
                "setsockopt XDP_UMEM_COMPLETION_RING",
                sockopt::set_xdp_umem_completion_ring_size(fd, slots),
            ),
            RingKind::Receive => (
                "setsockopt XDP_RX_RING",
                sockopt::set_xdp_rx_ring_size(fd, slots),
            ),
            RingKind::Transmit => (
                "setsockopt XDP_TX_RING",
                sockopt::set_xdp_tx_ring_size(fd, slots),
            ),
        };
        made.on(call, &self.name)?;
        self.map_ring(ring, slots)
    }

    /// Maps a ring that was made with `slots` slots.
    pub(super) fn map_ring(&self, ring: RingKind, slots: u32) -> CallResult<MappedRing> {
        use rustix::net::xdp::{
            XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
            XDP_UMEM_PGOFF_FILL_RING,
        };
        let (at, offsets) = (self.fd.as_fd(), &self.offsets);
        match ring {
            RingKind::Fill => map::<u64>(at, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, slots),
            RingKind::Completion => {
                map::<u64>(at, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, slots)
            }
            RingKind::Receive => map::<Piece>(at, XDP_PGOFF_RX_RING, &offsets.rx, slots),
            RingKind::Transmit => map::<Piece>(at, XDP_PGOFF_TX_RING, &offsets.tx, slots),
        }
    }

    /// Binds to the queue (`bind(2)`), again and again while a socket that was just closed still
    /// holds it.
    pub(super) fn bind(&self, config: &SocketConfig<'_>) -> CallResult<()> {
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        match config.zero_copy {
            None => {}
            Some(true) => flags |= SocketAddrXdpFlags::XDP_ZEROCOPY,
            Some(false) => flags |= SocketAddrXdpFlags::XDP_COPY,
        }
        if config.segments {
            flags |= SocketAddrXdpFlags::XDP_USE_SG;
        }
        let address = SocketAddrXdp::new(flags, config.interface_index, config.queue);
        self.bind_to(&address)
    }

    /// Binds to another queue, with the memory of a socket that is bound (`XDP_SHARED_UMEM`,
    /// Linux 5.10). Whether packets are copied is as it is there.
    pub(super) fn bind_sharing(&self, place: &InterfaceQueue<'_>, with: &Self) -> CallResult<()> {
        let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
        self.bind_to(&SocketAddrXdpWithSharedUmem {
            addr: SocketAddrXdp::new(flags, place.interface_index, place.queue),
            shared_umem_fd: with.fd.as_fd(),
        })
    }

    fn bind_to(&self, address: &impl SocketAddrArg) -> CallResult<()> {
        let mut attempt = 0;
        loop {
            match net::bind(&self.fd, address) {
                Ok(()) => return Ok(()),
                Err(Errno::BUSY) if attempt < BIND_ATTEMPTS => {
                    let pause = (1 << attempt.min(6)).min(BIND_PAUSE_MS_MAX);
                    thread::sleep(Duration::from_millis(pause));
                    attempt += 1;
                }
                Err(errno) => {
                    return Err(CallError::new("bind AF_XDP", &self.name, errno.into()));
                }
            }
        }
    }

    /// Lets receive calls drive the queue's NAPI context, and keeps its interrupts off while they
    /// come (`SO_PREFER_BUSY_POLL`, `SO_BUSY_POLL_BUDGET`, Linux 5.11, socket(7)).
    pub(super) fn prefer_busy_poll(&self, microseconds: u32, budget: u16) -> CallResult<()> {
        let microseconds = libc::c_int::try_from(microseconds).unwrap_or(libc::c_int::MAX);
        let options = [
            (SO_PREFER_BUSY_POLL, "setsockopt SO_PREFER_BUSY_POLL", 1),
            (SO_BUSY_POLL, "setsockopt SO_BUSY_POLL", microseconds),
            (
                SO_BUSY_POLL_BUDGET,
                "setsockopt SO_BUSY_POLL_BUDGET",
                libc::c_int::from(budget),
            ),
        ];
        options
            .into_iter()
            .try_for_each(|(option, call, value)| self.set(libc::SOL_SOCKET, option, call, value))
    }

    /// The NAPI context that busy polling would drive (`SO_INCOMING_NAPI_ID`, socket(7)); 0 if the
    /// kernel does not know it.
    pub(super) fn napi_id(&self) -> CallResult<u32> {
        let [id] = words(&self.fd, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID)
            .on("getsockopt SO_INCOMING_NAPI_ID", &self.name)?;
        Ok(id)
    }

    /// Lets one send call take up to `packets` in copy mode (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17;
    /// 32 otherwise).
    pub(super) fn set_transmit_budget(&self, packets: u32) -> CallResult<()> {
        let packets = libc::c_int::try_from(packets).unwrap_or(libc::c_int::MAX);
        let call = "setsockopt XDP_MAX_TX_SKB_BUDGET";
        self.set(libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, call, packets)
    }

    /// Asks for a send buffer of `bytes`, and answers what was granted, without the kernel's
    /// doubling. In copy mode each packet in flight is charged to it.
    pub(super) fn set_send_buffer(&self, bytes: usize) -> CallResult<usize> {
        set_send_buffer(&self.fd, &self.name, bytes)
    }

    /// True if the driver was granted zero-copy (`XDP_OPTIONS`).
    pub(super) fn is_zero_copy(&self) -> CallResult<bool> {
        sockopt::xdp_options(&self.fd)
            .map(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
            .on("getsockopt XDP_OPTIONS", &self.name)
    }

    /// The kernel's counts.
    pub(super) fn statistics(&self) -> CallResult<Statistics> {
        let counts =
            sockopt::xdp_statistics(&self.fd).on("getsockopt XDP_STATISTICS", &self.name)?;
        Ok(Statistics {
            rx_dropped: counts.rx_dropped,
            rx_invalid: counts.rx_invalid_descs,
            tx_invalid: counts.tx_invalid_descs,
            rx_ring_full: counts.rx_ring_full.unwrap_or(0),
            fill_ring_empty: counts.rx_fill_ring_empty_descs.unwrap_or(0),
            tx_ring_empty: counts.tx_ring_empty_descs.unwrap_or(0),
        })
    }

    fn set(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        call: &'static str,
        value: libc::c_int,
    ) -> CallResult<()> {
        set_option(&self.fd, level, option, &value).on(call, &self.name)
    }
}

lends_descriptor!(XdpSocket, fd);

fn map<S: RingSlot>(
    fd: BorrowedFd<'_>,
    page_offset: u64,
    offsets: &net::xdp::XdpRingOffset,
    slots: u32,
) -> CallResult<MappedRing> {
    MappedRing::new::<S>(fd, page_offset, offsets, slots)
}
