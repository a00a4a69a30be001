//! Packets that are another's, and sockets that are bound where they cannot hear.

use super::scene::common;
use super::*;
use crate::facts::{Interface, JoinedGroup};
use mpps_os::netlink::sock_diag::{ListeningSocket, XdpEntry};

/// A host asked about port 53, whose one interface received `packets`. Its counters grew by this.
fn look(packets: u64, grown: &str, drops: &str) -> Scene {
    let mut scene = Scene::grown(grown).drops(drops).port(53);
    let now = link(&[], common(&format!("rx_packets {packets}")));
    scene.before.snapshot.links = [("eth0".to_owned(), link(&[], common("")))].into();
    scene.after.snapshot.links = [("eth0".to_owned(), now)].into();
    scene
}

impl Scene {
    fn with_socket(self, local: &str) -> Self {
        self.both(|facts| facts.sockets = vec![socket(local, 1, 0)])
    }
}

/// A program has the port of TCP.
fn listens(facts: &mut Observation) {
    facts.listeners = vec![ListeningSocket {
        local: ([0, 0, 0, 0], 53).into(),
        only_v6: false,
        inode: 4,
        cookie: 4,
        waiting: 0,
        waiting_max: 5,
        drops: 0,
    }];
}

const CAME: &str = "Ip.InReceives 900, Ip.InDelivers 0";
/// Said if nothing more is known of the packets.
const GUESS: &str = "no UDP datagram was among them";

#[test]
fn packets_of_others_are_not_said_to_be_no_datagrams() {
    let forwarded = look(900, "Ip.InReceives 900, Ip.ForwDatagrams 900", "");
    let words = "900 packets were forwarded";
    let here = "no datagram was for this namespace";
    forwarded.tells(&format!(
        "nothing_arrives remark: {words} | {here} | !{GUESS}"
    ));
    // Forwarded to where the port is served, that is the job of this host.
    let netns = "dnsmasq (pid 812) has port 53 in another network namespace";
    let mut elsewhere = forwarded.asking(DoctorRequest {
        elsewhere: Some(netns.to_owned()),
        ..asked(Some(53))
    });
    elsewhere.drops = None;
    elsewhere.tells(&format!(
        "nothing_arrives remark: {words} | {netns} | !{GUESS}"
    ));
    // A translation changes the port, and a later fragment has none.
    for (reason, words) in [
        ("IP_LOCALNET", "route_localnet"),
        ("NETFILTER_DROP", "requests of connections"),
    ] {
        let drops = format!("{reason} 900 other, NOT_SPECIFIED 9 other");
        let scene = look(900, CAME, &drops).both(|facts| {
            listens(facts);
            facts.conntrack = Some(Conntrack::default());
        });
        let all = format!("900 packets | {reason} | {words} | TCP port 53 has a listener");
        scene.tells(&format!("nothing_arrives: {all} | !{GUESS}"));
    }
    // Without a rule, its source is such an address.
    let found = look(900, CAME, "IP_LOCALNET 9 other").found();
    mentions(&found[0].what, "!redirects");
    let ours = look(900, CAME, "IP_LOCALNET 900");
    ours.tells("drop_reason: redirects them to 127.0.0.1 | route_localnet=1");
    let pieces = "Ip.InReceives 900, Ip.ReasmReqds 300, Ip.ReasmOKs 0";
    let pieces = look(900, pieces, "NETFILTER_DROP 600 other");
    let found = pieces
        .now(|after| after.reassembling = [("FRAG", 300)].into())
        .found();
    let words = "300 fragments | firewall of this host dropped 600 | frag-off";
    tells(&found, &format!("nothing_arrives: {words} | !{GUESS}"));
    let waiting = found.iter().position(|one| one.check == "fragments");
    let waiting = &found[waiting.expect("they wait")..];
    tells(waiting, "fragments likely");
    mentions(&waiting[0].what, "dropped 600");
}

#[test]
fn a_program_before_ip_has_its_packets() {
    let xdp = |facts: &mut Observation| {
        let (name, native_xdp) = ("eth0".to_owned(), Some(true));
        facts.links.push(NetlinkLink {
            name,
            native_xdp,
            index: 2,
            ..NetlinkLink::default()
        });
    };
    let program = "900 packets reached the interfaces and not IP; an XDP program at eth0";
    let scene = look(900, "Ip.InReceives 0", "").both(xdp);
    scene.tells(&format!("nothing_arrives remark: {program} | !{GUESS}"));
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
    let scene = look(900, STRAY, "").both(socket);
    scene.tells(&format!("nothing_arrives remark: {program} | !{GUESS}"));
    let none = look(900, "Ip.InReceives 900", "").both(socket);
    none.tells(&format!("nothing_arrives: {GUESS}"));
}

/// Neighbour discovery and a listener report.
const STRAY: &str = "Ip6.InReceives 3, Ip6.InDelivers 2, Icmp6.InMsgs 2, Ip6.InMcastPkts 3";

#[test]
fn neighbour_discovery_moves_no_station() {
    let words = "received any packet except neighbour discovery";
    look(3, STRAY, "").tells(&format!("nothing_arrives: {words} | !{GUESS}"));
    let words = "100 packets reached the interfaces and none reached IP";
    look(103, STRAY, "").tells(&format!("nothing_arrives: {words} | !{GUESS}"));
    // A query of IGMP is delivered, and no protocol counts it.
    let query = "Ip.InReceives 1, Ip.InDelivers 1, IpExt.InMcastPkts 1";
    look(1, query, "").tells(&format!("nothing_arrives: {GUESS}"));
    // Packets of VRRP to this host itself, and GRE: only a closed socket would be the same.
    for (before, after, is_seen, speaks) in [
        (&[7][..], &[7][..], false, true),
        (&[7], &[7, 8], false, true),
        (&[7, 8], &[7], false, false),
        (&[], &[], false, false),
        (&[7, 8], &[7], true, true),
        (&[], &[], true, true),
    ] {
        let sockets = |inodes: &[u32]| {
            let all = inodes.iter().map(|&inode| socket("0.0.0.0:53", inode, 0));
            all.collect()
        };
        let mut scene = Scene::grown("Ip.InReceives 4, Ip.InDelivers 4").port(53);
        scene.before.sockets = sockets(before);
        scene.after.sockets = sockets(after);
        scene.drops = is_seen.then(Vec::new);
        let is_told = scene
            .found()
            .iter()
            .any(|one| one.check == "nothing_arrives");
        assert_eq!(is_told, speaks, "{before:?} {after:?} {is_seen}");
    }
}

/// A policy of drop without a rule for ICMPv6.
#[test]
fn neighbour_discovery_may_be_filtered() {
    let words = "as neighbour discovery | nd-neighbor-solicit";
    let never = "!as neighbour discovery | !nd-neighbor-solicit";
    for (messages, parts) in [(0, words), (1, never)] {
        let counters = "Ip6.InReceives 9, Ip6.InMcastPkts 9";
        let counters = format!("{counters}, Ip6.InDelivers {messages}, Icmp6.InMsgs {messages}");
        let scene = look(9, &counters, "NETFILTER_DROP 4 other");
        scene.tells(&format!("nothing_arrives: {parts}"));
    }
}

/// ARP for an address of loopback, as of a load balancer's server.
#[test]
fn arp_may_be_left_without_an_answer() {
    for (mode, not) in [(0, "!"), (1, "")] {
        let scene = look(9, "", "").both(|facts| {
            facts.settings = [("net.ipv4.conf.all.arp_ignore", mode)].into();
        });
        let words = "net.ipv4.conf.all.arp_ignore (1)";
        scene.tells(&format!("nothing_arrives: {not}{words}"));
    }
}

/// The second of two interfaces in one network.
#[test]
fn arp_may_come_by_another_way_than_its_answer() {
    for (modes, expected) in [
        (
            &[("eth0", 1), ("eth1", 0)][..],
            "rp_filter (1) of eth0 drops | rp_filter=2",
        ),
        (&[("eth0", 2), ("eth1", 0)], "!rp_filter"),
        (&[("eth0", 1), ("lo", 1)], "!rp_filter"),
    ] {
        let scene = look(9, "", "").both(|facts| {
            let eth0 = facts.snapshot.links["eth0"].clone();
            facts.snapshot.links.insert("eth1".to_owned(), eth0);
            facts.reverse_path = modes
                .iter()
                .map(|&(name, mode)| (name.to_owned(), mode))
                .collect();
        });
        scene.tells(&format!("nothing_arrives: {expected}"));
    }
}

#[test]
fn a_port_of_tcp_is_told() {
    let counters = "Ip.InReceives 9, Ip.InDelivers 9, Tcp.InSegs 9";
    let tcp = look(9, counters, "");
    let words = "TCP port 53 has a listener at 0.0.0.0:53 | mpps doctor without --port";
    tcp.both(listens)
        .tells(&format!("nothing_arrives remark: {words} | {GUESS}"));
    // At loopback, other hosts are refused.
    let (refused, not) = (": they are refused", " remark: !they are refused");
    for (address, opened, expected) in [
        ([127, 0, 0, 1], 0, refused),
        ([127, 0, 0, 1], 1, not),
        ([0; 4], 0, not),
    ] {
        let counters = format!("{counters}, Tcp.OutRsts 9, Tcp.PassiveOpens {opened}");
        let scene = look(9, &counters, "").both(|facts| {
            listens(facts);
            facts.listeners[0].local = (address, 53).into();
        });
        scene.tells(&format!("nothing_arrives{expected}"));
    }
    let idle = look(9, "Ip.InReceives 900", "").both(listens);
    idle.tells("nothing_arrives");
}

#[test]
fn a_listener_of_the_other_version_of_ip_is_told() {
    let refused = "Tcp.InSegs 9, Tcp.OutRsts 9, Tcp.PassiveOpens 0";
    let (v4, v6) = (": takes no IPv4", ": takes no IPv6");
    for (at, only_v6, counters, expected) in [
        ("[::]:53", true, "Ip.InReceives 9, Ip6.InReceives 1", v4),
        (
            "[::]:53",
            false,
            "Ip.InReceives 9, Ip6.InReceives 1",
            " remark: !takes no",
        ),
        ("0.0.0.0:53", false, "Ip.InReceives 1, Ip6.InReceives 9", v6),
        (
            "0.0.0.0:53",
            false,
            "Ip.InReceives 9, Ip6.InReceives 1",
            " remark: !takes no",
        ),
    ] {
        let scene = look(9, &format!("{counters}, {refused}"), "").both(|facts| {
            listens(facts);
            (facts.listeners[0].local, facts.listeners[0].only_v6) =
                (at.parse().expect("an address"), only_v6);
        });
        scene.tells(&format!("nothing_arrives{expected}"));
    }
}

/// A path MTU black hole of a server of TCP.
#[test]
fn dropped_errors_of_icmp_are_no_requests_of_connections() {
    let counters = "Ip.InReceives 9, Ip.InDelivers 9, Tcp.InSegs 9";
    let requests = "requests of connections (SYN)";
    for (drops, expected) in [
        (
            "NETFILTER_DROP+icmp 9 other",
            format!(" remark: {GUESS} | !{requests}"),
        ),
        (
            "NETFILTER_DROP+icmp 3 other, NETFILTER_DROP 6 other",
            format!(": 6 packets | {requests}"),
        ),
    ] {
        let mut found = look(9, counters, drops).both(listens).found();
        found.retain(|one| one.check == "nothing_arrives");
        tells(&found, &format!("nothing_arrives{expected}"));
    }
}

#[test]
fn a_port_without_a_socket_is_told_beside_the_losses_of_others() {
    let mut scene = look(1000, "Udp.InDatagrams 10, Udp.RcvbufErrors 990", "");
    let at = |drops| vec![socket("0.0.0.0:5353", 7, drops), socket("0.0.0.0:68", 8, 0)];
    (scene.before.sockets, scene.after.sockets) = (at(0), at(990));
    let found = scene.found();
    finds(&found, "port_owner 0, port_owner 990");
    tells(
        &found,
        "port_owner: no socket of this namespace has UDP port 53",
    );
    let words = "0.0.0.0:5353 most | mpps doctor --port 5353";
    tells(&found[1..], &format!("port_owner remark: {words}"));
    // Its own losses are no others', and it has a socket.
    let own = scene.both(|facts| facts.sockets[0].local.set_port(53));
    own.finds("socket_buffer 990");
}

#[test]
fn two_programs_at_one_port_are_named() {
    let words = "2 programs have UDP 0.0.0.0:53: unbound1 (pid 1), unbound1 (pid 2)";
    let told = format!("port_owner remark: {words}");
    // One server has one group.
    for (groups, expected) in [([1, 2], &*told), ([1, 1], "")] {
        let scene = look(10, "Udp.InDatagrams 10", "").both(|facts| {
            for (pid, group) in (1..).zip(groups) {
                facts.sockets.push(socket("0.0.0.0:53", pid, 0));
                let process = Process {
                    pid,
                    group,
                    ..owner(1, 0)
                };
                has(facts, pid, process);
            }
        });
        scene.tells(expected);
    }
}

#[test]
fn answers_that_clients_refuse_are_told_on_a_host_of_several_addresses() {
    let sent = "Udp.InDatagrams 100, Udp.OutDatagrams 100";
    let at = |scene: Scene, local: &'static str, count: u8| {
        scene.with_socket(local).both(|facts| {
            facts.addresses = (1..=count).map(|last| [10, 9, 0, last].into()).collect();
        })
    };
    let refused = look(100, &format!("{sent}, Icmp.InDestUnreachs 6"), "");
    let told = "port_owner remark: 10.9.0.1, 10.9.0.2 | IP_PKTINFO";
    at(refused.clone(), "0.0.0.0:53", 2).tells(told);
    // A server needs no port to be asked for; a client's socket is none.
    for (local, expected) in [("0.0.0.0:53", told), ("0.0.0.0:40000", "")] {
        let mut scene = at(refused.clone().port(None), local, 2);
        scene.drops = None;
        let scene = scene.both(|facts| facts.client_ports = Some(32_768..=60_999));
        scene.tells(expected);
    }
    at(refused.clone(), "10.9.0.1:53", 2).finds("");
    at(refused, "0.0.0.0:53", 1).finds("");
    at(look(100, sent, ""), "0.0.0.0:53", 2).finds("");
}

#[test]
fn a_vrf_is_named_where_its_packets_find_no_socket() {
    let words = "the VRF blue | udp_l3mdev_accept=1";
    for (accept, local, expected) in [
        (0, "0.0.0.0:53", format!("no_listener likely: {words}")),
        (0, "10.0.0.1:53", format!("listener_elsewhere: {words}")),
        (
            1,
            "0.0.0.0:53",
            "no_listener possible: the cause is not known | sk_lookup".to_owned(),
        ),
    ] {
        let scene = look(40, "Udp.NoPorts 40", "NO_SOCKET 40").with_socket(local);
        let scene = scene.both(|facts| {
            let driver = "vrf".to_owned();
            let card = Interface {
                driver,
                ..Interface::default()
            };
            facts.cards.insert("blue".to_owned(), card);
            facts.settings.insert("net.ipv4.udp_l3mdev_accept", accept);
        });
        scene.tells(&expected);
    }
}

#[test]
fn a_program_that_chooses_sockets_is_named() {
    let scene = look(40, "Udp.NoPorts 40", "NO_SOCKET 40").with_socket("0.0.0.0:53");
    let scene = scene.now(|after| after.lookup_programs = vec!["tubular (id 7)".to_owned()]);
    scene.tells("no_listener likely: (sk_lookup): tubular (id 7) | bpftool | !not known");
}

#[test]
fn joined_groups_are_told_with_interface_and_source() {
    let joined = "joined here: 239.1.1.1 at eth1 (only from 10.9.0.77), ff02::fb at eth1";
    let look = |packets, grown: &str, drops: &str| {
        look(packets, grown, drops)
            .with_socket("0.0.0.0:53")
            .both(|facts| {
                let group = |group: &str, only_from: &[&str]| JoinedGroup {
                    interface: "eth1".to_owned(),
                    group: group.parse().expect("a group"),
                    only_from: only_from
                        .iter()
                        .map(|one| one.parse().expect("a source"))
                        .collect(),
                };
                facts.groups = vec![group("239.1.1.1", &["10.9.0.77"]), group("ff02::fb", &[])];
            })
    };
    let drops = "NOT_SPECIFIED 900";
    look(900, CAME, drops).tells(&format!("unrouted: {joined}"));
    // Listener reports of IPv6 explain none of them.
    let both = format!("{CAME}, Ip6.InReceives 9, Ip6.InDelivers 0, Ip6.InMcastPkts 9");
    let noisy = look(909, &both, "NOT_SPECIFIED 900, NOT_SPECIFIED 9 other");
    noisy.finds("unrouted 900");
    let v6 = "Ip6.InReceives 900, Ip6.InDelivers 0, Ip6.InMcastPkts 900";
    let words = "for their source | join at the interface that they come by";
    look(900, v6, drops).tells(&format!("unrouted: {words} | {joined}"));
    let ignored = look(900, "Udp.IgnoredMulti 900", drops);
    ignored.tells(&format!("no_listener: bind it to 0.0.0.0 | {joined}"));
}

#[test]
fn what_comes_back_with_an_own_address_was_sent_here() {
    for (sent, words) in [
        (100, "hairpin | !two hosts"),
        (10, "two hosts have one address"),
    ] {
        let grown = format!("Ip.InReceives 90, Udp.OutDatagrams {sent}");
        look(90, &grown, "IP_LOCAL_SOURCE 90").tells(&format!("drop_reason: {words}"));
    }
}

#[test]
fn what_a_tunnel_took_and_dropped_was_not_read() {
    for (came, remark) in [(90, ""), (900, " remark")] {
        let grown = format!("Ip.InReceives {came}, Ip.InDelivers {came}, Udp.InDatagrams {came}");
        let scene = look(came, &grown, "VXLAN_VNI_NOT_FOUND 90 other").with_socket("0.0.0.0:53");
        scene.tells(&format!(
            "drop_reason 90{remark}: for port 53 may be in them"
        ));
    }
}

#[test]
fn an_address_that_another_host_has_too_gets_nothing() {
    let (unused, strange) = (
        "fd00::5 | dadfailed",
        "does not have | !does not use: fd00::5",
    );
    for (duplicates, parts) in [
        (vec!["fd00::5 at eth1".to_owned()], unused),
        (vec![], "!fd00::5 | !dadfailed"),
    ] {
        let with =
            |scene: Scene| scene.both(|facts| facts.unused_addresses.clone_from(&duplicates));
        let silent = with(look(0, "Ip.InReceives 0", "").with_socket("[::]:53"));
        silent.tells(&format!("nothing_arrives: no interface received | {parts}"));
        // A wrong Ethernet address leads them here all the same.
        with(look(90, "Ip.InAddrErrors 90", "")).tells(&format!("address certain: {strange}"));
        with(look(90, "Ip6.InAddrErrors 90", "")).tells(&match duplicates.is_empty() {
            true => format!("address certain: {strange}"),
            false => "address likely: does not use: fd00::5 | !does not have".to_owned(),
        });
    }
}

#[test]
fn a_socket_of_ipv6_only_is_told_where_ipv4_comes() {
    for (only_v6, local, parts) in [
        (true, "[::]:53", "IPV6_V6ONLY"),
        (false, "10.0.0.1:53", "!IPV6_V6ONLY"),
    ] {
        let scene = look(90, "Udp.NoPorts 90", "NO_SOCKET 90").with_socket(local);
        let scene = scene.both(|facts| facts.sockets[0].only_v6 = only_v6);
        scene.tells(&format!("listener_elsewhere: {local} | {parts}"));
    }
}
