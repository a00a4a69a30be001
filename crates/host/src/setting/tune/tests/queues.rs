//! The settings of each queue, while the number of queues is changed and after.

use super::*;

/// A card with queues that a user has set: before, and after a change to fewer queues. The change
/// stays.
fn with_fewer_queues() -> (FakeMachine, Fake) {
    let tunables = many();
    let before = fake(&tunables);
    let fake = Fake::new(before.clone());
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &["channels".to_owned()]);
    assert_eq!(plan.edits().count(), 1);
    let (tuned, _) = make(&plan, &fake, false).expect("it can");
    assert!(!fake.machine().values.contains_key(&rps(6)));
    assert_ne!(fake.machine().values[&rps(1)], before.values[&rps(1)]);
    tuned.keep().expect("it can be written");
    (before, fake)
}

fn rps(queue: u32) -> Setting {
    file(&tunables::rps_file(queue))
}

/// Undoes what stays of the channels: what becomes of the change, and not of the claim.
fn undo_channels(fake: &Fake, force: bool) -> Undone {
    let (left, _) = leftovers_in(&fake.directory());
    let outcomes = left.iter().flat_map(|one| one.undo(fake, force));
    let mut results = results(outcomes.collect());
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// Settings of removed queues come back with the queues. So do settings of other queues that the
/// driver forgot. A setting changed since is reported and stays, unless it is to be put back, too.
#[test]
fn queues_come_back_as_they_were_set() {
    let (before, fake) = with_fewer_queues();
    assert_eq!(undo_channels(&fake, false), Undone::Restored);
    assert_eq!(fake.machine(), before);
    for force in [false, true] {
        let (before, fake) = with_fewer_queues();
        fake.set(rps(2), Value::set([0]));
        let undone = undo_channels(&fake, force);
        assert_eq!(undone == Undone::Restored, force, "{undone:?}");
        let now = match force {
            true => before,
            false => before.with(rps(2), Value::set([0])),
        };
        fake.is_again(&now);
    }
}

/// An undo that was refused looks at the queues again when it is asked again.
#[test]
fn what_is_set_between_two_undos_stays() {
    let (before, fake) = with_fewer_queues();
    fake.state().machine.stuck = Some(Setting::Channels);
    let refused = undo_channels(&fake, false);
    assert!(matches!(refused, Undone::Failed(_)), "{refused:?}");
    fake.state().machine.stuck = None;
    fake.set(rps(1), Value::set([0]));
    let undone = undo_channels(&fake, false);
    assert_eq!(
        undone,
        Undone::Partly("queues/rx-1/rps_cpus: changed since, it is 1".to_owned())
    );
    assert_eq!(fake.machine(), before.with(rps(1), Value::set([0])));
    assert_eq!(fake.journals(), 0);
}

/// A queue that refuses its setting is tried again by the next undo. That undo does not touch the
/// others.
#[test]
fn a_queue_that_refuses_is_tried_again() {
    let (before, fake) = with_fewer_queues();
    fake.state().machine.stuck = Some(rps(6));
    let told = undo_channels(&fake, false);
    let is_told = |why: &String| why.starts_with("queues/rx-6/rps_cpus: ");
    assert!(
        matches!(&told, Undone::Failed(why) if is_told(why)),
        "{told:?}"
    );
    fake.state().machine.stuck = None;
    fake.set(rps(1), Value::set([1]));
    assert_eq!(undo_channels(&fake, false), Undone::Restored);
    assert_eq!(fake.machine(), before.with(rps(1), Value::set([1])));
    assert_eq!(fake.journals(), 0);
}

/// While it is down a driver may have no interrupts, and what was set for them could not be put back.
#[test]
fn an_interface_that_is_down_is_set_up_first() {
    let (before, fake) = with_fewer_queues();
    let up = fake.machine();
    let is_interrupt = |setting: &Setting| matches!(setting, Setting::Affinity { .. });
    fake.state()
        .machine
        .values
        .retain(|setting, _| !is_interrupt(setting));
    let told = undo_channels(&fake, false);
    let down = "it has no interrupts while it is down: set it up first";
    assert_eq!(told, Undone::Failed(down.to_owned()));
    fake.state().machine = up;
    assert_eq!(undo_channels(&fake, false), Undone::Restored);
    assert_eq!(fake.machine(), before);
}
