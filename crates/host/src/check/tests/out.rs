//! Packets that a host sends, or that its closing sockets drop. Neither are losses on the way in.

use super::super::drop_reasons::{Fate, named};
use super::counts::{LOST, look};
use super::*;
use crate::counters::drop_probe::{MARK_EGRESS, UNKNOWN_NAMESPACE};

fn sent(reason: &str) -> DropCount {
    DropCount {
        sent: true,
        ..dropped(reason, LOST)
    }
}

/// Datagrams that a closing socket of any namespace dropped.
fn purged(datagrams: u64) -> DropCount {
    DropCount {
        netns: UNKNOWN_NAMESPACE,
        ..dropped("NOT_SPECIFIED", datagrams)
    }
}

#[test]
fn what_is_sent_is_never_lost_on_the_way_in() {
    for (reason, fate) in named() {
        let idle = |drop: &DropCount| {
            let before = host(&[("Ip.InReceives", 0)]);
            let after = later(before.clone());
            let drops = std::slice::from_ref(drop);
            let seen = Observed::new(&before, &after, Some((&[], drops, 1)), asked(None));
            (told(&findings(&seen)), ledger(&seen))
        };
        let expected = match fate {
            Fate::Harmless => is(&[]),
            _ => is(&[("way_out", LOST)]),
        };
        let (found, ledger) = idle(&sent(reason));
        assert_eq!(found, expected, "{reason}");
        assert_eq!((ledger.offered, ledger.lost()), (0, 0), "{reason}");
        let noted = ledger.notes.iter().any(|note| note.contains("way out"));
        assert_eq!(noted, !expected.is_empty(), "{reason}: {ledger}");
        // Packets that are not UDP give no finding.
        let other = DropCount {
            ours: false,
            ..sent(reason)
        };
        assert_eq!(idle(&other).0, is(&[]), "{reason}");
    }
    // Nor does it fill the hole that another loss leaves.
    let other = DropCount {
        ours: false,
        ..sent("NETFILTER_DROP")
    };
    let (found, ledger) = look(&[], Some(&[other, sent("NETFILTER_DROP")]));
    assert_eq!(told(&found), is(&[("way_out", LOST), ("unaccounted", 0)]));
    assert_eq!((ledger.lost(), ledger.unaccounted), (0, LOST as i64));
    // Connection tracking drops both ways under one counter.
    let table = |dropped| Observation {
        conntrack: Some(Conntrack {
            entries: 9,
            entries_max: 10,
            dropped,
            ..Conntrack::default()
        }),
        ..host(&[])
    };
    let (before, after) = (table(0), later(table(LOST)));
    let drops = [sent("NETFILTER_DROP")];
    let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
    assert_eq!(told(&findings(&seen)), is(&[("way_out", LOST)]));
    assert_eq!(super::super::ledger(&seen).offered, 0);
    // The healthy twin: what a rule drops of what came.
    let (found, ledger) = look(&[], Some(&[dropped("NETFILTER_DROP", LOST)]));
    assert_eq!(told(&found), is(&[("firewall", LOST)]));
    assert_eq!((ledger.lost(), ledger.unaccounted), (LOST, 0));
}

#[test]
fn what_is_forwarded_is_lost_on_the_way_out() {
    for (reason, place) in [
        ("QDISC_DROP", ""),
        ("FQ_FLOW_LIMIT", ""),
        ("PKT_TOO_BIG", ""),
        ("NEIGH_FAILED", ""),
        // A veth whose other end takes only shorter packets.
        ("NOT_SPECIFIED", "__dev_forward_skb2"),
    ] {
        let of = |count, sent| {
            host(&[
                ("Ip.InReceives", count),
                ("Ip.ForwDatagrams", count),
                ("Udp.OutDatagrams", sent),
            ])
        };
        let (before, after) = (of(0, 0), later(of(LOST, 5)));
        let drops = [DropCount {
            place: place.to_owned(),
            ..dropped(reason, LOST)
        }];
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
        let found = findings(&seen);
        assert_eq!(told(&found), is(&[("way_out", LOST)]), "{reason}");
        let words = format!("no socket here sent {LOST} of them");
        assert!(found[0].what.contains(&words), "{}", found[0].what);
        let ledger = ledger(&seen);
        let counts = (ledger.offered, ledger.lost(), ledger.unaccounted);
        assert_eq!(counts, (0, 0, 0), "{reason}: {ledger}");
        // The host's own datagrams have left.
        let out = WayOut::of(&seen);
        assert_eq!((out.sent, out.left, out.lost()), (5, 5, LOST));
        assert_eq!(out.forwarded, LOST);
    }
}

#[test]
fn a_closed_socket_takes_along_what_nobody_read() {
    let delivered = &["Ip.InDelivers"][..];
    for (purged_here, expected) in [(LOST, LOST), (LOST - 1, LOST - 1), (9 * LOST, LOST)] {
        let drops = [purged(purged_here), sent("NETFILTER_DROP")];
        let (found, ledger) = look(delivered, Some(&drops));
        let mut all = is(&[("way_out", LOST), ("closed_unread", expected)]);
        let mut found = told(&found);
        all.sort();
        found.sort();
        assert_eq!(found, all, "{ledger}");
        let rest = (LOST - expected) as i64;
        let counts = (ledger.offered, ledger.lost(), ledger.unaccounted);
        assert_eq!(counts, (LOST, expected, rest), "{ledger}");
    }
    // Datagrams that were read, or came to another namespace, are no loss. A capture's copy is no
    // loss, either.
    let read = &["Ip.InDelivers", "Udp.InDatagrams"][..];
    for drop in [purged(LOST), dropped("QUEUE_PURGE", LOST)] {
        assert_eq!(told(&look(read, Some(&[drop])).0), is(&[]));
    }
}

#[test]
fn what_came_and_was_not_read_arrived() {
    let names = ["Ip.InReceives", "Ip.InDelivers", "Tcp.InSegs"];
    let ask = |tcp: u64, drops: Option<&[DropCount]>| {
        let before = host(&names.map(|name| (name, 0)));
        let values = [LOST, LOST, tcp];
        let after: Vec<_> = names.into_iter().zip(values).collect();
        let after = later(host(&after));
        let drops = drops.map(|drops| (&[][..], drops, 1));
        told(&findings(&Observed::new(
            &before,
            &after,
            drops,
            asked(Some(53)),
        )))
    };
    assert_eq!(
        ask(0, Some(&[purged(LOST)])),
        is(&[("closed_unread", LOST)])
    );
    assert_eq!(ask(0, None), is(&[]));
    assert_eq!(ask(LOST, None), is(&[("nothing_arrives", 0)]));
}

#[test]
fn a_cookie_for_each_handshake_tells_of_no_queue() {
    let names = ["TcpExt.TCPReqQFullDoCookies", "TcpExt.TCPReqQFullDrop"];
    let look = |cookies, full| {
        let mut before = host(&names.map(|name| (name, 0)));
        before.settings.insert("net.ipv4.tcp_syncookies", cookies);
        let mut after = later(host(&[(names[0], 200), (names[1], full)]));
        after.settings = before.settings.clone();
        found(&before, &after)
    };
    assert_eq!(look(2, 0), is(&[]));
    assert_eq!(look(2, 7), is(&[("handshake_queue", 7)]));
    assert_eq!(look(1, 0), is(&[("handshake_queue", 0)]));
}

#[test]
fn requests_refused_beside_free_queues_are_told_once() {
    let names = [
        "TcpExt.ListenDrops",
        "TcpExt.ListenOverflows",
        "TcpExt.TCPReqQFullDrop",
        "Ip.OutNoRoutes",
    ];
    let look = |counts: [u64; 4], cookies| {
        let before = host(&names.map(|name| (name, 0)));
        let mut after = later(host(&std::array::from_fn::<_, 4, _>(|at| {
            (names[at], counts[at])
        })));
        after.settings.insert("net.ipv4.tcp_syncookies", cookies);
        let found = findings(&Observed::new(&before, &after, None, asked(None)));
        let found = found
            .into_iter()
            .find(|one| one.what.contains("no queue was full"));
        found.map(|one| {
            (
                one.count,
                one.confidence,
                one.remedy.contains("tcp_syncookies=1"),
            )
        })
    };
    assert_eq!(look([90, 60, 20, 10], 0), None);
    assert_eq!(
        look([300, 0, 0, 0], 0),
        Some((300, Confidence::Likely, true))
    );
    assert_eq!(
        look([300, 90, 9, 1], 1),
        Some((200, Confidence::Possible, false))
    );
}

#[test]
fn a_queue_that_no_program_accepts_from_has_its_reason() {
    let (listens, made) = ("TcpExt.ListenOverflows", "Tcp.PassiveOpens");
    let look = |lost, turns, set: fn(&mut Process), accepted| {
        let program = |turns| {
            let mut program = owner(500, 5);
            program
                .threads
                .values_mut()
                .for_each(|one| one.turns = turns);
            set(&mut program);
            program
        };
        let at = |lost: u64, accepted, turns| {
            let mut facts = host(&[(listens, lost), (made, accepted)]);
            has(&mut facts, 7, program(turns));
            facts.listeners = vec![ListeningSocket {
                local: ([0, 0, 0, 0], 80).into(),
                inode: 7,
                cookie: 7,
                waiting: 50,
                waiting_max: 4096,
                drops: u32::try_from(lost).expect("few"),
            }];
            facts
        };
        let (before, after) = (at(0, 0, 10), later(at(lost, accepted, turns)));
        let found = findings(&Observed::new(&before, &after, None, asked(None)));
        found
            .first()
            .map(|one| format!("{} {}: {} {}", one.count, one.what, one.why, one.remedy))
    };
    let stopped: fn(&mut Process) = |one| one.stopped = true;
    let used_up: fn(&mut Process) = |one| one.descriptors = Some((40, 40));
    let fine: fn(&mut Process) = |one| one.descriptors = Some((39, 40));
    for (lost, turns, set, accepted, words) in [
        (0, 10, stopped, 9, "kill -CONT 812"),
        (5, 10, stopped, 9, "kill -CONT 812"),
        (0, 20, used_up, 9, "40 open descriptors and may have 40"),
        (5, 20, used_up, 9, "prlimit --pid 812"),
        (0, 20, fine, 0, "no connection was accepted"),
        (0, 10, fine, 9, "did nothing"),
        (
            5,
            20,
            fine,
            9,
            "accepted 9 connections meanwhile accept faster",
        ),
    ] {
        let found = look(lost, turns, set, accepted).expect("a finding");
        let name = format!("{lost} ");
        assert!(
            found.starts_with(&name) && found.contains("80 of unbound1 (pid 812)"),
            "{found}"
        );
        assert!(found.contains(words), "{words}: {found}");
        let is_late = words.contains("faster");
        assert_eq!(found.contains("longer queue"), is_late, "{found}");
    }
    assert_eq!(look(0, 20, fine, 9), None);
}

#[test]
fn what_may_be_intact_is_not_certainly_damaged() {
    for (name, confidence, words) in [
        ("Ip.InHdrErrors", Confidence::Certain, "hop limit"),
        ("Ip6.InHdrErrors", Confidence::Possible, "routing header"),
    ] {
        let (found, _) = look(&[name], None);
        assert_eq!(found[0].confidence, confidence, "{found:#?}");
        assert!(found[0].what.contains(words), "{found:#?}");
    }
    let (found, _) = look(&[], Some(&[dropped("SOCKET_FILTER", LOST)]));
    assert!(found[0].what.contains("cgroup"), "{found:#?}");
}

/// The findings of a host whose counters grew like this, and the equation of its way out.
fn sends(counters: &[(&str, u64)], drops: Option<&[DropCount]>) -> (Vec<Finding>, WayOut) {
    let zeros: Vec<_> = counters.iter().map(|(name, _)| (*name, 0)).collect();
    let (before, mut after) = (host(&zeros), later(host(counters)));
    after.unanswered = vec!["10.0.0.7 on eth0".to_owned()];
    let drops = drops.map(|drops| (&[][..], drops, 1));
    let seen = Observed::new(&before, &after, drops, asked(None));
    (findings(&seen), WayOut::of(&seen))
}

#[test]
fn each_way_to_be_lost_on_the_way_out_is_counted_once() {
    use Confidence::{Certain, Likely, Possible};
    let (no_route, no_route_v6) = ("Ip.OutNoRoutes", "Ip6.OutNoRoutes");
    let (discards, discards_v6) = ("Ip.OutDiscards", "Ip6.OutDiscards");
    let (long, full, sent_all) = ("Ip.FragFails", "Udp.SndbufErrors", "Udp.OutDatagrams");
    // The counters of one loss, its drop reason, and what is said.
    let cases: [(&[&str], &str, &str, Confidence); 9] = [
        (&[no_route], "", "no route", Likely),
        (&[no_route_v6], "", "no route", Likely),
        (&[discards], "", "firewall", Possible),
        (&[discards], "NETFILTER_DROP", "firewall", Certain),
        (&[discards_v6], "BPF_CGROUP_EGRESS", "cgroup", Certain),
        (&[discards, long], "", "EMSGSIZE", Certain),
        (&[discards, full], "", "EAGAIN", Likely),
        (&[discards, full], "QDISC_OVERLIMIT", "queueing", Certain),
        (&[sent_all], "NEIGH_FAILED", "10.0.0.7 on eth0", Certain),
    ];
    for (counters, reason, words, confidence) in cases {
        let counters: Vec<_> = counters.iter().map(|name| (*name, LOST)).collect();
        let drops: Vec<_> = (!reason.is_empty())
            .then(|| sent(reason))
            .into_iter()
            .collect();
        // With drop reasons, a drop without one is no rule's.
        let is_hidden = confidence == Possible;
        let (found, out) = sends(&counters, (!is_hidden).then_some(&drops));
        assert_eq!(told(&found), is(&[("way_out", LOST)]), "{words}");
        if is_hidden {
            assert_eq!(sends(&counters, Some(&[])).0, [], "{words}");
        }
        assert!(found[0].what.contains(words), "{words}: {found:#?}");
        assert_eq!(found[0].confidence, confidence, "{words}");
        assert_eq!((out.sent, out.left, out.lost()), (LOST, 0, LOST), "{out}");
    }
    // Forwarded packets that are too long were not sent by a program here.
    assert_eq!(sends(&[(long, LOST)], None).0, []);
    let (found, out) = sends(&[(sent_all, LOST)], Some(&[]));
    assert_eq!((found, &*out.to_string()), (vec![], "sent 300 = left 300"));
}

fn listener(local: ([u8; 4], u16)) -> ListeningSocket {
    ListeningSocket {
        local: local.into(),
        inode: 1,
        cookie: 1,
        waiting: 0,
        waiting_max: 9,
        drops: 0,
    }
}

#[test]
fn an_answer_of_tcp_is_no_datagram() {
    let routes = ("Ip.OutNoRoutes", LOST);
    let drops = ("TcpExt.ListenDrops", LOST);
    for (counters, check, sent) in [
        (&[routes][..], "way_out", LOST),
        (&[routes, drops], "listen_queue", 0),
        (
            &[routes, drops, ("TcpExt.TCPReqQFullDrop", LOST)],
            "handshake_queue",
            LOST,
        ),
        (&[drops], "handshake_queue", 0),
    ] {
        let (found, out) = sends(counters, Some(&[]));
        assert_eq!(found.first().map_or("", |one| &one.check), check);
        assert_eq!(out.sent, sent, "{counters:?}");
        let is_certain = |one: &Finding| one.confidence == Confidence::Certain;
        let is_guess = check != "handshake_queue";
        assert!(!is_guess || !found.iter().any(is_certain), "{found:#?}");
    }
}

/// A remark, where a program listens for connections, and no loss of UDP.
#[test]
fn connections_that_a_rule_drops_are_no_datagrams() {
    let look = |local, ours| {
        let before = host(&[("Ip.InReceives", 0), ("Ip.InDelivers", 0)]);
        let mut after = later(host(&[("Ip.InReceives", LOST), ("Ip.InDelivers", 0)]));
        after.listeners.push(listener((local, 80)));
        let drops = [DropCount {
            ours,
            ..dropped("NETFILTER_DROP", LOST)
        }];
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
        let ledger = super::super::ledger(&seen);
        let mut found = findings(&seen);
        found.truncate(1);
        let said = found.pop().map(|one| (one.is_remark, one.what));
        (said, ledger.offered, ledger.unaccounted)
    };
    let here = [10, 0, 0, 1];
    let (said, offered, rest) = look(here, false);
    assert_eq!((offered, rest), (0, 0), "{said:?}");
    assert!(
        said.is_some_and(|(remark, what)| remark && what.contains("listen here at 10.0.0.1:80"))
    );
    assert_eq!(look([127, 0, 0, 1], false), (None, 0, 0));
    let (said, offered, _) = look(here, true);
    assert!(said.is_some_and(|(_, what)| !what.contains("no UDP")));
    assert_eq!(offered, LOST);
}

/// A program sends to an address of this host where no socket takes it.
#[test]
fn a_refusal_by_this_host_is_none_of_others() {
    let look = |own, to: &str, taker: &str| {
        let counters = [
            ("Udp.OutDatagrams", LOST),
            ("Udp.NoPorts", own),
            ("Icmp.OutDestUnreachs", own),
            ("Icmp.InDestUnreachs", LOST),
        ];
        let zero = counters.map(|(name, _)| (name, 0));
        let (before, mut after) = (host(&zero), later(host(&counters)));
        after.addresses = vec![[10, 0, 0, 1].into()];
        after.sockets = vec![socket(taker, 1, 0), socket("127.0.0.1:999", 2, 0)];
        after.sockets[1].remote = Some(to.parse().expect("an address"));
        let found = findings(&Observed::new(&before, &after, None, asked(None)));
        found.into_iter().map(|one| one.what).collect::<String>()
    };
    for to in ["127.0.0.1:53", "10.0.0.1:53"] {
        let said = look(LOST, to, "10.0.0.2:53");
        assert!(
            said.contains(&format!(
                "sends to {to}, and the sockets of that port are at 10.0.0.2:53"
            )),
            "{said}"
        );
        let said = look(LOST, to, "10.0.0.2:54");
        assert!(said.contains("and no program has that port"), "{said}");
        assert!(!look(LOST, to, "0.0.0.0:53").contains("sends to"));
    }
    assert!(!look(LOST, "127.0.0.1:53", "10.0.0.2:53").contains("other hosts"));
    assert!(look(0, "127.0.0.1:53", "10.0.0.2:53").contains("other hosts refused"));
}

/// IP counts what it took, and `OutDiscards` both.
#[test]
fn a_full_send_buffer_is_no_refusal_behind_ip() {
    for (requests, segments, words, confidence) in [
        (0, 0, "(EAGAIN), and the datagram", Confidence::Likely),
        (LOST, 0, "IP took datagrams, and", Confidence::Likely),
        (LOST, LOST, "refused it (ENOBUFS)", Confidence::Possible),
    ] {
        let counters = [
            ("Ip.OutDiscards", LOST),
            ("Udp.SndbufErrors", LOST),
            ("Udp.OutDatagrams", 5),
            ("Ip.OutRequests", requests + 5),
            ("Tcp.OutSegs", segments),
        ];
        for drops in [None, Some(&[][..])] {
            let (found, out) = sends(&counters, drops);
            assert_eq!(told(&found), is(&[("way_out", LOST)]));
            assert!(found[0].what.contains(words), "{found:#?}");
            assert_eq!(found[0].confidence, confidence, "{found:#?}");
            assert_eq!((out.sent, out.left), (LOST + 5, 5));
        }
        // A rule's drops at the device are among them.
        let at_device = DropCount {
            marks: MARK_EGRESS,
            ..sent("NETFILTER_DROP")
        };
        let (found, out) = sends(&counters, Some(&[at_device]));
        assert_eq!(told(&found), is(&[("way_out", LOST)]));
        assert!(found[0].what.contains("hook egress"), "{found:#?}");
        assert_eq!((out.sent, out.left), (LOST + 5, 5));
    }
}

/// A few packets more are counted than have a reason, as between two readings.
#[test]
fn a_host_that_does_not_forward_sent_it() {
    let look = |forwarding, forwarded| {
        let counters = |count, long| {
            host(&[
                ("Ip.Forwarding", forwarding),
                ("Ip.ForwDatagrams", forwarded * count),
                ("Ip.OutDiscards", long),
                ("Ip.FragFails", long),
            ])
        };
        let (before, after) = (counters(0, 0), later(counters(1, LOST + 2)));
        let drops = [dropped("PKT_TOO_BIG", LOST)];
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
        let out = WayOut::of(&seen);
        let found = findings(&seen);
        let what = found[0].what.contains("no socket here sent");
        (out.sent, out.forwarded, what)
    };
    assert_eq!(look(1, LOST), (0, LOST + 2, true));
    assert_eq!(look(1, 0), (0, LOST + 2, true));
    assert_eq!(look(2, LOST), (0, LOST + 2, true));
    assert_eq!(look(2, 0), (LOST + 2, 0, false));
}

#[test]
fn a_silent_neighbour_of_ipv6_has_no_reason() {
    for (host, words, confidence) in [
        ("fd00::7 on eth0", "does not answer", Confidence::Likely),
        ("10.0.0.7 on eth0", "another reason", Confidence::Certain),
    ] {
        let before = super::host(&[]);
        let mut after = later(before.clone());
        after.unanswered = vec![host.to_owned()];
        let drops = [sent("NOT_SPECIFIED")];
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
        let found = findings(&seen);
        assert_eq!(told(&found), is(&[("way_out", LOST)]), "{host}");
        assert!(found[0].what.contains(words), "{found:#?}");
        assert_eq!(found[0].confidence, confidence, "{host}");
    }
}

#[test]
fn without_drop_reasons_interfaces_tell_what_the_socket_was_told() {
    let counters = [("Udp.SndbufErrors", LOST), ("Ip.OutDiscards", LOST)];
    let look = |qdisc, ring| {
        let zeros = counters.map(|(name, _)| (name, 0));
        let (mut before, mut after) = (host(&zeros), host(&counters));
        for (facts, qdisc, ring) in [(&mut before, 0, 0), (&mut after, qdisc, ring)] {
            let counters = LinkCounters {
                tx_dropped: ring,
                ..LinkCounters::default()
            };
            let mut eth0 = link(&[], counters);
            eth0.qdisc_drops = Some(qdisc);
            facts.snapshot.links = [("eth0".to_owned(), eth0)].into();
        }
        let after = later(after);
        let found = findings(&Observed::new(&before, &after, None, asked(None)));
        let words = |one: &Finding| (one.what.contains("eth0"), one.count);
        found.iter().map(words).collect::<Vec<_>>()
    };
    assert_eq!(look(LOST, 0), [(true, LOST)]);
    assert_eq!(look(0, LOST), [(true, LOST)]);
    assert_eq!(look(0, 0), [(false, LOST)]);
    assert_eq!(
        look(100, 50),
        [(false, LOST - 150), (true, 100), (true, 50)]
    );
    // The rest there is TCP.
    assert_eq!(look(9 * LOST, 0), [(true, LOST)]);
}

#[test]
fn a_silent_neighbour_is_possible_without_drop_reasons() {
    let told = [("Icmp.OutDestUnreachs", 9), ("Udp.OutDatagrams", LOST)];
    let (found, _) = sends(&told, None);
    assert_eq!((found.len(), found[0].count), (1, 0), "{found:#?}");
    assert_eq!(found[0].confidence, Confidence::Possible);
    assert!(found[0].what.contains("10.0.0.7"), "{found:#?}");
    assert_eq!(sends(&told, Some(&[])).0, []);
    assert_eq!(sends(&told[1..], None).0, []);
}

#[test]
fn a_remedy_is_not_what_is_in_force_already() {
    let remedy = |name: &str, set: &dyn Fn(&mut Observation)| {
        let before = host(&[(name, 0)]);
        let mut after = later(host(&[(name, LOST)]));
        set(&mut after);
        let mut found = findings(&Observed::new(&before, &after, None, asked(None)));
        found.remove(0).remedy
    };
    let filter = |mode| {
        remedy("TcpExt.IPReversePathFilter", &|facts: &mut Observation| {
            facts.reverse_path.insert("eth0".to_owned(), mode);
        })
    };
    assert!(filter(1).contains("conf.eth0.rp_filter=2"), "{}", filter(1));
    assert!(
        filter(2).contains("a route to the senders"),
        "{}",
        filter(2)
    );
    assert!(!filter(2).contains("rp_filter=2"), "{}", filter(2));
    for name in ["TcpExt.ListenOverflows", "TcpExt.TCPReqQFullDrop"] {
        let queue = |waiting_max| {
            remedy(name, &|facts: &mut Observation| {
                facts.settings.insert("net.core.somaxconn", 4096);
                facts.listeners.push(ListeningSocket {
                    waiting_max,
                    drops: 9,
                    ..listener(([0, 0, 0, 0], 80))
                });
            })
        };
        let [own, limit] = [queue(128), queue(4096)];
        assert!(
            own.contains("in the program") && !own.contains("-w net.core"),
            "{own}"
        );
        assert!(
            limit.contains("somaxconn=8192") && limit.contains("restart"),
            "{limit}"
        );
    }
}

#[test]
fn a_policy_of_ipsec_without_a_key_is_told() {
    let discarded = DropCount {
        place: "dst_discard_out".to_owned(),
        ..sent("NOT_SPECIFIED")
    };
    let look = |counters: &[(&str, u64)], drops: Option<&[DropCount]>| {
        let zero: Vec<_> = counters.iter().map(|(name, _)| (*name, 0)).collect();
        let (before, after) = (host(&zero), later(host(counters)));
        let drops = drops.map(|drops| (&[][..], drops, 1));
        let seen = Observed::new(&before, &after, drops, asked(None));
        let found = findings(&seen);
        let words = found
            .first()
            .map(|one| (one.count, one.confidence, one.what.clone()));
        (words, WayOut::of(&seen))
    };
    let (left, none) = (
        ("Udp.OutDatagrams", LOST + 5),
        ("XfrmOutNoStates", 2 * LOST),
    );
    for (counters, drops, expected) in [
        (
            &[left, none][..],
            Some(&[discarded.clone()][..]),
            Some((LOST, Confidence::Certain)),
        ),
        // A connected socket asks once.
        (
            &[left],
            Some(&[discarded]),
            Some((LOST, Confidence::Possible)),
        ),
        (&[left, none], None, Some((LOST + 5, Confidence::Likely))),
        // It may be of TCP.
        (&[left, none], Some(&[]), None),
    ] {
        let (found, out) = look(counters, drops);
        let told = found
            .as_ref()
            .map(|(count, confidence, _)| (*count, *confidence));
        assert_eq!(told, expected, "{found:?}");
        let words = "there is no state (key) for it";
        assert!(found.is_none_or(|(.., what)| what.contains(words)));
        assert_eq!(out.sent, LOST + 5, "{out}");
    }
    let (blocked, out) = look(&[("XfrmOutPolBlock", LOST)], Some(&[]));
    assert!(blocked.is_some_and(|(.., what)| what.contains("blocks")));
    assert_eq!((out.sent, out.left), (LOST, 0));
}

/// The clients' requests come by eth0, and the default route of a VPN takes the answers.
#[test]
fn answers_that_leave_by_another_interface_are_a_remark() {
    // Packets that came and left by each interface, whether the program has a second socket, and the speech.
    for (eth0, wg0, relays, is_told) in [
        ([900, 2], [3, 900], false, true),
        ([900, 890], [3, 9], false, false),
        ([900, 2], [400, 900], false, false),
        ([900, 2], [3, 900], true, false),
        ([900, 2], [3, 9], false, false),
    ] {
        let at = |times: u64| {
            let all = [
                ("Udp.InDatagrams", 900 * times),
                ("Udp.OutDatagrams", 900 * times),
            ];
            let mut facts = host(&all);
            facts.sockets = vec![socket("0.0.0.0:53", 7, 0)];
            has(&mut facts, 7, owner(5, 0));
            if relays {
                facts.sockets.push(socket("0.0.0.0:4000", 8, 0));
                has(&mut facts, 8, owner(5, 0));
            }
            for (name, [came, left]) in [("eth0", eth0), ("wg0", wg0)] {
                let counters = LinkCounters {
                    rx_packets: came * times,
                    tx_packets: left * times,
                    ..LinkCounters::default()
                };
                let links = &mut facts.snapshot.links;
                links.insert(name.to_owned(), link(&[], counters));
            }
            facts
        };
        let (before, after) = (at(0), later(at(1)));
        let found = findings(&Observed::new(&before, &after, None, asked(Some(53))));
        let told = found.iter().find(|one| one.check == "other_way_back");
        assert_eq!(told.is_some(), is_told, "{found:#?}");
        assert!(told.is_none_or(|one| one.is_remark && one.what.contains("leaves by wg0")));
    }
}
