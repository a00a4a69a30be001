//! The server and the load against real sockets, over every engine.

mod load;
mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = serve::play() {
        return code;
    }
    mpps_trial::run(
        [load::trials(), serve::trials()]
            .into_iter()
            .flatten()
            .collect(),
    )
}
