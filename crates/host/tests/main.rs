//! Reads hosts on a living kernel, in namespaces made for each trial.

mod drop_probe;
mod examples;
mod snapshot;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = examples::play() {
        return code;
    }
    mpps_trial::run(
        [drop_probe::trials(), examples::trials(), snapshot::trials()]
            .into_iter()
            .flatten()
            .collect(),
    )
}
