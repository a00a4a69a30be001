//! The other end of a veth, in another namespace.

use super::*;
use crate::facts::far_end::FarEnd;

/// A container with `eth0`, whose other end on the node counted these, and whose own end dropped
/// `queued` packets in a backlog. The kernel dropped `nameless` datagrams without a reason.
fn container(
    tx_dropped: u64,
    qdisc: Option<u64>,
    queued: u64,
    nameless: u64,
) -> (Vec<Finding>, Ledger) {
    let at = |times: u64| {
        let mut facts = host(&[
            ("Ip.InReceives", 500 * times),
            ("Ip.InDelivers", 500 * times),
            ("Udp.InDatagrams", 500 * times),
        ]);
        let counters = LinkCounters {
            rx_packets: 500 * times,
            rx_dropped: queued * times,
            ..LinkCounters::default()
        };
        facts.snapshot.links = [("eth0".to_owned(), link(&[], counters))].into();
        let row = format!("0 {:08x} 0 0 0 0 0 0 0 0 0 0 0\n", queued * times);
        facts.snapshot.softnet = Softnet::parse(&row).expect("a row");
        let end = FarEnd {
            netns: 4,
            namespace: "init".to_owned(),
            name: "veth7".to_owned(),
            bridge: Some("cni0".to_owned()),
            cards: vec!["ens5".to_owned()],
            counters: LinkCounters {
                tx_dropped: tx_dropped * times,
                ..LinkCounters::default()
            },
            mtu: 1500,
            up: true,
            qdisc_drops: qdisc.map(|drops| drops * times),
            ..FarEnd::default()
        };
        facts.far_ends = [("eth0".to_owned(), end)].into();
        facts
    };
    let (before, after) = (at(1), later(at(2)));
    let drops = [dropped("NOT_SPECIFIED", nameless)];
    let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
    (findings(&seen), ledger(&seen))
}

#[test]
fn a_full_ring_is_counted_once_and_has_its_place() {
    let (found, ledger) = container(40, None, 0, 40);
    let [found] = &found[..] else {
        panic!("{found:#?}")
    };
    assert_eq!(
        (&*found.check, found.count, found.confidence),
        ("far_end", 40, Confidence::Likely)
    );
    let start = "init: veth7 (peer of eth0 in this namespace) tx_dropped 40";
    assert!(found.what.starts_with(start), "{found:#?}");
    assert!(
        found
            .what
            .contains("ens5 -> bridge cni0 -> veth7 of namespace init"),
        "{found:#?}"
    );
    assert_eq!(
        (ledger.offered, ledger.lost(), ledger.unaccounted),
        (540, 40, 0),
        "{ledger:#?}"
    );
    assert_eq!(ledger.losses[0].source, "init: veth7 tx_dropped");
}

#[test]
fn a_full_backlog_is_not_counted_at_the_other_end_again() {
    let (found, ledger) = container(40, None, 40, 0);
    assert_eq!(
        found.iter().map(|one| &*one.check).collect::<Vec<_>>(),
        ["backlog"],
        "{found:#?}"
    );
    assert_eq!(ledger.lost(), 40);
    let (found, _) = container(50, None, 40, 10);
    let counts: Vec<_> = found.iter().map(|one| (&*one.check, one.count)).collect();
    assert_eq!(counts, [("backlog", 40), ("far_end", 10)]);
}

#[test]
fn a_limit_of_bandwidth_is_the_disciplines() {
    let (found, ledger) = container(0, Some(30), 0, 0);
    let [found] = &found[..] else {
        panic!("{found:#?}")
    };
    assert_eq!(
        (&*found.check, found.count, found.confidence),
        ("far_end", 30, Confidence::Certain)
    );
    assert!(
        found.remedy.contains("tc -s qdisc show dev veth7"),
        "{found:#?}"
    );
    assert_eq!((ledger.lost(), ledger.unaccounted), (30, 0));
}

#[test]
fn a_healthy_way_is_shown_and_nothing_is_said() {
    let (found, ledger) = container(0, Some(0), 0, 0);
    assert_eq!((found, ledger.lost()), (Vec::new(), 0));
    let way = "the way in is ens5 -> bridge cni0 -> veth7 of namespace init, then eth0 here";
    assert!(
        ledger.notes.iter().any(|note| note == way),
        "{:?}",
        ledger.notes
    );
    // Without its other end a drop without a reason stays what it is.
    let (found, _) = container(0, None, 0, 40);
    assert_eq!(found[0].check, "drop_reason", "{found:#?}");
}
