//! One file per subcommand; here is what they share: the way in and the way out.

mod backends;
mod bench;
mod compare;
mod engine;
mod lab;
mod ledger;
mod load;
mod recv;
mod send;
mod serve;
mod undo;

use crate::args::{Cli, Subcommands};
use crate::failure;
use crate::output::{self, Stream};
use anyhow::{Context, Result, ensure};
use clap::Parser;
use clap::error::ErrorKind;
use mpps_host::{Fingerprint, Snapshot};
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

/// How a command ended when it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Exit status 0.
    Fine,
    /// Exit status 1: it found what it was asked to look for.
    Found,
    /// Exit status 130: Ctrl-C ended a run that has an end of its own.
    Interrupted,
    /// Another program's own exit status.
    Status(u8),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` come this way too; a reader that has gone is no error.
            if !error.use_stderr()
                || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            {
                let _ = error.print();
                return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
            }
            let _ = output::line(Stream::Err, &usage(&error));
            return ExitCode::from(2);
        }
    };
    let outcome = match cli.command {
        Subcommands::Lab(args) => lab::run(args),
        Subcommands::Bench(args) => bench::run(args),
        Subcommands::Recv(args) => recv::run(args),
        Subcommands::Send(args) => send::run(args),
        Subcommands::Serve(args) => serve::run(args),
        Subcommands::Load(args) => load::run(args),
        Subcommands::Ledger(args) => ledger::run(&args),
        Subcommands::Compare(args) => compare::run(&args),
        Subcommands::Backends(args) => backends::run(&args),
        Subcommands::Undo(args) => undo::run(&args),
    };
    match outcome {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        Ok(Outcome::Status(status)) => ExitCode::from(status),
        Err(error) if error.downcast_ref().is_some_and(output::is_closed) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to be told if standard error is closed as well.
            let _ = output::line(Stream::Err, &format!("mpps: {}", failure::explain(&error)));
            ExitCode::from(2)
        }
    }
}

/// What could not be put back, as an error: how each step went is told already.
fn put_back(outcomes: &[mpps_host::Outcome], option: &str) -> Result<()> {
    let failed = outcomes.iter().filter(|outcome| !outcome.finished());
    let failed: Vec<String> = failed.map(ToString::to_string).collect();
    ensure!(
        failed.is_empty(),
        "{option}: {}; `mpps undo` tries again",
        failed.join("; ")
    );
    Ok(())
}

/// How a run ended that changed the host: what was not put back is told whatever else went wrong.
fn ended<T>(ended: Result<T>, back: Result<()>) -> Result<T> {
    let Err(rest) = back else {
        return ended;
    };
    match ended {
        // A closed pipe is no failure of its own, and would end with status 0.
        Err(failure) if !failure.downcast_ref().is_some_and(output::is_closed) => {
            Err(failure.context(format!("{rest:#}")))
        }
        _ => Err(rest),
    }
}

/// What is wrong with the command line, in one line like every other error.
fn usage(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let told = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"));
    let told: Vec<&str> = told
        .filter(|line| !line.is_empty() && !line.starts_with("For more"))
        .collect();
    let told = told.join(" ");
    let told = told.strip_prefix("error: ").unwrap_or(&told);
    let command = std::env::args()
        .nth(1)
        .filter(|word| word.chars().all(char::is_alphabetic));
    let command = command.map_or_else(String::new, |word| format!(" {word}"));
    output::printable(&format!(
        "mpps: {told}; `mpps{command} --help` tells what is possible"
    ))
}

/// The command line as it was typed, for result files.
fn command_line() -> String {
    let words: Vec<String> = std::env::args_os()
        .enumerate()
        .map(|(at, word)| {
            let word = word.to_string_lossy().into_owned();
            // The program's own path says something about the user and nothing about the run.
            let name = Path::new(&word)
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            let word = if at == 0 { name.unwrap_or(word) } else { word };
            if word.contains(' ') {
                format!("'{word}'")
            } else {
                word
            }
        })
        .collect();
    words.join(" ")
}

/// The text of a file that a user named.
fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The kernel's release, such as `6.18.44`.
fn kernel_release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Which boot of which machine this is, so that two files tell whether they are from one machine.
fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// The machine, with the interface that owns the address, or with all if none does.
fn fingerprint_at(address: IpAddr) -> Result<Fingerprint> {
    let links = mpps_os::netlink::link::list()?;
    let owner = mpps_os::netlink::address::interface_of(address).unwrap_or(None);
    let names: Vec<&str> = links
        .iter()
        .filter(|link| owner.is_none() || Some(link.index) == owner)
        .map(|link| link.name.as_str())
        .collect();
    Ok(Fingerprint::collect(&names)?)
}

/// The counters of this host and of all its interfaces.
fn snapshot() -> Result<Snapshot> {
    let links = mpps_os::netlink::link::list()?;
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    Ok(Snapshot::take(&names)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use mpps_host::Undone;
    use std::io;

    fn outcome(result: Undone) -> mpps_host::Outcome {
        let step = "a step".to_owned();
        mpps_host::Outcome { step, result }
    }

    #[test]
    fn what_is_left_to_do_is_an_error_that_names_what_helps() {
        let changed = outcome(Undone::Changed("it is 9".to_owned()));
        let done = [outcome(Undone::Restored), changed];
        put_back(&done, "--moderation").expect("nothing is left to do");
        let failed = outcome(Undone::Failed("no such device".to_owned()));
        let error = put_back(&[failed], "--moderation").expect_err("one is left");
        let text = error.to_string();
        for word in ["--moderation", "a step", "no such device", "`mpps undo`"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn what_was_not_put_back_is_told_whatever_else_went_wrong() {
        let is_closed = |error: &anyhow::Error| error.downcast_ref().is_some_and(output::is_closed);
        let back = || Err(anyhow!("not undone"));
        assert_eq!(ended(Ok(1), Ok(())).expect("fine"), 1);
        ended(Err::<(), _>(anyhow!("x")), Ok(())).expect_err("the failure");
        ended(Ok(1), back()).expect_err("not put back");
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        let error = ended(Err::<(), _>(pipe().into()), back()).expect_err("not put back");
        assert!(!is_closed(&error), "{error:#}");
        let error = ended(Err::<(), _>(anyhow!("a failure")), back()).expect_err("both");
        assert_eq!(format!("{error:#}"), "not undone: a failure");
    }
}
