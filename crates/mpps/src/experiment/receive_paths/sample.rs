//! The result of one run of a path, from the counts of both ends, and the row of its repeats.

use super::result::{BenchRow, CpuCost};
use super::stage::{PathLab, QueueFeed};
use crate::measure::samples::median;
use crate::udp::limit;
use crate::udp::path::{Path, PathTaker};
use crate::udp::run::{Hosts, Purpose, Receivers, Senders, Taker, UdpRun};
use crate::udp::runs::Runs;
use crate::udp::sender::PORT;
use anyhow::{Context, Result};
use mpps_report::Quantity;
use std::time::Duration;

/// A receiver that busy polls gets at least this share of its packets so, or it does not count.
const POLLED_MIN: f64 = 0.5;

impl PathLab<'_> {
    /// Sends for so long, at this rate or as fast as the sender can, and accounts for every packet.
    pub(crate) fn run(&self, path: &Path, time: Duration, purpose: Purpose<'_>) -> Result<UdpRun> {
        self.prepare(path)?;
        let hosts = Hosts {
            lab: &self.lab,
            interrupt: self.interrupt,
        };
        match path.takes {
            PathTaker::Rule(rule) => {
                let installed = rule.install(&self.lab, PORT)?;
                let taker = Taker::Rule(&installed, path.is_in_driver());
                let run = hosts.run(taker, self.senders(purpose)?, time, purpose)?;
                let mode = rule.mode().to_owned();
                Ok(UdpRun { mode, ..run })
            }
            PathTaker::Backend { wait, .. } => {
                let taker = Taker::Program(Receivers {
                    rx: vec![self.open_rx(path)?],
                    cpus: vec![self.cpus.application],
                    wait,
                    is_shared: false,
                });
                let run = hosts.run(taker, self.senders(purpose)?, time, purpose);
                run.with_context(|| path.name.to_owned())
            }
        }
    }

    /// A sender for each feed.
    fn senders(&self, purpose: Purpose<'_>) -> Result<Senders> {
        let sender = self.sender.with_flows(purpose.flows);
        let open = |feed: &QueueFeed| {
            let targets = feed.queues.iter().map(|queue| self.target_of(*queue));
            let targets = targets.collect::<Result<Vec<_>>>()?;
            Ok((sender.open(&self.lab, &targets)?, feed.cpu))
        };
        self.feeds.iter().map(open).collect()
    }
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
