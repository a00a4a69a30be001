//! The command from end to end, and its output.

mod accelerate;
mod bench;
mod cli;
mod common;
mod doctor;
mod fix;
mod lab;
mod lab_tcp;
mod load;
mod programs;
mod rings;
mod schema;
mod serve;
mod settings;
mod steer;
mod top;
mod traffic;
mod tune;

use std::process::ExitCode;

fn main() -> ExitCode {
    if doctor::program::is_asked_for() {
        return doctor::program::run();
    }
    let trials = [
        // Those that take longest come first.
        tune::trials(),
        top::trials(),
        accelerate::trials(),
        bench::trials(),
        schema::trials(),
        lab_tcp::trials(),
        lab::trials(),
        cli::trials(),
        doctor::trials(),
        fix::trials(),
        fix::faults::trials(),
        doctor::servers::fixes(),
        load::trials(),
        programs::trials(),
        rings::trials(),
        serve::trials(),
        settings::trials(),
        steer::trials(),
        traffic::trials(),
    ];
    mpps_trial::run(trials.into_iter().flatten().collect())
}
