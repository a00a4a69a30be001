//! The climb: every rung, repeated and interleaved, with what is known at any moment.

use super::experiment::{Bench, PORT, Purpose};
use super::probe_cost::drop_probe_ns;
use super::rung::Rung;
use super::sample::Sample;
use super::sender::Choice;
use super::trial::{self, Trial};
use crate::report::median;
use crate::result::RungResult;
use anyhow::Result;
use mpps_host::Ledger;
use mpps_host::drop_probe::{DropFilter, DropProbe};
use std::time::Duration;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    /// Length of each rate run.
    pub(crate) time: Duration,
    /// Rate runs per rung.
    pub(crate) repeats: usize,
    /// Length of the exactness run.
    pub(crate) exact_time: Duration,
    /// Packets per turn, and turns, of the measurement of the drop probe's cost.
    pub(crate) probe_cost: (u64, usize),
}

/// A run that is about to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// One of those that [`Climb::steps`] counts.
    Planned,
    /// Another one, to find a sender that outruns the receiver.
    Trial,
}

/// A climb under way.
#[derive(Debug)]
pub(crate) struct Climb<'a> {
    bench: Bench<'a>,
    schedule: Schedule,
    choice: Choice,
    rungs: Vec<Climbed>,
    /// What could not be had, and why.
    pub(crate) notes: Vec<String>,
    /// Nanoseconds that the drop probe costs per drop.
    pub(crate) drop_probe_ns: Option<f64>,
}

/// A rung, and what is known of it.
#[derive(Debug)]
struct Climbed {
    rung: Rung,
    samples: Vec<Sample>,
    exact: Option<Sample>,
    /// The senders that were tried; none if the first one was enough.
    trials: Vec<Trial>,
}

impl<'a> Climb<'a> {
    pub(crate) fn new(
        bench: Bench<'a>,
        schedule: Schedule,
        choice: Choice,
        rungs: Vec<Rung>,
    ) -> Self {
        let climbed = |rung| Climbed {
            rung,
            samples: Vec::new(),
            exact: None,
            trials: Vec::new(),
        };
        Self {
            bench,
            schedule,
            choice,
            rungs: rungs.into_iter().map(climbed).collect(),
            notes: Vec::new(),
            drop_probe_ns: None,
        }
    }

    /// How many runs there will be, trials apart.
    pub(crate) fn steps(&self) -> usize {
        let measured = self
            .rungs
            .iter()
            .filter(|climbed| climbed.rung.skipped.is_none())
            .count();
        measured * (self.schedule.repeats + 1)
    }

    /// Climbs; `step` hears of each run before it begins. Answers false if Ctrl-C ended it.
    ///
    /// The rate runs of all rungs are interleaved, so that a machine that slows down slows them
    /// all. The exactness runs come with the first round, so that an interrupted climb has ledgers.
    /// So does the search for a sender, so that all repeats of a rung have the same.
    pub(crate) fn climb(&mut self, mut step: impl FnMut(&Rung, Step)) -> Result<bool> {
        let probe = self.attach();
        for round in 0..self.schedule.repeats {
            for climbed in &mut self.rungs {
                if climbed.rung.skipped.is_some() {
                    continue;
                }
                let (bench, time) = (&self.bench, self.schedule.time);
                if round > 0 {
                    step(&climbed.rung, Step::Planned);
                    let sample = bench.run(&climbed.rung, time, Purpose::Rate)?;
                    if bench.interrupt.came() {
                        return Ok(false);
                    }
                    climbed.take(sample);
                    continue;
                }
                if !climbed.find_sender(bench, &self.choice, time, &mut step)? {
                    return Ok(false);
                }
                step(&climbed.rung, Step::Planned);
                climbed.measure_exactly(bench, self.schedule.exact_time, probe)?;
                if bench.interrupt.came() {
                    return Ok(false);
                }
            }
        }
        for climbed in &mut self.rungs {
            let time = self.schedule.exact_time;
            if !climbed.find_stronger(&self.bench, &self.choice, time, &mut step)? {
                return Ok(false);
            }
        }
        if probe {
            let (packets, turns) = self.schedule.probe_cost;
            let cost = drop_probe_ns(&self.bench, packets, turns)?;
            self.drop_probe_ns = cost.filter(|ns| *ns > 0.0);
            if cost.is_some() && self.drop_probe_ns.is_none() {
                let note = "the drop probe's cost was lost in the noise of this machine";
                self.notes.push(note.to_owned());
            }
        }
        Ok(!self.bench.interrupt.came())
    }

    /// Tries the drop probe once, and notes why it cannot be had.
    fn attach(&mut self) -> bool {
        match attach() {
            Ok(_) => true,
            Err(error) => {
                let remedy = error.remedy();
                self.notes.push(format!(
                    "no drop reasons as second witness: {error}; {remedy}"
                ));
                false
            }
        }
    }

    /// What is known of each rung; those that did not run yet are left out.
    pub(crate) fn results(self) -> Vec<RungResult> {
        let Self { rungs, choice, .. } = self;
        let rungs = rungs.into_iter();
        rungs
            .filter_map(|climbed| climbed.result(&choice))
            .collect()
    }
}

fn attach() -> Result<DropProbe, mpps_host::drop_probe::DropProbeError> {
    DropProbe::attach(&DropFilter { ports: PORT..=PORT })
}

impl Climbed {
    /// Keeps a rate run.
    fn take(&mut self, sample: Sample) {
        for note in &sample.notes {
            if !self.rung.notes.contains(note) {
                self.rung.notes.push(note.clone());
            }
        }
        self.samples.push(sample);
    }

    /// The first rate run: by the rung's sender and, if that does not outrun the receiver and may
    /// be replaced, by stronger ones until one does. The run of the best is kept. Answers false if
    /// Ctrl-C ended it.
    fn find_sender(
        &mut self,
        bench: &Bench<'_>,
        choice: &Choice,
        time: Duration,
        step: &mut impl FnMut(&Rung, Step),
    ) -> Result<bool> {
        step(&self.rung, Step::Planned);
        let mut sample = bench.run(&self.rung, time, Purpose::Rate)?;
        let mut best = Trial::of(self.rung.sender, &sample);
        let is_enough = best.outran || !choice.goes_up || self.rung.keeps_sender;
        if !is_enough {
            self.trials.push(best);
        }
        let stronger = choice.beyond(self.rung.sender);
        for sender in stronger.into_iter().filter(|_| !is_enough) {
            if bench.interrupt.came() {
                break;
            }
            let Some(other) = self.rung.sent_by(sender, bench.layout) else {
                continue;
            };
            step(&other, Step::Trial);
            let tried = bench.run(&other, time, Purpose::Rate)?;
            let trial = Trial::of(sender, &tried);
            self.trials.push(trial);
            if trial.is_better_than(best) {
                (best, sample) = (trial, tried);
            }
            if best.outran {
                break;
            }
        }
        if bench.interrupt.came() {
            return Ok(false);
        }
        self.rung.sender = best.sender;
        self.take(sample);
        Ok(true)
    }

    /// Looks for a sender that would outrun the receiver, if the rung's own did not over all
    /// repeats. Answers false if Ctrl-C ended it.
    fn find_stronger(
        &mut self,
        bench: &Bench<'_>,
        choice: &Choice,
        time: Duration,
        step: &mut impl FnMut(&Rung, Step),
    ) -> Result<bool> {
        let ledgers = self.samples.iter().map(|sample| &sample.ledger);
        if self.rung.skipped.is_some() || trial::outran_over(ledgers) {
            return Ok(true);
        }
        for sender in choice.beyond(self.rung.sender) {
            let known = self.trials.iter().find(|trial| trial.sender == sender);
            if known.is_some_and(|known| known.outran) {
                break;
            }
            let other = self.rung.sent_by(sender, bench.layout);
            let Some(other) = other.filter(|_| known.is_none()) else {
                continue;
            };
            step(&other, Step::Trial);
            let trial = Trial::of(sender, &bench.run(&other, time, Purpose::Rate)?);
            if bench.interrupt.came() {
                return Ok(false);
            }
            self.trials.push(trial);
            if trial.outran {
                break;
            }
        }
        Ok(true)
    }

    /// The exactness run.
    fn measure_exactly(&mut self, bench: &Bench<'_>, time: Duration, probe: bool) -> Result<()> {
        // Attached for this run alone: rates are taken with the probe off.
        let probe = if probe { attach().ok() } else { None };
        let purpose = Purpose::Exactness(probe.as_ref());
        self.exact = Some(bench.run(&self.rung, time, purpose)?);
        let missed = probe.and_then(|probe| probe.overflowed().ok()).unwrap_or(0);
        if missed > 0 {
            let note = format!("the drop probe missed {missed} drops");
            self.rung.notes.push(note);
        }
        Ok(())
    }

    /// The result of one rung; none if it was not reached.
    fn result(self, choice: &Choice) -> Option<RungResult> {
        let Self {
            rung,
            samples,
            exact,
            trials,
        } = self;
        let described = RungResult {
            rung: rung.number,
            name: rung.name,
            lesson: rung.lesson.to_owned(),
            article_mpps: rung.article_mpps,
            notes: rung.notes,
            ..RungResult::default()
        };
        if rung.skipped.is_some() {
            return Some(RungResult {
                skipped: rung.skipped,
                ..described
            });
        }
        let rates: Vec<f64> = samples.iter().map(|sample| sample.mpps).collect();
        let offered: Vec<f64> = samples.iter().map(|sample| sample.offered_mpps).collect();
        let (mpps_median, offered_mpps_median) = (median(&rates)?, median(&offered)?);
        let ledgers: Vec<Ledger> = samples.iter().map(|sample| sample.ledger.clone()).collect();
        let last = samples.into_iter().last()?;
        Some(RungResult {
            mpps_median: Some(mpps_median),
            mpps_samples: rates,
            offered_mpps_median: Some(offered_mpps_median),
            sender: Some(trial::rung_sender(
                rung.sender,
                rung.keeps_sender,
                choice,
                &trials,
                &ledgers,
            )),
            ledger: Some(exact?.ledger),
            sample_ledgers: ledgers,
            threads: last.threads,
            cpu_busy: last.cpu_busy,
            limited_by: Some(last.limited_by),
            path: Some(last.path),
            ..described
        })
    }
}
