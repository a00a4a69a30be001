//! A fake interface: every way in, every way out, every way to die in between.

use super::*;
use crate::change::{Left, Leftover, undo_steps};
use crate::journal::{Journal, Life, Owner, Record};
use mpps_os::Result as Answer;
use mpps_os::ethtool::coalesce::Coalescing;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

const FLUSH: Attribute = Attribute::GroFlushTimeout;
const DEFER: Attribute = Attribute::NapiDeferHardIrqs;

/// What an interface is set to.
#[derive(Debug, Clone, PartialEq)]
struct Card {
    attributes: BTreeMap<Attribute, String>,
    /// None where the driver has no such thing.
    coalescing: Option<Coalescing>,
    /// The card counts in so many microseconds; 0 keeps no time at all.
    unit_us: u32,
    /// Queues that the kernel polls, where it tells.
    polled: Option<usize>,
    /// What refuses to be written.
    stuck: Option<Attribute>,
}

#[derive(Debug, Clone)]
struct Fake(Arc<Mutex<Card>>);

fn words(rx_time_us: u32, adaptive: u32) -> Vec<u32> {
    let mut words = vec![0; 22];
    (words[0], words[1], words[9]) = (rx_time_us, 7, adaptive);
    words
}

fn coalescing(rx_time_us: u32, adaptive: u32) -> Coalescing {
    Coalescing::from_words(&words(rx_time_us, adaptive)).expect("22 words")
}

fn plain() -> Card {
    let zero = || "0".to_owned();
    Card {
        attributes: BTreeMap::from([(FLUSH, zero()), (DEFER, zero())]),
        coalescing: Some(coalescing(3, 1)),
        unit_us: 1,
        polled: Some(2),
        stuck: None,
    }
}

impl Fake {
    fn new(card: Card) -> Self {
        Self(Arc::new(Mutex::new(card)))
    }

    fn card(&self) -> Card {
        self.0.lock().expect("no panic").clone()
    }

    fn change(&self, change: impl FnOnce(&mut Card)) {
        change(&mut self.0.lock().expect("no panic"));
    }

    fn plan(&self, time: Duration, throttle: Throttle) -> Result<ModerationPlan> {
        ModerationPlan::make(self, "eth9", time, throttle)
    }

    fn apply(&self, plan: &ModerationPlan, directories: &[PathBuf]) -> Result<Moderation> {
        Made::apply(plan, Box::new(self.clone()), directories).map(Moderation)
    }
}

fn refusal(errno: i32) -> mpps_os::Error {
    mpps_os::Error::new("fake", "eth9", io::Error::from_raw_os_error(errno))
}

impl Settings for Fake {
    fn namespace(&self) -> Answer<u32> {
        Ok(7)
    }

    fn index(&self, _interface: &str) -> Answer<u32> {
        Ok(9)
    }

    fn name(&self, _index: u32) -> Answer<Option<String>> {
        Ok(Some("eth9".to_owned()))
    }

    fn polled_queues(&self, _index: u32) -> Option<usize> {
        self.card().polled
    }

    fn attribute(&self, _interface: &str, attribute: Attribute) -> Answer<String> {
        Ok(self.card().attributes[&attribute].clone())
    }

    fn set_attribute(&self, _interface: &str, attribute: Attribute, value: &str) -> Answer<()> {
        if self.card().stuck == Some(attribute) {
            return Err(refusal(13));
        }
        self.change(|card| drop(card.attributes.insert(attribute, value.to_owned())));
        Ok(())
    }

    fn coalescing(&self, _interface: &str) -> Answer<Coalescing> {
        self.card().coalescing.ok_or_else(|| refusal(95))
    }

    fn set_coalescing(&self, _interface: &str, wanted: &Coalescing) -> Answer<()> {
        let unit = self.card().unit_us;
        let rounded = wanted.rx_time_us().checked_div(unit).unwrap_or(0) * unit;
        let mut words = wanted.words();
        words[0] = rounded;
        self.change(|card| card.coalescing = Coalescing::from_words(&words));
        Ok(())
    }
}

fn directory() -> (tempfile::TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().expect("a directory");
    let directories = vec![directory.path().join("mpps")];
    (directory, directories)
}

fn results(outcomes: Vec<Outcome>) -> Vec<Undone> {
    outcomes.into_iter().map(|outcome| outcome.result).collect()
}

const TIME: Duration = Duration::from_micros(50);

#[test]
fn the_kernel_defers_and_stops_to() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    let plan = fake.plan(TIME, Throttle::Kernel).expect("it can");
    let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "gro_flush_timeout 0 -> 50000",
            "napi_defer_hard_irqs 0 -> 2"
        ]
    );
    assert!(plan.to_string().contains("20000 times a second"), "{plan}");
    let moderation = fake.apply(&plan, &directories).expect("applied");
    assert_eq!(moderation.plan_done(), &plan);
    assert_eq!(fake.card().attributes[&FLUSH], "50000");
    assert_eq!(fake.card().attributes[&DEFER], "2");
    assert_eq!(results(moderation.undo()), [const { Undone::Restored }; 2]);
    assert_eq!(fake.card(), plain());
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn a_card_waits_and_gets_its_own_choice_back() {
    for unit in [1, 8] {
        let (_guard, directories) = directory();
        let mut card = plain();
        card.unit_us = unit;
        let fake = Fake::new(card.clone());
        let plan = fake.plan(TIME, Throttle::Nic).expect("it can");
        assert_eq!(plan.steps[0].to_string(), "rx-usecs 3 adaptive -> 50");
        let moderation = fake.apply(&plan, &directories).expect("applied");
        let now = fake.card().coalescing.expect("it has some");
        assert_eq!(now.rx_time_us(), 50 / unit * unit);
        assert!(!now.is_adaptive_rx() && now.rx_packets() == 7);
        // A card with a coarse unit rounds on the way back as well, which is its own affair.
        drop(moderation);
        assert!(fake.card().coalescing.expect("some").is_adaptive_rx());
        assert!(Journal::list(&directories).is_empty());
    }
}

#[test]
fn what_is_already_so_is_left_so() {
    let mut card = plain();
    card.coalescing = Some(coalescing(50, 0));
    let fake = Fake::new(card);
    assert!(
        fake.plan(TIME, Throttle::Nic)
            .expect("it can")
            .steps
            .is_empty()
    );
    let none = fake.plan(Duration::ZERO, Throttle::Kernel).expect("it can");
    assert!(none.steps.is_empty());
}

#[test]
fn a_driver_without_coalescing_is_told_in_a_sentence() {
    let mut card = plain();
    card.coalescing = None;
    let error = Fake::new(card).plan(TIME, Throttle::Nic).expect_err("none");
    let text = error.to_string();
    assert!(
        text.contains("eth9") && text.contains("the kernel can wait"),
        "{text}"
    );
    let long = Duration::from_secs(5000);
    let error = Fake::new(plain())
        .plan(long, Throttle::Nic)
        .expect_err("too long");
    assert!(error.to_string().contains("shorter"), "{error}");
}

#[test]
fn an_interface_without_queues_is_refused() {
    let mut card = plain();
    card.polled = Some(0);
    let fake = Fake::new(card);
    let error = fake.plan(TIME, Throttle::Kernel).expect_err("none");
    assert!(error.to_string().contains("NAPI"), "{error}");
    fake.plan(TIME, Throttle::Nic).expect("the card can");
    // An older kernel does not tell, and is believed.
    fake.change(|card| card.polled = None);
    fake.plan(TIME, Throttle::Kernel).expect("it may");
    let error = ModerationPlan::make(&KernelSettings, "lo", TIME, Throttle::Kernel);
    assert!(error.is_err(), "loopback has none");
}

#[test]
fn a_driver_that_keeps_no_time_is_found_out() {
    let (_guard, directories) = directory();
    let mut card = plain();
    card.unit_us = 0;
    card.coalescing = Some(coalescing(0, 0));
    let fake = Fake::new(card.clone());
    let plan = fake.plan(TIME, Throttle::Nic).expect("it can");
    let error = fake.apply(&plan, &directories).expect_err("it does not");
    assert!(error.to_string().contains("does not keep it"), "{error}");
    assert_eq!(fake.card(), card);
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn a_refusal_in_the_middle_leaves_nothing() {
    let (_guard, directories) = directory();
    let mut card = plain();
    card.stuck = Some(DEFER);
    let fake = Fake::new(card.clone());
    let plan = fake.plan(TIME, Throttle::Kernel).expect("it can");
    fake.apply(&plan, &directories).expect_err("one is stuck");
    assert_eq!(fake.card(), card);
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn a_foreign_change_is_told_and_left() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    let plan = fake.plan(TIME, Throttle::Kernel).expect("it can");
    let moderation = fake.apply(&plan, &directories).expect("applied");
    fake.change(|card| drop(card.attributes.insert(FLUSH, "9".to_owned())));
    let told = results(moderation.undo());
    assert_eq!(
        told,
        [Undone::Restored, Undone::Changed("it is 9".to_owned())]
    );
    assert_eq!(fake.card().attributes[&FLUSH], "9");

    let plan = fake.plan(TIME, Throttle::Nic).expect("it can");
    let moderation = fake.apply(&plan, &directories).expect("applied");
    fake.change(|card| card.coalescing = Some(coalescing(51, 0)));
    let told = results(moderation.undo());
    assert_eq!(told, [Undone::Changed("51 µs, 7 packets".to_owned())]);
    // The plan is too old now.
    let error = fake.apply(&plan, &directories).expect_err("changed");
    assert!(error.to_string().contains("just now"), "{error}");
}

#[test]
fn one_at_a_time_and_the_dead_are_told_from_the_living() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    let plan = fake.plan(TIME, Throttle::Kernel).expect("it can");
    let first = fake.apply(&plan, &directories).expect("applied");
    let error = fake.apply(&plan, &directories).expect_err("there is one");
    assert!(
        error.to_string().contains("has a moderation on it"),
        "{error}"
    );
    let (found, unreadable) = Leftover::<ModerationPlan>::list_in(&directories);
    assert!(unreadable.is_empty());
    assert_eq!(found[0].life(), Life::Alive);
    assert!(found[0].undo(&fake).is_empty(), "it lives");

    let left = die(first, &directories);
    assert_eq!(results(left.undo(&fake)), [const { Undone::Restored }; 2]);
    assert_eq!(fake.card(), plain());
    assert!(Journal::list(&directories).is_empty());
}

/// As if this process had died: nobody undoes, and the journal names a process that is no more.
fn die(moderation: Moderation, directories: &[PathBuf]) -> Leftover<ModerationPlan> {
    let (journal, mut record) = (moderation.0.journal.clone(), moderation.0.record.clone());
    std::mem::forget(moderation);
    record.owner.start_time_ticks = record.owner.start_time_ticks.wrapping_sub(1);
    journal.write(&record).expect("written");
    let (mut found, unreadable) = Leftover::<ModerationPlan>::list_in(directories);
    assert!(unreadable.is_empty());
    assert_eq!(found[0].life(), Life::Dead);
    found.remove(0)
}

#[test]
fn what_a_card_rounded_is_put_back_though_nobody_wrote_it_down() {
    let (_guard, directories) = directory();
    let mut card = plain();
    card.unit_us = 8;
    card.coalescing = Some(coalescing(16, 0));
    let fake = Fake::new(card.clone());
    let plan = fake.plan(TIME, Throttle::Nic).expect("it can");
    let mut moderation = fake.apply(&plan, &directories).expect("applied");
    // It died between the change and the second line of the journal.
    for step in &mut moderation.0.record.plan.steps {
        if let ModerationStep::Coalescing { became, .. } = step {
            assert_eq!(became.take(), Some(words(48, 0)));
        }
    }
    let left = die(moderation, &directories);
    assert_eq!(results(left.undo(&fake)), [Undone::Restored]);
    assert_eq!(fake.card(), card);
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn a_damaged_journal_does_nothing() {
    let (_guard, directories) = directory();
    let fake = Fake::new(plain());
    let mut plan = fake.plan(TIME, Throttle::Nic).expect("it can");
    for step in &mut plan.steps {
        if let ModerationStep::Coalescing { was, will_be, .. } = step {
            (*was, *will_be) = (vec![1], words(3, 1));
        }
    }
    let mut record = Record::new(Owner::current().expect("/proc is here"), plan);
    record.begun = 5;
    let told = results(undo_steps(&record, &fake));
    assert_eq!(told, [Undone::Failed("the journal is damaged".to_owned())]);
    assert_eq!(fake.card(), plain());
    drop(directories);
}
