//! Lists as the kernel of 6.18 has them: every way to put them back, every way to die before.

use super::*;
use crate::setting::fake::{Fake, plain, results};
use crate::setting::{Applied, Undone};

/// The value while sleeping lists are woken.
const UNLIMITED: i32 = i32::MAX;

fn host(limit: Option<i64>) -> Fake {
    Fake::new(plain().with(Setting::SkbDefer, limit.map(Value::Number)))
}

fn limit(fake: &Fake) -> Value {
    fake.machine().values[&Setting::SkbDefer].clone()
}

fn apply(fake: &Fake) -> HostResult<Applied> {
    fake.apply(&SkbDefer::plan_on(fake, &fake.directory())?.change)
}

#[test]
fn the_lists_are_off_and_on_again_and_awake() {
    let fake = host(Some(64));
    let before = fake.machine();
    let off = apply(&fake).expect("applied");
    assert_eq!(limit(&fake), Value::Number(0));
    assert_eq!(results(off.undo()), [Undone::Restored]);
    assert_eq!(fake.machine(), before);
    drop(apply(&fake).expect("applied"));
    fake.is_again(&before);
}

#[test]
fn what_cannot_be_switched_off_is_told_in_a_sentence() {
    for (limit, why) in [
        (None, "Linux 5.19"),
        (Some(0), "already"),
        (Some(-1), "no length"),
    ] {
        let fake = host(limit);
        let error = SkbDefer::plan_on(&fake, &fake.directory()).expect_err(why);
        let text = error.to_string();
        assert!(text.contains(SKB_DEFER_MAX) && text.contains(why), "{text}");
    }
}

#[test]
fn one_at_a_time_and_a_dead_one_is_named_before_its_zero_is() {
    let fake = host(Some(64));
    let off = apply(&fake).expect("applied");
    let text = SkbDefer::plan_on(&fake, &fake.directory())
        .expect_err("taken")
        .to_string();
    assert!(text.contains("end that one first"), "{text}");
    assert!(fake.found().undo(&fake, false).is_empty(), "it lives");

    std::mem::forget(off);
    let left = fake.died();
    let text = SkbDefer::plan_on(&fake, &fake.directory())
        .expect_err("left over")
        .to_string();
    assert!(text.contains("`mpps undo` puts back"), "{text}");
    assert_eq!(left.steps(), (vec![format!("{SKB_DEFER_MAX} 64 -> 0")], 1));
    assert_eq!(results(left.undo(&fake, false)), [Undone::Restored]);
    fake.is_again(&host(Some(64)).machine());
}

#[test]
fn one_that_died_while_waking_and_one_whose_value_somebody_wrote_are_woken() {
    for limit in [UNLIMITED, 64] {
        let fake = host(Some(64));
        std::mem::forget(apply(&fake).expect("applied"));
        let left = fake.died();
        fake.set(Setting::SkbDefer, Value::number(limit));
        assert!(fake.machine().asleep);
        assert_eq!(results(left.undo(&fake, false)), [Undone::Restored]);
        assert_eq!(fake.machine(), host(Some(64)).machine());
    }
}

#[test]
fn a_foreign_value_is_told_and_left() {
    let fake = host(Some(64));
    let off = apply(&fake).expect("applied");
    fake.set(Setting::SkbDefer, Value::Number(99));
    let told = results(off.undo());
    assert_eq!(told, [Undone::Changed("it is 99".to_owned())]);
    assert_eq!(limit(&fake), Value::Number(99));
}

#[test]
fn lists_that_do_not_wake_keep_the_journal_and_not_the_zero() {
    let fake = host(Some(64));
    let off = apply(&fake).expect("applied");
    fake.state().machine.mute = true;
    let told = results(off.undo());
    assert!(matches!(&told[..], [Undone::Failed(_)]), "{told:?}");
    assert_eq!(limit(&fake), Value::Number(64));
    assert_eq!(fake.journals(), 1);
}

#[test]
fn what_could_not_be_put_back_is_not_switched_off() {
    for (read_only, mute, why) in [(true, false, "fake eth9"), (false, true, "no cpuset")] {
        let fake = host(Some(64));
        fake.state().machine.stuck = read_only.then_some(Setting::SkbDefer);
        fake.state().machine.mute = mute;
        let error = apply(&fake).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(
            (limit(&fake), fake.machine().asleep),
            (Value::Number(64), false)
        );
        assert_eq!(fake.journals(), 0);
    }
}
