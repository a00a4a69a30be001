//! Runs as both ends report them, after something happened to them.

use super::*;
use mpps_host::LinkCounters;
use mpps_host::counters::delta::LinkDelta;

/// 20 000 datagrams in ten flows, and 30 end markers: all of it came.
fn run() -> (SendTotal, RecvTotal) {
    let send = include_str!("../../../../tests/fixtures/send.json");
    let recv = include_str!("../../../../tests/fixtures/recv.json");
    let mut send: SendTotal = serde_json::from_str(send).expect("totals");
    let mut recv: RecvTotal = serde_json::from_str(recv).expect("totals");
    (send.host, recv.host) = (None, None);
    (send, recv)
}

/// Joins the run after this happened to its first flow.
fn joined(change: impl Fn(&mut RecvTotal, &mut FlowTotal)) -> Ledger {
    let (send, mut recv) = run();
    let mut flow = recv.flows[0].clone();
    change(&mut recv, &mut flow);
    recv.flows[0] = flow;
    join(&send, &recv)
}

fn range(ledger: &Ledger) -> [i64; 2] {
    assert!(ledger.adds_up(), "{ledger}");
    ledger.unaccounted_range()
}

fn has_stamps_as_witness(ledger: &Ledger) -> bool {
    let mut witnesses = ledger.witnesses.iter();
    witnesses.any(|witness| witness.source == SEQUENCE_NUMBERS && witness.agrees())
}

fn notes(ledger: &Ledger) -> String {
    ledger.notes.join("\n")
}

#[test]
fn a_run_of_which_everything_came_is_zero_and_its_stamps_agree() {
    let ledger = joined(|_, _| {});
    assert_eq!((ledger.delivered, range(&ledger)), (20_030, [0, 0]));
    assert!(ledger.balances() && has_stamps_as_witness(&ledger));
    assert!(!notes(&ledger).contains("undecided"), "{ledger:?}");
}

#[test]
fn no_counts_of_several_files_overflow() {
    let (mut send, mut recv) = run();
    (send.offered, send.refused) = (u64::MAX, u64::MAX);
    (recv.received, recv.end_markers, recv.socket_drops) = (u64::MAX, u64::MAX, u64::MAX);
    let mut other = send.clone();
    for thread in &mut other.threads {
        thread.run = thread.run.map(|run| run ^ 1);
    }
    let sends = [("a".to_owned(), send), ("b".to_owned(), other)];
    let all = join_all(&sends, &[("r".to_owned(), recv)]).expect("they belong together");
    let counts = all.senders.iter().map(|sender| sender.arrived[0]);
    assert_eq!(counts.collect::<Vec<_>>(), [20_030, 0]);
    assert_eq!(all.receivers[0].dropped, u64::MAX);
}

#[test]
fn duplicates_fill_no_hole_and_make_none() {
    // As many lost as replayed: the receiver got 20 000 datagrams.
    let ledger = joined(|_, flow| (flow.lost, flow.duplicates) = (700, 700));
    assert_eq!((ledger.duplicates, range(&ledger)), (700, [700, 700]));
    assert!(notes(&ledger).contains("700 datagrams came again"));
    // A network that makes duplicates and loses nothing.
    let ledger = joined(|recv, flow| {
        recv.received += 700;
        (flow.received, flow.duplicates) = (flow.received + 700, 700);
    });
    assert_eq!((ledger.duplicates, range(&ledger)), (700, [0, 0]));
    assert!(ledger.balances() && has_stamps_as_witness(&ledger));
    assert!(!notes(&ledger).contains("undecided"), "{ledger:?}");
}

#[test]
fn other_hosts_packets_fill_no_hole() {
    let (mut send, mut recv) = run();
    (send.host, recv.host) = (Some(Delta::default()), Some(Delta::default()));
    recv.received -= 40;
    (recv.flows[0].received, recv.flows[0].lost) = (recv.flows[0].received - 40, 40);
    for (target, counter, words) in [
        (
            "10.0.0.2:4321",
            "Udp.IgnoredMulti",
            "40 broadcasts or multicasts without",
        ),
        (
            "10.0.0.2:4321",
            "Ip.InUnknownProtos",
            "40 packets of protocols that",
        ),
        (
            "10.0.0.2:4321",
            "Ip.InAddrErrors",
            "40 packets to addresses",
        ),
        // These may be the ones.
        ("10.0.0.255:4321", "Ip.InAddrErrors", ""),
        ("10.0.0.255:4321", "Udp.IgnoredMulti", ""),
        ("239.1.1.1:4321", "Udp.IgnoredMulti", ""),
    ] {
        let delivers = if counter.starts_with("Udp") { 40 } else { 0 };
        let counters = [
            (counter, 40),
            ("Ip.InReceives", 40),
            ("Ip.InDelivers", delivers),
        ];
        let counters = counters.map(|(name, count)| (name.to_owned(), count));
        recv.host.as_mut().expect("counters").snmp = counters.into();
        send.threads[0].target = target.to_owned();
        let ledger = join(&send, &recv);
        let left = if words.is_empty() { [0, 40] } else { [40, 40] };
        assert_eq!(range(&ledger), left, "{target} {counter}: {ledger}");
        assert!(notes(&ledger).contains(words), "{ledger:?}");
        assert_eq!(notes(&ledger).contains("left out"), !words.is_empty());
        assert!(!notes(&ledger).contains("handed on"), "{ledger:?}");
    }
}

#[test]
fn packets_of_the_other_family_fill_no_hole() {
    let (mut send, mut recv) = run();
    recv.received -= 40;
    (recv.flows[0].received, recv.flows[0].lost) = (recv.flows[0].received - 40, 40);
    let whole = (send.offered + send.end_markers) as i64;
    for (target, family) in [
        ("10.0.0.2:1", ""),
        ("[::ffff:10.0.0.2]:1", ""),
        ("[fd00::2]:1", "6"),
    ] {
        send.threads[0].target = target.to_owned();
        for counter in [
            "Ip.InHdrErrors",
            "Udp.InCsumErrors",
            "Ip6.InHdrErrors",
            "Udp6.InCsumErrors",
        ] {
            let counters = [
                (counter, 40),
                ("Ip.InReceives", whole),
                ("Ip.InDelivers", whole),
            ];
            recv.host = Some(Delta {
                snmp: counters
                    .map(|(name, count)| (name.to_owned(), count))
                    .into(),
                ..Delta::default()
            });
            let ledger = join(&send, &recv);
            let is_ours = counter.contains('6') == (family == "6");
            let left = if is_ours { 0 } else { 40 };
            assert_eq!(range(&ledger), [left; 2], "{target} {counter}: {ledger}");
            assert!(!notes(&ledger).contains("undecided"), "{ledger:?}");
        }
        // The sender's: another program's datagrams, and as many of the run that no counter has.
        let counters = [("Udp.OutDatagrams", whole), ("Udp6.SndbufErrors", 40)];
        let counters =
            counters.map(|(name, count)| (name.replace("Udp.", &format!("Udp{family}.")), count));
        send.host = Some(Delta {
            snmp: counters.into(),
            ..Delta::default()
        });
        recv.host = None;
        let ledger = join(&send, &recv);
        let left = if family == "6" { [0, 40] } else { [40, 40] };
        assert_eq!(range(&ledger), left, "{target}: {ledger}");
        send.host = None;
    }
}

#[test]
fn a_hole_is_shown_with_the_counters_that_know_of_it() {
    let (send, mut recv) = run();
    let link = |rx_packets| LinkDelta {
        counters: LinkCounters {
            rx_packets,
            ..LinkCounters::default()
        },
        ..LinkDelta::default()
    };
    let whole = send.offered + send.end_markers;
    for (lost, in_datagrams, in_receives, words) in [
        (
            300,
            whole,
            whole,
            "300 datagrams were delivered to other sockets",
        ),
        (
            300,
            whole - 300,
            whole - 300,
            "300 packets that eth0 received",
        ),
        // All came, and others' datagrams, too.
        (0, whole + 300, whole - 300, ""),
    ] {
        let counters = [
            ("Udp.InDatagrams", in_datagrams),
            ("Ip.InReceives", in_receives),
        ];
        recv.host = Some(Delta {
            snmp: counters
                .map(|(name, count)| (name.to_owned(), count as i64))
                .into(),
            links: [("eth0", whole), ("lo", 9)]
                .map(|(name, rx)| (name.to_owned(), link(rx as i64)))
                .into(),
            ..Delta::default()
        });
        let mut recv = recv.clone();
        recv.received -= lost;
        (recv.flows[0].received, recv.flows[0].lost) = (recv.flows[0].received - lost, lost);
        let ledger = join(&send, &recv);
        assert_eq!(range(&ledger), [lost as i64; 2], "{ledger}");
        let told = notes(&ledger);
        assert!(told.contains(words), "{told}");
        let is_told = ["other sockets", "reach IP"].map(|words| told.contains(words));
        assert_eq!(
            is_told,
            [words.contains("sockets"), words.contains("eth0")],
            "{told}"
        );
    }
}

#[test]
fn other_programs_ports_fill_no_hole() {
    let (mut send, mut recv) = run();
    (send.host, recv.host) = (Some(Delta::default()), Some(Delta::default()));
    recv.received -= 500;
    (recv.flows[0].received, recv.flows[0].lost) = (recv.flows[0].received - 500, 500);
    let whole = (send.offered + send.end_markers) as i64;
    let counters = [
        ("Udp.NoPorts", 500),
        ("Ip.InReceives", whole),
        ("Ip.InDelivers", whole),
    ];
    let counters = counters.map(|(name, count)| (name.to_owned(), count));
    recv.host.as_mut().expect("counters").snmp = counters.into();
    // The receiver's socket was open all the time.
    recv.address = "0.0.0.0:4321".to_owned();
    send.threads[0].target = "10.0.0.2:4321".to_owned();
    for arrival in ["xdp", "socket"] {
        recv.arrival = arrival.to_owned();
        let ledger = join(&send, &recv);
        assert_eq!(range(&ledger), [500, 500], "{ledger}");
        assert!(notes(&ledger).contains("500 datagrams on ports without a socket"));
    }
    // It listened elsewhere: these may be the ones.
    for address in ["0.0.0.0:4322", "10.0.0.3:4321", "[::1]:4321"] {
        recv.address = address.to_owned();
        let ledger = join(&send, &recv);
        assert_eq!(range(&ledger), [0, 0], "{address}: {ledger}");
        assert!(!notes(&ledger).contains("ports without a socket"));
    }
}

/// The ledger of a receiver that got these runs' sequence numbers of five.
fn received(stamps: &[(u32, u64)], sender: Option<&SendTotal>) -> Ledger {
    let mut report = RxReport::default();
    for &(run, sequence) in stamps {
        let stamp = mpps_io::Stamp {
            kind: mpps_io::StampKind::Data,
            sender: 0,
            flow: 0,
            run,
            sequence,
            time_ns: 0,
        };
        let mut payload = [0; 16];
        stamp.write(&mut payload);
        report.flows.record(&payload, 0);
    }
    let received = ReceiverCounts {
        delivered: stamps.len() as u64,
        arrival: Arrival::Socket,
        ..ReceiverCounts::default()
    };
    let sent = SenderCounts {
        offered: 5,
        ..SenderCounts::default()
    };
    without_copies(&report, sender, received, |received| {
        account(sent, received, PacketRoute::Hosts, (None, None)).ledger()
    })
}

#[test]
fn a_receiver_alone_counts_no_copy_for_a_lost_one() {
    let ledger = |numbers: &[u64]| {
        let stamps: Vec<_> = numbers.iter().map(|number| (1, *number)).collect();
        received(&stamps, None)
    };
    let healthy = ledger(&[0, 1, 2, 3, 4]);
    assert_eq!((range(&healthy), healthy.duplicates), ([0, 0], 0));
    let replayed = ledger(&[0, 1, 1, 1, 4]);
    assert_eq!((range(&replayed), replayed.duplicates), ([2, 2], 2));
    let late = ledger(&[0, 1, 2, 9000, 2]);
    assert_eq!((range(&late), late.duplicates), ([1, 1], 1));
}

#[test]
fn another_senders_stamps_count_for_no_lost_one() {
    let mut send = run().0;
    send.threads[0].run = Some(7);
    let came = [(7, 0), (7, 1), (8, 2), (8, 3), (8, 4), (8, 5)];
    let ledger = received(&came, Some(&send));
    assert_eq!((ledger.delivered, range(&ledger)), (2, [3, 3]));
    assert!(notes(&ledger).contains("4 datagrams that the receiver got are not of this run"));
    let healthy = received(&[0, 1, 2, 3, 4].map(|number| (7, number)), Some(&send));
    assert_eq!((range(&healthy), healthy.notes.len()), ([0, 0], 0));
}

#[test]
fn more_flows_than_are_followed_are_no_doubt() {
    let (mut send, mut recv) = run();
    recv.received += 500;
    assert_eq!(join(&send, &recv).undecided, None, "they fill no hole");
    (send.offered, send.threads[0].offered) = (send.offered + 500, 20_500);
    send.end_markers = 3 * 8193;
    let missing = i64::try_from(send.end_markers).expect("few") - 30;
    let ledger = join(&send, &recv);
    assert_eq!(range(&ledger), [missing, missing], "{ledger}");
    assert!(!has_stamps_as_witness(&ledger));
    assert!(notes(&ledger).contains("follows 8192 flows"));
}

#[test]
fn fragments_of_a_namespace_are_no_loss_of_a_run() {
    let (send, mut recv) = run();
    let whole = [
        ("Ip.ReasmReqds".to_owned(), 1500),
        ("Ip.ReasmOKs".to_owned(), 500),
    ];
    let snmp = whole.into();
    recv.host = Some(Delta {
        snmp,
        ..Delta::default()
    });
    for (arrival, is_told) in [("tap", true), ("xdp", true), ("socket", false)] {
        recv.arrival = arrival.to_owned();
        let ledger = join(&send, &recv);
        assert_eq!((ledger.lost(), range(&ledger)), (0, [0, 0]), "{ledger}");
        let said = notes(&ledger).contains("up to 500 datagrams may have been for this port");
        assert_eq!(said, is_told, "{ledger:?}");
    }
}

#[test]
fn what_came_too_late_to_tell_is_undecided_and_not_zero() {
    let late = |undecided, lost| {
        move |_: &mut RecvTotal, flow: &mut FlowTotal| {
            (flow.too_late, flow.lost, flow.undecided) = (700, lost, undecided);
        }
    };
    // A file of an older version took them for late ones.
    for ledger in [joined(late(Some(700), 700)), joined(late(None, 0))] {
        assert_eq!(range(&ledger), [0, 700]);
        assert!(!ledger.balances() && !has_stamps_as_witness(&ledger));
        let notes = notes(&ledger);
        assert!(notes.contains("undecided: 700 of these"), "{notes}");
        assert!(notes.contains("0 to 700 were lost"), "{notes}");
    }
    // The receiver has decided that they were late ones.
    let ledger = joined(late(Some(0), 0));
    assert!(ledger.balances() && has_stamps_as_witness(&ledger));
}

#[test]
fn of_duplicates_some_may_have_been_dropped() {
    let ledger = joined(|recv, flow| {
        (recv.received, recv.socket_drops) = (recv.received - 400, 500);
        (flow.received, flow.lost, flow.duplicates) = (flow.received - 400, 500, 100);
    });
    assert_eq!(range(&ledger), [0, 500]);
    assert!(!ledger.balances() && !has_stamps_as_witness(&ledger));
    // The same without duplicates.
    let ledger = joined(|recv, flow| {
        (recv.received, recv.socket_drops) = (recv.received - 500, 500);
        (flow.received, flow.lost) = (flow.received - 500, 500);
    });
    assert!(ledger.balances() && has_stamps_as_witness(&ledger));
}

#[test]
fn stamps_beyond_what_was_sent_fill_no_hole() {
    // Ten of the last were lost, and ten are forged behind them, or far behind.
    for far in [0, 1 << 35] {
        let ledger = joined(|_, flow| flow.lost = far + 10);
        let [least, most] = range(&ledger);
        assert!(least <= 10 && most >= 10, "{least} to {most}");
        assert!(!ledger.balances() && !has_stamps_as_witness(&ledger));
        assert!(notes(&ledger).contains("beyond what was sent"));
    }
}

#[test]
fn end_markers_and_datagrams_of_others_fill_no_hole() {
    let ledger = joined(|recv, flow| {
        (recv.received, flow.received) = (recv.received - 10, flow.received - 10);
        (recv.end_markers, flow.end_markers) = (recv.end_markers + 10, 13);
        flow.lost = 10;
    });
    assert_eq!(range(&ledger), [10, 10]);
    // Another run, no stamps, and nothing of this run's: none of it was delivered.
    let ledger = joined(|recv, flow| {
        (flow.run, recv.unstamped) = (flow.run.wrapping_add(1), 5);
        recv.received += 5;
    });
    assert_eq!(range(&ledger), [1650, 1652 + 3]);
    assert!(notes(&ledger).contains("1655 datagrams that the receiver got are not of this run"));
    assert!(notes(&ledger).contains("5 datagrams came without a stamp, or with a damaged one"));
    let ledger = joined(|_, flow| flow.run = flow.run.wrapping_add(1));
    assert_eq!(
        range(&ledger),
        [1652 + 3; 2],
        "they are another run's for certain"
    );
    // Nothing began with a stamp, so that the receiver read none.
    let ledger = joined(|recv, _| recv.flows.truncate(1));
    let lost = 20_000 - 1652;
    assert_eq!(range(&ledger), [27, lost + 27]);
    assert!(notes(&ledger).contains("did not read"), "{ledger:?}");
}

#[test]
fn without_stamps_two_runs_are_not_taken_for_one() {
    let joined = |port: &str, sent: [u64; 2], boot: &str| {
        let (mut send, mut recv) = run();
        (send.threads[0].run, send.end_markers, recv.end_markers) = (None, 0, 0);
        send.threads[0].target = "10.0.0.2:4321".to_owned();
        recv.address = format!("0.0.0.0:{port}");
        (send.boot_id, recv.boot_id) = (Some("a".to_owned()), Some(boot.to_owned()));
        let at = |taken_unix_ns| {
            Some(Delta {
                taken_unix_ns,
                ..Delta::default()
            })
        };
        (send.host, recv.host) = (at(sent), at([100, 200]));
        join(&send, &recv)
    };
    for (port, sent, boot) in [
        ("4322", [120, 180], "a"),
        ("4321", [10, 90], "a"),
        ("4321", [210, 290], "a"),
    ] {
        let ledger = joined(port, sent, boot);
        assert_eq!(range(&ledger), [0, 20_000], "{port} {sent:?}");
        assert!(
            notes(&ledger).contains("may be of another run"),
            "{ledger:?}"
        );
    }
    // Two hosts have two clocks.
    for (sent, boot) in [([90, 210], "a"), ([10, 90], "b"), ([0, 0], "a")] {
        let ledger = joined("4321", sent, boot);
        assert!(ledger.balances(), "{ledger}");
        assert!(
            notes(&ledger).contains("not stamped: other senders'"),
            "{ledger:?}"
        );
    }
}

#[test]
fn threads_and_flows_are_not_looked_at_in_pairs() {
    let (mut send, mut recv) = run();
    // All pairs would take minutes.
    send.threads = vec![send.threads[0].clone(); 100_000];
    recv.flows = vec![recv.flows[0].clone(); 100_000];
    assert_eq!(join(&send, &recv).offered, send.offered + send.end_markers);
}
