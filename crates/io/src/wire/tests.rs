//! Reading, compared with a parser of somebody else's.

use super::{Datagram, Template, datagram};
use crate::filter::frames;
use etherparse::{LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

/// What the other parser finds, brought down to what ours promises.
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

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
