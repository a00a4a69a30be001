//! From the plan of a climb to its result.

use super::bench_rungs::{self, Beyond};
use super::climb::{Climb, ClimbSchedule, ClimbStep};
use super::probe_cost::drop_probe_ns;
use super::result::{LabBody, LabResult, LadderAnswer, RungResult};
use super::rung::Rung;
use super::selection::Selection;
use super::sender::SenderChoice;
use crate::experiment::receive_paths::{self, PathLab};
use crate::machine;
use crate::measure::rounds::{Case, interleave};
use crate::measure::session::Session;
use crate::udp::RATE_DEFINITION;
use crate::udp::labs::{Labs, note_each};
use crate::udp::path::Path;
use crate::udp::roles::CpuLayout;
use crate::udp::run::{UdpRun, attach};
use anyhow::{Result, bail};
use mpps_lab::{Delivery, Lab};

/// The plan of a climb.
#[derive(Debug)]
pub(crate) struct LadderPlan<'a> {
    pub(crate) layout: CpuLayout,
    pub(crate) choice: SenderChoice,
    /// The rungs by number; all if it names none.
    pub(crate) only: &'a [String],
    /// True to run rungs even if this host has too few CPUs for them.
    pub(crate) all: bool,
    pub(crate) schedule: ClimbSchedule,
    /// Show what the receiving host does while a rate is taken.
    pub(crate) has_screens: bool,
}

/// Climbs the ladder. `tell` gets the result before the first rung, and then each rung once it is
/// final. The session always keeps the results so far.
///
/// # Errors
/// If a run fails.
pub(crate) fn run(
    plan: &LadderPlan<'_>,
    session: &Session,
    mut tell: impl FnMut(&LabResult, Option<&RungResult>),
) -> Result<LabResult> {
    let (mut layout, choice, schedule) = (plan.layout.clone(), plan.choice.clone(), plan.schedule);
    let mut labs = Labs::new(&mut layout)?;
    let choice = choice.reaching(&layout);
    let mut chosen = Selection::new(&layout, &choice, plan.only, plan.all)?;
    // Some rungs have their packets delivered in another way than most.
    for rung in &chosen.rungs {
        labs.add(&rung.layout)?;
    }
    labs.place(&mut layout);
    chosen.place(&labs);
    let mut result = beginning(&choice, session, &layout, labs.of(&layout)?)?;
    let sender = bench_rungs::sender(&choice)?;
    let mut stages = Vec::new();
    if !chosen.beyond.is_empty() {
        match bench_rungs::stage(&sender, &layout, &session.interrupt) {
            Ok(stage) => stages.push(stage),
            Err(error) => {
                let note = format!("rungs beyond sockets are left out: {error:#}");
                result.notes.push(note);
            }
        }
    }
    let of_stages = stages.iter().map(|stage| &stage.lab);
    let of_labs = labs.iter().chain(of_stages);
    note_each(&mut result.notes, of_labs.flat_map(Lab::notes));
    let has_probe = note_probe(&mut result.notes);
    let climb = Climb {
        labs: &labs,
        interrupt: &session.interrupt,
        schedule,
        choice: &choice,
        beyond: &chosen.beyond,
        beyond_sender: &sender,
        has_probe,
        has_screens: plan.has_screens,
    };
    let mut cases = cases(chosen.rungs, &chosen.beyond, &stages);
    tell(&result, None);
    take_turns(
        &climb,
        layout.senders[0],
        &mut cases,
        session,
        &mut result,
        tell,
    )?;
    Ok(result)
}

/// Every rung of sockets, and the rows of those beyond.
fn cases<'a>(
    rungs: Vec<Rung>,
    beyond: &[Beyond],
    stages: &'a [PathLab<'a>],
) -> Vec<Case<ClimbStep<'a>, UdpRun>> {
    let rungs = rungs.into_iter().map(|rung| {
        let skipped = rung.skipped.clone();
        Case::new(ClimbStep::Rung(Box::new(rung)), skipped)
    });
    let paths: Vec<Path> = beyond.iter().flat_map(Beyond::paths).copied().collect();
    let rows = receive_paths::cases(stages, &paths).into_iter();
    let rows = rows.map(|row| Case::new(ClimbStep::Row(row.plan), row.skipped));
    rungs.chain(rows).collect()
}

/// Runs every case, as often as the schedule says, and enters what is known of them.
fn take_turns(
    climb: &Climb<'_>,
    sender_cpu: usize,
    cases: &mut [Case<ClimbStep<'_>, UdpRun>],
    session: &Session,
    result: &mut LabResult,
    mut tell: impl FnMut(&LabResult, Option<&RungResult>),
) -> Result<()> {
    let schedule = climb.schedule;
    let can_run = cases.iter().any(|case| case.skipped.is_none());
    let mut told = 0;
    let interrupt = &session.interrupt;
    let complete = interleave(
        cases,
        schedule.repeats,
        interrupt,
        |case| climb.run(case),
        |cases| {
            result.rungs = climb.results(cases);
            result.answer = Some(LadderAnswer::of(&result.rungs));
            session.keep(result);
            let settled = climb.settled(cases, result.rungs.len());
            for rung in &result.rungs[told..settled] {
                tell(result, Some(rung));
            }
            told = settled;
            Ok(())
        },
    )?;
    result.rungs = climb.results(cases);
    result.answer = Some(LadderAnswer::of(&result.rungs));
    if complete && can_run && cases.iter().all(|case| case.samples.is_empty()) {
        let why = cases.iter().find_map(|case| case.skipped.clone());
        bail!("no rung could be measured: {}", why.unwrap_or_default());
    }
    if complete && climb.has_probe {
        let cost = drop_probe_ns(climb.labs, sender_cpu, interrupt, schedule.probe_cost)?;
        result.drop_probe_ns = cost.filter(|ns| *ns > 0.0);
        if cost.is_some() && result.drop_probe_ns.is_none() {
            let note = "the drop probe's cost was lost in the noise of this machine";
            result.notes.push(note.to_owned());
        }
    }
    result.complete = complete && !interrupt.came();
    for rung in &result.rungs[told..] {
        tell(result, Some(rung));
    }
    Ok(())
}

/// Tries the drop probe once, and notes why it cannot be had.
fn note_probe(notes: &mut Vec<String>) -> bool {
    let Err(error) = attach() else { return true };
    let remedy = error.remedy();
    notes.push(format!(
        "no drop reasons as second witness: {error}; {remedy}"
    ));
    false
}

/// The result before the first rung.
fn beginning(
    choice: &SenderChoice,
    session: &Session,
    layout: &CpuLayout,
    lab: &Lab,
) -> Result<LabResult> {
    let body = LabBody {
        rate_definition: RATE_DEFINITION.to_owned(),
        placement: format!(
            "two hosts on this machine   {}",
            layout.sentence(&machine::kernel_release())
        ),
        delivery: delivery(layout).to_owned(),
        sender: Some(choice.sentence()),
        notes: layout.notes(),
        drop_probe_ns: None,
        answer: None,
        rungs: Vec::new(),
    };
    Ok(session.result(machine::of_lab(lab)?, body))
}

/// How queues are tied to CPUs.
fn delivery(layout: &CpuLayout) -> &'static str {
    match layout.delivery {
        _ if !layout.is_placed => "no CPU of their own (unplaced)",
        Delivery::ThreadedNapi => "threaded NAPI",
        Delivery::SoftInterrupt => "soft interrupts of the sender's CPU",
        Delivery::Rps => "RPS",
    }
}
