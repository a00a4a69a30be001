//! Arguments of `mpps lab`.

use crate::value;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `mpps lab`.
#[derive(Debug, Args)]
#[command(
    after_help = "Everything happens inside two network namespaces that vanish with the \
    program: no interface, sysctl or socket of this machine is touched. Exit status: 0 every \
    ledger balances, 1 one does not, 2 it could not be done, 130 interrupted."
)]
pub(crate) struct LabArgs {
    /// Which ladder
    #[arg(default_value = "udp", value_name = "LADDER")]
    pub(crate) ladder: Ladder,
    /// One short repeat per rung, under 20 s; not for comparison
    #[arg(long, conflicts_with_all = ["seconds", "repeat"])]
    pub(crate) quick: bool,
    /// Length of each repeat
    #[arg(long, default_value = "0.7", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) seconds: Duration,
    /// Repeats per rung, interleaved over the rungs
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) repeat: u16,
    /// Only these rungs: 1,2,4a
    #[arg(long, value_name = "RUNG,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// List the rungs of this host and end
    #[arg(long)]
    pub(crate) list: bool,
    /// Datagrams that each send call hands over as one train, cut before the link, so that one
    /// sending CPU outruns the receiver; 1 sends as the article did
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) train: u16,
    /// How packets get to the CPU of their receive queue
    #[arg(long, default_value = "threaded-napi", value_name = "HOW")]
    pub(crate) delivery: DeliveryArg,
    /// Data file
    #[arg(long, default_value = "lab.json", value_name = "FILE")]
    pub(crate) json: PathBuf,
    /// Report file
    #[arg(long, default_value = "lab.html", value_name = "FILE")]
    pub(crate) html: PathBuf,
    /// Open a shell on the receiver host instead of measuring
    #[arg(long, conflicts_with_all = ["quick", "list", "only"])]
    pub(crate) shell: bool,
    /// Run a command on the receiver host instead of measuring
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["shell", "quick", "list", "only"])]
    pub(crate) command: Vec<OsString>,
}

/// The ladders that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ladder {
    /// One million UDP packets per second
    Udp,
}

/// How packets get to the CPU of their receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeliveryArg {
    /// A kernel thread per receive queue, pinned to its CPU
    ThreadedNapi,
    /// Receive Packet Steering into the backlog of that CPU
    Rps,
}
