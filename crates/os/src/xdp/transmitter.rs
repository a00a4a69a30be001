//! A transmit ring, and the completion ring that returns sent frames.

use super::memory::MappedRing;
use super::ring::{Consumer, Piece, Producer};
use super::socket::{RingKind, XdpSocket};
use crate::CallResult;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The way out for frames: a transmit ring of one queue, and the socket that wakes the kernel.
#[derive(Debug)]
pub struct Transmitter {
    ring: Producer<MappedRing, Piece>,
    completed: Consumer<MappedRing, u64>,
    /// Frames that are the kernel's, to be sent.
    in_flight: u32,
    pub(super) socket: Arc<XdpSocket>,
}

impl Transmitter {
    /// Makes the rings of a socket with `slots` slots: a power of two, and as many as there are
    /// frames, so that neither can be full.
    pub(super) fn new(socket: &Arc<XdpSocket>, slots: u32) -> CallResult<Self> {
        let completed = Consumer::new(socket.ring(RingKind::Completion, slots)?);
        let ring = Producer::new(socket.ring(RingKind::Transmit, slots)?);
        // The kernel grants it once there is a ring with this number of slots. It refuses less than
        // 32 (`xsk_setsockopt`, net/xdp/xsk.c). Without it one call takes 32 packets, which is
        // slower but also correct.
        let _ = socket.set_transmit_budget(slots);
        Ok(Self {
            completed,
            ring,
            in_flight: 0,
            socket: Arc::clone(socket),
        })
    }

    /// Puts a packet into the ring; [`Transmitter::publish`] shows it to the kernel. False if there is
    /// no room.
    #[inline]
    pub(super) fn push(&mut self, address: u64, bytes: u32) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.in_flight += 1;
            self.ring.push(Piece {
                address,
                bytes,
                options: 0,
            });
        }
        has_room
    }

    /// True if a packet fits.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        self.ring.room(1) > 0
    }

    /// Shows the kernel what was pushed.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.publish();
    }

    /// Adds the frames that were sent to those that are `free`.
    #[inline]
    pub(super) fn take_completed(&mut self, free: &mut Vec<u64>) {
        if self.in_flight == 0 {
            return;
        }
        let count = self.completed.available(u32::MAX);
        free.extend((0..count).map(|ahead| self.completed.peek(ahead)));
        if count > 0 {
            self.completed.release(count);
            self.in_flight = self.in_flight.saturating_sub(count);
        }
    }

    /// Frames that are on their way out.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How many packets the kernel has not taken from the ring yet.
    #[inline]
    pub fn pending(&self) -> u32 {
        self.ring.pending()
    }

    /// True if the kernel sends nothing until it is called; in copy mode that is always so.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    /// Lets the kernel send (`sendto(2)`, `MSG_DONTWAIT`). In copy mode the packets leave inside
    /// this call, up to its budget.
    ///
    /// # Errors
    /// In copy mode (`__xsk_generic_xmit`, net/xdp/xsk.c): `EAGAIN` if packets are left, because
    /// the budget is used up, the send buffer is full or the device's queue is stopped; `EBUSY` if
    /// the device dropped one packet, which counts as taken; `ENOBUFS` for want of memory.
    /// `ENETDOWN` if the interface is down, `ENXIO` if it is gone.
    pub fn kick(&self) -> io::Result<()> {
        send(&*self.socket, &[], SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Waits until the ring has room or the kernel has, for `timeout` at most (`poll(2)`).
    ///
    /// # Errors
    /// `EINTR` for a signal.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).ok();
        poll(
            &mut [PollFd::new(&*self.socket, PollFlags::OUT)],
            timeout.as_ref(),
        )?;
        Ok(())
    }
}
