//! The climb: every rung, repeated and interleaved, with what is known at any moment.

use super::climbed::{self, Climbed};
use super::experiment::{Bench, Purpose};
use super::probe_cost::drop_probe_ns;
use super::rung::Rung;
use super::sender::Choice;
use crate::result::RungResult;
use anyhow::Result;
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
    /// Another one: to find a sender that outruns the receiver, or in place of one that failed.
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

impl<'a> Climb<'a> {
    pub(crate) fn new(
        bench: Bench<'a>,
        schedule: Schedule,
        choice: Choice,
        rungs: Vec<Rung>,
    ) -> Self {
        Self {
            bench,
            schedule,
            choice,
            rungs: rungs.into_iter().map(Climbed::new).collect(),
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
                    let sample = bench.run(&climbed.rung, time, Purpose::Rate);
                    if bench.interrupt.came() {
                        return Ok(false);
                    }
                    climbed.repeat(sample)?;
                    continue;
                }
                if !climbed.find_sender(bench, &self.choice, time, &mut step)? {
                    return Ok(false);
                }
                step(&climbed.rung, Step::Planned);
                let time = self.schedule.exact_time;
                climbed.measure_exactly(bench, time, probe, &mut step)?;
                if bench.interrupt.came() {
                    return Ok(false);
                }
            }
        }
        for climbed in &mut self.rungs {
            let time = self.schedule.exact_time;
            if !climbed.find_stronger(&self.bench, &self.choice, time, &mut step) {
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
        match climbed::attach() {
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
        let (choice, layout) = (self.choice, self.bench.layout);
        let rungs = self.rungs.into_iter();
        rungs
            .filter_map(|climbed| climbed.result(&choice, layout))
            .collect()
    }
}
