//! The row of a path's repeats.

use super::result::{BenchRow, CpuCost};
use crate::measure::samples::median;
use crate::udp::limit;
use crate::udp::path::Path;
use crate::udp::run::UdpRun;
use crate::udp::runs::Runs;
use mpps_report::Quantity;

/// A receiver that busy polls gets at least this share of its packets so, or it does not count.
const POLLED_MIN: f64 = 0.5;

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
