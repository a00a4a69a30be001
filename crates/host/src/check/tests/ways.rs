//! The way of packets through interfaces: forwarding, bridges, tunnels, and what their kinds and states explain.

use super::counts::LOST;
use super::scene::common;
use super::*;
use crate::facts::TrackedFlow;
use crate::facts::far_end::FarEnd;

/// An interface of this kind, up, whose counters grew by this.
fn add(facts: &mut Observation, name: &str, kind: &str, grown: &str) {
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
    let mut snapshot = link(&[], common(grown));
    snapshot.driver_name = kind.to_owned();
    snapshot.qdisc_drops = Some(0);
    facts.snapshot.links.insert(name.to_owned(), snapshot);
}

/// A host whose counters grew by this, and whose interfaces `set` adds with their counters. Its drops are seen.
fn host_with(counters: &str, set: impl FnOnce(&mut Observation)) -> Scene {
    let mut scene = Scene::grown(counters).drops("").now(set);
    let (before, after) = (&mut scene.before, &scene.after);
    before.sockets.clone_from(&after.sockets);
    before.far_ends.clone_from(&after.far_ends);
    for (name, now) in &after.snapshot.links {
        let mut then = now.clone();
        then.counters = LinkCounters::default();
        before.snapshot.links.insert(name.clone(), then);
    }
    scene
}

#[test]
fn what_is_not_forwarded_is_not_said_to_be_for_a_strange_address() {
    let one = "address likely: net.ipv4.conf.eth0.forwarding=1 | !ip_forward";
    let none = "address certain: does not have | !ip_forward";
    for (forwarding, has_bridge, expected) in [
        (&[("eth0", false), ("br0", true)][..], true, one),
        (
            &[("eth0", false), ("br0", false)],
            true,
            "address likely: net.ipv4.ip_forward=1",
        ),
        (
            &[("eth0", false), ("eth1", false)],
            false,
            "address possible: net.ipv4.ip_forward=1",
        ),
        (&[("eth0", false)], false, none),
        (&[("eth0", true), ("eth1", true)], false, none),
    ] {
        let scene = host_with("Ip.InAddrErrors 300", |facts| {
            let all = forwarding.iter();
            facts.forwarding = all.map(|(name, on)| ((*name).to_owned(), *on)).collect();
            if has_bridge {
                add(facts, "br0", "bridge", "");
            }
        });
        scene.tells(expected);
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
        let scene = Scene::of((table(0), later(table(1))));
        for (port, spares) in [
            (None, "mpps doctor --port PORT gives"),
            (Some(53), "udp dport 53 notrack"),
        ] {
            let scene = scene.clone().port(port);
            let parts = match is_full {
                true => format!("{spares} | first network namespace | !source NAT"),
                false => format!("source NAT | !{spares} | !first network namespace"),
            };
            scene.tells(&format!("conntrack: {parts}"));
            let ledger = scene.ledger().to_string();
            mentions(&ledger, "connection tracking 5 | !firewall 5");
        }
    }
}

#[test]
fn the_kind_of_an_interface_explains_what_it_did_not_send() {
    let peer = |mtu, up| FarEnd {
        name: "peer0".to_owned(),
        mtu,
        up,
        ..FarEnd::default()
    };
    for (kind, end, parts) in [
        ("igb", None, "transmit ring | !txqueuelen"),
        ("tun", None, "txqueuelen | !ethtool"),
        ("vxlan", None, "bridge fdb append | !ethtool"),
        ("veth", None, "ring of 256 packets | !ethtool"),
        ("veth", Some(peer(1400, true)), "mtu 1500 | !ring"),
        ("veth", Some(peer(1500, false)), "dev peer0 up | !ring"),
        (
            "veth",
            Some(peer(9000, true)),
            "ring of 256 packets | !ethtool",
        ),
    ] {
        let scene = host_with("Udp.OutDatagrams 600", |facts| {
            add(facts, "eth0", kind, "tx_dropped 300");
            facts.far_ends = end
                .into_iter()
                .map(|end| ("eth0".to_owned(), end))
                .collect();
        });
        scene.tells(&format!("way_out 300 alone: {parts}"));
        let out = scene.see(WayOut::of);
        assert_eq!((out.lost(), out.left), (LOST, LOST));
    }
    // The kernel forgets the sender of packets that a tun refuses: they did not come.
    for (counter, port) in [(LOST, None), (2 * LOST, Some(53)), (0, None)] {
        let scene = host_with("Udp.OutDatagrams 600", |facts| {
            add(facts, "eth0", "tun", &format!("tx_dropped {counter}"));
        });
        let scene = scene.drops("FULL_RING 300").port(port);
        let (found, ledger) = (scene.found(), scene.ledger());
        assert_eq!((ledger.offered, ledger.lost()), (0, 0), "{ledger}");
        assert_eq!(found[0].count, LOST, "{found:#?}");
        mentions(&found[0].what, "tun or tap");
    }
}

#[test]
fn a_queue_for_arp_that_was_full_is_no_silent_host() {
    for (drops, silent, expected) in [
        (
            "NEIGH_QUEUEFULL 300 sent",
            "",
            "unres_qlen_bytes | !does not answer",
        ),
        (
            "NEIGH_QUEUEFULL 300 sent",
            "10.0.0.7 on eth0",
            "does not answer",
        ),
        (
            "NEIGH_QUEUEFULL 300 sent, NEIGH_FAILED 300 sent",
            "",
            "does not answer",
        ),
        (
            "NEIGH_FAILED 300 sent",
            "10.0.0.7 on br0",
            "does not answer | br0 has no port",
        ),
    ] {
        let scene = host_with("", |facts| {
            facts.unanswered = vec![silent.to_owned()];
            facts.unanswered.retain(|one| !one.is_empty());
            add(facts, "br0", "bridge", "");
        });
        let found = scene.drops(drops).found();
        tells(&found, &format!("way_out: {expected}"));
        let is_certain = found[0].confidence == Confidence::Certain;
        assert_eq!(is_certain, drops.contains("NEIGH_FAILED"), "{found:#?}");
    }
}

#[test]
fn bridged_multicast_and_datagrams_around_others_are_no_loss() {
    for (kind, multicast, lost) in [
        ("bridge", LOST, 0),
        ("bridge", 100, LOST - 100),
        ("igb", LOST, LOST),
    ] {
        let scene = host_with("Ip.InReceives 300, Ip.InDelivers 0", |facts| {
            add(facts, "eth0", kind, &format!("multicast {multicast}"));
        });
        let expected = match lost {
            0 => String::new(),
            _ => format!("unrouted {lost}"),
        };
        let lost = lost as i64;
        scene
            .drops("NOT_SPECIFIED 300")
            .finds(&expected)
            .sums([lost, lost, 0]);
    }
    let counters = "Ip.InReceives 600, Ip.InDelivers 600, Udp.InDatagrams 600";
    for (kind, read) in [("vxlan", 300), ("wireguard", 300), ("dummy", 600)] {
        let scene = host_with(counters, |facts| add(facts, "eth0", kind, "rx_packets 300"));
        let ledger = scene.ledger();
        let shown = (ledger.offered, ledger.delivered, ledger.unaccounted);
        assert_eq!(shown, (read, read, 0), "{kind}");
    }
}

#[test]
fn losses_that_are_of_no_port_or_process_in_question_are_shown() {
    for (read, kind, expected) in [
        (0, "vxlan", "not_asked 300: dstport"),
        (0, "igb", "not_asked 300: !dstport"),
        (500, "igb", "not_asked 300 remark: !dstport"),
    ] {
        let came = LOST + read;
        let counters = format!(
            "Ip.InReceives {came}, Ip.InDelivers {came}, Udp.InDatagrams {read}, Udp.NoPorts 300"
        );
        let scene = host_with(&counters, |facts| {
            facts.sockets.push(socket("0.0.0.0:53", 1, 0));
            add(facts, "eth0", kind, "");
        });
        scene.port(53).tells(expected);
    }
    // A socket of another process takes a share of the flows.
    let full = "Ip.InReceives 600, Ip.InDelivers 600, Udp.InDatagrams 300, Udp.InErrors 300, Udp.RcvbufErrors 300";
    for (other, expected) in [
        ("0.0.0.0:53", "not_asked: SO_REUSEPORT"),
        ("0.0.0.0:54", "not_asked remark: process 812"),
    ] {
        let mut scene = Scene::grown(full).asking(DoctorRequest {
            pid: Some(812),
            ..asked(None)
        });
        scene.before.sockets = vec![socket("0.0.0.0:53", 1, 0), socket(other, 2, 0)];
        scene.after.sockets = vec![socket("0.0.0.0:53", 1, 0), socket(other, 2, LOST as u32)];
        has(&mut scene.after, 1, owner(1, 1));
        scene.tells(expected);
    }
}

#[test]
fn a_port_that_nat_translates_needs_no_socket() {
    for (to, expected, note) in [(Some("10.0.0.2:5353"), 0, "5353"), (None, 1, "!5353")] {
        let counters = "Ip.InReceives 300, Ip.InDelivers 300, Udp.InDatagrams 300";
        let scene = host_with(counters, |facts| {
            let flow = |to: &str| TrackedFlow {
                from: "10.0.0.1:999".parse().expect("an address"),
                to: "10.0.0.2:53".parse().expect("an address"),
                answers: to.parse().expect("an address"),
                is_answered: true,
            };
            facts.packet_filter.flows = to.map(flow).into_iter().collect();
        });
        let scene = scene.port(53);
        assert_eq!(scene.found().len(), expected);
        mentions(&scene.ledger().notes.join("\n"), note);
    }
}

#[test]
fn a_hop_limit_that_is_used_up_is_no_damage() {
    for (counters, expected) in [
        (
            "Ip.InHdrErrors 40, Icmp.OutTimeExcds 2",
            "bad_header: routes lead in a circle",
        ),
        ("Ip.InHdrErrors 40", "bad_header: damaged IP header"),
        // Datagrams that miss fragments send the same message.
        (
            "Ip.InHdrErrors 40, Icmp.OutTimeExcds 2, Ip.ReasmFails 2",
            "bad_header: damaged IP header",
        ),
        (
            "Ip.InHdrErrors 3, Icmp.OutTimeExcds 3",
            "bad_header remark: traceroute",
        ),
        (
            "Udp.OutDatagrams 90, Icmp.InTimeExcds 50",
            "refused_sends remark: traceroute",
        ),
        ("Udp.OutDatagrams 90", ""),
    ] {
        Scene::grown(counters).drops("").tells(expected);
    }
}

#[test]
fn routes_that_refuse_are_told_where_nothing_else_leaves() {
    let network = "blackhole 10.7.2.0/24";
    for (sent, networks, is_told) in [
        (0, &[network][..], true),
        (9, &[network], false),
        (0, &[], false),
    ] {
        let scene = host_with(&format!("Udp.OutDatagrams {sent}"), |facts| {
            facts.refused_networks = networks.iter().map(|&one| one.to_owned()).collect();
        });
        let is_it =
            |one: &Finding| one.check == "way_out" && one.is_remark && one.what.contains(network);
        assert_eq!(scene.found().iter().any(is_it), is_told);
    }
}

#[test]
fn a_mark_that_no_route_takes_may_be_the_firewalls_drop() {
    for (has_policies, confidence) in [(false, Confidence::Certain), (true, Confidence::Likely)] {
        let scene = host_with("Ip.OutDiscards 90", |facts| {
            facts.has_policies = has_policies
        });
        let found = scene.drops("NETFILTER_DROP 90 sent").found();
        let is_named = found[0].what.contains("a policy route refuses that mark");
        assert_eq!(
            (is_named, found[0].confidence),
            (has_policies, confidence),
            "{}",
            found[0].what
        );
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
        let counters = format!("Icmp.InDestUnreachs 9, Udp.OutDatagrams 90, Udp.InDatagrams {got}");
        let scene = host_with(&counters, |facts| {
            let sockets = remotes.iter().enumerate().map(|(at, remote)| UdpEntry {
                remote: remote.map(|to| to.parse().expect("an address")),
                ..socket("10.0.0.2:999", at as u32 + 1, 0)
            });
            facts.sockets = sockets.collect();
        });
        let found = scene.found();
        let found = found.iter().find(|one| one.check == "refused_sends");
        assert_eq!(found.map(|one| one.is_remark), expected, "{remotes:?}");
    }
}

#[test]
fn drops_at_an_interface_name_it() {
    let fault = |drops: &str, parts: &str, set: &dyn Fn(&mut Observation)| {
        let scene = host_with("Ip.InReceives 0", |facts| {
            add(facts, "br0", "bridge", "");
            for name in ["eth0", "eth1"] {
                add(facts, name, "veth", "");
                facts.links.last_mut().expect("one").controller = Some(1);
            }
            set(facts);
        });
        mentions(&scene.drops(drops).text(), parts);
    };
    let parts = "different MTUs | dev eth0 mtu 1500";
    fault("NOT_SPECIFIED 300", parts, &|facts| {
        facts.links[1].mtu = 1400
    });
    fault("NOT_SPECIFIED 300", "!MTU", &|_| ());
    let parts = "eth0 is up and has no carrier";
    fault("QDISC_DROP 300", parts, &|facts| {
        facts.links[1].carrier = false
    });
    fault("QDISC_DROP 300", "!carrier", &|_| ());
    // It is up.
    let ifb = |facts: &mut Observation| add(facts, "ifb0", "ifb", "");
    fault("TC_INGRESS 300", "!ifb0", &ifb);
    fault("TC_INGRESS 300", "ip link set dev ifb0 up", &|facts| {
        ifb(facts);
        facts.links[3].up = false;
    });
}

/// Of an ifb it is what tc redirects there, as what comes in.
#[test]
fn a_queue_of_an_ifb_drops_what_comes() {
    for (kind, parts) in [
        ("ifb", "redirects to it | ifb0 | !this host sends"),
        ("veth", "this host sends | !redirects"),
    ] {
        let mut scene = host_with("", |facts| add(facts, "ifb0", kind, "")).drops("QDISC_DROP 300");
        for (facts, drops) in [(&mut scene.before, 0), (&mut scene.after, 300)] {
            let link = facts.snapshot.links.get_mut("ifb0").expect("it is there");
            link.qdisc_drops = Some(drops);
        }
        scene.tells(&format!("way_out certain: {parts}"));
    }
}

#[test]
fn a_router_takes_no_advertisements() {
    for (deaf, counters, not) in [
        (&["eth0"][..], "Ip6.OutNoRoutes 300", ""),
        (&["eth1"], "Ip6.OutNoRoutes 300", "!"),
        (&[], "Ip6.OutNoRoutes 300", "!"),
        (&["eth0"], "Ip.OutNoRoutes 300", "!"),
    ] {
        for (more, check) in [
            ("", "way_out"),
            (", TcpExt.ListenDrops 300", "listen_queue"),
        ] {
            let mut scene = host_with(&format!("{counters}{more}"), |facts| {
                add(facts, "eth0", "veth", "");
                facts.deaf_to_routers = deaf.iter().map(|&one| one.to_owned()).collect();
            });
            let link = scene
                .after
                .snapshot
                .links
                .get_mut("eth0")
                .expect("it is there");
            link.counters = common("rx_packets 9");
            scene.tells(&format!(
                "{check} likely: {not}accept_ra is 1 | {not}eth0.accept_ra=2"
            ));
        }
    }
}

/// A container whose only interface is of this kind; nothing comes by it.
fn in_a_container(kind: &str, set: impl Fn(&mut Observation)) -> Scene {
    let scene = host_with("Ip.InReceives 0", |facts| {
        add(facts, "eth0", kind, "");
        facts.links[0].bound_namespace = Some(1);
        facts.sockets = vec![socket("0.0.0.0:53", 1, 0)];
        set(facts);
    });
    scene.port(53)
}

#[test]
fn a_port_of_a_bridge_that_forwards_nothing_is_told_first() {
    let look = |held_back| {
        in_a_container("veth", |facts| {
            let end = FarEnd {
                namespace: "init".to_owned(),
                name: "veth7".to_owned(),
                bridge: Some("cni0".to_owned()),
                held_back,
                up: true,
                ..FarEnd::default()
            };
            facts.far_ends = [("eth0".to_owned(), end)].into();
        })
    };
    let held = look(Some("learning"));
    held.finds("bridge_port 0, nothing_arrives 0");
    held.tells("bridge_port likely: in namespace init | veth7");
    look(None).finds("nothing_arrives 0");
    // On the host spanning tree may block a card on purpose. A port without carrier is disabled.
    for (kind, carrier, expected) in [
        ("veth", true, "bridge_port"),
        ("", true, "bridge_port remark"),
        ("veth", false, ""),
    ] {
        let scene = host_with("Ip.InReceives 0", |facts| {
            add(facts, "br0", "bridge", "");
            add(facts, "port", kind, "");
            let port = &mut facts.links[1];
            (port.controller, port.held_back, port.carrier) = (Some(1), Some("blocking"), carrier);
        });
        scene.tells(expected);
    }
}

#[test]
fn isolated_ports_of_a_bridge_pass_nothing_to_each_other() {
    let words = "the ports v1, v2 of the bridge eth0 are isolated";
    for isolated in [true, false] {
        let scene = host_with("Ip.InReceives 0", |facts| {
            add(facts, "eth0", "bridge", "");
            add(facts, "v1", "veth", "rx_packets 9");
            add(facts, "v2", "veth", "tx_packets 9");
            for port in &mut facts.links[1..] {
                (port.controller, port.isolated) = (Some(1), isolated);
            }
        });
        let scene = scene.port(53);
        scene.tells(&match isolated {
            true => format!("nothing_arrives likely: {words} | !left by others"),
            false => format!("nothing_arrives remark likely: left by others | !{words}"),
        });
        let text = scene
            .drops("NOT_SPECIFIED@br_handle_frame_finish 300")
            .text();
        let before = text.find(words).zip(text.find("hairpin"));
        assert_eq!(before.is_some_and(|(a, b)| a < b), isolated, "{text}");
    }
}

#[test]
fn a_macvlan_never_hears_the_host_of_its_card() {
    let words = "never hears the host";
    mentions(&in_a_container("macvlan", |_| ()).text(), words);
    mentions(&in_a_container("ipvlan", |_| ()).text(), words);
    mentions(&in_a_container("vlan", |_| ()).text(), &format!("!{words}"));
    for (kind, mode, parts) in [
        (
            "macvlan",
            "private",
            "another macvlan on the same | type macvlan mode bridge",
        ),
        (
            "macvtap",
            "vepa",
            "unless the switch sends back | type macvtap mode bridge",
        ),
        (
            "ipvlan",
            "private",
            "another ipvlan on the same | type ipvlan bridge",
        ),
        ("macvlan", "source", "not in its list | macaddr add"),
    ] {
        let scene = in_a_container(kind, |facts| facts.links[0].apart = Some(mode));
        mentions(&scene.text(), &format!("{kind} in mode {mode} | {parts}"));
    }
}

#[test]
fn a_joined_group_that_nothing_comes_to_may_lack_a_querier() {
    for (group, parts) in [
        (
            "239.1.1.1",
            "joined here: 239.1.1.1 at eth1 | mcast_querier 1",
        ),
        ("224.0.0.251", "!joined here | !mcast_querier 1"),
        ("ff02::fb", "!joined here | !mcast_querier 1"),
    ] {
        let scene = in_a_container("", |facts| {
            facts.groups = vec![crate::facts::JoinedGroup {
                interface: "eth1".to_owned(),
                group: group.parse().expect("an address"),
                only_from: Vec::new(),
            }];
        });
        mentions(&scene.text(), parts);
    }
}
