//! One loss, one count: the findings and the ledger have the same.

use super::super::drop_reasons::{Fate, named};
use super::*;

pub(super) const LOST: u64 = 300;

/// Each loss that IP and UDP count, with the counters of the same packets.
const COUNTED: [&[&str]; 24] = [
    &["Ip.InHdrErrors"],
    &["Ip6.InHdrErrors"],
    &["Ip.InAddrErrors"],
    &["Ip6.InAddrErrors"],
    &["Ip.InDiscards"],
    &["Ip6.InDiscards"],
    &["IpExt.InTruncatedPkts"],
    &["Ip6.InTruncatedPkts"],
    &["IpExt.InNoRoutes"],
    &["Ip6.InNoRoutes"],
    &["TcpExt.IPReversePathFilter"],
    &["Ip.InDelivers", "Udp.NoPorts"],
    &["Ip6.InDelivers", "Udp6.NoPorts"],
    &["Ip.InDelivers", "Udp.IgnoredMulti"],
    &["Ip6.InDelivers", "Udp6.IgnoredMulti"],
    &["Ip.InDelivers", "Udp.InErrors"],
    &["Ip6.InDelivers", "Udp6.InErrors"],
    &["Ip.InDelivers", "Udp.InErrors", "Udp.InCsumErrors"],
    &["Ip6.InDelivers", "Udp6.InErrors", "Udp6.InCsumErrors"],
    &["Ip.InDelivers", "Udp.InErrors", "Udp.MemErrors"],
    &["Ip6.InDelivers", "Udp6.InErrors", "Udp6.MemErrors"],
    &["Ip.InDelivers", "Udp.InErrors", "Udp.RcvbufErrors"],
    &["Ip6.InDelivers", "Udp6.InErrors", "Udp6.RcvbufErrors"],
    &["Ip.ReasmReqds", "Ip.ReasmFails"],
];

/// A host that received `LOST` packets. These counters grew by as many.
pub(super) fn look(counters: &[&str]) -> Scene {
    let received = match counters.iter().any(|name| name.contains("6.")) {
        true => "Ip6.InReceives",
        false => "Ip.InReceives",
    };
    let both = "Ip.InReceives 0, Ip6.InReceives 0, Ip.InDelivers 0, Ip6.InDelivers 0";
    let grown = counters.iter().chain([&received]);
    let grown: String = grown.map(|name| format!(", {name} {LOST}")).collect();
    Scene::grown(&format!("{both}{grown}"))
}

/// The findings together lost this, and the ledger did.
#[track_caller]
fn loses(scene: &Scene, expected: u64) {
    let found = scene.found();
    let count: u64 = found.iter().map(|one| one.count).sum();
    let lost = scene.ledger().lost();
    assert_eq!((count, lost), (expected, expected), "{found:#?}");
}

#[test]
fn each_counted_loss_is_found_and_in_the_ledger() {
    for counters in COUNTED {
        for scene in [look(counters), look(counters).drops("")] {
            loses(scene.sums([300, 300, 0]), LOST);
            assert_eq!(scene.found().len(), 1, "{counters:?}");
        }
    }
}

#[test]
fn what_ip_lost_of_another_protocol_is_no_loss_of_udp() {
    for (counter, reason, check) in [
        ("Ip.InAddrErrors", "IP_INADDRERRORS", "address"),
        ("IpExt.InNoRoutes", "IP_INNOROUTES", "ip_discards"),
        ("TcpExt.IPReversePathFilter", "IP_RPFILTER", "reverse_path"),
    ] {
        for (others, lost) in [(0, 300), (293, 7), (300, 0)] {
            let drops = format!("{reason} {others} other, {reason} {lost}");
            let expected = match lost {
                0 => String::new(),
                _ => format!("{check} {lost}"),
            };
            let scene = look(&[counter]).drops(&drops);
            scene.finds(&expected).sums([lost, lost, 0]);
        }
    }
}

/// For these the kernel names reasons since it names any.
const NAMED: [&str; 3] = ["NoPorts", "MemErrors", "RcvbufErrors"];

#[test]
fn a_counted_loss_without_a_reason_is_told_once() {
    let is_named = |counters: &&[&str]| {
        let mut parts = counters.iter().filter_map(|name| name.split('.').nth(1));
        parts.any(|name| NAMED.contains(&name))
    };
    for counters in COUNTED.into_iter().filter(|one| !is_named(one)) {
        let nameless = look(counters).drops("NOT_SPECIFIED 300");
        loses(nameless.sums([300, 300, 0]), LOST);
        // Drops of a full veth ring beside it are reported as such.
        loses(&look(counters).drops("NOT_SPECIFIED 307"), LOST + 7);
    }
}

#[test]
fn each_drop_reason_is_told_once_and_in_the_ledger() {
    for (reason, fate) in named() {
        let drops = format!("{reason} {LOST}");
        let delivered: &[&str] = match fate {
            Fate::Delivered => &["Ip.InDelivers", "Udp.InDatagrams"],
            _ => &[],
        };
        let scene = look(delivered).drops(&drops);
        if *fate == Fate::Outward {
            // The hole in what came stays one.
            scene.finds("way_out 300, unaccounted 0");
            assert_eq!(scene.ledger().lost(), 0, "{reason}");
            continue;
        }
        loses(&scene, scene.ledger().lost());
        match fate {
            Fate::Checked | Fate::Harmless => {}
            _ => {
                let ledger = scene.ledger();
                let counts = (ledger.lost(), ledger.unaccounted);
                assert_eq!(counts, (LOST, 0), "{reason} {ledger}");
            }
        }
        let counters = match fate {
            Fate::Counted(all) => all.clone(),
            Fate::Explains(kind) => vec![*kind],
            _ => continue,
        };
        for kind in counters {
            let name = kind.counters[0].trim_end_matches(" beyond its parts");
            let counters: &[&str] = match name.starts_with("Udp") {
                true => &["Ip.InDelivers", "Udp.InErrors", name],
                false => &[name],
            };
            let scene = look(counters).drops(&drops);
            loses(&scene, LOST);
            assert_eq!(scene.found().len(), 1, "{reason} {name}");
            assert_eq!(scene.ledger().unaccounted, 0, "{reason} {name}");
        }
    }
}

#[test]
fn a_tunnel_that_drops_takes_back_what_udp_delivered() {
    let scene = look(&["Ip.InDelivers", "Udp.InDatagrams"]).drops("VXLAN_VNI_NOT_FOUND 300");
    loses(&scene, LOST);
    let ledger = scene.ledger();
    assert_eq!((ledger.delivered, ledger.unaccounted), (0, 0), "{ledger}");
}

#[test]
fn what_no_counter_has_is_never_health() {
    // Without root the packets of a firewall, of a blackhole and of an IP option are in no counter.
    let hidden = look(&[]);
    hidden.tells("unaccounted 0 alone: 300 packets");
    hidden.sums([300, 0, 300]);
    // Packets that IP delivered to another protocol, or UDP to a reader, are no problem.
    look(&["Ip.InDelivers"]).finds("");
    look(&["Ip.InDelivers", "Udp.InDatagrams"]).finds("");
    // Nor is what the kernel dropped of other protocols, as the reasons show, or an unknown protocol.
    hidden.drops("NETFILTER_DROP 300 other").finds("");
    look(&["Ip.InUnknownProtos"]).finds("").sums([0; 3]);
}

#[test]
fn a_port_that_is_asked_for_misses_its_broadcasts() {
    let scene = Scene::grown("Ip.InReceives 300, Ip.InDelivers 300, Udp.IgnoredMulti 300");
    let scene = scene.now(|after| after.sockets = vec![socket("192.168.254.1:4999", 7, 0)]);
    let judged = |drops: &str, port: Option<u16>, expected: &str| {
        let mut found = scene.clone().drops(drops).port(port).found();
        found.retain(|one| one.check == "no_listener");
        tells(&found, expected);
    };
    let words = "port 4999 | 192.168.254.1:4999";
    let all = "NOT_SPECIFIED 300";
    judged(all, Some(4999), &format!("no_listener 300: {words}"));
    judged("", Some(4999), "no_listener remark");
    judged(all, None, "no_listener remark");
}

#[test]
fn a_socket_that_takes_only_some_is_named_without_a_port() {
    let scene = Scene::grown("Ip.InReceives 300, Ip.InDelivers 300, Udp.NoPorts 300");
    let scene = scene.now(|after| {
        let connected = UdpEntry {
            remote: Some("192.168.254.77:9".parse().expect("an address")),
            ..socket("192.168.254.1:4321", 7, 0)
        };
        after.sockets = vec![connected, socket("0.0.0.0:53", 8, 0)];
    });
    let words = "no socket took them | 192.168.254.1:4321 (only from 192.168.254.77:9) | !:53";
    mentions(&scene.found()[0].what, words);
}
