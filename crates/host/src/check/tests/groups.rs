//! Packets to groups that no program here has joined, and packets that look like them.

use super::*;

#[test]
fn ipv6_groups_that_nobody_joined_are_a_remark_and_a_full_ring_is_none() {
    // That nothing reached a socket of the port is another matter.
    let judged = |scene: &Scene, drops: &str, port: Option<u16>, expected: &str| {
        let mut found = scene.clone().drops(drops).port(port).found();
        found.retain(|one| one.check != "nothing_arrives");
        finds(&found, expected);
        assert!(
            found
                .iter()
                .all(|one| one.is_remark == (one.check == "unrouted"))
        );
    };
    let came = "Ip6.InReceives 10, Ip6.InDelivers 0, Ip6.InMcastPkts 10";
    let scene = Scene::grown(came);
    for port in [None, Some(5353)] {
        judged(&scene, "NOT_SPECIFIED 10", port, "unrouted 10");
        // A full ring loses before IP.
        judged(
            &scene,
            "NOT_SPECIFIED 17",
            port,
            "drop_reason 7, unrouted 10",
        );
        // Listener reports explain no datagram.
        let reports = "NOT_SPECIFIED 7, NOT_SPECIFIED 10 other";
        judged(&scene, reports, port, "drop_reason 7");
    }
    // Packets to one host were to no group.
    let unicast = Scene::grown("Ip6.InReceives 10, Ip6.InDelivers 0, Ip6.InMcastPkts 0");
    judged(&unicast, "NOT_SPECIFIED 10", None, "drop_reason 10");
    // IGMP of other hosts, dropped without a reason too, is no listener report.
    let both = Scene::grown(&format!("{came}, Ip.InReceives 3, Ip.InDelivers 0"));
    let drops = "NOT_SPECIFIED 10, NOT_SPECIFIED 3 other";
    judged(&both, drops, None, "unrouted 10");
}

#[test]
fn what_ipv4_counts_nowhere_is_told_as_far_as_drops_tell() {
    let came = "Ip.InReceives 210, Ip.InDelivers 10, Udp.InDatagrams 10";
    for (drops, unaccounted, notes) in [
        (
            "NETFILTER_DROP 200 other",
            0,
            "200 packets that were no UDP are left out | !IGMP | !groups",
        ),
        // A neighbour's IGMP, which IpExt.InMcastPkts has not.
        ("", 200, "200 packets | as IGMP of other hosts | !firewall"),
        (
            "NETFILTER_DROP 150 other",
            50,
            "150 packets that were no UDP | 50 packets are | groups that nothing | !firewall",
        ),
        // A loss that has a finding is not reported again.
        (
            "NOT_SPECIFIED 60, NETFILTER_DROP 140 other",
            0,
            "140 packets that were no UDP | !200 packets | !IGMP",
        ),
        ("NOT_SPECIFIED 200", 0, "!packets are in UNACCOUNTED"),
    ] {
        let ledger = Scene::grown(came).drops(drops).ledger();
        assert_eq!(ledger.unaccounted, unaccounted, "{ledger}");
        mentions(&ledger.notes.join("\n"), notes);
    }
}
