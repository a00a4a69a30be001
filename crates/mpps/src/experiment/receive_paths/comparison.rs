//! The comparison: every path on every stage.

use super::result::BenchRow;
use super::stage::NapiPlace;
use super::stage::PathLab;
use crate::measure::document::counted;
use crate::measure::rounds::Case;
use crate::udp::TakenBy;
use crate::udp::path::{Path, PathTaker};
use crate::udp::run::{Purpose, UdpRun, attach};
use anyhow::Result;
use mpps_host::Ledger;
use std::fmt;
use std::time::Duration;

/// One path on one stage.
#[derive(Debug)]
pub(crate) struct ComparedPath<'a> {
    stage: &'a PathLab<'a>,
    /// Where its CPU time is measured, if not on the same stage.
    meter: Option<&'a PathLab<'a>>,
    pub(crate) path: Path,
    /// Flows that are sent; none leaves that to the stage's sender.
    flows: Option<usize>,
}

/// `af_xdp, busy poll, 256 flows`.
impl fmt::Display for ComparedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)?;
        match self.flows {
            Some(flows) => write!(f, ", {}", counted(flows, "flow")),
            None => Ok(()),
        }
    }
}

/// Tries every path on every stage, with the flows of the stage's sender.
pub(crate) fn cases<'a>(
    stages: &'a [PathLab<'a>],
    paths: &[Path],
) -> Vec<Case<ComparedPath<'a>, UdpRun>> {
    cases_of(stages, paths, &[None])
}

/// Tries every path on every stage, and makes a case for each of these flows. Only some paths run
/// if they share the queue's CPU.
pub(super) fn cases_of<'a>(
    stages: &'a [PathLab<'a>],
    paths: &[Path],
    flows: &[Option<usize>],
) -> Vec<Case<ComparedPath<'a>, UdpRun>> {
    let mut rows = Vec::new();
    let mut meters = stages
        .iter()
        .filter(|stage| stage.napi == NapiPlace::Metered);
    let meter = meters.find(|stage| stage.misplaced().is_none());
    for stage in stages
        .iter()
        .filter(|stage| stage.napi != NapiPlace::Metered)
    {
        let misplaced = stage.misplaced();
        let apart =
            misplaced.map(|why| format!("queue and application cannot share a CPU here: {why}"));
        for path in paths {
            if stage.napi == NapiPlace::WithApplication && !path.shares_cpu {
                continue;
            }
            let skipped = apart.clone().or_else(|| stage.obstacle(path));
            rows.extend(flows.iter().map(|flows| {
                let plan = ComparedPath {
                    stage,
                    meter: meter.filter(|_| stage.napi == NapiPlace::WithGenerator),
                    path: *path,
                    flows: *flows,
                };
                Case::new(plan, skipped.clone())
            }));
        }
    }
    rows
}

impl ComparedPath<'_> {
    /// The runs of one round; the first has one for exactness.
    pub(crate) fn run(
        &self,
        time: Duration,
        is_first: bool,
        purpose: Purpose<'_>,
    ) -> Result<UdpRun> {
        let flows = self.flows;
        let mut sample = self
            .stage
            .run(&self.path, time, Purpose { flows, ..purpose })?;
        if let Some(meter) = self.meter {
            let purpose = Purpose {
                flows,
                ..Purpose::default()
            };
            sample.meter = Some(Box::new(meter.run(&self.path, time, purpose)?));
        }
        // A rule receives nothing that could be looked at for stamps.
        if is_first && !self.path.is_rule() {
            sample.exact = Some(self.run_exactly(time)?);
        }
        Ok(sample)
    }

    /// The ledger of a run whose packets are stamped, and whose drops are counted by reason where a
    /// socket receives them: with all witnesses, and too slow for a rate.
    fn run_exactly(&self, time: Duration) -> Result<Ledger> {
        let probe = match self.path.taken_by() {
            TakenBy::Socket => attach().ok(),
            TakenBy::Ring | TakenBy::Rule => None,
        };
        let purpose = Purpose {
            flows: self.flows,
            ..Purpose::exact(probe.as_ref())
        };
        let run = self.stage.run(&self.path, time, purpose)?;
        Ok(run.ledger)
    }

    /// The row of these repeats as it is reported; none if it was not reached.
    pub(crate) fn row(&self, skipped: Option<String>, repeats: &[UdpRun]) -> Option<BenchRow> {
        let row = BenchRow {
            flows: self.flows,
            ..self.stage.row(&self.path, skipped)
        };
        row.measured(&self.path, repeats, self.method())
    }

    /// How its CPU time was measured.
    fn method(&self) -> String {
        let who = match self.path.takes {
            PathTaker::Rule(_) => "schedstat of the NAPI thread",
            PathTaker::Backend { .. } => "schedstat of the application and of the NAPI thread",
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

/// The row of a case as it is reported; none if it was not reached.
pub(super) fn row(case: &Case<ComparedPath<'_>, UdpRun>) -> Option<BenchRow> {
    let mut row = case.plan.row(case.unmeasured(), &case.samples)?;
    row.notes.extend(case.stopped());
    Some(row)
}
