//! Makes what is planned, and keeps it.

use super::guard::Guard;
use super::{ApplyArgs, TuneObject, TuneRequest, check_link, undo};
use crate::measure::outcome::{CommandEnding, ended, put_back};
use crate::output;
use crate::program::lines::{LOOK, OutputLines};
use crate::signal::EndSignal;
use anyhow::{Context, Result, anyhow, ensure};
use mpps_host::setting::tune::{TunePlan, Tuned};
use mpps_os::text::Foreign;
use std::thread;
use std::time::{Duration, Instant};

const LINES: OutputLines = OutputLines::PEOPLE;

pub(super) fn run(args: &ApplyArgs) -> Result<CommandEnding> {
    // A change that has begun is completed before a signal can end the process.
    let interrupt = EndSignal::listen_held()?;
    let asked = args.what.asked()?;
    let (tunables, plan) = asked.plan()?;
    check_link(&plan, args.allow_link_bounce)?;
    if plan.edits().next().is_none() {
        ensure!(
            !undo::is_open(&plan.interface)?,
            "{}: what is set is not kept yet; `mpps tune confirm` keeps it, if its process lives, and \
             `mpps undo` restores what a killed one left",
            Foreign(&plan.interface)
        );
        let found = TuneObject::new(&tunables, &plan, args.what.port);
        found.lines().iter().try_for_each(|line| LINES.say(line))?;
        return Ok(CommandEnding::Fine);
    }
    // Before anything is changed, and dropped after all is put back.
    let mut guard = args.confirm_within.map(Guard::start).transpose()?;
    let mut tuned = Tuned::begin(&plan).with_context(|| cannot(&plan))?;
    let made = make(args, &asked, &plan, &mut tuned, guard.as_mut());
    let decided = made.and_then(|refused| {
        let stays = stays(guard.as_mut(), &mut tuned, &interrupt)?;
        Ok((refused, stays))
    });
    guard.iter_mut().for_each(Guard::decided);
    let refused = match decided {
        Ok((refused, true)) => refused,
        Ok((_, false)) => {
            put_all_back(tuned)?;
            LINES.say("not kept")?;
            return Ok(CommandEnding::Interrupted);
        }
        Err(error) => {
            let back = put_all_back(tuned);
            let closed = error.downcast_ref().is_some_and(output::is_closed);
            let error = match closed {
                true => anyhow!("no program read the list of changes, so all are undone"),
                false => error,
            };
            return ended(Err(error), back);
        }
    };
    let said = match tuned.has_changed() {
        false => "nothing was changed",
        true => "kept until `mpps tune undo` or a reboot; `mpps tune status` shows it",
    };
    tuned.keep()?;
    LINES.say(said)?;
    Ok(match refused {
        false => CommandEnding::Fine,
        true => CommandEnding::Found,
    })
}

pub(super) fn cannot(plan: &TunePlan) -> String {
    format!("cannot tune {}", plan.interface)
}

/// Makes the steps, each planned again behind those before it; true if something was refused.
fn make(
    args: &ApplyArgs,
    asked: &TuneRequest,
    plan: &TunePlan,
    tuned: &mut Tuned,
    mut guard: Option<&mut Guard>,
) -> Result<bool> {
    let mut is_refused = false;
    for step in &plan.steps {
        let (_, plan) = asked.plan_of(&[step.stage.to_owned()])?;
        check_link(&plan, args.allow_link_bounce)?;
        for step in &plan.steps {
            let edited = tuned.make(&plan, step, args.keep_going);
            for edited in edited.with_context(|| cannot(&plan))? {
                let edit = edited.edit;
                let said = match &edited.refusal {
                    None => format!("changed: {edit}"),
                    Some(error) => format!("refused: {edit}: {error}"),
                };
                match &mut guard {
                    Some(guard) => guard.while_saying(|| LINES.say(&said))?,
                    None => LINES.say(&said)?,
                }
                is_refused |= edited.refusal.is_some();
            }
        }
    }
    Ok(is_refused)
}

/// Puts everything back, the last first, and answers what could not be.
pub(super) fn put_all_back(tuned: Tuned) -> Result<()> {
    // All of it before anything is printed, which may take as long as the reader likes.
    let outcomes = tuned.undo();
    for outcome in &outcomes {
        // Settings go back even if no program reads this line.
        let _ = LINES.say(&format!("put back: {outcome}"));
    }
    put_back(&outcomes, "tune")
}

/// Whether what was made is to stay: at once, or if `mpps tune confirm` says so in time.
fn stays(guard: Option<&mut Guard>, tuned: &mut Tuned, interrupt: &EndSignal) -> Result<bool> {
    let Some(guard) = guard.filter(|_| tuned.has_changed()) else {
        return Ok(!interrupt.came());
    };
    let waited = wait(guard, tuned, interrupt);
    // A confirmation that was acknowledged must hold, even one at the last moment.
    Ok(matches!(waited, Ok(true)) || tuned.end_wait()? || waited?)
}

/// True if another process confirmed it in time.
fn wait(guard: &mut Guard, tuned: &mut Tuned, interrupt: &EndSignal) -> Result<bool> {
    tuned.wait_for_word()?;
    let time = guard.begin()?;
    let seconds = time.as_secs_f64();
    LINES.say(&format!(
        "put back in {seconds:.0} s unless `mpps tune confirm` comes"
    ))?;
    let deadline = Instant::now() + Duration::max(time, LOOK);
    loop {
        let is_last = Instant::now() >= deadline || interrupt.came();
        if tuned.has_word() {
            return Ok(true);
        }
        if is_last {
            return Ok(false);
        }
        thread::sleep(LOOK);
    }
}
