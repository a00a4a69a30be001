//! The result of one run of a path, from the counts of both ends, and the row of its repeats.

use super::result::{BenchRow, CpuCost};
use super::stage::{PathLab, QueueFeed};
use crate::measure::samples::median;
use crate::udp::limit;
use crate::udp::path::{Path, PathTaker};
use crate::udp::run::{Hosts, Purpose, Receivers, Senders, Taker, UdpRun};
use crate::udp::runs::{self, Runs};
use crate::udp::sample::Span;
use crate::udp::sender::PORT;
use crate::udp::waited::Waited;
use anyhow::{Context, Result};
use mpps_host::Ledger;
use mpps_io::RxReport;
use mpps_report::Quantity;
use std::time::Duration;

/// A receiver that busy polls gets at least this share of its packets so, or it does not count.
const POLLED_MIN: f64 = 0.5;

/// The result of one run.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathSample {
    pub(crate) run: runs::RunSample,
    /// The rate that each queue's poll took from its ring, in the order of the queues.
    pub(crate) queue_mpps: Vec<f64>,
    pub(crate) cost: Cost,
    pub(crate) mode: String,
    /// How its receiver waited; none of a rule.
    pub(crate) waited: Option<Waited>,
    /// Packets that the receiver took from the queue by polling it itself, over all.
    pub(crate) polled_share: Option<f64>,
    /// The ledger of a run for exactness, which the first round has.
    pub(crate) exact: Option<Ledger>,
}

/// Nanoseconds and calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    /// CPU time of the receiving thread per datagram delivered.
    pub(crate) app_ns: Option<f64>,
    /// CPU time of the queue's kernel thread per packet that it took from the ring.
    pub(crate) softirq_ns: Option<f64>,
    pub(crate) packets_per_call: Option<f64>,
    pub(crate) calls_per_packet: Option<f64>,
}

impl PathLab<'_> {
    /// Sends for so long, at this rate or as fast as the sender can, and accounts for every packet.
    pub(crate) fn run(
        &self,
        path: &Path,
        time: Duration,
        purpose: Purpose<'_>,
    ) -> Result<PathSample> {
        self.prepare(path)?;
        let hosts = Hosts {
            lab: &self.lab,
            interrupt: self.interrupt,
        };
        let run = match path.takes {
            PathTaker::Rule(rule) => {
                let installed = rule.install(&self.lab, PORT)?;
                let taker = Taker::Rule(&installed, path.is_in_driver());
                let run = hosts.run(taker, self.senders(purpose)?, time, purpose)?;
                let mode = rule.mode().to_owned();
                UdpRun { mode, ..run }
            }
            PathTaker::Backend { wait, .. } => {
                let taker = Taker::Program(Receivers {
                    rx: vec![self.open_rx(path)?],
                    cpus: vec![self.cpus.application],
                    wait,
                    is_shared: false,
                });
                let run = hosts.run(taker, self.senders(purpose)?, time, purpose);
                run.with_context(|| path.name.to_owned())?
            }
        };
        Ok(self.sample(path, run))
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

    fn sample(&self, path: &Path, run: UdpRun) -> PathSample {
        let sent = Span::of(&run.tx);
        let queues = run.receiver.queue_packets(self.lab.receiver().interface());
        let polled: i64 = queues.iter().map(|queue| queue.packets).sum();
        let run_ns: u64 = run.napi.iter().map(|(_, stat)| stat.run_ns).sum();
        let is_metered = polled > 0 && !run.napi.is_empty();
        let packets = queues.iter().map(|queue| queue.packets.max(0) as u64);
        PathSample {
            queue_mpps: packets.map(|count| sent.mpps(count)).collect(),
            cost: Cost {
                softirq_ns: is_metered.then(|| run_ns as f64 / polled as f64),
                ..run.rx.first().map(Cost::of).unwrap_or_default()
            },
            polled_share: run
                .receiver
                .snmp("TcpExt.BusyPollRxPackets")
                .filter(|_| polled > 0)
                .map(|busy| busy as f64 / polled as f64),
            mode: run.mode.clone(),
            waited: run.rx.first().and_then(|report| path.waited(report)),
            exact: None,
            run: run.into(),
        }
    }
}

impl Cost {
    /// Of what a receiving thread did.
    pub(super) fn of(report: &RxReport) -> Self {
        let counters = &report.counters;
        let per = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        Self {
            app_ns: per(report.cpu_ns, counters.datagrams),
            softirq_ns: None,
            packets_per_call: per(counters.datagrams, counters.calls),
            calls_per_packet: per(counters.system_calls, counters.datagrams),
        }
    }
}

/// A figure of each of these repeats that has it.
pub(super) fn each(
    repeats: &[&PathSample],
    figure: impl Fn(&PathSample) -> Option<f64>,
) -> Vec<f64> {
    repeats.iter().filter_map(|one| figure(one)).collect()
}

/// The results of these repeats, with this ledger beside theirs.
pub(super) fn runs(repeats: &[&PathSample], ledger: Option<Ledger>) -> Runs {
    Runs::of(repeats.iter().map(|one| &one.run), ledger)
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
    pub(super) fn measured(
        self,
        path: &Path,
        repeats: &[&PathSample],
        method: String,
    ) -> Option<Self> {
        if self.runs.skipped.is_some() {
            return Some(self);
        }
        let last = repeats.last()?;
        let of = |figure: fn(&PathSample) -> Option<f64>| each(repeats, figure);
        let exact = repeats.iter().find_map(|one| one.exact.as_ref());
        let ledger = exact.unwrap_or(&last.run.ledger).clone();
        let polled = median(&of(|one| one.polled_share)).filter(|_| path.polls_itself());
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
        let quotas = repeats.iter().rev().map(|one| one.run.quota.as_ref());
        let held_back = quotas.filter_map(limit::held_back).next();
        let held_back =
            held_back.map(|limit| format!("limited by the {}: {}", limit.what, limit.evidence));
        Some(Self {
            mode: last.mode.clone(),
            waited: last.waited.clone(),
            runs: runs(repeats, Some(ledger)),
            cpu_ns_per_packet: Some(CpuCost {
                app: median(&of(|one| one.cost.app_ns)),
                softirq: median(&of(|one| one.cost.softirq_ns)),
                samples: of(|one| Some(one.cost.app_ns? + one.cost.softirq_ns?)),
                method,
            }),
            packets_per_call: median(&of(|one| one.cost.packets_per_call)),
            calls_per_packet: median(&of(|one| one.cost.calls_per_packet)),
            notes: note.into_iter().chain(held_back).collect(),
            ..self
        })
    }
}
