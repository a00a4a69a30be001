//! What the command line may say.
//!
//! Each subcommand turns its arguments into a checked configuration before anything is opened.

mod lab;
mod load;
mod serve;
mod switches;

pub(crate) use lab::{LabArgs, Ladder};
pub(crate) use load::LoadArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use switches::SwitchArgs;

use crate::experiment::{paths, placement};
use crate::program::doctor::DoctorArgs;
use crate::program::ledger::LiveLedgerArgs;
use crate::program::recv::RecvArgs;
use crate::program::send::SendArgs;
use crate::program::steer::SteerArgs;
use crate::program::top::TopArgs;
use crate::program::tune::TuneArgs;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Receive millions of packets per second on Linux, and know where every other packet went.
#[derive(Debug, Parser)]
#[command(
    name = "mpps",
    bin_name = "mpps",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(
    after_help = "Exit status: 0 fine, 1 found what was looked for (a ledger that does not \
    balance, a result that is worse), 2 it could not be done, 130 the lab was interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Subcommands,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Subcommands {
    /// Climb the million-packet ladder on two hosts inside this machine
    Lab(LabArgs),
    /// Compare every way to receive, over the same traffic
    Bench(paths::Plan),
    /// Find the highest rate without loss, of every way to receive
    Ndr(paths::ndr::Plan),
    /// Measure where the receiver should run, relative to its queue's CPU
    Placement(placement::Plan),
    /// Tell what this host loses of the traffic of any program, why, and what mends it
    Doctor(DoctorArgs),
    /// Show what queues, CPUs and sockets of this host do, and where packets are lost
    Top(TopArgs),
    /// Receive UDP and count it: mpps recv [ADDR:PORT [THREADS [REUSEPORT]]]
    Recv(RecvArgs),
    /// Send UDP as fast as asked or possible
    Send(SendArgs),
    /// Serve HTTP, many short connections a second
    Serve(ServeArgs),
    /// Make many connections a second to a web server, and account for each
    Load(LoadArgs),
    /// Tell where the UDP of this host goes, at each second; or join what a sender and a receiver wrote
    /// with --json
    Ledger(LedgerArgs),
    /// Compare two results of `mpps lab`, telling change from noise
    Compare(CompareArgs),
    /// Show a result file again: as text, as a page, as Markdown
    Report(ReportArgs),
    /// List the ways to receive and send, and which of them an interface has
    Backends(BackendsArgs),
    /// Tell which receive queue, interrupt and CPU each flow goes to, and what spreads flows more evenly
    Steer(SteerArgs),
    /// Plan settings that suit what an interface receives, make them, and put them back
    Tune(TuneArgs),
    /// Put back the settings that a killed run left behind
    Undo(UndoArgs),
    /// Write the manual pages, and the completions for bash, zsh and fish
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// Arguments of `mpps ledger`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without files it tells of this host, whichever program receives, until Ctrl-C; what \
    needs root is left out without it, and a note says so. Exit status: 0 the ledger of the files \
    balances, or the look at this host was ended, 1 the ledger of the files does not balance, or is \
    undecided, 2 it could not be done."
)]
pub(crate) struct LedgerArgs {
    /// What `mpps send --json` wrote
    #[arg(requires = "recv", conflicts_with_all = ["port", "pid", "netns", "interval", "count"])]
    pub(crate) send: Option<PathBuf>,
    /// What `mpps recv --json` wrote
    pub(crate) recv: Option<PathBuf>,
    /// Write JSON to standard output: the ledger, or an object a line at each look
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) live: LiveLedgerArgs,
}

/// Arguments of `mpps compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 no rung of B is worse, 1 one is, or B lacks one that A measured and \
    that\nB's --only did not leave out, 2 the files cannot be compared."
)]
pub(crate) struct CompareArgs {
    /// The earlier result
    pub(crate) a: PathBuf,
    /// The later result
    pub(crate) b: PathBuf,
    /// Write the comparison as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `mpps report`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 it was shown, 2 the file is not a result that has a report."
)]
pub(crate) struct ReportArgs {
    /// What `mpps lab`, `lab tcp`, `bench`, `ndr`, `placement`, `doctor`, `load`, `serve`, `recv` or `send` wrote with
    /// --json; - is standard input
    pub(crate) file: PathBuf,
    /// Write it as a page, and not to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write its first bar chart as a picture
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write it as Markdown to standard output
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// Arguments of `mpps backends`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 it is told, and with --for nothing stands in the way, 1 with --for \
    something does, 2 it cannot be told."
)]
pub(crate) struct BackendsArgs {
    /// Tell of this interface which techniques it has, those of other programs included
    #[arg(value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Attach an XDP program that takes nothing, and bind an AF_XDP socket to queue 0, in each of
    /// the three ways, then undo it: some cards take their link down for seconds
    #[arg(long = "try", requires = "interface")]
    pub(crate) tries: bool,
    /// Tell what will happen when this comes to the interface, before it does: nothing is attached, and
    /// no right is needed
    #[arg(long = "for", value_name = "BACKEND", value_parser = ["af_xdp"],
        requires = "interface", conflicts_with = "tries")]
    pub(crate) goal: Option<String>,
    /// Write it as JSON to standard output, with the facts it rests on
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `mpps undo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 nothing is left, 1 somebody else has changed a setting since, \
    which was left as it is, 2 something could not be put back, or looked for."
)]
pub(crate) struct UndoArgs {
    /// Enter other network namespaces as well
    #[arg(long, conflicts_with = "list")]
    pub(crate) all: bool,
    /// Only list what is changed, also by runs that are still alive
    #[arg(long)]
    pub(crate) list: bool,
    /// Make a change that comes by standard input, and put it back at its end
    #[arg(long, hide = true, conflicts_with_all = ["all", "list"])]
    pub(crate) keep: bool,
    /// Wait for the end of that process, which started this one, and put back what it tuned
    #[arg(long, value_name = "PID", hide = true, conflicts_with_all = ["all", "list", "keep"])]
    pub(crate) after: Option<u32>,
}

/// Arguments of `mpps generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Where the files go
    pub(crate) folder: PathBuf,
    /// The date at the foot of the manual pages, as in 2026-11-24
    #[arg(long)]
    pub(crate) date: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use proptest::prelude::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    proptest! {
        #[test]
        fn no_command_line_panics(
            words in proptest::collection::vec(
                prop_oneof![
                    "\\PC{0,8}",
                    "(send|recv|lab|serve|load|--without|fds,events|--moderation|-k|--pin|--size|--threads|-v|--json|--only|0-3,9|127.0.0.1:1)",
                ],
                0..6,
            ),
        ) {
            let _ = Cli::try_parse_from(std::iter::once("mpps".to_owned()).chain(words));
        }
    }
}
