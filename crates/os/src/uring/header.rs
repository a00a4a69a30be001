//! The header that the kernel writes before each datagram of a multishot `recvmsg` (`struct
//! io_uring_recvmsg_out`, include/uapi/linux/io_uring.h): lengths, then room for the sender's
//! address, then room for control messages, then the payload. If none of these is wanted, a
//! multishot `recv` does without the header.

use crate::control::{self, DatagramDetails, Extras, address};
use crate::native::word;

/// `sizeof(struct io_uring_recvmsg_out)`: four 32-bit words.
const LENGTHS_BYTES: usize = 16;
/// `sizeof(struct sockaddr_in6)`, the larger of the two.
const NAME_BYTES: usize = 28;
/// Where things are in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BufferLayout {
    pub(super) name_bytes: usize,
    pub(super) control_bytes: usize,
    pub(super) payload_bytes: usize,
    /// True if the header has details of the datagram.
    has_details: bool,
}

/// The header of a datagram, or train, in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DatagramHeader {
    /// Bytes that fitted into the buffer.
    pub(super) bytes: usize,
    /// Bytes that it had.
    pub(super) wire_bytes: usize,
    /// Size in bytes of each datagram of a train but the last; 0 for a single datagram.
    pub(super) segment_bytes: u16,
}

impl BufferLayout {
    pub(super) fn new(payload_bytes: usize, extras: Extras) -> Self {
        Self {
            name_bytes: if extras.details.source { NAME_BYTES } else { 0 },
            control_bytes: extras.control_bytes(),
            payload_bytes,
            has_details: extras.details.any(),
        }
    }

    /// Where the payload begins.
    pub(super) fn payload_at(&self) -> usize {
        if self.has_header() {
            LENGTHS_BYTES + self.name_bytes + self.control_bytes
        } else {
            0
        }
    }

    /// True if a header precedes each datagram: only if it brings something that is needed.
    #[inline]
    pub(super) fn has_header(&self) -> bool {
        self.name_bytes + self.control_bytes > 0
    }

    /// Bytes of a whole buffer.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.payload_at().saturating_add(self.payload_bytes)
    }

    /// The header of a datagram that came with a result of `filled` bytes; none if the buffer is
    /// shorter than its header. Without a header the result is the datagram's whole length.
    #[inline]
    pub(super) fn header(&self, buffer: &[u8], filled: usize) -> Option<DatagramHeader> {
        if !self.has_header() {
            return Some(DatagramHeader {
                bytes: filled.min(buffer.len()).min(self.payload_bytes),
                wire_bytes: filled,
                segment_bytes: 0,
            });
        }
        let buffer = &buffer[..filled.min(buffer.len())];
        let room = buffer.len().checked_sub(self.payload_at())?;
        let wire_bytes = word(buffer, 8)? as usize;
        Some(DatagramHeader {
            bytes: wire_bytes.min(room).min(self.payload_bytes),
            wire_bytes,
            segment_bytes: control::segment_bytes(self.control(buffer)),
        })
    }

    /// The details in the header, if any were asked for.
    #[inline]
    pub(super) fn details(&self, buffer: &[u8]) -> Option<DatagramDetails> {
        if !self.has_details {
            return None;
        }
        let told = word(buffer, 0).map_or(0, |bytes| (bytes as usize).min(self.name_bytes));
        let name = buffer.get(LENGTHS_BYTES..LENGTHS_BYTES + told);
        Some(DatagramDetails {
            source: name.and_then(address),
            ..control::details(self.control(buffer))
        })
    }

    /// The control messages, or none.
    #[inline]
    fn control<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        let told = word(buffer, 4).map_or(0, |bytes| (bytes as usize).min(self.control_bytes));
        let from = LENGTHS_BYTES + self.name_bytes;
        buffer.get(from..from + told).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option::UDP_GRO;
    use proptest::prelude::*;
    use std::net::{SocketAddr, SocketAddrV6};

    fn extras(segments: bool, source: bool) -> Extras {
        let mut extras = Extras {
            segments,
            ..Extras::default()
        };
        extras.details.source = source;
        extras
    }

    /// A buffer as the kernel fills it, put together from its parts.
    fn buffer(layout: &BufferLayout, name: &[u8], segment: Option<i32>, payload: &[u8]) -> Vec<u8> {
        let control: Vec<u8> = segment.map_or(Vec::new(), |value| {
            let length = 20_u64.to_ne_bytes();
            let words = [libc::IPPROTO_UDP, UDP_GRO, value, 0].map(i32::to_ne_bytes);
            [&length[..], words.as_flattened()].concat()
        });
        let lengths = [name.len(), control.len(), payload.len(), 0];
        let mut bytes: Vec<u8> = lengths
            .into_iter()
            .flat_map(|length| (length as u32).to_ne_bytes())
            .collect();
        bytes.extend(name);
        bytes.resize(LENGTHS_BYTES + layout.name_bytes, 0);
        bytes.extend(&control);
        bytes.resize(layout.payload_at(), 0);
        bytes.extend(payload);
        bytes.resize(layout.buffer_bytes(), 0xee);
        bytes
    }

    fn name_v4(ip: [u8; 4], port: u16) -> Vec<u8> {
        let family = (libc::AF_INET as u16).to_ne_bytes();
        [&family[..], &port.to_be_bytes(), &ip, &[0; 8]].concat()
    }

    fn name_v6(ip: [u8; 16], port: u16, scope: u32) -> Vec<u8> {
        let family = (libc::AF_INET6 as u16).to_ne_bytes();
        let (port, scope) = (port.to_be_bytes(), scope.to_ne_bytes());
        [&family[..], &port, &[0; 4], &ip, &scope].concat()
    }

    proptest! {
        #[test]
        fn reads_what_the_kernel_writes(
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            room in 1_usize..300,
            segment in proptest::option::of(1_i32..65_536),
            ip in any::<[u8; 16]>(), port in any::<u16>(), scope in any::<u32>(),
            is_v6 in any::<bool>(),
        ) {
            let v4 = *ip.first_chunk().unwrap();
            let (name, expected) = if is_v6 {
                let address = SocketAddrV6::new(ip.into(), port, 0, scope);
                (name_v6(ip, port, scope), SocketAddr::from(address))
            } else {
                (name_v4(v4, port), SocketAddr::from((v4, port)))
            };
            let layout = BufferLayout::new(room, extras(true, true));
            let mut buffer = buffer(&layout, &name, segment, &payload);
            buffer.truncate(layout.buffer_bytes());
            prop_assert_eq!(layout.details(&buffer).and_then(|details| details.source), Some(expected));
            prop_assert_eq!(layout.header(&buffer, buffer.len()), Some(DatagramHeader {
                bytes: payload.len().min(room),
                wire_bytes: payload.len(),
                segment_bytes: segment.unwrap_or(0) as u16,
            }));
        }

        #[test]
        fn nothing_in_a_buffer_reaches_outside_it(
            buffer in proptest::collection::vec(any::<u8>(), 0..120),
            payload_bytes in 0_usize..100, filled in 0_usize..200,
            segments in any::<bool>(), sources in any::<bool>(),
        ) {
            let layout = BufferLayout::new(payload_bytes, extras(segments, sources));
            layout.details(&buffer);
            match layout.header(&buffer, filled) {
                Some(header) => {
                    prop_assert!(layout.payload_at() + header.bytes <= buffer.len());
                    prop_assert!(header.bytes <= header.wire_bytes);
                }
                None => prop_assert!(buffer.len().min(filled) < layout.payload_at()),
            }
        }
    }

    #[test]
    fn without_extras_there_is_no_header() {
        let layout = BufferLayout::new(4, Extras::default());
        assert_eq!((layout.payload_at(), layout.buffer_bytes()), (0, 4));
        let header = layout.header(b"abcd", 9).unwrap();
        assert_eq!((header.bytes, header.wire_bytes), (4, 9));
        assert_eq!(layout.header(&[], 0).map(|header| header.bytes), Some(0));
    }
}
