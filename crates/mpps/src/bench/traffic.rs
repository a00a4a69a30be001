//! One run: a receiver or a rule, then the generator, until both have come to rest.

use super::path::{Path, Takes};
use super::stage::Stage;
use anyhow::{Context, Result};
use mpps_host::{DropCount, DropProbe, ReasonCount, Snapshot};
use mpps_io::{Inspect, RxReport, RxTask, RxWorker, Stop, TxReport, TxTask, TxWorker};
use mpps_os::sched::{self, Schedstat};
use std::thread;
use std::time::{Duration, Instant};

/// How often the workers are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// The longest wait for the receiver to come to rest.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a run counted.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) tx: TxReport,
    pub(crate) taken: Taken,
    /// The kernel threads of the receiving queues; none if they have none.
    pub(crate) napi: Vec<Schedstat>,
    /// Both hosts, before and after.
    pub(crate) before: (Snapshot, Snapshot),
    pub(crate) after: (Snapshot, Snapshot),
    /// Drops by reason in the receiving host, if there was a probe.
    pub(crate) reasons: Option<Vec<ReasonCount>>,
    /// How the receiver worked, as far as it was granted.
    pub(crate) mode: String,
}

/// What took the packets.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A program.
    Received(Box<RxReport>),
    /// A rule, which counted so many.
    Dropped(u64),
}

/// What a run is for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Purpose<'a> {
    /// Rate to offer; none is as fast as the sender can.
    pub(crate) rate_pps: Option<f64>,
    /// Stamp every packet and look at each: exactness, not rate.
    pub(crate) stamped: bool,
    /// Count drops by reason.
    pub(crate) probe: Option<&'a DropProbe>,
}

impl Stage<'_> {
    /// Sends for so long, at this rate or as fast as the sender can.
    pub(crate) fn drive(
        &self,
        path: &Path,
        time: Duration,
        purpose: Purpose<'_>,
    ) -> Result<Traffic> {
        self.prepare(path)?;
        match path.takes {
            Takes::Rule(rule) => {
                let installed = rule.install(&self.lab, super::sender::PORT)?;
                let run = self.around(time, purpose, || Ok(()))?;
                let dropped = installed.dropped()?;
                Ok(run.with(Taken::Dropped(dropped), rule.mode().to_owned()))
            }
            Takes::Backend { wait, .. } => {
                let rx = self.open_rx(path)?;
                let mode = rx.caps().mode.summary.clone();
                let stop = Stop::new();
                let worker = RxWorker::spawn(RxTask {
                    rx,
                    cpu: Some(self.cpus.application),
                    wait,
                    inspect: if purpose.stamped {
                        Inspect::Always
                    } else {
                        Inspect::Never
                    },
                    limit: None,
                    stop: stop.clone(),
                })
                .context("cannot start the receiving thread")?;
                let mut report = None;
                let mut worker = Some(worker);
                let run = self.around(time, purpose, || {
                    if let Some(worker) = worker.take() {
                        await_rest(&worker);
                        stop.stop();
                        report = Some(worker.join());
                    }
                    Ok(())
                });
                stop.stop();
                let run = run?;
                let mut report = report.context("the receiving thread was lost")?;
                if let Some(error) = report.error.take() {
                    return Err(error).with_context(|| format!("receiving by {}", path.name));
                }
                Ok(run.with(Taken::Received(Box::new(report)), mode))
            }
        }
    }

    /// Counters, traffic, silence, `finish`, counters.
    fn around(
        &self,
        time: Duration,
        purpose: Purpose<'_>,
        finish: impl FnOnce() -> Result<()>,
    ) -> Result<Run> {
        let stop = Stop::new();
        let tasks = self.tasks(time, purpose, &stop)?;
        self.lab.settle()?;
        let before = self.snapshots()?;
        let drops = purpose.probe.map(DropProbe::counts).transpose()?;
        let napi = self.napi_time();
        let workers =
            TxWorker::spawn_all(tasks, &stop).context("cannot start the sending threads")?;
        while !workers.iter().all(TxWorker::is_finished) {
            if self.interrupt.came() {
                stop.stop();
            }
            thread::sleep(LOOK);
        }
        let mut tx = together(workers.into_iter().map(TxWorker::join));
        let served = self.napi_time();
        let settled = self.lab.settle();
        finish()?;
        settled?;
        if let Some(error) = tx.error.take() {
            return Err(error).context("sending");
        }
        Ok(Run {
            tx,
            napi: used(&napi, &served),
            before,
            after: self.snapshots()?,
            reasons: match (purpose.probe, drops) {
                (Some(probe), Some(then)) => {
                    let namespace = self.lab.receiver().inode();
                    Some(DropCount::since(&probe.counts()?, &then, namespace))
                }
                _ => None,
            },
        })
    }

    fn snapshots(&self) -> Result<(Snapshot, Snapshot)> {
        let take = |host: &mpps_lab::Host| -> Result<Snapshot> {
            Ok(host.run(|| Snapshot::take(&[host.interface()]))??)
        };
        Ok((take(self.lab.sender())?, take(self.lab.receiver())?))
    }

    /// What each feed's thread is to do.
    fn tasks(&self, time: Duration, purpose: Purpose<'_>, stop: &Stop) -> Result<Vec<TxTask>> {
        let tasks = self.feeds.iter().map(|feed| {
            let targets = feed.queues.iter().map(|queue| self.target_of(*queue));
            let targets = targets.collect::<Result<Vec<_>>>()?;
            Ok(TxTask {
                tx: self.sender.open(&self.lab, &targets)?,
                cpu: Some(feed.cpu),
                stamp: purpose.stamped.then_some(0),
                end_markers: false,
                rate_pps: purpose.rate_pps,
                count: None,
                duration: Some(time),
                stop: stop.clone(),
            })
        });
        tasks.collect()
    }

    /// The time that the queues' threads used so far; none unless it is known of all.
    fn napi_time(&self) -> Vec<Schedstat> {
        let threads = self.lab.napi_threads().iter();
        let times = threads.map(|thread| sched::schedstat(thread.pid, thread.pid));
        times.collect::<Result<_, _>>().unwrap_or_default()
    }
}

/// A run without what took its packets.
struct Run {
    tx: TxReport,
    napi: Vec<Schedstat>,
    before: (Snapshot, Snapshot),
    after: (Snapshot, Snapshot),
    reasons: Option<Vec<ReasonCount>>,
}

impl Run {
    fn with(self, taken: Taken, mode: String) -> Traffic {
        Traffic {
            tx: self.tx,
            taken,
            napi: self.napi,
            before: self.before,
            after: self.after,
            reasons: self.reasons,
            mode,
        }
    }
}

fn used(then: &[Schedstat], now: &[Schedstat]) -> Vec<Schedstat> {
    let pairs = then.iter().zip(now);
    let used = pairs.map(|(then, now)| Schedstat {
        run_ns: now.run_ns.saturating_sub(then.run_ns),
        wait_ns: now.wait_ns.saturating_sub(then.wait_ns),
        ..*now
    });
    used.collect()
}

/// What several senders did, as if they were one: from the first one's start to the last one's end.
fn together(reports: impl Iterator<Item = TxReport>) -> TxReport {
    let merge = |mut sum: TxReport, one: TxReport| {
        for (errno, count) in one.refused {
            *sum.refused.entry(errno).or_default() += count;
        }
        sum.accepted += one.accepted;
        sum.flows.extend(one.flows);
        sum.end_markers += one.end_markers;
        sum.calls += one.calls;
        sum.blocked += one.blocked;
        sum.first_ns = sum.first_ns.min(one.first_ns);
        sum.last_ns = sum.last_ns.max(one.last_ns);
        sum.cpu_ns += one.cpu_ns;
        sum.cpu_wait_ns += one.cpu_wait_ns;
        sum.error = sum.error.or(one.error);
        sum
    };
    reports.reduce(merge).unwrap_or_default()
}

/// Waits until the receiver has emptied its buffers: nothing new over three looks.
fn await_rest(worker: &RxWorker) {
    let deadline = Instant::now() + PATIENCE;
    let (mut last, mut alike) = (worker.progress().datagrams, 0);
    while alike < 2 && Instant::now() < deadline {
        thread::sleep(LOOK);
        let now = worker.progress().datagrams;
        alike = if now == last { alike + 1 } else { 0 };
        last = now;
    }
}
