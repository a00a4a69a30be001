//! Packets that meet rules, tracked flows and queues of the packet filter.

use super::scene::{common, mentions};
use super::*;
use crate::facts::far_end::FarEnd;
use crate::facts::{FilterQueue, PacketFilter, TrackedFlow};
use mpps_os::netlink::netfilter_rule::{NetfilterAction, NetfilterRule};
use std::net::Ipv4Addr;

fn rule(protocol: u8) -> NetfilterRule {
    NetfilterRule {
        protocol: Some(protocol),
        ports: Some(53..=53),
        action: NetfilterAction::Translate {
            address: Some(Ipv4Addr::new(172, 17, 0, 2).into()),
            port: Some(5353),
        },
    }
}

fn queues(numbers: std::ops::RangeInclusive<u16>, bypasses: bool) -> NetfilterRule {
    NetfilterRule {
        action: NetfilterAction::Queue { numbers, bypasses },
        ..rule(17)
    }
}

/// A flow from the first address to the second, whose answers come from the third.
fn flow(from: &str, to: &str, answers: &str) -> TrackedFlow {
    let address = |text: &str| text.parse().expect("an address");
    TrackedFlow {
        from: address(from),
        to: address(to),
        answers: address(answers),
        is_answered: false,
    }
}

const CLIENT: &str = "10.9.0.2:4000";
const HERE: &str = "10.9.0.1:53";

fn filter(rules: &[NetfilterRule], flows: &[TrackedFlow]) -> PacketFilter {
    PacketFilter {
        rules: Some(rules.to_vec()),
        flows: flows.to_vec(),
        ..PacketFilter::default()
    }
}

fn elsewhere() -> DoctorRequest {
    DoctorRequest {
        elsewhere: Some("dnsmasq (pid 7) has port 53 in another network namespace".to_owned()),
        ..asked(Some(53))
    }
}

impl Scene {
    fn filter(self, filter: PacketFilter) -> Self {
        self.now(|after| after.packet_filter = filter)
    }

    /// 900 packets came by `eth0`.
    fn arriving(mut self) -> Self {
        for (facts, counters) in [(&mut self.before, ""), (&mut self.after, "rx_packets 900")] {
            let links = &mut facts.snapshot.links;
            links.insert("eth0".to_owned(), link(&[], common(counters)));
        }
        self
    }

    fn serving(self, at: &str) -> Self {
        self.both(|facts| facts.sockets = vec![socket(at, 7, 0)])
    }
}

/// 900 packets were forwarded, and rules before the hook forward dropped as many as `early`.
fn forwarded(early: u64) -> Scene {
    let received = 900 + early;
    let counters = format!("Ip.InReceives {received}, Ip.ForwDatagrams 900");
    Scene::grown(&counters).drops("").port(53).arriving()
}

const WENT: &str = "900 packets were forwarded";

#[test]
fn forwarded_packets_are_a_loss_only_where_a_rule_dropped_them() {
    for (early, late, expected) in [
        (0, 890, format!(": dropped 890 | chain FORWARD | !{WENT}")),
        (
            0,
            9,
            format!(" remark: {WENT} | for this namespace | !nothing arrived"),
        ),
        (600, 0, format!(" remark: {WENT} | !dropped")),
        (1900, 0, format!(": 1900 packets were dropped | !{WENT}")),
    ] {
        let drops = format!("NETFILTER_DROP {} other", early + late);
        let scene = forwarded(early)
            .drops(&drops)
            .filter(filter(&[rule(17)], &[]));
        let to = "port 53 to 172.17.0.2:5353";
        scene.tells(&format!("nothing_arrives{expected} | {to}"));
        assert_eq!(scene.found()[0].confidence, Confidence::Likely);
    }
}

#[test]
fn forwarded_packets_are_a_remark_where_no_socket_waits_for_them() {
    let by_flow = |rules| filter(rules, &[flow(CLIENT, HERE, "172.17.0.3:99")]);
    let none = PacketFilter::default;
    let to = "port 53 to 172.17.0.3:99";
    for (filter, expected) in [
        (
            by_flow(&[]),
            format!(" remark likely: {WENT} | {to} | !conntrack"),
        ),
        // The flow keeps the address of a container that is gone.
        (
            by_flow(&[rule(17)]),
            format!(" likely: still go to 172.17.0.3:99 | conntrack -D | !{to}"),
        ),
        (
            none(),
            format!(" remark likely: no datagram was for | {WENT} | !{to}"),
        ),
    ] {
        let scene = forwarded(0).filter(filter);
        scene.tells(&format!("nothing_arrives{expected}"));
    }
    // A server of a host that forwards other traffic gets nothing.
    let serving = forwarded(0).serving("0.0.0.0:53");
    serving.tells(&format!(
        "nothing_arrives likely: nothing arrived | {WENT} | !{to}"
    ));
}

#[test]
fn a_flow_to_a_container_that_is_gone_is_told_before_its_silence() {
    let silent = "does not answer ARP";
    let delete = "conntrack -D -p udp --dport 53";
    let flows = [flow(CLIENT, HERE, "172.17.0.3:99")];
    let old = "tracked flows lead port 53 to 172.17.0.3:99 | no rule does";
    for (filter, expected) in [
        (
            filter(&[rule(17)], &flows),
            format!("likely: {old} | {silent} | {delete} | !ip neigh"),
        ),
        (
            filter(&[], &flows),
            format!("likely: {silent} | {delete} | ip neigh | !no rule does"),
        ),
        (
            filter(&[], &[flow(CLIENT, HERE, "172.17.0.4:99")]),
            format!("certain: {silent} | !conntrack"),
        ),
    ] {
        for port in [None, Some(53)] {
            let scene = Scene::grown("").drops("NEIGH_FAILED 900 sent").port(port);
            let scene =
                scene.both(|facts| facts.unanswered = vec!["172.17.0.3 on eth0".to_owned()]);
            scene
                .filter(filter.clone())
                .tells(&format!("way_out {expected}"));
        }
    }
}

#[test]
fn a_published_port_beside_other_traffic_is_a_remark() {
    let busy = Scene::grown("Udp.InDatagrams 9, Ip.InReceives 900").drops("");
    let busy = busy.port(53).arriving();
    let translated = busy.clone().filter(filter(&[rule(17)], &[]));
    translated.tells("port_owner remark certain: to 172.17.0.2:5353");
    let tcp = busy.filter(filter(&[rule(6)], &[]));
    tcp.tells("port_owner certain: no socket | !port 53 to");
}

#[test]
fn bridged_packets_are_a_remark() {
    let look = |sent: u64| {
        let mut scene = Scene::grown("Ip.InReceives 2").drops("").port(53);
        for (at, name, received, passed) in
            [(2, "eth0", 900, 1), (3, "veth1", 2, sent), (4, "br0", 3, 0)]
        {
            let grown = format!("rx_packets {received}, tx_packets {passed}");
            for (facts, counters) in [(&mut scene.before, ""), (&mut scene.after, &*grown)] {
                let counters = link(&[], common(counters));
                facts.snapshot.links.insert(name.to_owned(), counters);
                let is_bridge = name == "br0";
                facts.links.push(NetlinkLink {
                    name: name.to_owned(),
                    index: at,
                    kind: if is_bridge { "bridge" } else { "veth" }.to_owned(),
                    controller: (!is_bridge).then_some(4),
                    ..NetlinkLink::default()
                });
            }
        }
        scene
    };
    let words = "899 packets came by ports of the bridge br0 | !another protocol";
    look(898).tells(&format!("nothing_arrives remark likely: {words}"));
    let serving = look(898).serving("0.0.0.0:53");
    serving.tells(&format!("nothing_arrives likely: {words}"));
    look(0).tells("nothing_arrives likely: reached IP | !bridge");
}

#[test]
fn a_port_that_is_not_published_is_not_a_program_to_start() {
    let (start, delete) = ("start the program", "conntrack -D -p udp --dport 53");
    let publish = "docker run -p 53:53/udp";
    let stale = || [flow(CLIENT, HERE, HERE)];
    let legacy = PacketFilter {
        has_legacy_nat: true,
        ..filter(&[], &stale())
    };
    let (mine, none) = (|| asked(Some(53)), PacketFilter::default);
    let own = format!("certain: {start} | !{publish} | !{delete}");
    for (filter, asked, expected) in [
        (
            filter(&[rule(17)], &stale()),
            elsewhere(),
            format!(
                "possible: {delete} | before the rule was there | another address or interface | !{start} | !{publish}"
            ),
        ),
        (
            filter(&[rule(17)], &[]),
            elsewhere(),
            format!("possible: another address or interface | !{start} | !{delete}"),
        ),
        (
            filter(&[rule(6)], &stale()),
            mine(),
            format!("likely: {publish} | translates TCP port 53 | !{start} | !{delete}"),
        ),
        (
            legacy,
            elsewhere(),
            format!("possible: {publish} | {delete} | !{start}"),
        ),
        (
            none(),
            elsewhere(),
            format!("likely: {publish} | address of that namespace | !{start} | !{delete}"),
        ),
        // The healthy twins of the words: nothing here is another namespace's.
        (none(), mine(), own.clone()),
        (filter(&[queues(0..=0, true)], &stale()), mine(), own),
    ] {
        let scene = Scene::grown("Udp.NoPorts 900, Ip.InReceives 900").drops("NO_SOCKET 900");
        let scene = scene.arriving().filter(filter).asking(asked);
        scene.tells(&format!("no_listener {expected}"));
    }
}

#[test]
fn a_container_neither_publishes_nor_gets_its_own_published_port() {
    let look = |filter, forwarding| {
        let counters = format!("Udp.NoPorts 900, Ip.InReceives 900, Ip.Forwarding {forwarding}");
        let scene = Scene::grown(&counters).drops("NO_SOCKET 900").arriving();
        scene.filter(filter).asking(elsewhere())
    };
    let (start, publish) = ("start the program", "docker run -p 53:53/udp");
    // It asks, and its rule leaves out its own interface.
    let own = filter(&[rule(17)], &[flow("172.17.0.2:4000", HERE, HERE)]);
    let words = "the container that the rule leads to | MASQUERADE";
    look(own, 1).tells(&format!(
        "no_listener possible: {words} | !{start} | !{publish}"
    ));
    // Another one has the same port.
    let none = PacketFilter::default;
    look(none(), 2).tells(&format!("no_listener certain: {start} | !{publish}"));
    look(none(), 1).tells(&format!("no_listener likely: {publish} | !{start}"));
}

const PLAIN: &str = "a rule of the packet filter dropped | nft -a list ruleset | !invalid | !answers | !legacy | \
                     !forwarded";

/// A rule dropped 900 datagrams, and connection tracking found this many packets invalid.
fn ruled(filter: PacketFilter, invalid: u64, grown: &str) -> Scene {
    let mut scene = Scene::grown(grown)
        .drops("NETFILTER_DROP 900")
        .filter(filter);
    let tracker = |invalid| Conntrack {
        invalid,
        ..Conntrack::default()
    };
    scene.before.conntrack = Some(tracker(0));
    scene.after.conntrack = Some(tracker(invalid));
    scene.serving("10.9.0.1:53")
}

#[test]
fn a_rule_is_a_remark_until_a_port_is_asked_for() {
    let none = PacketFilter::default;
    let plain = ruled(none(), 9, "");
    plain.tells(&format!("firewall remark certain: {PLAIN}"));
    let mut of_program = plain.clone().asking(DoctorRequest {
        pid: Some(812),
        ..asked(None)
    });
    of_program.after.sockets = vec![socket("0.0.0.0:5060", 1, 0), socket("0.0.0.0:67", 2, 0)];
    has(&mut of_program.after, 1, owner(1, 1));
    of_program.tells("firewall remark certain: the program's is among them: 5060 | !67");
    plain.port(53).tells(&format!("firewall certain: {PLAIN}"));
    let legacy = PacketFilter {
        legacy: vec!["iptables-legacy-save -c"],
        ..none()
    };
    let legacy = ruled(legacy, 0, "").port(53);
    legacy.tells("firewall certain: ; iptables-legacy-save -c");
}

/// VRRP of another router, and a firewall that sees one direction of TCP.
#[test]
fn packets_that_are_no_datagrams_have_receivers() {
    for (protocols, forwarded, invalid, expected) in [
        (
            &[112][..],
            0,
            0,
            "firewall remark possible: 112 (VRRP) | !SYN) may be",
        ),
        (&[99], 0, 0, "firewall remark possible: take protocol 99"),
        (
            &[],
            900,
            0,
            "firewall remark possible: 900 packets were to be forwarded | !invalid",
        ),
        (
            &[],
            900,
            890,
            "firewall remark likely: invalid | one direction",
        ),
        (&[], 9, 890, ""),
    ] {
        let counters = format!("Ip.InReceives 900, Ip.ForwDatagrams {forwarded}");
        let scene = ruled(PacketFilter::default(), invalid, &counters);
        let scene = scene.drops("NETFILTER_DROP 900 other");
        let scene = scene.now(|after| after.raw_protocols = protocols.iter().copied().collect());
        let mut found = scene.found();
        found.retain(|one| one.check == "firewall");
        tells(&found, expected);
    }
}

/// The firewall of a client, which forgot the flow or never had it.
#[test]
fn an_answer_may_be_too_late() {
    for (settings, expected) in [
        (Vec::new(), "has not answered | !after"),
        (
            vec![("net.netfilter.nf_conntrack_udp_timeout", 2)],
            "after 2 s | timeout=120",
        ),
    ] {
        let scene = ruled(
            filter(&[], &[flow(HERE, CLIENT, CLIENT)]),
            0,
            "Udp.OutDatagrams 900",
        );
        let scene = scene.now(|after| after.settings = settings.into_iter().collect());
        scene.tells(&format!("firewall possible: possibly answers | {expected}"));
    }
}

#[test]
fn a_port_that_is_redirected_to_none_is_told() {
    for (to, serves, not) in [
        ("10.9.0.1:5353", 53, ""),
        ("10.9.0.1:5353", 5353, "!"),
        ("172.17.0.2:5353", 53, "!"),
    ] {
        let missed = Scene::grown("Udp.NoPorts 900, Ip.InReceives 900").drops("");
        let missed = missed.serving(&format!("127.0.0.1:{serves}")).port(53);
        let text = missed.filter(filter(&[], &[flow(CLIENT, HERE, to)])).text();
        let words = "translates it to port 5353 of this host, and no socket has";
        mentions(&text, &format!("{not}{words}"));
    }
}

/// A bridge passes what it has to the rules of IP, and IP never counts it.
#[test]
fn rules_of_ip_may_drop_what_a_bridge_passes() {
    for (is_called, received, not) in [(1, 0, ""), (0, 0, "!"), (1, 900, "!")] {
        let counters = format!("Ip.InReceives {received}, Ip.InDelivers 0");
        let scene = Scene::grown(&counters).drops("NETFILTER_DROP 900").port(53);
        let scene = scene.both(|facts| {
            facts.settings = [("net.bridge.bridge-nf-call-iptables", is_called)].into();
            facts.links = vec![NetlinkLink {
                name: "br0".to_owned(),
                kind: "bridge".to_owned(),
                ..NetlinkLink::default()
            }];
        });
        mentions(&scene.text(), &format!("{not}ports of the bridge br0"));
    }
}

#[test]
fn the_tracker_shows_why_a_rule_dropped() {
    let none = PacketFilter::default;
    // A wrong checksum is invalid for the tracker.
    for (checks_checksums, words) in [(true, "bad udp cksum"), (false, "wrong lengths")] {
        let filter = PacketFilter {
            checks_checksums,
            ..none()
        };
        let scene = ruled(filter, 880, "");
        scene.tells(&format!("firewall likely: ct state invalid | {words}"));
    }
    // Answers from another address are no part of the flow that a client began.
    let asks = || filter(&[], &[flow(HERE, "10.9.0.2:4000", "10.9.0.2:4000")]);
    for sent in [900, 9, 90_000] {
        let scene = ruled(asks(), 0, &format!("Udp.OutDatagrams {sent}"));
        scene.tells(&match sent {
            900 => "firewall possible: answers | IP_PKTINFO".to_owned(),
            _ => format!("firewall remark certain: {PLAIN}"),
        });
    }
    // A server of TFTP answers from a new port, as it should.
    let tftp = filter(&[], &[flow(HERE, "10.9.0.2:69", "10.9.0.2:69")]);
    let tftp = ruled(tftp, 0, "Udp.OutDatagrams 900");
    tftp.tells("firewall possible: nf_conntrack_tftp | !IP_PKTINFO");
    let forwarded = ruled(none(), 0, "Ip.ForwDatagrams 900");
    forwarded.tells("firewall remark certain: hook forward");
}

#[test]
fn a_queue_for_a_program_is_named_where_the_kernel_names_no_reason() {
    let [rule, passes] = [false, true].map(|bypasses| [queues(0..=1, bypasses)]);
    let causes = "shows a blackhole";
    let unread = "queue 1 (NFQUEUE), and no program | --queue-bypass";
    let unknown = format!("unrouted possible: {causes} | !NFQUEUE");
    for (rules, open, [full, forwarded], expected) in [
        (
            &rule[..],
            Some(&[0][..]),
            [0, 0],
            &*format!("unrouted likely: {unread} | !{causes}"),
        ),
        // Forwarded packets have a counter, and no gap.
        (
            &rule,
            Some(&[0]),
            [0, 900],
            &format!("drop_reason likely: {unread} | !veth"),
        ),
        (
            &rule,
            Some(&[0, 1]),
            [900, 0],
            &format!("unrouted likely: was full | !{causes}"),
        ),
        (
            &rule,
            Some(&[0, 1]),
            [0, 0],
            &format!("unrouted possible: the program of queue 0, 1 | {causes}"),
        ),
        (&passes, Some(&[]), [0, 0], &unknown),
        (&[], Some(&[]), [0, 0], &unknown),
        (&rule, None, [0, 0], &unknown),
    ] {
        let table = |full| {
            let queue = FilterQueue {
                full,
                ..FilterQueue::default()
            };
            let of = |at: &u16| (*at, queue);
            open.map(|open| open.iter().map(of).collect())
        };
        let counters = format!("Ip.InReceives 900, Ip.ForwDatagrams {forwarded}");
        let mut scene = Scene::grown(&counters).drops("NOT_SPECIFIED 900").port(53);
        scene.before.packet_filter.queues = table(0);
        scene.after.packet_filter = PacketFilter {
            queues: table(full),
            ..filter(rules, &[])
        };
        scene.tells(expected);
    }
}

#[test]
fn answers_from_another_address_are_seen_in_tracked_flows() {
    let look = |answers: &str| {
        let asked = flow(CLIENT, "10.9.0.50:53", "10.9.0.50:53");
        let flows = [asked, flow(answers, CLIENT, CLIENT)];
        let busy = Scene::grown("Udp.InDatagrams 900, Udp.OutDatagrams 900").drops("");
        busy.serving("0.0.0.0:53")
            .port(53)
            .filter(filter(&[], &flows))
    };
    look(HERE).tells(
        "port_owner remark likely: asked 10.9.0.50:53 | answered from 10.9.0.1:53 | IP_PKTINFO",
    );
    // The address that was asked.
    look("10.9.0.50:53").finds("");
}

#[test]
fn the_loose_mode_is_no_way_to_a_sender_without_a_route() {
    let needs = "there is no default route";
    let strict = "eth0 has rp_filter 1 | a route back";
    for (mode, routes, expected) in [
        (1, &[][..], format!("{strict} | {needs} | !lo has")),
        (1, &["wan"], format!("conf.eth0.rp_filter=2 | !{needs}")),
        (
            2,
            &[],
            "no route at all | a route to the senders | !rp_filter=2".to_owned(),
        ),
    ] {
        let counters = "TcpExt.IPReversePathFilter 900, Ip.InReceives 900";
        let scene = Scene::grown(counters).drops("").arriving().both(|facts| {
            let idle = link(&[], LinkCounters::default());
            facts.snapshot.links.insert("lo".to_owned(), idle);
            facts.reverse_path = [("eth0".to_owned(), mode), ("lo".to_owned(), 1)].into();
            facts.default_routes = routes.iter().map(|name| (*name).to_owned()).collect();
        });
        scene.tells(&format!("reverse_path certain: {expected}"));
    }
}

#[test]
fn an_idle_interface_points_to_its_other_end() {
    let look = |namespace: &str, is_up: bool| {
        let scene = Scene::grown("Ip.InReceives 0").drops("").port(53);
        scene.both(|facts| {
            let counters = LinkCounters::default();
            facts.snapshot.links = [("eth0".to_owned(), link(&[], counters))].into();
            let end = FarEnd {
                namespace: namespace.to_owned(),
                name: "veth7".to_owned(),
                bridge: Some("cni0".to_owned()),
                ..FarEnd::default()
            };
            facts.far_ends = [("eth0".to_owned(), end)].into();
            facts.links = vec![NetlinkLink {
                name: "eth0".to_owned(),
                up: is_up,
                carrier: is_up,
                ..NetlinkLink::default()
            }];
        })
    };
    for (namespace, command) in [
        ("node", "mpps doctor --netns node --port 53"),
        ("init", "mpps doctor --netns 1 --port 53"),
        (
            "4026531840",
            "mpps doctor --netns PID --port 53 (lsns -t net",
        ),
    ] {
        let way =
            format!("bridge cni0 -> veth7 of namespace {namespace}, and veth7 sent 0 to eth0");
        let scene = look(namespace, true);
        scene.tells(&format!(
            "nothing_arrives likely: {way} | {command} | !the switch"
        ));
    }
    let down = "eth0 is down | ip link set dev eth0 up | !--netns node";
    look("node", false).tells(&format!("nothing_arrives likely: {down}"));
}

#[test]
fn what_a_nat_has_forgotten_may_come_for_no_socket() {
    let words = "has forgotten, 30 s after | a keepalive";
    let never = "!has forgotten, 30 s after | !a keepalive";
    for (counter, drops, forwarding, is_tracked, expected) in [
        (
            "Udp.NoPorts",
            "NO_SOCKET 900",
            1,
            true,
            format!("no_listener certain: {words}"),
        ),
        (
            "Ip.OutRequests",
            "NETFILTER_DROP 900",
            1,
            true,
            format!("firewall remark certain: {words}"),
        ),
        (
            "Udp.NoPorts",
            "NO_SOCKET 900",
            2,
            true,
            format!("no_listener certain: {never}"),
        ),
        (
            "Udp.NoPorts",
            "NO_SOCKET 900",
            1,
            false,
            format!("no_listener certain: {never}"),
        ),
    ] {
        let counters = format!("{counter} 900, Ip.InReceives 900, Ip.Forwarding {forwarding}");
        let scene = Scene::grown(&counters).drops(drops).both(|facts| {
            facts.conntrack = is_tracked.then(Conntrack::default);
            facts.settings = [
                ("net.netfilter.nf_conntrack_udp_timeout", 30),
                ("net.netfilter.nf_conntrack_udp_timeout_stream", 120),
            ]
            .into();
        });
        scene.tells(&expected);
    }
}
