//! One run of one rung: traffic from the one host to the other, and the counters around it.

use super::limit::{self, Evidence};
use super::{Layout, Rung};
use crate::ladder::rung::Sockets;
use crate::result::{CpuBusy, Limit, PathTaken, QueueShare, ThreadShare};
use crate::signal::Interrupt;
use anyhow::{Context, Result};
use mpps_host::drop_probe::{DropCount, DropProbe};
use mpps_host::{Account, Delta, Ledger, ProcStat, ReasonCount, Route, Snapshot};
use mpps_io::{
    Inspect, Rx, RxConfig, RxReport, RxTask, RxWorker, Stop, Tx, TxConfig, TxReport, TxTask,
    TxWorker, Wait, backend,
};
use mpps_lab::{Delivery, Lab, address};
use mpps_os::sched::{self, Schedstat};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

/// The article's port.
pub(crate) const PORT: u16 = 4321;
/// All senders use one source port, as the article's do.
const SOURCE_PORT: u16 = 4320;
/// Large, so that a slow receiver does not slow the sender: in-flight packets stay charged to the
/// sending socket.
const SEND_BUFFER_BYTES: usize = 32 << 20;
/// How often the receivers are looked at after the senders have stopped.
const LOOK: Duration = Duration::from_millis(10);
/// The longest wait for the receivers to come to rest.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a run is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// The rate: no probe, no stamps.
    Rate,
    /// Exactness: every packet stamped, drops counted by reason if there is a probe.
    Exactness(Option<&'a DropProbe>),
}

/// Where runs take place.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    /// The two hosts.
    pub(crate) lab: &'a Lab,
    /// The CPUs.
    pub(crate) layout: &'a Layout,
    /// How packets reach the queue's CPU.
    pub(crate) delivery: Delivery,
    /// Ends a run early.
    pub(crate) interrupt: &'a Interrupt,
}

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
}

/// What the workers of one run reported.
struct Traffic {
    rx: Vec<RxReport>,
    tx: Vec<TxReport>,
    /// Kernel threads of the receive queues: what the scheduler says of each.
    napi: Vec<(usize, Schedstat)>,
    busy: Vec<mpps_host::CpuBusy>,
    seconds: f64,
}

impl Bench<'_> {
    /// Runs a rung for so long, and accounts for every packet.
    pub(crate) fn run(&self, rung: &Rung, time: Duration, purpose: Purpose<'_>) -> Result<Sample> {
        let queues = rung
            .targets
            .iter()
            .filter_map(|to| self.lab.queue_of(address::v4(*to).into()));
        let queues: Vec<u16> = queues.collect();
        if self
            .lab
            .napi_threads()
            .iter()
            .any(|thread| thread.cpu.is_some())
        {
            self.lab.share_weight(&queues)?;
        }
        let rx = self.open_rx(rung)?;
        let tx = self.open_tx(rung, purpose)?;
        self.lab.settle()?;
        let before = self.snapshots()?;
        let probe = match purpose {
            Purpose::Exactness(probe) => probe,
            Purpose::Rate => None,
        };
        let drops = probe.map(DropProbe::counts).transpose()?;
        let traffic = self.drive(rung, rx, tx, time, purpose)?;
        let after = self.snapshots()?;
        let deltas = (after.0.since(&before.0), after.1.since(&before.1));
        let reasons = match (probe, drops) {
            (Some(probe), Some(drops)) => Some(self.reasons(probe, &drops)?),
            _ => None,
        };
        self.sample(rung, traffic, deltas, reasons, purpose)
    }

    /// Opens the receivers inside the receiving host.
    fn open_rx(&self, rung: &Rung) -> Result<Vec<Box<dyn Rx>>> {
        let opened = self.lab.receiver().run(|| -> Result<Vec<Box<dyn Rx>>> {
            let backend = backend::find("recvmmsg")?;
            let mut receivers: Vec<Box<dyn Rx>> = Vec::new();
            for thread in 0..rung.sockets.threads() {
                let address = match rung.sockets {
                    Sockets::Addressed(_) => address::v4(rung.targets[thread % rung.targets.len()]),
                    _ => Ipv4Addr::UNSPECIFIED,
                };
                let mut config = RxConfig::new(SocketAddr::new(address.into(), PORT));
                if rung.gro {
                    config = config.with_gro();
                }
                config.busy_poll_us = rung.busy_poll_us;
                config.reuse_port =
                    matches!(rung.sockets, Sockets::ReusePort(_) | Sockets::Steered(_));
                let shared = matches!(rung.sockets, Sockets::Shared(_)) && thread > 0;
                let next = if shared {
                    receivers[0].share()
                } else {
                    backend.open_rx(&config)
                };
                receivers.push(next?);
            }
            if matches!(rung.sockets, Sockets::Steered(_)) {
                receivers[0].steer_by_cpu(&rung.cpus)?;
            }
            Ok(receivers)
        })?;
        opened.with_context(|| format!("rung {}: cannot receive", rung.number))
    }

    /// Opens the senders inside the sending host.
    fn open_tx(&self, rung: &Rung, purpose: Purpose<'_>) -> Result<Vec<Box<dyn Tx>>> {
        let opened = self.lab.sender().run(|| -> Result<Vec<Box<dyn Tx>>> {
            let backend = backend::find("sendmmsg")?;
            let open = |target: &u8| {
                let target = SocketAddr::new(address::v4(*target).into(), PORT);
                let config = TxConfig {
                    source: Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), SOURCE_PORT)),
                    gso_segments: rung.gso_segments,
                    // Stamping 1024 payloads at once would put a pause before each call.
                    batch: if matches!(purpose, Purpose::Rate) {
                        1024
                    } else {
                        64
                    },
                    send_buffer_bytes: Some(SEND_BUFFER_BYTES),
                    ..TxConfig::new(target)
                };
                Ok(backend.open_tx(&config)?)
            };
            rung.targets.iter().map(open).collect()
        })?;
        opened.with_context(|| format!("rung {}: cannot send", rung.number))
    }

    fn snapshots(&self) -> Result<(Snapshot, Snapshot)> {
        let take = |host: &mpps_lab::Host| -> Result<Snapshot> {
            Ok(host.run(|| Snapshot::take(&[host.interface()]))??)
        };
        Ok((take(self.lab.sender())?, take(self.lab.receiver())?))
    }

    /// Starts the receivers, then the senders; waits until both have come to rest.
    fn drive(
        &self,
        rung: &Rung,
        rx: Vec<Box<dyn Rx>>,
        tx: Vec<Box<dyn Tx>>,
        time: Duration,
        purpose: Purpose<'_>,
    ) -> Result<Traffic> {
        let exact = matches!(purpose, Purpose::Exactness(_));
        let (stop_rx, stop_tx) = (Stop::new(), Stop::new());
        let rx = spawn_all(rx, &stop_rx, |thread, rx| {
            RxWorker::spawn(RxTask {
                rx,
                cpu: rung.cpus.get(thread % rung.cpus.len().max(1)).copied(),
                wait: Wait::Block(Duration::from_secs(1)),
                inspect: if exact {
                    Inspect::Always
                } else {
                    Inspect::Never
                },
                limit: None,
                stop: stop_rx.clone(),
            })
        })?;
        let (stat, napi, began) = (ProcStat::read()?, self.napi(), Instant::now());
        let senders = &self.layout.senders;
        let tx = spawn_all(tx, &stop_tx, |thread, tx| {
            TxWorker::spawn(TxTask {
                tx,
                cpu: Some(senders[thread % senders.len()]),
                stamp: exact.then_some(thread as u8),
                end_markers: false,
                rate_pps: None,
                count: None,
                duration: Some(time),
                stop: stop_tx.clone(),
            })
        });
        let tx = match tx {
            Ok(tx) => tx,
            Err(error) => {
                stop_rx.stop();
                rx.into_iter().for_each(|worker| drop(worker.join()));
                return Err(error);
            }
        };
        while !tx.iter().all(TxWorker::is_finished) {
            if self.interrupt.came() {
                stop_tx.stop();
            }
            thread::sleep(LOOK);
        }
        let tx = tx.into_iter().map(TxWorker::join).collect();
        let busy = ProcStat::read()?.busy_since(&stat);
        let seconds = began.elapsed().as_secs_f64();
        let served = self.napi();
        let settled = self.lab.settle();
        await_rest(&rx);
        stop_rx.stop();
        let rx = rx.into_iter().map(RxWorker::join).collect();
        settled?;
        let napi = served.into_iter().zip(napi).map(|((cpu, now), (_, then))| {
            let run_ns = now.run_ns.saturating_sub(then.run_ns);
            let wait_ns = now.wait_ns.saturating_sub(then.wait_ns);
            (
                cpu,
                Schedstat {
                    run_ns,
                    wait_ns,
                    ..now
                },
            )
        });
        Ok(Traffic {
            rx,
            tx,
            napi: napi.collect(),
            busy,
            seconds,
        })
    }

    /// What the scheduler says of the kernel threads that serve the queues, with their CPUs.
    fn napi(&self) -> Vec<(usize, Schedstat)> {
        let threads = self.lab.napi_threads().iter();
        threads
            .map(|thread| {
                let stat = sched::schedstat(thread.pid, thread.pid).unwrap_or_default();
                (thread.cpu.unwrap_or(0), stat)
            })
            .collect()
    }

    /// Drops of this run by reason, in the receiver's namespace.
    fn reasons(&self, probe: &DropProbe, before: &[DropCount]) -> Result<Vec<ReasonCount>> {
        let namespace = self.lab.receiver().inode();
        let ours = |count: &&DropCount| count.ours && count.netns == namespace;
        let counts = probe.counts()?;
        Ok(counts
            .iter()
            .filter(ours)
            .map(|now| {
                let then = before
                    .iter()
                    .filter(ours)
                    .find(|then| then.reason == now.reason)
                    .map_or((0, 0), |then| (then.skbs, then.datagrams));
                ReasonCount {
                    reason: now.reason_name.clone(),
                    buffers: now.skbs - then.0,
                    datagrams: now.datagrams - then.1,
                }
            })
            .filter(|count| count.buffers > 0)
            .collect())
    }

    /// Makes the figures and the ledger of a run.
    fn sample(
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
        let path = self.path(&receiver);
        let evidence = Evidence {
            ledger: &ledger,
            layout: self.layout,
            rung,
            rx: &traffic.rx,
            tx: &traffic.tx,
            napi: &traffic.napi,
            seconds: traffic.seconds,
        };
        let (received, offered) = (rates(&traffic.rx), rates(&traffic.tx));
        Ok(Sample {
            mpps: received,
            offered_mpps: offered,
            threads: thread_shares(rung, &traffic.rx),
            cpu_busy: self.cpu_busy(rung, &traffic.busy),
            limited_by: limit::judge(&evidence),
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
            gso: rung.gso_segments > 1,
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
            reasons,
            sequence_lost: match purpose {
                Purpose::Exactness(_) => Some(lost_by_sequence(traffic)),
                Purpose::Rate => None,
            },
        }
    }

    /// Which way the packets took, by the counter that only that way moves.
    fn path(&self, receiver: &Delta) -> PathTaken {
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
        let (name, counter, count) = match self.delivery {
            _ if !self.lab.has_rings() => (
                "veth → backlog of the sender's CPU → IP → UDP → socket",
                "receiver rx_packets",
                receiver.link(interface).map_or(0, |link| link.rx_packets),
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

/// Starts a worker for each of `items`; if one fails, stops and joins those that run.
fn spawn_all<T, W: Joins>(
    items: Vec<T>,
    stop: &Stop,
    spawn: impl Fn(usize, T) -> std::io::Result<W>,
) -> Result<Vec<W>> {
    let mut workers: Vec<W> = Vec::new();
    for (thread, item) in items.into_iter().enumerate() {
        match spawn(thread, item) {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                stop.stop();
                workers.into_iter().for_each(Joins::join);
                return Err(error).context("cannot start a worker");
            }
        }
    }
    Ok(workers)
}

/// A worker whose end can be waited for.
trait Joins {
    fn join(self);
}

impl Joins for RxWorker {
    fn join(self) {
        drop(Self::join(self));
    }
}

impl Joins for TxWorker {
    fn join(self) {
        drop(Self::join(self));
    }
}

/// Waits until the receivers have emptied their sockets: nothing new over three looks.
fn await_rest(workers: &[RxWorker]) {
    let total = || {
        workers
            .iter()
            .map(|worker| worker.progress().datagrams)
            .sum::<u64>()
    };
    let deadline = Instant::now() + PATIENCE;
    let (mut last, mut alike) = (total(), 0);
    while alike < 2 && Instant::now() < deadline {
        thread::sleep(LOOK);
        let now = total();
        alike = if now == last { alike + 1 } else { 0 };
        last = now;
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
