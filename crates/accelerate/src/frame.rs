//! Frames: reading the datagram in a frame from a ring, and writing an answer.

use mpps_os::xdp::shared::is_v4;

const ETHERNET: usize = 14;
const V4: usize = 20;
const V6: usize = 40;
const UDP: usize = 8;
const PROTOCOL_UDP: u8 = 17;

/// A datagram in a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingDatagram<'a> {
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) port: u16,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// The sender's hardware address.
    pub(crate) hardware: u64,
    pub(crate) payload: &'a [u8],
    header: &'a [u8],
    udp: &'a [u8],
}

/// The datagram; none in a frame that the XDP program cannot have let through.
#[inline]
pub(crate) fn parse(frame: &[u8]) -> Option<RingDatagram<'_>> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
    let is_v6 = ethernet[12..] == [0x86, 0xdd];
    let (header, udp) = packet.split_at_checked(if is_v6 { V6 } else { V4 })?;
    let length = usize::from(half(udp.get(..UDP)?, 4));
    let address = |at: usize| match is_v6 {
        true => u128::from_be_bytes(*header[at..].first_chunk().unwrap_or(&[0; 16])),
        false => 0xffff << 32 | u128::from(word(header, at)),
    };
    let (source, destination, traffic_class, hop_limit) = match is_v6 {
        true => (8, 24, header[0] << 4 | header[1] >> 4, header[7]),
        false => (12, 16, header[1], header[8]),
    };
    // As the kernel (`ip6_rcv_core`): on the wire no host of IPv6 has a mapped address.
    let source = Some(address(source)).filter(|source| is_v4(*source) != is_v6)?;
    Some(RingDatagram {
        source,
        destination: address(destination),
        port: half(udp, 0),
        traffic_class,
        hop_limit,
        hardware: u64::from(half(ethernet, 6)) << 32 | u64::from(word(ethernet, 8)),
        payload: udp.get(UDP..length)?,
        header,
        udp: udp.get(..length)?,
    })
}

impl RingDatagram<'_> {
    /// Whether its check sum is right. An `unfinished` one, with only the pseudo header in it, is what
    /// a veth carries between two programs of a host.
    #[inline]
    pub(crate) fn is_sound(&self, unfinished: bool) -> bool {
        let sum = half(self.udp, 6);
        let addresses = match is_v4(self.source) {
            true => &self.header[12..],
            false => &self.header[8..],
        };
        let pseudo = pseudo(addresses, self.udp.len());
        if sum == 0 {
            return is_v4(self.source);
        }
        (unfinished && folded(pseudo) == sum) || folded(added(pseudo, self.udp)) == 0xffff
    }
}

/// The answer to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) own_hardware: u64,
    pub(crate) hardware: u64,
    pub(crate) source: u128,
    pub(crate) target: u128,
    pub(crate) ports: [u16; 2],
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) may_fragment: bool,
    pub(crate) identification: u16,
}

/// Bytes in front of a payload.
pub(crate) fn headers(target: u128) -> usize {
    ETHERNET + UDP + if is_v4(target) { V4 } else { V6 }
}

/// Writes the headers in front of a payload of `bytes`, which is there already; answers the frame's
/// length.
#[inline]
pub(crate) fn write(frame: &mut [u8], answer: &Answer, bytes: usize) -> usize {
    let total = headers(answer.target) + bytes;
    let frame = &mut frame[..total];
    frame[..6].copy_from_slice(&answer.hardware.to_be_bytes()[2..]);
    frame[6..12].copy_from_slice(&answer.own_hardware.to_be_bytes()[2..]);
    let length = (UDP + bytes) as u16;
    let (addresses, udp) = if is_v4(answer.target) {
        frame[12..14].copy_from_slice(&[8, 0]);
        let header = &mut frame[ETHERNET..ETHERNET + V4];
        header.fill(0);
        (header[0], header[1]) = (0x45, answer.traffic_class);
        header[2..4].copy_from_slice(&(V4 as u16 + length).to_be_bytes());
        match answer.may_fragment {
            true => header[4..6].copy_from_slice(&answer.identification.to_be_bytes()),
            false => header[6] = 0x40,
        }
        (header[8], header[9]) = (answer.hop_limit, PROTOCOL_UDP);
        header[12..16].copy_from_slice(&(answer.source as u32).to_be_bytes());
        header[16..20].copy_from_slice(&(answer.target as u32).to_be_bytes());
        let sum = !folded(added(0, header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        (ETHERNET + 12, ETHERNET + V4)
    } else {
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        let header = &mut frame[ETHERNET..ETHERNET + V6];
        let class = answer.traffic_class;
        header[..4].copy_from_slice(&[0x60 | class >> 4, class << 4, 0, 0]);
        header[4..6].copy_from_slice(&length.to_be_bytes());
        (header[6], header[7]) = (PROTOCOL_UDP, answer.hop_limit);
        header[8..24].copy_from_slice(&answer.source.to_be_bytes());
        header[24..40].copy_from_slice(&answer.target.to_be_bytes());
        (ETHERNET + 8, ETHERNET + V6)
    };
    let (headers, datagram) = frame.split_at_mut(udp);
    let [from, to] = answer.ports;
    datagram[..2].copy_from_slice(&from.to_be_bytes());
    datagram[2..4].copy_from_slice(&to.to_be_bytes());
    datagram[4..6].copy_from_slice(&length.to_be_bytes());
    datagram[6..8].fill(0);
    let pseudo = pseudo(&headers[addresses..], usize::from(length));
    let sum = match !folded(added(pseudo, datagram)) {
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    total
}

/// The sum of the pseudo header (RFC 768, RFC 8200).
fn pseudo(addresses: &[u8], length: usize) -> u64 {
    added(u64::from(PROTOCOL_UDP) + length as u64, addresses)
}

/// The sum of 16-bit numbers, not folded yet.
#[inline]
fn added(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words = words
        .iter()
        .map(|word| u64::from(u32::from_be_bytes(*word)));
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + words.sum::<u64>() + u64::from(u32::from_be_bytes(last))
}

fn folded(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) << 16 | u32::from(half(bytes, at + 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Of any bytes, whole or cut, the payload is a part, and no host of IPv6 seems one of IPv4.
        #[test]
        fn any_frame_is_read(mut frame: [u8; 80], is_v6: bool, is_mapped: bool, bytes in 0..80_usize) {
            frame[12..14].copy_from_slice(if is_v6 { &[0x86, 0xdd] } else { &[8, 0] });
            if is_mapped {
                frame[22..34].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
            }
            if let Some(datagram) = parse(&frame[..bytes]) {
                datagram.is_sound(true);
                prop_assert!(frame[..bytes].as_ptr_range().contains(&datagram.udp.as_ptr()));
                prop_assert_eq!(datagram.payload.len() + UDP, datagram.udp.len());
                prop_assert_eq!(is_v4(datagram.source), !is_v6);
            }
        }
    }

    #[test]
    fn a_written_answer_is_read_again() {
        let v4 = 0xffff_0a09_0001;
        let v6 = 0xfd09 << 112 | 1;
        for (source, target) in [(v4, v4 + 1), (v6, v6 + 1)] {
            let answer = Answer {
                own_hardware: 0x0202_0202_0202,
                hardware: 0x0404_0404_0404,
                source,
                target,
                ports: [53, 4321],
                traffic_class: 0xb8,
                hop_limit: 64,
                may_fragment: false,
                identification: 7,
            };
            let mut frame = [0; 128];
            let from = headers(target);
            frame[from..from + 5].copy_from_slice(b"hello");
            let bytes = write(&mut frame, &answer, 5);
            let read = parse(&frame[..bytes]).unwrap();
            assert_eq!((read.source, read.destination), (source, target));
            assert_eq!((read.payload, read.port), (&b"hello"[..], 53));
            assert_eq!((read.traffic_class, read.hop_limit), (0xb8, 64));
            assert_eq!(read.hardware, 0x0202_0202_0202);
            assert!(read.is_sound(false));
            frame[from] ^= 1;
            assert!(!parse(&frame[..bytes]).unwrap().is_sound(true));
        }
    }
}
