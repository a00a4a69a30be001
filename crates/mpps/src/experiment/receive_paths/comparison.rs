//! The comparison: its sender, every path in every layout, and the row of each.

use super::result::{BenchRow, CpuCost};
use crate::measure::rounds::Case;
use crate::measure::samples::median;
use crate::signal::Interrupted;
use crate::udp::limit;
use crate::udp::path::{PATHS, Path};
use crate::udp::roles::{CpuLayout, Labs};
use crate::udp::run::UdpRun;
use crate::udp::runs::Runs;
use crate::udp::sender::{GeneratorChoice, LONG_TRAIN, LabSender, SenderChoice};
use crate::udp::trial::{TrialRuns, UdpTrial};
use anyhow::{Context, Result, ensure};
use mpps_host::{Relation, Topology};
use mpps_lab::Delivery;
use mpps_report::Quantity;

/// A receiver that busy polls gets at least this share of its packets so, or it does not count.
const POLLED_MIN: f64 = 0.5;

/// Chooses the sender.
pub(super) fn choose(asked: GeneratorChoice) -> Result<SenderChoice> {
    SenderChoice::new(Some(asked), None, LONG_TRAIN).context("--generator")
}

/// A trial of the usual layout: the application has its CPU to itself, if there are two.
pub(super) fn usual(sender: LabSender, flows: usize, payload_bytes: usize) -> Result<UdpTrial> {
    let layout = CpuLayout::new(Topology::read()?, None).one_queue();
    Ok(UdpTrial {
        flows,
        payload_bytes,
        ..UdpTrial::new(layout, PATHS[0], sender)
    })
}

/// The CPUs, in one line.
pub(super) fn cpus(layout: &CpuLayout) -> String {
    let (generator, application) = (layout.senders[0], layout.applications[0]);
    format!("generator: CPU {generator}   application: CPU {application}")
}

/// The sender and its reason, in one line; `flows` are its numbers of flows, in turn.
pub(super) fn sentence(choice: &SenderChoice, flows: &[usize], payload_bytes: usize) -> String {
    let plural = if flows == [1] { "flow" } else { "flows" };
    let flows: Vec<String> = flows.iter().map(usize::to_string).collect();
    let why = match &choice.missing {
        _ if choice.asked => "as asked".to_owned(),
        Some(why) => format!("no xdp generator: {why}; fast paths may outrun this sender"),
        None => "the kernel's own generator, the cheapest packets there are".to_owned(),
    };
    let trains = choice.sender.train().map_or_else(String::new, |train| {
        format!(", trains of {train} cut before the link")
    });
    format!(
        "{} ({why}): {} {plural}, {payload_bytes} bytes{trains}",
        choice.sender.backend(),
        flows.join(" and ")
    )
}

/// Tries every path with the application on a CPU of its own and on the queue's, and makes a case for
/// each of these flows. Only some paths run if they share the queue's CPU. `apart` is a trial of the
/// former layout.
pub(super) fn cases(
    labs: &mut Labs,
    apart: &UdpTrial,
    paths: &[Path],
    flows: &[usize],
) -> Result<Vec<TrialRuns>> {
    let one = apart.layout.clone();
    let mut layouts = vec![(one.clone(), None)];
    if !one.shares_cpu() {
        let meter = one.with_threads();
        labs.add(&meter)?;
        layouts[0].1 = Some(meter).filter(|meter| misplaced(labs, meter).is_none());
        let shared = one.place(Relation::SameCpu).map_err(anyhow::Error::msg)?;
        labs.add(&shared)?;
        layouts.push((shared, None));
    }
    let mut cases = Vec::new();
    for (layout, meter) in layouts {
        let is_shared = layout.shares_cpu();
        let misplaced = misplaced(labs, &layout)
            .map(|why| format!("queue and application cannot share a CPU here: {why}"));
        for path in paths.iter().filter(|path| path.shares_cpu || !is_shared) {
            ensure!(!labs.interrupt.came(), Interrupted);
            let trial = UdpTrial {
                layout: layout.clone(),
                path: *path,
                meter: meter.clone(),
                ..apart.clone()
            };
            let skipped = misplaced.clone().or_else(|| trial.obstacle(labs));
            cases.extend(flows.iter().map(|flows| {
                let mut trial = trial.clone();
                trial.flows = *flows;
                Case::new(trial, skipped.clone())
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

/// How the CPU time of a trial was measured.
fn method(labs: &Labs, trial: &UdpTrial) -> String {
    let who = match trial.path.is_rule() {
        true => "schedstat of the NAPI thread",
        false => "schedstat of the application and of the NAPI thread",
    };
    let lab = labs.of(trial.meter.as_ref().unwrap_or(&trial.layout));
    if lab.is_ok_and(|lab| lab.napi_threads().is_empty()) {
        return "approximate: schedstat of the application; NAPI has no thread".to_owned();
    }
    match trial.meter {
        None => who.to_owned(),
        Some(_) => format!("{who}, in runs with NAPI in a thread on the same CPU"),
    }
}

/// The row of a trial as it is reported; none if it was not reached.
pub(super) fn row(labs: &Labs, case: &TrialRuns) -> Option<BenchRow> {
    let trial = &case.plan;
    let row = BenchRow {
        flows: Some(trial.flows),
        shares_cpu: trial.layout.shares_cpu(),
        ..BenchRow::new(&trial.path, napi(labs, &trial.layout), case.unmeasured())
    };
    let mut row = row.measured(&trial.path, &case.samples, method(labs, trial))?;
    row.notes.extend(case.stopped());
    Some(row)
}

impl BenchRow {
    /// A row of this path without figures, with the reason why it did not run, if any.
    pub(super) fn new(path: &Path, napi: String, skipped: Option<String>) -> Self {
        Self {
            path: path.name.to_owned(),
            variant: path.variant.to_owned(),
            napi,
            reference: path.reference,
            taken_by: path.taken_by(),
            spins: path.spins(),
            queues: 1,
            runs: Runs::skipped(skipped),
            ..Self::default()
        }
    }

    /// The row with the figures of its repeats; none if it was to run, and did not.
    pub(super) fn measured(self, path: &Path, repeats: &[UdpRun], method: String) -> Option<Self> {
        if self.runs.skipped.is_some() {
            return Some(self);
        }
        let last = repeats.last()?;
        let each = |figure: fn(&UdpRun) -> Option<f64>| -> Vec<f64> {
            repeats.iter().filter_map(figure).collect()
        };
        let typical = |figure| median(&each(figure));
        let polled = typical(UdpRun::polled_share).filter(|_| path.polls_itself());
        let note = polled.map(|share| {
            format!(
                "the receiver polled {} of the packets from the queue itself (BusyPollRxPackets)",
                Quantity::Share(share)
            )
        });
        // Where others deliver most packets the figure is not one of busy polling.
        if polled.is_some_and(|share| share < POLLED_MIN) {
            let runs = Runs::skipped(note);
            return Some(Self { runs, ..self });
        }
        let quotas = repeats.iter().rev().map(|one| one.quota.as_ref());
        let held_back = quotas.filter_map(limit::held_back).next();
        let held_back =
            held_back.map(|limit| format!("limited by the {}: {}", limit.what, limit.evidence));
        Some(Self {
            mode: last.mode.clone(),
            waited: last.waited.clone(),
            runs: Runs::of(repeats).or_last(),
            cpu_ns_per_packet: Some(CpuCost {
                app: typical(UdpRun::app_ns),
                softirq: typical(UdpRun::napi_ns),
                samples: each(|one| Some(one.app_ns()? + one.napi_ns()?)),
                method,
            }),
            packets_per_call: typical(UdpRun::packets_per_call),
            calls_per_packet: typical(UdpRun::calls_per_packet),
            notes: note.into_iter().chain(held_back).collect(),
            ..self
        })
    }
}
