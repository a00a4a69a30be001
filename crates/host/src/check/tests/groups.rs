//! Packets to groups that no program here has joined, and packets that look like them.

use super::*;

/// The same of what is no UDP to the port that was asked for.
fn other(reason: &str, packets: u64) -> DropCount {
    DropCount {
        ours: false,
        ..dropped(reason, packets)
    }
}

/// The findings of a host whose counters grew by this. The flag marks remarks.
fn judged(
    grown: &[(&str, u64)],
    drops: &[DropCount],
    port: Option<u16>,
) -> Vec<(String, u64, bool)> {
    let zero: Vec<_> = grown.iter().map(|(name, _)| (*name, 0)).collect();
    let (before, after) = (host(&zero), later(host(grown)));
    let seen = Observed::new(&before, &after, Some((&[], drops, 1)), asked(port));
    let found = findings(&seen).into_iter();
    // That nothing reached a socket of the port is another matter.
    let found = found.filter(|one| one.check != "nothing_arrives");
    found
        .map(|one| (one.check, one.count, one.is_remark))
        .collect()
}

#[test]
fn ipv6_groups_that_nobody_joined_are_a_remark_and_a_full_ring_is_none() {
    let came = [
        ("Ip6.InReceives", 10),
        ("Ip6.InDelivers", 0),
        ("Ip6.InMcastPkts", 10),
    ];
    let remark = ("unrouted".to_owned(), 10, true);
    for port in [None, Some(5353)] {
        let alone = judged(&came, &[dropped("NOT_SPECIFIED", 10)], port);
        assert_eq!(alone, std::slice::from_ref(&remark), "{port:?}");
        // A full ring loses before IP.
        let full = judged(&came, &[dropped("NOT_SPECIFIED", 17)], port);
        let lost = ("drop_reason".to_owned(), 7, false);
        assert_eq!(full, [lost.clone(), remark.clone()], "{port:?}");
        // Listener reports explain no datagram.
        let reports = [dropped("NOT_SPECIFIED", 7), other("NOT_SPECIFIED", 10)];
        assert_eq!(judged(&came, &reports, port), [lost], "{port:?}");
    }
    // Packets to one host were to no group.
    let unicast = [
        ("Ip6.InReceives", 10),
        ("Ip6.InDelivers", 0),
        ("Ip6.InMcastPkts", 0),
    ];
    let lost = judged(&unicast, &[dropped("NOT_SPECIFIED", 10)], None);
    assert_eq!(lost, [("drop_reason".to_owned(), 10, false)]);
    // IGMP of other hosts, dropped without a reason too, is no listener report.
    let both = [&came[..], &[("Ip.InReceives", 3), ("Ip.InDelivers", 0)]].concat();
    let drops = [dropped("NOT_SPECIFIED", 10), other("NOT_SPECIFIED", 3)];
    assert_eq!(judged(&both, &drops, None), [remark]);
}

#[test]
fn what_ipv4_counts_nowhere_is_told_as_far_as_drops_tell() {
    let came = [
        ("Ip.InReceives", 210),
        ("Ip.InDelivers", 10),
        ("Udp.InDatagrams", 10),
    ];
    let said = |drops: &[DropCount], words: &[&str], not: &[&str]| {
        let found = ledger_of(&came, drops);
        let told: u64 = drops.iter().map(|one| one.datagrams).sum();
        assert_eq!(found.unaccounted, 200 - told as i64, "{found}");
        let notes = found.notes.join("\n");
        assert!(words.iter().all(|words| notes.contains(words)), "{found}");
        assert!(!not.iter().any(|words| notes.contains(words)), "{found}");
    };
    said(
        &[other("NETFILTER_DROP", 200)],
        &["200 packets that were no UDP are left out"],
        &["IGMP", "groups"],
    );
    // A neighbour's IGMP, which IpExt.InMcastPkts has not.
    said(
        &[],
        &["200 packets", "as IGMP of other hosts"],
        &["firewall"],
    );
    said(
        &[other("NETFILTER_DROP", 150)],
        &[
            "150 packets that were no UDP",
            "50 packets are",
            "groups that nothing",
        ],
        &["firewall"],
    );
    // A loss that has a finding is not reported again.
    let drops = [dropped("NOT_SPECIFIED", 60), other("NETFILTER_DROP", 140)];
    said(
        &drops,
        &["140 packets that were no UDP"],
        &["200 packets", "IGMP"],
    );
    said(
        &[dropped("NOT_SPECIFIED", 200)],
        &[],
        &["packets are in UNACCOUNTED"],
    );
}
