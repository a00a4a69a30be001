//! A carve-out on a card that is only pretended: whole, broken off at every place, disturbed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use mpps_os::Error as Refusal;
use mpps_os::ethtool::{Feature, ntuple};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::change::{Left, Leftover, undo_steps};
use crate::journal::{Journal, Life, Owner, Record};
use std::path::PathBuf;

/// `EOPNOTSUPP`, `EIO` and `ENODEV` of include/uapi/asm-generic/errno*.h.
const UNSUPPORTED: i32 = 95;
const BROKEN: i32 = 5;
const NO_DEVICE: i32 = 19;

#[derive(Debug, Clone, PartialEq)]
struct Card {
    name: &'static str,
    namespace: u32,
    rings: u32,
    filters: Option<(bool, bool)>,
    /// None: the driver has no table.
    table: Option<Vec<u32>>,
    rules: BTreeMap<u32, ntuple::Rule>,
    size: u32,
    driver_chooses: bool,
    /// The driver shows its rules in words of its own.
    shows_otherwise: bool,
}

/// When the program stops to be there: at which change, before or after it was made.
#[derive(Debug, Clone, Copy)]
struct End {
    change: usize,
    done: bool,
}

#[derive(Debug)]
struct State {
    card: Card,
    changes: usize,
    end: Option<End>,
    ended: bool,
}

#[derive(Debug, Clone)]
struct Fake(Arc<Mutex<State>>);

impl Fake {
    fn new(card: Card) -> Self {
        Self(Arc::new(Mutex::new(State {
            card,
            changes: 0,
            end: None,
            ended: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with the lock")
    }

    fn card(&self) -> Card {
        self.state().card.clone()
    }

    fn look<R>(&self, look: impl FnOnce(&Card) -> mpps_os::Result<R>) -> mpps_os::Result<R> {
        let state = self.state();
        if state.ended {
            return refuse(BROKEN);
        }
        look(&state.card)
    }

    fn change<R>(
        &self,
        change: impl FnOnce(&mut Card) -> mpps_os::Result<R>,
    ) -> mpps_os::Result<R> {
        let mut state = self.state();
        if state.ended {
            return refuse(BROKEN);
        }
        let end = state.end.filter(|end| end.change == state.changes);
        state.changes += 1;
        if end.is_some_and(|end| !end.done) {
            state.ended = true;
            return refuse(BROKEN);
        }
        let answer = change(&mut state.card);
        if end.is_some() {
            state.ended = true;
            return refuse(BROKEN);
        }
        answer
    }
}

fn refuse<R>(errno: i32) -> mpps_os::Result<R> {
    let source = io::Error::from_raw_os_error(errno);
    Err(Refusal::new("fake", "eth9", source))
}

impl Steering for Fake {
    fn namespace(&self) -> mpps_os::Result<u32> {
        self.look(|card| Ok(card.namespace))
    }
    fn index(&self, interface: &str) -> mpps_os::Result<u32> {
        self.look(|card| match interface == card.name {
            true => Ok(5),
            false => refuse(NO_DEVICE),
        })
    }
    fn name(&self, index: u32) -> mpps_os::Result<Option<String>> {
        self.look(|card| Ok((index == 5 && !card.name.is_empty()).then(|| card.name.to_owned())))
    }
    fn rings(&self, _: &str) -> mpps_os::Result<u32> {
        self.look(|card| match card.rings {
            0 => refuse(UNSUPPORTED),
            rings => Ok(rings),
        })
    }
    fn filters(&self, _: &str) -> mpps_os::Result<Option<Feature>> {
        self.look(|card| {
            Ok(card.filters.map(|(active, changeable)| Feature {
                name: steering::FILTERS.to_owned(),
                active,
                requested: active,
                changeable,
            }))
        })
    }
    fn set_filters(&self, _: &str, on: bool) -> mpps_os::Result<()> {
        self.change(|card| {
            card.filters = Some((on, true));
            if !on {
                card.rules.clear();
            }
            Ok(())
        })
    }
    fn indirection(&self, _: &str) -> mpps_os::Result<Vec<u32>> {
        self.look(|card| card.table.clone().map_or_else(|| refuse(UNSUPPORTED), Ok))
    }
    fn set_indirection(&self, _: &str, table: &[u32]) -> mpps_os::Result<()> {
        self.change(|card| {
            let old = card.table.as_ref().map_or(0, Vec::len);
            card.table = Some(match table {
                [] => (0..card.rings).cycle().take(old).collect(),
                table => table.to_vec(),
            });
            Ok(())
        })
    }
    fn rules(&self, _: &str) -> mpps_os::Result<ntuple::Table> {
        self.look(|card| {
            Ok(ntuple::Table {
                size: card.size,
                driver_chooses: card.driver_chooses,
                locations: card.rules.keys().copied().collect(),
            })
        })
    }
    fn rule(&self, _: &str, location: u32) -> mpps_os::Result<ntuple::Shown> {
        self.look(|card| match card.rules.get(&location) {
            None => refuse(2),
            Some(rule) => Ok(ntuple::Shown {
                rule: Some(*rule).filter(|_| !card.shows_otherwise),
                description: format!("{rule:?}"),
            }),
        })
    }
    fn insert(&self, _: &str, rule: &ntuple::Rule, location: Option<u32>) -> mpps_os::Result<u32> {
        self.change(|card| {
            let free = (0..).find(|place| !card.rules.contains_key(place));
            let place = location.or(free).unwrap_or(0);
            card.rules.insert(place, *rule);
            Ok(place)
        })
    }
    fn remove(&self, _: &str, location: u32) -> mpps_os::Result<()> {
        self.change(|card| match card.rules.remove(&location) {
            Some(_) => Ok(()),
            None => refuse(2),
        })
    }
}

/// A card with four queues, rules off, nothing special.
fn plain() -> Card {
    Card {
        name: "eth9",
        namespace: 7,
        rings: 4,
        filters: Some((false, true)),
        table: Some(vec![0, 1, 2, 3, 0, 1, 2, 3]),
        rules: BTreeMap::new(),
        size: 16,
        driver_chooses: false,
        shows_otherwise: false,
    }
}

fn flow() -> SocketAddr {
    "192.0.2.1:4321".parse().expect("an address")
}

fn other_rule() -> ntuple::Rule {
    ntuple::Rule {
        destination: "192.0.2.1:53".parse().expect("an address"),
        queue: 0,
    }
}

fn directory() -> (TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().expect("a directory");
    let list = vec![directory.path().to_path_buf()];
    (directory, list)
}

fn plan(fake: &Fake) -> Plan {
    Plan::make(fake, "eth9", flow(), None).expect("possible")
}

fn apply(fake: &Fake, directories: &[PathBuf]) -> Result<CarveOut> {
    Made::apply(&plan(fake), Box::new(fake.clone()), directories).map(CarveOut)
}

/// What is left behind by a process that has died meanwhile.
fn died(directories: &[PathBuf]) -> Leftover<Plan> {
    let (mut left, unreadable) = Leftover::list_in(directories);
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let mut left = left.pop().expect("a journal");
    assert_eq!(left.life(), Life::Alive);
    left.record.owner.start_time_ticks -= 1;
    left.journal.write(&left.record).expect("written");
    left
}

fn results(outcomes: Vec<Outcome>) -> Vec<Undone> {
    outcomes.into_iter().map(|outcome| outcome.result).collect()
}

#[test]
fn a_queue_is_taken_and_given_back() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    let carve_out = apply(&fake, &directories).expect("applied");
    assert_eq!(carve_out.queue(), 3);
    assert_eq!(
        carve_out.steps(),
        [
            "ntuple-filters on",
            "queue 3 out of the RSS table",
            "UDP to 192.0.2.1:4321 steered to queue 3 (rule 15)"
        ]
    );
    let during = fake.card();
    assert_eq!(during.filters, Some((true, true)));
    assert_eq!(during.table, Some(vec![0, 1, 2, 0, 0, 1, 2, 1]));
    let rule = ntuple::Rule {
        destination: flow(),
        queue: 3,
    };
    assert_eq!(during.rules, BTreeMap::from([(15, rule)]));
    assert_eq!(Journal::list(&directories).len(), 1);
    assert_eq!(results(carve_out.undo()), [const { Undone::Restored }; 3]);
    assert_eq!(fake.card(), plain());
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn dropping_gives_it_back_too() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    drop(apply(&fake, &directories).expect("applied"));
    assert_eq!(fake.card(), plain());
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn what_is_already_so_is_left_so() {
    let (_guard, directories) = directory();
    let card = Card {
        filters: Some((true, false)),
        table: Some(vec![0, 1, 2, 0]),
        rules: BTreeMap::from([(3, other_rule())]),
        driver_chooses: true,
        ..plain()
    };
    let fake = Fake::new(card.clone());
    let carve_out = apply(&fake, &directories).expect("applied");
    assert_eq!(carve_out.steps().len(), 1);
    assert_eq!(results(carve_out.undo()), [Undone::Restored]);
    assert_eq!(fake.card(), card);
}

#[test]
fn one_interface_has_one_carve_out() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    let first = apply(&fake, &directories).expect("applied");
    let text = apply(&fake, &directories).expect_err("taken").to_string();
    assert!(text.contains("has a carve-out on it"), "{text}");
    std::mem::forget(first);
    let left = died(&directories);
    let text = apply(&fake, &directories).expect_err("taken").to_string();
    assert!(text.contains("mpps undo"), "{text}");
    assert!(left.undo(&fake).iter().all(Outcome::clean));
    drop(apply(&fake, &directories).expect("free again"));
    assert_eq!(fake.card(), plain());
}

#[test]
fn undoing_twice_is_harmless() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    std::mem::forget(apply(&fake, &directories).expect("applied"));
    let left = died(&directories);
    assert_eq!(results(left.undo(&fake)), [const { Undone::Restored }; 3]);
    assert!(left.undo(&fake).is_empty(), "its journal has gone");
    // One that died before it could remove the journal is followed by another.
    let again = undo_steps(&left.record, &fake);
    assert_eq!(results(again), [const { Undone::Nothing }; 3]);
    assert_eq!(fake.card(), plain());
}

#[test]
fn a_journal_that_says_something_else_by_now_is_not_obeyed() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    std::mem::forget(apply(&fake, &directories).expect("applied"));
    let during = fake.card();
    let left = died(&directories);
    let mut other = left.record.clone();
    other.begun = 1;
    left.journal.write(&other).expect("written");
    assert!(left.undo(&fake).is_empty());
    assert_eq!(fake.card(), during);
    left.journal.write(&left.record).expect("written");
    assert_eq!(results(left.undo(&fake)), [const { Undone::Restored }; 3]);
    assert_eq!(fake.card(), plain());
}

#[test]
fn a_process_that_lives_is_left_alone() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    let carve_out = apply(&fake, &directories).expect("applied");
    let during = fake.card();
    let (left, _) = Leftover::<Plan>::list_in(&directories);
    assert!(left[0].undo(&fake).is_empty());
    assert_eq!(fake.card(), during);
    drop(carve_out);
}

#[test]
fn what_others_changed_is_told_and_left() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    std::mem::forget(apply(&fake, &directories).expect("applied"));
    fake.state().card.table = Some(vec![2, 1, 2, 1, 2, 1, 2, 1]);
    fake.state().card.rules.insert(15, other_rule());
    let changed = fake.card();
    let outcomes = died(&directories).undo(&fake);
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
    assert_eq!(fake.card(), changed);
    // Nothing can be done about it any more.
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn a_change_that_nobody_was_told_of_keeps_its_journal() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    let carve_out = apply(&fake, &directories).expect("applied");
    fake.state().card.table = Some(vec![2; 8]);
    drop(carve_out);
    assert_eq!(fake.card().rules, BTreeMap::new());
    let outcomes = died(&directories).undo(&fake);
    assert!(
        matches!(outcomes[1].result, Undone::Changed(_)),
        "{outcomes:?}"
    );
}

#[test]
fn a_failure_does_not_stop_the_rest() {
    let (_guard, directories) = directory();
    let card = Card {
        filters: Some((true, true)),
        ..plain()
    };
    let fake = Fake::new(card.clone());
    std::mem::forget(apply(&fake, &directories).expect("applied"));
    let left = died(&directories);
    fake.state().card.rings = 0; // The table cannot be put back.
    let outcomes = results(left.undo(&fake));
    assert_eq!(outcomes[0], Undone::Restored);
    assert!(matches!(outcomes[1], Undone::Failed(_)), "{outcomes:?}");
    assert_eq!(Journal::list(&directories).len(), 1);
    fake.state().card.rings = 4;
    assert_eq!(
        results(left.undo(&fake)),
        [Undone::Nothing, Undone::Restored]
    );
    assert_eq!(fake.card(), card);
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn an_interface_that_is_gone_renamed_or_elsewhere() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    std::mem::forget(apply(&fake, &directories).expect("applied"));
    let left = died(&directories);
    fake.state().card.namespace = 8;
    let text = left.undo(&fake)[0].to_string();
    assert!(text.contains("net:[7]"), "{text}");
    fake.state().card.namespace = 7;
    fake.state().card.name = "lan0";
    assert_eq!(results(left.undo(&fake)), [const { Undone::Restored }; 3]);
    fake.state().card.name = "";
    let again = undo_steps(&left.record, &fake);
    assert_eq!(results(again), [const { Undone::Nothing }; 3]);
}

#[test]
fn what_cannot_be_is_told_with_a_remedy() {
    let cases: [(Card, &str); 8] = [
        (
            Card {
                rings: 0,
                ..plain()
            },
            "mpps backends eth9",
        ),
        (
            Card {
                rings: 1,
                ..plain()
            },
            "ethtool -L eth9",
        ),
        (
            Card {
                filters: None,
                ..plain()
            },
            "off [fixed]",
        ),
        (
            Card {
                filters: Some((false, false)),
                ..plain()
            },
            "off [fixed]",
        ),
        (
            Card {
                table: None,
                ..plain()
            },
            "no RSS table",
        ),
        (
            Card {
                table: Some(vec![]),
                ..plain()
            },
            "no RSS table",
        ),
        (
            Card {
                table: Some(vec![3, 3]),
                ..plain()
            },
            "ethtool -X eth9 default",
        ),
        (
            Card {
                name: "eth8",
                ..plain()
            },
            "fake eth9",
        ),
    ];
    for (card, text) in cases {
        let error = Plan::make(&Fake::new(card), "eth9", flow(), None).expect_err(text);
        assert!(error.to_string().contains(text), "{error}");
    }
    let fake = Fake::new(plain());
    let error = Plan::make(&fake, "eth9", flow(), Some(4)).expect_err("no queue 4");
    assert!(error.to_string().contains("0 to 3"), "{error}");
    let none = SocketAddr::new(flow().ip(), 0);
    Plan::make(&fake, "eth9", none, None).expect_err("no port");
}

#[test]
fn what_changed_since_the_plan_stops_it() {
    let disturb: [fn(&mut Card); 4] = [
        |card| card.filters = Some((true, true)),
        |card| card.table = Some(vec![1; 8]),
        |card| {
            let rule = ntuple::Rule {
                destination: flow(),
                queue: 0,
            };
            card.rules.insert(2, rule);
        },
        |card| card.rules = (0..16).map(|place| (place, other_rule())).collect(),
    ];
    for (number, disturb) in disturb.into_iter().enumerate() {
        let (_guard, directories) = directory();
        let card = Card {
            // Otherwise switching the rules off takes them away.
            filters: Some((number > 0, true)),
            ..plain()
        };
        let fake = Fake::new(card);
        let plan = plan(&fake);
        disturb(&mut fake.state().card);
        let before = fake.card();
        Made::apply(&plan, Box::new(fake.clone()), &directories).expect_err("disturbed");
        assert_eq!(fake.card(), before, "{number}");
        assert!(Journal::list(&directories).is_empty(), "{number}");
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
    ) -> Card {
        let default = (0..rings).cycle().take(rings as usize * entries).collect();
        Card {
            rings,
            filters: Some((on, true)),
            table: Some(own_table.unwrap_or(default)),
            rules: (0..if on { others } else { 0 }).map(|place| (place, other_rule())).collect(),
            driver_chooses,
            shows_otherwise,
            ..plain()
        }
    }
}

proptest! {
    /// Killed at any change, before it or after it: what is left behind is put back.
    #[test]
    fn killed_anywhere(card in any_card(), change in 0_usize..4, done: bool) {
        // The one thing that nobody can know: a rule that was added just before the end, at a
        // place that the driver chose, which it describes in words of its own.
        prop_assume!(!(card.driver_chooses && card.shows_otherwise));
        let (_guard, directories) = directory();
        let fake = Fake::new(card.clone());
        let Ok(plan) = Plan::make(&fake, "eth9", flow(), None) else {
            return Ok(());
        };
        prop_assume!(!(card.shows_otherwise && done && change + 1 == plan.steps.len()));
        fake.state().end = Some(End { change, done });
        match Made::apply(&plan, Box::new(fake.clone()), &directories) {
            Ok(carve_out) => std::mem::forget(carve_out),
            Err(error) => prop_assert!(error.to_string().contains("mpps undo"), "{}", error),
        }
        fake.state().ended = false;
        fake.state().end = None;
        let outcomes = died(&directories).undo(&fake);
        prop_assert!(outcomes.iter().all(Outcome::clean), "{:?}", outcomes);
        prop_assert_eq!(fake.card(), card);
        prop_assert!(Journal::list(&directories).is_empty());
    }

    #[test]
    fn a_table_without_a_queue(table in prop::collection::vec(0_u32..6, 1..200), queue in 0_u32..6) {
        let count = |table: &[u32], queue| table.iter().filter(|entry| **entry == queue).count();
        let Some(rest) = without(&table, queue) else {
            prop_assert_eq!(count(&table, queue), table.len());
            return Ok(());
        };
        prop_assert_eq!(rest.len(), table.len());
        prop_assert_eq!(count(&rest, queue), 0);
        let stay = table.iter().zip(&rest).filter(|(before, _)| **before != queue);
        prop_assert!(stay.clone().all(|(before, after)| before == after));
        let used: Vec<usize> = (0..6).filter(|other| table.contains(other) && *other != queue).map(|other| count(&rest, other)).collect();
        let before: Vec<usize> = (0..6).filter(|other| table.contains(other) && *other != queue).map(|other| count(&table, other)).collect();
        let spread = |counts: &[usize]| counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0);
        prop_assert!(spread(&used) <= spread(&before).max(1));
    }

    #[test]
    fn a_journal_says_all(card in any_card()) {
        let Ok(plan) = Plan::make(&Fake::new(card), "eth9", flow(), None) else {
            return Ok(());
        };
        let record = Record::new(Owner { pid: 1, start_time_ticks: 2, pid_namespace: 3 }, plan);
        let text = serde_json::to_string(&record).expect("plain data");
        let back: Record = serde_json::from_str(&text).expect("the same form");
        prop_assert_eq!(back, record);
    }
}
