//! Runs whose counters were read from kernel 6.18.44, and runs made up by the property test.

use super::*;
use crate::delta::LinkDelta;
use proptest::prelude::*;

const RING: Route<'static> = Route::VethRing {
    sender: "tx",
    receiver: "rx",
};
const BACKLOG: Route<'static> = Route::VethBacklog {
    sender: "tx",
    receiver: "rx",
};

fn delta(snmp: &[(&str, i64)]) -> Delta {
    let snmp = snmp
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect();
    Delta {
        snmp,
        ..Delta::default()
    }
}

fn with_link(mut delta: Delta, name: &str, set: impl Fn(&mut LinkDelta)) -> Delta {
    set(delta.links.entry(name.to_owned()).or_default());
    delta
}

fn account<'a>(route: Route<'a>, sender: &'a Delta, receiver: &'a Delta) -> Account<'a> {
    Account {
        offered: 400_000,
        refused: BTreeMap::new(),
        blocked: 0,
        one_machine: false,
        gso: false,
        delivered: 0,
        queued: 0,
        copies: 0,
        socket_drops: 0,
        gro: false,
        sender: Some(sender),
        receiver: Some(receiver),
        route,
        departure: Departure::Socket,
        arrival: Arrival::Socket,
        ring_drops: Vec::new(),
        reasons: None,
        sequence_lost: None,
    }
}

// The figures of the next tests were read from kernel 6.18.44.

#[test]
fn a_full_ring_is_one_loss_although_three_counters_have_it() {
    let sender = delta(&[
        ("Udp.OutDatagrams", 374_047),
        ("Udp.SndbufErrors", 25_953),
        ("Ip.OutDiscards", 25_953),
    ]);
    let sender = with_link(sender, "tx", |link| link.counters.tx_dropped = 25_953);
    let receiver = with_link(delta(&[]), "rx", |link| {
        link.driver
            .insert("rx_queue_0_xdp_packets".to_owned(), 374_047);
    });
    let account = Account {
        delivered: 374_047,
        ..account(RING, &sender, &receiver)
    };
    let ledger = account.ledger();
    assert!(ledger.balances(), "{ledger}");
    assert_eq!(ledger.losses.len(), 1);
    assert_eq!(ledger.losses[0].station, Station::Wire);
    assert!(
        ledger.witnesses.iter().all(crate::Witness::agrees),
        "{:?}",
        ledger.witnesses
    );
}

#[test]
fn a_full_backlog_is_not_a_full_ring() {
    let sender = delta(&[("Udp.OutDatagrams", 204_701), ("Udp.SndbufErrors", 195_299)]);
    let sender = with_link(sender, "tx", |link| link.counters.tx_dropped = 195_299);
    let mut receiver = with_link(delta(&[]), "rx", |link| link.counters.rx_dropped = 195_299);
    receiver.softnet.push(crate::SoftnetDelta {
        dropped: 195_299,
        ..Default::default()
    });
    let account = Account {
        delivered: 204_701,
        ..account(BACKLOG, &sender, &receiver)
    };
    let ledger = account.ledger();
    assert!(ledger.balances(), "{ledger}");
    assert_eq!(ledger.lost_at(Station::Backlog), 195_299);
    assert!(
        ledger.witnesses.iter().all(crate::Witness::agrees),
        "{:?}",
        ledger.witnesses
    );
}

#[test]
fn the_socket_is_right_where_the_namespace_misses_drops() {
    let sender = delta(&[("Udp.OutDatagrams", 400_000)]);
    let receiver = delta(&[("Udp.RcvbufErrors", 290_000)]);
    let account = Account {
        delivered: 109_615,
        socket_drops: 290_385,
        ..account(RING, &sender, &receiver)
    };
    let ledger = account.ledger();
    assert!(ledger.balances(), "{ledger}");
    let doubt = ledger
        .witnesses
        .iter()
        .find(|witness| witness.source.contains("RcvbufErrors"));
    assert!(!doubt.unwrap().agrees(), "the disagreement is shown");
}

#[test]
fn the_packet_filter_is_by_difference_until_the_probe_sees_it() {
    let sender = delta(&[("Udp.OutDatagrams", 400_000)]);
    let receiver = delta(&[("Ip.InReceives", 400_000), ("Ip.InDelivers", 300_000)]);
    let mut account = Account {
        delivered: 300_000,
        ..account(RING, &sender, &receiver)
    };
    let ledger = account.ledger();
    assert!(
        ledger.balances() && ledger.losses[0].by_difference,
        "{ledger}"
    );
    let seen = ReasonCount {
        reason: "NETFILTER_DROP".to_owned(),
        buffers: 100_000,
        datagrams: 100_000,
    };
    account.reasons = Some(vec![seen]);
    let ledger = account.ledger();
    assert!(
        ledger.balances() && !ledger.losses[0].by_difference,
        "{ledger}"
    );
}

#[test]
fn trains_are_inexact_without_the_probe_and_exact_with_it() {
    let sender = delta(&[]);
    let receiver = delta(&[]);
    let mut account = Account {
        delivered: 399_000,
        socket_drops: 20,
        gro: true,
        ..account(RING, &sender, &receiver)
    };
    let ledger = account.ledger();
    assert!(!ledger.balances());
    assert_eq!(ledger.unaccounted, 980);
    let seen = ReasonCount {
        reason: "SOCKET_RCVBUFF".to_owned(),
        buffers: 20,
        datagrams: 1000,
    };
    account.reasons = Some(vec![seen]);
    assert!(account.ledger().balances());
}

#[test]
fn a_reason_that_no_row_explains_is_shown() {
    let (sender, receiver) = (delta(&[]), delta(&[]));
    let seen = ReasonCount {
        reason: "UDP_CSUM".to_owned(),
        buffers: 3,
        datagrams: 3,
    };
    let account = Account {
        delivered: 400_000,
        reasons: Some(vec![seen]),
        ..account(RING, &sender, &receiver)
    };
    let ledger = account.ledger();
    assert!(
        ledger
            .witnesses
            .iter()
            .any(|one| one.source.contains("UDP_CSUM") && !one.agrees())
    );
}

#[test]
fn a_counter_that_went_back_leaves_a_hole_and_a_note() {
    let sender = delta(&[("Udp.SndbufErrors", -5)]);
    let mut receiver = delta(&[]);
    receiver.anomalies.push("rx went back".to_owned());
    let account = Account {
        delivered: 399_990,
        ..account(RING, &sender, &receiver)
    };
    let ledger = account.ledger();
    assert_eq!((ledger.unaccounted, ledger.notes.len()), (10, 1));
}

proptest! {
    /// A packet is put into exactly one place, and each place has its kernel counters; the
    /// account must find every one of them again.
    #[test]
    fn balances_whatever_the_losses(
        ring in 0_u64..1 << 40, header in 0_u64..1000, filter in 0_u64..1 << 40,
        no_port in 0_u64..1 << 40, full in 0_u64..1 << 40, queued in 0_u64..1000,
        delivered in 0_u64..1 << 40, refused in 0_u64..1000, hidden in 0_u64..100,
    ) {
        let into_ip = header + filter + no_port + full + queued + delivered;
        let signed = |count: u64| count as i64;
        let sender = delta(&[
            ("Udp.OutDatagrams", signed(into_ip)), ("Udp.SndbufErrors", signed(ring)),
        ]);
        let receiver = delta(&[
            ("Ip.InReceives", signed(into_ip)), ("Ip.InHdrErrors", signed(header)),
            ("Ip.InDelivers", signed(into_ip - header - filter)),
            ("Udp.NoPorts", signed(no_port)), ("Udp.RcvbufErrors", signed(full)),
        ]);
        let account = Account {
            // What was taken and is in no counter must come out as unaccounted.
            offered: into_ip + ring + refused + hidden,
            refused: [("refused".to_owned(), refused)].into(),
            delivered,
            queued,
            socket_drops: full,
            ..account(RING, &sender, &receiver)
        };
        prop_assert_eq!(account.ledger().unaccounted, signed(hidden));
    }
}

/// Read from kernel 6.18.44: frames redirected by XDP into a veth whose receiver has an AF_XDP ring.
#[test]
fn redirected_frames_are_in_no_counter_of_a_socket() {
    let sender = with_link(delta(&[]), "tx", |link| {
        link.counters.tx_dropped = 100_000;
        link.driver
            .insert("tx_queue_0_xdp_xmit_errors".to_owned(), 60_000);
        link.driver
            .insert("tx_queue_1_xdp_xmit_errors".to_owned(), 40_000);
        link.driver
            .insert("tx_queue_0_xdp_xmit".to_owned(), 300_000);
    });
    let receiver = with_link(delta(&[]), "rx", |link| {
        // What the rings refused to redirected frames, and what could not be redirected on.
        link.counters.rx_dropped = 100_000 + 50_000;
        link.driver.insert("rx_queue_0_drops".to_owned(), 50_000);
        link.driver
            .insert("rx_queue_0_xdp_packets".to_owned(), 300_000);
    });
    let mut account = Account {
        delivered: 250_000,
        departure: Departure::Redirect,
        arrival: Arrival::Xdp { in_driver: true },
        ..account(RING, &sender, &receiver)
    };
    account.ring_drops = vec![RingDrop {
        reason: "receive ring full".to_owned(),
        source: "XDP_STATISTICS rx_ring_full".to_owned(),
        count: 50_000,
    }];
    let ledger = account.ledger();
    assert_eq!(ledger.unaccounted, 0, "{ledger:?}");
    assert_eq!(ledger.lost_at(Station::Wire), 100_000);
    assert_eq!(ledger.lost_at(Station::Backlog), 0);
    assert_eq!(ledger.lost_at(Station::Ring), 50_000);
    assert!(
        ledger.witnesses.iter().all(crate::Witness::agrees),
        "{ledger:?}"
    );
}

/// A tap's losses are its ring's; what the kernel does with its own copies is none of its business.
#[test]
fn the_kernels_own_copies_are_no_loss_of_a_tap() {
    let sender = with_link(delta(&[]), "tx", |link| {
        link.driver
            .insert("tx_queue_0_xdp_xmit_errors".to_owned(), 25_000);
        link.counters.tx_dropped = 25_000;
    });
    let receiver = with_link(
        delta(&[("Udp.NoPorts", 375_000), ("Ip.InReceives", 375_000)]),
        "rx",
        |link| {
            link.counters.rx_dropped = 25_000;
            link.driver
                .insert("rx_queue_0_xdp_packets".to_owned(), 375_000);
        },
    );
    let mut account = Account {
        delivered: 300_000,
        departure: Departure::Redirect,
        arrival: Arrival::Tap,
        ..account(RING, &sender, &receiver)
    };
    account.ring_drops = vec![RingDrop {
        reason: "ring full".to_owned(),
        source: "PACKET_STATISTICS tp_drops".to_owned(),
        count: 75_000,
    }];
    let ledger = account.ledger();
    assert_eq!(ledger.unaccounted, 0, "{ledger:?}");
    assert_eq!(ledger.lost_at(Station::Udp), 0);
}

/// What a rule dropped is what it delivered: the difference that it leaves in IP is not lost again.
#[test]
fn what_a_rule_drops_is_not_a_loss_of_the_packet_filter() {
    let sender = delta(&[("Udp.OutDatagrams", 400_000)]);
    let receiver = with_link(
        delta(&[("Ip.InReceives", 400_000), ("Ip.InDelivers", 0)]),
        "rx",
        |_| {},
    );
    let account = Account {
        delivered: 400_000,
        arrival: Arrival::Rule,
        ..account(RING, &sender, &receiver)
    };
    assert_eq!(account.ledger().unaccounted, 0);
}

/// Between two hosts a frame that no socket sent is missing in the interface's counters alone.
#[test]
fn frames_between_hosts_are_dropped_by_their_interface() {
    let sender = with_link(delta(&[("Udp.SndbufErrors", 7)]), "eth9", |link| {
        link.counters.tx_dropped = 1_000;
    });
    let receiver = delta(&[]);
    let account = Account {
        delivered: 399_000,
        departure: Departure::Frames,
        ..account(Route::Hosts, &sender, &receiver)
    };
    let ledger = account.ledger();
    assert_eq!((ledger.unaccounted, ledger.losses.len()), (0, 1));
    assert_eq!(ledger.losses[0].source, "eth9 tx_dropped");
}

/// Read from kernel 6.18.44: AF_XDP answers for each frame that a full ring behind a veth refused.
#[test]
fn a_frame_that_was_refused_is_not_dropped_again() {
    let sender = with_link(delta(&[]), "tx", |link| link.counters.tx_dropped = 51_392);
    let receiver = with_link(delta(&[]), "rx", |link| {
        link.driver
            .insert("rx_queue_0_xdp_packets".to_owned(), 348_608);
    });
    let account = Account {
        delivered: 348_608,
        refused: BTreeMap::from([("Device or resource busy".to_owned(), 51_392)]),
        departure: Departure::Frames,
        ..account(RING, &sender, &receiver)
    };
    let ledger = account.ledger();
    assert_eq!((ledger.unaccounted, ledger.lost()), (0, 51_392));
}

/// A train that the probe missed leaves the row inexact: the socket knows that there was one more,
/// and nobody knows how long it was.
#[test]
fn a_train_that_the_probe_missed_makes_the_row_inexact() {
    let (sender, receiver) = (delta(&[]), delta(&[]));
    let mut account = Account {
        delivered: 400_000 - 64 * 10,
        socket_drops: 10,
        gro: true,
        ..account(RING, &sender, &receiver)
    };
    let seen = |buffers| {
        Some(vec![ReasonCount {
            reason: "SOCKET_RCVBUFF".to_owned(),
            buffers,
            datagrams: buffers * 64,
        }])
    };
    account.reasons = seen(10);
    let ledger = account.ledger();
    assert!(ledger.is_exact() && ledger.unaccounted == 0, "{ledger:?}");
    account.reasons = seen(9);
    let ledger = account.ledger();
    assert!(!ledger.is_exact() && ledger.unaccounted == 64, "{ledger:?}");
}
