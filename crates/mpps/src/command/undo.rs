//! `mpps undo`: puts back the settings that a killed run left behind.

use super::CommandEnding;
use super::tune;
use crate::failure;
use crate::output::{self, OutputStream};
use crate::program::undo_helper;
use anyhow::{Context, Result};
use clap::Args;
use mpps_host::fixing::is_of_fix;
use mpps_host::{Leftover, Life, Undone, leftovers};
use mpps_os::namespace::NetNamespace;
use mpps_os::text::ShellWord;
use std::io;
use std::path::Path;

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

/// Undoes, or lists, every journal of this user.
pub(super) fn run(args: &UndoArgs) -> Result<CommandEnding> {
    if args.keep {
        return undo_helper::keep();
    }
    if let Some(process) = args.after {
        return tune::guard(process);
    }
    let (leftovers, unreadable) = leftovers();
    let here = NetNamespace::current().context("cannot identify this network namespace")?;
    let mut teller = Teller::new(output::sentence);
    let mut worst = if unreadable.is_empty() { 0 } else { 2 };
    // Of a fix that was killed while nothing was changed only its claim is left.
    let is_claim = |one: &Leftover| {
        is_of_fix(one.name()) && one.steps().0.is_empty() && one.life() == Life::Dead
    };
    if leftovers.iter().all(|one| is_claim(one) && !args.list) && unreadable.is_empty() {
        teller.tell(OutputStream::Out, nothing());
    }
    for error in unreadable {
        let text = failure::explain(&error.into());
        teller.tell(OutputStream::Err, &format!("mpps: {text}"));
    }
    for leftover in &leftovers {
        if args.list {
            list(leftover, &mut teller);
        } else {
            let status = undo(leftover, here.inode(), args.all, &mut teller);
            worst = worst.max(status);
        }
    }
    teller.end(worst)
}

/// Root keeps its journals where no other user may look.
fn nothing() -> &'static str {
    match mpps_os::user::is_root() || !Path::new("/run/mpps").exists() {
        true => "nothing to undo",
        false => "nothing to undo of this user; `mpps undo` as root undoes root's changes",
    }
}

fn list(leftover: &Leftover, teller: &mut Teller) {
    teller.tell(
        OutputStream::Out,
        &format!("{}, {}", leftover.heading(), life(leftover)),
    );
    let (steps, steps_begun) = leftover.steps();
    for (number, step) in steps.iter().enumerate() {
        let begun = if number < steps_begun {
            ""
        } else {
            " (not begun)"
        };
        teller.tell(OutputStream::Out, &format!("  {step}{begun}"));
    }
    teller.tell(
        OutputStream::Out,
        &format!("  {}", leftover.path().display()),
    );
}

/// The exit status that one leftover asks for; `here` is this network namespace.
fn undo(leftover: &Leftover, here: u32, all: bool, teller: &mut Teller) -> u8 {
    // A program's settings are not of a network namespace.
    let elsewhere = here != leftover.namespace() && !is_of_fix(leftover.name());
    let head = leftover.heading();
    let life = life(leftover);
    let (stream, why, status) = match leftover.life() {
        _ if leftover.is_kept() && (is_of_fix(leftover.name()) || leftover.is_outlived()) => {
            return undo_dead(leftover, elsewhere, teller);
        }
        _ if leftover.is_kept() => {
            let object = ShellWord::operand(leftover.object());
            let why = format!("to stay; `mpps tune undo {object}` puts it back");
            (OutputStream::Out, why, 0)
        }
        Life::Dead if !elsewhere || all => return undo_dead(leftover, elsewhere, teller),
        Life::Dead => {
            let why = "in another network namespace; `mpps undo --all` enters it".to_owned();
            (OutputStream::Err, why, 2)
        }
        Life::Unknown => (
            OutputStream::Err,
            format!("{life}; run this where it can be seen"),
            2,
        ),
        Life::Alive => (
            OutputStream::Out,
            format!("{life}, and puts it back when it ends"),
            0,
        ),
    };
    teller.tell(stream, &format!("{head}: {why}"));
    status
}

fn undo_dead(leftover: &Leftover, elsewhere: bool, teller: &mut Teller) -> u8 {
    let head = leftover.heading();
    let outcomes = match elsewhere {
        true => leftover.undo_there(),
        false => leftover.undo_here(false),
    };
    let (steps, steps_begun) = leftover.steps();
    // A journal that only claims an interface has nothing to report.
    if steps.is_empty() && outcomes.is_empty() {
        return 0;
    }
    let worst = tell(head, steps_begun, &outcomes, teller);
    if worst == 2 {
        let path = leftover.path().display();
        let text = format!("{head}: what is left to do stays in {path}");
        teller.tell(OutputStream::Err, &text);
    }
    worst
}

/// Says what came of each edit, and answers the exit status that it asks for.
fn tell(
    head: &str,
    steps_begun: usize,
    outcomes: &[mpps_host::UndoneStep],
    teller: &mut Teller,
) -> u8 {
    if outcomes.is_empty() {
        let why = if steps_begun == 0 {
            "nothing had been changed"
        } else {
            "another process has just undone it"
        };
        teller.tell(OutputStream::Out, &format!("{head}: {why}"));
    }
    for outcome in outcomes {
        teller.tell(OutputStream::Out, &format!("{head}: {outcome}"));
    }
    outcomes.iter().map(status).max().unwrap_or(0)
}

fn status(outcome: &mpps_host::UndoneStep) -> u8 {
    match outcome.result {
        Undone::Restored | Undone::Nothing => 0,
        Undone::Changed(_) | Undone::Partly(_) | Undone::Reset(_) => 1,
        Undone::Failed(_) => 2,
    }
}

fn life(leftover: &Leftover) -> String {
    if leftover.is_kept() {
        return "to stay".to_owned();
    }
    let pid = leftover.process();
    match leftover.life() {
        Life::Alive => format!("process {pid} is alive"),
        Life::Dead => format!("process {pid} is dead"),
        Life::Unknown => format!("process {pid} is in another process or time namespace"),
    }
}

/// Prints lines. A line that fails does not keep the next journal from being undone.
struct Teller {
    line: fn(OutputStream, &str) -> io::Result<()>,
    /// The first line that could not be printed.
    refusal: Option<io::Error>,
}

impl Teller {
    fn new(line: fn(OutputStream, &str) -> io::Result<()>) -> Self {
        let refusal = None;
        Self { line, refusal }
    }

    /// Prints a line.
    fn tell(&mut self, stream: OutputStream, text: &str) {
        if let Err(error) = (self.line)(stream, text) {
            self.refusal.get_or_insert(error);
        }
    }

    /// How the command ends: what was not put back weighs more than what was not printed.
    fn end(self, worst: u8) -> Result<CommandEnding> {
        match (worst, self.refusal) {
            (0, Some(refusal)) => Err(refusal.into()),
            (0, None) => Ok(CommandEnding::Fine),
            (1, _) => Ok(CommandEnding::Found),
            (status, _) => Ok(CommandEnding::Status(status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(_: OutputStream, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    /// That the next journal is undone nevertheless, `a_closed_pipe_does_not_stop_it` of
    /// `tests/settings.rs` shows.
    #[test]
    fn what_was_not_put_back_weighs_more_than_a_closed_pipe() {
        for (result, status) in [
            (Undone::Restored, None),
            (Undone::Changed(String::new()), Some(CommandEnding::Found)),
            (
                Undone::Failed(String::new()),
                Some(CommandEnding::Status(2)),
            ),
        ] {
            let step = "a step".to_owned();
            let outcome = mpps_host::UndoneStep { step, result };
            let mut teller = Teller::new(closed);
            let worst = tell("eth9", 1, &[outcome], &mut teller);
            let ended = teller.end(worst);
            match status {
                Some(status) => assert_eq!(ended.expect("a status"), status),
                None => {
                    let error = ended.expect_err("the pipe");
                    assert!(error.downcast_ref().is_some_and(output::is_closed));
                }
            }
        }
    }

    #[test]
    fn no_outcome_is_told_as_well() {
        fn expect_unchanged(stream: OutputStream, text: &str) -> io::Result<()> {
            assert_eq!(
                (stream, text),
                (OutputStream::Out, "eth9: nothing had been changed")
            );
            Ok(())
        }
        fn expect_undone(stream: OutputStream, text: &str) -> io::Result<()> {
            let undone = "eth9: another process has just undone it";
            assert_eq!((stream, text), (OutputStream::Out, undone));
            Err(io::ErrorKind::BrokenPipe.into())
        }
        let mut teller = Teller::new(expect_unchanged);
        assert_eq!(tell("eth9", 0, &[], &mut teller), 0);
        assert_eq!(teller.end(0).expect("told"), CommandEnding::Fine);
        let mut teller = Teller::new(expect_undone);
        assert_eq!(tell("eth9", 1, &[], &mut teller), 0);
        // The line was at least tried.
        assert!(teller.refusal.is_some());
    }
}
