//! One file per subcommand; here is what they share: the way in and the way out.

mod accelerate;
mod backends;
mod compare;
mod completions;
pub mod doctor;
mod engine;
pub mod fix;
mod generate;
pub(crate) mod help;
mod lab;
mod ledger;
mod load;
mod placement;
mod recv;
mod report;
mod send;
mod serve;
pub mod steer;
mod switches;
pub mod top;
pub mod tune;
mod undo;

pub use backends::BackendsObject;

use crate::experiment::receive_paths::{BenchPlan, ndr::NdrPlan};
use crate::failure;
use crate::measure::outcome::{CommandEnding, ended};
use crate::output::{self, OutputStream};
use crate::program::recv::RecvArgs;
use crate::program::send::SendArgs;
use crate::signal::{self, Interrupted};
use anyhow::{Context, Result, ensure};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, FromArgMatches, Parser, Subcommand};
use mpps_host::{CpuList, Topology};
use mpps_io::{Backend, backend};
use mpps_os::limit;
use std::ffi::OsString;
use std::process::ExitCode;

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
    Lab(lab::LabArgs),
    /// Compare receive paths on the same traffic
    Bench(BenchPlan),
    /// Find the highest rate of each receive path within a loss goal
    Ndr(NdrPlan),
    /// Find the best CPU for the receiver
    Placement(placement::PlacementArgs),
    /// Show where this host drops packets, why, and how to fix it
    Doctor(doctor::DoctorArgs),
    /// Change a running program from outside so that it loses less, with proof
    Fix(fix::FixArgs),
    /// Show queues, CPUs, sockets and losses of this host, live
    Top(top::TopArgs),
    /// Run a UDP server on AF_XDP, without a change to the server
    Accelerate(accelerate::AccelerateArgs),
    /// Receive UDP and count it
    Recv(RecvArgs),
    /// Send UDP at a given rate, or as fast as possible
    Send(SendArgs),
    /// Serve HTTP to many short connections
    Serve(serve::ServeArgs),
    /// Load a web server with many short connections
    Load(load::LoadArgs),
    /// Check that UDP packets sent equal packets received plus counted losses
    Ledger(ledger::LedgerArgs),
    /// Compare two results of `mpps lab`; separate change from noise
    Compare(compare::CompareArgs),
    /// Show a result file as text, page, picture or Markdown
    Report(report::ReportArgs),
    /// List receive and send paths, and which an interface supports
    Backends(backends::BackendsArgs),
    /// Show the queue, interrupt and CPU of each flow, and how to spread flows
    Steer(steer::SteerArgs),
    /// Plan, apply, measure and undo settings of a network interface
    Tune(tune::TuneArgs),
    /// Restore what `mpps fix` changed, and what a killed run left changed (not `mpps tune`)
    Undo(undo::UndoArgs),
    /// Print the completions of a shell
    Completions(completions::CompletionsArgs),
    /// Write the manual pages and the completions of all shells
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let begun = allow_stack().and_then(|()| signal::begin().context("cannot hear signals"));
    if let Err(error) = begun {
        let _ = output::line(OutputStream::Err, &format!("mpps: {error:#}"));
        return ExitCode::from(2);
    }
    run()
}

/// Apart from [`main`]: the frame of this function can exceed a small stack.
#[inline(never)]
fn run() -> ExitCode {
    let parsed = help::command().try_get_matches_from(words(std::env::args_os()));
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    let outcome = match parsed {
        Ok(cli) => match cli.command {
            Subcommands::Lab(args) => lab::run(args),
            Subcommands::Bench(plan) => plan.run(),
            Subcommands::Ndr(plan) => plan.run(),
            Subcommands::Placement(args) => placement::run(&args),
            Subcommands::Doctor(args) => args.run(),
            Subcommands::Fix(args) => args.run(),
            Subcommands::Top(args) => args.run(),
            Subcommands::Accelerate(args) => args.run(),
            Subcommands::Recv(args) => recv::run(args),
            Subcommands::Send(args) => send::run(args),
            Subcommands::Serve(args) => serve::run(args),
            Subcommands::Load(args) => load::run(args),
            Subcommands::Ledger(args) => ledger::run(&args),
            Subcommands::Compare(args) => compare::run(&args),
            Subcommands::Report(args) => report::run(&args),
            Subcommands::Backends(args) => backends::run(&args),
            Subcommands::Steer(args) => args.run(),
            Subcommands::Tune(args) => args.run(),
            Subcommands::Undo(args) => undo::run(&args),
            Subcommands::Completions(args) => completions::run(&args),
            Subcommands::Generate(args) => generate::run(&args),
        },
        Err(error) => unparsed(&error),
    };
    match outcome {
        Ok(CommandEnding::Fine) => ExitCode::SUCCESS,
        Ok(CommandEnding::Found) => ExitCode::from(1),
        Ok(CommandEnding::Interrupted) => ExitCode::from(130),
        Ok(CommandEnding::Status(status)) => ExitCode::from(status),
        Err(error) if error.downcast_ref().is_some_and(output::is_closed) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => ExitCode::from(130),
        Err(error) => {
            // If standard error is closed as well, the error cannot be shown.
            let _ = output::line(
                OutputStream::Err,
                &format!("mpps: {}", failure::explain(&error)),
            );
            ExitCode::from(2)
        }
    }
}

/// Says why the command line asks for no run: it may be wrong, or ask for help or the version.
fn unparsed(error: &clap::Error) -> Result<CommandEnding> {
    let told = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::help(OutputStream::Err, &error.render())
        }
        _ if error.use_stderr() => output::line(OutputStream::Err, &usage(error)),
        _ => {
            output::help(OutputStream::Out, &error.render())?;
            return Ok(CommandEnding::Fine);
        }
    };
    // If standard error is closed as well, the error cannot be shown.
    let _ = told;
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "doctor")
        && words.iter().any(|word| word == "--line")
    {
        let text = usage(error);
        let first = text.lines().next().unwrap_or_default();
        let first = first.trim_start_matches("mpps: ");
        output::line(OutputStream::Out, &format!("UNKNOWN: {first}"))?;
    }
    Ok(CommandEnding::Status(2))
}

/// Beyond its stack the process would end without a word.
fn allow_stack() -> Result<()> {
    let bytes = limit::allow_stack(STACK_BYTES)?;
    ensure!(
        bytes >= STACK_BYTES_MIN,
        "the stack may have {} KiB, but mpps needs {} KiB: raise `ulimit -s`",
        bytes >> 10,
        STACK_BYTES_MIN >> 10
    );
    Ok(())
}

/// As much as Rust gives a thread.
const STACK_BYTES: u64 = 2 << 20;
/// A debug build needs 384 to 512 KiB to parse the command line.
const STACK_BYTES_MIN: u64 = 512 << 10;

/// The words of the command line. `mpps help` takes only commands, so `--help` behind it is left out.
fn words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.collect();
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    words
}

/// The error of the command line, in one line like every other error.
fn usage(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let told = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("tip: "));
    let told: Vec<&str> = told
        .filter(|line| !line.is_empty() && !line.starts_with("For more"))
        .collect();
    let told = told.join(" ");
    let told = told.strip_prefix("error: ").unwrap_or(&told);
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let program = help::command();
    let (path, command) = called(&program, &words);
    let meant = meant(error, command, &words);
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    format!("mpps: {told}{meant}; `{path} --help` lists the options")
}

/// The command that these words name, and its own words.
fn called<'a>(program: &'a Command, words: &[String]) -> (String, &'a Command) {
    let (mut path, mut command) = ("mpps".to_owned(), program);
    for word in words {
        match command.find_subcommand(word) {
            Some(below) => (path, command) = (format!("{path} {word}"), below),
            None => break,
        }
    }
    (path, command)
}

/// The one word that a misspelt command, option or value is closest to.
fn meant(error: &clap::Error, command: &Command, words: &[String]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let foreign = text(ContextKind::InvalidSubcommand).or_else(|| text(ContextKind::InvalidArg));
    if let Some(file) = foreign
        && words.windows(2).any(|pair| pair == ["--json", &file])
    {
        return Some(format!("--json={file}"));
    }
    // Each word with what it stands for.
    let itself = |name: String| (name.clone(), name);
    let (wrong, known): (String, Vec<(String, String)>) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
            let names = shown.map(|one| itself(one.get_name().to_owned()));
            (text(ContextKind::InvalidSubcommand)?, names.collect())
        }
        ErrorKind::UnknownArgument => {
            let names = command.get_opts().flat_map(|option| {
                let name = option.get_long().unwrap_or_default();
                let all = option.get_all_aliases().unwrap_or_default();
                let all = all.into_iter().chain([name]);
                all.map(move |word| (format!("--{word}"), format!("--{name}")))
            });
            (text(ContextKind::InvalidArg)?, names.collect())
        }
        ErrorKind::InvalidValue => {
            let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue) else {
                return None;
            };
            let values = values.iter().cloned().map(itself);
            (text(ContextKind::InvalidValue)?, values.collect())
        }
        _ => return None,
    };
    let distance = |(word, _): &(String, String)| strsim::damerau_levenshtein(&wrong, word);
    let best = known.into_iter().min_by_key(distance)?;
    // A third of the letters may be wrong.
    let is_close = distance(&best) <= wrong.trim_start_matches('-').len().div_ceil(3);
    is_close.then_some(best.1)
}

/// The backend of that name, which is to receive or, if not that, to send.
fn backend(name: &str, receives: bool) -> Result<&'static Backend> {
    let backend = backend::find(name).context("--backend")?;
    let (able, only, others) = match receives {
        true => (backend.receives(), "sends", "receive"),
        false => (backend.sends(), "receives", "send"),
    };
    ensure!(
        able,
        "--backend {name}: it only {only}; `mpps backends` lists those that {others}"
    );
    ensure!(
        !backend.in_process,
        "--backend {name}: it moves packets inside one process, for tests and examples"
    );
    Ok(backend)
}

/// The CPUs of `--pin`, which this process may use; none leaves threads to the scheduler.
fn pinned(pin: Option<&CpuList>) -> Result<Vec<usize>> {
    let Some(pin) = pin else {
        return Ok(Vec::new());
    };
    Topology::read()?.check(pin).context("--pin")?;
    Ok(pin.0.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use proptest::prelude::*;

    #[test]
    fn help_may_be_asked_for_twice() {
        let kept = |given: &[&str]| words(given.iter().map(OsString::from)).len();
        assert_eq!(kept(&["mpps", "help", "--help"]), 2);
        assert_eq!(kept(&["mpps", "help", "recv", "-h"]), 3);
        assert_eq!(kept(&["mpps", "recv", "--help"]), 3);
    }

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
