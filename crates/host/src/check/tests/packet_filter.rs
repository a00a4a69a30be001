//! Packets that meet rules, tracked flows and queues of the packet filter.

use super::*;
use crate::facts::far_end::FarEnd;
use crate::facts::{FilterQueue, PacketFilter, TrackedFlow};
use Confidence::{Certain, Likely, Possible};
use mpps_os::netlink::netfilter_rule::{NetfilterAction, NetfilterRule};
use std::net::Ipv4Addr;

/// The findings of a look at a host: by the growth of its counters, drops, the packet filter, the question, and
/// further facts.
fn looked(
    grown: &[(&str, u64)],
    drops: &[DropCount],
    filter: PacketFilter,
    asked: DoctorRequest,
    change: &dyn Fn(&mut Observation, u64),
) -> Vec<Finding> {
    let zero: Vec<_> = grown.iter().map(|(name, _)| (*name, 0)).collect();
    let (mut before, mut after) = (host(&zero), later(host(grown)));
    change(&mut before, 0);
    change(&mut after, 1);
    after.packet_filter = filter;
    let drops = Some((&[][..], drops, 1));
    findings(&Observed::new(&before, &after, drops, asked))
}

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

/// The first finding is this; its words contain the first list and nothing of the second.
fn says(
    found: &[Finding],
    (check, is_remark, confidence): (&str, bool, Confidence),
    words: &[&str],
    never: &[&str],
) {
    let first = found.first().expect("something is found");
    let is = (&*first.check, first.is_remark, first.confidence);
    assert_eq!(is, (check, is_remark, confidence), "{found:#?}");
    let text = format!("{} {} {}", first.what, first.why, first.remedy);
    for one in words {
        assert!(text.contains(one), "{one}: {text}");
    }
    for one in never {
        assert!(!text.contains(one), "{one}: {text}");
    }
}

fn other(packets: u64) -> DropCount {
    DropCount {
        ours: false,
        ..dropped("NETFILTER_DROP", packets)
    }
}

fn arrives(facts: &mut Observation, times: u64) {
    let counters = LinkCounters {
        rx_packets: 900 * times,
        ..LinkCounters::default()
    };
    let links = &mut facts.snapshot.links;
    links.insert("eth0".to_owned(), link(&[], counters));
}

/// 900 packets were forwarded. Rules before the hook forward dropped those with reason number 8.
fn forwards(drops: &[DropCount], filter: PacketFilter, serves: bool) -> Vec<Finding> {
    let early = drops.iter().filter(|drop| drop.reason == 8);
    let received = 900 + early.map(|drop| drop.datagrams).sum::<u64>();
    let grown = [("Ip.InReceives", received), ("Ip.ForwDatagrams", 900)];
    let change = |facts: &mut Observation, times| {
        arrives(facts, times);
        if serves {
            facts.sockets = vec![socket("0.0.0.0:53", 7, 0)];
        }
    };
    looked(&grown, drops, filter, asked(Some(53)), &change)
}

const WENT: &str = "900 packets were forwarded";

#[test]
fn forwarded_packets_are_a_loss_only_where_a_rule_dropped_them() {
    let early = |packets| DropCount {
        reason: 8,
        ..other(packets)
    };
    let to = "port 53 to 172.17.0.2:5353";
    for (drop, is_remark, words, never) in [
        (other(890), false, ["dropped 890", "chain FORWARD"], WENT),
        (
            other(9),
            true,
            [WENT, "for this namespace"],
            "nothing arrived",
        ),
        (early(600), true, [WENT, to], "dropped"),
        (early(1900), false, ["1900 packets were dropped", to], WENT),
    ] {
        let found = forwards(&[drop], filter(&[rule(17)], &[]), false);
        let said = ("nothing_arrives", is_remark, Likely);
        says(&found, said, &[&words[..], &[to]].concat(), &[never]);
    }
}

#[test]
fn forwarded_packets_are_a_remark_where_no_socket_waits_for_them() {
    let by_flow = |rules| filter(rules, &[flow(CLIENT, HERE, "172.17.0.3:99")]);
    let (none, new) = (PacketFilter::default, [rule(17)]);
    let (to, old) = ("port 53 to 172.17.0.3:99", "still go to 172.17.0.3:99");
    for (filter, serves, is_remark, words, never) in [
        (by_flow(&[]), false, true, [WENT, to], "conntrack"),
        // The flow keeps the address of a container that is gone.
        (by_flow(&new), false, false, [old, "conntrack -D"], to),
        // A server of a host that forwards other traffic gets nothing.
        (none(), true, false, ["nothing arrived", WENT], to),
        (none(), false, true, ["no datagram was for", WENT], to),
    ] {
        let found = forwards(&[], filter, serves);
        let said = ("nothing_arrives", is_remark, Likely);
        says(&found, said, &words, &[never]);
    }
}

#[test]
fn a_flow_to_a_container_that_is_gone_is_told_before_its_silence() {
    let drops = [DropCount {
        sent: true,
        ..dropped("NEIGH_FAILED", 900)
    }];
    let look = |filter, port| {
        let change = |facts: &mut Observation, _| {
            facts.unanswered = vec!["172.17.0.3 on eth0".to_owned()];
        };
        looked(&[], &drops, filter, asked(port), &change)
    };
    let flows = [flow(CLIENT, HERE, "172.17.0.3:99")];
    let silent = "does not answer ARP";
    let delete = "conntrack -D -p udp --dport 53";
    for port in [None, Some(53)] {
        let old = look(filter(&[rule(17)], &flows), port);
        let words = [
            "tracked flows lead port 53 to 172.17.0.3:99",
            "no rule does",
            silent,
            delete,
        ];
        says(&old, ("way_out", false, Likely), &words, &["ip neigh"]);
        let unknown = look(filter(&[], &flows), port);
        says(
            &unknown,
            ("way_out", false, Likely),
            &[silent, delete, "ip neigh"],
            &["no rule does"],
        );
        let plain = look(filter(&[], &[flow(CLIENT, HERE, "172.17.0.4:99")]), port);
        says(
            &plain,
            ("way_out", false, Certain),
            &[silent],
            &["conntrack"],
        );
    }
}

#[test]
fn a_published_port_beside_other_traffic_is_a_remark() {
    let grown = [("Udp.InDatagrams", 9), ("Ip.InReceives", 900)];
    let look = |filter| {
        let asked = asked(Some(53));
        looked(&grown, &[], filter, asked, &arrives)
    };
    let translated = look(filter(&[rule(17)], &[]));
    says(
        &translated,
        ("port_owner", true, Certain),
        &["to 172.17.0.2:5353"],
        &[],
    );
    let tcp = look(filter(&[rule(6)], &[]));
    says(
        &tcp,
        ("port_owner", false, Certain),
        &["no socket"],
        &["port 53 to"],
    );
}

#[test]
fn bridged_packets_are_a_remark() {
    let look = |sent: u64, serves: bool| {
        let change = move |facts: &mut Observation, times: u64| {
            for (at, name, [received, passed]) in [
                (2, "eth0", [900, 1]),
                (3, "veth1", [2, sent]),
                (4, "br0", [3, 0]),
            ] {
                let counters = LinkCounters {
                    rx_packets: received * times,
                    tx_packets: passed * times,
                    ..LinkCounters::default()
                };
                facts
                    .snapshot
                    .links
                    .insert(name.to_owned(), link(&[], counters));
                let is_bridge = name == "br0";
                facts.links.push(NetlinkLink {
                    name: name.to_owned(),
                    index: at,
                    kind: if is_bridge { "bridge" } else { "veth" }.to_owned(),
                    controller: (!is_bridge).then_some(4),
                    ..NetlinkLink::default()
                });
            }
            if serves {
                facts.sockets = vec![socket("0.0.0.0:53", 7, 0)];
            }
        };
        let (asked, filter) = (asked(Some(53)), PacketFilter::default());
        let grown = [("Ip.InReceives", 2)];
        looked(&grown, &[], filter, asked, &change)
    };
    let words = ["899 packets came by ports of the bridge br0"];
    says(
        &look(898, false),
        ("nothing_arrives", true, Likely),
        &words,
        &["another protocol"],
    );
    says(
        &look(898, true),
        ("nothing_arrives", false, Likely),
        &words,
        &["another protocol"],
    );
    says(
        &look(0, false),
        ("nothing_arrives", false, Likely),
        &["reached IP"],
        &["bridge"],
    );
}

#[test]
fn a_port_that_is_not_published_is_not_a_program_to_start() {
    let look = |filter, asked| {
        let grown = [("Udp.NoPorts", 900), ("Ip.InReceives", 900)];
        let drops = [dropped("NO_SOCKET", 900)];
        looked(&grown, &drops, filter, asked, &arrives)
    };
    let (start, delete) = ("start the program", "conntrack -D -p udp --dport 53");
    let publish = "docker run -p 53:53/udp";
    let stale = || [flow(CLIENT, HERE, HERE)];
    let said = |confidence| ("no_listener", false, confidence);
    let old = look(filter(&[rule(17)], &stale()), elsewhere());
    says(
        &old,
        said(Possible),
        &[
            delete,
            "before the rule was there",
            "another address or interface",
        ],
        &[start, publish],
    );
    let unmatched = look(filter(&[rule(17)], &[]), elsewhere());
    says(
        &unmatched,
        said(Possible),
        &["another address or interface"],
        &[start, delete],
    );
    let tcp = look(filter(&[rule(6)], &stale()), asked(Some(53)));
    says(
        &tcp,
        said(Likely),
        &[publish, "translates TCP port 53"],
        &[start, delete],
    );
    let legacy = PacketFilter {
        has_legacy_nat: true,
        ..filter(&[], &stale())
    };
    says(
        &look(legacy, elsewhere()),
        said(Possible),
        &[publish, delete],
        &[start],
    );
    let bare = look(PacketFilter::default(), elsewhere());
    says(
        &bare,
        said(Likely),
        &[publish, "address of that namespace"],
        &[start, delete],
    );
    // The healthy twins of the words: nothing here is another namespace's.
    for mine in [
        PacketFilter::default(),
        filter(&[queues(0..=0, true)], &stale()),
    ] {
        says(
            &look(mine, asked(Some(53))),
            said(Certain),
            &[start],
            &[publish, delete],
        );
    }
}

#[test]
fn a_container_neither_publishes_nor_gets_its_own_published_port() {
    let look = |filter, forwarding| {
        let grown = [
            ("Udp.NoPorts", 900),
            ("Ip.InReceives", 900),
            ("Ip.Forwarding", forwarding),
        ];
        let drops = [dropped("NO_SOCKET", 900)];
        looked(&grown, &drops, filter, elsewhere(), &arrives)
    };
    let (start, publish) = ("start the program", "docker run -p 53:53/udp");
    let said = |confidence| ("no_listener", false, confidence);
    // It asks, and its rule leaves out its own interface.
    let own = filter(&[rule(17)], &[flow("172.17.0.2:4000", HERE, HERE)]);
    let words = ["the container that the rule leads to", "MASQUERADE"];
    says(&look(own, 1), said(Possible), &words, &[start, publish]);
    // Another one has the same port.
    let none = PacketFilter::default;
    says(&look(none(), 2), said(Certain), &[start], &[publish]);
    says(&look(none(), 1), said(Likely), &[publish], &[start]);
}

const PLAIN: [&str; 2] = ["a rule of the packet filter dropped", "nft -a list ruleset"];
const GUESSES: [&str; 4] = ["invalid", "answers", "legacy", "forwarded"];

/// A rule dropped 900 datagrams, and connection tracking found this many packets invalid.
fn ruled(
    port: Option<u16>,
    filter: PacketFilter,
    invalid: u64,
    grown: &[(&str, u64)],
) -> Vec<Finding> {
    let drops = [dropped("NETFILTER_DROP", 900)];
    let change = |facts: &mut Observation, times: u64| {
        let invalid = invalid * times;
        facts.conntrack = Some(Conntrack {
            invalid,
            ..Conntrack::default()
        });
        facts.sockets = vec![socket("10.9.0.1:53", 7, 0)];
    };
    looked(grown, &drops, filter, asked(port), &change)
}

#[test]
fn a_rule_is_a_remark_until_a_port_is_asked_for() {
    let none = PacketFilter::default;
    says(
        &ruled(None, none(), 9, &[]),
        ("firewall", true, Certain),
        &PLAIN,
        &GUESSES,
    );
    says(
        &ruled(Some(53), none(), 9, &[]),
        ("firewall", false, Certain),
        &PLAIN,
        &GUESSES,
    );
    let legacy = PacketFilter {
        legacy: vec!["iptables-legacy-save -c"],
        ..none()
    };
    says(
        &ruled(Some(53), legacy, 0, &[]),
        ("firewall", false, Certain),
        &["; iptables-legacy-save -c"],
        &[],
    );
}

#[test]
fn a_port_that_is_redirected_to_none_is_told() {
    for (to, serves, is_told) in [
        ("10.9.0.1:5353", 53, true),
        ("10.9.0.1:5353", 5353, false),
        ("172.17.0.2:5353", 53, false),
    ] {
        let change = |facts: &mut Observation, _| {
            facts.sockets = vec![socket(&format!("127.0.0.1:{serves}"), 7, 0)];
        };
        let filter = filter(&[], &[flow(CLIENT, HERE, to)]);
        let grown = [("Udp.NoPorts", 900), ("Ip.InReceives", 900)];
        let found = looked(&grown, &[], filter, asked(Some(53)), &change);
        let told = found[0]
            .what
            .contains("translates it to port 5353 of this host, and no socket has");
        assert_eq!(told, is_told, "{found:#?}");
    }
}

/// A bridge passes what it has to the rules of IP, and IP never counts it.
#[test]
fn rules_of_ip_may_drop_what_a_bridge_passes() {
    for (is_called, received, is_bridged) in [(1, 0, true), (0, 0, false), (1, 900, false)] {
        let change = |facts: &mut Observation, _| {
            facts.settings = [("net.bridge.bridge-nf-call-iptables", is_called)].into();
            facts.links = vec![NetlinkLink {
                name: "br0".to_owned(),
                kind: "bridge".to_owned(),
                ..NetlinkLink::default()
            }];
        };
        let drops = [dropped("NETFILTER_DROP", 900)];
        let grown = [("Ip.InReceives", received), ("Ip.InDelivers", 0)];
        let (filter, asked) = (PacketFilter::default(), asked(Some(53)));
        let found = looked(&grown, &drops, filter, asked, &change);
        let text = format!("{:?}", found[0]);
        assert_eq!(
            text.contains("ports of the bridge br0"),
            is_bridged,
            "{text}"
        );
    }
}

#[test]
fn the_tracker_shows_why_a_rule_dropped() {
    let none = PacketFilter::default;
    // A wrong checksum is invalid for the tracker.
    for (checks, words) in [(true, "bad udp cksum"), (false, "wrong lengths")] {
        let filter = PacketFilter {
            checks_checksums: checks,
            ..none()
        };
        says(
            &ruled(None, filter, 880, &[]),
            ("firewall", false, Likely),
            &["ct state invalid", words],
            &[],
        );
    }
    // Answers from another address are no part of the flow that a client began.
    let asks = || filter(&[], &[flow(HERE, "10.9.0.2:4000", "10.9.0.2:4000")]);
    for (sent, is_like) in [(900, true), (9, false), (90_000, false)] {
        let grown = [("Udp.OutDatagrams", sent)];
        let found = ruled(None, asks(), 0, &grown);
        match is_like {
            true => says(
                &found,
                ("firewall", false, Possible),
                &["answers", "IP_PKTINFO"],
                &[],
            ),
            false => says(&found, ("firewall", true, Certain), &PLAIN, &GUESSES),
        }
    }
    // A server of TFTP answers from a new port, as it should.
    let tftp = filter(&[], &[flow(HERE, "10.9.0.2:69", "10.9.0.2:69")]);
    let found = ruled(None, tftp, 0, &[("Udp.OutDatagrams", 900)]);
    let said = ("firewall", false, Possible);
    says(&found, said, &["nf_conntrack_tftp"], &["IP_PKTINFO"]);
    let forwarded = ruled(None, none(), 0, &[("Ip.ForwDatagrams", 900)]);
    says(
        &forwarded,
        ("firewall", true, Certain),
        &["hook forward"],
        &[],
    );
}

#[test]
fn a_queue_for_a_program_is_named_where_the_kernel_names_no_reason() {
    let look = |rules: &[NetfilterRule], open: Option<&[u16]>, full: u64, forwarded: u64| {
        let grown = [("Ip.InReceives", 900), ("Ip.ForwDatagrams", forwarded)];
        let table = |full| {
            let open = open.map(|open| open.iter());
            open.map(|open| {
                open.map(|at| (*at, FilterQueue { full, no_room: 0 }))
                    .collect()
            })
        };
        let filter = PacketFilter {
            queues: table(full),
            ..filter(rules, &[])
        };
        let change = |facts: &mut Observation, _| facts.packet_filter.queues = table(0);
        let drops = [dropped("NOT_SPECIFIED", 900)];
        let asked = asked(Some(53));
        looked(&grown, &drops, filter, asked, &change)
    };
    let rule = [queues(0..=1, false)];
    let lost = |confidence| ("unrouted", false, confidence);
    let causes = "shows a blackhole";
    let words = ["queue 1 (NFQUEUE), and no program", "--queue-bypass"];
    says(
        &look(&rule, Some(&[0]), 0, 0),
        lost(Likely),
        &words,
        &[causes],
    );
    // Forwarded packets have a counter, and no gap.
    let passing = look(&rule, Some(&[0]), 0, 900);
    says(&passing, ("drop_reason", false, Likely), &words, &["veth"]);
    let full = look(&rule, Some(&[0, 1]), 900, 0);
    says(&full, lost(Likely), &["was full"], &[causes]);
    let verdict = look(&rule, Some(&[0, 1]), 0, 0);
    says(
        &verdict,
        lost(Possible),
        &["the program of queue 0, 1", causes],
        &[],
    );
    let passes = [queues(0..=1, true)];
    for (rules, open) in [
        (&passes[..], Some(&[][..])),
        (&[], Some(&[])),
        (&rule, None),
    ] {
        says(
            &look(rules, open, 0, 0),
            lost(Possible),
            &[causes],
            &["NFQUEUE"],
        );
    }
}

#[test]
fn answers_from_another_address_are_seen_in_tracked_flows() {
    let look = |answers: &str| {
        let flows = [
            flow(CLIENT, "10.9.0.50:53", "10.9.0.50:53"),
            flow(answers, CLIENT, CLIENT),
        ];
        let grown = [("Udp.InDatagrams", 900), ("Udp.OutDatagrams", 900)];
        let change = |facts: &mut Observation, _| facts.sockets = vec![socket("0.0.0.0:53", 7, 0)];
        let (asked, filter) = (asked(Some(53)), filter(&[], &flows));
        looked(&grown, &[], filter, asked, &change)
    };
    let words = [
        "asked 10.9.0.50:53",
        "answered from 10.9.0.1:53",
        "IP_PKTINFO",
    ];
    says(&look(HERE), ("port_owner", true, Likely), &words, &[]);
    assert_eq!(look("10.9.0.50:53"), [], "the address that was asked");
}

#[test]
fn the_loose_mode_is_no_way_to_a_sender_without_a_route() {
    let look = |mode: u8, routes: &[&str]| {
        let grown = [("TcpExt.IPReversePathFilter", 900), ("Ip.InReceives", 900)];
        let change = |facts: &mut Observation, times: u64| {
            arrives(facts, times);
            let idle = link(&[], LinkCounters::default());
            facts.snapshot.links.insert("lo".to_owned(), idle);
            facts.reverse_path = [("eth0".to_owned(), mode), ("lo".to_owned(), 1)].into();
            facts.default_routes = routes.iter().map(|name| (*name).to_owned()).collect();
        };
        let (asked, filter) = (asked(None), PacketFilter::default());
        looked(&grown, &[], filter, asked, &change)
    };
    let said = ("reverse_path", false, Certain);
    let needs = "there is no default route";
    says(
        &look(1, &[]),
        said,
        &["eth0 has rp_filter 1", "a route back", needs],
        &["lo has"],
    );
    says(
        &look(1, &["wan"]),
        said,
        &["conf.eth0.rp_filter=2"],
        &[needs],
    );
    says(
        &look(2, &[]),
        said,
        &["no route at all", "a route to the senders"],
        &["rp_filter=2"],
    );
}

#[test]
fn an_idle_interface_points_to_its_other_end() {
    let look = |namespace: &str, is_up: bool| {
        let change = |facts: &mut Observation, _| {
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
        };
        let (asked, filter) = (asked(Some(53)), PacketFilter::default());
        looked(&[("Ip.InReceives", 0)], &[], filter, asked, &change)
    };
    let said = ("nothing_arrives", false, Likely);
    let switch = "the switch";
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
        says(&look(namespace, true), said, &[&way, command], &[switch]);
    }
    says(
        &look("node", false),
        said,
        &["eth0 is down", "ip link set dev eth0 up"],
        &["--netns node"],
    );
}

#[test]
fn what_a_nat_has_forgotten_may_come_for_no_socket() {
    let look = |counter, drops: &[DropCount], forwarding, is_tracked: bool| {
        let grown = [
            (counter, 900),
            ("Ip.InReceives", 900),
            ("Ip.Forwarding", forwarding),
        ];
        let change = |facts: &mut Observation, _| {
            facts.conntrack = is_tracked.then(Conntrack::default);
            facts.settings = [
                ("net.netfilter.nf_conntrack_udp_timeout", 30),
                ("net.netfilter.nf_conntrack_udp_timeout_stream", 120),
            ]
            .into();
        };
        looked(&grown, drops, PacketFilter::default(), asked(None), &change)
    };
    let words = ["has forgotten, 30 s after", "a keepalive"];
    let (refused, ruled) = (
        [dropped("NO_SOCKET", 900)],
        [dropped("NETFILTER_DROP", 900)],
    );
    let lost = ("no_listener", false, Certain);
    says(&look("Udp.NoPorts", &refused, 1, true), lost, &words, &[]);
    says(
        &look("Ip.OutRequests", &ruled, 1, true),
        ("firewall", true, Certain),
        &words,
        &[],
    );
    for (forwarding, is_tracked) in [(2, true), (1, false)] {
        let found = look("Udp.NoPorts", &refused, forwarding, is_tracked);
        says(&found, lost, &[], &words);
    }
}
