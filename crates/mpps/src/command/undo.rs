//! `mpps undo`: puts back the settings that a killed run left behind.

use super::Outcome;
use crate::args::UndoArgs;
use crate::output::{self, Stream};
use anyhow::{Context, Result};
use mpps_host::carve_out::{self, KernelSteering, Undone};
use mpps_host::moderation::KernelSettings;
use mpps_host::{Leftover, Life, ModerationLeftover};
use mpps_os::namespace::NetNamespace;
use std::path::Path;

/// Undoes, or lists, every journal of this user.
pub(super) fn run(args: &UndoArgs) -> Result<Outcome> {
    let (leftovers, unreadable) = Left::list();
    for error in &unreadable {
        tell(Stream::Err, &format!("mpps: {error}"))?;
    }
    if leftovers.is_empty() && unreadable.is_empty() {
        output::line(Stream::Out, "nothing to undo")?;
    }
    let mut worst = if unreadable.is_empty() { 0 } else { 2 };
    for leftover in &leftovers {
        if args.list {
            list(leftover)?;
        } else {
            worst = worst.max(undo(leftover, args.all)?);
        }
    }
    Ok(match worst {
        0 => Outcome::Fine,
        1 => Outcome::Found,
        status => Outcome::Status(status),
    })
}

/// What a run that was killed may have left.
enum Left {
    /// A queue that was kept for one flow.
    CarveOut(Leftover),
    /// Interrupts that were throttled.
    Moderation(ModerationLeftover),
}

impl Left {
    /// All journals of this user, and the files that could not be read as such.
    fn list() -> (Vec<Self>, Vec<mpps_host::Error>) {
        let (carve_outs, mut unreadable) = Leftover::list();
        let (moderations, others) = ModerationLeftover::list();
        unreadable.extend(others);
        let carve_outs = carve_outs.into_iter().map(Self::CarveOut);
        let moderations = moderations.into_iter().map(Self::Moderation);
        (carve_outs.chain(moderations).collect(), unreadable)
    }

    fn name(&self) -> String {
        match self {
            Self::CarveOut(left) => {
                let plan = &left.record.plan;
                format!("{}, queue {}", plan.interface, plan.queue)
            }
            Self::Moderation(left) => format!("{}, moderation", left.record.plan.interface),
        }
    }

    fn life(&self) -> Life {
        match self {
            Self::CarveOut(left) => left.life(),
            Self::Moderation(left) => left.life(),
        }
    }

    fn process(&self) -> u32 {
        match self {
            Self::CarveOut(left) => left.record.owner.pid,
            Self::Moderation(left) => left.record.owner.pid,
        }
    }

    fn namespace(&self) -> u32 {
        match self {
            Self::CarveOut(left) => left.record.plan.namespace,
            Self::Moderation(left) => left.record.plan.namespace,
        }
    }

    /// Its steps, and how many of them were at least begun.
    fn steps(&self) -> (Vec<String>, usize) {
        let texts = |steps: &mut dyn Iterator<Item = String>| steps.collect();
        match self {
            Self::CarveOut(left) => {
                let mut steps = left.record.plan.steps.iter().map(ToString::to_string);
                (texts(&mut steps), left.record.begun)
            }
            Self::Moderation(left) => {
                let mut steps = left.record.plan.steps.iter().map(ToString::to_string);
                (texts(&mut steps), left.record.begun)
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::CarveOut(left) => left.journal.path(),
            Self::Moderation(left) => left.journal.path(),
        }
    }

    /// Undoes it in this network namespace, or in its own.
    fn undo(&self, elsewhere: bool) -> Vec<carve_out::Outcome> {
        match (self, elsewhere) {
            (Self::CarveOut(left), true) => left.undo_there(),
            (Self::CarveOut(left), false) => left.undo(&KernelSteering),
            (Self::Moderation(left), true) => left.undo_there(),
            (Self::Moderation(left), false) => left.undo(&KernelSettings),
        }
    }
}

fn list(leftover: &Left) -> Result<()> {
    tell(
        Stream::Out,
        &format!("{}, {}", leftover.name(), life(leftover)),
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
fn undo(leftover: &Left, all: bool) -> Result<u8> {
    let here = NetNamespace::current().context("cannot tell this network namespace")?;
    let elsewhere = here.inode() != leftover.namespace();
    let head = leftover.name();
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
    for outcome in &leftover.undo(elsewhere) {
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

fn status(outcome: &carve_out::Outcome) -> u8 {
    match outcome.result {
        Undone::Restored | Undone::Nothing => 0,
        Undone::Changed(_) => 1,
        Undone::Failed(_) => 2,
    }
}

fn life(leftover: &Left) -> String {
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
