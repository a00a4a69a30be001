//! The way of packets through interfaces: forwarding, bridges, tunnels, and what their kinds and states explain.

use super::counts::LOST;
use super::*;
use crate::facts::TrackedFlow;
use crate::facts::far_end::FarEnd;

/// Which interfaces forward, whether there is a bridge, and the words and confidence that follow.
type ForwardingCase = (
    &'static [(&'static str, bool)],
    bool,
    &'static str,
    Confidence,
);

/// An interface of this kind, up, whose counters grew by this.
fn add(facts: &mut Observation, name: &str, kind: &str, grown: LinkCounters<u64>) {
    let index = u32::try_from(facts.links.len()).expect("few") + 1;
    facts.links.push(NetlinkLink {
        index,
        name: name.to_owned(),
        kind: kind.to_owned(),
        mtu: 1500,
        up: true,
        carrier: true,
        ..NetlinkLink::default()
    });
    let mut snapshot = link(&[], grown);
    snapshot.driver_name = kind.to_owned();
    snapshot.qdisc_drops = Some(0);
    facts.snapshot.links.insert(name.to_owned(), snapshot);
}

/// A host whose counters grew by this, and whose interfaces `set` adds with their counters.
fn seen_with<T>(
    counters: &[(&str, u64)],
    drops: &[DropCount],
    asked: DoctorRequest,
    set: impl FnOnce(&mut Observation),
    look: impl FnOnce(&Observed) -> T,
) -> T {
    let zero: Vec<_> = counters.iter().map(|(name, _)| (*name, 0)).collect();
    let (mut before, mut after) = (host(&zero), later(host(counters)));
    set(&mut after);
    before.sockets.clone_from(&after.sockets);
    before.far_ends.clone_from(&after.far_ends);
    for (name, now) in &after.snapshot.links {
        let mut then = now.clone();
        then.counters = LinkCounters::default();
        before.snapshot.links.insert(name.clone(), then);
    }
    look(&Observed::new(
        &before,
        &after,
        Some((&[], drops, 1)),
        asked,
    ))
}

fn first(found: &[Finding]) -> (String, Confidence, bool) {
    let one = found.first().expect("something is found");
    (
        format!("{} {}", one.what, one.remedy),
        one.confidence,
        one.is_remark,
    )
}

#[test]
fn what_is_not_forwarded_is_not_said_to_be_for_a_strange_address() {
    use Confidence::{Certain, Likely, Possible};
    let cases: [ForwardingCase; 5] = [
        (
            &[("eth0", false), ("br0", true)],
            true,
            "net.ipv4.conf.eth0.forwarding=1",
            Likely,
        ),
        (
            &[("eth0", false), ("br0", false)],
            true,
            "net.ipv4.ip_forward=1",
            Likely,
        ),
        (
            &[("eth0", false), ("eth1", false)],
            false,
            "net.ipv4.ip_forward=1",
            Possible,
        ),
        (&[("eth0", false)], false, "does not have", Certain),
        (
            &[("eth0", true), ("eth1", true)],
            false,
            "does not have",
            Certain,
        ),
    ];
    for (forwarding, has_bridge, words, confidence) in cases {
        let found = seen_with(
            &[("Ip.InAddrErrors", LOST)],
            &[],
            asked(None),
            |facts| {
                let all = forwarding
                    .iter()
                    .map(|(name, on)| ((*name).to_owned(), *on));
                facts.forwarding = all.collect();
                if has_bridge {
                    add(facts, "br0", "bridge", LinkCounters::default());
                }
            },
            findings,
        );
        let (text, sure, _) = first(&found);
        assert!(text.contains(words) && sure == confidence, "{found:#?}");
        assert_eq!(
            text.contains("ip_forward"),
            words.contains("ip_forward"),
            "{text}"
        );
    }
}

#[test]
fn ports_of_a_source_nat_are_no_full_table() {
    for (entries, failed, is_full) in [(50, 5, false), (50, 1, true), (95, 5, true)] {
        let table = |times: u64| Observation {
            conntrack: Some(Conntrack {
                entries,
                entries_max: 100,
                dropped: 5 * times,
                insert_failed: failed * times,
                ..Conntrack::default()
            }),
            ..host(&[])
        };
        let (before, after) = (table(0), later(table(1)));
        for (port, spares) in [
            (None, "mpps doctor --port PORT gives"),
            (Some(53), "udp dport 53 notrack"),
        ] {
            let seen = Observed::new(&before, &after, None, asked(port));
            let found = findings(&seen);
            let (text, ..) = first(&found);
            assert_eq!(text.contains("source NAT"), !is_full, "{text}");
            assert_eq!(text.contains(spares), is_full, "{text}");
            assert_eq!(text.contains("first network namespace"), is_full, "{text}");
            let ledger = super::super::ledger(&seen).to_string();
            assert!(ledger.contains("connection tracking 5"), "{ledger}");
            assert!(!ledger.contains("firewall 5"), "{ledger}");
        }
    }
}

#[test]
fn the_kind_of_an_interface_explains_what_it_did_not_send() {
    let counted = |tx_dropped| LinkCounters {
        tx_dropped,
        ..LinkCounters::default()
    };
    let peer = |mtu, up| FarEnd {
        name: "peer0".to_owned(),
        mtu,
        up,
        ..FarEnd::default()
    };
    for (kind, end, words, none) in [
        ("igb", None, "transmit ring", "txqueuelen"),
        ("tun", None, "txqueuelen", "ethtool"),
        ("vxlan", None, "bridge fdb append", "ethtool"),
        ("veth", None, "ring of 256 packets", "ethtool"),
        ("veth", Some(peer(1400, true)), "mtu 1500", "ring"),
        ("veth", Some(peer(1500, false)), "dev peer0 up", "ring"),
        (
            "veth",
            Some(peer(9000, true)),
            "ring of 256 packets",
            "ethtool",
        ),
    ] {
        let (found, out) = seen_with(
            &[("Udp.OutDatagrams", 2 * LOST)],
            &[],
            asked(None),
            |facts| {
                add(facts, "eth0", kind, counted(LOST));
                facts.far_ends = end
                    .into_iter()
                    .map(|end| ("eth0".to_owned(), end))
                    .collect();
            },
            |seen| (findings(seen), WayOut::of(seen)),
        );
        assert_eq!(told(&found), is(&[("way_out", LOST)]), "{kind}");
        let (text, ..) = first(&found);
        assert!(
            text.contains(words) && !text.contains(none),
            "{kind}: {text}"
        );
        assert_eq!((out.lost(), out.left), (LOST, LOST));
    }
    // The kernel forgets the sender of packets that a tun refuses: they did not come.
    for (counter, port) in [(LOST, None), (2 * LOST, Some(53)), (0, None)] {
        let drops = [dropped("FULL_RING", LOST)];
        let (found, ledger) = seen_with(
            &[("Udp.OutDatagrams", 2 * LOST)],
            &drops,
            asked(port),
            |facts| add(facts, "eth0", "tun", counted(counter)),
            |seen| (findings(seen), ledger(seen)),
        );
        assert_eq!(found[0].count, LOST, "{found:#?}");
        assert!(found[0].what.contains("tun or tap"), "{found:#?}");
        assert_eq!((ledger.offered, ledger.lost()), (0, 0), "{ledger}");
    }
}

#[test]
fn a_queue_for_arp_that_was_full_is_no_silent_host() {
    let cases: [(&[&str], Option<&str>, &str); 4] = [
        (&["NEIGH_QUEUEFULL"], None, "unres_qlen_bytes"),
        (
            &["NEIGH_QUEUEFULL"],
            Some("10.0.0.7 on eth0"),
            "does not answer",
        ),
        (
            &["NEIGH_QUEUEFULL", "NEIGH_FAILED"],
            None,
            "does not answer",
        ),
        (
            &["NEIGH_FAILED"],
            Some("10.0.0.7 on br0"),
            "br0 has no port",
        ),
    ];
    for (reasons, silent, words) in cases {
        let drops = reasons.iter().enumerate().map(|(at, reason)| DropCount {
            sent: true,
            reason: at as u32,
            ..dropped(reason, LOST)
        });
        let drops: Vec<_> = drops.collect();
        let found = seen_with(
            &[],
            &drops,
            asked(None),
            |facts| {
                facts.unanswered = silent.into_iter().map(str::to_owned).collect();
                add(facts, "br0", "bridge", LinkCounters::default());
            },
            findings,
        );
        let (text, sure, _) = first(&found);
        assert!(text.contains(words), "{text}");
        assert_eq!(
            sure == Confidence::Certain,
            reasons.contains(&"NEIGH_FAILED"),
            "{text}"
        );
        assert_eq!(
            text.contains("does not answer"),
            words != "unres_qlen_bytes",
            "{text}"
        );
    }
}

#[test]
fn bridged_multicast_and_datagrams_around_others_are_no_loss() {
    let counters = [("Ip.InReceives", LOST), ("Ip.InDelivers", 0)];
    let drops = [dropped("NOT_SPECIFIED", LOST)];
    for (kind, multicast, lost) in [
        ("bridge", LOST, 0),
        ("bridge", 100, LOST - 100),
        ("igb", LOST, LOST),
    ] {
        let grown = LinkCounters {
            multicast,
            ..LinkCounters::default()
        };
        let (found, ledger) = seen_with(
            &counters,
            &drops,
            asked(None),
            |facts| add(facts, "eth0", kind, grown),
            |seen| (findings(seen), ledger(seen)),
        );
        let expected = if lost > 0 {
            is(&[("unrouted", lost)])
        } else {
            is(&[])
        };
        assert_eq!(told(&found), expected, "{kind}");
        let shown = (ledger.offered, ledger.lost(), ledger.unaccounted);
        assert_eq!(shown, (lost, lost, 0), "{ledger}");
    }
    let twice = 2 * LOST;
    let counters = ["Ip.InReceives", "Ip.InDelivers", "Udp.InDatagrams"].map(|name| (name, twice));
    let grown = LinkCounters {
        rx_packets: LOST,
        ..LinkCounters::default()
    };
    for (kind, read) in [("vxlan", LOST), ("wireguard", LOST), ("dummy", twice)] {
        let set = |facts: &mut Observation| add(facts, "eth0", kind, grown);
        let ledger = seen_with(&counters, &[], asked(None), set, ledger);
        let shown = (ledger.offered, ledger.delivered, ledger.unaccounted);
        assert_eq!(shown, (read, read, 0), "{kind}");
    }
}

#[test]
fn losses_that_are_of_no_port_or_process_in_question_are_shown() {
    let counters = |read| {
        [
            ("Ip.InReceives", LOST + read),
            ("Ip.InDelivers", LOST + read),
            ("Udp.InDatagrams", read),
            ("Udp.NoPorts", LOST),
        ]
    };
    for (read, kind, is_remark) in [(0, "vxlan", false), (0, "igb", false), (500, "igb", true)] {
        let set = |facts: &mut Observation| {
            facts.sockets.push(socket("0.0.0.0:53", 1, 0));
            add(facts, "eth0", kind, LinkCounters::default());
        };
        let found = seen_with(&counters(read), &[], asked(Some(53)), set, findings);
        assert_eq!(
            (&*found[0].check, found[0].count),
            ("not_asked", LOST),
            "{found:#?}"
        );
        let (text, _, remark) = first(&found);
        assert_eq!(
            (remark, text.contains("dstport")),
            (is_remark, kind == "vxlan"),
            "{text}"
        );
    }
    // A socket of another process takes a share of the flows.
    let full = [
        ("Ip.InReceives", 2 * LOST),
        ("Ip.InDelivers", 2 * LOST),
        ("Udp.InDatagrams", LOST),
        ("Udp.InErrors", LOST),
        ("Udp.RcvbufErrors", LOST),
    ];
    for (other, words) in [
        ("0.0.0.0:53", "SO_REUSEPORT"),
        ("0.0.0.0:54", "process 812"),
    ] {
        let zero = full.map(|(name, _)| (name, 0));
        let (mut before, mut after) = (host(&zero), later(host(&full)));
        before.sockets = vec![socket("0.0.0.0:53", 1, 0), socket(other, 2, 0)];
        after.sockets = vec![socket("0.0.0.0:53", 1, 0), socket(other, 2, LOST as u32)];
        has(&mut after, 1, owner(1, 1));
        let request = DoctorRequest {
            pid: Some(812),
            ..asked(None)
        };
        let found = findings(&Observed::new(&before, &after, None, request));
        let (text, _, is_remark) = first(&found);
        assert!(text.contains(words), "{text}");
        assert_eq!(is_remark, other.ends_with("54"), "{text}");
    }
}

#[test]
fn a_port_that_nat_translates_needs_no_socket() {
    let counters = ["Ip.InReceives", "Ip.InDelivers", "Udp.InDatagrams"].map(|name| (name, LOST));
    for (to, expected) in [(Some("10.0.0.2:5353"), 0), (None, 1)] {
        let set = |facts: &mut Observation| {
            let flow = |to: &str| TrackedFlow {
                from: "10.0.0.1:999".parse().expect("an address"),
                to: "10.0.0.2:53".parse().expect("an address"),
                answers: to.parse().expect("an address"),
                is_answered: true,
            };
            facts.packet_filter.flows = to.map(flow).into_iter().collect();
        };
        let (found, ledger) = seen_with(&counters, &[], asked(Some(53)), set, |seen| {
            (findings(seen), ledger(seen))
        });
        assert_eq!(found.len(), expected, "{found:#?}");
        let is_noted = ledger.notes.iter().any(|note| note.contains("5353"));
        assert_eq!(is_noted, to.is_some(), "{ledger}");
    }
}

#[test]
fn a_hop_limit_that_is_used_up_is_no_damage() {
    let look = |counters: &[(&str, u64)]| {
        let found = seen_with(counters, &[], asked(None), |_| (), findings);
        let first = found.first();
        first.map(|one| (one.check.clone(), one.is_remark, one.what.clone()))
    };
    let (bad, sent) = (("Ip.InHdrErrors", 40), ("Udp.OutDatagrams", 90));
    for (counters, expected, says) in [
        (
            &[bad, ("Icmp.OutTimeExcds", 2)][..],
            Some(("bad_header", false)),
            "routes lead in a circle",
        ),
        (&[bad], Some(("bad_header", false)), "damaged IP header"),
        // Datagrams that miss fragments send the same message.
        (
            &[bad, ("Icmp.OutTimeExcds", 2), ("Ip.ReasmFails", 2)],
            Some(("bad_header", false)),
            "damaged IP header",
        ),
        (
            &[("Ip.InHdrErrors", 3), ("Icmp.OutTimeExcds", 3)],
            Some(("bad_header", true)),
            "traceroute",
        ),
        (
            &[sent, ("Icmp.InTimeExcds", 50)],
            Some(("refused_sends", true)),
            "traceroute",
        ),
        (&[sent], None, ""),
    ] {
        let found = look(counters);
        let told = found
            .as_ref()
            .map(|(check, is_remark, _)| (&**check, *is_remark));
        assert_eq!(told, expected, "{found:?}");
        assert!(found.is_none_or(|(.., what)| what.contains(says)), "{says}");
    }
}

#[test]
fn routes_that_refuse_are_told_where_nothing_else_leaves() {
    for (sent, networks, expected) in [
        (0, &["blackhole 10.7.2.0/24"][..], true),
        (9, &["blackhole 10.7.2.0/24"], false),
        (0, &[], false),
    ] {
        let set = |facts: &mut Observation| {
            facts.refused_networks = networks.iter().map(|&one| one.to_owned()).collect();
        };
        let counters = [("Udp.OutDatagrams", sent)];
        let found = seen_with(&counters, &[], asked(None), set, findings);
        let is_told = found.iter().any(|one| {
            one.check == "way_out" && one.is_remark && one.what.contains("blackhole 10.7.2.0/24")
        });
        assert_eq!(is_told, expected, "{found:#?}");
    }
}

#[test]
fn a_refused_datagram_costs_a_connected_socket_the_next() {
    for (remotes, got, expected) in [
        (&[Some("10.0.0.7:8125")][..], 90, Some(false)),
        (&[Some("10.0.0.7:8125"), None], 90, Some(true)),
        // Of answers some clients that went refuse theirs.
        (&[None], 90, None),
        (&[None], 2, Some(true)),
        (&[Some("127.0.0.1:8125")], 90, None),
    ] {
        let counters = [
            ("Icmp.InDestUnreachs", 9),
            ("Udp.OutDatagrams", 90),
            ("Udp.InDatagrams", got),
        ];
        let set = |facts: &mut Observation| {
            let sockets = remotes.iter().enumerate().map(|(at, remote)| UdpEntry {
                remote: remote.map(|to| to.parse().expect("an address")),
                ..socket("10.0.0.2:999", at as u32 + 1, 0)
            });
            facts.sockets = sockets.collect();
        };
        let found = seen_with(&counters, &[], asked(None), set, findings);
        let found = found.iter().find(|one| one.check == "refused_sends");
        assert_eq!(found.map(|one| one.is_remark), expected, "{remotes:?}");
    }
}

#[test]
fn drops_at_an_interface_name_it() {
    let fault = |reason: &str, set: &dyn Fn(&mut Observation)| {
        let drops = [dropped(reason, LOST)];
        let set = |facts: &mut Observation| {
            add(facts, "br0", "bridge", LinkCounters::default());
            add(facts, "eth0", "veth", LinkCounters::default());
            add(facts, "eth1", "veth", LinkCounters::default());
            facts.links[1].controller = Some(1);
            facts.links[2].controller = Some(1);
            set(facts);
        };
        let found = seen_with(&[("Ip.InReceives", 0)], &drops, asked(None), set, findings);
        first(&found).0
    };
    let text = fault("NOT_SPECIFIED", &|facts| facts.links[1].mtu = 1400);
    assert!(
        text.contains("different MTUs") && text.contains("dev eth0 mtu 1500"),
        "{text}"
    );
    let text = fault("NOT_SPECIFIED", &|_| ());
    assert!(!text.contains("MTU"), "{text}");
    let text = fault("QDISC_DROP", &|facts| facts.links[1].carrier = false);
    assert!(text.contains("eth0 is up and has no carrier"), "{text}");
    let text = fault("QDISC_DROP", &|_| ());
    assert!(!text.contains("carrier"), "{text}");
    let text = fault("TC_INGRESS", &|facts| {
        add(facts, "ifb0", "ifb", LinkCounters::default())
    });
    assert!(!text.contains("ifb0"), "it is up: {text}");
    let text = fault("TC_INGRESS", &|facts| {
        add(facts, "ifb0", "ifb", LinkCounters::default());
        facts.links[3].up = false;
    });
    assert!(text.contains("ip link set dev ifb0 up"), "{text}");
}

/// The findings of a container whose only interface is of this kind; nothing comes by it.
fn in_a_container(kind: &str, set: impl Fn(&mut Observation)) -> Vec<Finding> {
    let set = |facts: &mut Observation| {
        add(facts, "eth0", kind, LinkCounters::default());
        facts.links[0].bound_namespace = Some(1);
        facts.sockets = vec![socket("0.0.0.0:53", 1, 0)];
        set(facts);
    };
    seen_with(&[("Ip.InReceives", 0)], &[], asked(Some(53)), set, findings)
}

#[test]
fn a_port_of_a_bridge_that_forwards_nothing_is_told_first() {
    let end = |held_back| FarEnd {
        namespace: "init".to_owned(),
        name: "veth7".to_owned(),
        bridge: Some("cni0".to_owned()),
        held_back,
        up: true,
        ..FarEnd::default()
    };
    let look = |held_back| {
        in_a_container("veth", |facts| {
            facts.far_ends = [("eth0".to_owned(), end(held_back))].into();
        })
    };
    let found = look(Some("learning"));
    assert_eq!(
        told(&found),
        is(&[("bridge_port", 0), ("nothing_arrives", 0)])
    );
    let (text, sure, _) = first(&found);
    assert!(
        text.contains("in namespace init") && text.contains("veth7"),
        "{text}"
    );
    assert_eq!((sure, found[0].is_remark), (Confidence::Likely, false));
    assert_eq!(told(&look(None)), is(&[("nothing_arrives", 0)]));
    // On the host spanning tree may block a card on purpose. A port without carrier is disabled.
    for (kind, carrier, expected) in [
        ("veth", true, Some(false)),
        ("", true, Some(true)),
        ("veth", false, None),
    ] {
        let set = |facts: &mut Observation| {
            add(facts, "br0", "bridge", LinkCounters::default());
            add(facts, "port", kind, LinkCounters::default());
            let port = &mut facts.links[1];
            (port.controller, port.held_back, port.carrier) = (Some(1), Some("blocking"), carrier);
        };
        let found = seen_with(&[("Ip.InReceives", 0)], &[], asked(None), set, findings);
        assert_eq!(
            found.first().map(|one| one.is_remark),
            expected,
            "{found:#?}"
        );
    }
}

#[test]
fn isolated_ports_of_a_bridge_pass_nothing_to_each_other() {
    let counters = |rx_packets, tx_packets| LinkCounters {
        rx_packets,
        tx_packets,
        ..LinkCounters::default()
    };
    let drops = [DropCount {
        place: "br_handle_frame_finish".to_owned(),
        ..dropped("NOT_SPECIFIED", LOST)
    }];
    let words = "the ports v1, v2 of the bridge eth0 are isolated";
    for isolated in [true, false] {
        let look = |drops: &[DropCount]| {
            let set = |facts: &mut Observation| {
                add(facts, "eth0", "bridge", LinkCounters::default());
                add(facts, "v1", "veth", counters(9, 0));
                add(facts, "v2", "veth", counters(0, 9));
                for port in &mut facts.links[1..] {
                    (port.controller, port.isolated) = (Some(1), isolated);
                }
            };
            let found = seen_with(
                &[("Ip.InReceives", 0)],
                drops,
                asked(Some(53)),
                set,
                findings,
            );
            first(&found)
        };
        let (text, sure, is_remark) = look(&[]);
        assert_eq!((sure, is_remark), (Confidence::Likely, !isolated));
        assert_eq!(text.contains(words), isolated, "{text}");
        assert_eq!(text.contains("left by others"), !isolated, "{text}");
        let (text, ..) = look(&drops);
        let before = text.find(words).zip(text.find("hairpin"));
        assert_eq!(before.is_some_and(|(a, b)| a < b), isolated, "{text}");
    }
}

#[test]
fn a_macvlan_never_hears_the_host_of_its_card() {
    for (kind, is_deaf) in [("macvlan", true), ("ipvlan", true), ("vlan", false)] {
        let text = first(&in_a_container(kind, |_| ())).0;
        assert_eq!(text.contains("never hears the host"), is_deaf, "{text}");
    }
    for (kind, mode, words, way) in [
        (
            "macvlan",
            "private",
            "another macvlan on the same",
            "type macvlan mode bridge",
        ),
        (
            "macvtap",
            "vepa",
            "unless the switch sends back",
            "type macvtap mode bridge",
        ),
        (
            "ipvlan",
            "private",
            "another ipvlan on the same",
            "type ipvlan bridge",
        ),
        ("macvlan", "source", "not in its list", "macaddr add"),
    ] {
        let found = in_a_container(kind, |facts| facts.links[0].apart = Some(mode));
        let (text, ..) = first(&found);
        assert!(text.contains(&format!("{kind} in mode {mode}")), "{text}");
        assert!(text.contains(words) && text.contains(way), "{text}");
    }
}

#[test]
fn a_joined_group_that_nothing_comes_to_may_lack_a_querier() {
    for (group, is_snooped) in [
        ("239.1.1.1", true),
        ("224.0.0.251", false),
        ("ff02::fb", false),
    ] {
        let text = first(&in_a_container("", |facts| {
            facts.groups = vec![crate::facts::JoinedGroup {
                interface: "eth1".to_owned(),
                group: group.parse().expect("an address"),
                only_from: Vec::new(),
            }];
        }));
        let says = |words: &str| text.0.contains(words) == is_snooped;
        assert!(
            says("joined here: 239.1.1.1 at eth1") && says("mcast_querier 1"),
            "{text:?}"
        );
    }
}
