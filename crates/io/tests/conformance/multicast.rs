//! Groups: every member gets each datagram. On two hosts, because the loopback interface has no
//! route to a group.

use super::able;
use super::pair::{Pair, send_numbers};
use super::place::{Place, Version};
use mpps_io::{MulticastGroup, Rx, RxConfig, Tx, TxConfig, Wait};
use mpps_lab::Lab;
use mpps_trial::Trial;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Of the ranges for one site (RFC 2365) and for one link (RFC 4291).
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 43, 21);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x4321);

/// A trial for each pair whose members can join and share a port.
pub(crate) fn trials(pairs: &[Pair]) -> Vec<Trial> {
    let can_join = |pair: &&Pair| pair.has(&["rx groups", "rx reuse_port", "sending socket"]);
    let of = |pair: &Pair| {
        let [(name, run)] = named![fn(&Pair); every_member_of_a_group_gets_a_copy];
        let name = format!("conformance::{pair}::{name}");
        let place = Place::Lab(pair.place.version());
        let pair = Pair { place, ..*pair };
        Trial::waits(name, move || run(&pair)).needs(able(pair))
    };
    pairs.iter().filter(can_join).map(of).collect()
}

fn every_member_of_a_group_gets_a_copy(pair: &Pair) {
    const DATAGRAMS: u64 = 100;
    let lab = pair.place.lab().expect("groups are tried in a lab");
    let (mut members, mut stranger) = open_members(pair, lab);
    let mut tx = open_sender(pair, lab, members[0].caps().local_address.port());
    send_numbers(&mut *tx, 0, 0, DATAGRAMS);
    for member in &mut members {
        pair.expect(&mut **member, 0..DATAGRAMS);
    }
    let batch = stranger.recv(Wait::Poll).expect("receiving works");
    assert!(batch.is_empty(), "it did not join");
}

/// Two that share a port and a group, and one at the same port that is no member.
fn open_members(pair: &Pair, lab: &Lab) -> (Vec<Box<dyn Rx>>, Box<dyn Rx>) {
    let receiver = lab.receiver();
    let (any, own, address): (IpAddr, IpAddr, IpAddr) = match pair.place.version() {
        Version::V4 => (
            Ipv4Addr::UNSPECIFIED.into(),
            receiver.v4()[0].into(),
            GROUP_V4.into(),
        ),
        Version::V6 => (
            Ipv6Addr::UNSPECIFIED.into(),
            receiver.v6()[0].into(),
            GROUP_V6.into(),
        ),
    };
    let group = MulticastGroup {
        interface: Some(receiver.interface().to_owned()),
        ..MulticastGroup::new(address)
    };
    let mut config = RxConfig {
        address: SocketAddr::new(any, 0),
        reuse_port: true,
        groups: vec![group],
        ..pair.rx_config()
    };
    let mut members = vec![pair.open_rx(&config)];
    config.address = members[0].caps().local_address;
    members.push(pair.open_rx(&config));
    config.groups.clear();
    config.address = SocketAddr::new(own, config.address.port());
    (members, pair.open_rx(&config))
}

fn open_sender(pair: &Pair, lab: &Lab, port: u16) -> Box<dyn Tx> {
    let sender = lab.sender();
    let (target, source): (SocketAddr, IpAddr) = match pair.place.version() {
        Version::V4 => ((GROUP_V4, port).into(), sender.v4()[0].into()),
        Version::V6 => (
            SocketAddrV6::new(GROUP_V6, port, 0, sender.interface_index()).into(),
            sender.v6()[0].into(),
        ),
    };
    pair.open_tx(&TxConfig {
        source: Some(SocketAddr::new(source, 0)),
        ..pair.tx_config(target)
    })
}
