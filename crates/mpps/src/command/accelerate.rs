//! `mpps accelerate`: a program's UDP port by AF_XDP, without a change to the program.

use crate::measure::outcome::CommandEnding;
use crate::program::accelerate::AcceleratePlan;
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;

/// Arguments of `mpps accelerate`.
#[derive(Debug, Args)]
pub(crate) struct AccelerateArgs {
    /// Interface that the datagrams arrive at: a card or a veth
    #[arg(value_name = "IF")]
    interface: String,
    /// Port of the program; by default the first UDP port that it reads
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Program and its arguments, after `--`
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    program: Vec<OsString>,
}

impl AccelerateArgs {
    /// Runs the program.
    pub(crate) fn run(self) -> Result<CommandEnding> {
        let Self {
            interface,
            port,
            program,
        } = self;
        AcceleratePlan {
            interface,
            port,
            program,
        }
        .run()
    }
}
