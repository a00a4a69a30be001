//! Hosts that receive fragments.

use super::{asked, findings, host, is, later, told};
use crate::check::{Confidence, Finding, Observed};
use crate::facts::Observation;

/// A host before and after a second. The numbers: fragments that came, datagrams that became whole,
/// failed datagrams, and datagrams that wait at the end.
fn after(v6: bool, [came, whole, fails, waits]: [u64; 4]) -> (Observation, Observation) {
    let (ip, name) = match v6 {
        false => ("Ip", "FRAG"),
        true => ("Ip6", "FRAG6"),
    };
    let at = |[received, came, whole, fails]: [u64; 4]| {
        let names = ["InReceives", "ReasmReqds", "ReasmOKs", "ReasmFails"];
        let names = names.map(|counter| format!("{ip}.{counter}"));
        let counters = names.iter().map(|name| &**name);
        let counters: Vec<_> = counters.zip([received, came, whole, fails]).collect();
        host(&counters)
    };
    let mut now = later(at([came, came, whole, fails]));
    now.reassembling.insert(name, waits);
    (at([0; 4]), now)
}

fn look((before, after): &(Observation, Observation), port: Option<u16>) -> Vec<Finding> {
    findings(&Observed::new(before, after, None, asked(port)))
}

#[test]
fn datagrams_that_wait_for_fragments_are_no_healthy_flow() {
    for v6 in [false, true] {
        // Only first fragments, and then with a healthy flow beside them.
        for grown in [[200, 0, 0, 200], [1, 0, 0, 1], [90_200, 2000, 0, 240]] {
            let found = look(&after(v6, grown), None);
            assert_eq!(told(&found), is(&[("fragments", 0)]), "{grown:?}");
            let (what, proof) = (&found[0].what, &found[0].evidence);
            assert!(
                what.starts_with(&format!("{} datagrams wait", grown[3])),
                "{what}"
            );
            assert!(!what.contains("memory"), "{what}");
            let proof: Vec<_> = proof
                .iter()
                .map(|one| (&*one.source, one.grown()))
                .collect();
            let expected = match v6 {
                false => ["FRAG inuse (sockstat)", "Ip.ReasmReqds"],
                true => ["FRAG6 inuse (sockstat)", "Ip6.ReasmReqds"],
            };
            assert_eq!(proof, [(expected[0], grown[3]), (expected[1], grown[0])]);
            assert_eq!(found[0].confidence, Confidence::Possible);
        }
        // Datagrams of 2 to 45 fragments, with some on their way; and old fragments that wait.
        for grown in [
            [2000, 1000, 0, 0],
            [45_000, 1000, 0, 20],
            [3, 1, 0, 1],
            [0, 0, 0, 9],
        ] {
            assert_eq!(told(&look(&after(v6, grown), None)), is(&[]), "{grown:?}");
        }
        let found = look(&after(v6, [90, 0, 30, 60]), None);
        let expected = is(&[("fragments", 30), ("fragments", 0)]);
        assert_eq!(told(&found), expected, "some are lost by now");
        // If memory is short, the finding about failed datagrams covers the rest.
        let found = look(&after(v6, [2000, 0, 1999, 1]), None);
        assert_eq!(told(&found), is(&[("fragments", 1999)]));
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
        let mut hosts = after(v6, [came, 1000, fails, waits]);
        let ip = if v6 { "Ip6" } else { "Ip" };
        let names = ["InDelivers", "InDatagrams"].map(|name| match name {
            "InDelivers" => format!("{ip}.{name}"),
            _ => format!("Udp{}.{name}", ip.trim_start_matches("Ip")),
        });
        for (facts, count) in [(&mut hosts.0, 0), (&mut hosts.1, 1000)] {
            let values = facts.snapshot.snmp.iter();
            let mut values: Vec<_> = values.map(|(name, value)| (name, value as u64)).collect();
            values.extend(names.iter().map(|name| (&**name, count)));
            facts.snapshot.snmp = host(&values).snapshot.snmp;
        }
        let ledger = crate::check::ledger(&Observed::new(&hosts.0, &hosts.1, None, asked(None)));
        let counts = (ledger.offered, ledger.delivered, ledger.lost());
        // Those that wait came too.
        assert_eq!(counts, (1000 + fails + waits, 1000, fails), "{ledger}");
    }
}

#[test]
fn what_waited_before_is_no_loss_of_this_time() {
    for (v6, name) in [(false, "FRAG"), (true, "FRAG6")] {
        // Failed, waited before, and so lost meanwhile.
        for [fails, waited, lost] in [
            [600, 600, 0],
            [600, 9000, 0],
            [600, 100, 500],
            [600, 0, 600],
        ] {
            let mut hosts = after(v6, [fails, 0, fails, 0]);
            hosts.0.reassembling.insert(name, waited);
            let earlier = (fails > lost).then_some(("fragments", 0));
            let expected: Vec<_> = (lost > 0)
                .then_some(("fragments", lost))
                .into_iter()
                .chain(earlier)
                .collect();
            let found = look(&hosts, None);
            assert_eq!(told(&found), is(&expected), "{fails} {waited}");
            let old = format!("{} datagrams were given up", fails - lost);
            let says = |found: &Finding| found.what.starts_with(&old);
            assert_eq!(found.iter().any(says), fails > lost, "{found:?}");
            let ledger =
                crate::check::ledger(&Observed::new(&hosts.0, &hosts.1, None, asked(None)));
            let rows = ledger.losses.iter().map(|loss| loss.count);
            assert_eq!(rows.sum::<u64>(), lost, "{ledger}");
        }
    }
}

#[test]
fn where_fragments_came_no_firewall_is_named() {
    let mut hosts = after(false, [200, 0, 0, 200]);
    for (facts, packets) in [(&mut hosts.0, 0), (&mut hosts.1, 200)] {
        let counters = crate::LinkCounters {
            rx_packets: packets,
            ..Default::default()
        };
        let link = super::link(&[], counters);
        facts.snapshot.links.insert("eth0".to_owned(), link);
    }
    let said = |hosts: &(Observation, Observation)| {
        let found = look(hosts, Some(53));
        let silent = found.iter().find(|one| one.check == "nothing_arrives");
        let silent = silent.expect("no datagram came");
        format!("{} {}", silent.what, silent.remedy)
    };
    let fragments = said(&hosts);
    assert!(
        fragments.contains("200 fragments reached IP"),
        "{fragments}"
    );
    assert!(!fragments.contains("firewall"), "{fragments}");
    // Whole datagrams of another protocol are no matter of fragments.
    for came in [200, 0] {
        let counters = [
            ("Ip.InReceives", 200),
            ("Ip.ReasmReqds", came),
            ("Ip.ReasmOKs", came / 2),
        ];
        hosts.1.snapshot.snmp = host(&counters).snapshot.snmp;
        let other = said(&hosts);
        assert!(
            other.contains("a firewall") && !other.contains("fragment"),
            "{other}"
        );
    }
}

#[test]
fn fragments_that_overlap_lack_no_memory() {
    let said = |v6, fails, overlaps| {
        let (mut before, mut after) = after(v6, [100, 0, fails, 0]);
        for (facts, value) in [(&mut before, 0), (&mut after, overlaps)] {
            let values = facts.snapshot.snmp.iter();
            let mut values: Vec<_> = values.map(|(name, value)| (name, value as u64)).collect();
            values.push(("IpExt.ReasmOverlaps", value));
            facts.snapshot.snmp = host(&values).snapshot.snmp;
        }
        let found = look(&(before, after), None);
        assert_eq!(told(&found), is(&[("fragments", fails)]));
        assert_eq!(found[0].confidence, Confidence::Likely);
        format!("{} {}", found[0].what, found[0].remedy)
    };
    let all = said(false, 50, 50);
    assert!(all.contains("overlap") && all.contains("broken"), "{all}");
    assert!(!all.contains("memory") && !all.contains("did not"), "{all}");
    let some = said(false, 50, 30);
    assert!(
        some.contains("overlap") && some.contains("of 20 the rest"),
        "{some}"
    );
    assert!(some.contains("memory"), "{some}");
    let none = said(false, 50, 0);
    assert!(
        none.contains("memory") && !none.contains("overlap"),
        "{none}"
    );
    let v6 = said(true, 50, 0);
    assert!(v6.contains("or they overlap"), "{v6}");
}

#[test]
fn each_datagram_counts_once_in_the_ledger() {
    for v6 in [false, true] {
        // Datagrams of three fragments: whole; some failed; some wait.
        for ([came, whole, fails, waits], expected) in [
            ([3000, 1000, 0, 0], [1000, 0]),
            ([2700, 800, 100, 0], [900, 0]),
            ([2700, 800, 0, 100], [900, 100]),
        ] {
            let (mut before, mut after) = after(v6, [came, whole, fails, waits]);
            for (facts, value) in [(&mut before, 0), (&mut after, whole)] {
                let values = facts.snapshot.snmp.iter();
                let mut values: Vec<_> = values.map(|(name, value)| (name, value as u64)).collect();
                values.push((
                    if v6 {
                        "Udp6.InDatagrams"
                    } else {
                        "Udp.InDatagrams"
                    },
                    value,
                ));
                facts.snapshot.snmp = host(&values).snapshot.snmp;
            }
            let ledger = crate::check::ledger(&Observed::new(&before, &after, None, asked(None)));
            let counts = [ledger.offered as i64, ledger.unaccounted];
            assert_eq!(counts, expected, "{ledger}");
        }
    }
}
