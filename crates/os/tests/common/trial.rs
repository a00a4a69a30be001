//! What test programs share: how a test is skipped, how it is tried again where others disturbed it,
//! and trials in processes of their own, several at a time.
#![allow(dead_code, reason = "each test program uses some of it")]

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{PoisonError, RwLock};

/// Tells this program, started again, to run a trial itself.
const APART: &str = "MPPS_TRIAL_APART";

/// An example of the package whose tests these are: cargo builds them beside its test programs.
pub(crate) fn example(name: &str) -> PathBuf {
    let own = env::current_exe().expect("it has a path");
    let target = own.parent().and_then(|deps| deps.parent());
    target.expect("target/debug").join("examples").join(name)
}

/// Held by all trials under way; one that needs the machine for itself waits for the others.
static MACHINE: RwLock<()> = RwLock::new(());

/// A test, which is ignored with the reason if there is an obstacle to it, or fails where
/// `MPPS_REQUIRE_LAB=1` says that nothing may be skipped. The obstacle is looked for when its turn
/// comes.
pub(crate) fn new(
    name: impl Into<String>,
    obstacle: impl FnOnce() -> Option<String> + Send + 'static,
    test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let required = env::var("MPPS_REQUIRE_LAB").is_ok_and(|value| value == "1");
    Trial::ignorable_test(name, move || match obstacle() {
        None => test().map(|()| Completion::Completed),
        Some(why) if required => Err(Failed::from(why)),
        Some(why) => Ok(Completion::ignored_with(why)),
    })
}

/// Runs a test, and again if it failed while a CPU's backlog overflowed: the packets of all
/// programs on all loopback interfaces share it, and what it drops is counted for the CPU alone.
pub(crate) fn undisturbed(test: impl Fn()) {
    for _ in 0..4 {
        let before = backlog_drops();
        match panic::catch_unwind(AssertUnwindSafe(&test)) {
            Ok(()) => return,
            Err(panic) if backlog_drops() == before => panic::resume_unwind(panic),
            Err(_) => {}
        }
    }
    test();
}

/// The second column of /proc/net/softnet_stat (softnet_seq_show, net/core/net-procfs.c).
fn backlog_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").expect("/proc is mounted");
    let column = text.lines().filter_map(|line| line.split(' ').nth(1));
    column
        .filter_map(|drops| u64::from_str_radix(drops, 16).ok())
        .sum()
}

/// Runs trials in processes of their own, for programs that count what a process has, such as its
/// descriptors, or that mostly wait: `lanes` at a time, and then those of which `is_alone` one by one.
pub(crate) fn run(mut trials: Vec<Trial>, lanes: usize, is_alone: fn(&str) -> bool) -> ExitCode {
    // Among the others, each would wait until all lanes are empty.
    trials.sort_by_key(|trial| is_alone(trial.name()));
    let mut arguments = Arguments::from_args();
    if env::var_os(APART).is_some() {
        arguments.test_threads = Some(1);
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    arguments.test_threads = Some(lanes);
    let trials = trials.into_iter().map(|trial| {
        let name = trial.name().to_owned();
        Trial::ignorable_test(name.clone(), move || {
            if is_alone(&name) {
                let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
                run_apart(&name)
            } else {
                let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
                run_apart(&name)
            }
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn run_apart(name: &str) -> Result<Completion, Failed> {
    let output = Command::new(env::current_exe()?)
        .args(["--exact", name, "--color", "never"])
        .env(APART, "1")
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let outcome = said.lines().find_map(|line| {
        let line = line.strip_prefix("test ")?.strip_prefix(name)?;
        line.trim_start().strip_prefix("... ")
    });
    match outcome {
        Some("ok") if output.status.success() => Ok(Completion::Completed),
        Some(outcome) if output.status.success() && outcome.starts_with("ignored") => {
            let why = outcome.trim_start_matches("ignored (");
            Ok(Completion::ignored_with(why.trim_end_matches(')')))
        }
        _ => {
            let heard = String::from_utf8_lossy(&output.stderr);
            let text = format!("{}\n{said}{heard}", output.status);
            // A summary at the start of a line would be taken for this program's own.
            Err(Failed::from(text.trim_end().replace('\n', "\n  ")))
        }
    }
}
