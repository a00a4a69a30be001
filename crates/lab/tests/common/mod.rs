//! What all tests that need a lab share: whether there can be one here, and how a test is skipped.

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
    /// A lab whose packets take the queue that they are told to, and whose queues have CPUs.
    Placement,
}

/// A test: its name, what it needs, and what it does.
pub(crate) type Test = (&'static str, Need, fn() -> Result<(), Failed>);

/// Becomes root, in a user namespace if need be. To be called before there is a second thread.
pub(crate) fn become_root() -> Result<(), String> {
    if capability::effective(capability::CAP_SYS_ADMIN) {
        return Ok(());
    }
    become_root_in_user_namespace().map_err(|error| format!("no user namespace: {error}"))
}

/// Runs the tests. Those that this machine cannot run are reported as ignored, with the reason,
/// and are failures where `MPPS_REQUIRE_LAB=1` says that nothing may be skipped.
pub(crate) fn run(tests: Vec<Test>) -> Conclusion {
    let mut arguments = Arguments::from_args();
    // Two labs at once would share the CPUs that the tests count on.
    arguments.test_threads = Some(1);
    let (lab, placement) = obstacles();
    let required = std::env::var("MPPS_REQUIRE_LAB").is_ok_and(|value| value == "1");
    let trials = tests
        .into_iter()
        .map(|(name, need, test)| {
            let obstacle = match need {
                Need::Lab => lab.clone(),
                Need::Placement => lab.clone().or_else(|| placement.clone()),
            };
            match obstacle {
                None => Trial::test(name, test),
                Some(why) if required => Trial::test(name, || Err(Failed::from(why))),
                Some(why) => Trial::ignorable_test(name, move || {
                    Ok(libtest_mimic::Completion::ignored_with(why))
                }),
            }
        })
        .collect();
    libtest_mimic::run(&arguments, trials)
}

/// Why there can be no lab, and why none with placement.
fn obstacles() -> (Option<String>, Option<String>) {
    if let Err(why) = become_root() {
        return (Some(why), None);
    }
    let cpus = match sched::affinity(sched::thread_id()) {
        Ok(cpus) => cpus,
        Err(error) => return (Some(error.to_string()), None),
    };
    let config = LabConfig {
        queue_cpus: vec![cpus[0]; 4],
        ..LabConfig::default()
    };
    match Lab::new(&config) {
        Err(error) => (Some(error.to_string()), None),
        Ok(lab) if lab.notes().is_empty() => (None, None),
        Ok(lab) => (None, Some(lab.notes().join("; "))),
    }
}
