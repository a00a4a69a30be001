//! The scheduler: which trials run, and which of them side by side.

use crate::Trial;
use crate::process::{apart, own_name};
use crate::trial::Kind;
use libtest_mimic::{Arguments, Completion};
use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

/// Chooses trials by their requirements. `rights` chooses all that start something, `programs`
/// those that need a program of another package.
const CHOSEN: &str = "MPPS_TRIALS";
/// Trials at once for each CPU: most of them wait. With four, some got no CPU for longer than a
/// socket's buffer lasts.
const LANES: usize = 2;

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
    // A trial that measures waits until all lanes are empty. So these come last.
    trials.sort_by_key(|trial| trial.kind);
    let mut arguments = Arguments::from_args();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads = arguments.test_threads.or(Some(LANES * cpus));
    // Each trial under way holds it. A trial that measures waits for the others.
    let machine = Arc::new(RwLock::new(()));
    let trials = trials.into_iter().map(|trial| {
        let machine = Arc::clone(&machine);
        let Trial {
            name,
            kind,
            needs,
            test,
        } = trial;
        libtest_mimic::Trial::ignorable_test(name.clone(), move || match kind {
            Kind::Pure if needs.is_empty() => test().map(|()| Completion::Completed),
            Kind::Pure | Kind::Waits => {
                let _shared = machine.read().unwrap_or_else(PoisonError::into_inner);
                apart(&name, kind)
            }
            Kind::Measures => {
                let _alone = machine.write().unwrap_or_else(PoisonError::into_inner);
                apart(&name, kind)
            }
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
