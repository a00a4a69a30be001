//! The climb: every rung, repeated and interleaved, with what is known at any moment.

use super::experiment::{Bench, PORT, Purpose};
use super::probe_cost::drop_probe_ns;
use super::rung::Rung;
use super::sample::Sample;
use crate::report::median;
use crate::result::RungResult;
use anyhow::Result;
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

/// A climb under way.
#[derive(Debug)]
pub(crate) struct Climb<'a> {
    bench: Bench<'a>,
    schedule: Schedule,
    rungs: Vec<(Rung, Vec<Sample>, Option<Sample>)>,
    /// What could not be had, and why.
    pub(crate) notes: Vec<String>,
    /// Nanoseconds that the drop probe costs per drop.
    pub(crate) drop_probe_ns: Option<f64>,
}

impl<'a> Climb<'a> {
    pub(crate) fn new(bench: Bench<'a>, schedule: Schedule, rungs: Vec<Rung>) -> Self {
        let rungs = rungs
            .into_iter()
            .map(|rung| (rung, Vec::new(), None))
            .collect();
        Self {
            bench,
            schedule,
            rungs,
            notes: Vec::new(),
            drop_probe_ns: None,
        }
    }

    /// How many runs there will be.
    pub(crate) fn steps(&self) -> usize {
        let measured = self
            .rungs
            .iter()
            .filter(|(rung, ..)| rung.skipped.is_none())
            .count();
        measured * (self.schedule.repeats + 1)
    }

    /// Climbs; `step` hears of each run before it begins. Answers false if Ctrl-C ended it.
    ///
    /// The rate runs of all rungs are interleaved, so that a machine that slows down slows them
    /// all. The exactness runs come with the first round, so that an interrupted climb has ledgers.
    pub(crate) fn climb(&mut self, mut step: impl FnMut(&Rung)) -> Result<bool> {
        let probe = self.attach();
        for round in 0..self.schedule.repeats {
            for (rung, samples, exact) in &mut self.rungs {
                if rung.skipped.is_some() {
                    continue;
                }
                step(rung);
                let sample = self.bench.run(rung, self.schedule.time, Purpose::Rate)?;
                for note in &sample.notes {
                    if !rung.notes.contains(note) {
                        rung.notes.push(note.clone());
                    }
                }
                if self.bench.interrupt.came() {
                    return Ok(false);
                }
                samples.push(sample);
                if round > 0 {
                    continue;
                }
                step(rung);
                // Attached for this run alone: rates are taken with the probe off.
                let probe = if probe { attach().ok() } else { None };
                let purpose = Purpose::Exactness(probe.as_ref());
                *exact = Some(self.bench.run(rung, self.schedule.exact_time, purpose)?);
                let missed = probe.and_then(|probe| probe.overflowed().ok()).unwrap_or(0);
                if missed > 0 {
                    rung.notes
                        .push(format!("the drop probe missed {missed} drops"));
                }
                if self.bench.interrupt.came() {
                    return Ok(false);
                }
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
        let rungs = self.rungs.into_iter();
        rungs
            .filter_map(|(rung, samples, exact)| result(rung, samples, exact))
            .collect()
    }
}

fn attach() -> Result<DropProbe, mpps_host::drop_probe::DropProbeError> {
    DropProbe::attach(&DropFilter { ports: PORT..=PORT })
}

/// The result of one rung; none if it was not reached.
fn result(rung: Rung, samples: Vec<Sample>, exact: Option<Sample>) -> Option<RungResult> {
    let Rung {
        number,
        name,
        lesson,
        article_mpps,
        skipped,
        notes,
        ..
    } = rung;
    let described = RungResult {
        rung: number,
        name,
        lesson: lesson.to_owned(),
        article_mpps,
        notes,
        ..RungResult::default()
    };
    if skipped.is_some() {
        return Some(RungResult {
            skipped,
            ..described
        });
    }
    let rates: Vec<f64> = samples.iter().map(|sample| sample.mpps).collect();
    let offered: Vec<f64> = samples.iter().map(|sample| sample.offered_mpps).collect();
    let (mpps_median, offered_mpps_median) = (median(&rates)?, median(&offered)?);
    let ledgers = samples.iter().map(|sample| sample.ledger.clone()).collect();
    let last = samples.into_iter().last()?;
    Some(RungResult {
        mpps_median: Some(mpps_median),
        mpps_samples: rates,
        offered_mpps_median: Some(offered_mpps_median),
        ledger: Some(exact?.ledger),
        sample_ledgers: ledgers,
        threads: last.threads,
        cpu_busy: last.cpu_busy,
        limited_by: Some(last.limited_by),
        path: Some(last.path),
        ..described
    })
}
