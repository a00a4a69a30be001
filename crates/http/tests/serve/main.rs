//! The server against real sockets: every scenario over every engine, with no switch, with all, and
//! with the sets between for which it makes a difference.
//!
//! Each trial has a network namespace of its own where that is allowed, and the loopback of the
//! host otherwise. After each, what was accepted has ended and no descriptor is left.

mod client;
mod conformance;
mod exhaustion;
mod hostile;
mod lifecycle;
mod scenario;
#[path = "../../../os/tests/common/trial.rs"]
mod trial;

use libtest_mimic::{Failed, Trial};
use mpps_http::{ENGINES, Engine, Limits, Support, Switch, Switches, Task};
use mpps_os::capability;
use mpps_os::namespace::{NetNamespace, become_root_in_user_namespace};
use mpps_os::netlink::link;
use scenario::Scenario;
use std::process::ExitCode;

/// Sets of switches that take different ways through an engine, the first with none and the last
/// with all. Those that it does not have are left out, and what is then the same is tried once.
const SETS: &[&[Switch]] = &[
    &[],
    &[Switch::Fds],
    &[Switch::Events],
    &[Switch::Buffers],
    &[Switch::Fds, Switch::Events],
    &[
        Switch::Affinity,
        Switch::Buffers,
        Switch::Fds,
        Switch::Events,
    ],
];

fn main() -> ExitCode {
    if let Some(code) = exhaustion::child() {
        return code;
    }
    let has_namespaces = can_have_namespaces();
    let scenarios = [
        conformance::SCENARIOS,
        hostile::SCENARIOS,
        lifecycle::SCENARIOS,
        exhaustion::SCENARIOS,
    ];
    let mut trials = Vec::new();
    for engine in ENGINES {
        let sets = sets(engine);
        for (place, &switches) in sets.iter().enumerate() {
            let is_between = place > 0 && place + 1 < sets.len();
            for scenario in scenarios.iter().copied().flatten() {
                if is_between && !scenario.switches.iter().any(|&s| switches.has(s)) {
                    continue;
                }
                trials.push(of(engine, switches, scenario, has_namespaces));
            }
        }
    }
    // Descriptors are counted, and there is one table of them in a process. Most trials wait for a
    // limit of the server to pass.
    trial::run(trials, 24, |name| {
        name.ends_with("/many_connects_without_data_stop_nobody")
    })
}

fn sets(engine: &Engine) -> Vec<Switches> {
    let known = (engine.switches)(&Limits::default())
        .into_iter()
        .filter(|a| a.possible);
    let known: Vec<Switch> = known.map(|a| a.switch).collect();
    let mut sets = Vec::new();
    for set in SETS {
        let set: Vec<Switch> = set.iter().copied().filter(|s| known.contains(s)).collect();
        let set = Switches::of(&set);
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

fn of(
    engine: &'static Engine,
    switches: Switches,
    scenario: &'static Scenario,
    has_namespaces: bool,
) -> Trial {
    let name = format!("{}/{switches}/{}", engine.name, scenario.name);
    let obstacle = move || match (engine.support)(Task::Serve { reset: false }) {
        Support::No { why, .. } => Some(why),
        Support::Yes => {
            let required = std::env::var("MPPS_REQUIRE_LAB").is_ok_and(|value| value == "1");
            let missing = "no network namespace can be had".to_owned();
            (required && !has_namespaces).then_some(missing)
        }
    };
    trial::new(name, obstacle, move || {
        let run = move || scenario.run(engine, switches);
        if has_namespaces {
            in_namespace(run)
        } else {
            run()
        }
    })
}

/// An ordinary user may have them inside a user namespace.
fn can_have_namespaces() -> bool {
    if !capability::effective(capability::CAP_SYS_ADMIN) && become_root_in_user_namespace().is_err()
    {
        return false;
    }
    in_namespace(|| Ok(())).is_ok()
}

/// Runs a trial where nobody else has ports, or connections in TIME_WAIT.
fn in_namespace(run: impl FnOnce() -> Result<(), Failed> + Send) -> Result<(), Failed> {
    let namespace = NetNamespace::new()?;
    namespace.run(|| {
        link::set_up(link::index("lo")?)?;
        run()
    })?
}
