//! The other end of a veth, in another namespace.

use super::scene::common;
use super::*;
use crate::facts::far_end::FarEnd;

/// A container with `eth0`, whose other end on the node counted these, and whose own end dropped
/// `queued` packets in a backlog. The kernel dropped `nameless` datagrams without a reason.
fn container(tx_dropped: u64, qdisc: Option<u64>, queued: u64, nameless: u64) -> Scene {
    let counters = "Ip.InReceives 500, Ip.InDelivers 500, Udp.InDatagrams 500";
    let mut scene = Scene::grown(counters).drops(&format!("NOT_SPECIFIED {nameless}"));
    for (facts, times) in [(&mut scene.before, 0), (&mut scene.after, 1)] {
        let counters = format!("rx_packets {}, rx_dropped {}", 500 * times, queued * times);
        let own = link(&[], common(&counters));
        facts.snapshot.links = [("eth0".to_owned(), own)].into();
        let row = format!("0 {:08x} 0 0 0 0 0 0 0 0 0 0 0\n", queued * times);
        facts.snapshot.softnet = Softnet::parse(&row).expect("a row");
        let end = FarEnd {
            netns: 4,
            namespace: "init".to_owned(),
            name: "veth7".to_owned(),
            bridge: Some("cni0".to_owned()),
            cards: vec!["ens5".to_owned()],
            counters: common(&format!("tx_dropped {}", tx_dropped * times)),
            mtu: 1500,
            up: true,
            qdisc_drops: qdisc.map(|drops| drops * times),
            ..FarEnd::default()
        };
        facts.far_ends = [("eth0".to_owned(), end)].into();
    }
    scene
}

#[test]
fn a_full_ring_is_counted_once_and_has_its_place() {
    let scene = container(40, None, 0, 40);
    let found = scene.sums([540, 40, 0]).found();
    let way = "ens5 -> bridge cni0 -> veth7 of namespace init";
    tells(&found, &format!("far_end 40 likely alone: {way}"));
    let start = "init: veth7 (peer of eth0 in this namespace) tx_dropped 40";
    assert!(found[0].what.starts_with(start), "{found:#?}");
    assert_eq!(scene.ledger().losses[0].source, "init: veth7 tx_dropped");
}

#[test]
fn a_full_backlog_is_not_counted_at_the_other_end_again() {
    let scene = container(40, None, 40, 0);
    scene.tells("backlog alone");
    assert_eq!(scene.ledger().lost(), 40);
    container(50, None, 40, 10).finds("backlog 40, far_end 10");
}

#[test]
fn a_limit_of_bandwidth_is_the_disciplines() {
    let scene = container(0, Some(30), 0, 0);
    scene.tells("far_end 30 certain alone: tc -s qdisc show dev veth7");
    let ledger = scene.ledger();
    assert_eq!((ledger.lost(), ledger.unaccounted), (30, 0));
}

#[test]
fn a_healthy_way_is_shown_and_nothing_is_said() {
    let ledger = container(0, Some(0), 0, 0).finds("").ledger();
    assert_eq!(ledger.lost(), 0);
    let way = "the way in is ens5 -> bridge cni0 -> veth7 of namespace init, then eth0 here";
    assert!(ledger.notes.iter().any(|note| note == way), "{ledger}");
    // Without its other end a drop without a reason stays what it is.
    container(0, None, 0, 40).tells("drop_reason");
}
