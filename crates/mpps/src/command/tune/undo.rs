//! Shows, confirms and undoes tuned settings.

use crate::measure::outcome::CommandEnding;
use crate::output::{self, OutputStream};
use crate::program::lines::OutputLines;
use anyhow::{Result, ensure};
use mpps_host::setting::tune::is_of_plan;
use mpps_host::{Leftover, Life, Undone, leftovers};

const LINES: OutputLines = OutputLines::PEOPLE;

/// Returns the tuned settings of this network namespace, of one interface or of all, newest first.
/// Also returns the worst outcome so far, for journals that cannot be read.
fn tuned(interface: Option<&str>) -> Result<(Vec<Leftover>, CommandEnding)> {
    let (mut found, unreadable) = leftovers();
    for error in &unreadable {
        // An unreadable journal does not block the others, even if this line cannot be printed.
        let _ = output::line(OutputStream::Err, &format!("mpps: {error}"));
    }
    let worst = match unreadable.is_empty() {
        true => CommandEnding::Fine,
        false => CommandEnding::Status(2),
    };
    let is_ours = tuned_here(interface)?;
    found.retain(is_ours);
    Ok((found, worst))
}

/// Whether a journal is of `mpps tune` in this network namespace, of one interface or of all.
fn tuned_here(interface: Option<&str>) -> Result<impl Fn(&Leftover) -> bool> {
    Ok(move |one: &Leftover| {
        let is_asked = || interface.is_none_or(|name| one.is_of(name));
        is_of_plan(one.name()) && one.is_here() && is_asked()
    })
}

/// Why there is nothing.
fn nothing(interface: Option<&str>) -> String {
    // Root keeps its journals where no other user may look.
    let by = match mpps_os::user::is_root() {
        true => "",
        false => " by this user",
    };
    match interface {
        Some(name) => format!("{name} is not tuned{by} in this network namespace"),
        None => format!("nothing is tuned{by} in this network namespace"),
    }
}

pub(super) fn run(interface: Option<&str>, force: bool) -> Result<CommandEnding> {
    let (tuned, worst) = tuned(interface)?;
    if tuned.is_empty() {
        LINES.say(&nothing(interface))?;
        return Ok(worst);
    }
    undo(&tuned, force, worst, LINES)
}

/// Whether what is tuned on an interface may go again without a word: it was not kept.
pub(super) fn is_open(interface: &str) -> Result<bool> {
    let is_ours = tuned_here(Some(interface))?;
    let (found, _) = leftovers();
    Ok(found.iter().any(|one| is_ours(one) && !one.is_kept()))
}

/// The settings of a process that are not kept yet. Prints nothing, because printing could block.
pub(super) fn unkept_of(process: u32) -> Result<Vec<Leftover>> {
    let (mut found, _) = leftovers();
    let is_ours = tuned_here(None)?;
    found.retain(|one| is_ours(one) && one.process() == process && !one.is_kept());
    Ok(found)
}

/// Puts them back, also if the lines have no reader; answers what is worst.
///
/// # Errors
/// All were put back, and a line could not be printed.
pub(super) fn undo(
    tuned: &[Leftover],
    force: bool,
    mut worst: CommandEnding,
    lines: OutputLines,
) -> Result<CommandEnding> {
    // All of it before anything is printed: a terminal may take nothing.
    let mut said = Vec::new();
    for one in tuned {
        let head = one.heading();
        if one.life() == Life::Alive && !one.is_kept() {
            said.push(format!("{head}: process {} is at it", one.process()));
            worst = CommandEnding::Status(2);
            continue;
        }
        let outcomes = one.undo_here(force);
        // The claim changes nothing.
        if outcomes.is_empty() && one.steps().1 > 0 {
            said.push(format!(
                "{head}: another process is at it, or made it where this cannot be seen"
            ));
            worst = CommandEnding::Status(2);
        }
        for outcome in outcomes {
            said.push(format!("{head}: {outcome}"));
            worst = match outcome.result {
                Undone::Failed(_) => CommandEnding::Status(2),
                Undone::Changed(_) | Undone::Partly(_) if worst == CommandEnding::Fine => {
                    CommandEnding::Found
                }
                _ => worst,
            };
        }
    }
    let told = said.iter().map(|line| lines.say(line));
    let told = told.fold(Ok(()), Result::and);
    match worst {
        CommandEnding::Fine => told.map(|()| worst),
        _ => Ok(worst),
    }
}

pub(super) fn confirm(interface: Option<&str>) -> Result<CommandEnding> {
    let (_, worst) = tuned(interface)?;
    let kept = Leftover::keep_waiting(tuned_here(interface)?)?;
    ensure!(!kept.is_empty(), "nothing waits to be confirmed");
    for one in kept {
        LINES.say(&format!("{}: kept", one.heading()))?;
    }
    Ok(worst)
}

pub(super) fn status(interface: Option<&str>) -> Result<CommandEnding> {
    let (tuned, mut outcome) = tuned(interface)?;
    if tuned.is_empty() {
        LINES.say(&nothing(interface))?;
        return Ok(outcome);
    }
    for one in tuned.iter().rev() {
        let state = match one.is_kept() {
            true => "stays until `mpps tune undo` or a reboot",
            false => "not kept yet, or left behind: `mpps undo` puts it back",
        };
        // The claim; the steps follow it.
        if one.steps().0.is_empty() {
            LINES.say(&format!("{}: {state}", one.heading()))?;
        }
        for (step, otherwise) in one.standing() {
            match otherwise {
                None => LINES.say(&format!("  {step}"))?,
                Some(now) => {
                    outcome = match outcome {
                        CommandEnding::Fine => CommandEnding::Found,
                        worse => worse,
                    };
                    LINES.say(&format!("  {step}: not any more, {now}"))?;
                }
            }
        }
    }
    Ok(outcome)
}
