//! The server against real sockets. Every scenario runs over every engine: with no switch, with
//! all, and with the sets between that make a difference.
//!
//! Each trial has a network namespace of its own where that is allowed, and the loopback of the
//! host otherwise. After each, what was accepted has ended and no descriptor is left.

mod acknowledged;
mod client;
mod conformance;
mod exhaustion;
mod hostile;
mod lifecycle;
pub(crate) mod scenario;

use mpps_http::{ENGINES, Engine, EngineSupport, Switch, Switches, Task};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_trial::{Failed, Need, Trial, able};
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

/// The task of this process if a trial has started it.
pub(crate) fn play() -> Option<ExitCode> {
    exhaustion::child()
}

pub(crate) fn trials() -> Vec<Trial> {
    let scenarios = [
        acknowledged::SCENARIOS,
        conformance::SCENARIOS,
        hostile::SCENARIOS,
        lifecycle::SCENARIOS,
        exhaustion::SCENARIOS,
    ];
    let mut trials = Vec::new();
    for engine in ENGINES {
        let sets = sets(engine);
        for scenario in scenarios.iter().copied().flatten() {
            let mut tried = vec![Switches::of(&[])];
            for (place, &switches) in sets.iter().enumerate() {
                let chosen: Vec<Switch> = scenario
                    .switches
                    .iter()
                    .copied()
                    .filter(|&s| switches.has(s))
                    .collect();
                let chosen = Switches::of(&chosen);
                let is_between = place > 0 && place + 1 < sets.len();
                if is_between && tried.contains(&chosen) {
                    continue;
                }
                tried.push(chosen);
                trials.push(of(engine, switches, scenario));
            }
        }
    }
    trials
}

fn sets(engine: &Engine) -> Vec<Switches> {
    let known = (engine.switches)().into_iter().filter(|a| a.possible);
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

fn of(engine: &'static Engine, switches: Switches, scenario: &'static Scenario) -> Trial {
    let name = format!("serve::{}::{switches}::{}", engine.name, scenario.name);
    let run = move || {
        enter_host()?;
        scenario.run(engine, switches)
    };
    let trial = Trial::waits(name, run);
    trial.needs(Need::probe(move || {
        match (engine.support)(Task::Serve { reset: false }) {
            EngineSupport::No { why, .. } => Err(why),
            EngineSupport::Yes => Ok(()),
        }
    }))
}

/// Moves this process to a host of its own, if possible. There no other program has ports, or
/// connections in TIME_WAIT.
fn enter_host() -> Result<(), Failed> {
    let required = std::env::var("MPPS_REQUIRE_LAB").is_ok_and(|value| value == "1");
    match able() {
        Err(why) if required => Err(why.into()),
        Err(_) => Ok(()),
        Ok(()) => {
            NetNamespace::new()?.enter()?;
            Ok(link::set_up(link::index("lo")?)?)
        }
    }
}
