//! The comparison: every path on every stage, repeated and interleaved.

use super::path::{Napi, Path, Takes};
use super::result::{BenchRow, CpuCost};
use super::sample::{Cost, Sample, arrival};
use super::sender::PORT;
use super::stage::Stage;
use super::traffic::Purpose;
use crate::report::{median, percent};
use anyhow::Result;
use mpps_host::drop_probe::{DropFilter, DropProbe, DropProbeError};
use mpps_host::{Arrival, Ledger};
use std::time::Duration;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    /// Length of each run.
    pub(crate) time: Duration,
    /// Runs of each row.
    pub(crate) repeats: usize,
}

/// A comparison under way.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    schedule: Schedule,
    rows: Vec<Row<'a>>,
}

/// One path on one stage.
#[derive(Debug)]
struct Row<'a> {
    stage: &'a Stage<'a>,
    /// Where its CPU time is measured, if not on the same stage.
    meter: Option<&'a Stage<'a>>,
    path: Path,
    skipped: Option<String>,
    samples: Vec<Sample>,
    /// Of runs for CPU time.
    costs: Vec<Cost>,
    /// Of a run for exactness.
    exact: Option<Ledger>,
}

impl<'a> Comparison<'a> {
    /// Tries what can run on which stage. Only some paths run where they share the queue's CPU.
    pub(crate) fn new(stages: &'a [Stage<'a>], paths: &[Path], schedule: Schedule) -> Result<Self> {
        let mut rows = Vec::new();
        let meter = stages.iter().find(|stage| stage.napi == Napi::Metered);
        for stage in stages.iter().filter(|stage| stage.napi != Napi::Metered) {
            for path in paths {
                if stage.napi == Napi::WithApplication && !path.shares_cpu {
                    continue;
                }
                rows.push(Row {
                    stage,
                    meter: meter.filter(|_| stage.napi == Napi::WithGenerator),
                    path: *path,
                    skipped: stage.obstacle(path)?,
                    samples: Vec::new(),
                    costs: Vec::new(),
                    exact: None,
                });
            }
        }
        Ok(Self { schedule, rows })
    }

    /// How many runs there will be.
    pub(crate) fn steps(&self) -> usize {
        let runs = |row: &Row<'_>| {
            let rounds = 1 + usize::from(row.meter.is_some());
            self.schedule.repeats * rounds + usize::from(row.is_received())
        };
        let measured = self.rows.iter().filter(|row| row.skipped.is_none());
        measured.map(runs).sum()
    }

    /// Runs everything; `step` hears of each run before it begins. Answers false if Ctrl-C ended it.
    ///
    /// The runs are interleaved, so that a machine that slows down slows every path.
    pub(crate) fn run(&mut self, mut step: impl FnMut(&Path)) -> Result<bool> {
        for round in 0..self.schedule.repeats {
            for row in &mut self.rows {
                if row.skipped.is_some() {
                    continue;
                }
                step(&row.path);
                let sample = row
                    .stage
                    .run(&row.path, self.schedule.time, Purpose::default())?;
                if row.stage.interrupt.came() {
                    return Ok(false);
                }
                row.costs.push(sample.cost);
                row.samples.push(sample);
                if let Some(meter) = row.meter {
                    step(&row.path);
                    let metered = meter.run(&row.path, self.schedule.time, Purpose::default())?;
                    // The calls that it takes are those of the run that the rate is of.
                    if let Some(cost) = row.costs.last_mut() {
                        cost.app_ns = metered.cost.app_ns;
                        cost.softirq_ns = metered.cost.softirq_ns;
                    }
                }
                if round == 0 && row.is_received() {
                    step(&row.path);
                    row.exact = Some(row.run_exactly(self.schedule.time)?);
                }
            }
        }
        Ok(true)
    }

    /// What is known of each row, fastest first; rows that were not reached are left out.
    pub(crate) fn results(self) -> Vec<BenchRow> {
        let mut rows: Vec<BenchRow> = self.rows.into_iter().filter_map(Row::result).collect();
        rows.sort_by(|a, b| {
            let rate = |row: &BenchRow| row.mpps_median.unwrap_or(-1.0);
            rate(b).total_cmp(&rate(a))
        });
        rows
    }
}

impl Row<'_> {
    /// True if a program receives it, which can look for stamps.
    fn is_received(&self) -> bool {
        matches!(self.path.takes, Takes::Backend { .. })
    }

    /// The ledger of a run whose packets are stamped, and whose drops are counted by reason where a
    /// socket receives them: with all witnesses, and too slow for a rate.
    fn run_exactly(&self, time: Duration) -> Result<Ledger> {
        let probe = match arrival(&self.path)? {
            Arrival::Socket => attach().ok(),
            _ => None,
        };
        let purpose = Purpose {
            stamped: true,
            probe: probe.as_ref(),
            ..Purpose::default()
        };
        let run = self.stage.run(&self.path, time, purpose)?;
        Ok(run.ledger)
    }

    /// The row as it is reported; none if it was not reached.
    fn result(self) -> Option<BenchRow> {
        let described = BenchRow {
            path: self.path.name.to_owned(),
            variant: self.path.variant.to_owned(),
            napi: self.stage.napi_place(),
            shares_cpu: self.stage.napi == Napi::WithApplication,
            reference: self.path.reference,
            queues: 1,
            ..BenchRow::default()
        };
        if self.skipped.is_some() {
            return Some(BenchRow {
                skipped: self.skipped,
                ..described
            });
        }
        let rates: Vec<f64> = self.samples.iter().map(|sample| sample.mpps).collect();
        let offered: Vec<f64> = self.samples.iter().map(|one| one.offered_mpps).collect();
        let of = |figure: fn(&Cost) -> Option<f64>| {
            let figures: Vec<f64> = self.costs.iter().filter_map(figure).collect();
            median(&figures)
        };
        let sums = self.samples.iter().fold((0, 0), |sums, sample| {
            let ledger = &sample.ledger;
            (sums.0 + ledger.delivered, sums.1 + ledger.offered)
        });
        let ledgers: Vec<Ledger> = self.samples.iter().map(|one| one.ledger.clone()).collect();
        let last = self.samples.last()?;
        Some(BenchRow {
            mode: last.mode.clone(),
            mpps_median: median(&rates),
            mpps_samples: rates,
            offered_mpps_median: median(&offered),
            delivered_ratio: (sums.1 > 0).then(|| sums.0 as f64 / sums.1 as f64),
            cpu_ns_per_packet: Some(CpuCost {
                app: of(|cost| cost.app_ns),
                softirq: of(|cost| cost.softirq_ns),
                method: self.method(),
            }),
            packets_per_call: of(|cost| cost.packets_per_call),
            calls_per_packet: of(|cost| cost.calls_per_packet),
            ledger: Some(self.exact.clone().unwrap_or_else(|| last.ledger.clone())),
            sample_ledgers: ledgers,
            notes: self.notes(),
            ..described
        })
    }
}

impl Row<'_> {
    /// What a reader has to know of it.
    fn notes(&self) -> Vec<String> {
        let shares: Vec<f64> = self
            .samples
            .iter()
            .filter_map(|one| one.polled_share)
            .collect();
        match median(&shares).filter(|_| self.path.polls_itself()) {
            Some(share) => vec![format!(
                "the receiver polled {} of the packets from the queue itself (BusyPollRxPackets)",
                percent(share)
            )],
            None => Vec::new(),
        }
    }

    /// How its CPU time was measured.
    fn method(&self) -> String {
        let who = match self.path.takes {
            Takes::Rule(_) => "schedstat of the NAPI thread",
            Takes::Backend { .. } => "schedstat of the application and of the NAPI thread",
        };
        let stage = self.meter.unwrap_or(self.stage);
        if stage.lab.napi_threads().is_empty() {
            return "approximate: schedstat of the application; NAPI has no thread".to_owned();
        }
        match self.meter {
            None => who.to_owned(),
            Some(_) => format!("{who}, in runs with NAPI in a thread on the same CPU"),
        }
    }
}

fn attach() -> Result<DropProbe, DropProbeError> {
    DropProbe::attach(&DropFilter { ports: PORT..=PORT })
}
