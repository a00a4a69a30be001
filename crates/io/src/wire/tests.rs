//! Reading, compared with another parser.

use super::{Datagram, Template, UDP_BYTES, answer, datagram, renew_check_sum, tcp_ends};
use crate::filter::frames::{self, any_frame, valid_frame};
use etherparse::{LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

/// The other parser's result, brought down to what ours promises.
fn oracle(frame: &[u8]) -> Option<Datagram<'_>> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(LinkSlice::Ethernet2(_)) = packet.link else {
        return None;
    };
    if !packet.link_exts.is_empty() {
        return None;
    }
    let addresses: [IpAddr; 2] = match &packet.net {
        Some(NetSlice::Ipv4(ip)) if ip.header().protocol().0 == 17 => {
            let header = ip.header();
            [
                header.source_addr().into(),
                header.destination_addr().into(),
            ]
        }
        Some(NetSlice::Ipv6(ip)) if ip.header().next_header().0 == 17 => {
            let header = ip.header();
            [
                header.source_addr().into(),
                header.destination_addr().into(),
            ]
        }
        _ => return None,
    };
    // The other one finds none in fragments.
    let Some(TransportSlice::Udp(udp)) = packet.transport else {
        return None;
    };
    // It takes lengths of zero for "to the end" (RFC 2675), which no sender of datagrams uses.
    if udp.length() == 0
        || matches!(&packet.net, Some(NetSlice::Ipv6(ip)) if ip.header().payload_length() == 0)
    {
        return None;
    }
    Some(Datagram {
        source: SocketAddr::new(addresses[0], udp.source_port()),
        destination: SocketAddr::new(addresses[1], udp.destination_port()),
        payload: udp.payload(),
    })
}

/// Where the protocol stands in a frame of each version.
const PROTOCOL_PLACES: [usize; 2] = [14 + 9, 14 + 6];

#[test]
fn the_ends_of_a_tcp_segment_are_read_and_those_of_a_datagram_are_not() {
    for (from, to, place) in [
        ("10.0.0.9:1234", "10.0.0.1:80", PROTOCOL_PLACES[0]),
        ("[fd00::9]:1234", "[fd00::1]:80", PROTOCOL_PLACES[1]),
    ] {
        let [from, to]: [SocketAddr; 2] = [from, to].map(|end| end.parse().unwrap());
        let template = Template::new([2; 6], [4; 6], from, to, 32);
        let mut frame = vec![0; template.frame_bytes()];
        template.write(&mut frame, 0, &[0; 32]);
        assert_eq!(tcp_ends(&frame), None);
        frame[place] = 6;
        assert_eq!(tcp_ends(&frame), Some((from, to)));
        assert_eq!(datagram(&frame), None);
        frame.truncate(frame.len() - 32 - 5);
        assert_eq!(tcp_ends(&frame), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn tcp_is_read_where_udp_would_be(frame in frames::any_frame(), place in prop::sample::select(&PROTOCOL_PLACES)) {
        let ends = |found: Datagram| (found.source, found.destination);
        let mut other = frame.clone();
        if let Some(protocol) = other.get_mut(place).filter(|protocol| **protocol == 17) {
            *protocol = 6;
            if let Some(found) = datagram(&frame) {
                // The other version's place is part of an address, or of a hop limit.
                prop_assert!(tcp_ends(&other).is_none_or(|tcp| tcp == ends(found)));
            }
        }
    }

    #[test]
    fn frames_are_read_as_by_another_parser(frame in frames::any_frame()) {
        prop_assert_eq!(datagram(&frame), oracle(&frame));
    }

    #[test]
    fn nonsense_is_read_as_by_another_parser(frame in proptest::collection::vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(datagram(&frame), oracle(&frame));
    }

}

proptest! {
    #[test]
    fn what_was_built_is_read(
        sender: u16,
        flow: u16,
        payload in proptest::collection::vec(any::<u8>(), 0..500),
        version in 0..2usize,
    ) {
        let [host, target] = [["10.1.2.3", "10.3.2.1"], ["fd00::1", "fd00::2"]][version]
            .map(|text| text.parse::<IpAddr>().expect("an address"));
        let source = SocketAddr::new(host, sender);
        let target = SocketAddr::new(target, 4321);
        let template = Template::new([2; 6], [4; 6], source, target, payload.len());
        let mut frame = vec![0; template.frame_bytes()];
        template.write(&mut frame, flow, &payload);
        let read = datagram(&frame).expect("a valid frame");
        prop_assert_eq!(read.source, SocketAddr::new(host, sender.wrapping_add(flow)));
        prop_assert_eq!(read.destination, target);
        prop_assert_eq!(read.payload, &payload[..]);
        // A shorter frame has no whole datagram, and a longer one is padded.
        for length in 0..frame.len() {
            prop_assert_eq!(datagram(&frame[..length]), None);
        }
        frame.push(1);
        prop_assert_eq!(datagram(&frame).map(|read| read.payload), Some(&payload[..]));
    }
}

/// Every bit of the headers matters as another parser says, so that it does not depend on luck.
#[test]
fn a_frame_with_one_wrong_bit_is_read_as_by_another_parser() {
    let payload = [7; 6];
    for frame in [
        frames::frame_v4(5, &payload),
        frames::frame_v4(15, &payload),
        frames::frame_v6(&[], 17, &payload),
    ] {
        assert_eq!(
            datagram(&frame).map(|datagram| datagram.payload),
            Some(&payload[..])
        );
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(datagram(&damaged), oracle(&damaged), "bit {bit}");
        }
    }
    assert_eq!(datagram(&frames::frame_v4(4, &payload)), None);
}

/// Checks the check sums of a frame with the other parser.
fn has_right_sums(frame: &[u8]) -> bool {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a frame");
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else {
        panic!("no UDP header");
    };
    let header = udp.to_header();
    match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            let v4 = ip.header().to_header();
            assert_eq!(v4.calc_header_checksum(), v4.header_checksum);
            let sum = header
                .calc_checksum_ipv4(&v4, udp.payload())
                .expect("short");
            header.checksum == sum
        }
        Some(NetSlice::Ipv6(ip)) => {
            let v6 = ip.header().to_header();
            let sum = header
                .calc_checksum_ipv6(&v6, udp.payload())
                .expect("short");
            header.checksum == sum
        }
        _ => panic!("no IP header"),
    }
}

proptest! {
    #[test]
    fn an_answer_goes_back_with_its_own_payload(
        frame in valid_frame(),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let came = datagram(&frame).expect("valid");
        let (source, destination) = (came.source, came.destination);
        let asked = came.payload.to_vec();
        let mut buffer = frame.clone();
        buffer.resize(frame.len() + 300, 0xaa);
        let bytes = answer(&mut buffer, frame.len(), |room, bytes| {
            assert_eq!(room[..bytes], asked);
            room[..payload.len()].copy_from_slice(&payload);
            Some(payload.len())
        });
        let answered = &buffer[..bytes.expect("it is answered")];
        let back = datagram(answered).expect("a datagram");
        prop_assert_eq!((back.source, back.destination), (destination, source));
        prop_assert_eq!(back.payload, &payload[..]);
        prop_assert_eq!((&answered[..6], &answered[6..12]), (&frame[6..12], &frame[..6]));
        prop_assert!(has_right_sums(answered));
    }

    #[test]
    fn a_check_sum_is_made_anew(frame in valid_frame(), wrong in any::<[u8; 2]>()) {
        let mut right = frame.clone();
        let bytes = answer(&mut right, frame.len(), |_, bytes| Some(bytes));
        right.truncate(bytes.expect("it is answered"));
        let mut changed = right.clone();
        let payload = datagram(&right).expect("a datagram").payload;
        let udp = payload.as_ptr().addr() - right.as_ptr().addr() - UDP_BYTES;
        changed[udp + 6..udp + 8].copy_from_slice(&wrong);
        prop_assert!(renew_check_sum(&mut changed));
        prop_assert_eq!(changed, right);
    }

    #[test]
    fn no_frame_makes_a_check_sum_panic(frame in any_frame()) {
        let is_datagram = datagram(&frame).is_some();
        prop_assert_eq!(renew_check_sum(&mut frame.clone()), is_datagram);
    }

    #[test]
    fn nothing_makes_an_answer_panic(
        frame in any_frame(),
        room in 0_usize..100,
        wanted in proptest::option::of(0_usize..3_000),
    ) {
        let mut buffer = frame.clone();
        buffer.resize(frame.len() + room, 0xaa);
        let bytes = answer(&mut buffer, frame.len(), |_, _| wanted);
        prop_assert!(bytes.is_none_or(|bytes| bytes <= buffer.len() && wanted.is_some()));
        prop_assert!(bytes.is_none() || datagram(&frame).is_some());
        // A frame without an answer is unchanged.
        prop_assert!(bytes.is_some() || buffer[..frame.len()] == frame);
        prop_assert!(answer(&mut frame.clone(), frame.len() + 1, |_, _| Some(0)).is_none());
    }
}

#[test]
fn a_group_does_not_answer() {
    let mut frame = crate::filter::frames::frame_v4(5, b"hello");
    frame[30] = 224;
    assert!(datagram(&frame).is_some_and(|datagram| datagram.destination.ip().is_multicast()));
    let bytes = frame.len();
    assert_eq!(answer(&mut frame, bytes, |_, bytes| Some(bytes)), None);
}
