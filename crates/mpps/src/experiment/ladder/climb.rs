//! The climb: what runs, what a rung's repeats are as a result, and what is known at any moment.

use super::bench_rungs::Beyond;
use super::lesson;
use super::result::RungResult;
use super::rung::Rung;
use super::sample::{found, notes};
use super::sender::{SenderChoice, rung_sender};
use crate::experiment::receive_paths::{self, RowPlan};
use crate::measure::rounds::Case;
use crate::output;
use crate::signal::EndSignal;
use crate::udp::labs::{Labs, note_each};
use crate::udp::run::{Hosts, Purpose, UdpRun, attach};
use crate::udp::runs::Runs;
use anyhow::Result;
use std::fmt;
use std::time::Duration;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClimbSchedule {
    /// Length of each rate run.
    pub(crate) time: Duration,
    /// Rate runs per rung.
    pub(crate) repeats: usize,
    /// Length of the exactness run.
    pub(crate) exact_time: Duration,
    /// Packets per turn, and turns, of the measurement of the drop probe's cost.
    pub(crate) probe_cost: (u64, usize),
}

/// A step of the climb. Steps run in turn.
#[derive(Debug)]
pub(super) enum ClimbStep<'a> {
    /// A rung of sockets.
    Rung(Box<Rung>),
    /// A row of a rung beyond sockets.
    Row(RowPlan<'a>),
}

impl fmt::Display for ClimbStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rung(rung) => write!(f, "rung {} {}", rung.number, rung.name),
            Self::Row(row) => row.fmt(f),
        }
    }
}

/// A climb under way.
#[derive(Debug)]
pub(super) struct Climb<'a> {
    pub(super) labs: &'a Labs,
    pub(super) interrupt: &'a EndSignal,
    pub(super) schedule: ClimbSchedule,
    pub(super) choice: &'a SenderChoice,
    pub(super) beyond: &'a [Beyond],
    pub(super) beyond_sender: &'a receive_paths::PathSender,
    /// True if drops can be counted by reason.
    pub(super) has_probe: bool,
    /// True if what the receiving host does is shown while a rate is taken.
    pub(super) has_screens: bool,
}

impl Climb<'_> {
    /// The runs of one step in one round.
    pub(super) fn run(&self, case: &Case<ClimbStep<'_>, UdpRun>) -> Result<UdpRun> {
        if self.has_screens {
            output::above_bar(&case.plan.to_string())?;
        }
        let is_first = case.samples.is_empty();
        match &case.plan {
            ClimbStep::Rung(rung) => self.run_rung(rung, is_first),
            ClimbStep::Row(row) => row.run(self.schedule.time, is_first, self.purpose()),
        }
    }

    /// The purpose of the runs that measure the rate.
    fn purpose(&self) -> Purpose<'static> {
        Purpose {
            has_screens: self.has_screens,
            ..Purpose::default()
        }
    }

    /// The first round has an exactness run, so that an interrupted climb has ledgers.
    fn run_rung(&self, rung: &Rung, is_first: bool) -> Result<UdpRun> {
        let (interrupt, time) = (self.interrupt, self.schedule.time);
        let lab = self.labs.of(&rung.layout)?;
        let hosts = Hosts { lab, interrupt };
        let mut sample = rung.run(hosts, time, self.purpose())?;
        if is_first && !interrupt.came() {
            // Attached for this run only, because rates are taken with the probe off.
            let probe = if self.has_probe { attach().ok() } else { None };
            let purpose = Purpose::exact(probe.as_ref());
            let mut exact = rung.run(hosts, self.schedule.exact_time, purpose)?.ledger;
            let missed = probe.and_then(|probe| probe.overflowed().ok());
            if let Some(missed) = missed.filter(|missed| *missed > 0) {
                exact.note(format!("the drop probe missed {missed} drops"));
            }
            sample.exact = Some(exact);
        }
        Ok(sample)
    }

    /// The results so far. Rungs that did not run yet are left out.
    pub(super) fn results(&self, cases: &[Case<ClimbStep<'_>, UdpRun>]) -> Vec<RungResult> {
        let (mut results, mut rows) = (Vec::new(), Vec::new());
        for case in cases {
            let skipped = case.unmeasured();
            match &case.plan {
                ClimbStep::Rung(rung) => {
                    let found = result(self.labs, rung, skipped, &case.samples, self.choice);
                    results.extend(found.map(|mut found| {
                        found.notes.extend(case.stopped());
                        found
                    }));
                }
                ClimbStep::Row(row) => {
                    let found = row.row(skipped, &case.samples);
                    rows.extend(found.map(|mut found| {
                        found.notes.extend(case.stopped());
                        found
                    }));
                }
            }
        }
        let beyond = self.beyond.iter();
        results.extend(beyond.filter_map(|one| one.result(&rows, self.beyond_sender, self.choice)));
        let claims = cases.iter().filter_map(|case| match &case.plan {
            ClimbStep::Rung(rung) => Some(rung.claim()),
            ClimbStep::Row(_) => None,
        });
        let beyond = self.beyond.iter().map(Beyond::claim);
        lesson::judge(&mut results, &claims.chain(beyond).collect::<Vec<_>>());
        results
    }

    /// Of how many rungs, from the first, nothing will change any more.
    pub(super) fn settled(&self, cases: &[Case<ClimbStep<'_>, UdpRun>], results: usize) -> usize {
        let is_done = |case: &&Case<ClimbStep<'_>, UdpRun>| {
            case.skipped.is_some() || case.samples.len() == self.schedule.repeats
        };
        let is_rung = |case: &&Case<ClimbStep<'_>, UdpRun>| matches!(case.plan, ClimbStep::Rung(_));
        match cases.iter().all(|case| is_done(&case)) {
            true => results,
            false => cases.iter().take_while(is_done).filter(is_rung).count(),
        }
    }
}

/// The result of a rung and its repeats so far; none if it was not reached.
fn result(
    labs: &Labs,
    rung: &Rung,
    skipped: Option<String>,
    samples: &[UdpRun],
    choice: &SenderChoice,
) -> Option<RungResult> {
    let describe = |found, runs| RungResult {
        rung: rung.number.to_owned(),
        name: rung.name.to_owned(),
        lesson: rung.lesson.to_owned(),
        article_mpps: rung.article_mpps,
        runs,
        ..found
    };
    let mut notes = rung.notes.clone();
    if skipped.is_some() {
        let found = RungResult {
            notes,
            ..RungResult::default()
        };
        return Some(describe(found, Runs::skipped(skipped)));
    }
    let of_samples = samples.iter().flat_map(|run| self::notes(rung, run));
    let all: Vec<String> = rung.sharing().into_iter().chain(of_samples).collect();
    note_each(&mut notes, &all);
    let last = found(labs.of(&rung.layout).ok()?, rung, samples.last()?);
    let runs = Runs::of(samples);
    let why = match rung.keeps_sender {
        true => "the rung is about this sender",
        false => choice.why(rung.sender),
    };
    let found = RungResult {
        sender: Some(rung_sender(rung.sender, why, choice, &runs.sample_ledgers)),
        notes,
        ..last
    };
    Some(describe(found, runs))
}
