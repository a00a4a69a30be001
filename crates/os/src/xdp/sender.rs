//! Sending: frames go to the kernel by the transmit ring and come back by the completion ring.

use super::SocketConfig;
use super::memory::MappedRing;
use super::ring::Producer;
use super::socket::{RingKind, XdpSocket};
use super::transmitter::Transmitter;
use super::umem::Umem;
use crate::CallResult;
use std::sync::Arc;

/// Frames that a zero-copy driver may receive into, and their share of all at the most.
pub(super) const RECEIVING: u32 = 512;
pub(super) const RECEIVING_SHARE: u32 = 8;

/// The sending side of one queue.
#[derive(Debug)]
pub struct XdpSender {
    transmitter: Transmitter,
    /// Frames that are the driver's go with the ring.
    _fill: Producer<MappedRing, u64>,
    /// Frames that are in no ring.
    free: Vec<u64>,
    send_buffer_bytes: usize,
    umem: Umem,
}

impl XdpSender {
    /// Opens a socket on a transmit queue. A zero-copy driver may want an XDP program on the interface.
    ///
    /// Such a driver gives the socket the receive queue of the same number too, and receives into its
    /// frames, also what a program passes on to the kernel. A part of them is left to it: without any,
    /// all that the host receives by this queue would be lost, ARP and ssh included.
    ///
    /// `send_buffer_bytes` is what packets in flight may take in copy mode; none is enough for
    /// all frames, so that the receiver does not set the pace.
    ///
    /// # Errors
    /// As [`super::Receiver::open`].
    pub fn open(config: &SocketConfig<'_>, send_buffer_bytes: Option<usize>) -> CallResult<Self> {
        let (socket, umem) = XdpSocket::with_memory(config, 0)?;
        let socket = Arc::new(socket);
        let slots = config.frames.next_power_of_two();
        // The kernel binds no socket without both rings of the memory.
        let mut free: Vec<u64> = umem.addresses().collect();
        let receiving = match config.zero_copy {
            Some(false) => 0,
            _ => RECEIVING.min(config.frames / RECEIVING_SHARE) as usize,
        };
        let fill_slots = (receiving as u32).next_power_of_two().max(2);
        let mut fill = Producer::new(socket.ring(RingKind::Fill, fill_slots)?);
        let received = free.split_off(free.len() - receiving);
        received.iter().for_each(|address| fill.push(*address));
        fill.publish();
        let transmitter = Transmitter::new(&socket, slots)?;
        // A socket buffer is charged with its frame, its head and its overhead, well below 1 KiB
        // for what is no longer than a usual packet.
        let wanted = config.frames as usize * (config.frame_bytes as usize + 1024) / 2;
        let send_buffer_bytes = socket.set_send_buffer(send_buffer_bytes.unwrap_or(wanted))?;
        socket.bind(config)?;
        if !socket.is_zero_copy()? {
            // No program redirects to this socket, so that nothing is received by it.
            free.extend(received);
        }
        Ok(Self {
            transmitter,
            _fill: fill,
            free,
            send_buffer_bytes,
            umem,
        })
    }

    /// How many frames are free, once those that were sent are taken back. No system call is made.
    pub fn free(&mut self) -> usize {
        self.transmitter.take_completed(&mut self.free);
        self.free.len()
    }

    /// Lends a free frame to `write`, which answers how many bytes of it are to be sent, and puts
    /// it into the ring; [`XdpSender::publish`] shows it to the kernel. False if none is free.
    #[inline]
    pub fn push(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if !self.transmitter.has_room() {
            return false;
        }
        let Some(address) = self.free.pop() else {
            return false;
        };
        // SAFETY: the frame was free, so it is in no ring.
        let Some(frame) = (unsafe { self.umem.frame_mut(address) }) else {
            return false;
        };
        let bytes = write(frame).min(frame.len()) as u32;
        self.transmitter.push(address, bytes)
    }

    /// Shows the kernel what was pushed.
    #[inline]
    pub fn publish(&mut self) {
        self.transmitter.publish();
    }

    /// The ring that makes the kernel send.
    #[inline]
    pub fn transmitter(&self) -> &Transmitter {
        &self.transmitter
    }

    /// The send buffer that was granted, in bytes without the kernel's doubling.
    pub fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }

    /// True if the driver reads packets straight from the frames.
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn is_zero_copy(&self) -> CallResult<bool> {
        self.transmitter.socket.is_zero_copy()
    }
}

lends_descriptor!(XdpSender, transmitter.socket);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::NetNamespace;
    use crate::netlink::link;
    use std::os::fd::AsFd;

    /// Where the kernel knows `XDP_MAX_TX_SKB_BUDGET`, one call sends all that is in the ring.
    #[test]
    fn one_call_sends_a_whole_ring() {
        const PACKETS: u32 = 1000;
        let Ok(namespace) = NetNamespace::new() else {
            return;
        };
        let sent = namespace.run(|| -> CallResult<_> {
            link::create_veth("near", 1, "far", 1, namespace.as_fd())?;
            let index = link::index("near")?;
            link::set_up(index)?;
            link::set_up(link::index("far")?)?;
            let config = SocketConfig {
                frames: 1024,
                zero_copy: Some(false),
                ..SocketConfig::new("near", index, 0)
            };
            let mut sender = XdpSender::open(&config, None)?;
            for _ in 0..PACKETS {
                sender.push(|frame| {
                    frame[..60].fill(0);
                    60
                });
            }
            sender.publish();
            // The device may drop a packet, which ends a call.
            let kicked = sender.transmitter().kick();
            let left = sender.transmitter().pending();
            // Asked for last, because asking sets it.
            let socket = &sender.transmitter().socket;
            let is_known = socket.set_transmit_budget(1024).is_ok();
            let errno = kicked.err().and_then(|error| error.raw_os_error());
            Ok((is_known, errno, left))
        });
        let (is_known, errno, left) = sent.unwrap().unwrap();
        // A device that drops a packet ends a call (EBUSY); packets beyond the budget are EAGAIN.
        if is_known && errno != Some(libc::EBUSY) {
            assert_eq!((errno, left), (None, 0), "of {PACKETS}");
        }
    }
}
