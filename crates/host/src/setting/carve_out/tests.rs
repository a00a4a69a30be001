//! A carve-out on a card that is only pretended: whole, broken off at every place, disturbed.

use std::collections::BTreeMap;

use mpps_os::ethtool::ntuple;
use proptest::prelude::*;

use super::*;
use crate::setting::applied::undo_edits;
use crate::setting::fake::{EndsAt, Fake, FakeMachine, plain, results, table};
use crate::setting::journal::Record;
use crate::setting::{Applied, Owner, Undone, UndoneStep};

fn flow() -> SocketAddr {
    "192.0.2.1:4321".parse().expect("an address")
}

fn other_rule() -> ntuple::NtupleRule {
    ntuple::NtupleRule {
        destination: "192.0.2.1:53".parse().expect("an address"),
        queue: 0,
    }
}

fn plan(fake: &Fake) -> CarveOut {
    CarveOut::by_rule_on(fake, "eth9", flow(), None).expect("possible")
}

fn apply(fake: &Fake) -> HostResult<Applied> {
    fake.apply(&plan(fake).change)
}

#[test]
fn a_queue_is_taken_and_given_back() {
    let fake = Fake::new(plain());
    let carve_out = apply(&fake).expect("applied");
    assert_eq!(plan(&Fake::new(plain())).queue, 3);
    assert_eq!(
        carve_out.steps(),
        [
            "ntuple-filters on",
            "queue 3 out of the RSS table",
            "UDP to 192.0.2.1:4321 steered to queue 3 (rule 15)"
        ]
    );
    let during = fake.machine();
    assert_eq!(during.values[&Setting::Filters], Value::Switch(true));
    let without = table([0, 1, 2, 0, 0, 1, 2, 1]);
    assert_eq!(during.values[&Setting::RssTable], without);
    let rule = ntuple::NtupleRule {
        destination: flow(),
        queue: 3,
    };
    assert_eq!(during.rules, BTreeMap::from([(15, rule)]));
    assert_eq!(fake.journals(), 1);
    assert_eq!(results(carve_out.undo()), [const { Undone::Restored }; 3]);
    fake.is_again(&plain());
}

#[test]
fn dropping_gives_it_back_too() {
    let fake = Fake::new(plain());
    drop(apply(&fake).expect("applied"));
    fake.is_again(&plain());
}

#[test]
fn what_is_already_so_is_left_so() {
    let card = FakeMachine {
        rules: BTreeMap::from([(3, other_rule())]),
        driver_chooses: true,
        ..plain()
    };
    let card = card
        .with(Setting::Filters, Value::Switch(true))
        .with(Setting::RssTable, table([0, 1, 2, 0]));
    let fake = Fake::new(card.clone());
    let carve_out = apply(&fake).expect("applied");
    assert_eq!(carve_out.steps().len(), 1);
    assert_eq!(results(carve_out.undo()), [Undone::Restored]);
    assert_eq!(fake.machine(), card);
}

#[test]
fn one_interface_has_one_carve_out() {
    let fake = Fake::new(plain());
    let first = apply(&fake).expect("applied");
    let text = apply(&fake).expect_err("taken").to_string();
    assert!(text.contains("has a carve-out on it"), "{text}");
    std::mem::forget(first);
    let left = fake.died();
    let text = apply(&fake).expect_err("taken").to_string();
    assert!(text.contains("mpps undo"), "{text}");
    assert!(left.undo(&fake, false).iter().all(UndoneStep::clean));
    drop(apply(&fake).expect("free again"));
    assert_eq!(fake.machine(), plain());
}

#[test]
fn undoing_twice_is_harmless() {
    let fake = Fake::new(plain());
    std::mem::forget(apply(&fake).expect("applied"));
    let left = fake.died();
    assert_eq!(
        results(left.undo(&fake, false)),
        [const { Undone::Restored }; 3]
    );
    assert!(left.undo(&fake, false).is_empty(), "its journal has gone");
    // If undo dies before it removes the journal, a second undo follows.
    let again = undo_edits(&mut left.record.clone(), &left.journal, &fake);
    assert_eq!(results(again), [const { Undone::Nothing }; 3]);
    assert_eq!(fake.machine(), plain());
}

#[test]
fn a_journal_that_says_something_else_by_now_is_not_obeyed() {
    let fake = Fake::new(plain());
    std::mem::forget(apply(&fake).expect("applied"));
    let during = fake.machine();
    let left = fake.died();
    let mut other = left.record.clone();
    other.begun = 1;
    left.journal.write(&other).expect("written");
    assert!(left.undo(&fake, false).is_empty());
    assert_eq!(fake.machine(), during);
    left.journal.write(&left.record).expect("written");
    assert_eq!(
        results(left.undo(&fake, false)),
        [const { Undone::Restored }; 3]
    );
    assert_eq!(fake.machine(), plain());
}

#[test]
fn a_process_that_lives_is_left_alone() {
    let fake = Fake::new(plain());
    let carve_out = apply(&fake).expect("applied");
    let during = fake.machine();
    assert!(fake.found().undo(&fake, false).is_empty());
    assert_eq!(fake.machine(), during);
    drop(carve_out);
}

#[test]
fn what_others_changed_is_told_and_left() {
    let fake = Fake::new(plain());
    std::mem::forget(apply(&fake).expect("applied"));
    fake.set(Setting::RssTable, table([2, 1, 2, 1, 2, 1, 2, 1]));
    fake.state().machine.rules.insert(15, other_rule());
    let changed = fake.machine();
    let outcomes = fake.died().undo(&fake, false);
    let told: Vec<String> = outcomes.iter().map(ToString::to_string).collect();
    assert!(
        matches!(
            &results(outcomes)[..],
            [Undone::Changed(_), Undone::Changed(_), Undone::Changed(_)]
        ),
        "{told:#?}"
    );
    assert!(told[0].contains("another rule is at 15"), "{told:#?}");
    assert!(told[1].contains("{1, 2}"), "{told:#?}");
    assert!(told[2].contains("1 other rules"), "{told:#?}");
    assert_eq!(fake.machine(), changed);
    // Nothing can be done about it any more.
    assert_eq!(fake.journals(), 0);
}

#[test]
fn a_change_that_nobody_was_told_of_keeps_its_journal() {
    let fake = Fake::new(plain());
    let carve_out = apply(&fake).expect("applied");
    fake.set(Setting::RssTable, table([2; 8]));
    drop(carve_out);
    assert_eq!(fake.machine().rules, BTreeMap::new());
    let outcomes = fake.died().undo(&fake, false);
    assert!(
        matches!(outcomes[1].result, Undone::Changed(_)),
        "{outcomes:?}"
    );
}

#[test]
fn a_failure_does_not_stop_the_rest() {
    let card = plain().with(Setting::Filters, Value::Switch(true));
    let fake = Fake::new(card.clone());
    std::mem::forget(apply(&fake).expect("applied"));
    let left = fake.died();
    fake.state().machine.rings = 0; // The table cannot be put back.
    let outcomes = results(left.undo(&fake, false));
    assert_eq!(outcomes[0], Undone::Restored);
    assert!(matches!(outcomes[1], Undone::Failed(_)), "{outcomes:?}");
    assert_eq!(fake.journals(), 1);
    fake.state().machine.rings = 4;
    assert_eq!(
        results(left.undo(&fake, false)),
        [Undone::Nothing, Undone::Restored]
    );
    fake.is_again(&card);
}

#[test]
fn an_interface_that_is_gone_renamed_or_elsewhere() {
    let fake = Fake::new(plain());
    std::mem::forget(apply(&fake).expect("applied"));
    let left = fake.died();
    fake.state().machine.namespace = 8;
    let text = left.undo(&fake, false)[0].to_string();
    assert!(text.contains("net:[7]"), "{text}");
    fake.state().machine.namespace = 7;
    // A later namespace with its number, and an interface of the same number in it.
    fake.state().machine.namespace_cookie = Some(71);
    let before = fake.machine();
    let later = undo_edits(&mut left.record.clone(), &left.journal, &fake);
    assert_eq!(results(later), [const { Undone::Nothing }; 3]);
    assert_eq!(fake.machine(), before);
    // An older kernel, or an older journal, has no such number.
    fake.state().machine.namespace_cookie = None;
    fake.state().machine.name = "lan0";
    assert_eq!(
        results(left.undo(&fake, false)),
        [const { Undone::Restored }; 3]
    );
    fake.state().machine.name = "";
    let again = undo_edits(&mut left.record.clone(), &left.journal, &fake);
    assert_eq!(results(again), [const { Undone::Nothing }; 3]);
}

#[test]
fn what_cannot_be_is_told_with_a_remedy() {
    let tabled = |value: Option<Value>| plain().with(Setting::RssTable, value);
    let cases: [(FakeMachine, &str); 7] = [
        (
            FakeMachine {
                rings: 0,
                ..plain()
            },
            "mpps backends eth9",
        ),
        (
            FakeMachine {
                rings: 1,
                ..plain()
            },
            "ethtool -L eth9",
        ),
        (plain().with(Setting::Filters, None), "off [fixed]"),
        (tabled(None), "no RSS table"),
        (tabled(Some(table([]))), "no RSS table"),
        (tabled(Some(table([3, 3]))), "ethtool -X eth9 default"),
        (
            FakeMachine {
                name: "eth8",
                ..plain()
            },
            "fake eth9",
        ),
    ];
    for (card, text) in cases {
        let error = CarveOut::by_rule_on(&Fake::new(card), "eth9", flow(), None).expect_err(text);
        assert!(error.to_string().contains(text), "{error}");
    }
    let fake = Fake::new(plain());
    let error = CarveOut::by_rule_on(&fake, "eth9", flow(), Some(4)).expect_err("no queue 4");
    assert!(error.to_string().contains("0 to 3"), "{error}");
    let none = SocketAddr::new(flow().ip(), 0);
    CarveOut::by_rule_on(&fake, "eth9", none, None).expect_err("no port");
}

#[test]
fn a_driver_that_takes_another_table_is_found_out() {
    let card = FakeMachine {
        alters_tables: true,
        ..plain()
    };
    let fake = Fake::new(card.clone());
    let error = apply(&fake).expect_err("another table");
    assert!(error.to_string().contains("has another"), "{error}");
    fake.is_again(&card);
}

#[test]
fn a_rule_that_cannot_be_read_back_is_none() {
    let card = FakeMachine {
        forgets_rules: true,
        ..plain()
    };
    let fake = Fake::new(card.clone());
    apply(&fake).expect_err("no rule is there");
    fake.is_again(&card);
}

#[test]
fn what_changed_since_the_plan_stops_it() {
    let disturb: [fn(&mut FakeMachine); 4] = [
        |card| drop(card.values.insert(Setting::Filters, Value::Switch(true))),
        |card| drop(card.values.insert(Setting::RssTable, table([1; 8]))),
        |card| {
            let rule = ntuple::NtupleRule {
                destination: flow(),
                queue: 0,
            };
            card.rules.insert(2, rule);
        },
        |card| card.rules = (0..16).map(|place| (place, other_rule())).collect(),
    ];
    for (number, disturb) in disturb.into_iter().enumerate() {
        // Otherwise switching the rules off takes them away.
        let filters = Value::Switch(number > 0);
        let fake = Fake::new(plain().with(Setting::Filters, filters));
        let plan = plan(&fake);
        disturb(&mut fake.state().machine);
        let before = fake.machine();
        let applied = fake.apply(&plan.change);
        applied.expect_err("disturbed");
        fake.is_again(&before);
    }
}

prop_compose! {
    fn any_card()(
        rings in 2_u32..9,
        entries in 1_usize..9,
        on: bool,
        driver_chooses: bool,
        shows_otherwise: bool,
        own_table in prop::option::of(prop::collection::vec(0_u32..2, 2..20)),
        others in 0_u32..5,
    ) -> FakeMachine {
        let default = (0..rings).cycle().take(rings as usize * entries).collect();
        let card = FakeMachine {
            rings,
            rules: (0..if on { others } else { 0 }).map(|place| (place, other_rule())).collect(),
            driver_chooses,
            shows_otherwise,
            ..plain()
        };
        card.with(Setting::Filters, Value::Switch(on))
            .with(Setting::RssTable, Value::Numbers(own_table.unwrap_or(default)))
    }
}

proptest! {
    /// Killed at any change, before it or after it: what is left behind is put back.
    #[test]
    fn killed_anywhere(card in any_card(), change in 0_usize..4, done: bool) {
        // One thing cannot be known: a rule added just before the end. The driver chose its place,
        // and describes it in words of its own.
        prop_assume!(!(card.driver_chooses && card.shows_otherwise));
        let fake = Fake::new(card.clone());
        let Ok(plan) = CarveOut::by_rule_on(&fake, "eth9", flow(), None) else {
            return Ok(());
        };
        prop_assume!(!(card.shows_otherwise && done && change + 1 == plan.change.edits.len()));
        fake.state().end = Some(EndsAt { change, done });
        match fake.apply(&plan.change) {
            Ok(carve_out) => std::mem::forget(carve_out),
            Err(error) => prop_assert!(error.to_string().contains("mpps undo"), "{}", error),
        }
        fake.state().ended = false;
        fake.state().end = None;
        let outcomes = fake.died().undo(&fake, false);
        prop_assert!(outcomes.iter().all(UndoneStep::clean), "{:?}", outcomes);
        prop_assert_eq!(fake.machine(), card);
        prop_assert_eq!(fake.journals(), 0);
    }

    #[test]
    fn a_table_with_a_queue_at_some_entries(
        table in prop::collection::vec(0_u32..6, 1..200),
        queue in 0_u32..6,
        slots in prop::collection::btree_set(0_usize..200, 0..4),
    ) {
        let count = |table: &[u32], queue| table.iter().filter(|entry| **entry == queue).count();
        let slots: BTreeSet<usize> = slots.into_iter().filter(|at| *at < table.len()).collect();
        let Some(rest) = only_in(&table, queue, &slots) else {
            prop_assert_eq!(count(&table, queue), table.len());
            return Ok(());
        };
        prop_assert_eq!(rest.len(), table.len());
        let places = (0..rest.len()).filter(|at| rest[*at] == queue);
        prop_assert_eq!(places.collect::<BTreeSet<usize>>(), slots.clone());
        let stays = |at: &usize| table[*at] != queue && !slots.contains(at);
        let mut stay = (0..table.len()).filter(stays);
        prop_assert!(stay.all(|at| table[at] == rest[at]));
        prop_assert_eq!(only_in(&rest, queue, &slots), Some(rest.clone()), "once is enough");
        // Dealing out entries does not make the spread less even than before.
        let table: Vec<u32> = (0..table.len()).filter(|at| !slots.contains(at)).map(|at| table[at]).collect();
        let used: Vec<usize> = (0..6).filter(|other| table.contains(other) && *other != queue).map(|other| count(&rest, other)).collect();
        let before: Vec<usize> = (0..6).filter(|other| table.contains(other) && *other != queue).map(|other| count(&table, other)).collect();
        let spread = |counts: &[usize]| counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0);
        prop_assert!(spread(&used) <= spread(&before).max(1));
    }

    #[test]
    fn a_journal_says_all(card in any_card()) {
        let Ok(plan) = CarveOut::by_rule_on(&Fake::new(card), "eth9", flow(), None) else {
            return Ok(());
        };
        let record = Record::new(Owner { pid: 1, start_time_ticks: 2, pid_namespace: 3, time_namespace: 4 }, plan.change);
        let text = serde_json::to_string(&record).expect("plain data");
        let back: Record = serde_json::from_str(&text).expect("the same form");
        prop_assert_eq!(back, record);
    }
}
