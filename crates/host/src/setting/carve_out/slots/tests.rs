//! Entries of a table for flows, on a card that is only pretended.

use super::*;
use crate::facts::rss::{MICROSOFT_KEY, table_of};
use crate::setting::carve_out::CarveOut;
use crate::setting::fake::{EndsAt, Fake, FakeMachine, plain, results, table};
use crate::setting::{Setting, Undone, UndoneStep, Value};
use proptest::prelude::*;

fn hashing(fields: Hashed) -> Hashing {
    let key = MICROSOFT_KEY.to_vec();
    Hashing::new(key, "a test".to_owned(), [fields; 2]).expect("a key")
}

fn plan(fake: &Fake, flows: &[RssFlow], fields: Hashed) -> HostResult<CarveOut> {
    CarveOut::by_slots_on(fake, "eth9", flows, None, || Ok(hashing(fields)))
}

/// A card of four queues with the table that Linux gives it.
fn card(entries: usize) -> FakeMachine {
    plain().with(
        Setting::RssTable,
        Value::Numbers(table_of(entries, plain().rings)),
    )
}

fn now(fake: &Fake) -> Vec<u32> {
    match &fake.machine().values[&Setting::RssTable] {
        Value::Numbers(table) => table.clone(),
        other => panic!("no table: {other:?}"),
    }
}

fn flow(port: u16) -> RssFlow {
    let flow = format!("66.9.149.187:{port}-161.142.100.80:1766");
    flow.parse().expect("a flow")
}

/// Microsoft's example hashes to 0x51ccc178, whose remainder by 128 is 0x78.
#[test]
fn a_flow_has_the_entry_of_its_hash_and_nothing_else_has() {
    let fake = Fake::new(card(128));
    let carve_out = plan(&fake, &[flow(2794)], Hashed::Ports).expect("possible");
    let slots = carve_out.slots.as_ref().expect("slots");
    assert_eq!(slots.taken(), BTreeSet::from([0x78]));
    assert!((slots.share() - 1.0 / 128.0).abs() < 1e-9);
    assert!(slots.ports.contains(&2794), "its own port is one of them");
    // 64512 ports over 128 entries.
    assert!(
        (300..700).contains(&slots.ports.len()),
        "{}",
        slots.ports.len()
    );
    let applied = fake.apply(&carve_out.change).expect("applied");
    let during = now(&fake);
    assert!(
        (0..128).all(|at| (during[at] == 3) == (at == 0x78)),
        "{during:?}"
    );
    for queue in 0..3 {
        let entries = during.iter().filter(|entry| **entry == queue).count();
        assert!((42..=43).contains(&entries), "{entries} of queue {queue}");
    }
    let again = plan(&fake, &[flow(2794)], Hashed::Ports).expect("possible");
    assert!(again.change.edits.is_empty(), "{again:?}");
    assert_eq!(results(applied.undo()), [Undone::Restored]);
    assert_eq!(fake.machine(), card(128));
    assert_eq!(fake.journals(), 0);
}

#[test]
fn where_addresses_alone_are_hashed_all_ports_are_one_entry() {
    let flows: Vec<RssFlow> = (1..500).map(flow).collect();
    let slots = plan(&Fake::new(card(128)), &flows, Hashed::Addresses);
    let slots = slots.expect("possible").slots.expect("slots");
    assert_eq!(slots.taken().len(), 1);
    assert_eq!((slots.by_ports(), slots.ports.len()), (None, 0));
    let refused = plan(&Fake::new(card(128)), &flows, Hashed::Ports).unwrap_err();
    assert!(
        refused.to_string().contains("of the 128 entries"),
        "{refused}"
    );
}

#[test]
fn what_cannot_be_is_told_with_a_remedy() {
    let one = [flow(2794)];
    let no_table = plain().with(Setting::RssTable, None);
    let one_ring = FakeMachine {
        rings: 1,
        ..plain()
    };
    let alone = plain().with(Setting::RssTable, table([3; 8]));
    let cases: [(FakeMachine, &[RssFlow], &str); 4] = [
        (no_table, &one, "no RSS table"),
        (one_ring, &one, "ethtool -L eth9"),
        (alone, &one, "ethtool -X eth9 default"),
        (plain(), &[], "--flow"),
    ];
    for (card, flows, text) in cases {
        let refused = plan(&Fake::new(card), flows, Hashed::Ports).expect_err(text);
        assert!(refused.to_string().contains(text), "{refused}");
    }
    // Half of them is not too much.
    let two = Fake::new(plain().with(Setting::RssTable, table([0, 1])));
    plan(&two, &one, Hashed::Ports).expect("one of two");
    let unknown = || Err(HostError::impossible("eth9", "no key", "say it"));
    let refused = CarveOut::by_slots_on(&Fake::new(plain()), "eth9", &one, None, unknown);
    assert!(refused.unwrap_err().to_string().contains("no key"));
}

prop_compose! {
    fn any_flow()(source: u32, port: u16, destination in 0_u32..4) -> RssFlow {
        let end = |ip: u32, port| std::net::SocketAddr::from((std::net::Ipv4Addr::from(ip), port));
        RssFlow::new(end(source, port), end(destination, 4321)).expect("of one version")
    }
}

proptest! {
    // Each looks at all ports.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With the new table the flows come to the queue. Other flows come there only if they share an
    /// entry. No other flow moves, except those that came to the queue before.
    #[test]
    fn flows_come_to_the_queue_and_others_stay(
        flows in prop::collection::vec(any_flow(), 1..20),
        others in prop::collection::vec(any_flow(), 1..50),
        entries in prop::sample::select(vec![8_usize, 40, 64, 128, 512]),
        by_ports: bool,
    ) {
        let fake = Fake::new(card(entries));
        let fields = if by_ports { Hashed::Ports } else { Hashed::Addresses };
        let hashing = hashing(fields);
        let Ok(carve_out) = plan(&fake, &flows, fields) else {
            let taken: BTreeSet<usize> = flows.iter().map(|flow| hashing.entry(flow, entries)).collect();
            prop_assert!(taken.len() * 2 > entries);
            return Ok(());
        };
        let before = now(&fake);
        let applied = fake.apply(&carve_out.change).expect("applied");
        let after = now(&fake);
        let slots = carve_out.slots.expect("slots");
        let entry = |flow: &RssFlow| hashing.entry(flow, entries);
        prop_assert!(flows.iter().all(|flow| after[entry(flow)] == carve_out.queue));
        for other in others.iter().map(entry) {
            let shares = slots.taken().contains(&other);
            prop_assert_eq!(after[other] == carve_out.queue, shares);
            prop_assert!(shares || before[other] == carve_out.queue || before[other] == after[other]);
        }
        let first = flows[0];
        let mut ports = slots.ports.iter().map(|port| {
            let mut flow = first;
            flow.source.set_port(*port);
            entry(&flow)
        });
        prop_assert!(ports.all(|entry| slots.taken().contains(&entry)));
        prop_assert!(applied.undo().iter().all(UndoneStep::clean));
        prop_assert_eq!(now(&fake), before);
    }

    /// Killed before the table is written or after it: it is put back.
    #[test]
    fn killed_anywhere(flows in prop::collection::vec(any_flow(), 1..4), done: bool) {
        let fake = Fake::new(card(64));
        let carve_out = plan(&fake, &flows, Hashed::Ports).expect("possible");
        fake.state().end = Some(EndsAt { change: 0, done });
        fake.apply(&carve_out.change).expect_err("killed");
        fake.state().ended = false;
        fake.state().end = None;
        prop_assert!(fake.died().undo(&fake, false).iter().all(UndoneStep::clean));
        prop_assert_eq!(fake.machine(), card(64));
        prop_assert_eq!(fake.journals(), 0);
    }
}
