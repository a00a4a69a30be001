//! The `mpps` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    mpps::main()
}
