//! Receiving: frames go to the kernel by the fill ring and come back, full, by the receive ring.

use super::memory::MappedRing;
use super::ring::{Consumer, Piece, Producer};
use super::socket::{Ring, Socket, Statistics};
use super::{BusyPoll, SocketConfig};
use crate::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::time::Duration;

/// `XDP_PKT_CONTD` of include/uapi/linux/if_xdp.h: another piece of the packet follows.
const CONTINUES: u32 = 1;

/// Room for packets of several pieces, which are put together behind the frames: seven of the
/// longest that a socket buffer can hold (18 pages), and 58 of a 9000-byte link's.
const TAIL_BYTES: usize = 512 << 10;

/// The receiving side of one queue. What it lends stays untouched until the next
/// [`Receiver::receive`].
#[derive(Debug)]
pub struct Receiver {
    // The rings are unmapped before the socket closes, which is as good as after.
    fill: Producer<MappedRing, u64>,
    arrived: Consumer<MappedRing, Piece>,
    /// Frames that were lent, to be given back.
    lent: Vec<u64>,
    /// What frames are sent back by.
    transmit: Option<Transmit>,
    socket: Socket,
}

/// The rings by which frames that came leave again.
#[derive(Debug)]
struct Transmit {
    ring: Producer<MappedRing, Piece>,
    completed: Consumer<MappedRing, u64>,
    /// Frames that are the kernel's, to be sent.
    in_flight: u32,
    /// How many may be.
    in_flight_max: u32,
}

impl Receiver {
    /// Opens a socket on a queue with all its frames ready to be filled. Nothing comes before a
    /// program redirects packets to it.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV`; `ENETDOWN`; `EINVAL` for a queue that is not
    /// there; `EOPNOTSUPP` if zero-copy was demanded and the driver has none; `EBUSY` if another
    /// socket holds the queue; `ENOBUFS` if the memory exceeds `RLIMIT_MEMLOCK`; `ENOMEM` for
    /// huge pages that nobody set aside; for busy polling `EPERM` without `CAP_NET_ADMIN`.
    pub fn open(config: &SocketConfig<'_>, busy_poll: Option<BusyPoll>) -> Result<Self> {
        let tail_bytes = if config.segments { TAIL_BYTES } else { 0 };
        let socket = Socket::new(config, tail_bytes)?;
        // Every frame has a slot in either ring, so that neither can be full.
        let slots = config.frames.next_power_of_two();
        let mut fill = Producer::new(socket.ring(Ring::Fill, slots)?);
        // The kernel binds no socket without both rings of the memory.
        let completion = socket.ring(Ring::Completion, if config.transmits { slots } else { 2 })?;
        let transmit = if config.transmits {
            // Without it one call takes 32 packets, which is slower and no less right.
            let _ = socket.set_transmit_budget(slots);
            Some(Transmit {
                ring: Producer::new(socket.ring(Ring::Transmit, slots)?),
                completed: Consumer::new(completion),
                in_flight: 0,
                in_flight_max: (config.frames / 2).max(1),
            })
        } else {
            None
        };
        let arrived = Consumer::new(socket.ring(Ring::Receive, slots)?);
        socket.umem.addresses().for_each(|frame| fill.push(frame));
        fill.publish();
        if let Some(busy_poll) = busy_poll {
            socket.prefer_busy_poll(busy_poll.time_us, busy_poll.budget)?;
        }
        socket.bind(config)?;
        Ok(Self {
            fill,
            arrived,
            lent: Vec::with_capacity(config.frames as usize),
            transmit,
            socket,
        })
    }

    /// Gives back what was lent, then takes up to `most` packets that have arrived, and tells
    /// `each` where in [`Receiver::memory`] a packet begins and how many bytes it has. No system
    /// call is made. Returns how many packets came.
    ///
    /// A packet of several pieces is copied together; all else lies where the kernel put it.
    #[inline]
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(u32, u32)) -> usize {
        self.give_back();
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let available = self.arrived.available(most);
        let (mut taken, mut packets) = (0, 0);
        let mut tail = self.socket.umem.frame_area_bytes();
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
        }
        packets as usize
    }

    /// Where packets lie, and how many bytes there are.
    ///
    /// The bytes of a packet that [`Receiver::receive`] told of may be read until its next call,
    /// and nobody writes them until then.
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        (self.socket.umem.start(), self.socket.umem.bytes())
    }

    /// Where the frames end; what was put together from several pieces lies behind.
    pub fn frames_end(&self) -> usize {
        self.socket.umem.frame_area_bytes()
    }

    /// True if packets have arrived that were not taken. No system call is made.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        self.arrived.is_ready()
    }

    /// How many packets, or pieces of packets, have arrived and were not taken.
    pub fn queued(&mut self) -> u32 {
        self.arrived.available(u32::MAX)
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
        match recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(Errno::OPNOTSUPP) => self.wake_by_poll(),
            Err(errno) => Err(errno.into()),
        }
    }

    /// `poll(2)` drives the driver (`xsk_poll`, net/xdp/xsk.c), but does not tell that the interface
    /// is down. `sendto(2)` does: it looks for that first, and then refuses with `ENOBUFS`, because
    /// a receiver has no transmit ring (`__xsk_sendmsg`).
    fn wake_by_poll(&self) -> io::Result<()> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut polled, Some(&Timespec::default())) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        match send(&self.socket, &[], SendFlags::DONTWAIT) {
            Ok(_) | Err(Errno::NOBUFS | Errno::AGAIN | Errno::BUSY | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// True if the driver writes packets straight into the frames.
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn is_zero_copy(&self) -> Result<bool> {
        self.socket.is_zero_copy()
    }

    /// The NAPI context that serves the queue, as far as the kernel told the socket: none before
    /// the first packet until Linux 6.12, and since 6.13 none for ever where the driver does not
    /// name the NAPI context of its queues (`netif_queue_set_napi`; veth does not).
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn napi_id(&self) -> Result<Option<u32>> {
        let id = self.socket.napi_id()?;
        Ok((id != 0).then_some(id))
    }

    /// The kernel's counts for this socket.
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn statistics(&self) -> Result<Statistics> {
        self.socket.statistics()
    }

    /// Puts packets of the last [`Receiver::receive`] into the transmit ring, where they lie: `packets`
    /// tells the first byte and the length of each, in the order in which they came. What is
    /// not among them, was put together from pieces, or is no packet that was lent, is not sent.
    /// Answers how many will be sent by [`Receiver::kick`]; none without
    /// [`SocketConfig::transmits`](super::SocketConfig).
    ///
    /// No more than half of the frames are on their way out at a time: with all of them there nothing
    /// could come, and what is sent wakes nobody who waits for packets.
    pub fn send_back(&mut self, packets: impl IntoIterator<Item = (u32, u32)>) -> u32 {
        let sent = self.take_completed();
        let Some(transmit) = &mut self.transmit else {
            return 0;
        };
        let mut packets = packets.into_iter().peekable();
        let frame_bytes = self.socket.umem.frame_bytes();
        let mut count = 0;
        self.lent.retain(|address| {
            let Some((_, bytes)) = packets.next_if(|(at, _)| u64::from(*at) == *address) else {
                return true;
            };
            let fits = bytes > 0 && u64::from(bytes) + address % frame_bytes <= frame_bytes;
            if !fits || transmit.in_flight >= transmit.in_flight_max || transmit.ring.room(1) == 0 {
                return true;
            }
            transmit.ring.push(Piece {
                address: *address,
                bytes,
                options: 0,
            });
            transmit.in_flight += 1;
            count += 1;
            false
        });
        transmit.ring.publish();
        self.lent.extend(sent);
        count
    }

    /// How many packets to be sent the kernel has not taken from the ring yet.
    pub fn pending(&self) -> u32 {
        self.transmit
            .as_ref()
            .map_or(0, |transmit| transmit.ring.pending())
    }

    /// True if the kernel sends nothing until it is called; in copy mode that is always so.
    pub fn needs_kick(&self) -> bool {
        self.transmit
            .as_ref()
            .is_some_and(|transmit| transmit.ring.needs_wakeup())
    }

    /// Lets the kernel send, as [`super::Sender::kick`].
    ///
    /// # Errors
    /// As there.
    pub fn kick(&self) -> io::Result<()> {
        send(&self.socket, &[], SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Waits until the kernel may have room for what is to be sent, for `timeout` at most (`poll(2)`).
    ///
    /// # Errors
    /// `EINTR` for a signal.
    pub fn wait_for_room(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).ok();
        let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
        poll(&mut polled, timeout.as_ref())?;
        Ok(())
    }

    /// The frames that were sent, to be given back.
    fn take_completed(&mut self) -> Vec<u64> {
        let Some(transmit) = self.transmit.as_mut().filter(|sent| sent.in_flight > 0) else {
            return Vec::new();
        };
        let count = transmit.completed.available(u32::MAX);
        let frames = (0..count).map(|ahead| transmit.completed.peek(ahead));
        let frames = frames.collect();
        if count > 0 {
            transmit.completed.release(count);
            transmit.in_flight = transmit.in_flight.saturating_sub(count);
        }
        frames
    }

    /// Passes the frames of the last batch to the kernel again.
    #[inline]
    fn give_back(&mut self) {
        let completed = self.take_completed();
        self.lent.extend(completed);
        if self.lent.is_empty() {
            return;
        }
        // There are as many slots as frames, and a frame is in one place at a time.
        let room = self.fill.room(self.lent.len() as u32) as usize;
        let count = room.min(self.lent.len());
        self.lent
            .drain(..count)
            .for_each(|address| self.fill.push(address));
        self.fill.publish();
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
                self.socket.umem.copy_to_tail(piece.address, bytes, to)
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

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::NetNamespace;
    use crate::netlink::link;

    /// Every kernel can do what one without `recvfrom(2)` needs.
    #[test]
    fn poll_wakes_and_send_tells_that_the_interface_is_gone() {
        let Ok(namespace) = NetNamespace::new() else {
            return;
        };
        let woken = namespace.run(|| -> Result<_> {
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
