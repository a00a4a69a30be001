//! Received packets that may be answered where they lie.

#![allow(
    unsafe_code,
    reason = "packets are changed in memory that the kernel also writes"
)]

use crate::{DatagramDetails, Layer, PacketDescriptor, wire};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::slice;

/// Where a packet lies, how far it may grow, and what is to be sent of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PacketSlot {
    /// Its first byte, counted from the start of the receiver's memory.
    pub(crate) offset: u32,
    /// Bytes that came.
    pub(crate) bytes: u32,
    /// Bytes that it had on arrival.
    pub(crate) wire_bytes: u32,
    /// Bytes that an answer may have.
    pub(crate) room: u32,
    /// True if it may leave by another interface.
    pub(crate) may_forward: bool,
    /// Bytes to be sent; none is no answer.
    pub(crate) answer: Option<u32>,
    /// True if it is to leave by another interface.
    pub(crate) forward: bool,
}

impl PacketSlot {
    /// A received packet, with room for an answer.
    pub(crate) fn new(came: &PacketDescriptor, room: u32) -> Self {
        Self {
            offset: came.offset,
            bytes: came.bytes,
            wire_bytes: came.wire_bytes,
            room,
            ..Self::default()
        }
    }

    /// Where its answer lies, which has no byte where there is none.
    pub(crate) fn lying(&self) -> PacketDescriptor {
        PacketDescriptor {
            offset: self.offset,
            bytes: self.answer.unwrap_or(0),
            ..PacketDescriptor::default()
        }
    }
}

/// The packets of one [`crate::Rx::serve`], to be answered or not, in their order. Packets without
/// an answer go back to the kernel.
///
/// They cannot leave the call that lends them:
///
/// ```compile_fail,E0521
/// # use mpps_io::{RxConfig, Wait, backend};
/// # let config = RxConfig::new("127.0.0.1:4321".parse().unwrap());
/// # let mut rx = backend::find("recvmmsg").unwrap().open_rx(&config).unwrap();
/// let mut kept = Vec::new();
/// rx.serve(Wait::Poll, &mut |requests| kept.extend(requests)).unwrap();
/// ```
#[derive(Debug)]
pub struct Requests<'a> {
    memory: NonNull<u8>,
    memory_bytes: usize,
    layer: Layer,
    slots: slice::IterMut<'a, PacketSlot>,
    details: slice::Iter<'a, DatagramDetails>,
    lent: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is a mutable borrow of bytes and slots.
unsafe impl Send for Requests<'_> {}

/// One packet that may be answered, once.
///
/// ```
/// use mpps_io::{Request, RxConfig, TxConfig, Wait, backend};
///
/// fn answer(request: Request<'_>) {
///     match request.payload() {
///         b"ping" => request.reply(b"pong"),
///         // As it came, in the memory that it came in.
///         [1, ..] => request.reply_in_place(|_room, bytes| Some(bytes)),
///         // No answer.
///         _ => false,
///     };
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = backend::find("memory")?;
/// let mut config = RxConfig::new("127.0.0.1:53".parse()?);
/// config.answers = true;
/// let mut rx = memory.open_rx(&config)?;
/// let mut to_send = TxConfig::new(rx.caps().local_address);
/// to_send.payload_bytes = 4;
/// let mut tx = memory.open_tx(&to_send)?;
/// for (payload, bytes) in tx.frames(3).zip([*b"ping", [1; 4], [2; 4]]) {
///     payload.copy_from_slice(&bytes);
/// }
/// tx.send(0, 3)?;
/// let served = rx.serve(Wait::Poll, &mut |requests| requests.for_each(answer))?;
/// assert_eq!((served.received, served.sent), (3, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Request<'a> {
    buffer: &'a mut [u8],
    bytes: usize,
    wire_bytes: usize,
    /// Bytes that an answer may have.
    room: usize,
    layer: Layer,
    details: Option<&'a DatagramDetails>,
    may_forward: bool,
    answer: &'a mut Option<u32>,
    forward: &'a mut bool,
}

impl<'a> Requests<'a> {
    /// Packets in ordinary memory, each at the beginning of a stride of its own.
    pub(crate) fn new(
        memory: &'a mut [u8],
        stride: usize,
        layer: Layer,
        slots: &'a mut [PacketSlot],
    ) -> Self {
        for (at, slot) in slots.iter_mut().enumerate() {
            slot.offset = (at * stride) as u32;
            slot.bytes = slot.bytes.min(stride as u32);
            slot.room = slot.room.min(stride as u32);
        }
        let (start, bytes) = (NonNull::from(&mut *memory).cast(), memory.len());
        // SAFETY: a mutable slice is only ours for its whole length during 'a. By the lines above
        // no slot reaches into the stride of another.
        unsafe { Self::from_raw(start, bytes, layer, slots) }
    }

    /// Packets in shared memory, such as a kernel's ring.
    ///
    /// # Safety
    /// The ranges from `offset`, as long as `bytes` and `room`, must not overlap. No other code may
    /// read or write them during `'a`. Those that reach beyond `memory_bytes` are harmless.
    pub(crate) unsafe fn from_raw(
        memory: NonNull<u8>,
        memory_bytes: usize,
        layer: Layer,
        slots: &'a mut [PacketSlot],
    ) -> Self {
        Self {
            memory,
            memory_bytes,
            layer,
            slots: slots.iter_mut(),
            details: [].iter(),
            lent: PhantomData,
        }
    }

    /// Adds the details of payloads, one for each; frames have theirs in their headers.
    #[must_use]
    pub(crate) fn with_details(mut self, details: &'a [DatagramDetails]) -> Self {
        self.details = details.iter();
        self
    }
}

impl<'a> Iterator for Requests<'a> {
    type Item = Request<'a>;

    #[inline]
    fn next(&mut self) -> Option<Request<'a>> {
        let slot = self.slots.next()?;
        let from = (slot.offset as usize).min(self.memory_bytes);
        let most = self.memory_bytes - from;
        let held = (slot.room.max(slot.bytes) as usize).min(most);
        // SAFETY: `from + held <= memory_bytes` by the lines above. By the contract of `from_raw`
        // no other code has the range during 'a, and the iterator hands it out once.
        let buffer = unsafe { slice::from_raw_parts_mut(self.memory.as_ptr().add(from), held) };
        Some(Request {
            bytes: (slot.bytes as usize).min(held),
            wire_bytes: slot.wire_bytes as usize,
            room: slot.room as usize,
            buffer,
            layer: self.layer,
            details: self.details.next(),
            may_forward: slot.may_forward,
            answer: &mut slot.answer,
            forward: &mut slot.forward,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl ExactSizeIterator for Requests<'_> {}

impl Request<'_> {
    /// The UDP payload; nothing where the frame has no datagram.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let packet = &self.buffer[..self.bytes];
        match self.layer {
            Layer::Payload => packet,
            Layer::Frame => wire::datagram(packet).map_or(&[], |datagram| datagram.payload),
        }
    }

    /// Details of the packet: the sender, and by sockets those that
    /// [`RxConfig::details`](crate::RxConfig::details) asks for, by rings those of the headers.
    pub fn details(&self) -> DatagramDetails {
        let details = match self.layer {
            Layer::Payload => self.details.copied(),
            Layer::Frame => wire::details(&self.buffer[..self.bytes]),
        };
        details.unwrap_or_default()
    }

    /// The sender; none if the frame has no datagram.
    pub fn source(&self) -> Option<SocketAddr> {
        self.details().source
    }

    /// Bytes that the packet had on arrival; more than were kept if it was cut.
    #[inline]
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }

    /// The packet as it came: the payload, or with [`Layer::Frame`] the whole frame.
    #[inline]
    pub fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.bytes]
    }

    /// Answers the sender with a payload of its own. False if there is no room for it, or no
    /// sender.
    #[inline]
    pub fn reply(self, payload: &[u8]) -> bool {
        self.reply_in_place(|room, _| {
            let place = room.get_mut(..payload.len())?;
            place.copy_from_slice(payload);
            Some(payload.len())
        })
    }

    /// Answers the sender with a payload that `write` makes in place. It gets the whole room, and
    /// the length of the payload that came, which is at the start. It returns the number of bytes
    /// to send; none is no answer. False if nothing will be sent.
    #[inline]
    pub fn reply_in_place(self, write: impl FnOnce(&mut [u8], usize) -> Option<usize>) -> bool {
        let bytes = match self.layer {
            Layer::Payload => {
                write(self.buffer, self.bytes).filter(|bytes| *bytes <= self.buffer.len())
            }
            Layer::Frame => wire::answer(self.buffer, self.bytes, write),
        };
        let bytes = bytes.filter(|bytes| *bytes <= self.room);
        *self.answer = bytes.map(|bytes| bytes as u32);
        self.answer.is_some()
    }

    /// Makes the UDP check sum of a frame anew, for [`Request::send_back`] and [`Request::forward`], which
    /// send it as it is: of what a program on this machine sent, a container's for instance, the kernel
    /// leaves the sum to the card, and the frame that comes here has none that is right. False if it is no
    /// whole datagram.
    pub fn renew_check_sum(&mut self) -> bool {
        match self.layer {
            Layer::Payload => false,
            Layer::Frame => wire::renew_check_sum(&mut self.buffer[..self.bytes]),
        }
    }

    /// Sends the packet back as it now is: a frame by the queue that it came by, without a copy, to
    /// the target in its headers; a payload to its sender. False if it cannot be sent: it came in
    /// several pieces.
    #[inline]
    pub fn send_back(self) -> bool {
        *self.answer = (self.bytes <= self.room).then_some(self.bytes as u32);
        self.answer.is_some()
    }

    /// Sends the frame as it now is by the other interface ([`crate::RingConfig::forward_to`]). It
    /// goes without a copy to the target in its headers. False if it cannot be sent: it came in
    /// several pieces, or is too long for that interface, or the receiver has none.
    ///
    /// A request is gone once it is answered or forwarded, and is not answered again:
    ///
    /// ```compile_fail,E0382
    /// # use mpps_io::Request;
    /// # fn handle(request: Request<'_>) {
    /// request.reply(b"once");
    /// request.reply(b"twice");
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0382
    /// # use mpps_io::Request;
    /// # fn handle(request: Request<'_>) {
    /// request.forward();
    /// request.reply(b"too late");
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0382
    /// # use mpps_io::Request;
    /// # fn handle(request: Request<'_>) {
    /// request.reply(b"answered");
    /// request.forward();
    /// # }
    /// ```
    #[inline]
    pub fn forward(self) -> bool {
        *self.forward = self.may_forward;
        self.may_forward && self.send_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(bytes: u32, room: u32) -> PacketSlot {
        PacketSlot {
            bytes,
            wire_bytes: bytes,
            room,
            ..PacketSlot::default()
        }
    }

    #[test]
    fn each_is_changed_in_its_own_place() {
        let mut memory = *b"aaa.....bb......c.......";
        let mut slots = [slot(3, 8), slot(2, 8), slot(1, 99)];
        for request in Requests::new(&mut memory, 8, Layer::Payload, &mut slots) {
            let bytes = request.payload().len();
            let is_answered = request.reply_in_place(|room, came| {
                assert_eq!((room.len(), came), (8, bytes));
                room.fill(b'0' + bytes as u8);
                (bytes != 2).then_some(bytes + 1)
            });
            assert_eq!(is_answered, bytes != 2);
        }
        assert_eq!(&memory, b"333333332222222211111111");
        assert_eq!(slots.map(|slot| slot.answer), [Some(4), None, Some(2)]);
    }

    #[test]
    fn what_has_no_room_is_not_answered() {
        let mut memory = [7; 16];
        let mut slots = [slot(4, 8), slot(4, 8)];
        let mut requests = Requests::new(&mut memory, 8, Layer::Payload, &mut slots);
        assert_eq!(requests.len(), 2);
        assert!(!requests.next().unwrap().reply(&[1; 9]));
        let mut second = requests.next().unwrap();
        second.packet_mut()[0] = 5;
        assert!(second.send_back());
        assert!(requests.next().is_none());
        assert_eq!((memory[0], memory[8]), (7, 5));
        assert_eq!(slots.map(|slot| slot.answer), [None, Some(4)]);
    }

    #[test]
    fn only_what_may_is_forwarded() {
        let mut memory = [7; 16];
        let mut slots = [slot(4, 8), slot(4, 8)];
        slots[1].may_forward = true;
        let forwarded =
            Requests::new(&mut memory, 8, Layer::Payload, &mut slots).map(Request::forward);
        assert_eq!(forwarded.collect::<Vec<_>>(), [false, true]);
        let said = slots.map(|slot| (slot.forward, slot.answer));
        assert_eq!(said, [(false, None), (true, Some(4))]);
    }

    proptest::proptest! {
        #[test]
        fn no_request_reaches_outside(
            bytes in 0_usize..100,
            shapes in proptest::collection::vec((0_u32..120, 0_u32..200), 0..4),
        ) {
            let mut memory = vec![0; bytes];
            let mut slots: Vec<PacketSlot> = shapes.iter().map(|(bytes, room)| slot(*bytes, *room)).collect();
            let count = slots.len();
            let stride = bytes / count.max(1);
            let requests = Requests::new(&mut memory, stride, Layer::Payload, &mut slots);
            let rooms: usize = requests
                .map(|mut request| {
                    request.packet_mut().fill(1);
                    let mut length = 0;
                    request.reply_in_place(|room, _| {
                        room.fill(2);
                        length = room.len();
                        Some(0)
                    });
                    length
                })
                .sum();
            proptest::prop_assert!(rooms <= bytes);
        }
    }
}
