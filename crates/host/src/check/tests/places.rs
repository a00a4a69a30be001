//! Drops whose function, or whose packets, decide between causes of one reason.

use super::*;
use crate::counters::drop_probe::{
    MARK_GROUP, MARK_ICMP_ERROR, MARK_IGMP, MARK_OPTIONS, MARK_OWN_ADDRESS, MARK_ZERO_CHECKSUM,
};
use crate::facts::far_end::FarEnd;
use crate::facts::{CaptureSocket, FilterQueue, JoinedGroup};

const LOST: u64 = 1000;

/// Datagrams that were dropped in a function, with these marks.
fn drop_at(reason: &str, place: &str, marks: u32) -> DropCount {
    DropCount {
        place: place.to_owned(),
        marks,
        ..dropped(reason, LOST)
    }
}

/// The findings and the ledger of a host whose counters grew by this.
fn look(
    grown: &[(&str, u64)],
    drops: &[DropCount],
    asked: DoctorRequest,
    change: impl Fn(&mut Observation),
) -> (Vec<Finding>, Ledger) {
    let zero: Vec<_> = grown.iter().map(|(name, _)| (*name, 0)).collect();
    let (mut before, mut after) = (host(&zero), later(host(grown)));
    change(&mut before);
    change(&mut after);
    let seen = Observed::new(&before, &after, Some((&[], drops, 1)), asked);
    (findings(&seen), ledger(&seen))
}

/// The first finding: its check, whether it is a remark, how sure it is, and its words.
fn first(found: &[Finding]) -> (&str, bool, Confidence, String) {
    let first = found.first().expect("something is found");
    let words = format!("{} | {}", first.what, first.remedy);
    (&first.check, first.is_remark, first.confidence, words)
}

fn joined(group: &str, only_from: &[&str]) -> JoinedGroup {
    let address = |text: &str| text.parse().expect("an address");
    JoinedGroup {
        interface: "eth1".to_owned(),
        group: address(group),
        only_from: only_from.iter().map(|one| address(one)).collect(),
    }
}

const AT_IP: [(&str, u64); 2] = [("Ip.InReceives", LOST), ("Ip.InDelivers", 0)];

#[test]
fn a_function_or_a_mark_tells_the_cause() {
    use Confidence::{Likely, Possible};
    for (drop, confidence, says, says_not) in [
        (
            drop_at("NOT_SPECIFIED", "ip_rcv_finish_core", MARK_OPTIONS),
            Likely,
            "source route",
            "group",
        ),
        (
            drop_at("NOT_SPECIFIED", "ip_error", 0),
            Likely,
            "blackhole",
            "not known",
        ),
        (
            drop_at("NOT_SPECIFIED", "ip_forward", 0),
            Likely,
            "TPROXY",
            "blackhole",
        ),
        (
            drop_at("OTHERHOST", "", MARK_OWN_ADDRESS),
            Likely,
            "VLAN tag",
            "neighbours",
        ),
        (
            drop_at("OTHERHOST", "", 0),
            Possible,
            "another host's",
            "VLAN",
        ),
        (
            drop_at("NOT_SPECIFIED", "new_function", MARK_OPTIONS),
            Possible,
            "dropped them in new_function",
            "veth",
        ),
        (
            drop_at("NOT_SPECIFIED", "br_forward", 0),
            Possible,
            "no hairpin mode",
            "not known",
        ),
        (
            drop_at("NOT_SPECIFIED", "veth_xmit", 0),
            Likely,
            "full ring of a veth",
            "not known",
        ),
    ] {
        // Frames for others do not reach IP; nor does what an unknown function dropped.
        let is_at_ip = ["source route", "blackhole", "TPROXY"].contains(&says);
        let came: &[(&str, u64)] = if is_at_ip { &AT_IP } else { &[] };
        let (found, ledger) = look(came, &[drop], asked(Some(53)), |_| ());
        let (check, is_remark, sure, words) = first(&found);
        assert_eq!(
            (check, is_remark, sure),
            ("drop_reason", false, confidence),
            "{words}"
        );
        assert!(words.contains(says) && !words.contains(says_not), "{words}");
        assert!(!words.contains('@') && !words.contains("+o"), "{words}");
        assert_eq!((ledger.lost(), ledger.unaccounted), (LOST, 0), "{ledger}");
    }
}

#[test]
fn a_queue_of_nfqueue_has_no_program_or_is_full() {
    use Confidence::{Certain, Likely, Possible};
    let drops = [drop_at("NOT_SPECIFIED", "nf_queue", 0)];
    // The drops of a queue at both moments.
    for (queue, sure, says, says_not) in [
        (None, Certain, "no program takes that queue", "too slow"),
        (Some([7, 7 + LOST]), Likely, "too slow", "no program takes"),
        (Some([7, 7]), Possible, "too slow", "joined"),
    ] {
        let (mut before, mut after) =
            (host(&AT_IP.map(|(name, _)| (name, 0))), later(host(&AT_IP)));
        for (facts, at) in [(&mut before, 0), (&mut after, 1)] {
            let of = |drops: [u64; 2]| FilterQueue {
                full: drops[at],
                no_room: 0,
            };
            let queues = queue.map(|drops| (3, of(drops)));
            facts.packet_filter.queues = Some(queues.into_iter().collect());
        }
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(Some(53)));
        let found = findings(&seen);
        let (check, is_remark, confidence, words) = first(&found);
        assert_eq!(
            (check, is_remark, confidence),
            ("drop_reason", false, sure),
            "{words}"
        );
        assert!(words.contains(says) && !words.contains(says_not), "{words}");
        assert_eq!(found.len(), 1, "{found:#?}");
    }
}

#[test]
fn generic_xdp_is_told_as_xdp_with_its_program() {
    for place in ["do_xdp_generic", "netif_receive_generic_xdp"] {
        let drops = [drop_at("NOT_SPECIFIED", place, MARK_GROUP)];
        let (found, _) = look(&[], &drops, asked(Some(53)), |facts| {
            facts.xdp_programs = vec!["ddos (id 7) at eth1, generic mode".to_owned()];
        });
        let (check, _, _, words) = first(&found);
        assert_eq!((check, found.len()), ("xdp_drop", 1), "{words}");
        assert!(words.contains("ddos (id 7) at eth1"), "{words}");
    }
}

#[test]
fn groups_of_others_are_no_loss_and_missed_ones_are() {
    let drops = [drop_at("NOT_SPECIFIED", "ip_rcv_finish_core", MARK_GROUP)];
    let other = DropCount {
        ours: false,
        ..drops[0].clone()
    };
    let has = |facts: &mut Observation| {
        facts.sockets = vec![socket("0.0.0.0:53", 1, 0)];
        facts.groups = vec![joined("232.1.1.1", &["10.0.0.9"]), joined("239.0.0.1", &[])];
        facts.settings = [("net.ipv4.igmp_max_memberships", 2)].into();
    };
    let (found, ledger) = look(&AT_IP, &drops, asked(None), has);
    assert!(first(&found).1, "{found:#?}");
    assert_eq!(
        (ledger.offered, ledger.lost(), ledger.unaccounted),
        (0, 0, 0),
        "{ledger}"
    );
    let (_, ledger) = look(&AT_IP, &[other], asked(Some(53)), has);
    assert_eq!(
        (ledger.offered, ledger.lost(), ledger.unaccounted),
        (0, 0, 0),
        "{ledger}"
    );
    // The port has a socket, and it joined others.
    let (found, ledger) = look(&AT_IP, &drops, asked(Some(53)), has);
    let (check, is_remark, _, words) = first(&found);
    assert_eq!(
        (check, is_remark, ledger.lost()),
        ("unrouted", false, LOST),
        "{words}"
    );
    for says in [
        "only from 10.0.0.9",
        "igmp_max_memberships=8 (it is 2)",
        "ENOBUFS",
    ] {
        assert!(words.contains(says), "{words}");
    }
}

#[test]
fn frames_for_other_hosts_are_a_remark_beside_traffic() {
    let came = [
        ("Ip.InReceives", 50),
        ("Ip.InDelivers", 50),
        ("Udp.InDatagrams", 50),
    ];
    for port in [None, Some(53)] {
        let drops = [drop_at("OTHERHOST", "", 0)];
        let (found, ledger) = look(&came, &drops, asked(port), |_| ());
        let (check, is_remark, _, words) = first(&found);
        assert_eq!(
            (check, is_remark, found.len()),
            ("drop_reason", true, 1),
            "{words}"
        );
        assert_eq!((ledger.offered, ledger.lost()), (50, 0), "{ledger}");
        // A VLAN tag is a loss whatever comes beside it.
        let drops = [drop_at("OTHERHOST", "", MARK_OWN_ADDRESS)];
        let (found, ledger) = look(&came, &drops, asked(port), |_| ());
        assert_eq!((first(&found).1, ledger.lost()), (false, LOST), "{ledger}");
    }
}

#[test]
fn a_checksum_of_zero_is_no_broken_card() {
    let came = [("Udp6.InErrors", LOST), ("Udp6.InCsumErrors", LOST)];
    let zero = drop_at("UDP_CSUM", "", MARK_ZERO_CHECKSUM);
    let (found, _) = look(&came, std::slice::from_ref(&zero), asked(Some(53)), |_| ());
    let (check, _, sure, words) = first(&found);
    assert_eq!(
        (check, sure, found.len()),
        ("checksum", Confidence::Certain, 1),
        "{words}"
    );
    assert!(
        words.contains("checksum is zero") && !words.contains("ethtool"),
        "{words}"
    );
    // Some are wrong, too.
    let both = came.map(|(name, count)| (name, 2 * count));
    let (found, _) = look(
        &both,
        &[zero, drop_at("UDP_CSUM", "", 0)],
        asked(Some(53)),
        |_| (),
    );
    let (_, _, sure, words) = first(&found);
    assert_eq!((sure, found.len()), (Confidence::Likely, 1), "{words}");
    assert!(
        words.contains("checksum is zero") && words.contains("ethtool"),
        "{words}"
    );
}

#[test]
fn fragments_too_far_apart_all_came() {
    let came = [
        ("Ip.InReceives", 4 * LOST),
        ("Ip.ReasmReqds", 4 * LOST),
        ("Ip.ReasmFails", LOST),
    ];
    let other = DropCount {
        ours: false,
        ..drop_at("FRAG_TOO_FAR", "", 0)
    };
    // Waiting fragments no longer know their namespace.
    let unknown = DropCount {
        netns: crate::counters::drop_probe::UNKNOWN_NAMESPACE,
        ..other.clone()
    };
    for (drop, expected) in [
        (drop_at("FRAG_TOO_FAR", "", 0), Confidence::Certain),
        (other, Confidence::Certain),
        (unknown, Confidence::Likely),
    ] {
        let (found, ledger) = look(&came, &[drop], asked(Some(53)), |facts| {
            facts.reassembling = [("FRAG", 400)].into();
            facts.settings = [("net.ipv4.ipfrag_max_dist", 64)].into();
        });
        let (check, _, sure, words) = first(&found);
        assert_eq!((check, sure, found[0].count), ("fragments", expected, LOST));
        assert!(words.contains("ipfrag_max_dist is 64"), "{words}");
        let all: String = found.iter().map(|one| &*one.what).collect();
        for false_words in [
            "the rest did not",
            "no memory",
            "already waited",
            "nothing arrived",
        ] {
            assert!(!all.contains(false_words), "{all}");
        }
        assert_eq!(ledger.lost(), LOST, "{ledger}");
    }
}

#[test]
fn a_wrong_length_is_told_though_reasons_are_read_earlier() {
    let came = [("Udp.InErrors", LOST)];
    let short = DropCount {
        datagrams: LOST - 15,
        skbs: LOST - 15,
        ..drop_at("PKT_TOO_SMALL", "", 0)
    };
    let (found, _) = look(&came, &[short], asked(Some(53)), |_| ());
    let (check, _, sure, words) = first(&found);
    assert_eq!(
        (check, sure, found.len()),
        ("udp_errors", Confidence::Likely, 1),
        "{words}"
    );
    assert!(
        words.contains("UDP header") && !words.contains("root"),
        "{words}"
    );
    // The drops of a filter are not reported twice.
    let filter = DropCount {
        datagrams: LOST - 15,
        ..drop_at("SOCKET_FILTER", "", 0)
    };
    let (found, _) = look(&came, &[filter], asked(Some(53)), |_| ());
    assert_eq!(told(&found), is(&[("drop_reason", LOST - 15)]));
}

#[test]
fn the_way_to_see_reasons_is_told_only_without_them() {
    let (before, after) = (
        host(&[("Udp.InErrors", 0)]),
        later(host(&[("Udp.InErrors", LOST)])),
    );
    let refused = DoctorRequest {
        no_reasons: Some("use a kernel built with BTF".to_owned()),
        ..asked(None)
    };
    for (drops, asked, hint) in [
        (None, asked(None), Some("as root")),
        (None, refused, Some("if you use a kernel built with BTF")),
        (Some((&[][..], &[][..], 1)), asked(None), None),
    ] {
        let found = findings(&Observed::new(&before, &after, drops, asked));
        let (.., words) = first(&found);
        let is_told = words.contains("reads the kernel's drop reasons");
        assert_eq!(is_told, hint.is_some(), "{words}");
        assert!(hint.is_none_or(|hint| words.contains(hint)), "{words}");
    }
}

#[test]
fn a_filter_of_tc_is_no_queue_and_no_full_buffer() {
    let out = [("Udp.OutDatagrams", 0), ("Udp.SndbufErrors", LOST + 5)];
    let sent = DropCount {
        sent: true,
        ..drop_at("TC_EGRESS", "", 0)
    };
    let (found, _) = look(&out, &[sent], asked(Some(53)), |_| ());
    let words: String = found.iter().map(|one| &*one.what).collect();
    assert!(
        words.contains("BPF program of tc at an interface's egress"),
        "{words}"
    );
    assert!(
        !words.contains("queueing discipline") && !words.contains("EAGAIN"),
        "{words}"
    );
}

#[test]
fn a_filter_at_the_other_end_is_told_as_far_as_its_reason_tells() {
    let at = |filtered: u64| {
        let mut facts = host(&[]);
        facts.snapshot.links = [("eth0".to_owned(), link(&[], LinkCounters::default()))].into();
        let end = FarEnd {
            namespace: "init".to_owned(),
            name: "veth7".to_owned(),
            filter_drops: Some(filtered),
            ..FarEnd::default()
        };
        facts.far_ends = [("eth0".to_owned(), end)].into();
        facts
    };
    let (before, after) = (at(7), later(at(7 + LOST)));
    let theirs = [DropCount {
        netns: 2,
        ..drop_at("TC_EGRESS", "", 0)
    }];
    // Without that reason it dropped what came from here.
    for (drops, sure) in [
        (Some(&theirs[..]), Some(Confidence::Likely)),
        (Some(&[]), None),
        (None, Some(Confidence::Possible)),
    ] {
        let drops = drops.map(|now| (&[][..], now, 1));
        let found = findings(&Observed::new(&before, &after, drops, asked(Some(53))));
        let far = found.iter().find(|one| one.check == "far_end");
        assert_eq!(far.map(|one| one.confidence), sure, "{found:#?}");
        let silent = found.iter().any(|one| one.check == "nothing_arrives");
        assert_eq!(silent, sure.is_none(), "{found:#?}");
        assert!(far.is_none_or(|one| one.remedy.contains("tc -s filter show dev veth7 egress")));
    }
}

#[test]
fn a_capture_that_loses_is_named_and_is_a_remark_unless_asked_for() {
    let copies = [drop_at("PACKET_SOCK_ERROR", "", 0)];
    let has_socket = |facts: &mut Observation| {
        let queued_bytes = 60_000;
        facts.packet_sockets = vec![CaptureSocket {
            inode: 9,
            queued_bytes,
        }];
        has(facts, 9, owner(0, 0));
    };
    for (pid, is_remark) in [(None, true), (Some(812), false), (Some(813), true)] {
        let asked = DoctorRequest { pid, ..asked(None) };
        let (found, ledger) = look(&[], &copies, asked, has_socket);
        let (check, remark, _, words) = first(&found);
        assert_eq!((check, remark), ("packet_socket", is_remark), "{words}");
        assert!(words.contains("unbound1 (pid 812)"), "{words}");
        assert!(words.contains("| a larger SO_RCVBUF"), "{words}");
        assert_eq!((ledger.offered, ledger.lost()), (0, 0), "{ledger}");
    }
    let (found, _) = look(&[], &[], asked(None), has_socket);
    assert_eq!(told(&found), is(&[]));
}

#[test]
fn dropped_igmp_is_told_if_a_group_needs_it() {
    let igmp = DropCount {
        ours: false,
        ..drop_at("NETFILTER_DROP", "", MARK_IGMP | MARK_OPTIONS)
    };
    let elsewhere = DropCount {
        netns: 2,
        ..drop_at("NO_TX_TARGET", "", 0)
    };
    let both = [igmp.clone(), elsewhere];
    // Whether it is reported, and as a remark.
    for (drops, group, expected) in [
        (&[igmp][..], "239.1.1.1", Some(true)),
        (&both, "239.1.1.1", Some(false)),
        (&both, "224.0.0.251", None),
        (&both[1..], "239.1.1.1", None),
    ] {
        let (found, _) = look(&[], drops, asked(None), |facts| {
            facts.groups = vec![joined(group, &[])];
        });
        let told = found.iter().find(|one| one.check == "firewall");
        assert_eq!(told.map(|one| one.is_remark), expected, "{found:#?}");
        assert!(told.is_none_or(|one| one.what.contains("IGMP")));
    }
}

#[test]
fn dropped_errors_of_icmp_are_no_datagrams() {
    let icmp = |datagrams| DropCount {
        ours: false,
        datagrams,
        ..drop_at("NETFILTER_DROP", "", MARK_ICMP_ERROR)
    };
    for (drop, expected) in [
        (icmp(LOST), true),
        (icmp(1), false),
        // A ping.
        (
            DropCount {
                marks: 0,
                ..icmp(LOST)
            },
            false,
        ),
    ] {
        let left = LOST - drop.datagrams;
        let (found, ledger) = look(&AT_IP, &[drop], asked(None), |_| ());
        let told = found.iter().find(|one| one.check == "firewall");
        let says = |one: &Finding| one.what.contains("error messages") && !one.is_remark;
        assert_eq!(told.is_some_and(says), expected, "{found:#?}");
        assert_eq!(ledger.offered, left, "{ledger}");
    }
}
