//! The climb: what runs, what a rung's repeats are as a result, and what is known at any moment.

use super::bench_rungs::Beyond;
use super::lesson;
use super::result::RungResult;
use super::rung::Rung;
use super::sample::RungSample;
use super::sender::{SenderChoice, rung_sender};
use crate::experiment::receive_paths::{self, RowPlan};
use crate::measure::rounds::Case;
use crate::output;
use crate::signal::EndSignal;
use crate::udp::labs::{Labs, note_each};
use crate::udp::run::{Hosts, Purpose, attach};
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

/// The result of a step in one round.
#[derive(Debug)]
pub(super) enum StepResult {
    Rung(Box<RungSample>),
    Row(Box<receive_paths::PathSample>),
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
    pub(super) fn run(&self, case: &Case<ClimbStep<'_>, StepResult>) -> Result<StepResult> {
        if self.has_screens {
            output::above_bar(&case.plan.to_string())?;
        }
        Ok(match &case.plan {
            ClimbStep::Rung(rung) => {
                StepResult::Rung(Box::new(self.run_rung(rung, case.samples.is_empty())?))
            }
            ClimbStep::Row(row) => StepResult::Row(Box::new(row.run(
                self.schedule.time,
                case.samples.is_empty(),
                self.purpose(),
            )?)),
        })
    }

    /// The purpose of the runs that measure the rate.
    fn purpose(&self) -> Purpose<'static> {
        Purpose {
            has_screens: self.has_screens,
            ..Purpose::default()
        }
    }

    /// The first round has an exactness run, so that an interrupted climb has ledgers.
    fn run_rung(&self, rung: &Rung, is_first: bool) -> Result<RungSample> {
        let (interrupt, time) = (self.interrupt, self.schedule.time);
        let lab = self.labs.of(&rung.layout)?;
        let hosts = Hosts { lab, interrupt };
        let mut sample = rung.run(hosts, time, self.purpose())?;
        if is_first && !interrupt.came() {
            // Attached for this run only, because rates are taken with the probe off.
            let probe = if self.has_probe { attach().ok() } else { None };
            let purpose = Purpose::exact(probe.as_ref());
            let exact = rung.run(hosts, self.schedule.exact_time, purpose)?;
            sample.exact = Some(exact.run.ledger);
            let missed = probe.and_then(|probe| probe.overflowed().ok());
            if let Some(missed) = missed.filter(|missed| *missed > 0) {
                let note = format!("the drop probe missed {missed} drops");
                sample.found.notes.push(note);
            }
        }
        Ok(sample)
    }

    /// The results so far. Rungs that did not run yet are left out.
    pub(super) fn results(&self, cases: &[Case<ClimbStep<'_>, StepResult>]) -> Vec<RungResult> {
        let (mut results, mut rows) = (Vec::new(), Vec::new());
        for case in cases {
            let skipped = case.unmeasured();
            match &case.plan {
                ClimbStep::Rung(rung) => {
                    let found = result(rung, skipped, &rung_samples(case), self.choice);
                    results.extend(found.map(|mut found| {
                        found.notes.extend(case.stopped());
                        found
                    }));
                }
                ClimbStep::Row(row) => {
                    let samples = case.samples.iter();
                    let samples = samples.filter_map(|found| match found {
                        StepResult::Row(sample) => Some(&**sample),
                        StepResult::Rung(_) => None,
                    });
                    let found = row.row(skipped, &samples.collect::<Vec<_>>());
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
    pub(super) fn settled(
        &self,
        cases: &[Case<ClimbStep<'_>, StepResult>],
        results: usize,
    ) -> usize {
        let is_done = |case: &&Case<ClimbStep<'_>, StepResult>| {
            case.skipped.is_some() || case.samples.len() == self.schedule.repeats
        };
        let is_rung =
            |case: &&Case<ClimbStep<'_>, StepResult>| matches!(case.plan, ClimbStep::Rung(_));
        match cases.iter().all(|case| is_done(&case)) {
            true => results,
            false => cases.iter().take_while(is_done).filter(is_rung).count(),
        }
    }
}

fn rung_samples<'a>(case: &'a Case<ClimbStep<'_>, StepResult>) -> Vec<&'a RungSample> {
    let samples = case.samples.iter().filter_map(|found| match found {
        StepResult::Rung(sample) => Some(&**sample),
        StepResult::Row(_) => None,
    });
    samples.collect()
}

/// The result of a rung and its repeats so far; none if it was not reached.
fn result(
    rung: &Rung,
    skipped: Option<String>,
    samples: &[&RungSample],
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
    let of_samples = samples.iter().flat_map(|sample| &sample.found.notes);
    note_each(&mut notes, rung.sharing().iter().chain(of_samples));
    let last = samples.last()?.found.clone();
    let exact = samples.iter().find_map(|one| one.exact.clone())?;
    let runs = Runs::of(samples.iter().map(|one| &one.run), Some(exact));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ladder::rungs::rungs;
    use crate::experiment::ladder::sender::{offered_per_received, outran};
    use crate::udp::roles::tests::two_cpus;
    use crate::udp::runs;
    use mpps_host::Ledger;

    fn sample(offered: u64, received: u64) -> RungSample {
        let run = runs::RunSample {
            mpps: received as f64,
            offered_mpps: offered as f64,
            ledger: Ledger::new(offered, received, 0),
            quota: None,
        };
        let found = RungResult {
            notes: vec!["a note".to_owned()],
            ..RungResult::default()
        };
        RungSample {
            run,
            found,
            ..RungSample::default()
        }
    }

    /// A rung, and two repeats that offered these numbers of datagrams and received 100 and 200.
    fn climbed(number: &str, offered: [u64; 2]) -> (Rung, [RungSample; 2]) {
        let choice = SenderChoice::new(None, Some(4)).unwrap();
        let mut rungs = rungs(&two_cpus(), &choice, true).into_iter();
        let rung = rungs.find(|rung| rung.number == number);
        let first = RungSample {
            exact: Some(Ledger::new(9, 9, 0)),
            ..sample(offered[0], 100)
        };
        let samples = [first, sample(offered[1], 200)];
        (rung.expect("the ladder has it"), samples)
    }

    fn result_of((rung, samples): &(Rung, [RungSample; 2])) -> RungResult {
        let choice = SenderChoice::new(None, Some(4)).unwrap();
        let samples: Vec<&RungSample> = samples.iter().collect();
        result(rung, None, &samples, &choice).unwrap()
    }

    #[test]
    fn who_shares_a_cpu_is_noted() {
        let result = result_of(&climbed("5", [1000, 1000]));
        let note = "2 sending threads share 1 CPU".to_owned();
        assert!(result.notes.contains(&note), "{:?}", result.notes);
    }

    #[test]
    fn a_receiver_that_gets_nothing_is_outrun() {
        let ledger = Ledger::new;
        let of = |ledger| outran(offered_per_received([&ledger]));
        assert!(of(ledger(10, 0, 0)) && of(ledger(105, 100, 0)));
        assert!(!of(ledger(100, 96, 0)));
    }
}
