//! Drops whose function, or whose packets, decide between causes of one reason.

use super::scene::common;
use super::*;
use crate::facts::far_end::FarEnd;
use crate::facts::{CaptureSocket, FilterQueue, JoinedGroup, ProcessLoad};

fn joined(group: &str, only_from: &[&str]) -> JoinedGroup {
    let address = |text: &str| text.parse().expect("an address");
    JoinedGroup {
        interface: "eth1".to_owned(),
        group: address(group),
        only_from: only_from.iter().map(|one| address(one)).collect(),
    }
}

const AT_IP: &str = "Ip.InReceives 1000, Ip.InDelivers 0";

#[test]
fn a_function_or_a_mark_tells_the_cause() {
    for (counters, drop, expected) in [
        (
            AT_IP,
            "NOT_SPECIFIED@ip_rcv_finish_core+options",
            "likely: source route | !group",
        ),
        (
            AT_IP,
            "NOT_SPECIFIED@ip_error",
            "likely: blackhole | !not known",
        ),
        (
            AT_IP,
            "NOT_SPECIFIED@ip_forward",
            "likely: TPROXY | !blackhole",
        ),
        // Frames for others do not reach IP; nor does what an unknown function dropped.
        ("", "OTHERHOST+own", "likely: VLAN tag | !neighbours"),
        ("", "OTHERHOST", "possible: another host's | !VLAN"),
        (
            "",
            "NOT_SPECIFIED@new_function+options",
            "possible: dropped them in new_function | !veth",
        ),
        (
            "",
            "NOT_SPECIFIED@br_forward",
            "possible: no hairpin mode | !not known",
        ),
        (
            "",
            "NOT_SPECIFIED@veth_xmit",
            "likely: full ring of a veth | !not known",
        ),
    ] {
        let scene = Scene::grown(counters)
            .drops(&format!("{drop} 1000"))
            .port(53);
        scene.tells(&format!("drop_reason {expected} | !@ | !+o"));
        let ledger = scene.ledger();
        assert_eq!((ledger.lost(), ledger.unaccounted), (1000, 0), "{ledger}");
    }
}

#[test]
fn a_queue_of_nfqueue_has_no_program_or_is_full() {
    // The drops of a queue at both moments.
    for (queue, expected) in [
        (None, "certain: no program takes that queue | !too slow"),
        (Some([7, 1007]), "likely: too slow | !no program takes"),
        (Some([7, 7]), "possible: too slow | !joined"),
    ] {
        let mut scene = Scene::grown(AT_IP)
            .drops("NOT_SPECIFIED@nf_queue 1000")
            .port(53);
        for (facts, at) in [(&mut scene.before, 0), (&mut scene.after, 1)] {
            let of = |drops: [u64; 2]| FilterQueue {
                full: drops[at],
                came: drops[at],
                ..FilterQueue::default()
            };
            let queues = queue.map(|drops| (3, of(drops)));
            facts.packet_filter.queues = Some(queues.into_iter().collect());
        }
        scene.tells(&format!("drop_reason alone {expected}"));
    }
}

#[test]
fn a_program_of_nfqueue_that_decides_nothing_is_told() {
    let hangs = "likely: its program, python3 (pid 9), decided on none | wchan | !too slow";
    let slow = "likely: its program, python3 (pid 9), is too slow | !wchan";
    // Packets that came, that wait at the end, and that its socket had no room for.
    for (came, waiting, address, expected) in [
        (1000, 50, 9, hangs),
        (1060, 50, 9, slow),
        (
            1000,
            50,
            8,
            "likely: its program decided on none | /proc/PID | !pid 9",
        ),
    ] {
        let mut scene = Scene::grown(AT_IP)
            .drops("NOT_SPECIFIED@nf_queue 1000")
            .port(53);
        let queue = |came, waiting, no_room| FilterQueue {
            address,
            came,
            waiting,
            full: 0,
            no_room,
        };
        let queues = [queue(0, 50, 0), queue(came, waiting, 1000)];
        for (facts, queue) in [&mut scene.before, &mut scene.after]
            .into_iter()
            .zip(queues)
        {
            facts.packet_filter.queues = Some([(3, queue)].into());
        }
        let name = "python3".to_owned();
        scene.before.loads = [(
            9,
            ProcessLoad {
                name,
                ..ProcessLoad::default()
            },
        )]
        .into();
        scene.tells(&format!("drop_reason alone {expected}"));
    }
}

#[test]
fn generic_xdp_is_told_as_xdp_with_its_program() {
    for place in ["do_xdp_generic", "netif_receive_generic_xdp"] {
        let drops = format!("NOT_SPECIFIED@{place}+group 1000");
        let scene = Scene::grown("").drops(&drops).port(53).both(|facts| {
            facts.xdp_programs = vec!["ddos (id 7) at eth1, generic mode".to_owned()];
        });
        scene.tells("xdp_drop alone: ddos (id 7) at eth1");
    }
}

#[test]
fn groups_of_others_are_no_loss_and_missed_ones_are() {
    let drops = "NOT_SPECIFIED@ip_rcv_finish_core+group 1000";
    let scene = Scene::grown(AT_IP).drops(drops).both(|facts| {
        facts.sockets = vec![socket("0.0.0.0:53", 1, 0)];
        facts.groups = vec![joined("232.1.1.1", &["10.0.0.9"]), joined("239.0.0.1", &[])];
        facts.settings = [("net.ipv4.igmp_max_memberships", 2)].into();
    });
    scene.tells("unrouted remark").sums([0; 3]);
    // The port has a socket, and it joined others.
    let scene = scene.port(53);
    scene.tells("unrouted: only from 10.0.0.9 | igmp_max_memberships=8 (it is 2) | ENOBUFS");
    assert_eq!(scene.ledger().lost(), 1000);
    scene.drops(&format!("{drops} other")).sums([0; 3]);
}

#[test]
fn frames_for_other_hosts_are_a_remark_beside_traffic() {
    for port in [None, Some(53)] {
        let busy = "Ip.InReceives 50, Ip.InDelivers 50, Udp.InDatagrams 50";
        let scene = Scene::grown(busy).port(port);
        let frames = scene.clone().drops("OTHERHOST 1000");
        frames.tells("drop_reason remark alone").sums([50, 0, 0]);
        // A VLAN tag is a loss whatever comes beside it.
        let tagged = scene.drops("OTHERHOST+own 1000");
        assert_eq!(tagged.tells("drop_reason").ledger().lost(), 1000);
    }
}

#[test]
fn a_checksum_of_zero_is_no_broken_card() {
    let zero = Scene::grown("Udp6.InErrors 1000, Udp6.InCsumErrors 1000").port(53);
    let zero = zero.drops("UDP_CSUM+zero 1000");
    zero.tells("checksum certain alone: checksum is zero | !ethtool");
    // Some are wrong, too.
    let both = Scene::grown("Udp6.InErrors 2000, Udp6.InCsumErrors 2000").port(53);
    let both = both.drops("UDP_CSUM+zero 1000, UDP_CSUM 1000");
    both.tells("checksum likely alone: checksum is zero | ethtool");
}

#[test]
fn fragments_too_far_apart_all_came() {
    for (drop, expected) in [
        ("FRAG_TOO_FAR 1000", "certain"),
        ("FRAG_TOO_FAR 1000 other", "certain"),
        // Waiting fragments no longer know their namespace.
        ("FRAG_TOO_FAR 1000 other unknown", "likely"),
    ] {
        let came = "Ip.InReceives 4000, Ip.ReasmReqds 4000, Ip.ReasmFails 1000";
        let scene = Scene::grown(came).drops(drop).port(53).both(|facts| {
            facts.reassembling = [("FRAG", 400)].into();
            facts.settings = [("net.ipv4.ipfrag_max_dist", 64)].into();
        });
        let words = "ipfrag_max_dist is 64";
        scene.tells(&format!("fragments 1000 {expected}: {words}"));
        let all: String = scene.found().iter().map(|one| &*one.what).collect();
        mentions(
            &all,
            "!the rest did not | !no memory | !already waited | !nothing arrived",
        );
        assert_eq!(scene.ledger().lost(), 1000);
    }
}

#[test]
fn a_wrong_length_is_told_though_reasons_are_read_earlier() {
    let errors = Scene::grown("Udp.InErrors 1000").port(53);
    let short = errors.clone().drops("PKT_TOO_SMALL 985");
    short.tells("udp_errors likely alone: UDP header | !root");
    // The drops of a filter are not reported twice.
    errors.drops("SOCKET_FILTER 985").finds("drop_reason 985");
}

#[test]
fn the_way_to_see_reasons_is_told_only_without_them() {
    let scene = Scene::grown("Udp.InErrors 1000");
    let words = "reads the kernel's drop reasons";
    mentions(&scene.text(), &format!("{words} | as root"));
    let refused = scene.clone().asking(DoctorRequest {
        no_reasons: Some("use a kernel built with BTF".to_owned()),
        ..asked(None)
    });
    let hint = "if you use a kernel built with BTF";
    mentions(&refused.text(), &format!("{words} | {hint}"));
    mentions(&scene.drops("").text(), &format!("!{words}"));
}

#[test]
fn a_filter_of_tc_is_no_queue_and_no_full_buffer() {
    let scene = Scene::grown("Udp.OutDatagrams 0, Udp.SndbufErrors 1005").port(53);
    let found = scene.drops("TC_EGRESS 1000 sent").found();
    let words: String = found.iter().map(|one| &*one.what).collect();
    let program = "BPF program of tc at an interface's egress";
    mentions(
        &words,
        &format!("{program} | !queueing discipline | !EAGAIN"),
    );
}

#[test]
fn a_filter_at_the_other_end_is_told_as_far_as_its_reason_tells() {
    let mut scene = Scene::grown("").port(53);
    for (facts, filtered) in [(&mut scene.before, 7), (&mut scene.after, 1007)] {
        facts.snapshot.links = [("eth0".to_owned(), link(&[], common("")))].into();
        let end = FarEnd {
            namespace: "init".to_owned(),
            name: "veth7".to_owned(),
            filter_drops: Some(filtered),
            ..FarEnd::default()
        };
        facts.far_ends = [("eth0".to_owned(), end)].into();
    }
    // Without that reason it dropped what came from here.
    scene.clone().drops("").finds("nothing_arrives 0");
    let dropped = scene.clone().drops("TC_EGRESS 1000 elsewhere");
    for (scene, sure) in [(scene, "possible"), (dropped, "likely")] {
        let found = scene.found();
        let command = "tc -s filter show dev veth7 egress";
        tells(&found, &format!("far_end {sure}: {command}"));
        assert!(found.iter().all(|one| one.check != "nothing_arrives"));
    }
}

#[test]
fn a_capture_that_loses_is_named_and_is_a_remark_unless_asked_for() {
    for (pid, remark) in [(None, " remark"), (Some(812), ""), (Some(813), " remark")] {
        let scene = Scene::grown("").asking(DoctorRequest { pid, ..asked(None) });
        let scene = scene.drops("PACKET_SOCK_ERROR 1000").both(|facts| {
            let queued_bytes = 60_000;
            facts.packet_sockets = vec![CaptureSocket {
                inode: 9,
                queued_bytes,
            }];
            has(facts, 9, owner(0, 0));
        });
        scene
            .tells(&format!("packet_socket{remark}: unbound1 (pid 812)"))
            .sums([0; 3]);
        let remedy = &scene.found()[0].remedy;
        assert!(remedy.starts_with("a larger SO_RCVBUF"), "{remedy}");
        scene.drops("").finds("");
    }
}

#[test]
fn dropped_igmp_is_told_if_a_group_needs_it() {
    let igmp = "NETFILTER_DROP+igmp+options 1000 other";
    let both = format!("{igmp}, NO_TX_TARGET 1000 elsewhere");
    // Whether it is reported, and as a remark.
    for (drops, group, expected) in [
        (igmp, "239.1.1.1", "firewall remark: IGMP"),
        (&both, "239.1.1.1", "firewall: IGMP"),
        (&both, "224.0.0.251", ""),
        ("NO_TX_TARGET 1000 elsewhere", "239.1.1.1", ""),
    ] {
        let scene = Scene::grown("").drops(drops);
        let scene = scene.both(|facts| facts.groups = vec![joined(group, &[])]);
        let mut found = scene.found();
        found.retain(|one| one.check == "firewall");
        tells(&found, expected);
    }
}

#[test]
fn dropped_errors_of_icmp_are_no_datagrams() {
    for (drops, expected, left) in [
        (
            "NETFILTER_DROP+icmp 1000 other",
            "firewall: error messages",
            0,
        ),
        ("NETFILTER_DROP+icmp 1 other", "", 999),
        // A ping.
        ("NETFILTER_DROP 1000 other", "", 0),
    ] {
        let scene = Scene::grown(AT_IP).drops(drops);
        let mut found = scene.found();
        found.retain(|one| one.check == "firewall" && !one.is_remark);
        tells(&found, expected);
        assert_eq!(scene.ledger().offered, left);
    }
}
