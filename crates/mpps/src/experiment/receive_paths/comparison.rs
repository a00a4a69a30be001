//! The comparison: every path in every layout.

use super::result::BenchRow;
use crate::measure::document::counted;
use crate::measure::rounds::Case;
use crate::udp::labs::Labs;
use crate::udp::path::Path;
use crate::udp::roles::CpuLayout;
use crate::udp::run::{Purpose, UdpRun};
use crate::udp::trial::UdpTrial;
use anyhow::Result;
use mpps_host::Relation;
use mpps_lab::Delivery;
use std::fmt;
use std::time::Duration;

/// One path in one layout.
#[derive(Debug)]
pub(super) struct ComparedPath<'a> {
    pub(super) labs: &'a Labs,
    trial: UdpTrial,
    /// Where its CPU time is measured, if not in the same layout.
    meter: Option<CpuLayout>,
}

/// `af_xdp, busy poll, 256 flows`.
impl fmt::Display for ComparedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}",
            self.trial.path,
            counted(self.trial.flows, "flow")
        )
    }
}

/// Tries every path with the application on a CPU of its own and on the queue's, and makes a case for
/// each of these flows. Only some paths run if they share the queue's CPU. `apart` is a trial of the
/// former layout.
pub(super) fn cases<'a>(
    labs: &'a mut Labs,
    apart: &UdpTrial,
    paths: &[Path],
    flows: &[usize],
) -> Result<Vec<Case<ComparedPath<'a>, UdpRun>>> {
    let one = apart.layout.clone();
    let mut layouts = vec![(one.clone(), None)];
    if !one.shares_cpu() {
        let meter = labs.add(one.with_threads())?;
        layouts[0].1 = Some(meter).filter(|meter| misplaced(labs, meter).is_none());
        let shared = one.place(Relation::SameCpu).map_err(anyhow::Error::msg)?;
        layouts.push((labs.add(shared)?, None));
    }
    let labs = &*labs;
    let mut cases = Vec::new();
    for (layout, meter) in layouts {
        let is_shared = layout.shares_cpu();
        let misplaced = misplaced(labs, &layout)
            .map(|why| format!("queue and application cannot share a CPU here: {why}"));
        for path in paths.iter().filter(|path| path.shares_cpu || !is_shared) {
            let trial = UdpTrial {
                layout: layout.clone(),
                path: *path,
                ..apart.clone()
            };
            let skipped = misplaced.clone().or_else(|| trial.obstacle(labs));
            cases.extend(flows.iter().map(|flows| {
                let mut trial = trial.clone();
                trial.flows = *flows;
                let meter = meter.clone();
                Case::new(ComparedPath { labs, trial, meter }, skipped.clone())
            }));
        }
    }
    Ok(cases)
}

/// Why the queue's thread is not on the CPU that it is to have, if it is not.
pub(super) fn misplaced(labs: &Labs, layout: &CpuLayout) -> Option<String> {
    if layout.delivery == Delivery::SoftInterrupt || layout.senders == layout.applications {
        return None;
    }
    labs.of(layout).ok()?.unplaced().map(str::to_owned)
}

/// Where NAPI runs.
pub(super) fn napi(labs: &Labs, layout: &CpuLayout) -> String {
    let threads = labs
        .of(layout)
        .is_ok_and(|lab| !lab.napi_threads().is_empty());
    let (generator, application) = (layout.senders[0], layout.applications[0]);
    match threads {
        false => format!("generator's CPU {generator}, soft interrupt"),
        true if layout.shares_cpu() => format!("application's CPU {application}, own thread"),
        true => format!("generator's CPU {generator}, own thread"),
    }
}

impl ComparedPath<'_> {
    /// The runs of one round; the first has one for exactness.
    pub(super) fn run(&self, time: Duration, is_first: bool) -> Result<UdpRun> {
        let (trial, purpose) = (&self.trial, Purpose::default());
        let mut run = trial.round(self.labs, (time, time), is_first, purpose)?;
        if let Some(layout) = self.meter.clone() {
            let meter = UdpTrial {
                layout,
                ..trial.clone()
            };
            run.meter = Some(Box::new(meter.run(self.labs, time, purpose)?));
        }
        Ok(run)
    }

    /// How its CPU time was measured.
    fn method(&self) -> String {
        let who = match self.trial.path.is_rule() {
            true => "schedstat of the NAPI thread",
            false => "schedstat of the application and of the NAPI thread",
        };
        let layout = self.meter.as_ref().unwrap_or(&self.trial.layout);
        let lab = self.labs.of(layout);
        if lab.is_ok_and(|lab| lab.napi_threads().is_empty()) {
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
    let ComparedPath { labs, trial, .. } = &case.plan;
    let row = BenchRow {
        flows: Some(trial.flows),
        shares_cpu: trial.layout.shares_cpu(),
        ..BenchRow::new(&trial.path, napi(labs, &trial.layout), case.unmeasured())
    };
    let mut row = row.measured(&trial.path, &case.samples, case.plan.method())?;
    row.notes.extend(case.stopped());
    Some(row)
}
