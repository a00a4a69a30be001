//! Linux's interfaces against the kernel, in namespaces made for each trial.

mod bpf;
mod network;

use std::process::ExitCode;

fn main() -> ExitCode {
    mpps_trial::run(
        [bpf::trials(), network::trials()]
            .into_iter()
            .flatten()
            .collect(),
    )
}
