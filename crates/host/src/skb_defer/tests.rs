//! Lists as the kernel of 6.18 has them: every way to put them back, every way to die before.

use super::*;
use crate::change::{Left, Leftover};
use crate::cpu::Topology;
use crate::journal::Life;
use crate::root::fixture;
use mpps_os::Result as Answer;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// What the kernel knows.
#[derive(Debug, Clone, PartialEq)]
struct State {
    limit: Option<String>,
    /// The list is empty and counted full.
    asleep: bool,
    /// `/proc/sys` may be read only.
    read_only: bool,
    /// Loopback is down.
    mute: bool,
}

#[derive(Debug, Clone)]
struct Fake(Rc<RefCell<State>>);

impl Fake {
    fn new(limit: Option<&str>) -> Self {
        Self(Rc::new(RefCell::new(State {
            limit: limit.map(str::to_owned),
            asleep: false,
            read_only: false,
            mute: false,
        })))
    }

    fn state(&self) -> State {
        self.0.borrow().clone()
    }

    fn plan(&self, directories: &[PathBuf]) -> Result<SkbDeferPlan> {
        SkbDeferPlan::make(self, directories)
    }

    fn apply(&self, directories: &[PathBuf]) -> Result<SkbDefer> {
        let plan = self.plan(directories)?;
        Made::apply(&plan, Box::new(self.clone()), directories).map(SkbDefer)
    }
}

impl DeferLists for Fake {
    fn namespace(&self) -> Answer<u32> {
        Ok(7)
    }

    fn limit(&self) -> Answer<Option<String>> {
        Ok(self.state().limit)
    }

    fn set_limit(&self, packets: u32) -> Answer<()> {
        let mut state = self.0.borrow_mut();
        if state.read_only {
            let source = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
            return Err(mpps_os::Error::new("open", SKB_DEFER_MAX, source));
        }
        // Somebody's packets come at any time.
        state.asleep |= packets == 0;
        state.limit = Some(packets.to_string());
        Ok(())
    }

    fn wake(&self) -> Answer<()> {
        let mut state = self.0.borrow_mut();
        if state.mute {
            let source = io::Error::from_raw_os_error(101);
            return Err(mpps_os::Error::new("connect", "127.0.0.1", source));
        }
        // Under a limit below its count a list stays as it is.
        if state.limit == Some(UNLIMITED.to_string()) {
            state.asleep = false;
        }
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

/// As if this process had died: nobody undoes, and the journal names a process that is no more.
fn die(off: SkbDefer, directories: &[PathBuf]) -> Leftover<SkbDeferPlan> {
    let (journal, mut record) = (off.0.journal.clone(), off.0.record.clone());
    std::mem::forget(off);
    record.owner.start_time_ticks = record.owner.start_time_ticks.wrapping_sub(1);
    journal.write(&record).expect("written");
    let (mut found, unreadable) = Leftover::list_in(directories);
    assert!(unreadable.is_empty(), "{unreadable:?}");
    found.remove(0)
}

#[test]
fn the_lists_are_off_and_on_again_and_awake() {
    let (_guard, directories) = directory();
    let fake = Fake::new(Some("64"));
    let before = fake.state();
    let off = fake.apply(&directories).expect("applied");
    assert_eq!(fake.state().limit.as_deref(), Some("0"));
    assert_eq!(results(off.undo()), [Undone::Restored]);
    assert_eq!(fake.state(), before);
    drop(fake.apply(&directories).expect("applied"));
    assert_eq!(fake.state(), before);
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn what_cannot_be_switched_off_is_told_in_a_sentence() {
    let (_guard, directories) = directory();
    for (limit, why) in [
        (None, "Linux 5.19"),
        (Some("0"), "already"),
        (Some("x"), "no number"),
    ] {
        let error = Fake::new(limit).plan(&directories).expect_err(why);
        let text = error.to_string();
        assert!(text.contains(SKB_DEFER_MAX) && text.contains(why), "{text}");
    }
}

#[test]
fn one_at_a_time_and_a_dead_one_is_named_before_its_zero_is() {
    let (_guard, directories) = directory();
    let fake = Fake::new(Some("64"));
    let off = fake.apply(&directories).expect("applied");
    let text = fake.plan(&directories).expect_err("taken").to_string();
    assert!(text.contains("end that one first"), "{text}");
    let (found, _) = Leftover::<SkbDeferPlan>::list_in(&directories);
    assert_eq!(found[0].life(), Life::Alive);
    assert!(found[0].undo(&fake).is_empty(), "it lives");

    let left = die(off, &directories);
    let text = fake.plan(&directories).expect_err("left over").to_string();
    assert!(text.contains("`mpps undo` puts back"), "{text}");
    assert_eq!(left.steps(), (vec![format!("{SKB_DEFER_MAX} 64 -> 0")], 1));
    assert_eq!(results(left.undo(&fake)), [Undone::Restored]);
    assert_eq!(fake.state(), Fake::new(Some("64")).state());
    assert!(Journal::list(&directories).is_empty());
}

#[test]
fn one_that_died_while_waking_and_one_whose_value_somebody_wrote_are_woken() {
    for limit in [UNLIMITED, 64] {
        let (_guard, directories) = directory();
        let fake = Fake::new(Some("64"));
        let left = die(fake.apply(&directories).expect("applied"), &directories);
        fake.set_limit(limit).expect("set");
        assert!(fake.state().asleep);
        assert_eq!(results(left.undo(&fake)), [Undone::Restored]);
        assert_eq!(fake.state(), Fake::new(Some("64")).state());
    }
}

#[test]
fn a_foreign_value_is_told_and_left() {
    let (_guard, directories) = directory();
    let fake = Fake::new(Some("64"));
    let off = fake.apply(&directories).expect("applied");
    fake.set_limit(99).expect("set");
    let told = results(off.undo());
    assert_eq!(told, [Undone::Changed("it is 99".to_owned())]);
    assert_eq!(fake.state().limit.as_deref(), Some("99"));
}

#[test]
fn lists_that_do_not_wake_keep_the_journal_and_not_the_zero() {
    let (_guard, directories) = directory();
    let fake = Fake::new(Some("64"));
    let off = fake.apply(&directories).expect("applied");
    fake.0.borrow_mut().mute = true;
    let told = results(off.undo());
    assert!(matches!(&told[..], [Undone::Failed(_)]), "{told:?}");
    assert_eq!(fake.state().limit.as_deref(), Some("64"));
    assert_eq!(Journal::list(&directories).len(), 1);
}

#[test]
fn what_could_not_be_put_back_is_not_switched_off() {
    for (read_only, mute, why) in [(true, false, "read-only"), (false, true, "no cpuset")] {
        let (_guard, directories) = directory();
        let fake = Fake::new(Some("64"));
        fake.0.borrow_mut().read_only = read_only;
        fake.0.borrow_mut().mute = mute;
        let error = fake.apply(&directories).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
        let state = fake.state();
        assert_eq!((state.limit.as_deref(), state.asleep), (Some("64"), false));
        assert!(Journal::list(&directories).is_empty());
    }
}

#[test]
fn the_setting_is_read_and_written_where_the_kernel_has_it() {
    let tree = fixture::tree("proc/sys/net/core/skb_defer_max = 64");
    let lists = KernelLists::at(tree.root.clone());
    assert_eq!(lists.limit().expect("readable").as_deref(), Some("64"));
    lists.set_limit(0).expect("writable");
    let written = tree.root.read("proc/sys/net/core/skb_defer_max");
    assert_eq!(written.expect("readable"), "0");
    let none = KernelLists::at(fixture::tree("").root.clone());
    assert_eq!(none.limit().expect("absence is no error"), None);
    none.set_limit(0)
        .expect_err("a file that is not there is not made");
}

#[test]
fn packets_go_from_cpu_to_cpu() {
    // Under the machine's own limit this is ordinary traffic, and changes nothing.
    let woken = KernelLists::default().wake();
    let topology = Topology::read().expect("/proc and /sys are here");
    if let Err(refusal) = woken {
        // Only a cpuset forbids it.
        assert_eq!(refusal.call, "sched_setaffinity", "{refusal}");
        assert!(topology.usable().len() < topology.cpus.len(), "{refusal}");
    }
}
