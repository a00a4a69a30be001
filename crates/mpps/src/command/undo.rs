//! `mpps undo`: puts back the settings that a killed run left behind.

use super::Outcome;
use crate::args::UndoArgs;
use crate::output::{self, Stream};
use anyhow::{Context, Result};
use mpps_host::{Left, Life, Undone, leftovers};
use mpps_os::namespace::NetNamespace;

/// Undoes, or lists, every journal of this user.
pub(super) fn run(args: &UndoArgs) -> Result<Outcome> {
    let (leftovers, unreadable) = leftovers();
    for error in &unreadable {
        tell(Stream::Err, &format!("mpps: {error}"))?;
    }
    if leftovers.is_empty() && unreadable.is_empty() {
        output::line(Stream::Out, "nothing to undo")?;
    }
    let mut worst = if unreadable.is_empty() { 0 } else { 2 };
    for leftover in &leftovers {
        if args.list {
            list(&**leftover)?;
        } else {
            worst = worst.max(undo(&**leftover, args.all)?);
        }
    }
    Ok(match worst {
        0 => Outcome::Fine,
        1 => Outcome::Found,
        status => Outcome::Status(status),
    })
}

fn list(leftover: &dyn Left) -> Result<()> {
    tell(
        Stream::Out,
        &format!("{}, {}", leftover.heading(), life(leftover)),
    )?;
    let (steps, steps_begun) = leftover.steps();
    for (number, step) in steps.iter().enumerate() {
        let begun = if number < steps_begun {
            ""
        } else {
            " (not begun)"
        };
        tell(Stream::Out, &format!("  {step}{begun}"))?;
    }
    tell(Stream::Out, &format!("  {}", leftover.path().display()))
}

/// The exit status that one leftover asks for.
fn undo(leftover: &dyn Left, all: bool) -> Result<u8> {
    let here = NetNamespace::current().context("cannot tell this network namespace")?;
    let elsewhere = here.inode() != leftover.namespace();
    let head = leftover.heading();
    match leftover.life() {
        Life::Alive => {
            let text = format!("{head}: {}, and puts it back when it ends", life(leftover));
            tell(Stream::Out, &text)?;
            return Ok(0);
        }
        Life::Unknown => {
            let text = format!("{head}: {}; run this where it can be seen", life(leftover));
            tell(Stream::Err, &text)?;
            return Ok(2);
        }
        Life::Dead if elsewhere && !all => {
            let text = format!("{head}: in another network namespace; `mpps undo --all` enters it");
            tell(Stream::Err, &text)?;
            return Ok(2);
        }
        Life::Dead => {}
    }
    let mut worst = 0;
    let outcomes = if elsewhere {
        leftover.undo_there()
    } else {
        leftover.undo_here()
    };
    for outcome in &outcomes {
        tell(Stream::Out, &format!("{head}: {outcome}"))?;
        worst = worst.max(status(outcome));
    }
    if worst == 2 {
        let path = leftover.path().display();
        tell(
            Stream::Err,
            &format!("{head}: what is left to do stays in {path}"),
        )?;
    }
    Ok(worst)
}

fn status(outcome: &mpps_host::Outcome) -> u8 {
    match outcome.result {
        Undone::Restored | Undone::Nothing => 0,
        Undone::Changed(_) => 1,
        Undone::Failed(_) => 2,
    }
}

fn life(leftover: &dyn Left) -> String {
    let pid = leftover.process();
    match leftover.life() {
        Life::Alive => format!("process {pid} is alive"),
        Life::Dead => format!("process {pid} is dead"),
        Life::Unknown => format!("process {pid} is in another process namespace"),
    }
}

/// Prints a line. Its parts come from a file, and must not steer the terminal.
fn tell(stream: Stream, text: &str) -> Result<()> {
    Ok(output::line(stream, &output::printable(text))?)
}
