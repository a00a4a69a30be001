//! Paths over traffic that another host sends: what a lab cannot tell, a real card can.
//!
//! The sender stamps its packets, so that the sequence numbers tell how many were offered while a
//! path was measured. What was lost before this host has no counter here: it is unaccounted, and
//! said to be.

use super::path::{Path, Takes};
use super::result::{BenchRow, CpuCost};
use super::sample::{arrival, ring_drops};
use crate::report::median;
use crate::signal::Interrupt;
use anyhow::{Context, Result, ensure};
use mpps_host::{Account, Arrival, Delta, Departure, Ledger, Route, Snapshot};
use mpps_io::backend::{self, Support};
use mpps_io::{Inspect, RxConfig, RxReport, RxTask, RxWorker, Stop};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// How long a path waits for its first packet.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the worker is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Measures traffic that arrives at an address of this host.
#[derive(Debug)]
pub(crate) struct Live<'a> {
    /// Where it arrives.
    pub(crate) address: SocketAddr,
    /// The receiving thread's CPU.
    pub(crate) cpu: usize,
    /// Length of each run.
    pub(crate) time: Duration,
    /// Ends a run early.
    pub(crate) interrupt: &'a Interrupt,
    /// Counters of this host.
    pub(crate) snapshot: fn() -> Result<Snapshot>,
}

/// What one run found.
struct Run {
    mpps: f64,
    report: RxReport,
    ledger: Ledger,
    mode: String,
}

impl Live<'_> {
    /// Runs every path so many times, interleaved; `step` hears of each run before it begins.
    /// Answers false beside the rows if Ctrl-C came.
    pub(crate) fn compare(
        &self,
        paths: &[Path],
        repeats: usize,
        mut step: impl FnMut(&Path),
    ) -> Result<(Vec<BenchRow>, bool)> {
        let mut rows = Vec::new();
        for path in paths {
            if matches!(path.takes, Takes::Backend { .. }) {
                rows.push((*path, self.obstacle(path)?, Vec::new()));
            }
        }
        let mut complete = true;
        'rounds: for _ in 0..repeats {
            for (path, obstacle, runs) in &mut rows {
                if obstacle.is_some() {
                    continue;
                }
                step(path);
                runs.push(self.run(path)?);
                if self.interrupt.came() {
                    complete = false;
                    break 'rounds;
                }
            }
        }
        let rows = rows
            .into_iter()
            .map(|(path, obstacle, runs)| self.row(&path, obstacle, &runs));
        Ok((rows.collect(), complete))
    }

    fn obstacle(&self, path: &Path) -> Result<Option<String>> {
        match (backend::find(path.name)?.probe)() {
            Support::Yes => Ok(self.open(path).err().map(|error| format!("{error:#}"))),
            Support::No { why, remedy } => Ok(Some(format!("{why}; {remedy}"))),
        }
    }

    fn open(&self, path: &Path) -> Result<Box<dyn mpps_io::Rx>> {
        let Takes::Backend { configure, .. } = path.takes else {
            anyhow::bail!("{}: a rule receives nothing", path.name);
        };
        let mut config = RxConfig::new(self.address);
        configure(&mut config);
        let opened = backend::find(path.name)?.open_rx(&config);
        opened.with_context(|| format!("cannot receive by {}", path.name))
    }

    fn run(&self, path: &Path) -> Result<Run> {
        let Takes::Backend { wait, .. } = path.takes else {
            anyhow::bail!("{}: a rule receives nothing", path.name);
        };
        let rx = self.open(path)?;
        let mode = rx.caps().mode.summary.clone();
        let before = (self.snapshot)()?;
        let stop = Stop::new();
        let worker = RxWorker::spawn(RxTask {
            rx,
            cpu: Some(self.cpu),
            wait,
            inspect: Inspect::Always,
            limit: None,
            stop: stop.clone(),
        })
        .context("cannot start the receiving thread")?;
        let began = self.await_first(&worker);
        while began && worker.progress().first_ns > 0 && !self.interrupt.came() {
            let age = mpps_os::clock::monotonic_ns().saturating_sub(worker.progress().first_ns);
            if u128::from(age) >= self.time.as_nanos() {
                break;
            }
            thread::sleep(LOOK);
        }
        stop.stop();
        let mut report = worker.join();
        let after = (self.snapshot)()?;
        if let Some(error) = report.error.take() {
            return Err(error).with_context(|| format!("receiving by {}", path.name));
        }
        ensure!(
            began || self.interrupt.came(),
            "nothing arrived at {} within {} s; is the command running on the sending host, and does \
             no firewall drop its packets?",
            self.address,
            PATIENCE.as_secs()
        );
        let seconds = report.last_ns.saturating_sub(report.first_ns) as f64 / 1e9;
        let ledger = account(path, &report, &after.since(&before))?;
        Ok(Run {
            mpps: if seconds > 0.0 {
                report.counters.datagrams as f64 / seconds / 1e6
            } else {
                0.0
            },
            report,
            ledger,
            mode,
        })
    }

    fn await_first(&self, worker: &RxWorker) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while worker.progress().first_ns == 0 {
            if Instant::now() > deadline || self.interrupt.came() || worker.is_finished() {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    fn row(&self, path: &Path, obstacle: Option<String>, runs: &[Run]) -> BenchRow {
        let described = BenchRow {
            path: path.name.to_owned(),
            variant: path.variant.to_owned(),
            napi: "where the card's interrupts go".to_owned(),
            reference: path.reference,
            queues: 1,
            skipped: obstacle,
            ..BenchRow::default()
        };
        let Some(last) = runs.last() else {
            return described;
        };
        let rates: Vec<f64> = runs.iter().map(|run| run.mpps).collect();
        let of = |figure: fn(&RxReport) -> (u64, u64)| {
            let ratios = runs.iter().map(|run| figure(&run.report));
            let ratios: Vec<f64> = ratios
                .filter(|(_, whole)| *whole > 0)
                .map(|(part, whole)| part as f64 / whole as f64)
                .collect();
            median(&ratios)
        };
        let sums = runs.iter().fold((0, 0), |sums, run| {
            (sums.0 + run.ledger.delivered, sums.1 + run.ledger.offered)
        });
        BenchRow {
            mode: last.mode.clone(),
            mpps_median: median(&rates),
            mpps_samples: rates,
            delivered_ratio: (sums.1 > 0).then(|| sums.0 as f64 / sums.1 as f64),
            cpu_ns_per_packet: Some(CpuCost {
                app: of(|report| (report.cpu_ns, report.counters.datagrams)),
                softirq: None,
                method: "approximate: schedstat of the application; interrupts are not known"
                    .to_owned(),
            }),
            packets_per_call: of(|report| (report.counters.datagrams, report.counters.calls)),
            calls_per_packet: of(|report| {
                (report.counters.system_calls, report.counters.datagrams)
            }),
            ledger: Some(last.ledger.clone()),
            sample_ledgers: runs.iter().map(|run| run.ledger.clone()).collect(),
            ..described
        }
    }
}

/// The ledger of a run whose sender is known by its stamps alone.
fn account(path: &Path, report: &RxReport, host: &Delta) -> Result<Ledger> {
    let flows = report.flows.reports().map(|(_, flow)| flow);
    let offered: u64 = flows.map(|flow| flow.next.saturating_sub(flow.first)).sum();
    let arrival = arrival(path)?;
    let account = Account {
        offered,
        refused: BTreeMap::new(),
        blocked: 0,
        one_machine: false,
        gso: false,
        delivered: report.counters.datagrams.saturating_sub(report.queued),
        queued: report.queued,
        copies: 0,
        socket_drops: if arrival == Arrival::Socket {
            report.counters.dropped
        } else {
            0
        },
        gro: path.variant == "GRO",
        sender: None,
        receiver: Some(host),
        route: Route::Hosts,
        departure: Departure::Socket,
        arrival,
        ring_drops: if arrival == Arrival::Socket {
            Vec::new()
        } else {
            ring_drops(report)
        },
        reasons: None,
        sequence_lost: None,
    };
    let mut ledger = account.ledger();
    if report.flows.unstamped() > 0 {
        ledger.note(format!(
            "{} packets had no stamp: add --stamp to the sender's command",
            report.flows.unstamped()
        ));
    }
    if ledger.unaccounted != 0 {
        ledger.note(
            "offered is by sequence numbers between the first and the last packet seen; what is \
             unaccounted was lost before this host, or its counters are of other traffic too",
        );
    }
    Ok(ledger)
}
