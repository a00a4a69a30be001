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

/// The findings and the ledger of a host that received `LOST` packets. These counters grew by as
/// many.
pub(super) fn look(counters: &[&str], drops: Option<&[DropCount]>) -> (Vec<Finding>, Ledger) {
    let is_v6 = counters.iter().any(|name| name.contains("6."));
    let received = if is_v6 {
        "Ip6.InReceives"
    } else {
        "Ip.InReceives"
    };
    let both = [
        "Ip.InReceives",
        "Ip6.InReceives",
        "Ip.InDelivers",
        "Ip6.InDelivers",
    ];
    let names: BTreeSet<&str> = both.iter().chain(counters).copied().collect();
    let grown = |name: &str| {
        let grows = name == received || counters.contains(&name);
        if grows { LOST } else { 0 }
    };
    let before: Vec<_> = names.iter().map(|name| (*name, 0)).collect();
    let after: Vec<_> = names.iter().map(|name| (*name, grown(name))).collect();
    let (before, after) = (host(&before), later(host(&after)));
    let drops = drops.map(|drops| (&[][..], drops, 1));
    let seen = Observed::new(&before, &after, drops, asked(None));
    (findings(&seen), ledger(&seen))
}

fn count(findings: &[Finding]) -> u64 {
    findings.iter().map(|one| one.count).sum()
}

#[test]
fn each_counted_loss_is_found_and_in_the_ledger() {
    for counters in COUNTED {
        for drops in [None, Some(&[][..])] {
            let (found, ledger) = look(counters, drops);
            assert_eq!(
                (found.len(), count(&found)),
                (1, LOST),
                "{counters:?} {found:#?}"
            );
            assert_eq!(
                (ledger.lost(), ledger.unaccounted),
                (LOST, 0),
                "{counters:?} {ledger}"
            );
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
        for others in [0, LOST - 7, LOST] {
            let other = DropCount {
                ours: false,
                ..dropped(reason, others)
            };
            let drops = [other, dropped(reason, LOST - others)];
            let (found, ledger) = look(&[counter], Some(&drops));
            let lost = LOST - others;
            let expected: Vec<_> = (lost > 0).then_some((check, lost)).into_iter().collect();
            assert_eq!(told(&found), is(&expected), "{ledger}");
            let counts = (ledger.offered, ledger.lost(), ledger.unaccounted);
            assert_eq!(counts, (lost, lost, 0), "{ledger}");
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
        let nameless = dropped("NOT_SPECIFIED", LOST);
        let (found, ledger) = look(counters, Some(std::slice::from_ref(&nameless)));
        let said = format!("{counters:?} {found:#?} {ledger}");
        assert_eq!((count(&found), ledger.lost()), (LOST, LOST), "{said}");
        assert_eq!((ledger.offered, ledger.unaccounted), (LOST, 0), "{said}");
        // Drops of a full veth ring beside it are reported as such.
        let more = dropped("NOT_SPECIFIED", LOST + 7);
        let (found, ledger) = look(counters, Some(&[more]));
        assert_eq!(
            (count(&found), ledger.lost()),
            (LOST + 7, LOST + 7),
            "{ledger}"
        );
    }
}

#[test]
fn each_drop_reason_is_told_once_and_in_the_ledger() {
    for (reason, fate) in named() {
        let drops = [dropped(reason, LOST)];
        let delivered: &[&str] = match fate {
            Fate::Delivered => &["Ip.InDelivers", "Udp.InDatagrams"],
            _ => &[],
        };
        let (found, ledger) = look(delivered, Some(&drops));
        let said = format!("{reason} {found:#?} {ledger}");
        if *fate == Fate::Outward {
            // The hole in what came stays one.
            let expected = is(&[("way_out", LOST), ("unaccounted", 0)]);
            assert_eq!((told(&found), ledger.lost()), (expected, 0), "{said}");
            continue;
        }
        assert_eq!(count(&found), ledger.lost(), "{said}");
        match fate {
            Fate::Checked | Fate::Harmless => {}
            _ => assert_eq!((ledger.lost(), ledger.unaccounted), (LOST, 0), "{said}"),
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
            let (found, ledger) = look(counters, Some(&drops));
            let said = format!("{reason} {name} {found:#?} {ledger}");
            assert_eq!((found.len(), count(&found)), (1, LOST), "{said}");
            assert_eq!((ledger.lost(), ledger.unaccounted), (LOST, 0), "{said}");
        }
    }
}

#[test]
fn a_tunnel_that_drops_takes_back_what_udp_delivered() {
    let drops = [dropped("VXLAN_VNI_NOT_FOUND", LOST)];
    let (found, ledger) = look(&["Ip.InDelivers", "Udp.InDatagrams"], Some(&drops));
    let told = (
        count(&found),
        ledger.lost(),
        ledger.delivered,
        ledger.unaccounted,
    );
    assert_eq!(told, (LOST, LOST, 0, 0), "{ledger}");
}

#[test]
fn what_no_counter_has_is_never_health() {
    // Without root the packets of a firewall, of a blackhole and of an IP option are in no counter.
    let (found, ledger) = look(&[], None);
    assert_eq!(told(&found), is(&[("unaccounted", 0)]));
    assert!(!found[0].is_remark && found[0].what.contains("300 packets"));
    assert_eq!((ledger.lost(), ledger.unaccounted), (0, LOST as i64));
    // Packets that IP delivered to another protocol, or UDP to a reader, are no problem.
    for counters in [
        &["Ip.InDelivers"][..],
        &["Ip.InDelivers", "Udp.InDatagrams"],
    ] {
        assert_eq!(told(&look(counters, None).0), is(&[]), "{counters:?}");
    }
    // Nor is what the kernel dropped of other protocols, as the reasons show, or an unknown protocol.
    let others = [DropCount {
        ours: false,
        ..dropped("NETFILTER_DROP", LOST)
    }];
    assert_eq!(told(&look(&[], Some(&others)).0), is(&[]));
    let (found, ledger) = look(&["Ip.InUnknownProtos"], None);
    assert!(found.is_empty() && ledger.offered == 0, "{ledger}");
}

#[test]
fn a_port_that_is_asked_for_misses_its_broadcasts() {
    let names = ["Ip.InReceives", "Ip.InDelivers", "Udp.IgnoredMulti"];
    let (before, after) = (names.map(|name| (name, 0)), names.map(|name| (name, LOST)));
    let (before, mut after) = (host(&before), later(host(&after)));
    after.sockets = vec![socket("192.168.254.1:4999", 7, 0)];
    let drops = [dropped("NOT_SPECIFIED", LOST)];
    let judged = |drops: &[DropCount], port| {
        let seen = Observed::new(&before, &after, Some((&[], drops, 1)), asked(port));
        let found = findings(&seen)
            .into_iter()
            .find(|one| one.check == "no_listener");
        let found = found.expect("it is told");
        (found.count, found.is_remark, found.what)
    };
    let (count, is_remark, what) = judged(&drops, Some(4999));
    assert_eq!((count, is_remark), (LOST, false), "{what}");
    assert!(
        what.contains("port 4999") && what.contains("192.168.254.1:4999"),
        "{what}"
    );
    assert!(judged(&[], Some(4999)).1 && judged(&drops, None).1);
}

#[test]
fn a_socket_that_takes_only_some_is_named_without_a_port() {
    let names = ["Ip.InReceives", "Ip.InDelivers", "Udp.NoPorts"];
    let (before, after) = (names.map(|name| (name, 0)), names.map(|name| (name, LOST)));
    let (before, mut after) = (host(&before), later(host(&after)));
    let mut connected = socket("192.168.254.1:4321", 7, 0);
    connected.remote = Some("192.168.254.77:9".parse().expect("an address"));
    after.sockets = vec![connected, socket("0.0.0.0:53", 8, 0)];
    let found = findings(&Observed::new(&before, &after, None, asked(None)));
    let what = &found[0].what;
    assert!(what.contains("no socket took them"), "{what}");
    assert!(
        what.contains("192.168.254.1:4321 (only from 192.168.254.77:9)"),
        "{what}"
    );
    assert!(!what.contains(":53"), "{what}");
}
