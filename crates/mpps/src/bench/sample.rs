//! What one run of a path found: figures and ledger, made from what its two ends counted.

use super::path::{Path, Takes};
use super::stage::Stage;
use super::traffic::{Purpose, Taken, Traffic};
use anyhow::Result;
use mpps_host::{Account, Arrival, Delta, Departure, Ledger, RingDrop, Route};
use mpps_io::{Layer, RxReport, backend};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one run found.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) mpps: f64,
    pub(crate) offered_mpps: f64,
    /// What each queue's poll took from its ring, in the order of the queues.
    pub(crate) queue_mpps: Vec<f64>,
    pub(crate) cost: Cost,
    pub(crate) ledger: Ledger,
    pub(crate) mode: String,
    /// Packets that the receiver took from the queue by polling it itself, over all.
    pub(crate) polled_share: Option<f64>,
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

impl Stage<'_> {
    /// Runs a path, and accounts for every packet.
    pub(crate) fn run(&self, path: &Path, time: Duration, purpose: Purpose<'_>) -> Result<Sample> {
        let traffic = self.drive(path, time, purpose)?;
        let sender = traffic.after.0.since(&traffic.before.0);
        let receiver = traffic.after.1.since(&traffic.before.1);
        let ledger = self
            .account(path, purpose, &traffic, &sender, &receiver)?
            .ledger();
        let seconds = seconds(traffic.tx.first_ns, traffic.tx.last_ns);
        let (mpps, cost) = match &traffic.taken {
            Taken::Dropped(dropped) => (mega(*dropped, seconds), Cost::default()),
            Taken::Received(report) => (
                mega(
                    report.counters.datagrams,
                    self::seconds(report.first_ns, report.last_ns).max(seconds),
                ),
                cost(report),
            ),
        };
        let queues = receiver.queue_packets(self.lab.receiver().interface());
        let polled: i64 = queues.iter().map(|queue| queue.packets).sum();
        let run_ns: u64 = traffic.napi.iter().map(|napi| napi.run_ns).sum();
        let is_metered = polled > 0 && !traffic.napi.is_empty();
        let softirq_ns = is_metered.then(|| run_ns as f64 / polled as f64);
        let packets = queues.iter().map(|queue| queue.packets.max(0) as u64);
        Ok(Sample {
            mpps,
            offered_mpps: mega(traffic.tx.offered(), seconds),
            queue_mpps: packets.map(|count| mega(count, seconds)).collect(),
            cost: Cost { softirq_ns, ..cost },
            polled_share: receiver
                .snmp("TcpExt.BusyPollRxPackets")
                .filter(|_| polled > 0)
                .map(|busy| busy as f64 / polled as f64),
            ledger,
            mode: traffic.mode,
        })
    }

    fn account<'a>(
        &'a self,
        path: &Path,
        purpose: Purpose<'_>,
        traffic: &Traffic,
        sender: &'a Delta,
        receiver: &'a Delta,
    ) -> Result<Account<'a>> {
        let mut refused = BTreeMap::new();
        for (errno, count) in &traffic.tx.refused {
            let answer = std::io::Error::from_raw_os_error(*errno).to_string();
            *refused.entry(answer).or_default() += count;
        }
        let arrival = arrival(path)?;
        let (tx, rx) = (
            self.lab.sender().interface(),
            self.lab.receiver().interface(),
        );
        let mut account = Account {
            offered: traffic.tx.offered(),
            refused,
            blocked: traffic.tx.blocked,
            one_machine: true,
            gso: self.sender.sends_trains(),
            delivered: 0,
            queued: 0,
            copies: 0,
            socket_drops: 0,
            gro: false,
            sender: Some(sender),
            receiver: Some(receiver),
            route: if self.lab.has_rings() {
                Route::VethRing {
                    sender: tx,
                    receiver: rx,
                }
            } else {
                Route::VethBacklog {
                    sender: tx,
                    receiver: rx,
                }
            },
            departure: if self.sender.redirects() {
                Departure::Redirect
            } else {
                Departure::Socket
            },
            arrival,
            ring_drops: Vec::new(),
            reasons: traffic.reasons.clone(),
            sequence_lost: None,
        };
        match &traffic.taken {
            Taken::Dropped(dropped) => account.delivered = *dropped,
            Taken::Received(report) => {
                account.delivered = report.counters.datagrams - report.queued;
                account.queued = report.queued;
                account.sequence_lost = purpose
                    .stamped
                    .then(|| account.offered.saturating_sub(distinct(report)));
                account.gro = path.variant == "GRO";
                if arrival == Arrival::Socket {
                    account.socket_drops = report.counters.dropped;
                } else {
                    account.ring_drops = ring_drops(report);
                }
            }
        }
        Ok(account)
    }
}

pub(super) fn ring_drops(report: &RxReport) -> Vec<RingDrop> {
    let drops = report.drops.iter().map(|drop| RingDrop {
        reason: drop.reason.to_owned(),
        source: drop.source.to_owned(),
        count: drop.count,
    });
    drops.collect()
}

/// Datagrams that came, each counted once, by their sequence numbers.
fn distinct(report: &RxReport) -> u64 {
    let flows = report.flows.reports();
    flows.map(|(_, flow)| flow.received - flow.duplicates).sum()
}

/// How packets reach what takes them.
pub(super) fn arrival(path: &Path) -> Result<Arrival> {
    Ok(match path.takes {
        Takes::Rule(_) => Arrival::Rule,
        Takes::Backend { .. } => match (path.name, backend::find(path.name)?.layer) {
            ("af_xdp", _) => Arrival::Xdp {
                in_driver: path.variant != "generic",
            },
            (_, Layer::Payload) => Arrival::Socket,
            (_, Layer::Frame) => Arrival::Tap,
        },
    })
}

fn cost(report: &RxReport) -> Cost {
    let counters = &report.counters;
    let per = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    Cost {
        app_ns: per(report.cpu_ns, counters.datagrams),
        softirq_ns: None,
        packets_per_call: per(counters.datagrams, counters.calls),
        calls_per_packet: per(counters.system_calls, counters.datagrams),
    }
}

fn seconds(first_ns: u64, last_ns: u64) -> f64 {
    last_ns.saturating_sub(first_ns) as f64 / 1e9
}

fn mega(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds / 1e6
    } else {
        0.0
    }
}
