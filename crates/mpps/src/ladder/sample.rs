//! What one run found: figures, ledger, limit and path, made from what its workers and hosts counted.

use super::experiment::{Bench, Purpose};
use super::limit::{self, Evidence};
use super::rung::{Rung, Sockets};
use super::sender::Sender;
use super::traffic::Traffic;
use crate::result::{CpuBusy, Limit, PathTaken, QueueShare, ThreadShare};
use anyhow::{Context, Result};
use mpps_host::{Account, Arrival, Delta, Departure, Ledger, ReasonCount, Route};
use mpps_io::{RxReport, TxReport};
use mpps_lab::Delivery;
use std::collections::BTreeMap;

/// What one run found.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) mpps: f64,
    pub(crate) offered_mpps: f64,
    pub(crate) ledger: Ledger,
    pub(crate) threads: Vec<ThreadShare>,
    pub(crate) cpu_busy: Vec<CpuBusy>,
    pub(crate) limited_by: Limit,
    pub(crate) path: PathTaken,
    /// What a reader has to know of this run.
    pub(crate) notes: Vec<String>,
}

impl Bench<'_> {
    /// Makes the figures and the ledger of a run.
    pub(super) fn sample(
        &self,
        rung: &Rung,
        mut traffic: Traffic,
        (sender, receiver): (Delta, Delta),
        reasons: Option<Vec<ReasonCount>>,
        purpose: Purpose<'_>,
    ) -> Result<Sample> {
        let failed = traffic.rx.iter_mut().find_map(|report| report.error.take());
        let failed = failed.or(traffic.tx.iter_mut().find_map(|report| report.error.take()));
        if let Some(error) = failed {
            return Err(error).with_context(|| format!("rung {}", rung.number));
        }
        let ledger = self
            .account(rung, &traffic, &sender, &receiver, reasons, purpose)
            .ledger();
        let path = self.path(rung, &receiver);
        let evidence = Evidence {
            ledger: &ledger,
            layout: self.layout,
            rung,
            rx: &traffic.rx,
            tx: &traffic.tx,
            tx_cpus: &traffic.tx_cpus,
            napi: &traffic.napi,
            busy: &traffic.busy,
            seconds: traffic.seconds,
        };
        let (received, offered) = (rates(&traffic.rx), rates(&traffic.tx));
        Ok(Sample {
            mpps: received,
            offered_mpps: offered,
            threads: thread_shares(rung, &traffic.rx),
            cpu_busy: self.cpu_busy(rung, &traffic.busy),
            limited_by: limit::judge(&evidence),
            notes: notes(rung, &traffic, &path, &ledger),
            path,
            ledger,
        })
    }

    fn account<'a>(
        &self,
        rung: &Rung,
        traffic: &Traffic,
        sender: &'a Delta,
        receiver: &'a Delta,
        reasons: Option<Vec<ReasonCount>>,
        purpose: Purpose<'_>,
    ) -> Account<'a> {
        let queued: u64 = traffic.rx.iter().map(|report| report.queued).sum();
        let datagrams: u64 = traffic
            .rx
            .iter()
            .map(|report| report.counters.datagrams)
            .sum();
        let mut refused = BTreeMap::new();
        for (errno, count) in traffic.tx.iter().flat_map(|report| &report.refused) {
            let answer = std::io::Error::from_raw_os_error(*errno).to_string();
            *refused.entry(answer).or_default() += count;
        }
        let shared = matches!(rung.sockets, Sockets::Shared(_));
        let sockets = if shared {
            &traffic.rx[..1]
        } else {
            &traffic.rx[..]
        };
        let (tx, rx) = (
            self.lab.sender().interface(),
            self.lab.receiver().interface(),
        );
        Account {
            offered: traffic.tx.iter().map(TxReport::offered).sum(),
            refused,
            blocked: traffic.tx.iter().map(|report| report.blocked).sum(),
            one_machine: true,
            gso: rung.sender.train().is_some_and(|train| train > 1),
            delivered: datagrams - queued,
            queued,
            copies: 0,
            socket_drops: sockets.iter().map(|report| report.counters.dropped).sum(),
            gro: rung.gro,
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
            departure: match rung.sender {
                Sender::Socket { .. } => Departure::Socket,
                Sender::Generator => Departure::Redirect,
            },
            arrival: Arrival::Socket,
            ring_drops: Vec::new(),
            reasons,
            sequence_lost: match purpose {
                Purpose::Exactness(_) => Some(lost_by_sequence(traffic)),
                Purpose::Rate => None,
            },
        }
    }

    /// Which way the packets took, by the counter that only that way moves.
    fn path(&self, rung: &Rung, receiver: &Delta) -> PathTaken {
        let interface = self.lab.receiver().interface();
        let queues: Vec<QueueShare> = receiver
            .queue_packets(interface)
            .iter()
            .map(|queue| QueueShare {
                queue: u16::try_from(queue.queue).unwrap_or(u16::MAX),
                packets: u64::try_from(queue.packets).unwrap_or(0),
            })
            .collect();
        let polled: i64 = queues.iter().map(|queue| queue.packets as i64).sum();
        let wakes: i64 = receiver.softnet.iter().map(|row| row.received_rps).sum();
        let busy_polled = receiver.snmp("TcpExt.BusyPollRxPackets").unwrap_or(0);
        let (name, counter, count) = match self.delivery {
            _ if rung.busy_poll_us.is_some() && busy_polled > 0 => (
                "veth ring → NAPI, polled by the receiver or by its kernel thread → IP → UDP → socket",
                "receiver TcpExt.BusyPollRxPackets (polled by the receiver)",
                busy_polled,
            ),
            _ if !self.lab.has_rings() => (
                "veth → backlog of the sender's CPU → IP → UDP → socket",
                "receiver rx_packets",
                receiver.link(interface).map_or(0, |link| link.rx_packets),
            ),
            Delivery::SoftInterrupt => (
                "veth ring → NAPI in soft interrupt on the sender's CPU → IP → UDP → socket",
                "receiver rx_queue_N_xdp_packets",
                polled,
            ),
            Delivery::ThreadedNapi if self.lab.napi_threads().is_empty() => (
                "veth ring → NAPI in soft interrupt, unplaced → IP → UDP → socket",
                "receiver rx_queue_N_xdp_packets",
                polled,
            ),
            Delivery::ThreadedNapi => (
                "veth ring → threaded NAPI → IP → UDP → socket",
                "receiver rx_queue_N_xdp_packets",
                polled,
            ),
            Delivery::Rps => (
                "veth ring → NAPI on the sender's CPU → RPS → backlog → IP → UDP → socket",
                "softnet_stat received_rps (wake-ups by another CPU, host-wide)",
                wakes,
            ),
        };
        let count = u64::try_from(count).unwrap_or(0);
        PathTaken {
            name: name.to_owned(),
            counter: counter.to_owned(),
            count,
            queues,
        }
    }

    fn cpu_busy(&self, rung: &Rung, busy: &[mpps_host::CpuBusy]) -> Vec<CpuBusy> {
        let one = |cpu: &mpps_host::CpuBusy| CpuBusy {
            cpu: cpu.cpu,
            busy: cpu.busy,
            softirq: cpu.softirq,
            roles: self.layout.roles(cpu.cpu, &rung.cpus),
        };
        busy.iter().map(one).collect()
    }
}

/// Datagrams that never came, by sequence numbers: of every flow, what it offered less what came.
fn lost_by_sequence(traffic: &Traffic) -> u64 {
    let offered: u64 = traffic.tx.iter().flat_map(|report| &report.flows).sum();
    let came: u64 = traffic
        .rx
        .iter()
        .flat_map(|report| report.flows.reports())
        .map(|(_, flow)| flow.received - flow.duplicates)
        .sum();
    offered.saturating_sub(came)
}

/// What the figures of a run do not say.
fn notes(rung: &Rung, traffic: &Traffic, path: &PathTaken, ledger: &Ledger) -> Vec<String> {
    let mut notes = Vec::new();
    let blocked: u64 = traffic.tx.iter().map(|report| report.blocked).sum();
    if blocked > 0 {
        let full = match rung.sender {
            Sender::Socket { .. } => "the send buffer was full at times",
            Sender::Generator => "the generator had to wait for pages at times",
        };
        notes.push(format!("{full}: the load was not quite open loop"));
    }
    if rung.busy_poll_us.is_some() {
        let polled = if path.counter.contains("BusyPoll") {
            path.count
        } else {
            0
        };
        if polled < ledger.delivered / 2 {
            notes.push(
                "most packets came by the queue's kernel thread, not by busy polling".to_owned(),
            );
        }
    }
    notes
}

/// A count with the time that it took.
trait Rated {
    fn datagrams(&self) -> u64;
    fn span_ns(&self) -> (u64, u64);
}

impl Rated for RxReport {
    fn datagrams(&self) -> u64 {
        self.counters.datagrams
    }
    fn span_ns(&self) -> (u64, u64) {
        (self.first_ns, self.last_ns)
    }
}

impl Rated for TxReport {
    fn datagrams(&self) -> u64 {
        self.offered()
    }
    fn span_ns(&self) -> (u64, u64) {
        (self.first_ns, self.last_ns)
    }
}

/// Million datagrams per second of all reports together, from the first to the last of them.
fn rates(reports: &[impl Rated]) -> f64 {
    let active = reports.iter().filter(|report| report.datagrams() > 0);
    let (first, last) = active.map(Rated::span_ns).fold((u64::MAX, 0), |sum, span| {
        (sum.0.min(span.0), sum.1.max(span.1))
    });
    let datagrams: u64 = reports.iter().map(Rated::datagrams).sum();
    if last <= first {
        return 0.0;
    }
    datagrams as f64 / (last - first) as f64 * 1e3
}

fn thread_shares(rung: &Rung, reports: &[RxReport]) -> Vec<ThreadShare> {
    let shared = matches!(rung.sockets, Sockets::Shared(_));
    let share = |(thread, report): (usize, &RxReport)| {
        let received = report.counters.datagrams;
        ThreadShare {
            cpu: report.cpu,
            received,
            socket_drops: (thread == 0 || !shared).then_some(report.counters.dropped),
            packets_per_call: received as f64 / report.counters.calls.max(1) as f64,
            cpu_ns_per_packet: report.cpu_ns as f64 / received.max(1) as f64,
        }
    };
    reports.iter().enumerate().map(share).collect()
}
