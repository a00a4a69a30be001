//! Requests byte by byte, answers of any kind.

use super::*;
use proptest::prelude::*;

/// A request of zeros but for these bytes.
#[cfg(target_endian = "little")]
fn bytes(set: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; 192];
    for (place, value) in set {
        bytes[*place..place + value.len()].copy_from_slice(value);
    }
    bytes
}

/// Places that the compiler of the kernel's header has given: `offsetof` on x86-64.
#[cfg(target_endian = "little")]
#[test]
fn a_rule_for_ipv4_byte_by_byte() {
    let rule = NtupleRule {
        destination: "192.168.254.1:4321".parse().expect("an address"),
        queue: 3,
    };
    let golden = bytes(&[
        (0, &[0x32, 0, 0, 0]),            // cmd ETHTOOL_SRXCLSRLINS
        (16, &[2, 0, 0, 0]),              // fs.flow_type UDP_V4_FLOW
        (24, &[192, 168, 254, 1]),        // fs.h_u.udp_ip4_spec.ip4dst
        (30, &[0x10, 0xe1]),              // fs.h_u.udp_ip4_spec.pdst
        (96, &[0xff; 4]),                 // fs.m_u.udp_ip4_spec.ip4dst
        (102, &[0xff; 2]),                // fs.m_u.udp_ip4_spec.pdst
        (168, &[3, 0, 0, 0, 0, 0, 0, 0]), // fs.ring_cookie
        (176, &[0xff; 4]),                // fs.location RX_CLS_LOC_ANY
    ]);
    assert_eq!(insert_request(&rule, None), golden);
}

#[cfg(target_endian = "little")]
#[test]
fn a_rule_for_ipv6_byte_by_byte() {
    let rule = NtupleRule {
        destination: "[2001:db8::1]:53".parse().expect("an address"),
        queue: 258,
    };
    let address = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let golden = bytes(&[
        (0, &[0x32, 0, 0, 0]),
        (16, &[6, 0, 0, 0]),              // fs.flow_type UDP_V6_FLOW
        (36, &address),                   // fs.h_u.udp_ip6_spec.ip6dst
        (54, &[0, 53]),                   // fs.h_u.udp_ip6_spec.pdst
        (108, &[0xff; 16]),               // fs.m_u.udp_ip6_spec.ip6dst
        (126, &[0xff; 2]),                // fs.m_u.udp_ip6_spec.pdst
        (168, &[2, 1, 0, 0, 0, 0, 0, 0]), // fs.ring_cookie
        (176, &[7, 4, 0, 0]),             // fs.location
    ]);
    assert_eq!(insert_request(&rule, Some(0x407)), golden);
}

#[cfg(target_endian = "little")]
#[test]
fn the_other_requests_byte_by_byte() {
    assert_eq!(
        request(command::GET_RX_RINGS),
        bytes(&[(0, &[0x2d, 0, 0, 0])])
    );
    assert_eq!(
        request(command::GET_RULE_COUNT),
        bytes(&[(0, &[0x2e, 0, 0, 0])])
    );
    let one = |command: u8| bytes(&[(0, &[command, 0, 0, 0]), (176, &[5, 0, 0, 0])]);
    assert_eq!(at(command::GET_RULE, 5), one(0x2f));
    assert_eq!(at(command::DELETE_RULE, 5), one(0x31));
    let list = bytes(&[(0, &[0x30, 0, 0, 0]), (184, &[2, 1, 0, 0])]);
    assert_eq!(list_request(258), list);
}

#[test]
fn an_unspecified_address_is_not_compared() {
    for any in ["0.0.0.0:9", "[::]:9"] {
        let rule = NtupleRule {
            destination: any.parse().expect("an address"),
            queue: 1,
        };
        let mask = headers(&rule).2;
        assert_eq!(mask.iter().filter(|byte| **byte != 0).count(), 2, "{any}");
        let request = insert_request(&rule, Some(4));
        assert_eq!(shown(&request).and_then(|shown| shown.rule), Some(rule));
    }
}

#[test]
fn the_last_free_place_is_taken() {
    let table = |size, locations: &[u32]| NtupleTable {
        size,
        driver_chooses: false,
        locations: locations.to_vec(),
    };
    assert_eq!(table(4, &[]).free_location(), Some(3));
    assert_eq!(table(4, &[0, 2, 3]).free_location(), Some(1));
    assert_eq!(table(2, &[0, 1]).free_location(), None);
    assert_eq!(table(0, &[]).free_location(), None);
}

#[test]
fn rules_of_other_kinds_have_no_meaning_here() {
    let rule = NtupleRule {
        destination: "192.0.2.1:9".parse().expect("an address"),
        queue: 1,
    };
    let ours = insert_request(&rule, Some(4));
    // TCP, an extension flag, a compared source port, a queue that means "drop".
    for (place, value) in [(16, 1), (19, 0x80), (100, 0xff), (172, 1)] {
        let mut other = ours.clone();
        other[place] = value;
        let shown = shown(&other).expect("long enough");
        assert_eq!(shown.rule, None, "byte {place}");
    }
}

#[test]
fn the_place_is_no_part_of_the_description() {
    let rule = NtupleRule {
        destination: "192.0.2.1:9".parse().expect("an address"),
        queue: 1,
    };
    let [a, b] = [1, 2].map(|place| shown(&insert_request(&rule, Some(place))));
    assert_eq!(a, b);
    assert_eq!(a.map(|shown| shown.description.len()), Some(320));
}

proptest! {
    #[test]
    fn what_is_asked_for_is_understood(
        address: IpAddr,
        port: u16,
        queue: u32,
        location: Option<u32>,
    ) {
        let rule = NtupleRule { destination: SocketAddr::new(address, port), queue };
        let shown = shown(&insert_request(&rule, location)).expect("long enough");
        prop_assert_eq!(shown.rule, Some(rule));
    }

    #[test]
    fn foreign_bytes_never_panic(bytes: Vec<u8>, asked in 0_usize..100) {
        let _ = shown(&bytes);
        let _ = parse_count(&bytes);
        let _ = parse_list(&bytes, asked, false);
        let _ = meaning(&bytes);
    }

    #[test]
    fn a_list_never_leaves_the_answer(
        count: u32,
        asked in 0_usize..50,
        size: u64,
        list in prop::collection::vec(any::<u32>(), 0..50),
    ) {
        let mut answer = list_request(count);
        answer[DATA_PLACE..DATA_PLACE + 8].copy_from_slice(&size.to_ne_bytes());
        answer.truncate(LIST_PLACE);
        answer.extend(list.iter().flat_map(|place| place.to_ne_bytes()));
        let whole = (count as usize).min(asked) <= list.len();
        let table = parse_list(&answer, asked, true);
        prop_assert_eq!(table.is_some(), whole);
        if let Some(table) = table {
            prop_assert!(table.locations.iter().all(|place| list.contains(place)));
            prop_assert!(table.locations.is_sorted());
        }
    }
}
