//! The scheduler: which trials run, and which of them side by side.

use crate::Trial;
use crate::process::{apart, own_name, say_slowest};
use crate::trial::MachineUse;
use libtest_mimic::{Arguments, Completion};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

/// Chooses trials by their requirements. `rights` chooses all that start something, `programs`
/// those that need a program of another package.
const CHOSEN: &str = "MPPS_TRIALS";
/// Trials at once for each CPU, at most and in any case: most of them wait. Between the two, a trial
/// starts only while the machine has a CPU for it. Otherwise programs find no CPU for longer than a
/// socket's buffer lasts.
const LANES_MAX: usize = 4;
const LANES_MIN: usize = 1;
/// The time between two looks at the machine.
const LOOK: Duration = Duration::from_millis(20);

/// An example of the package under test. Cargo builds examples beside its test programs.
///
/// # Panics
///
/// If this program does not lie where cargo puts test programs.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    let own = env::current_exe().expect("it has a path");
    let target = own.parent().and_then(|deps| deps.parent());
    target.expect("target/debug").join("examples").join(name)
}

/// Runs the trials that the command line chooses, with libtest's options.
pub fn run(mut trials: Vec<Trial>) -> ExitCode {
    if let Some(name) = own_name() {
        let trial = trials.into_iter().find(|trial| trial.name == name);
        return trial.expect("it lists itself").play();
    }
    let chosen = env::var(CHOSEN).ok();
    trials.retain(|trial| trial.is_chosen(chosen.as_deref()));
    // A trial that measures or compares waits for those of other kinds. So these come last.
    trials.sort_by_key(|trial| trial.kind);
    let mut arguments = Arguments::from_args();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads = arguments.test_threads.or(Some(LANES_MAX * cpus));
    let machine = Arc::new(Machine::new(cpus));
    let trials = trials.into_iter().map(|trial| {
        let machine = Arc::clone(&machine);
        let Trial {
            name,
            kind,
            needs,
            test,
        } = trial;
        libtest_mimic::Trial::ignorable_test(name.clone(), move || match kind {
            MachineUse::Pure if needs.is_empty() => test().map(|()| Completion::Completed),
            _ => machine.during(kind, || apart(&name, kind)),
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    say_slowest();
    conclusion.exit_code()
}

/// The machine, and which trials are under way on it.
struct Machine {
    /// Held by each trial. A trial that measures waits for all others.
    alone: RwLock<()>,
    /// Held by those that wait. Trials are started in the order of their kinds. So a trial that
    /// compares starts after the last of these has ended.
    waiting: RwLock<()>,
    lanes: Lanes,
}

impl Machine {
    fn new(cpus: usize) -> Self {
        Self {
            alone: RwLock::new(()),
            waiting: RwLock::new(()),
            lanes: Lanes::new(cpus),
        }
    }

    /// Does this as soon as a trial of this kind may start.
    fn during<R>(&self, kind: MachineUse, work: impl FnOnce() -> R) -> R {
        if kind == MachineUse::Measures {
            let _alone = self.alone.write().unwrap_or_else(PoisonError::into_inner);
            return work();
        }
        if kind == MachineUse::Compares {
            drop(self.waiting.write());
        }
        let _shared = self.alone.read().unwrap_or_else(PoisonError::into_inner);
        let waits = || self.waiting.read().unwrap_or_else(PoisonError::into_inner);
        let _waits = (kind != MachineUse::Compares).then(waits);
        let _lane = self.lanes.enter();
        work()
    }
}

/// The trials under way, as many as the machine has CPUs for.
struct Lanes {
    cpus: usize,
    taken: AtomicUsize,
    /// Held by the trial that is next.
    next: Mutex<()>,
}

impl Lanes {
    fn new(cpus: usize) -> Self {
        Self {
            cpus,
            taken: AtomicUsize::new(0),
            next: Mutex::new(()),
        }
    }

    /// Waits for a lane, which is free again when the guard is dropped.
    fn enter(&self) -> Lane<'_> {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.has_room() {
            thread::sleep(LOOK);
        }
        self.taken.fetch_add(1, Ordering::AcqRel);
        Lane(&self.taken)
    }

    fn has_room(&self) -> bool {
        let taken = self.taken.load(Ordering::Acquire);
        taken < LANES_MIN * self.cpus || (taken < LANES_MAX * self.cpus && self.is_quiet())
    }

    /// True if a CPU was free at each of three looks. Where that cannot be read, none may be.
    fn is_quiet(&self) -> bool {
        (0..3).all(|_| {
            thread::sleep(LOOK / 2);
            // This thread runs as well.
            running().is_some_and(|running| running <= self.cpus)
        })
    }
}

/// A lane of one trial.
struct Lane<'a>(&'a AtomicUsize);

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The tasks of the machine that run or wait for a CPU (`procs_running`, proc_stat(5)).
fn running() -> Option<usize> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix("procs_running "))?;
    line.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn those_that_compare_meet_only_each_other() {
        let machine = Machine::new(2);
        let (order, both) = (Mutex::new(Vec::new()), Barrier::new(2));
        let add = |kind| order.lock().expect("no panic").push(kind);
        let compare = || {
            machine.during(MachineUse::Compares, || {
                both.wait();
                add(MachineUse::Compares);
            });
        };
        thread::scope(|scope| {
            machine.during(MachineUse::Waits, || {
                scope.spawn(compare);
                scope.spawn(compare);
                // One of them may take its time.
                thread::sleep(LOOK);
                add(MachineUse::Waits);
            });
        });
        machine.during(MachineUse::Measures, || add(MachineUse::Measures));
        let order = order.into_inner().expect("no panic");
        assert!(order.is_sorted() && order.len() == 4, "{order:?}");
    }

    #[test]
    fn a_busy_machine_has_fewer_lanes() {
        assert!(running().is_some_and(|running| running > 0));
        let lanes = Lanes::new(1);
        let first = lanes.enter();
        assert_eq!(lanes.taken.load(Ordering::Acquire), 1);
        drop(first);
        assert!(lanes.has_room());
        // A machine without a CPU is never quiet, and has no lane beyond the least.
        assert!(!Lanes::new(0).has_room());
    }
}
