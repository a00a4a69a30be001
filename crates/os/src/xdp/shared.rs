//! Queues that several processes use: a launcher opens them, and the programs that it starts receive
//! and send.
//!
//! All memory is one file without a name (`memfd_create(2)`): a [`Control`] page, and the frames of
//! each queue. No process keeps state of a ring. The holder of the [`Control`]'s lock reads the indexes
//! from the rings themselves, so that a process may die at any moment.

use super::SocketConfig;
use super::memory::MappedRing;
use super::ring::{Consumer, Piece, Producer};
use super::socket::{RingKind, Statistics, XdpSocket};
use crate::CallResult;
use crate::error::On;
use crate::mmap::Mapping;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvFlags, SendFlags};
use std::net::IpAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Frames of a queue that the kernel may fill, and that answers lie in. Both are powers of two.
pub const RECEIVE_FRAMES: u32 = 2048;
/// Frames of a queue for what is sent.
pub const SEND_FRAMES: u32 = 512;
/// Most sockets of the port, and most addresses of the interface.
pub const SOCKETS_MAX: usize = 8;
/// Most addresses of the interface.
pub const ADDRESSES_MAX: usize = 16;
/// Datagrams of one socket that were found while another one was read.
pub const ASIDE_MAX: u32 = 1024;
/// Hosts whose hardware address is known, by a hash.
pub const PEERS: usize = 4096;
/// The first word of the memory.
const MAGIC: u64 = u64::from_be_bytes(*b"mppsacc1");
const PAGE_BYTES: usize = 4096;
/// How often the kernel is asked to send what is in a ring: it may take a part at a time.
const KICKS: usize = 4;

/// An IP address in shared memory, in the form of IPv6.
#[derive(Debug)]
#[repr(C)]
pub struct SharedAddress([AtomicU64; 2]);

impl SharedAddress {
    /// The address.
    #[inline]
    pub fn load(&self) -> u128 {
        u128::from(self.0[0].load(Relaxed)) << 64 | u128::from(self.0[1].load(Relaxed))
    }

    /// Sets it.
    #[inline]
    pub fn store(&self, address: u128) {
        self.0[0].store((address >> 64) as u64, Relaxed);
        self.0[1].store(address as u64, Relaxed);
    }
}

/// An address as a number: IPv4 as `::ffff:a.b.c.d`.
pub fn number_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// True for the number of an IPv4 address.
#[inline]
pub fn is_v4(address: u128) -> bool {
    address >> 32 == 0xffff
}

/// A UDP socket of the program that receives from the queues.
#[derive(Debug)]
#[repr(C)]
pub struct PortSocket {
    /// `SO_COOKIE`; 0 for a free place.
    pub cookie: AtomicU64,
    /// Where it is bound; 0 for all addresses.
    pub address: SharedAddress,
    /// Bit 0: it takes IPv4; bit 1: it takes IPv6.
    pub families: AtomicU32,
    /// The count of [`Control::switches`] that its kernel queue was emptied for.
    pub emptied: AtomicU32,
    /// Its options, as the library reads them; 0 if they may have changed.
    pub options: AtomicU64,
    /// Datagrams taken from a ring while another socket was read: first and next of a ring.
    pub aside_first: AtomicU32,
    /// The place of the next one.
    pub aside_next: AtomicU32,
    /// Queue, length and address of each.
    pub aside: [AtomicU64; ASIDE_MAX as usize],
}

/// A host that sent something.
#[derive(Debug)]
#[repr(C)]
pub struct RingPeer {
    /// Its address.
    pub address: SharedAddress,
    /// The source address that the kernel would use towards it.
    pub source: SharedAddress,
    /// Its hardware address, and above that the queue that its datagrams come by.
    pub hardware: AtomicU64,
    /// When the source was looked up, in milliseconds.
    pub checked_ms: AtomicU64,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// The fate of the datagrams.
        #[derive(Debug)]
        #[repr(C)]
        pub struct Counts { $($(#[$doc])* pub $name: AtomicU64),+ }
    };
}

counts! {
    /// Received from a ring.
    by_ring,
    /// Received from the kernel's sockets of the port.
    by_kernel,
    /// Dropped for a wrong check sum.
    bad_sum,
    /// Dropped because no socket was there, or because 1024 wait for another socket.
    no_room,
    /// Sent by a ring.
    sent_by_ring,
    /// Sent by the kernel: the peer's hardware address is unknown.
    no_neighbour,
    /// The route leads elsewhere, or the source address is not the interface's.
    other_way,
    /// Options, flags or control messages that only the kernel can honour.
    options,
    /// Longer than the MTU.
    too_long,
    /// No free frame.
    no_frame,
}

/// The first part of the memory.
#[derive(Debug)]
#[repr(C)]
pub struct Control {
    magic: AtomicU64,
    /// The process that holds the lock; 0 if it is free.
    pub lock: AtomicU32,
    /// True while the launcher switches: what the kernel's socket has is older than the rings'.
    pub is_switching: AtomicU32,
    /// The port that is wanted; 0 until a program receives, if the user named none.
    pub port: AtomicU32,
    /// 2 if a program's sockets changed, 3 while the launcher looks, 1 once it has seen all.
    pub asked: AtomicU32,
    /// How often datagrams began to go to the rings; even while they do not.
    pub switches: AtomicU32,
    /// The queue to look at first.
    pub next_queue: AtomicU32,
    /// Milliseconds of `CLOCK_MONOTONIC` until which the launcher lives.
    pub alive_until_ms: AtomicU64,
    /// Frames that wait for more to be sent, and how often the first of them began to wait.
    pub held: AtomicU32,
    /// How often frames began to wait.
    pub holds: AtomicU32,
    /// How often the launcher had to send them.
    pub flushes: AtomicU32,
    /// True while the launcher looks every half millisecond.
    pub is_watching: AtomicU32,
    /// The interface's number and MTU, its hardware address, and the bytes of a frame.
    pub interface_index: AtomicU32,
    /// The MTU.
    pub mtu: AtomicU32,
    /// The hardware address.
    pub hardware: AtomicU64,
    /// Bytes of a frame.
    pub frame_bytes: AtomicU32,
    /// How many queues there are.
    pub queues: AtomicU32,
    /// True if check sums may be unfinished, because the interface is a veth.
    pub unfinished_sums: AtomicU32,
    /// Identification of IPv4 packets.
    pub identification: AtomicU32,
    /// Addresses of the interface; 0 behind the last.
    pub addresses: [SharedAddress; ADDRESSES_MAX],
    /// The fate of the datagrams.
    pub counts: Counts,
    /// Sockets of the port.
    pub sockets: [PortSocket; SOCKETS_MAX],
    /// Peers.
    pub peers: [RingPeer; PEERS],
    /// Send frames of each queue that were used at least once.
    pub fresh: [AtomicU32; 64],
}

impl Control {
    /// The socket that the kernel would choose for a datagram to this address.
    #[inline]
    pub fn owner(&self, destination: u128) -> Option<usize> {
        let family = if is_v4(destination) { 1 } else { 2 };
        let mut found = None;
        for (at, socket) in self.sockets.iter().enumerate() {
            if socket.cookie.load(Relaxed) == 0 || socket.families.load(Relaxed) & family == 0 {
                continue;
            }
            let address = socket.address.load();
            if address == destination {
                return Some(at);
            }
            // A socket of IPv4 comes before one of both.
            if address == 0 && (found.is_none() || socket.families.load(Relaxed) == family) {
                found = Some(at);
            }
        }
        found
    }

    /// The peer's place.
    #[inline]
    pub fn peer(&self, address: u128) -> &RingPeer {
        let folded = (address >> 64) as u64 ^ address as u64;
        let hash = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        &self.peers[hash as usize % PEERS]
    }

    /// True for an address of the interface.
    pub fn has_address(&self, address: u128) -> bool {
        self.addresses.iter().any(|own| own.load() == address)
    }

    /// True while datagrams go to the rings.
    #[inline]
    pub fn is_switched(&self) -> bool {
        self.switches.load(Relaxed) & 1 == 1
    }
}

/// A mapped [`Control`].
#[derive(Debug)]
pub struct SharedControl(Mapping);

impl SharedControl {
    /// Makes the memory for `queues` queues, and maps its first part.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub fn create(queues: u32, frame_bytes: u32) -> CallResult<(OwnedFd, Self)> {
        const NAME: &str = "mpps-accelerate";
        let memory = memfd_create(NAME, MemfdFlags::CLOEXEC).on("memfd_create", NAME)?;
        let bytes = place(queues, frame_bytes);
        ftruncate(&memory, bytes).on("ftruncate", NAME)?;
        let control = Self(Mapping::of(memory.as_fd(), size_of::<Control>(), 0)?);
        control.magic.store(MAGIC, Relaxed);
        control.queues.store(queues, Relaxed);
        control.frame_bytes.store(frame_bytes, Relaxed);
        Ok((memory, control))
    }

    /// Maps the memory of a launcher; nothing if the descriptor has something different.
    pub fn join(memory: BorrowedFd<'_>) -> Option<Self> {
        let is_long = rustix::fs::fstat(memory)
            .is_ok_and(|stat| stat.st_size as u64 > size_of::<Control>() as u64);
        let control = Self(Mapping::of(memory, is_long.then_some(size_of::<Control>())?, 0).ok()?);
        (control.magic.load(Relaxed) == MAGIC).then_some(control)
    }
}

impl Deref for SharedControl {
    type Target = Control;

    fn deref(&self) -> &Control {
        // SAFETY: the mapping is as long as the type and begins at a page. It is zeroed at first, and
        // every field is an atomic, which has no invalid value.
        unsafe { self.0.start().cast().as_ref() }
    }
}

/// A queue, by its descriptor and the memory. Only the holder of the lock may call what changes it.
#[derive(Debug)]
pub struct SharedQueue {
    fill: MappedRing,
    completed: MappedRing,
    arrived: MappedRing,
    transmit: MappedRing,
    frames: Mapping,
    frame_bytes: u32,
    socket: XdpSocket,
}

impl SharedQueue {
    /// Opens the queue of `config` with the frames that the memory has for it.
    ///
    /// # Errors
    /// As for [`super::Receiver::open`].
    pub fn open(config: &SocketConfig<'_>, memory: BorrowedFd<'_>) -> CallResult<Self> {
        let socket = XdpSocket::new(&config.place())?;
        let frames = frames(memory, config.queue, config.frame_bytes)?;
        socket.register(frames.start(), frames.bytes(), config.frame_bytes)?;
        for (ring, slots) in RINGS {
            socket.ring(ring, slots)?;
        }
        let queue = Self::map(socket, frames, config.frame_bytes)?;
        let mut fill = Producer::<_, u64>::new(&queue.fill);
        (0..RECEIVE_FRAMES).for_each(|frame| fill.push(u64::from(frame * config.frame_bytes)));
        fill.publish();
        // As for `Transmitter::new`.
        let _ = queue.socket.set_transmit_budget(SEND_FRAMES);
        queue.socket.bind(config)?;
        Ok(queue)
    }

    /// Takes over a queue that a launcher opened.
    ///
    /// # Errors
    /// `EBUSY` in kernels that map no ring of a bound socket.
    pub fn join(
        socket: OwnedFd,
        memory: BorrowedFd<'_>,
        queue: u32,
        frame_bytes: u32,
    ) -> CallResult<Self> {
        let frames = frames(memory, queue, frame_bytes)?;
        Self::map(XdpSocket::of(socket)?, frames, frame_bytes)
    }

    fn map(socket: XdpSocket, frames: Mapping, frame_bytes: u32) -> CallResult<Self> {
        let map = |at: usize| socket.map_ring(RINGS[at].0, RINGS[at].1);
        let (fill, completed, arrived, transmit) = (map(0)?, map(1)?, map(2)?, map(3)?);
        Ok(Self {
            fill,
            completed,
            arrived,
            transmit,
            frames,
            frame_bytes,
            socket,
        })
    }

    /// Where the next packet lies and how long it is.
    #[inline]
    pub fn next(&self) -> Option<(u64, u32)> {
        let mut arrived = Consumer::<_, Piece>::new(&self.arrived);
        let piece = arrived.is_ready().then(|| arrived.peek(0))?;
        Some((piece.address, piece.bytes))
    }

    /// How many packets have arrived.
    pub fn waiting(&self) -> u32 {
        Consumer::<_, Piece>::new(&self.arrived).available(u32::MAX)
    }

    /// Takes the next packet out of the ring; its frame stays the caller's.
    #[inline]
    pub fn take(&mut self) {
        Consumer::<_, Piece>::new(&self.arrived).release(1);
    }

    /// Lets the kernel fill the frame of a packet again. If the driver waits for that, it is woken.
    #[inline]
    pub fn give_back(&mut self, address: u64) {
        let mut fill = Producer::new(&self.fill);
        if fill.room(1) > 0 {
            let frame_bytes = u64::from(self.frame_bytes);
            fill.push(address - address % frame_bytes);
            fill.publish();
        }
        if fill.needs_wakeup() {
            let _ = rustix::net::recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT);
        }
    }

    /// The bytes of a packet; none if it lies outside.
    #[inline]
    pub fn bytes(&self, address: u64, bytes: u32) -> Option<&[u8]> {
        let (from, bytes) = (usize::try_from(address).ok()?, bytes as usize);
        let is_inside = from.checked_add(bytes)? <= self.frames.bytes();
        // SAFETY: the range lies in the mapping. The kernel does not write a frame that came by the
        // receive ring before it is given back, which takes `&mut self`; other processes do not
        // without the lock.
        is_inside.then(|| unsafe {
            std::slice::from_raw_parts(self.frames.start().as_ptr().add(from), bytes)
        })
    }

    /// Sends a packet that `write` makes; false without a free frame. [`SharedQueue::kick`] lets the
    /// kernel send. `fresh` counts frames that were used at least once.
    #[inline]
    pub fn send(&mut self, fresh: &AtomicU32, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let used = fresh.load(Relaxed);
        let mut completed = Consumer::<_, u64>::new(&self.completed);
        let address = if used < SEND_FRAMES {
            fresh.store(used + 1, Relaxed);
            u64::from((RECEIVE_FRAMES + used) * self.frame_bytes)
        } else if completed.is_ready() {
            let address = completed.peek(0);
            completed.release(1);
            address
        } else {
            return false;
        };
        let from = (address as usize).min(self.frames.bytes() - self.frame_bytes as usize);
        // SAFETY: the range lies in the mapping. The frame was never used, or the kernel has
        // returned it; `&mut self` and the lock keep all others away.
        let frame = unsafe {
            let start = self.frames.start().as_ptr().add(from);
            std::slice::from_raw_parts_mut(start, self.frame_bytes as usize)
        };
        let bytes = write(frame) as u32;
        let mut transmit = Producer::new(&self.transmit);
        // There are as many slots as frames.
        transmit.push(Piece {
            address: from as u64,
            bytes,
            options: 0,
        });
        transmit.publish();
        true
    }

    /// Packets that the kernel has not taken from the transmit ring.
    pub fn unsent(&self) -> u32 {
        Producer::<_, Piece>::new(&self.transmit).pending()
    }

    /// Lets the kernel send. Needs no lock.
    pub fn kick(&self) {
        for _ in 0..KICKS {
            let _ = rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT);
            if self.unsent() == 0 {
                break;
            }
        }
    }

    /// The kernel's counts.
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn statistics(&self) -> CallResult<Statistics> {
        self.socket.statistics()
    }

    /// True if the driver writes packets straight into the frames.
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn is_zero_copy(&self) -> CallResult<bool> {
        self.socket.is_zero_copy()
    }
}

lends_descriptor!(SharedQueue, socket);

const RINGS: [(RingKind, u32); 4] = [
    (RingKind::Fill, RECEIVE_FRAMES),
    (RingKind::Completion, SEND_FRAMES),
    (RingKind::Receive, RECEIVE_FRAMES),
    (RingKind::Transmit, SEND_FRAMES),
];

/// A copy of a descriptor that commands inherit, with a number that no program expects.
///
/// # Errors
/// `EINVAL` if fewer than 900 descriptors are allowed.
pub fn inheritable(fd: BorrowedFd<'_>) -> CallResult<OwnedFd> {
    let copy = fcntl_dupfd_cloexec(fd, DESCRIPTORS_FROM);
    let copy = copy.on("fcntl F_DUPFD_CLOEXEC", DESCRIPTORS_FROM)?;
    fcntl_setfd(&copy, FdFlags::empty()).on("fcntl F_SETFD", DESCRIPTORS_FROM)?;
    Ok(copy)
}

/// The descriptors of the library begin here.
const DESCRIPTORS_FROM: i32 = 900;

/// Where the frames of a queue begin in the memory.
fn place(queue: u32, frame_bytes: u32) -> u64 {
    let control = size_of::<Control>().next_multiple_of(PAGE_BYTES) as u64;
    control + u64::from(queue) * u64::from(RECEIVE_FRAMES + SEND_FRAMES) * u64::from(frame_bytes)
}

fn frames(memory: BorrowedFd<'_>, queue: u32, frame_bytes: u32) -> CallResult<Mapping> {
    let bytes = (RECEIVE_FRAMES + SEND_FRAMES) as usize * frame_bytes as usize;
    Mapping::of(memory, bytes, place(queue, frame_bytes))
}
