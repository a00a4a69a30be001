//! Hosts that receive fragments.

use super::link;
use super::scene::{Scene, common, finds, mentions, tells};
use crate::check::Finding;

/// A host that received fragments. The numbers: fragments that came, datagrams that became whole, failed datagrams,
/// and datagrams that wait at the end.
fn after(v6: bool, counts: [u64; 4]) -> Scene {
    with(v6, counts, "")
}

/// The same, with more counters.
fn with(v6: bool, [came, whole, fails, waits]: [u64; 4], more: &str) -> Scene {
    let (ip, name) = match v6 {
        false => ("Ip", "FRAG"),
        true => ("Ip6", "FRAG6"),
    };
    let scene = Scene::grown(&format!(
        "{ip}.InReceives {came}, {ip}.ReasmReqds {came}, {ip}.ReasmOKs {whole}, {ip}.ReasmFails {fails}, {more}"
    ));
    scene.now(|after| after.reassembling = [(name, waits)].into())
}

#[test]
fn datagrams_that_wait_for_fragments_are_no_healthy_flow() {
    for v6 in [false, true] {
        // Only first fragments, and then with a healthy flow beside them.
        for grown in [[200, 0, 0, 200], [1, 0, 0, 1], [90_200, 2000, 0, 240]] {
            let found = after(v6, grown).found();
            tells(&found, "fragments 0 possible alone");
            let (what, proof) = (&found[0].what, found[0].evidence.iter());
            assert!(
                what.starts_with(&format!("{} datagrams wait", grown[3])),
                "{what}"
            );
            mentions(what, "!memory");
            let proof: Vec<_> = proof.map(|one| (&*one.source, one.grown())).collect();
            let expected = match v6 {
                false => ["FRAG inuse (sockstat)", "Ip.ReasmReqds"],
                true => ["FRAG6 inuse (sockstat)", "Ip6.ReasmReqds"],
            };
            assert_eq!(proof, [(expected[0], grown[3]), (expected[1], grown[0])]);
        }
        // Datagrams of 2 to 45 fragments, with some on their way; and old fragments that wait.
        after(v6, [2000, 1000, 0, 0]).finds("");
        after(v6, [45_000, 1000, 0, 20]).finds("");
        after(v6, [3, 1, 0, 1]).finds("");
        after(v6, [0, 0, 0, 9]).finds("");
        // Some are lost by now.
        after(v6, [90, 0, 30, 60]).finds("fragments 30, fragments 0");
        // If memory is short, the finding about failed datagrams covers the rest.
        after(v6, [2000, 0, 1999, 1]).finds("fragments 1999");
    }
}

#[test]
fn the_share_of_a_loss_is_of_datagrams_and_not_of_fragments() {
    for (v6, fails, waits) in [
        (false, 0, 0),
        (false, 300, 0),
        (true, 300, 0),
        (false, 300, 9),
    ] {
        // Ten fragments each, and of the failed ones nine.
        let came = 1000 * 10 + (fails + waits) * 9;
        let more = match v6 {
            false => "Ip.InDelivers 1000, Udp.InDatagrams 1000",
            true => "Ip6.InDelivers 1000, Udp6.InDatagrams 1000",
        };
        let ledger = with(v6, [came, 1000, fails, waits], more).ledger();
        let counts = (ledger.offered, ledger.delivered, ledger.lost());
        // Those that wait came too.
        assert_eq!(counts, (1000 + fails + waits, 1000, fails), "{ledger}");
    }
}

#[test]
fn what_waited_before_is_no_loss_of_this_time() {
    for (v6, name) in [(false, "FRAG"), (true, "FRAG6")] {
        // Failed, waited before, and so lost meanwhile.
        for (waited, lost, expected) in [
            (600, 0, "fragments 0"),
            (9000, 0, "fragments 0"),
            (100, 500, "fragments 500, fragments 0"),
            (0, 600, "fragments 600"),
        ] {
            let mut scene = after(v6, [600, 0, 600, 0]);
            scene.before.reassembling.insert(name, waited);
            let found = scene.found();
            finds(&found, expected);
            let old = format!("{} datagrams were given up", 600 - lost);
            let says = |found: &Finding| found.what.starts_with(&old);
            assert_eq!(found.iter().any(says), lost < 600, "{found:?}");
            let ledger = scene.ledger();
            let rows = ledger.losses.iter().map(|loss| loss.count);
            assert_eq!(rows.sum::<u64>(), lost, "{ledger}");
        }
    }
}

#[test]
fn where_fragments_came_no_firewall_is_named() {
    let said = |mut scene: Scene, parts: &str| {
        for (facts, counters) in [
            (&mut scene.before, ""),
            (&mut scene.after, "rx_packets 200"),
        ] {
            let link = link(&[], common(counters));
            facts.snapshot.links.insert("eth0".to_owned(), link);
        }
        let mut found = scene.port(53).found();
        found.retain(|one| one.check == "nothing_arrives");
        tells(&found, &format!("nothing_arrives: {parts}"));
    };
    let pieces = after(false, [200, 0, 0, 200]);
    said(pieces, "200 fragments reached IP | !firewall");
    // Whole datagrams of another protocol are no matter of fragments.
    for (came, whole) in [(200, 100), (0, 0)] {
        let counters = format!("Ip.InReceives 200, Ip.ReasmReqds {came}, Ip.ReasmOKs {whole}");
        let other = after(false, [200, 0, 0, 200]).counting(&counters);
        said(other, "a firewall | !fragment");
    }
}

#[test]
fn fragments_that_overlap_lack_no_memory() {
    for (v6, overlaps, parts) in [
        (false, 50, "overlap | broken | !memory | !did not"),
        (false, 30, "overlap | of 20 the rest | memory"),
        (false, 0, "memory | !overlap"),
        (true, 0, "or they overlap"),
    ] {
        let more = format!("IpExt.ReasmOverlaps {overlaps}");
        let scene = with(v6, [100, 0, 50, 0], &more);
        scene.tells(&format!("fragments 50 likely alone: {parts}"));
    }
}

#[test]
fn each_datagram_counts_once_in_the_ledger() {
    for (v6, udp) in [(false, "Udp"), (true, "Udp6")] {
        // Datagrams of three fragments: whole; some failed; some wait.
        for ([came, whole, fails, waits], expected) in [
            ([3000, 1000, 0, 0], [1000, 0]),
            ([2700, 800, 100, 0], [900, 0]),
            ([2700, 800, 0, 100], [900, 100]),
        ] {
            let more = format!("{udp}.InDatagrams {whole}");
            let ledger = with(v6, [came, whole, fails, waits], &more).ledger();
            let counts = [ledger.offered as i64, ledger.unaccounted];
            assert_eq!(counts, expected, "{ledger}");
        }
    }
}
