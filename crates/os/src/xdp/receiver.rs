//! Receiving: frames go to the kernel by the fill ring and come back, full, by the receive ring.

use super::depth::{Depth, FillDepth};
use super::memory::MappedRing;
use super::ring::{Consumer, Piece, Producer};
use super::sender::{RECEIVING, RECEIVING_SHARE};
use super::socket::{RingKind, Statistics, XdpSocket};
use super::transmitter::Transmitter;
use super::umem::Umem;
use super::{InterfaceQueue, SocketConfig, WakePolling};
use crate::CallResult;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// `XDP_PKT_CONTD` of include/uapi/linux/if_xdp.h: another piece of the packet follows.
const CONTINUES: u32 = 1;

/// Room for packets of several pieces, which are put together behind the frames: seven of the
/// longest that a socket buffer can hold (18 pages), and 58 of a 9000-byte link's.
const TAIL_BYTES: usize = 512 << 10;

/// Frames kept for what is sent unasked, and their share of all at the most.
const SPARE_MAX: usize = 512;
const SPARE_SHARE: usize = 8;

/// The receiving side of one queue. Packets that it lends stay untouched until the next
/// [`Receiver::receive`].
#[derive(Debug)]
pub struct Receiver {
    // The rings are unmapped before the socket closes, which is as good as after.
    fill: Producer<MappedRing, u64>,
    arrived: Consumer<MappedRing, Piece>,
    /// Frames that were lent, to be given back.
    lent: Vec<u64>,
    /// Frames kept back from the kernel, those used last at the end, and how many it may have; none
    /// gives it all.
    kept: Vec<u64>,
    depth: Option<Depth>,
    /// Frames kept for [`Receiver::push`], and how many there should be.
    spare: Vec<u64>,
    spares: usize,
    /// Frames that the kernel has, empty or in the receive ring.
    held: u32,
    /// The ways out for received frames: the receiver's own queue, and another one.
    ways: Vec<Transmitter>,
    /// How many frames may be on their way out by each of them.
    in_flight_max: u32,
    socket: Arc<XdpSocket>,
    umem: Umem,
}

impl Receiver {
    /// Opens a socket on a queue with all its frames ready to be filled. Nothing comes before a
    /// program redirects packets to it.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV`; `ENETDOWN`; `EINVAL` for a queue that does not
    /// exist; `EOPNOTSUPP` if zero-copy is required and the driver does not have it; `EBUSY` if
    /// another socket holds the queue; `ENOBUFS` if the memory exceeds `RLIMIT_MEMLOCK`; `ENOMEM`
    /// if too few huge pages were set aside; for busy polling `EPERM` without `CAP_NET_ADMIN`.
    pub fn open(config: &SocketConfig<'_>, busy_poll: Option<WakePolling>) -> CallResult<Self> {
        let tail_bytes = if config.segments { TAIL_BYTES } else { 0 };
        let (socket, umem) = XdpSocket::with_memory(config, tail_bytes)?;
        let socket = Arc::new(socket);
        // Every frame has a slot in either ring, so that neither can be full.
        let slots = config.frames.next_power_of_two();
        let mut fill = Producer::new(socket.ring(RingKind::Fill, slots)?);
        let mut ways = Vec::new();
        if config.transmits || config.forwards.is_some() {
            ways.push(Transmitter::new(&socket, slots)?);
        } else {
            // The kernel binds no socket without both rings of the memory.
            socket.ring(RingKind::Completion, 2)?;
        }
        let arrived = Consumer::new(socket.ring(RingKind::Receive, slots)?);
        let mut frames: Vec<u64> = umem.addresses().collect();
        let spared = match config.forwards {
            Some(_) => (config.frames / RECEIVING_SHARE).min(RECEIVING),
            None => 0,
        };
        let spared = frames.split_off((config.frames - spared) as usize);
        let spares = match config.transmits {
            true => (frames.len() / SPARE_SHARE).min(SPARE_MAX),
            false => 0,
        };
        let spare = frames.split_off(frames.len() - spares);
        frames.iter().for_each(|frame| fill.push(*frame));
        fill.publish();
        if let Some(busy_poll) = busy_poll {
            socket.prefer_busy_poll(busy_poll.time_us, busy_poll.budget)?;
        }
        socket.bind(config)?;
        let mut lent = Vec::with_capacity(config.frames as usize);
        // With all frames on their way out nothing could be received, and the end of a transmission
        // wakes no receiver. A way that is stuck does not take the share of the other one.
        let in_flight_max = config.frames / 2 / if config.forwards.is_some() { 2 } else { 1 };
        if let Some(place) = &config.forwards {
            ways.push(open_way(place, &socket, slots, &spared, &mut lent)?);
        }
        // A zero-copy driver has its own ring to fill, whose size is not reported.
        let adapts = config.adapts && !socket.is_zero_copy()?;
        let depth = adapts.then(|| Depth::new((frames.len() + lent.len()) as u32));
        Ok(Self {
            fill,
            arrived,
            lent,
            kept: Vec::with_capacity(config.frames as usize),
            depth,
            spare,
            spares,
            held: frames.len() as u32,
            ways,
            in_flight_max: in_flight_max.max(1),
            socket,
            umem,
        })
    }

    /// Gives back the lent packets, then takes up to `most` packets that have arrived. Passes to
    /// `each` where in [`Receiver::memory`] a packet begins and how many bytes it has. No system
    /// call is made. Returns how many packets came.
    ///
    /// A packet of several pieces is copied together; all others lie where the kernel put them.
    #[inline]
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(u32, u32)) -> usize {
        let held = self.held;
        self.give_back();
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let available = self.arrived.available(most);
        if let Some(depth) = &mut self.depth
            // Frames given just now do not show whether it had run out.
            && depth.found(available, held.saturating_sub(available))
        {
            self.give_back();
        }
        let (mut taken, mut packets) = (0, 0);
        let mut tail = self.umem.frame_area_bytes();
        while taken < available && packets < most {
            let piece = self.arrived.peek(taken);
            if piece.options & CONTINUES == 0 {
                self.lent.push(piece.address);
                // The memory is far below 4 GiB, by `SocketConfig`.
                each(piece.address as u32, piece.bytes);
                taken += 1;
            } else {
                let Some((pieces, bytes)) = self.join(taken, available, tail) else {
                    break;
                };
                each(tail as u32, bytes);
                tail += bytes as usize;
                taken += pieces;
            }
            packets += 1;
        }
        if taken > 0 {
            self.arrived.release(taken);
            self.held -= taken;
            if let Some(depth) = &mut self.depth {
                depth.received(taken);
            }
        }
        packets as usize
    }

    /// Gives the kernel every frame: nothing came for a while, and what comes next may come all at
    /// once.
    pub fn give_all(&mut self) {
        if let Some(depth) = &mut self.depth {
            depth.silence();
            self.give_back();
        }
    }

    /// How many frames the kernel was given at a time; none if it has all of them always.
    pub fn fill_depth(&self) -> Option<FillDepth> {
        self.depth.as_ref().map(Depth::told)
    }

    /// Where packets lie, and how many bytes there are.
    ///
    /// The bytes of a packet that [`Receiver::receive`] returned may be read until its next call.
    /// They are not written until then.
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        (self.umem.start(), self.umem.bytes())
    }

    /// Where the frames end; what was put together from several pieces lies behind.
    pub fn frames_end(&self) -> usize {
        self.umem.frame_area_bytes()
    }

    /// True if packets have arrived that were not taken. No system call is made.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        self.arrived.is_ready()
    }

    /// True if the driver ran out of frames and sleeps until it is called.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Calls the driver (`recvfrom(2)`, `MSG_DONTWAIT`, Linux 5.11): it looks for frames to fill,
    /// and with busy polling it receives. Before that `poll(2)` makes the driver look.
    ///
    /// # Errors
    /// `ENETDOWN` if the interface was set down, `ENXIO` if it is gone.
    pub fn wake(&self) -> io::Result<()> {
        match recv(&*self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(Errno::OPNOTSUPP) => self.wake_by_poll(),
            Err(errno) => Err(errno.into()),
        }
    }

    /// `poll(2)` drives the driver (`xsk_poll`, net/xdp/xsk.c), but does not report that the
    /// interface is down. `sendto(2)` does: it looks for that first, and then refuses with
    /// `ENOBUFS`, because a receiver has no transmit ring (`__xsk_sendmsg`).
    fn wake_by_poll(&self) -> io::Result<()> {
        let mut polled = [PollFd::new(&*self.socket, PollFlags::IN)];
        match poll(&mut polled, Some(&Timespec::default())) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        match send(&*self.socket, &[], SendFlags::DONTWAIT) {
            Ok(_) | Err(Errno::NOBUFS | Errno::AGAIN | Errno::BUSY | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// True if the driver writes packets straight into the frames.
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn is_zero_copy(&self) -> CallResult<bool> {
        self.socket.is_zero_copy()
    }

    /// The NAPI context that serves the queue, if the kernel has set it in the socket. Until Linux
    /// 6.12 there is none before the first packet. From 6.13 on there is none if the driver does
    /// not name its queues' NAPI contexts (`netif_queue_set_napi`; veth does not).
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn napi_id(&self) -> CallResult<Option<u32>> {
        let id = self.socket.napi_id()?;
        Ok((id != 0).then_some(id))
    }

    /// The kernel's counts for this socket.
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn statistics(&self) -> CallResult<Statistics> {
        self.socket.statistics()
    }

    /// Puts packets of the last [`Receiver::receive`] into a transmit ring, where they lie.
    /// `packets` lists them in order of arrival: first byte, length, and the index of a way out in
    /// [`Receiver::ways`]. Packets not listed, put together from pieces, or never lent are not
    /// sent. Returns how many will be sent by [`Transmitter::kick`].
    ///
    /// At most half of the frames are on their way out at a time, a quarter by each of two ways.
    pub fn send(&mut self, packets: impl IntoIterator<Item = (u32, u32, usize)>) -> u32 {
        let mut sent = Vec::new();
        let ways = self.ways.iter_mut();
        ways.for_each(|way| way.take_completed(&mut sent));
        let most = self.in_flight_max;
        let mut packets = packets.into_iter().peekable();
        let frame_bytes = self.umem.frame_bytes();
        let ways = &mut self.ways;
        let mut count = 0;
        self.lent.retain(|address| {
            let Some((_, bytes, way)) = packets.next_if(|(at, ..)| u64::from(*at) == *address)
            else {
                return true;
            };
            let fits = bytes > 0 && u64::from(bytes) + address % frame_bytes <= frame_bytes;
            let way = ways.get_mut(way);
            let Some(way) = way.filter(|way| fits && way.in_flight() < most) else {
                return true;
            };
            let is_pushed = way.push(*address, bytes);
            count += u32::from(is_pushed);
            !is_pushed
        });
        self.ways.iter_mut().for_each(Transmitter::publish);
        self.lent.extend(sent);
        count
    }

    /// How many packets [`Receiver::push`] has room for now. Takes back those that were sent.
    pub fn room(&mut self) -> usize {
        let most = self.in_flight_max;
        let Some(way) = self.ways.first_mut() else {
            return 0;
        };
        way.take_completed(&mut self.lent);
        let left = most.saturating_sub(way.in_flight()) as usize;
        left.min(self.spare.len() + self.lent.len())
    }

    /// The most that there is ever room for.
    pub fn room_max(&self) -> usize {
        self.in_flight_max as usize
    }

    /// Lends a frame to `write`, which answers how many bytes of it are to be sent by the receiver's own
    /// queue, and puts it into the ring; [`Receiver::publish`] shows it to the kernel. False without
    /// room. Packets of the last [`Receiver::receive`] are given up.
    pub fn push(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(way) = self.ways.first_mut() else {
            return false;
        };
        let Some(address) = self.spare.pop().or_else(|| self.lent.pop()) else {
            return false;
        };
        // A packet may begin anywhere in its frame.
        let address = address - address % self.umem.frame_bytes();
        // SAFETY: the frame is in no ring, and no packet is lent any more.
        let Some(frame) = (unsafe { self.umem.frame_mut(address) }) else {
            return false;
        };
        let bytes = write(frame).min(frame.len()) as u32;
        way.push(address, bytes)
    }

    /// Shows the kernel what was pushed.
    pub fn publish(&mut self) {
        self.ways.iter_mut().for_each(Transmitter::publish);
    }

    /// True if frames are on their way out, as far as the kernel has reported. Takes back those
    /// that are not.
    pub fn is_sending(&mut self) -> bool {
        let ways = self.ways.iter_mut();
        ways.for_each(|way| way.take_completed(&mut self.lent));
        self.ways.iter().any(|way| way.in_flight() > 0)
    }

    /// The ways out: the receiver's own queue with
    /// [`SocketConfig::transmits`](super::SocketConfig), and behind it the queue that it forwards
    /// to.
    pub fn ways(&self) -> &[Transmitter] {
        &self.ways
    }

    /// Passes the frames of the last batch to the kernel again, or keeps them.
    #[inline]
    fn give_back(&mut self) {
        let ways = self.ways.iter_mut();
        ways.for_each(|way| way.take_completed(&mut self.lent));
        if self.spare.len() < self.spares {
            let missing = self.spares - self.spare.len();
            let rest = self.lent.len().saturating_sub(missing);
            self.spare.extend(self.lent.drain(rest..));
        }
        let short = match &self.depth {
            Some(depth) => depth.frames().saturating_sub(self.held),
            None => u32::MAX,
        };
        if short > self.lent.len() as u32 && !self.kept.is_empty() {
            self.take_from_kept(short);
        }
        if self.lent.is_empty() {
            return;
        }
        // There are as many slots as frames, and a frame is in one place at a time.
        let wanted = short.min(self.lent.len() as u32);
        let count = self.fill.room(wanted).min(wanted);
        // Those used last.
        let rest = self.lent.len() - count as usize;
        self.lent
            .drain(rest..)
            .for_each(|address| self.fill.push(address));
        self.held += count;
        self.fill.publish();
        if self.depth.is_some() {
            self.kept.append(&mut self.lent);
        }
    }

    /// Takes frames that were kept back, until there are `wanted` to give.
    #[cold]
    fn take_from_kept(&mut self, wanted: u32) {
        let missing = (wanted as usize).saturating_sub(self.lent.len());
        let rest = self.kept.len().saturating_sub(missing);
        self.lent.extend(self.kept.drain(rest..));
    }

    /// Puts the packet together that begins `from` slots ahead, at `tail` in the memory: how many
    /// pieces and bytes it has. Nothing if its end has not arrived, or if the tail is full.
    #[cold]
    fn join(&mut self, from: u32, available: u32, tail: usize) -> Option<(u32, u32)> {
        let begun = self.lent.len();
        let mut to = tail;
        for ahead in from..available {
            let piece = self.arrived.peek(ahead);
            // SAFETY: the piece was taken from the receive ring and has not been given back.
            let is_copied = unsafe {
                let bytes = piece.bytes as usize;
                self.umem.copy_to_tail(piece.address, bytes, to)
            };
            if !is_copied {
                break;
            }
            to += piece.bytes as usize;
            self.lent.push(piece.address);
            if piece.options & CONTINUES == 0 {
                return Some((ahead - from + 1, (to - tail) as u32));
            }
        }
        // It stays in the ring; only the kernel's own promise to deliver whole packets, and the
        // tail's being longer than any of them, make sure that the next call gets further.
        self.lent.truncate(begun);
        None
    }
}

/// Binds a socket to another queue, for the frames of `socket`. A zero-copy driver receives into
/// the frames of the socket at a queue. That includes packets that a program passes on to the
/// kernel. The `spared` frames are for that. They go to the receiver if the kernel copies.
fn open_way(
    place: &InterfaceQueue<'_>,
    socket: &XdpSocket,
    slots: u32,
    spared: &[u64],
    lent: &mut Vec<u64>,
) -> CallResult<Transmitter> {
    let out = Arc::new(XdpSocket::new(place)?);
    let mut fill = Producer::new(out.ring(RingKind::Fill, slots)?);
    let way = Transmitter::new(&out, slots)?;
    if socket.is_zero_copy()? {
        spared.iter().for_each(|frame| fill.push(*frame));
        fill.publish();
    } else {
        lent.extend(spared);
    }
    out.bind_sharing(place, socket)?;
    Ok(way)
}

lends_descriptor!(Receiver, socket);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::NetNamespace;
    use crate::netlink::link;
    use std::os::fd::AsFd;

    /// Every kernel can do what one without `recvfrom(2)` needs.
    #[test]
    fn poll_wakes_and_send_tells_that_the_interface_is_gone() {
        let Ok(namespace) = NetNamespace::new() else {
            return;
        };
        let woken = namespace.run(|| -> CallResult<_> {
            link::create_veth("near", 1, "far", 1, namespace.as_fd())?;
            let index = link::index("near")?;
            link::set_up(index)?;
            let receiver = Receiver::open(&SocketConfig::new("near", index, 0), None)?;
            let there = receiver.wake_by_poll();
            link::delete(index)?;
            Ok((there, receiver.wake_by_poll(), receiver.wake()))
        });
        let (there, gone, told) = woken.unwrap().unwrap();
        assert!(there.is_ok(), "{there:?}");
        for answer in [gone, told] {
            let refusal = answer.unwrap_err();
            assert_eq!(refusal.raw_os_error(), Some(libc::ENXIO), "{refusal}");
        }
    }
}
