//! The arguments of the command line.
//!
//! Each subcommand turns its arguments into a checked configuration before anything is opened.

pub(crate) mod help;
mod lab;
mod load;
mod serve;
mod switches;

pub(crate) use lab::{LabArgs, Ladder, TcpLadderArgs, UdpLadderArgs};
pub(crate) use load::LoadArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use switches::SwitchArgs;

use crate::experiment::{placement, receive_paths};
use crate::program::doctor::DoctorArgs;
use crate::program::ledger::LiveLedgerArgs;
use crate::program::lines::JsonArgs;
use crate::program::recv::RecvArgs;
use crate::program::send::SendArgs;
use crate::program::steer::SteerArgs;
use crate::program::top::TopArgs;
use crate::program::tune::TuneArgs;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Receive millions of packets per second on Linux, and account for every packet
#[derive(Debug, Parser)]
#[command(
    name = "mpps",
    bin_name = "mpps",
    version,
    propagate_version = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Subcommands,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Subcommands {
    /// Measure receive rates step by step, on two virtual hosts in this machine
    Lab(LabArgs),
    /// Compare receive paths on the same traffic
    Bench(receive_paths::BenchPlan),
    /// Find the highest rate of each receive path within a loss goal
    Ndr(receive_paths::ndr::NdrPlan),
    /// Find the best CPU for the receiver
    Placement(placement::PlacementPlan),
    /// Show where this host drops packets, why, and how to fix it
    Doctor(DoctorArgs),
    /// Show queues, CPUs, sockets and losses of this host, live
    Top(TopArgs),
    /// Receive UDP and count it
    Recv(RecvArgs),
    /// Send UDP at a given rate, or as fast as possible
    Send(SendArgs),
    /// Serve HTTP to many short connections
    Serve(ServeArgs),
    /// Load a web server with many short connections
    Load(LoadArgs),
    /// Check that UDP packets sent equal packets received plus counted losses
    Ledger(LedgerArgs),
    /// Compare two results of `mpps lab`; separate change from noise
    Compare(CompareArgs),
    /// Show a result file as text, page, picture or Markdown
    Report(ReportArgs),
    /// List receive and send paths, and which an interface supports
    Backends(BackendsArgs),
    /// Show the queue, interrupt and CPU of each flow, and how to spread flows
    Steer(SteerArgs),
    /// Plan, apply, measure and undo settings of a network interface
    Tune(TuneArgs),
    /// Restore settings that a killed run left changed (not those of `mpps tune`)
    Undo(UndoArgs),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Write the manual pages and the completions of all shells
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// Arguments of `mpps ledger`.
#[derive(Debug, Args)]
pub(crate) struct LedgerArgs {
    /// Join this result of `mpps send --json=FILE` with RECV
    #[arg(requires = "recv", conflicts_with_all = ["port", "pid", "netns", "interval", "count"])]
    pub(crate) send: Option<PathBuf>,
    /// The result of `mpps recv --json=FILE`
    pub(crate) recv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    pub(crate) live: LiveLedgerArgs,
}

/// Arguments of `mpps compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The earlier result
    pub(crate) a: PathBuf,
    /// The later result
    pub(crate) b: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// Arguments of `mpps report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Result file of lab, lab tcp, bench, ndr, placement, doctor, load, serve, recv or send; - reads
    /// standard input
    pub(crate) file: PathBuf,
    /// Write a page to FILE instead of text to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the first bar chart to FILE as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// Arguments of `mpps backends`.
#[derive(Debug, Args)]
pub(crate) struct BackendsArgs {
    /// List the receive paths that this interface supports, also those that mpps itself lacks
    #[arg(value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Test AF_XDP on queue 0 of IF in the modes zero-copy, copy and generic, without taking packets.
    /// Needs root. Some cards lose their link for seconds
    #[arg(long = "try", requires = "interface")]
    pub(crate) tries: bool,
    /// Predict how BACKEND will work on the interface. Attaches nothing and needs no rights
    #[arg(long = "for", value_name = "BACKEND", value_parser = ["af_xdp"],
        requires = "interface", conflicts_with = "tries")]
    pub(crate) goal: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// Arguments of `mpps undo`.
#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Restore settings in every network namespace, not only in this one
    #[arg(long, conflicts_with = "list")]
    pub(crate) all: bool,
    /// List changed settings without restoring them, also those of live runs
    #[arg(long)]
    pub(crate) list: bool,
    /// Make a change that comes by standard input, and put it back at its end
    #[arg(long, hide = true, conflicts_with_all = ["all", "list"])]
    pub(crate) keep: bool,
    /// Wait for the end of that process, which started this one, and put back what it tuned
    #[arg(long, value_name = "PID", hide = true, conflicts_with_all = ["all", "list", "keep"])]
    pub(crate) after: Option<u32>,
}

/// Arguments of `mpps completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "fish", "zsh"])]
    pub(crate) shell: String,
}

/// Arguments of `mpps generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// The folder of the files
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
            let _ = help::command().try_get_matches_from(std::iter::once("mpps".to_owned()).chain(words));
        }
    }
}
