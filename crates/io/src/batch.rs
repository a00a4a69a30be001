//! A batch of received packets, lent by the receiver until the next call.

#![allow(
    unsafe_code,
    reason = "packets live in memory that the kernel also writes"
)]

use crate::filter::METADATA_BYTES;
use crate::{DatagramDetails, Layer, WantedDetails, wire};
use std::marker::PhantomData;
use std::mem;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::slice;
use std::time::{Duration, SystemTime};

/// The bits of a VLAN's number in its tag (IEEE 802.1Q).
const VLAN_NUMBER: u16 = 0x0fff;

/// Where one packet, or one train of equal datagrams, lies in its receiver's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketDescriptor {
    /// First byte, counted from the start of the receiver's memory.
    pub offset: u32,
    /// Bytes there.
    pub bytes: u32,
    /// Bytes that the packet had on arrival; more than `bytes` if it was cut.
    pub wire_bytes: u32,
    /// Bytes of each datagram of a train but the last; 0 if this is one datagram.
    pub segment_bytes: u16,
}

impl PacketDescriptor {
    /// How many datagrams it describes.
    #[inline]
    pub fn datagrams(&self) -> u64 {
        match self.segment_bytes {
            0 => 1,
            segment => u64::from(self.wire_bytes)
                .div_ceil(u64::from(segment))
                .max(1),
        }
    }
}

/// Packets that one [`crate::Rx::recv`] brought.
///
/// ```
/// use mpps_io::{RxConfig, Wait, backend};
/// # use std::net::UdpSocket;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = RxConfig::new("127.0.0.1:0".parse()?);
/// config.details.source = true;
/// let mut rx = backend::find("recvmmsg")?.open_rx(&config)?;
/// # let client = UdpSocket::bind("127.0.0.1:0")?;
/// # client.send_to(b"hello", rx.caps().local_address)?;
/// let batch = rx.recv(Wait::Auto(std::time::Duration::from_secs(1)))?;
/// assert_eq!(batch.datagrams(), 1);
/// for packet in &batch {
///     // All of it is there, unless it was longer than the buffer.
///     assert_eq!((packet.payload(), packet.wire_bytes), (Some(&b"hello"[..]), 5));
///     # assert_eq!(packet.source(), client.local_addr().ok());
///     println!("{:?} sent {} bytes", packet.source(), packet.wire_bytes);
/// }
/// # Ok(())
/// # }
/// ```
///
/// It borrows the receiver, so that using a packet after its buffer went back does not compile:
///
/// ```compile_fail,E0499
/// # use mpps_io::{RxConfig, Wait, backend};
/// # let config = RxConfig::new("127.0.0.1:4321".parse().unwrap());
/// let mut rx = backend::find("memory").unwrap().open_rx(&config).unwrap();
/// let batch = rx.recv(Wait::Poll).unwrap();
/// rx.recv(Wait::Poll).unwrap();
/// batch.datagrams();
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    memory: NonNull<u8>,
    memory_bytes: usize,
    descriptors: &'a [PacketDescriptor],
    layer: Layer,
    details: &'a [DatagramDetails],
    lent: PhantomData<&'a [u8]>,
}

// SAFETY: a batch is a shared borrow of bytes and descriptors; it hands out nothing but `&[u8]`.
unsafe impl Send for Batch<'_> {}
// SAFETY: as above.
unsafe impl Sync for Batch<'_> {}

/// One received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its bytes: the UDP payload from a socket backend, the frame from a ring backend.
    pub data: &'a [u8],
    /// Bytes that it had on arrival, of `data`'s layer; more than `data.len()` if it was cut.
    pub wire_bytes: usize,
    /// Bytes of each datagram but the last, of a train ([`Batch::trains`]); 0 of one datagram.
    pub segment_bytes: u16,
    /// Those that [`crate::RxConfig::details`] asks for; none if that is nothing.
    pub details: Option<&'a DatagramDetails>,
    layer: Layer,
}

impl<'a> Packet<'a> {
    /// The UDP payload, by every backend. None if the bytes are a frame and no
    /// whole datagram is in it ([`wire::datagram`]). It ends early if it was longer than its
    /// buffer: count by [`Packet::payload_bytes`].
    #[inline]
    pub fn payload(&self) -> Option<&'a [u8]> {
        match self.layer {
            Layer::Payload => Some(self.data),
            Layer::Frame => wire::datagram(self.data).map(|datagram| datagram.payload),
        }
    }

    /// Bytes of the UDP payload on arrival, by every backend.
    #[inline]
    pub fn payload_bytes(&self) -> Option<usize> {
        match self.layer {
            Layer::Payload => Some(self.wire_bytes),
            Layer::Frame => self.payload().map(<[u8]>::len),
        }
    }

    /// The sender, if [`crate::WantedDetails::source`] was asked for; otherwise none.
    pub fn source(&self) -> Option<SocketAddr> {
        self.details?.source
    }

    /// True if it was longer than its buffer.
    pub fn is_truncated(&self) -> bool {
        self.data.len() < self.wire_bytes
    }
}

impl<'a> Batch<'a> {
    /// A batch of packets in ordinary memory.
    pub fn new(memory: &'a [u8], descriptors: &'a [PacketDescriptor]) -> Self {
        // SAFETY: a slice is readable for its whole length and borrowed for 'a.
        unsafe { Self::from_raw(NonNull::from(memory).cast(), memory.len(), descriptors) }
    }

    /// A batch of packets in shared memory, such as a kernel's ring.
    ///
    /// # Safety
    /// The bytes that `descriptors` point to, and those in front of them that the driver wrote, must be
    /// readable, and must not be written, during `'a`. Descriptors that reach beyond `memory_bytes` are harmless.
    pub(crate) unsafe fn from_raw(
        memory: NonNull<u8>,
        memory_bytes: usize,
        descriptors: &'a [PacketDescriptor],
    ) -> Self {
        Self {
            memory,
            memory_bytes,
            descriptors,
            layer: Layer::Payload,
            details: &[],
            lent: PhantomData,
        }
    }

    /// Adds the details, one per descriptor, or none.
    #[must_use]
    pub(crate) fn with_details(mut self, details: &'a [DatagramDetails]) -> Self {
        self.details = details;
        self
    }

    pub(crate) fn details(&self) -> &'a [DatagramDetails] {
        self.details
    }

    /// Of frames, and not of payloads.
    #[must_use]
    pub(crate) fn of_frames(mut self) -> Self {
        self.layer = Layer::Frame;
        self
    }

    /// The same frames with what their headers say of them, where that is asked for.
    pub(crate) fn with_headers(self, headers: &'a mut FrameDetails) -> Self {
        let frames = self.of_frames();
        if !headers.wanted.any() {
            return frames;
        }
        let mut came = mem::take(&mut headers.came);
        came.clear();
        let raw = frames.raw().enumerate();
        came.extend(raw.map(|(at, (frame, _))| headers.of(&frames, frame, at)));
        headers.came = came;
        frames.with_details(&headers.came)
    }

    /// True if nothing came.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// How many buffers came: datagrams and trains.
    #[inline]
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// How many datagrams came; those of a train count each.
    #[inline]
    pub fn datagrams(&self) -> u64 {
        self.descriptors
            .iter()
            .map(PacketDescriptor::datagrams)
            .sum()
    }

    /// How many bytes came, those that did not fit included: of payloads by sockets, of frames by rings.
    #[inline]
    pub fn wire_bytes(&self) -> u64 {
        self.descriptors
            .iter()
            .map(|at| u64::from(at.wire_bytes))
            .sum()
    }

    /// The datagrams in order of arrival; trains are taken apart.
    #[inline]
    pub fn packets(&self) -> Packets<'a> {
        Packets {
            batch: *self,
            next: 0,
            train: &[],
            segment_bytes: 0,
            train_wire_bytes: 0,
            left: 0,
        }
    }

    /// The buffers in order of arrival: a train is one packet, with its [`Packet::segment_bytes`].
    pub fn trains(&self) -> impl Iterator<Item = Packet<'a>> + use<'a> {
        let batch = *self;
        let packets = batch.descriptors.iter().enumerate();
        packets.map(move |(at, descriptor)| Packet {
            data: batch.bytes(*descriptor),
            wire_bytes: descriptor.wire_bytes as usize,
            segment_bytes: descriptor.segment_bytes,
            details: batch.details.get(at),
            layer: batch.layer,
        })
    }

    /// Datagrams, bytes on arrival and buffers that were cut, in one pass.
    #[inline]
    pub(crate) fn totals(&self) -> BatchTotals {
        let mut totals = BatchTotals::default();
        let mut trains = 0;
        // Without a branch, so that the compiler takes several descriptors at a time.
        for descriptor in self.descriptors {
            totals.wire_bytes += u64::from(descriptor.wire_bytes);
            totals.truncated += u64::from(descriptor.bytes < descriptor.wire_bytes);
            trains |= descriptor.segment_bytes;
        }
        totals.datagrams = match trains {
            0 => self.descriptors.len() as u64,
            _ => self.datagrams(),
        };
        totals
    }

    /// The buffers as the kernel gave them: a train is one slice.
    pub(crate) fn raw(&self) -> impl Iterator<Item = (&'a [u8], PacketDescriptor)> + use<'a> {
        let batch = *self;
        batch
            .descriptors
            .iter()
            .map(move |at| (batch.bytes(*at), *at))
    }

    /// The bytes in front of a frame, if it lies before `end`.
    fn in_front(&self, at: usize, bytes: usize, end: usize) -> &'a [u8] {
        let descriptor = self.descriptors.get(at).copied().unwrap_or_default();
        let from = descriptor.offset.checked_sub(bytes as u32);
        let from = from.filter(|_| (descriptor.offset as usize) < end);
        from.map_or(&[], |offset| {
            let bytes = bytes as u32;
            self.bytes(PacketDescriptor {
                offset,
                bytes,
                ..descriptor
            })
        })
    }

    /// The bytes of one descriptor, cut at the end of the memory.
    #[inline]
    fn bytes(&self, descriptor: PacketDescriptor) -> &'a [u8] {
        let from = (descriptor.offset as usize).min(self.memory_bytes);
        let bytes = (descriptor.bytes as usize).min(self.memory_bytes - from);
        // SAFETY: `from + bytes <= memory_bytes` by the two lines above; the memory is readable
        // and not written during 'a by the contract of `from_raw`.
        unsafe { slice::from_raw_parts(self.memory.as_ptr().add(from), bytes) }
    }
}

/// The part of a receiver's counters that one batch adds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchTotals {
    pub(crate) datagrams: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) truncated: u64,
}

/// The datagrams of a [`Batch`].
#[derive(Debug, Clone)]
pub struct Packets<'a> {
    batch: Batch<'a>,
    /// The descriptor after the current one.
    next: usize,
    /// The rest of the current train.
    train: &'a [u8],
    segment_bytes: usize,
    train_wire_bytes: usize,
    /// Datagrams left in it.
    left: u64,
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    #[inline]
    fn next(&mut self) -> Option<Packet<'a>> {
        if self.left > 0 {
            return Some(self.segment());
        }
        let descriptor = *self.batch.descriptors.get(self.next)?;
        let data = self.batch.bytes(descriptor);
        self.next += 1;
        if descriptor.segment_bytes != 0 {
            self.train = data;
            self.segment_bytes = usize::from(descriptor.segment_bytes);
            self.train_wire_bytes = descriptor.wire_bytes as usize;
            self.left = descriptor.datagrams();
            return Some(self.segment());
        }
        Some(self.packet(data, descriptor.wire_bytes as usize))
    }

    /// The base of `for_each`, `sum` and similar methods. The loop over single datagrams keeps
    /// nothing of a train, which saves half a nanosecond for each.
    #[inline]
    fn fold<B, F: FnMut(B, Packet<'a>) -> B>(mut self, init: B, mut f: F) -> B {
        let mut sum = init;
        while self.left > 0 {
            sum = f(sum, self.segment());
        }
        let begun = self.next;
        let rest = self.batch.descriptors.get(begun..).unwrap_or(&[]);
        let (layer, details) = (self.batch.layer, self.batch.details);
        let details = details.get(begun..).unwrap_or(&[]);
        for (at, descriptor) in rest.iter().enumerate() {
            let data = self.batch.bytes(*descriptor);
            let wire_bytes = descriptor.wire_bytes as usize;
            if descriptor.segment_bytes == 0 {
                sum = f(
                    sum,
                    Packet {
                        data,
                        wire_bytes,
                        segment_bytes: 0,
                        details: details.get(at),
                        layer,
                    },
                );
                continue;
            }
            self.train = data;
            self.train_wire_bytes = wire_bytes;
            self.segment_bytes = usize::from(descriptor.segment_bytes);
            self.left = descriptor.datagrams();
            self.next = begun + at + 1;
            while self.left > 0 {
                sum = f(sum, self.segment());
            }
        }
        sum
    }
}

impl<'a> IntoIterator for Batch<'a> {
    type Item = Packet<'a>;
    type IntoIter = Packets<'a>;

    #[inline]
    fn into_iter(self) -> Packets<'a> {
        self.packets()
    }
}

impl<'a> IntoIterator for &Batch<'a> {
    type Item = Packet<'a>;
    type IntoIter = Packets<'a>;

    #[inline]
    fn into_iter(self) -> Packets<'a> {
        self.packets()
    }
}

/// The details of frames, read from their headers.
#[derive(Debug)]
pub(crate) struct FrameDetails {
    pub(crate) wanted: WantedDetails,
    /// The index of the interface that they come by.
    pub(crate) interface: Option<u32>,
    /// When they came, as far as their ring says so.
    pub(crate) times: Vec<SystemTime>,
    /// Where the frames end that have metadata in front of them; 0 if none has.
    pub(crate) metadata_end: usize,
    came: Vec<DatagramDetails>,
}

impl FrameDetails {
    pub(crate) fn new(wanted: WantedDetails, interface: Option<u32>) -> Self {
        Self {
            wanted,
            interface,
            times: Vec::new(),
            metadata_end: 0,
            came: Vec::new(),
        }
    }

    /// The driver's words on a frame, in front of it; a detail that was not asked for is zero.
    fn metadata(&self, batch: &Batch<'_>, at: usize) -> DatagramDetails {
        let in_front = batch.in_front(at, METADATA_BYTES, self.metadata_end);
        let Some(bytes) = in_front.first_chunk::<METADATA_BYTES>() else {
            return DatagramDetails::default();
        };
        let [time, hash, vlan] = [0, 8, 12];
        let time = u64::from_ne_bytes(std::array::from_fn(|byte| bytes[time + byte]));
        let hash = u32::from_ne_bytes(std::array::from_fn(|byte| bytes[hash + byte]));
        let [protocol, tag] =
            [vlan, vlan + 2].map(|half| u16::from_ne_bytes([bytes[half], bytes[half + 1]]));
        DatagramDetails {
            hardware_time: (time != 0).then_some(Duration::from_nanos(time)),
            hash: (hash != 0).then_some(hash),
            vlan: (protocol != 0).then_some(tag & VLAN_NUMBER),
            ..DatagramDetails::default()
        }
    }

    fn of(&self, batch: &Batch<'_>, frame: &[u8], at: usize) -> DatagramDetails {
        let Some(details) = wire::details(frame) else {
            return DatagramDetails::default();
        };
        let wanted = self.wanted;
        DatagramDetails {
            source: details.source.filter(|_| wanted.source),
            local: details.local.filter(|_| wanted.local),
            interface: self.interface.filter(|_| wanted.local),
            traffic_class: details.traffic_class.filter(|_| wanted.traffic_class),
            hop_limit: details.hop_limit.filter(|_| wanted.hop_limit),
            time: self.times.get(at).copied(),
            ..self.metadata(batch, at)
        }
    }
}

impl<'a> Packets<'a> {
    /// The next datagram of the current train.
    fn segment(&mut self) -> Packet<'a> {
        let (data, rest) = self
            .train
            .split_at(self.segment_bytes.min(self.train.len()));
        let wire_bytes = self.segment_bytes.min(self.train_wire_bytes);
        self.train = rest;
        self.train_wire_bytes -= wire_bytes;
        self.left -= 1;
        self.packet(data, wire_bytes)
    }

    #[inline]
    fn packet(&self, data: &'a [u8], wire_bytes: usize) -> Packet<'a> {
        Packet {
            data,
            wire_bytes,
            segment_bytes: 0,
            details: self.batch.details.get(self.next - 1),
            layer: self.batch.layer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_train_is_handed_out_as_its_datagrams() {
        let memory: Vec<u8> = (0..10).collect();
        let train = PacketDescriptor {
            offset: 0,
            bytes: 10,
            wire_bytes: 10,
            segment_bytes: 4,
        };
        let descriptors = [train];
        let batch = Batch::new(&memory, &descriptors);
        assert_eq!(batch.datagrams(), 3);
        let parts: Vec<&[u8]> = batch.packets().map(|packet| packet.data).collect();
        assert_eq!(parts, [&[0, 1, 2, 3][..], &[4, 5, 6, 7], &[8, 9]]);
        let trains: Vec<_> = batch.trains().collect();
        assert_eq!(
            (trains.len(), trains[0].data.len(), trains[0].segment_bytes),
            (1, 10, 4)
        );
    }

    #[test]
    fn an_empty_datagram_is_a_datagram() {
        let descriptors = [PacketDescriptor::default()];
        let batch = Batch::new(&[], &descriptors);
        assert_eq!((batch.datagrams(), batch.packets().count()), (1, 1));
    }

    proptest! {
        #[test]
        fn going_through_at_once_and_one_by_one_is_the_same(
            memory in proptest::collection::vec(any::<u8>(), 0..100),
            shapes in proptest::collection::vec((0_u32..120, 0_u32..90, 0_u32..200, 0_u16..9), 0..6),
            begun in 0_usize..4,
        ) {
            let descriptor = |(offset, bytes, wire_bytes, segment_bytes)| PacketDescriptor {
                offset, bytes, wire_bytes, segment_bytes,
            };
            let descriptors: Vec<PacketDescriptor> = shapes.into_iter().map(descriptor).collect();
            let batch = Batch::new(&memory, &descriptors);
            let mut one_by_one = Vec::new();
            for packet in batch.packets() {
                one_by_one.push(packet);
            }
            let mut packets = batch.packets();
            let mut at_once: Vec<_> = packets.by_ref().take(begun).collect();
            packets.for_each(|packet| at_once.push(packet));
            prop_assert_eq!(at_once, one_by_one);
        }

        #[test]
        fn no_descriptor_reaches_outside_the_memory(
            memory in proptest::collection::vec(any::<u8>(), 0..200),
            (offset, bytes, wire_bytes, segment_bytes) in
                (any::<u32>(), any::<u32>(), 0_u32..70_000, any::<u16>()),
        ) {
            let descriptors = [PacketDescriptor { offset, bytes, wire_bytes, segment_bytes }];
            let batch = Batch::new(&memory, &descriptors);
            let read: usize = batch.packets().map(|packet| packet.data.len()).sum();
            prop_assert!(read <= memory.len());
            prop_assert_eq!(batch.packets().count() as u64, batch.datagrams());
            let wire: usize = batch.packets().map(|packet| packet.wire_bytes).sum();
            prop_assert_eq!(wire, wire_bytes as usize);
        }
    }
}
