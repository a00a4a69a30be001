//! The traffic of one run: receivers, then senders, until both have come to rest.

use super::experiment::{Bench, Purpose};
use super::rung::Rung;
use anyhow::{Context, Result};
use mpps_host::ProcStat;
use mpps_io::{
    Inspect, Rx, RxReport, RxTask, RxWorker, Stop, Tx, TxReport, TxTask, TxWorker, Wait,
};
use mpps_os::sched::{self, Schedstat};
use std::thread;
use std::time::{Duration, Instant};

/// How often the workers are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// The longest wait for the receivers to come to rest.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the workers of one run reported.
pub(super) struct Traffic {
    pub(super) rx: Vec<RxReport>,
    pub(super) tx: Vec<TxReport>,
    /// The CPU of each sending thread.
    pub(super) tx_cpus: Vec<usize>,
    /// Kernel threads of the receive queues: the CPU of each, if it is confined to one, and what the scheduler says of it.
    pub(super) napi: Vec<(Option<usize>, Schedstat)>,
    pub(super) busy: Vec<mpps_host::CpuBusy>,
    pub(super) seconds: f64,
}

impl Bench<'_> {
    /// Starts the receivers, then the senders; waits until both have come to rest.
    pub(super) fn drive(
        &self,
        rung: &Rung,
        rx: Vec<Box<dyn Rx>>,
        tx: Vec<Box<dyn Tx>>,
        time: Duration,
        purpose: Purpose<'_>,
    ) -> Result<Traffic> {
        let tx_cpus = rung.sender.cpus(self.layout, &rung.targets);
        let tx_cpus = tx_cpus.map_err(anyhow::Error::msg)?;
        let stop = Stop::new();
        let (stat, napi) = (ProcStat::read()?, self.napi());
        let rx = self.start_rx(rung, rx, purpose, &stop)?;
        let began = Instant::now();
        let sent = self.send(tx, &tx_cpus, time, purpose);
        let busy = ProcStat::read()?.busy_since(&stat);
        let seconds = began.elapsed().as_secs_f64();
        let served = self.napi();
        let settled = self.lab.settle();
        await_rest(&rx);
        stop.stop();
        let rx = rx.into_iter().map(RxWorker::join).collect();
        settled?;
        let used =
            |((cpu, now), (_, then)): ((Option<usize>, Schedstat), (Option<usize>, Schedstat))| {
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
            };
        Ok(Traffic {
            rx,
            tx: sent?,
            tx_cpus,
            napi: served.into_iter().zip(napi).map(used).collect(),
            busy,
            seconds,
        })
    }

    fn start_rx(
        &self,
        rung: &Rung,
        rx: Vec<Box<dyn Rx>>,
        purpose: Purpose<'_>,
        stop: &Stop,
    ) -> Result<Vec<RxWorker>> {
        let inspect = match purpose {
            Purpose::Rate => Inspect::Never,
            Purpose::Exactness(_) => Inspect::Always,
        };
        let task = |(thread, rx): (usize, Box<dyn Rx>)| RxTask {
            rx,
            cpu: rung.cpus.get(thread % rung.cpus.len().max(1)).copied(),
            wait: Wait::Block(Duration::from_secs(1)),
            inspect,
            limit: None,
            stop: stop.clone(),
        };
        RxWorker::spawn_all(rx.into_iter().enumerate().map(task), stop)
            .context("cannot start a receiving thread")
    }

    /// Sends for so long, or until Ctrl-C.
    fn send(
        &self,
        tx: Vec<Box<dyn Tx>>,
        cpus: &[usize],
        time: Duration,
        purpose: Purpose<'_>,
    ) -> Result<Vec<TxReport>> {
        let stop = Stop::new();
        let is_exact = matches!(purpose, Purpose::Exactness(_));
        let task = |(thread, tx): (usize, Box<dyn Tx>)| TxTask {
            tx,
            cpu: cpus.get(thread).copied(),
            stamp: is_exact.then_some(thread as u8),
            end_markers: false,
            rate_pps: None,
            count: None,
            duration: Some(time),
            stop: stop.clone(),
        };
        let workers = TxWorker::spawn_all(tx.into_iter().enumerate().map(task), &stop)
            .context("cannot start a sending thread")?;
        while !workers.iter().all(TxWorker::is_finished) {
            if self.interrupt.came() {
                stop.stop();
            }
            thread::sleep(LOOK);
        }
        Ok(workers.into_iter().map(TxWorker::join).collect())
    }

    /// What the scheduler says of the kernel threads that serve the queues, with their CPUs.
    fn napi(&self) -> Vec<(Option<usize>, Schedstat)> {
        let threads = self.lab.napi_threads().iter();
        threads
            .map(|thread| {
                let stat = sched::schedstat(thread.pid, thread.pid).unwrap_or_default();
                (thread.cpu, stat)
            })
            .collect()
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
