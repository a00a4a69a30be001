//! Packets that are another's, and sockets that are bound where they cannot hear.

use super::*;
use crate::facts::{Interface, JoinedGroup};
use mpps_os::netlink::sock_diag::{ListeningSocket, XdpEntry};

/// A host with these counters and one interface that received `packets`.
fn at(packets: u64, counters: &[(&str, u64)]) -> Observation {
    let mut facts = host(counters);
    let counters = LinkCounters {
        rx_packets: packets,
        ..LinkCounters::default()
    };
    let links = &mut facts.snapshot.links;
    links.insert("eth0".to_owned(), link(&[], counters));
    facts
}

/// The findings about port 53 if these counters grew from nothing.
fn look(
    packets: u64,
    grown: &[(&str, u64)],
    drops: &[DropCount],
    change: impl Fn(&mut Observation),
) -> Vec<Finding> {
    let zero: Vec<_> = grown.iter().map(|(name, _)| (*name, 0)).collect();
    let (mut before, mut after) = (at(0, &zero), later(at(packets, grown)));
    change(&mut before);
    change(&mut after);
    findings(&Observed::new(
        &before,
        &after,
        Some((&[], drops, 1)),
        asked(Some(53)),
    ))
}

fn other(reason: &str, packets: u64) -> DropCount {
    DropCount {
        ours: false,
        ..dropped(reason, packets)
    }
}

/// The first finding has this check, is a remark or not, and has all these words.
fn says(found: &[Finding], check: &str, is_remark: bool, words: &[&str]) {
    let first = found.first().expect("something is found");
    assert_eq!(
        (&*first.check, first.is_remark),
        (check, is_remark),
        "{found:#?}"
    );
    let text = format!("{} {}", first.what, first.remedy);
    assert!(words.iter().all(|words| text.contains(words)), "{text}");
    let guess = "no UDP datagram was among them";
    let may = words.contains(&guess);
    assert!(may || !text.contains(guess), "{text}");
}

/// A program has the port of TCP.
fn listens(facts: &mut Observation) {
    facts.listeners = vec![ListeningSocket {
        local: ([0, 0, 0, 0], 53).into(),
        inode: 4,
        cookie: 4,
        waiting: 0,
        waiting_max: 5,
        drops: 0,
    }];
}

const CAME: [(&str, u64); 2] = [("Ip.InReceives", 900), ("Ip.InDelivers", 0)];

#[test]
fn packets_of_others_are_not_said_to_be_no_datagrams() {
    let silent = "nothing_arrives";
    let forwarded = [CAME[0], ("Ip.ForwDatagrams", 900)];
    says(
        &look(900, &forwarded, &[], |_| ()),
        silent,
        true,
        &[
            "900 packets were forwarded",
            "no datagram was for this namespace",
        ],
    );
    // Forwarded to where the port is served, that is the job of this host.
    let netns = "dnsmasq (pid 812) has port 53 in another network namespace";
    let zero = forwarded.map(|(name, _)| (name, 0));
    let (before, after) = (at(0, &zero), later(at(900, &forwarded)));
    let request = DoctorRequest {
        elsewhere: Some(netns.to_owned()),
        ..asked(Some(53))
    };
    let found = findings(&Observed::new(&before, &after, None, request));
    says(&found, silent, true, &["900 packets were forwarded", netns]);
    // A translation changes the port, and a later fragment has none.
    for (reason, words) in [
        ("IP_LOCALNET", "route_localnet"),
        ("NETFILTER_DROP", "requests of connections"),
    ] {
        let drops = [other(reason, 900), other("NOT_SPECIFIED", 9)];
        let found = look(900, &CAME, &drops, |facts| {
            listens(facts);
            facts.conntrack = Some(Conntrack::default());
        });
        let all = ["900 packets", reason, words, "TCP port 53 has a listener"];
        says(&found, silent, false, &all);
    }
    // Without a rule, its source is such an address.
    let found = look(900, &CAME, &[other("IP_LOCALNET", 9)], |_| ());
    assert!(!found[0].what.contains("redirects"), "{found:#?}");
    let ours = look(900, &CAME, &[dropped("IP_LOCALNET", 900)], |_| ());
    says(
        &ours,
        "drop_reason",
        false,
        &["redirects them to 127.0.0.1", "route_localnet=1"],
    );
    let pieces = [
        ("Ip.InReceives", 900),
        ("Ip.ReasmReqds", 300),
        ("Ip.ReasmOKs", 0),
    ];
    let drops = [other("NETFILTER_DROP", 600)];
    let waits = |facts: &mut Observation| {
        facts
            .reassembling
            .insert("FRAG", facts.snapshot.monotonic_ns.min(300));
    };
    let found = look(900, &pieces, &drops, waits);
    says(
        &found,
        silent,
        false,
        &[
            "300 fragments",
            "firewall of this host dropped 600",
            "frag-off",
        ],
    );
    let waiting = found
        .iter()
        .find(|one| one.check == "fragments")
        .expect("they wait");
    assert_eq!(waiting.confidence, Confidence::Likely);
    assert!(waiting.what.contains("dropped 600"), "{waiting:?}");
}

#[test]
fn a_program_before_ip_has_its_packets() {
    let xdp = |facts: &mut Observation| {
        let (name, native_xdp) = ("eth0".to_owned(), Some(true));
        let link = NetlinkLink {
            name,
            native_xdp,
            index: 2,
            ..NetlinkLink::default()
        };
        facts.links.push(link);
    };
    let program = "900 packets reached the interfaces and not IP; an XDP program at eth0";
    says(
        &look(900, &[("Ip.InReceives", 0)], &[], xdp),
        "nothing_arrives",
        true,
        &[program],
    );
    let socket = |facts: &mut Observation| {
        xdp(facts);
        facts.xdp_sockets = vec![XdpEntry {
            interface: 2,
            inode: 9,
            ..XdpEntry::default()
        }];
        has(facts, 9, owner(1, 0));
    };
    let program = "the AF_XDP socket at eth0 queue 0 of unbound1 (pid 812)";
    // Neighbour discovery that a program lets pass is no traffic.
    let stray = [
        ("Ip6.InReceives", 3),
        ("Ip6.InDelivers", 2),
        ("Icmp6.InMsgs", 2),
        ("Ip6.InMcastPkts", 3),
    ];
    says(
        &look(900, &stray, &[], socket),
        "nothing_arrives",
        true,
        &[program],
    );
    let none = look(900, &[("Ip.InReceives", 900)], &[], socket);
    says(
        &none,
        "nothing_arrives",
        false,
        &["no UDP datagram was among them"],
    );
}

#[test]
fn neighbour_discovery_moves_no_station() {
    let stray = [
        ("Ip6.InReceives", 3),
        ("Ip6.InDelivers", 2),
        ("Icmp6.InMsgs", 2),
        ("Ip6.InMcastPkts", 3),
    ];
    let found = look(3, &stray, &[], |_| ());
    says(
        &found,
        "nothing_arrives",
        false,
        &["received any packet except neighbour discovery"],
    );
    let found = look(103, &stray, &[], |_| ());
    says(
        &found,
        "nothing_arrives",
        false,
        &["100 packets reached the interfaces and none reached IP"],
    );
    // A query of IGMP is delivered, and no protocol counts it.
    let query = [
        ("Ip.InReceives", 1),
        ("Ip.InDelivers", 1),
        ("IpExt.InMcastPkts", 1),
    ];
    let found = look(1, &query, &[], |_| ());
    says(
        &found,
        "nothing_arrives",
        false,
        &["no UDP datagram was among them"],
    );
    // Packets of VRRP to this host itself, and GRE: only a closed socket would be the same.
    let stray = [("Ip.InReceives", 4), ("Ip.InDelivers", 4)];
    let asks = |before: &[u32], after: &[u32], drops: Option<&[DropCount]>| {
        let of = |inodes: &[u32], counters: &[(&str, u64)]| {
            let inodes = inodes.iter();
            let mut facts = host(counters);
            facts.sockets = inodes
                .map(|&inode| socket("0.0.0.0:53", inode, 0))
                .collect();
            facts
        };
        let before = of(before, &stray.map(|(name, _)| (name, 0)));
        let after = later(of(after, &stray));
        let drops = drops.map(|drops| (&[][..], drops, 1));
        let seen = Observed::new(&before, &after, drops, asked(Some(53)));
        told(&findings(&seen))
            .iter()
            .any(|(check, _)| check == "nothing_arrives")
    };
    for (before, after, drops, speaks) in [
        (&[7][..], &[7][..], None, true),
        (&[7], &[7, 8], None, true),
        (&[7, 8], &[7], None, false),
        (&[], &[], None, false),
        (&[7, 8], &[7], Some(&[][..]), true),
        (&[], &[], Some(&[]), true),
    ] {
        let is_seen = drops.is_some();
        assert_eq!(
            asks(before, after, drops),
            speaks,
            "{before:?} {after:?} {is_seen}"
        );
    }
}

/// A policy of drop without a rule for ICMPv6.
#[test]
fn neighbour_discovery_may_be_filtered() {
    for (messages, is_told) in [(0, true), (1, false)] {
        let all = [
            ("Ip6.InReceives", 9),
            ("Ip6.InDelivers", messages),
            ("Ip6.InMcastPkts", 9),
            ("Icmp6.InMsgs", messages),
        ];
        let found = look(9, &all, &[other("NETFILTER_DROP", 4)], |_| ());
        let text = format!("{found:?}");
        assert_eq!(text.contains("as neighbour discovery"), is_told, "{text}");
        assert_eq!(text.contains("nd-neighbor-solicit"), is_told, "{text}");
    }
}

/// ARP for an address of loopback, as of a load balancer's server.
#[test]
fn arp_may_be_left_without_an_answer() {
    for mode in [0, 1] {
        let found = look(9, &[], &[], |facts| {
            facts.settings = [("net.ipv4.conf.all.arp_ignore", mode)].into();
        });
        let is_told = found[0].what.contains("net.ipv4.conf.all.arp_ignore (1)");
        assert_eq!(is_told, mode == 1, "{found:#?}");
    }
}

#[test]
fn a_port_of_tcp_is_told() {
    let tcp = [
        ("Ip.InReceives", 9),
        ("Ip.InDelivers", 9),
        ("Tcp.InSegs", 9),
    ];
    let words = [
        "TCP port 53 has a listener at 0.0.0.0:53",
        "mpps doctor without --port",
        "no UDP datagram was among them",
    ];
    says(
        &look(9, &tcp, &[], listens),
        "nothing_arrives",
        true,
        &words,
    );
    // At loopback, other hosts are refused.
    for (address, opened, is_refused) in [
        ([127, 0, 0, 1], 0, true),
        ([127, 0, 0, 1], 1, false),
        ([0; 4], 0, false),
    ] {
        let counters = [
            &tcp[..],
            &[("Tcp.OutRsts", 9), ("Tcp.PassiveOpens", opened)],
        ]
        .concat();
        let found = look(9, &counters, &[], |facts| {
            listens(facts);
            facts.listeners[0].local = (address, 53).into();
        });
        assert_eq!(found[0].is_remark, !is_refused, "{found:?}");
        let is_told = found[0].what.contains("they are refused");
        assert_eq!(is_told, is_refused, "{found:?}");
    }
    let idle = look(9, &[CAME[0]], &[], listens);
    assert!(!idle[0].is_remark, "{idle:?}");
}

#[test]
fn a_port_without_a_socket_is_told_beside_the_losses_of_others() {
    let busy = [("Udp.InDatagrams", 10), ("Udp.RcvbufErrors", 990)];
    let lossy = |facts: &mut Observation| {
        let drops = facts.snapshot.monotonic_ns.min(990) as u32;
        facts.sockets = vec![socket("0.0.0.0:5353", 7, drops), socket("0.0.0.0:68", 8, 0)];
    };
    let found = look(1000, &busy, &[], lossy);
    assert_eq!(told(&found), is(&[("port_owner", 0), ("port_owner", 990)]));
    says(
        &found,
        "port_owner",
        false,
        &["no socket of this namespace has UDP port 53"],
    );
    says(
        &found[1..],
        "port_owner",
        true,
        &["0.0.0.0:5353 most", "mpps doctor --port 5353"],
    );
    // Its own losses are no others', and it has a socket.
    let own = |facts: &mut Observation| {
        lossy(facts);
        facts.sockets[0].local.set_port(53);
    };
    assert_eq!(
        told(&look(1000, &busy, &[], own)),
        is(&[("socket_buffer", 990)])
    );
}

#[test]
fn two_programs_at_one_port_are_named() {
    let share = |groups: [u32; 2]| {
        move |facts: &mut Observation| {
            for (at, group) in (1..).zip(groups) {
                facts.sockets.push(socket("0.0.0.0:53", at, 0));
                let process = Process {
                    pid: at,
                    group,
                    ..owner(1, 0)
                };
                has(facts, at, process);
            }
        }
    };
    let read = [("Udp.InDatagrams", 10)];
    let found = look(10, &read, &[], share([1, 2]));
    says(
        &found,
        "port_owner",
        true,
        &["2 programs have UDP 0.0.0.0:53: unbound1 (pid 1), unbound1 (pid 2)"],
    );
    assert_eq!(
        told(&look(10, &read, &[], share([1, 1]))),
        is(&[]),
        "one server"
    );
}

#[test]
fn answers_that_clients_refuse_are_told_on_a_host_of_several_addresses() {
    let answers = [
        ("Udp.InDatagrams", 100),
        ("Udp.OutDatagrams", 100),
        ("Icmp.InDestUnreachs", 6),
    ];
    let has = |local: &'static str, count: u8| {
        move |facts: &mut Observation| {
            facts.sockets = vec![socket(local, 1, 0)];
            facts.addresses = (1..=count).map(|last| [10, 9, 0, last].into()).collect();
        }
    };
    let found = look(100, &answers, &[], has("0.0.0.0:53", 2));
    let words = ["10.9.0.1, 10.9.0.2", "IP_PKTINFO"];
    says(&found, "port_owner", true, &words);
    // A server needs no port to be asked for; a client's socket is none.
    let without_port = |local| {
        let change = |facts: &mut Observation| {
            has(local, 2)(facts);
            facts.client_ports = Some(32_768..=60_999);
        };
        let names = answers.map(|(name, _)| (name, 0));
        let (mut before, mut after) = (host(&names), later(host(&answers)));
        change(&mut before);
        change(&mut after);
        findings(&Observed::new(&before, &after, None, asked(None)))
    };
    says(&without_port("0.0.0.0:53"), "port_owner", true, &words);
    assert_eq!(told(&without_port("0.0.0.0:40000")), is(&[]));
    for healthy in [has("10.9.0.1:53", 2), has("0.0.0.0:53", 1)] {
        assert_eq!(told(&look(100, &answers, &[], healthy)), is(&[]));
    }
    assert_eq!(
        told(&look(100, &answers[..2], &[], has("0.0.0.0:53", 2))),
        is(&[])
    );
}

#[test]
fn a_vrf_is_named_where_its_packets_find_no_socket() {
    let refused = [("Udp.NoPorts", 40)];
    let drops = [dropped("NO_SOCKET", 40)];
    let vrf = |accept: u64, local: &'static str| {
        move |facts: &mut Observation| {
            facts.sockets = vec![socket(local, 1, 0)];
            let driver = "vrf".to_owned();
            let card = Interface {
                driver,
                ..Interface::default()
            };
            facts.cards.insert("blue".to_owned(), card);
            facts.settings.insert("net.ipv4.udp_l3mdev_accept", accept);
        }
    };
    let words = ["the VRF blue", "udp_l3mdev_accept=1"];
    let found = look(40, &refused, &drops, vrf(0, "0.0.0.0:53"));
    says(&found, "no_listener", false, &words);
    assert_eq!(found[0].confidence, Confidence::Likely);
    says(
        &look(40, &refused, &drops, vrf(0, "10.0.0.1:53")),
        "listener_elsewhere",
        false,
        &words,
    );
    let found = look(40, &refused, &drops, vrf(1, "0.0.0.0:53"));
    says(
        &found,
        "no_listener",
        false,
        &["the cause is not known", "sk_lookup"],
    );
    assert_eq!(found[0].confidence, Confidence::Possible);
}

#[test]
fn joined_groups_are_told_with_interface_and_source() {
    let joins = |facts: &mut Observation| {
        facts.sockets = vec![socket("0.0.0.0:53", 1, 0)];
        let group = |group: &str, only_from: &[&str]| JoinedGroup {
            interface: "eth1".to_owned(),
            group: group.parse().expect("a group"),
            only_from: only_from
                .iter()
                .map(|one| one.parse().expect("a source"))
                .collect(),
        };
        facts.groups = vec![group("239.1.1.1", &["10.9.0.77"]), group("ff02::fb", &[])];
    };
    let joined = "joined here: 239.1.1.1 at eth1 (only from 10.9.0.77), ff02::fb at eth1";
    let drops = [dropped("NOT_SPECIFIED", 900)];
    says(
        &look(900, &CAME, &drops, joins),
        "unrouted",
        false,
        &[joined],
    );
    // Listener reports of IPv6 explain none of them.
    let both = [
        CAME[0],
        CAME[1],
        ("Ip6.InReceives", 9),
        ("Ip6.InDelivers", 0),
        ("Ip6.InMcastPkts", 9),
    ];
    let noisy = [drops[0].clone(), other("NOT_SPECIFIED", 9)];
    assert_eq!(
        told(&look(909, &both, &noisy, joins)),
        is(&[("unrouted", 900)])
    );
    let v6 = [
        ("Ip6.InReceives", 900),
        ("Ip6.InDelivers", 0),
        ("Ip6.InMcastPkts", 900),
    ];
    says(
        &look(900, &v6, &drops, joins),
        "unrouted",
        false,
        &[
            "for their source",
            joined,
            "join at the interface that they come by",
        ],
    );
    let ignored = [("Udp.IgnoredMulti", 900)];
    says(
        &look(900, &ignored, &drops, joins),
        "no_listener",
        false,
        &["bind it to 0.0.0.0", joined],
    );
}

#[test]
fn what_comes_back_with_an_own_address_was_sent_here() {
    let drops = [dropped("IP_LOCAL_SOURCE", 90)];
    for (sent, words) in [(100, "hairpin"), (10, "two hosts have one address")] {
        let found = look(
            90,
            &[("Ip.InReceives", 90), ("Udp.OutDatagrams", sent)],
            &drops,
            |_| (),
        );
        says(&found, "drop_reason", false, &[words]);
        assert_eq!(
            found[0].what.contains("two hosts"),
            sent == 10,
            "{found:#?}"
        );
    }
}

#[test]
fn what_a_tunnel_took_and_dropped_was_not_read() {
    for (came, is_remark) in [(90, false), (900, true)] {
        let counters =
            ["Ip.InReceives", "Ip.InDelivers", "Udp.InDatagrams"].map(|name| (name, came));
        let drops = [other("VXLAN_VNI_NOT_FOUND", 90)];
        let found = look(came, &counters, &drops, |facts| {
            facts.sockets = vec![socket("0.0.0.0:53", 1, 0)];
        });
        says(
            &found,
            "drop_reason",
            is_remark,
            &["for port 53 may be in them"],
        );
        assert_eq!(found[0].count, 90);
    }
}

#[test]
fn an_address_that_another_host_has_too_gets_nothing() {
    for duplicates in [vec!["fd00::5 at eth1".to_owned()], vec![]] {
        let found = look(0, &[("Ip.InReceives", 0)], &[], |facts| {
            facts.sockets = vec![socket("[::]:53", 1, 0)];
            facts.unused_addresses.clone_from(&duplicates);
        });
        says(&found, "nothing_arrives", false, &["no interface received"]);
        assert_eq!(found[0].what.contains("fd00::5"), !duplicates.is_empty());
        assert_eq!(
            found[0].remedy.contains("dadfailed"),
            !duplicates.is_empty()
        );
        // A wrong Ethernet address leads them here all the same.
        for (name, is_v6) in [("Ip6.InAddrErrors", true), ("Ip.InAddrErrors", false)] {
            let found = look(90, &[(name, 90)], &[], |facts| {
                facts.unused_addresses.clone_from(&duplicates);
            });
            let is_told = is_v6 && !duplicates.is_empty();
            assert_eq!(found[0].what.contains("does not use: fd00::5"), is_told);
            assert_eq!(
                found[0].confidence == Confidence::Likely,
                is_told,
                "{found:#?}"
            );
            assert_eq!(found[0].what.contains("does not have"), !is_told);
        }
    }
}

#[test]
fn a_socket_of_ipv6_only_is_told_where_ipv4_comes() {
    let drops = [dropped("NO_SOCKET", 90)];
    for (only_v6, local) in [(true, "[::]:53"), (false, "10.0.0.1:53")] {
        let found = look(90, &[("Udp.NoPorts", 90)], &drops, |facts| {
            facts.sockets = vec![UdpEntry {
                only_v6,
                ..socket(local, 1, 0)
            }];
        });
        says(&found, "listener_elsewhere", false, &[local]);
        assert_eq!(found[0].remedy.contains("IPV6_V6ONLY"), only_v6);
    }
}
