//! What all tests that need a lab share: whether there can be one here, and how a test is skipped.

#[path = "../../../os/tests/common/trial.rs"]
pub(crate) mod trial;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use mpps_lab::{Lab, LabConfig};
use mpps_os::namespace::become_root_in_user_namespace;
use mpps_os::{capability, sched};

/// What a test asks of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each test program uses some of them")]
pub(crate) enum Need {
    /// A lab of any kind.
    Lab,
    /// A lab whose queues have kernel threads, pinned to their CPUs.
    Threads,
    /// A lab, and this example of the package.
    Example(&'static str),
    /// A lab whose packets take the queue that they are told to, and whose queues have CPUs.
    Placement,
}

/// A test: its name, what it needs, and what it does.
#[allow(dead_code, reason = "each test program uses some of them")]
pub(crate) type Test = (&'static str, Need, fn() -> Result<(), Failed>);

/// Becomes root, in a user namespace if need be. To be called before there is a second thread.
pub(crate) fn become_root() -> Result<(), String> {
    if capability::effective(capability::CAP_SYS_ADMIN) {
        return Ok(());
    }
    become_root_in_user_namespace().map_err(|error| format!("no user namespace: {error}"))
}

/// Runs the tests, one at a time.
#[allow(dead_code, reason = "each test program uses some of them")]
pub(crate) fn run(tests: Vec<Test>) -> Conclusion {
    let probed = probe();
    let trials = tests.into_iter().map(|(name, need, test)| {
        let obstacle = match need {
            Need::Lab => probed.as_ref().err().cloned(),
            Need::Threads => probed.as_ref().map_or_else(
                |why| Some(why.clone()),
                |lab| lab.unplaced().map(str::to_owned),
            ),
            Need::Placement => obstacle_to_placement(&probed),
            Need::Example(example) => {
                let is_built = trial::example(example).exists();
                let build = || format!("not built: cargo build -p mpps-lab --example {example}");
                let lab = probed.as_ref().err().cloned();
                lab.or_else(|| (!is_built).then(build))
            }
        };
        trial::new(name, || obstacle, test)
    });
    let trials = trials.collect();
    drop(probed);
    run_trials(trials, 1)
}

/// The same of trials that know themselves what they need, several at a time if they do not count
/// on CPUs, which labs at once would share.
pub(crate) fn run_trials(trials: Vec<Trial>, at_once: usize) -> Conclusion {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(at_once);
    libtest_mimic::run(&arguments, trials)
}

/// Why there can be no lab with placement.
pub(crate) fn obstacle_to_placement(probed: &Result<Lab, String>) -> Option<String> {
    match probed {
        Err(why) => Some(why.clone()),
        Ok(lab) if lab.notes().is_empty() => None,
        Ok(lab) => Some(lab.notes().join("; ")),
    }
}

/// A lab, which tells what this machine has, or why there can be none. To be called before there is
/// a second thread.
pub(crate) fn probe() -> Result<Lab, String> {
    become_root()?;
    let cpus = sched::affinity(sched::thread_id()).map_err(|error| error.to_string())?;
    let config = LabConfig {
        queue_cpus: vec![cpus[0]; 4],
        ..LabConfig::default()
    };
    Lab::new(&config).map_err(|error| error.to_string())
}
