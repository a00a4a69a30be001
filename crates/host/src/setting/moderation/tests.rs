//! A fake interface: every way in, every way out, every way to die in between.

use super::*;
use crate::setting::Journal;
use crate::setting::fake::{Fake, FakeMachine, plain as machine, results};
use crate::setting::journal::Record;
use crate::setting::{Applied, Owner, Undone};
use mpps_os::ethtool::coalesce::Coalescing;

fn flush() -> Setting {
    Setting::file("gro_flush_timeout")
}

fn defer() -> Setting {
    Setting::file("napi_defer_hard_irqs")
}

const WHOLE: Setting = Setting::Coalescing { queue: None };

fn coalescing(rx_time_us: u32, adaptive: u32) -> Value {
    let mut words = vec![0; 22];
    (words[0], words[1], words[9]) = (rx_time_us, 7, adaptive);
    Value::Numbers(words)
}

fn told(fake: &Fake) -> Coalescing {
    match &fake.machine().values[&WHOLE] {
        Value::Numbers(words) => Coalescing::from_words(words).expect("22 words"),
        other => panic!("{other:?}"),
    }
}

fn plain() -> FakeMachine {
    machine()
        .with(flush(), Value::Number(0))
        .with(defer(), Value::Number(0))
        .with(WHOLE, coalescing(3, 1))
}

fn planned(fake: &Fake, time: Duration, throttle: Throttle) -> HostResult<Moderation> {
    Moderation::plan_on(fake, "eth9", time, throttle)
}

const TIME: Duration = Duration::from_micros(50);

#[test]
fn the_kernel_defers_and_stops_to() {
    let fake = Fake::new(plain());
    let plan = planned(&fake, TIME, Throttle::Kernel).expect("it can");
    assert_eq!(
        plan.change.steps(),
        [
            "gro_flush_timeout 0 -> 50000",
            "napi_defer_hard_irqs 0 -> 2"
        ]
    );
    assert!(plan.to_string().contains("20000 times a second"), "{plan}");
    let moderation = fake.apply(&plan.change).expect("applied");
    assert_eq!(moderation.steps(), plan.change.steps());
    assert_eq!(fake.machine().values[&flush()], Value::Number(50000));
    assert_eq!(fake.machine().values[&defer()], Value::Number(2));
    assert_eq!(results(moderation.undo()), [const { Undone::Restored }; 2]);
    fake.is_again(&plain());
}

#[test]
fn a_card_waits_and_gets_its_own_choice_back() {
    for unit in [1, 8] {
        let mut card = plain();
        card.unit_us = unit;
        let fake = Fake::new(card.clone());
        let plan = planned(&fake, TIME, Throttle::Nic).expect("it can");
        assert_eq!(
            plan.change.edits[0].to_string(),
            "rx-usecs 3 adaptive -> 50"
        );
        let moderation = fake.apply(&plan.change).expect("applied");
        let now = told(&fake);
        assert_eq!(now.rx_time_us(), 50 / unit * unit);
        assert!(!now.is_adaptive_rx() && now.rx_packets() == 7);
        // A card with a coarse unit rounds on the way back as well, which is its own affair.
        drop(moderation);
        assert!(told(&fake).is_adaptive_rx());
        assert_eq!(fake.journals(), 0);
    }
}

#[test]
fn what_is_already_so_is_left_so() {
    let card = plain().with(WHOLE, coalescing(50, 0));
    let fake = Fake::new(card);
    assert!(
        planned(&fake, TIME, Throttle::Nic)
            .expect("it can")
            .change
            .edits
            .is_empty()
    );
    let none = planned(&fake, Duration::ZERO, Throttle::Kernel).expect("it can");
    assert!(none.change.edits.is_empty());
}

#[test]
fn a_driver_without_coalescing_is_told_in_a_sentence() {
    let card = plain().with(WHOLE, None);
    let error = planned(&Fake::new(card), TIME, Throttle::Nic).expect_err("none");
    let text = error.to_string();
    assert!(
        text.contains("eth9") && text.contains("the kernel can wait"),
        "{text}"
    );
    let long = Duration::from_secs(5000);
    let error = planned(&Fake::new(plain()), long, Throttle::Nic).expect_err("too long");
    assert!(error.to_string().contains("shorter"), "{error}");
}

#[test]
fn an_interface_without_queues_is_refused() {
    let mut card = plain();
    card.polled = Some(0);
    let fake = Fake::new(card);
    let error = planned(&fake, TIME, Throttle::Kernel).expect_err("none");
    assert!(error.to_string().contains("NAPI"), "{error}");
    planned(&fake, TIME, Throttle::Nic).expect("the card can");
    // An older kernel does not show its polled queues. The plan assumes that it has them.
    fake.state().machine.polled = None;
    planned(&fake, TIME, Throttle::Kernel).expect("it may");
    let error = Moderation::plan_on(&LiveKernel::default(), "lo", TIME, Throttle::Kernel);
    assert!(error.is_err(), "loopback has none");
}

#[test]
fn a_driver_that_keeps_no_time_is_found_out() {
    let mut card = plain();
    card.unit_us = 0;
    let card = card.with(WHOLE, coalescing(0, 0));
    let fake = Fake::new(card.clone());
    let plan = planned(&fake, TIME, Throttle::Nic).expect("it can");
    let error = fake.apply(&plan.change).expect_err("it does not");
    assert!(error.to_string().contains("does not keep it"), "{error}");
    fake.is_again(&card);
}

#[test]
fn a_refusal_in_the_middle_leaves_nothing() {
    let mut card = plain();
    card.stuck = Some(defer());
    let fake = Fake::new(card.clone());
    let plan = planned(&fake, TIME, Throttle::Kernel).expect("it can");
    fake.apply(&plan.change).expect_err("one is stuck");
    fake.is_again(&card);
}

#[test]
fn a_foreign_change_is_told_and_left() {
    let fake = Fake::new(plain());
    let plan = planned(&fake, TIME, Throttle::Kernel).expect("it can");
    let moderation = fake.apply(&plan.change).expect("applied");
    fake.set(flush(), Value::Number(9));
    let told = results(moderation.undo());
    assert_eq!(
        told,
        [Undone::Restored, Undone::Changed("it is 9".to_owned())]
    );
    assert_eq!(fake.machine().values[&flush()], Value::Number(9));

    let plan = planned(&fake, TIME, Throttle::Nic).expect("it can");
    let moderation = fake.apply(&plan.change).expect("applied");
    fake.set(WHOLE, coalescing(51, 0));
    let told = results(moderation.undo());
    assert_eq!(told, [Undone::Changed("51 µs, 7 packets".to_owned())]);
    // The plan is too old now.
    let error = fake.apply(&plan.change).expect_err("changed");
    assert!(error.to_string().contains("just now"), "{error}");
}

#[test]
fn one_at_a_time_and_the_dead_are_told_from_the_living() {
    let fake = Fake::new(plain());
    let plan = planned(&fake, TIME, Throttle::Kernel).expect("it can");
    let first = fake.apply(&plan.change).expect("applied");
    let error = fake.apply(&plan.change).expect_err("there is one");
    assert!(
        error.to_string().contains("has a moderation on it"),
        "{error}"
    );
    assert!(fake.found().undo(&fake, false).is_empty(), "it lives");

    std::mem::forget(first);
    let left = fake.died();
    assert_eq!(
        results(left.undo(&fake, false)),
        [const { Undone::Restored }; 2]
    );
    fake.is_again(&plain());
}

#[test]
fn what_a_card_rounded_is_put_back_though_nobody_wrote_it_down() {
    let mut card = plain();
    card.unit_us = 8;
    let card = card.with(WHOLE, coalescing(16, 0));
    let fake = Fake::new(card.clone());
    let plan = planned(&fake, TIME, Throttle::Nic).expect("it can");
    let mut moderation = fake.apply(&plan.change).expect("applied");
    // It died between the change and the second line of the journal.
    let edit = &mut moderation.record.change.edits[0];
    assert_eq!(edit.became.take(), Some(coalescing(48, 0)));
    moderation
        .journal
        .write(&moderation.record)
        .expect("written");
    std::mem::forget(moderation);
    let left = fake.died();
    assert_eq!(results(left.undo(&fake, false)), [Undone::Restored]);
    fake.is_again(&card);
}

#[test]
fn a_damaged_journal_is_refused() {
    let fake = Fake::new(plain());
    let mut change = planned(&fake, TIME, Throttle::Nic).expect("it can").change;
    change.edits[0].old = Value::Numbers(vec![1]);
    change.edits[0].new = coalescing(3, 1);
    let mut record = Record::new(Owner::current().expect("/proc is here"), change);
    record.begun = 5;
    let journal = Journal::create(&fake.directory(), &record).expect("written");
    let error = journal.read().expect_err("three words, of one").to_string();
    assert!(error.contains("rx-usecs has no value"), "{error}");
}

/// The one call gives the old time back, and the next lets the driver choose it again.
#[test]
fn who_dies_between_two_calls_leaves_what_is_its_own() {
    let card = plain().with(WHOLE, coalescing(3, 1));
    let fake = Fake::new(card.clone());
    let plan = planned(&fake, TIME, Throttle::Nic).expect("it can");
    let moderation = fake.apply(&plan.change).expect("applied");
    fake.set(WHOLE, coalescing(3, 0));
    assert_eq!(results(moderation.undo()), [Undone::Restored]);
    assert_eq!(fake.machine(), card);
}

/// An adaptive driver changes its times at any moment, which is no change by a user. Here it changes the
/// receive time before the settings are made, and the transmit time before and after that.
#[test]
fn queues_that_differ_wait_each_by_itself_and_get_their_own_times_back() {
    let of = |queue| Setting::Coalescing { queue: Some(queue) };
    let sending = |value: Value, time_us: u32| {
        let Value::Numbers(mut words) = value else {
            panic!("{value:?}");
        };
        (words[4], words[10]) = (time_us, 1);
        Value::Numbers(words)
    };
    let card = plain()
        .with(of(0), sending(coalescing(3, 1), 8))
        .with(of(1), coalescing(50, 0))
        .with(of(2), coalescing(7, 0));
    let fake = Fake::new(card.clone());
    let plan = planned(&fake, TIME, Throttle::Nic).expect("it can");
    let steps = [
        "queue 0 rx-usecs 3 adaptive -> 50",
        "queue 2 rx-usecs 7 -> 50",
    ];
    assert_eq!(plan.change.steps(), steps);
    fake.set(of(0), sending(coalescing(9, 1), 64));
    let moderation = fake.apply(&plan.change).expect("applied");
    let now = fake.machine().values;
    let fixed = sending(coalescing(50, 0), 8);
    let wanted = [&fixed, &coalescing(50, 0), &coalescing(50, 0)];
    assert_eq!([0, 1, 2].map(|queue| &now[&of(queue)]), wanted);
    assert_eq!(
        now[&WHOLE],
        coalescing(3, 1),
        "the value for all is not written"
    );
    fake.set(of(0), sending(coalescing(50, 0), 128));
    assert_eq!(results(moderation.undo()), [const { Undone::Restored }; 2]);
    assert_eq!(fake.machine(), card);
    // Another's switch is a change, and so is another's time where the driver chooses none.
    for other in [coalescing(9, 0), coalescing(50, 0)] {
        fake.set(of(0), sending(other, 8));
        let error = fake.apply(&plan.change).expect_err("changed");
        assert!(
            error.to_string().contains("queue 0 rx-usecs just now"),
            "{error}"
        );
    }
}

/// Queues whose settings equal those for all queues are set together. Some drivers show queues and
/// let none be set, or give a new queue another's time. One value for all works there, too.
#[test]
fn queues_that_do_not_differ_wait_together() {
    let of = |queue| Setting::Coalescing { queue: Some(queue) };
    let card = plain()
        .with(of(0), coalescing(3, 1))
        .with(of(1), coalescing(20, 1));
    let fake = Fake::new(card.clone());
    let plan = planned(&fake, TIME, Throttle::Nic).expect("it can");
    assert_eq!(plan.change.steps(), ["rx-usecs 3 adaptive -> 50"]);
    let moderation = fake.apply(&plan.change).expect("applied");
    assert_eq!(fake.machine().values[&of(1)], coalescing(50, 0));
    assert_eq!(results(moderation.undo()), [Undone::Restored]);
    // The undo for all queues is refused where a queue was set since, and that queue keeps its value.
    let moderation = fake.apply(&plan.change).expect("applied");
    fake.set(of(1), coalescing(0, 0));
    let told = results(moderation.undo());
    let differ = "its queues differ now".to_owned();
    assert_eq!(told, [Undone::Changed(differ)]);
    assert_eq!(fake.machine().values[&of(1)], coalescing(0, 0));
}

const SUSPENDED: Duration = Duration::from_millis(20);

fn napi(name: &str, queue: u32) -> Setting {
    let name = name.to_owned();
    Setting::Napi { name, queue }
}

/// A card of two queues, each with its own settings.
fn two_queues() -> FakeMachine {
    let mut machine = plain();
    for queue in [0, 1] {
        for name in [
            "gro-flush-timeout",
            "defer-hard-irqs",
            "irq-suspend-timeout",
        ] {
            machine = machine.with(napi(name, queue), Value::Number(0));
        }
    }
    machine.with(napi("gro-flush-timeout", 1), Value::Number(200_000))
}

fn suspended(fake: &Fake, queues: &[u32]) -> HostResult<SettingChange> {
    irq_suspension_on(fake, "eth9", queues, SUSPENDED)
}

#[test]
fn interrupts_of_a_queue_are_suspended_and_what_was_deferred_before_stays() {
    let fake = Fake::new(two_queues());
    let [first, second] = [
        "gro-flush-timeout of queue 0 0 -> 50000,defer-hard-irqs of queue 0 0 -> 100,\
         irq-suspend-timeout of queue 0 0 -> 20000000",
        "defer-hard-irqs of queue 1 0 -> 100,irq-suspend-timeout of queue 1 0 -> 20000000",
    ];
    let steps = |queues| suspended(&fake, queues).expect("it can").steps().join(",");
    assert_eq!([steps(&[0]), steps(&[1])], [first, second]);
    assert_eq!(steps(&[]), [first, second].join(","));
    let change = suspended(&fake, &[1]).expect("it can");
    let applied = fake.apply(&change).expect("applied");
    for (queue, time) in [(0, 0), (1, 20_000_000)] {
        let now = &fake.machine().values[&napi("irq-suspend-timeout", queue)];
        assert_eq!(*now, Value::Number(time));
    }
    assert_eq!(results(applied.undo()), [const { Undone::Restored }; 2]);
    assert_eq!(fake.machine(), two_queues());
}

#[test]
fn what_cannot_be_suspended_says_why() {
    let mut none = plain();
    none.polled = Some(0);
    for (machine, why) in [(plain(), "Linux 6.13"), (none, "no queue")] {
        let error = suspended(&Fake::new(machine), &[]).expect_err("refused");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_signal_between_two_edits_puts_the_first_back() {
    let fake = Fake::new(plain());
    let plan = planned(&fake, TIME, Throttle::Kernel).expect("it can");
    let asked = std::cell::Cell::new(0);
    let goes_on = || asked.replace(asked.get() + 1) < 1;
    let host = Box::new(fake.clone());
    let made = Applied::on_while(host, &plan.change, &fake.directory(), &goes_on);
    let error = made.expect_err("a signal came").to_string();
    assert!(error.contains("interrupted"), "{error}");
    assert_eq!((asked.get(), fake.machine()), (2, plain()));
    assert_eq!(fake.journals(), 0);
}
