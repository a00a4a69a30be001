//! A second reading of frames, as plain as can be: the library's own is under test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of an Ethernet header, of a UDP header, and of IP headers without options.
const ETHERNET_BYTES: usize = 14;
const UDP_BYTES: usize = 8;
const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;

/// Headers in front of a payload that goes to this address.
pub(crate) fn header_bytes(address: SocketAddr) -> u64 {
    let ip = if address.is_ipv4() {
        V4_BYTES
    } else {
        V6_BYTES
    };
    (ETHERNET_BYTES + ip + UDP_BYTES) as u64
}

/// The sender and the payload of a frame that must be a UDP datagram without options.
pub(crate) fn datagram(frame: &[u8]) -> (SocketAddr, &[u8]) {
    let (ethernet, packet) = frame.split_at(ETHERNET_BYTES);
    let (protocol, source, rest): (u8, IpAddr, &[u8]) = match ethernet[12..] {
        [0x08, 0x00] => {
            assert_eq!(packet[0], 0x45, "IPv4 without options");
            let source: [u8; 4] = packet[12..16].try_into().expect("four bytes");
            (
                packet[9],
                Ipv4Addr::from(source).into(),
                &packet[V4_BYTES..],
            )
        }
        [0x86, 0xdd] => {
            let source: [u8; 16] = packet[8..24].try_into().expect("sixteen bytes");
            (
                packet[6],
                Ipv6Addr::from(source).into(),
                &packet[V6_BYTES..],
            )
        }
        _ => panic!("not IP: {frame:02x?}"),
    };
    assert_eq!(protocol, 17, "UDP");
    let port = u16::from_be_bytes([rest[0], rest[1]]);
    let bytes = usize::from(u16::from_be_bytes([rest[4], rest[5]]));
    // A short frame may have been filled up to Ethernet's 60 bytes.
    (SocketAddr::new(source, port), &rest[UDP_BYTES..bytes])
}
