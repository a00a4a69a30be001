//! Trials are tests that start programs, make namespaces, or take time, under one scheduler.
//!
//! A crate has one program of them, `tests/main.rs`, which lists its trials by [`trials!`] and hands
//! them to [`run`]. Each says what it takes of the machine: what is [`Trial::pure`] computes,
//! what [`Trial::waits`] shares the CPUs with others, and what [`Trial::measures`] has the machine
//! alone, after all others. All but the pure ones are processes of their own, so that they may become
//! root in a user namespace or count their descriptors. Root's have a `/run` of their own as well.
//!
//! A trial whose [`Need`] is not met is ignored with its reason. With `MPPS_REQUIRE_LAB=1` it fails.

mod need;
mod process;

pub use libtest_mimic::Failed;
pub use need::{Need, able, program, root};

use libtest_mimic::{Arguments, Completion};
use process::{SKIPPED, apart};
use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

/// Names the trial that this program, started again, is to run itself.
const APART: &str = "MPPS_TRIAL";
/// Chooses trials by what they need: `rights` are all that start something, `programs` those that
/// need a program of another package.
const CHOSEN: &str = "MPPS_TRIALS";
/// Trials at once for each CPU: most of them wait.
const LANES: usize = 4;

/// What a trial takes of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pure,
    Waits,
    Measures,
}

/// What a test function may answer.
pub trait Outcome {
    /// Whether it passed.
    ///
    /// # Errors
    ///
    /// Why it did not.
    fn passed(self) -> Result<(), Failed>;
}

impl Outcome for () {
    fn passed(self) -> Result<(), Failed> {
        Ok(())
    }
}

impl Outcome for Result<(), Failed> {
    fn passed(self) -> Self {
        self
    }
}

/// A test with its name, what it takes of the machine, and what it needs.
pub struct Trial {
    name: String,
    kind: Kind,
    needs: Vec<Need>,
    test: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

impl std::fmt::Debug for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} {:?}", self.kind, self.name, self.needs)
    }
}

impl Trial {
    /// Computes, starts nothing, and runs in this process beside others.
    pub fn pure<O: Outcome>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, Kind::Pure, test)
    }

    /// Runs beside others, for it mostly waits and compares no rates.
    pub fn waits<O: Outcome>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, Kind::Waits, test)
    }

    /// Has the machine alone.
    pub fn measures<O: Outcome>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, Kind::Measures, test)
    }

    fn new<O: Outcome>(
        name: impl Into<String>,
        kind: Kind,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            needs: Vec::new(),
            test: Box::new(|| test().passed()),
        }
    }

    /// Its name, by which the command line chooses it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds what it needs; what is missing first is the reason why it is ignored.
    #[must_use]
    pub fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    fn is_chosen(&self, by: Option<&str>) -> bool {
        match by {
            Some("rights") => self.kind != Kind::Pure,
            Some("programs") => self.needs.iter().any(Need::is_program),
            _ => true,
        }
    }

    /// Runs it in this process, whose only work it is.
    fn play(self) -> ExitCode {
        for need in &self.needs {
            if let Err(why) = need.look() {
                process::say(&why);
                return SKIPPED.into();
            }
        }
        match (self.test)() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failed) => {
                process::say(failed.message().unwrap_or("it failed"));
                ExitCode::FAILURE
            }
        }
    }
}

/// Trials of functions of this module, which give them their names:
///
/// ```ignore
/// trials![
///     pure: a_hash_is_the_standards;
///     waits(Need::Root, Need::Program("nft", "nftables")): a_rule_drops, a_rule_goes;
/// ]
/// ```
#[macro_export]
macro_rules! trials {
    ($($kind:ident $(($($need:expr),+ $(,)?))? : $($test:path),+ $(,)?;)*) => {{
        let mut trials: Vec<$crate::Trial> = Vec::new();
        $(
            let needs: Vec<$crate::Need> = vec![$($($need),+)?];
            for trial in [$($crate::Trial::$kind(
                $crate::name(module_path!(), stringify!($test)),
                $test,
            )),+] {
                trials.push(needs.iter().cloned().fold(trial, $crate::Trial::needs));
            }
        )*
        trials
    }};
}

/// The name of a trial: its function's path without the program.
#[must_use]
pub fn name(module: &str, function: &str) -> String {
    match module.split_once("::") {
        Some((_, inner)) => format!("{inner}::{function}"),
        None => function.to_owned(),
    }
}

/// The name of the trial whose own process this is.
#[must_use]
pub fn own_name() -> Option<String> {
    env::var(APART).ok()
}

/// An example of the package whose tests these are: cargo builds them beside its test programs.
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
    // Among the others, each would wait until all lanes are empty.
    trials.sort_by_key(|trial| trial.kind);
    let mut arguments = Arguments::from_args();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads = arguments.test_threads.or(Some(LANES * cpus));
    // Held by all trials under way; one that measures waits for the others.
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
                apart(&name)
            }
            Kind::Measures => {
                let _alone = machine.write().unwrap_or_else(PoisonError::into_inner);
                apart(&name)
            }
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
