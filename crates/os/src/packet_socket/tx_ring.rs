//! The transmit ring: slots of one frame each (`TPACKET_V2`).
//!
//! The kernel goes through the slots in order and takes those that ask for it. It is set to copy
//! the whole frame. By default it copies only the link-layer header and lets the rest of the packet
//! point into the ring. It calls the slot free when the packet changes its owner. On a loopback or
//! veth interface that is long before a receiver has read the payload (`tpacket_fill_skb` and
//! `tpacket_destruct_skb` of net/packet/af_packet.c, `skb_orphan`). Writing the slot again would
//! change a packet under way.

use super::PacketSocket;
use super::ring_memory::PacketRingMemory;
use crate::{CallError, CallResult};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Offsets in `struct tpacket2_hdr`: `tp_status`, `tp_len`.
const SLOT_STATUS: usize = 0;
const SLOT_LENGTH: usize = 4;
/// Where the kernel begins to read: `TPACKET2_HDRLEN` without `struct sockaddr_ll`
/// (`tpacket_parse_header`).
const SLOT_HEADER_BYTES: usize = 32;
/// `struct virtio_net_hdr` of include/uapi/linux/virtio_net.h, in the byte order of the machine:
/// `flags`, `gso_type`, `hdr_len`, `gso_size`, `csum_start`, `csum_offset`.
const VNET_HEADER_BYTES: usize = 10;
const VNET_HEADER_LENGTH: usize = 2;
/// Where the frame begins.
const FRAME_AT: usize = SLOT_HEADER_BYTES + VNET_HEADER_BYTES;
/// `TPACKET_V2` of `enum tpacket_versions`.
const TPACKET_V2: libc::c_int = 1;
/// Slots come in blocks of this size, or of one slot if that is larger.
const BLOCK_BYTES_MIN: usize = 64 << 10;
/// The states of a slot that the kernel may have written, without its time stamp bits.
const SLOT_STATES: u32 =
    libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING | libc::TP_STATUS_WRONG_FORMAT;

/// How large a transmit ring is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxRingSize {
    /// Frames that may be under way.
    slots: usize,
    /// Bytes from slot to slot, a power of two.
    slot_bytes: usize,
}

/// A transmit ring over a packet socket.
#[derive(Debug)]
pub struct TxRing {
    memory: PacketRingMemory,
    socket: PacketSocket,
    size: TxRingSize,
    /// The slot that the kernel looks at next.
    head: usize,
}

/// The result of one [`TxRing::flush`].
#[derive(Debug)]
pub struct Flushed {
    /// Frames taken by the kernel, the first ones. The others were taken back.
    pub taken: usize,
    /// The error of the frame after those: `EAGAIN` if the send buffer is full, `ENOBUFS` if the
    /// device dropped the frame.
    pub refusal: Option<io::Error>,
}

impl TxRingSize {
    /// A ring of at least `slots` frames of up to `frame_bytes`.
    pub fn holding(slots: u32, frame_bytes: usize) -> Self {
        let slot_bytes = (FRAME_AT + frame_bytes).next_power_of_two();
        let per_block = (BLOCK_BYTES_MIN / slot_bytes).max(1);
        Self {
            slots: (slots.max(1) as usize).next_multiple_of(per_block),
            slot_bytes,
        }
    }

    /// Frames that may be under way.
    pub fn slots(&self) -> usize {
        self.slots
    }

    fn block_bytes(&self) -> usize {
        self.slot_bytes.max(BLOCK_BYTES_MIN)
    }
}

impl TxRing {
    /// Gives a socket that is not bound yet a transmit ring (`PACKET_VERSION`, `PACKET_VNET_HDR`,
    /// `PACKET_TX_RING`, packet(7)) and maps it.
    ///
    /// # Errors
    /// `EINVAL` for sizes that cannot be, `ENOMEM`.
    pub fn new(socket: PacketSocket, size: TxRingSize) -> CallResult<Self> {
        let version = "setsockopt PACKET_VERSION";
        socket.set_int(libc::PACKET_VERSION, version, TPACKET_V2)?;
        let header = "setsockopt PACKET_VNET_HDR";
        socket.set_int(libc::PACKET_VNET_HDR, header, 1)?;
        let bytes = size.slots * size.slot_bytes;
        let word = |value: usize| {
            u32::try_from(value).map_err(|_| {
                let error = io::Error::from_raw_os_error(libc::EINVAL);
                CallError::new("setsockopt PACKET_TX_RING", &socket.name, error)
            })
        };
        let request = libc::tpacket_req {
            tp_block_size: word(size.block_bytes())?,
            tp_block_nr: word(bytes / size.block_bytes())?,
            tp_frame_size: word(size.slot_bytes)?,
            tp_frame_nr: word(size.slots)?,
        };
        let call = "setsockopt PACKET_TX_RING";
        socket.set(libc::PACKET_TX_RING, call, &request)?;
        let memory = PacketRingMemory::new(&socket, bytes)?;
        Ok(Self {
            memory,
            socket,
            size,
            head: 0,
        })
    }

    /// The socket under the ring.
    pub fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Lets `write` fill a slot with a frame of `frame_bytes`; `ahead` frames were filled since the
    /// last [`TxRing::flush`]. False if the slot is still under way, or cannot hold the frame.
    #[inline]
    pub fn fill(
        &mut self,
        ahead: usize,
        frame_bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let at = self.slot_at(ahead);
        let room = self.size.slot_bytes - SLOT_STATUS - SLOT_LENGTH;
        let (Ok(length), Ok(copied)) = (
            u32::try_from(VNET_HEADER_BYTES + frame_bytes),
            u16::try_from(frame_bytes),
        ) else {
            return false;
        };
        // Acquire: the kernel's reads of the slot come before our writes to it.
        let status = self.memory.status(at).load(Ordering::Acquire) & SLOT_STATES;
        if ahead >= self.size.slots || status != 0 || frame_bytes > self.size.slot_bytes - FRAME_AT
        {
            return false;
        }
        // SAFETY: a slot with no state is ours until we ask for it to be sent, and no other
        // reference into the ring is alive. The status word is left out.
        let slot = unsafe { self.memory.part_mut(at + SLOT_LENGTH, room) };
        slot[..4].copy_from_slice(&length.to_ne_bytes());
        let from = FRAME_AT - SLOT_LENGTH;
        let vnet = &mut slot[SLOT_HEADER_BYTES - SLOT_LENGTH..from];
        vnet.fill(0);
        // "Copy so much": the whole frame.
        vnet[VNET_HEADER_LENGTH..][..2].copy_from_slice(&copied.to_ne_bytes());
        write(&mut slot[from..from + frame_bytes]);
        let status = self.memory.status(at + SLOT_STATUS);
        // Release: the frame is written before the kernel reads it.
        status.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        true
    }

    /// Passes the `filled` frames to the kernel in one call, without waiting (`sendto(2)` with
    /// `MSG_DONTWAIT`), and takes back those that it did not take: they will not be sent unless
    /// they are filled again.
    pub fn flush(&mut self, filled: usize) -> Flushed {
        // SAFETY: no buffer and no address are passed.
        let answer = unsafe {
            libc::sendto(
                self.socket.fd.as_raw_fd(),
                ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null(),
                0,
            )
        };
        let refusal = (answer < 0).then(io::Error::last_os_error);
        let mut taken = 0;
        for ahead in 0..filled {
            let status = self.memory.status(self.slot_at(ahead));
            let state = status.load(Ordering::Acquire);
            let waits = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT;
            if taken == ahead && state & waits == 0 {
                taken += 1;
            } else {
                // The kernel looks at slots only during the call above.
                status.store(libc::TP_STATUS_AVAILABLE, Ordering::Relaxed);
            }
        }
        self.head = (self.head + taken) % self.size.slots;
        Flushed { taken, refusal }
    }

    /// Waits until there may be room, for `timeout` at most (`poll(2)`).
    ///
    /// # Errors
    /// `EINTR` for a signal, or the error that waited on the socket.
    pub fn wait_for_room(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).ok();
        let mut socket = [PollFd::new(&self.socket.fd, PollFlags::OUT)];
        poll(&mut socket, timeout.as_ref())?;
        if socket[0].revents().contains(PollFlags::ERR) {
            self.socket.pending_error()?;
        }
        Ok(())
    }

    /// Where a slot begins.
    #[inline]
    fn slot_at(&self, ahead: usize) -> usize {
        (self.head + ahead) % self.size.slots * self.size.slot_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_ring_is_of_whole_blocks_and_holds_what_was_asked(
            slots in 0_u32..10_000,
            frame_bytes in 0_usize..65_600,
        ) {
            let size = TxRingSize::holding(slots, frame_bytes);
            prop_assert!(size.slots() >= slots as usize && size.slots() > 0);
            prop_assert!(size.slot_bytes >= FRAME_AT + frame_bytes);
            prop_assert!(size.block_bytes().is_multiple_of(size.slot_bytes));
            prop_assert!((size.slots * size.slot_bytes).is_multiple_of(size.block_bytes()));
        }
    }
}
