//! One rung of a climb: its runs, the search for its sender, and its result.

use super::Layout;
use super::climb::Step;
use super::experiment::{Bench, PORT, Purpose};
use super::rung::Rung;
use super::sample::Sample;
use super::sender::{Choice, Sender};
use super::trial::{self, Trial};
use crate::report::median;
use crate::result::RungResult;
use anyhow::Result;
use mpps_host::Ledger;
use mpps_host::drop_probe::{DropFilter, DropProbe, DropProbeError};
use std::time::Duration;

/// Where a rung is run: between the two hosts, or in a test nowhere.
pub(super) trait Runs {
    /// Runs a rung for so long.
    fn run(&self, rung: &Rung, time: Duration, purpose: Purpose<'_>) -> Result<Sample>;
    /// The CPUs.
    fn layout(&self) -> &Layout;
    /// True once Ctrl-C came.
    fn interrupted(&self) -> bool;
}

impl Runs for Bench<'_> {
    fn run(&self, rung: &Rung, time: Duration, purpose: Purpose<'_>) -> Result<Sample> {
        Bench::run(self, rung, time, purpose)
    }

    fn layout(&self) -> &Layout {
        self.layout
    }

    fn interrupted(&self) -> bool {
        self.interrupt.came()
    }
}

/// A rung, and what is known of it.
#[derive(Debug)]
pub(super) struct Climbed {
    pub(super) rung: Rung,
    samples: Vec<Sample>,
    exact: Option<Sample>,
    /// The senders that were tried; none if the first one was enough.
    trials: Vec<Trial>,
    /// Senders whose trial failed.
    failed: Vec<Sender>,
    /// The sender that the rung began with, and its run, if the search put another in its place.
    replaced: Option<(Sender, Sample)>,
    /// True once all stronger senders have been tried, or one that is strong enough was found.
    searched: bool,
}

impl Climbed {
    pub(super) fn new(rung: Rung) -> Self {
        Self {
            rung,
            samples: Vec::new(),
            exact: None,
            trials: Vec::new(),
            failed: Vec::new(),
            replaced: None,
            searched: false,
        }
    }

    /// The first rate run: by the rung's sender and, if that does not outrun the receiver and may
    /// be replaced, by stronger ones until one does. The run of the best is kept. Answers false if
    /// Ctrl-C ended it.
    ///
    /// # Errors
    /// If the run of the rung's own sender fails; another's failure is noted.
    pub(super) fn find_sender(
        &mut self,
        runner: &impl Runs,
        choice: &Choice,
        time: Duration,
        step: &mut impl FnMut(&Rung, Step),
    ) -> Result<bool> {
        step(&self.rung, Step::Planned);
        let plain = runner.run(&self.rung, time, Purpose::Rate)?;
        let first = Trial::of(self.rung.sender, &plain);
        let (mut best, mut taken) = (first, None);
        let is_enough = first.outran || !choice.goes_up || self.rung.keeps_sender;
        if !is_enough {
            self.trials.push(first);
        }
        let stronger = choice.beyond(self.rung.sender);
        for sender in stronger.into_iter().filter(|_| !is_enough) {
            if runner.interrupted() {
                break;
            }
            let Some(other) = self.rung.sent_by(sender, runner.layout()) else {
                continue;
            };
            step(&other, Step::Trial);
            let Some(tried) = self.attempt(runner, &other, time) else {
                continue;
            };
            let trial = Trial::of(sender, &tried);
            self.trials.push(trial);
            if trial.is_better_than(best) {
                (best, taken) = (trial, Some(tried));
            }
            if best.outran {
                break;
            }
        }
        if runner.interrupted() {
            return Ok(false);
        }
        self.rung.sender = best.sender;
        let sample = match taken {
            Some(taken) => {
                self.replaced = Some((first.sender, plain));
                taken
            }
            None => plain,
        };
        self.samples.push(sample);
        Ok(true)
    }

    /// Looks for a sender that would outrun the receiver, if the rung's own did not over all
    /// repeats. Answers false if Ctrl-C ended it.
    pub(super) fn find_stronger(
        &mut self,
        runner: &impl Runs,
        choice: &Choice,
        time: Duration,
        step: &mut impl FnMut(&Rung, Step),
    ) -> bool {
        let ledgers = self.samples.iter().map(|sample| &sample.ledger);
        if self.rung.skipped.is_some() || trial::outran_over(ledgers) {
            return true;
        }
        for sender in choice.beyond(self.rung.sender) {
            let known = self.trials.iter().find(|trial| trial.sender == sender);
            if known.is_some_and(|known| known.outran) {
                break;
            }
            if known.is_some() || self.failed.contains(&sender) {
                continue;
            }
            let Some(other) = self.rung.sent_by(sender, runner.layout()) else {
                continue;
            };
            step(&other, Step::Trial);
            let tried = self.attempt(runner, &other, time);
            if runner.interrupted() {
                return false;
            }
            let Some(tried) = tried else {
                continue;
            };
            let trial = Trial::of(sender, &tried);
            self.trials.push(trial);
            if trial.outran {
                break;
            }
        }
        self.searched = self.failed.is_empty();
        true
    }

    /// A rate run by a sender that nobody asked for: its failure is noted, and costs nothing else.
    fn attempt(&mut self, runner: &impl Runs, other: &Rung, time: Duration) -> Option<Sample> {
        match runner.run(other, time, Purpose::Rate) {
            Ok(sample) => Some(sample),
            // What fails after Ctrl-C says nothing of the sender.
            Err(_) if runner.interrupted() => None,
            Err(error) => {
                let sender = other.sender;
                self.failed.push(sender);
                self.note(format!("sender {sender} could not be tried: {error:#}"));
                None
            }
        }
    }

    /// Keeps a rate run after the first. One that failed is left out if nobody asked for its
    /// sender.
    ///
    /// # Errors
    /// If the run of a sender that was asked for failed.
    pub(super) fn repeat(&mut self, sample: Result<Sample>) -> Result<()> {
        match sample {
            Ok(sample) => self.samples.push(sample),
            Err(error) if self.replaced.is_some() => {
                let sender = self.rung.sender;
                self.note(format!("a repeat by {sender} is left out: {error:#}"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The exactness run. If it fails with a sender that nobody asked for, the rung goes on with
    /// the one whose place that took.
    ///
    /// # Errors
    /// If the run of a sender that was asked for fails.
    pub(super) fn measure_exactly(
        &mut self,
        runner: &impl Runs,
        time: Duration,
        probe: bool,
        step: &mut impl FnMut(&Rung, Step),
    ) -> Result<()> {
        let error = match self.run_exactly(runner, time, probe) {
            Ok(exact) => {
                self.exact = Some(exact);
                return Ok(());
            }
            Err(error) => error,
        };
        if runner.interrupted() {
            return Ok(());
        }
        let Some((plain, sample)) = self.replaced.take() else {
            return Err(error);
        };
        let taken = self.rung.sender;
        self.note(format!(
            "{plain} sends, because the exactness run by {taken} failed: {error:#}"
        ));
        self.rung.sender = plain;
        // The rate and the ledger of a rung are of one sender.
        self.samples = vec![sample];
        step(&self.rung, Step::Trial);
        self.exact = Some(self.run_exactly(runner, time, probe)?);
        Ok(())
    }

    fn run_exactly(&mut self, runner: &impl Runs, time: Duration, probe: bool) -> Result<Sample> {
        // Attached for this run alone: rates are taken with the probe off.
        let probe = if probe { attach().ok() } else { None };
        let purpose = Purpose::Exactness(probe.as_ref());
        let exact = runner.run(&self.rung, time, purpose)?;
        let missed = probe.and_then(|probe| probe.overflowed().ok()).unwrap_or(0);
        if missed > 0 {
            self.note(format!("the drop probe missed {missed} drops"));
        }
        Ok(exact)
    }

    fn note(&mut self, note: String) {
        if !self.rung.notes.contains(&note) {
            self.rung.notes.push(note);
        }
    }

    /// The result of one rung; none if it was not reached.
    pub(super) fn result(mut self, choice: &Choice, layout: &Layout) -> Option<RungResult> {
        if self.rung.skipped.is_none() {
            // Only now is it settled who sends, and which runs count.
            let sharing = self.rung.shared_senders(layout);
            let samples = self.samples.iter();
            let of_samples = samples.flat_map(|sample| sample.notes.iter().cloned());
            let notes: Vec<String> = sharing.into_iter().chain(of_samples).collect();
            for note in notes {
                self.note(note);
            }
        }
        let Self {
            rung,
            samples,
            exact,
            trials,
            searched,
            ..
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
                (&trials, searched),
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

/// Attaches the drop probe to the rungs' port.
pub(super) fn attach() -> Result<DropProbe, DropProbeError> {
    DropProbe::attach(&DropFilter { ports: PORT..=PORT })
}

#[cfg(test)]
mod tests;
