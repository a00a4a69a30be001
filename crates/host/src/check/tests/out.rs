//! Packets that a host sends, or that its closing sockets drop. Neither are losses on the way in.

use super::super::drop_reasons::{Fate, named};
use super::counts::{LOST, look};
use super::scene::common;
use super::*;

#[test]
fn what_is_sent_is_never_lost_on_the_way_in() {
    for (reason, fate) in named() {
        let idle = Scene::grown("Ip.InReceives 0");
        let expected = match fate {
            Fate::Harmless => "",
            _ => "way_out 300",
        };
        let scene = idle.clone().drops(&format!("{reason} 300 sent"));
        let ledger = scene.finds(expected).sums([0; 3]).ledger();
        let noted = ledger.notes.iter().any(|note| note.contains("way out"));
        assert_eq!(noted, !expected.is_empty(), "{reason}: {ledger}");
        // Packets that are not UDP give no finding.
        idle.drops(&format!("{reason} 300 sent other")).finds("");
    }
    // Nor does it fill the hole that another loss leaves.
    let both = look(&[]).drops("NETFILTER_DROP 300 sent other, NETFILTER_DROP 300 sent");
    both.finds("way_out 300, unaccounted 0").sums([300, 0, 300]);
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
    let tracked = Scene::of((table(0), later(table(LOST)))).drops("NETFILTER_DROP 300 sent");
    tracked.finds("way_out 300").sums([0; 3]);
    // The healthy twin: what a rule drops of what came.
    let came = look(&[]).drops("NETFILTER_DROP 300");
    came.finds("firewall 300").sums([300, 300, 0]);
}

#[test]
fn what_is_forwarded_is_lost_on_the_way_out() {
    for reason in [
        "QDISC_DROP",
        "FQ_FLOW_LIMIT",
        "PKT_TOO_BIG",
        "NEIGH_FAILED",
        // A veth whose other end takes only shorter packets.
        "NOT_SPECIFIED@__dev_forward_skb2",
    ] {
        let scene = Scene::grown("Ip.InReceives 300, Ip.ForwDatagrams 300, Udp.OutDatagrams 5");
        let scene = scene.drops(&format!("{reason} 300"));
        scene
            .tells("way_out 300 alone: no socket here sent 300 of them")
            .sums([0; 3]);
        // The host's own datagrams have left.
        let out = scene.see(WayOut::of);
        assert_eq!(
            (out.sent, out.left, out.lost(), out.forwarded),
            (5, 5, LOST, LOST)
        );
    }
}

#[test]
fn a_closed_socket_takes_along_what_nobody_read() {
    let delivered = look(&["Ip.InDelivers"]);
    for (purged, expected) in [(LOST, LOST), (LOST - 1, LOST - 1), (9 * LOST, LOST)] {
        let drops = format!("NOT_SPECIFIED {purged} unknown, NETFILTER_DROP 300 sent");
        let scene = delivered.clone().drops(&drops);
        let mut found = scene.found();
        found.sort_by(|one, other| one.check.cmp(&other.check));
        finds(&found, &format!("closed_unread {expected}, way_out 300"));
        let (lost, rest) = (expected as i64, (LOST - expected) as i64);
        scene.sums([300, lost, rest]);
    }
    // Datagrams that were read, or came to another namespace, are no loss. A capture's copy is no
    // loss, either.
    let read = look(&["Ip.InDelivers", "Udp.InDatagrams"]);
    read.clone().drops("NOT_SPECIFIED 300 unknown").finds("");
    read.drops("QUEUE_PURGE 300").finds("");
}

#[test]
fn what_came_and_was_not_read_arrived() {
    let ask = |tcp| {
        let counters = format!("Ip.InReceives 300, Ip.InDelivers 300, Tcp.InSegs {tcp}");
        Scene::grown(&counters).port(53)
    };
    ask(0)
        .drops("NOT_SPECIFIED 300 unknown")
        .finds("closed_unread 300");
    // Another namespace's socket closed, and these came while counters were read, for half of the look each.
    for (read_ns, expected) in [(SECOND / 100, "closed_unread 300"), (SECOND / 2, "")] {
        let scene = ask(0).drops("NOT_SPECIFIED 300 unknown");
        scene.both(|facts| facts.read_ns = read_ns).finds(expected);
    }
    // The same, and a router's raw socket took these.
    let scene = ask(0).drops("NOT_SPECIFIED 300 unknown");
    let scene = scene.now(|after| after.raw_protocols = [112].into());
    assert!(!scene.found().iter().any(|one| one.check == "closed_unread"));
    ask(0).finds("");
    ask(300).finds("nothing_arrives 0");
}

#[test]
fn a_cookie_for_each_handshake_tells_of_no_queue() {
    for (cookies, full, expected) in [
        (2, 0, ""),
        (2, 7, "handshake_queue 7"),
        (1, 0, "handshake_queue 0"),
    ] {
        let counters = format!("TcpExt.TCPReqQFullDoCookies 200, TcpExt.TCPReqQFullDrop {full}");
        let scene = Scene::grown(&counters)
            .both(|facts| facts.settings = [("net.ipv4.tcp_syncookies", cookies)].into());
        scene.finds(expected);
    }
}

#[test]
fn requests_refused_beside_free_queues_are_told_once() {
    for ([drops, overflows, full, routes], cookies, expected) in [
        ([90, 60, 20, 10], 0, ""),
        (
            [300, 0, 0, 0],
            0,
            "handshake_queue 300 likely: tcp_syncookies=1",
        ),
        (
            [300, 90, 9, 1],
            1,
            "handshake_queue 200 possible: !tcp_syncookies=1",
        ),
    ] {
        let scene = Scene::grown(&format!(
            "TcpExt.ListenDrops {drops}, TcpExt.ListenOverflows {overflows}, TcpExt.TCPReqQFullDrop {full}, \
             Ip.OutNoRoutes {routes}"
        ));
        let scene =
            scene.now(|after| after.settings = [("net.ipv4.tcp_syncookies", cookies)].into());
        let mut found = scene.found();
        found.retain(|one| one.what.contains("no queue was full"));
        tells(&found, expected);
    }
}

#[test]
fn a_queue_that_no_program_accepts_from_has_its_reason() {
    let look = |lost: u64, turns, set: fn(&mut Process), accepted| {
        let counters = format!("TcpExt.ListenOverflows {lost}, Tcp.PassiveOpens {accepted}");
        let mut scene = Scene::grown(&counters).both(|facts| {
            let mut program = owner(500, 5);
            set(&mut program);
            has(facts, 7, program);
            facts.listeners = vec![ListeningSocket {
                waiting: 50,
                waiting_max: 4096,
                ..listener(([0, 0, 0, 0], 80))
            }];
        });
        let process = reader(&mut scene.after);
        process.read_ns = SECOND;
        process
            .threads
            .values_mut()
            .for_each(|one| one.turns = turns);
        scene.after.listeners[0].drops = u32::try_from(lost).expect("few");
        scene
    };
    let stopped: fn(&mut Process) = |one| one.stopped = true;
    let used_up: fn(&mut Process) = |one| one.descriptors = Some((40, 40));
    let fine: fn(&mut Process) = |one| one.descriptors = Some((39, 40));
    let late = "accepted 9 connections meanwhile accept faster | longer queue | !its own limit";
    for (lost, turns, set, accepted, words) in [
        (0, 10, stopped, 9, "kill -CONT 812 | !longer queue"),
        (5, 10, stopped, 9, "kill -CONT 812 | !longer queue"),
        (
            0,
            20,
            used_up,
            9,
            "40 open descriptors and may have 40 | !longer queue",
        ),
        (5, 20, used_up, 9, "prlimit --pid 812 | !longer queue"),
        (0, 20, fine, 0, "no connection was accepted | !longer queue"),
        (0, 10, fine, 9, "did nothing | !longer queue"),
        (5, 20, fine, 9, late),
    ] {
        let name = "80 of unbound1 (pid 812)";
        let scene = look(lost, turns, set, accepted);
        scene.tells(&format!("listen_queue {lost}: {name} | {words}"));
    }
    look(0, 20, fine, 9).finds("");
    let proxy: fn(&mut Process) = |one| one.name = "haproxy".to_owned();
    look(5, 20, proxy, 9)
        .tells("listen_queue 5: its own limit | maxconn N in global | longer queue");
}

#[test]
fn what_may_be_intact_is_not_certainly_damaged() {
    look(&["Ip.InHdrErrors"]).tells("bad_header certain: hop limit");
    look(&["Ip6.InHdrErrors"]).tells("bad_header possible: routing header");
    look(&[])
        .drops("SOCKET_FILTER 300")
        .tells("drop_reason: cgroup");
}

/// A host whose counters grew like this, and that waits for a neighbour.
fn sends(counters: &str) -> Scene {
    Scene::grown(counters).now(|after| after.unanswered = vec!["10.0.0.7 on eth0".to_owned()])
}

/// The datagrams that programs sent, and those that left.
#[track_caller]
fn leaves(scene: &Scene, expected: [u64; 2]) {
    let out = scene.see(WayOut::of);
    assert_eq!([out.sent, out.left], expected, "{out}");
}

#[test]
fn each_way_to_be_lost_on_the_way_out_is_counted_once() {
    for (counters, drops, expected) in [
        ("Ip.OutNoRoutes 300", "", "likely: no route"),
        ("Ip6.OutNoRoutes 300", "", "likely: no route"),
        (
            "Ip.OutDiscards 300",
            "NETFILTER_DROP 300 sent",
            "certain: firewall",
        ),
        (
            "Ip6.OutDiscards 300",
            "BPF_CGROUP_EGRESS 300 sent",
            "certain: cgroup",
        ),
        (
            "Ip.OutDiscards 300, Ip.FragFails 300",
            "",
            "certain: EMSGSIZE",
        ),
        (
            "Ip.OutDiscards 300, Udp.SndbufErrors 300",
            "",
            "likely: EAGAIN",
        ),
        (
            "Ip.OutDiscards 300, Udp.SndbufErrors 300",
            "QDISC_OVERLIMIT 300 sent",
            "certain: queueing",
        ),
        (
            "Udp.OutDatagrams 300",
            "NEIGH_FAILED 300 sent",
            "certain: 10.0.0.7 on eth0",
        ),
    ] {
        let scene = sends(counters).drops(drops);
        scene.tells(&format!("way_out 300 alone {expected}"));
        leaves(&scene, [LOST, 0]);
        assert_eq!(scene.see(WayOut::of).lost(), LOST);
    }
    // With drop reasons, a drop without one is no rule's.
    let hidden = sends("Ip.OutDiscards 300");
    hidden.tells("way_out 300 alone possible: firewall");
    leaves(&hidden, [LOST, 0]);
    hidden.drops("").finds("");
    // Forwarded packets that are too long were not sent by a program here.
    sends("Ip.FragFails 300").finds("");
    let healthy = sends("Udp.OutDatagrams 300").drops("");
    let out = healthy.finds("").see(|seen| WayOut::of(seen).to_string());
    assert_eq!(out, "sent 300 = left 300");
}

fn listener(local: ([u8; 4], u16)) -> ListeningSocket {
    ListeningSocket {
        local: local.into(),
        only_v6: false,
        inode: 7,
        cookie: 7,
        waiting: 0,
        waiting_max: 9,
        drops: 0,
    }
}

#[test]
fn an_answer_of_tcp_is_no_datagram() {
    let (routes, drops) = ("Ip.OutNoRoutes 300", "TcpExt.ListenDrops 300");
    for (counters, check, sent) in [
        (routes, "way_out", LOST),
        (&*format!("{routes}, {drops}"), "listen_queue", 0),
        (
            &format!("{routes}, {drops}, TcpExt.TCPReqQFullDrop 300"),
            "handshake_queue",
            LOST,
        ),
        (drops, "handshake_queue", 0),
    ] {
        let scene = sends(counters).drops("");
        let found = scene.found();
        assert_eq!(found.first().map_or("", |one| &one.check), check);
        assert_eq!(scene.see(WayOut::of).sent, sent, "{counters:?}");
        let is_certain = |one: &Finding| one.confidence == Confidence::Certain;
        let is_guess = check != "handshake_queue";
        assert!(!is_guess || !found.iter().any(is_certain), "{found:#?}");
    }
}

/// A remark, where a program listens for connections, and no loss of UDP.
#[test]
fn connections_that_a_rule_drops_are_no_datagrams() {
    let look = |local, drops: &str| {
        let scene = Scene::grown("Ip.InReceives 300, Ip.InDelivers 0").drops(drops);
        scene.now(|after| after.listeners.push(listener((local, 80))))
    };
    let here = [10, 0, 0, 1];
    let tcp = look(here, "NETFILTER_DROP 300 other").sums([0; 3]).found();
    tells(&tcp, "firewall remark: listen here at 10.0.0.1:80");
    let local = look([127, 0, 0, 1], "NETFILTER_DROP 300 other");
    local.finds("").sums([0; 3]);
    let udp = look(here, "NETFILTER_DROP 300");
    mentions(&udp.found()[0].what, "!no UDP");
    assert_eq!(udp.ledger().offered, LOST);
}

/// A program sends to an address of this host where no socket takes it.
#[test]
fn a_refusal_by_this_host_is_none_of_others() {
    let look = |own, to: &str, taker: &str, parts: &str| {
        let scene = Scene::grown(&format!(
            "Udp.OutDatagrams 300, Udp.NoPorts {own}, Icmp.OutDestUnreachs {own}, Icmp.InDestUnreachs 300"
        ));
        let scene = scene.now(|after| {
            after.addresses = vec![[10, 0, 0, 1].into()];
            after.sockets = vec![socket(taker, 1, 0), socket("127.0.0.1:999", 2, 0)];
            after.sockets[1].remote = Some(to.parse().expect("an address"));
        });
        let all: String = scene.found().into_iter().map(|one| one.what).collect();
        mentions(&all, parts);
    };
    for to in ["127.0.0.1:53", "10.0.0.1:53"] {
        let sends = format!("sends to {to}, and the sockets of that port are at 10.0.0.2:53");
        look(LOST, to, "10.0.0.2:53", &sends);
        look(LOST, to, "10.0.0.2:54", "and no program has that port");
        look(LOST, to, "0.0.0.0:53", "!sends to");
    }
    look(LOST, "127.0.0.1:53", "10.0.0.2:53", "!other hosts");
    look(0, "127.0.0.1:53", "10.0.0.2:53", "other hosts refused");
}

/// IP counts what it took, and `OutDiscards` both.
#[test]
fn a_full_send_buffer_is_no_refusal_behind_ip() {
    for (requests, segments, expected) in [
        (5, 0, " likely: (EAGAIN), and the datagram"),
        (305, 0, " likely: IP took datagrams, and"),
        (305, 300, " possible: refused it (ENOBUFS)"),
    ] {
        let scene = sends(&format!(
            "Ip.OutDiscards 300, Udp.SndbufErrors 300, Udp.OutDatagrams 5, Ip.OutRequests {requests}, \
             Tcp.OutSegs {segments}"
        ));
        let reasons = scene.clone().drops("");
        // A rule's drops at the device are among them.
        let at_device = scene.clone().drops("NETFILTER_DROP+egress 300 sent");
        for (scene, expected) in [
            (scene, expected),
            (reasons, expected),
            (at_device, ": hook egress"),
        ] {
            scene.tells(&format!("way_out 300 alone{expected}"));
            leaves(&scene, [LOST + 5, 5]);
        }
    }
}

/// A few packets more are counted than have a reason, as between two readings.
#[test]
fn a_host_that_does_not_forward_sent_it() {
    let words = "no socket here sent";
    for (forwarding, forwarded, is_ours) in [
        (1, LOST, false),
        (1, 0, false),
        (2, LOST, false),
        (2, 0, true),
    ] {
        let scene = Scene::grown(&format!(
            "Ip.Forwarding {forwarding}, Ip.ForwDatagrams {forwarded}, Ip.OutDiscards 302, Ip.FragFails 302"
        ));
        let scene = scene.drops("PKT_TOO_BIG 300");
        let out = scene.see(WayOut::of);
        let counts = if is_ours { (302, 0) } else { (0, 302) };
        assert_eq!((out.sent, out.forwarded), counts, "{out}");
        assert_eq!(scene.found()[0].what.contains(words), !is_ours);
    }
}

#[test]
fn a_silent_neighbour_of_ipv6_has_no_reason() {
    for (host, expected) in [
        ("fd00::7 on eth0", "likely: does not answer"),
        ("10.0.0.7 on eth0", "certain: another reason"),
    ] {
        let scene = Scene::grown("").drops("NOT_SPECIFIED 300 sent");
        let scene = scene.now(|after| after.unanswered = vec![host.to_owned()]);
        scene.tells(&format!("way_out 300 alone {expected}"));
    }
}

#[test]
fn without_drop_reasons_interfaces_tell_what_the_socket_was_told() {
    for (qdisc, ring, expected) in [
        (LOST, 0, &[(true, LOST)][..]),
        (0, LOST, &[(true, LOST)]),
        (0, 0, &[(false, LOST)]),
        (100, 50, &[(false, LOST - 150), (true, 100), (true, 50)]),
        // The rest there is TCP.
        (9 * LOST, 0, &[(true, LOST)]),
    ] {
        let mut scene = Scene::grown("Udp.SndbufErrors 300, Ip.OutDiscards 300");
        let ring = format!("tx_dropped {ring}");
        let both = [(&mut scene.before, 0, ""), (&mut scene.after, qdisc, &ring)];
        for (facts, qdisc, ring) in both {
            let mut eth0 = link(&[], common(ring));
            eth0.qdisc_drops = Some(qdisc);
            facts.snapshot.links = [("eth0".to_owned(), eth0)].into();
        }
        let found = scene.found();
        let words = found
            .iter()
            .map(|one| (one.what.contains("eth0"), one.count));
        assert_eq!(words.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_silent_neighbour_is_possible_without_drop_reasons() {
    let told = sends("Icmp.OutDestUnreachs 9, Udp.OutDatagrams 300");
    told.tells("way_out 0 remark alone possible: 10.0.0.7");
    told.drops("").finds("");
    sends("Udp.OutDatagrams 300").finds("");
}

#[test]
fn a_remedy_is_not_what_is_in_force_already() {
    for (mode, parts) in [
        (1, "conf.eth0.rp_filter=2"),
        (2, "a route to the senders | !rp_filter=2"),
    ] {
        let scene = Scene::grown("TcpExt.IPReversePathFilter 300");
        let scene = scene.now(|after| after.reverse_path = [("eth0".to_owned(), mode)].into());
        mentions(&scene.found()[0].remedy, parts);
    }
    for name in ["TcpExt.ListenOverflows", "TcpExt.TCPReqQFullDrop"] {
        for (waiting_max, parts) in [
            (128, "in the program | !-w net.core"),
            (4096, "somaxconn=8192 | restart"),
        ] {
            let scene = Scene::grown(&format!("{name} 300")).now(|after| {
                after.settings.insert("net.core.somaxconn", 4096);
                after.listeners.push(ListeningSocket {
                    waiting_max,
                    drops: 9,
                    ..listener(([0, 0, 0, 0], 80))
                });
            });
            mentions(&scene.found()[0].remedy, parts);
        }
    }
}

#[test]
fn a_policy_of_ipsec_without_a_key_is_told() {
    let (left, both) = (
        "Udp.OutDatagrams 305",
        "Udp.OutDatagrams 305, XfrmOutNoStates 600",
    );
    let discarded = Some("NOT_SPECIFIED@dst_discard_out 300 sent");
    let words = "there is no state (key) for it";
    for (counters, drops, expected) in [
        (both, discarded, format!("way_out 300 certain: {words}")),
        // A connected socket asks once.
        (left, discarded, format!("way_out 300 possible: {words}")),
        (both, None, format!("way_out 305 likely: {words}")),
        // It may be of TCP.
        (both, Some(""), String::new()),
    ] {
        let scene = Scene::grown(counters);
        let scene = drops
            .into_iter()
            .fold(scene, |scene, drops| scene.drops(drops));
        scene.tells(&expected);
        assert_eq!(scene.see(WayOut::of).sent, LOST + 5);
    }
    let blocked = Scene::grown("XfrmOutPolBlock 300").drops("");
    blocked.tells("way_out: blocks");
    leaves(&blocked, [LOST, 0]);
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
        let counters = "Udp.InDatagrams 900, Udp.OutDatagrams 900";
        let mut scene = Scene::grown(counters).port(53).both(|facts| {
            let clients = relays.then_some(("0.0.0.0:4000", 8));
            for (local, inode) in [("0.0.0.0:53", 7)].into_iter().chain(clients) {
                facts.sockets.push(socket(local, inode, 0));
                has(facts, inode, owner(5, 0));
            }
        });
        for (name, [came, left]) in [("eth0", eth0), ("wg0", wg0)] {
            let grown = format!("rx_packets {came}, tx_packets {left}");
            for (facts, counters) in [(&mut scene.before, ""), (&mut scene.after, &*grown)] {
                let counters = link(&[], common(counters));
                facts.snapshot.links.insert(name.to_owned(), counters);
            }
        }
        let found = scene.found();
        let told = found.iter().find(|one| one.check == "other_way_back");
        assert_eq!(told.is_some(), is_told, "{found:#?}");
        assert!(told.is_none_or(|one| one.is_remark && one.what.contains("leaves by wg0")));
    }
}
