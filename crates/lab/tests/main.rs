//! Labs with real packets, in namespaces made for each trial.

mod early_drop;
mod hosts;
mod leftovers;

use mpps_lab::{Lab, LabConfig};
use mpps_os::sched;
use mpps_trial::{Failed, able};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = hosts::play().or_else(leftovers::play) {
        return code;
    }
    mpps_trial::run(
        [early_drop::trials(), hosts::trials(), leftovers::trials()]
            .into_iter()
            .flatten()
            .collect(),
    )
}

/// Returns why there can be no lab of any kind, if so.
fn lab() -> Result<(), String> {
    make().map(drop)
}

/// Returns why the queues of a lab have no kernel threads pinned to their CPUs, if so.
fn threads() -> Result<(), String> {
    let unplaced = make()?.unplaced().map(str::to_owned);
    unplaced.map_or(Ok(()), Err)
}

/// Returns why packets do not take their queues or the queues have no CPUs, if so.
fn placement() -> Result<(), String> {
    let notes = make()?.notes().join("; ");
    notes.is_empty().then_some(()).ok_or(notes)
}

/// A lab, to see what this machine has.
fn make() -> Result<Lab, String> {
    able()?;
    let cpus = sched::affinity(sched::thread_id()).map_err(|error| error.to_string())?;
    let config = LabConfig {
        queue_cpus: vec![cpus[0]; 4],
        ..LabConfig::default()
    };
    Lab::new(&config).map_err(|error| error.to_string())
}

fn check(good: bool, why: impl FnOnce() -> String) -> Result<(), Failed> {
    if good { Ok(()) } else { Err(why().into()) }
}
