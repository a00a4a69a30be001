//! The receiving worker.

use super::work::payload;
use super::{Published, Stop, Work, Worker, WorkerThread, scheduled, spawn_all};
use crate::{FlowTable, Layer, Rx, RxCaps, RxCounters, RxDrop, Stamp, Wait};
use mpps_os::{clock, sched};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a waiting worker may take to notice a stop.
const NOTICE: Duration = Duration::from_millis(100);
/// How long a stopped worker reads on to find what is still queued, if more keeps coming.
const DRAIN: Duration = Duration::from_millis(100);
/// With one datagram a call, the precise clock is read once in this number of calls; it would cost
/// a thirtieth of such a call. Between, the coarse one will do.
const CLOCK_EVERY: u64 = 64;

/// Whether a worker looks into payloads for stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inspect {
    /// Never: it counts and no more.
    Never,
    /// From the first batch on that begins with a stamp.
    Auto,
    /// Always.
    Always,
}

/// The task of a receiving worker.
///
/// ```
/// use mpps_io::{
///     Inspect, RxConfig, RxTask, RxWorker, Stop, TxConfig, TxTask, TxWorker, Wait, Work,
///     backend,
/// };
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rx = backend::find("recvmmsg")?.open_rx(&RxConfig::new("127.0.0.1:0".parse()?))?;
/// let tx = backend::find("sendmmsg")?.open_tx(&TxConfig::new(rx.caps().local_address))?;
/// let stop = Stop::new();
/// let receiving = RxWorker::spawn(RxTask {
///     rx,
///     cpu: None,
///     wait: Wait::Auto(Duration::from_millis(100)),
///     inspect: Inspect::Auto,
///     work: Work::None,
///     limit: None,
///     stop: stop.clone(),
/// })?;
/// let sending = TxWorker::spawn(TxTask {
///     tx,
///     cpu: None,
///     stamp: Some(0),
///     to_group: false,
///     end_markers: false,
///     rate_pps: Some(10_000.0),
///     count: Some(100),
///     duration: None,
///     stop: stop.clone(),
/// })?;
/// assert_eq!(sending.join().accepted, 100);
/// // What is still queued is read after that.
/// stop.stop();
/// assert_eq!(receiving.join().counters.datagrams, 100);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RxTask {
    /// Whom it receives with.
    pub rx: Box<dyn Rx>,
    /// CPU to stay on; none leaves it to the scheduler.
    pub cpu: Option<usize>,
    /// How to wait; its time is cut to 0.1 s so that a stop is noticed.
    pub wait: Wait,
    /// Whether to look for stamps.
    pub inspect: Inspect,
    /// The work for each datagram, until the stop.
    pub work: Work,
    /// Datagrams that all workers sharing it may still receive before they stop.
    pub limit: Option<Arc<AtomicU64>>,
    /// The flag that stops it.
    pub stop: Stop,
}

/// Counters of a running worker.
#[derive(Debug, Default)]
pub struct ReceiveCounts {
    datagrams: Published,
    wire_bytes: Published,
    calls: Published,
    dropped: Published,
    cpu: Published,
    first_ns: Published,
    refresh: AtomicBool,
}

/// The packets that a running worker has received so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RxProgress {
    /// Datagrams.
    pub datagrams: u64,
    /// Payload bytes.
    pub wire_bytes: u64,
    /// Calls that brought something.
    pub calls: u64,
    /// Drops of its socket, as of the last `RxWorker::refresh`.
    pub dropped: u64,
    /// CPU that it was last seen on, as of the last `RxWorker::refresh`.
    pub cpu: usize,
    /// `CLOCK_MONOTONIC` of the first datagram, 0 before it.
    pub first_ns: u64,
}

/// A running receiver.
pub type RxWorker = Worker<ReceiveCounts, RxCaps, RxReport>;

/// The report of a receiver, from start to end.
#[derive(Debug, Default)]
pub struct RxReport {
    /// The packets that came, and those that its socket dropped.
    pub counters: RxCounters,
    /// The packets that its socket or ring dropped, by reason.
    pub drops: Vec<RxDrop>,
    /// Datagrams of `counters` that were still in the buffer when it was asked to stop.
    pub queued: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds of the first datagram; 0 if none came.
    pub first_ns: u64,
    /// The same of the last that was no end marker of a stamped sender, with its work; good to the
    /// kernel's tick (1 to 10 ms) at low rates. Those of `queued` count only if there are no others.
    pub last_ns: u64,
    /// CPU time that the thread used, in nanoseconds, by the scheduler.
    pub cpu_ns: u64,
    /// Time that it was ready and waited for a CPU, in nanoseconds, by the scheduler.
    pub cpu_wait_ns: u64,
    /// The CPU that it was pinned to.
    pub cpu: Option<usize>,
    /// The results of the stamps; empty without [`Inspect`] or stamps.
    pub flows: FlowTable,
    /// The error that ended it early.
    pub error: Option<io::Error>,
}

impl RxWorker {
    /// Starts a thread for `task`.
    ///
    /// # Errors
    /// If the thread cannot be started, or cannot be pinned to its CPU.
    pub fn spawn(task: RxTask) -> io::Result<Self> {
        let live = Arc::new(ReceiveCounts::default());
        let caps = task.rx.caps().clone();
        let (cpu, stop, shared) = (task.cpu, task.stop.clone(), Arc::clone(&live));
        let work = move || Receiving::new(task, shared).run();
        Ok(Self {
            running: WorkerThread::start("mpps-rx", cpu, stop, work)?,
            live,
            caps,
        })
    }

    /// Starts a thread for each task. If one cannot be started, `stop`, which they share, is
    /// raised and those that run are waited for.
    ///
    /// # Errors
    /// As for [`RxWorker::spawn`].
    pub fn spawn_all(
        tasks: impl IntoIterator<Item = RxTask>,
        stop: &Stop,
    ) -> io::Result<Vec<Self>> {
        spawn_all(tasks, stop, Self::spawn, Self::join)
    }

    /// The packets received so far.
    pub fn progress(&self) -> RxProgress {
        RxProgress {
            datagrams: self.live.datagrams.read(),
            wire_bytes: self.live.wire_bytes.read(),
            calls: self.live.calls.read(),
            dropped: self.live.dropped.read(),
            cpu: self.live.cpu.read() as usize,
            first_ns: self.live.first_ns.read(),
        }
    }

    /// Asks for fresh drops and CPU, which cost a system call; they show within 0.1 s.
    pub fn refresh(&self) {
        self.live.refresh.store(true, Ordering::Relaxed);
    }

    /// Whether drops and CPU are as of the last [`RxWorker::refresh`], or of the worker's end.
    pub fn is_fresh(&self) -> bool {
        self.is_finished() || !self.live.refresh.load(Ordering::Acquire)
    }
}

/// The loop's own state.
struct Receiving {
    task: RxTask,
    live: Arc<ReceiveCounts>,
    report: RxReport,
    since_clock: u64,
    one_a_call: bool,
    stamped: bool,
    layer: Layer,
}

impl Receiving {
    fn new(mut task: RxTask, live: Arc<ReceiveCounts>) -> Self {
        task.wait = task.wait.at_most(NOTICE);
        let report = RxReport {
            counters: RxCounters::default(),
            drops: Vec::new(),
            queued: 0,
            first_ns: 0,
            last_ns: 0,
            cpu_ns: 0,
            cpu_wait_ns: 0,
            cpu: task.cpu,
            flows: FlowTable::new(),
            error: None,
        };
        let stamped = task.inspect == Inspect::Always;
        let one_a_call = task.rx.caps().batch == 1;
        let layer = task.rx.caps().layer;
        Self {
            task,
            live,
            report,
            since_clock: CLOCK_EVERY,
            one_a_call,
            stamped,
            layer,
        }
    }

    fn run(mut self) -> (RxReport, Box<dyn Rx>) {
        let before = scheduled();
        while !self.task.stop.is_stopped() {
            match self.step(self.task.wait, self.task.work) {
                Ok(0) => {}
                Ok(datagrams) => {
                    if self.is_limit_reached(datagrams) {
                        self.task.stop.stop();
                    }
                }
                Err(error) => {
                    self.report.error = Some(error);
                    break;
                }
            }
        }
        let last_ns = self.report.last_ns;
        if self.report.error.is_none() {
            self.drain();
        }
        if last_ns > 0 {
            self.report.last_ns = last_ns;
        }
        let after = scheduled();
        self.report.cpu_ns = after.run_ns.saturating_sub(before.run_ns);
        self.report.cpu_wait_ns = after.wait_ns.saturating_sub(before.wait_ns);
        self.report.counters = self.task.rx.counters();
        self.report.drops = self.task.rx.drops();
        self.live.dropped.set(self.report.counters.dropped);
        (self.report, self.task.rx)
    }

    /// One receive; answers how many datagrams came.
    #[inline]
    fn step(&mut self, wait: Wait, work: Work) -> io::Result<u64> {
        if self.live.refresh.load(Ordering::Relaxed) {
            self.refresh();
        }
        let batch = self.task.rx.recv(wait)?;
        if batch.is_empty() {
            return Ok(0);
        }
        let datagrams = batch.datagrams();
        let live = &self.live;
        self.since_clock += datagrams;
        let now = if self.one_a_call && self.since_clock < CLOCK_EVERY {
            clock::monotonic_coarse_ns()
        } else {
            self.since_clock = 0;
            clock::monotonic_ns()
        };
        if self.report.first_ns == 0 {
            self.report.first_ns = now;
            live.first_ns.set(now);
        }
        let last_ns = self.report.last_ns.max(self.report.first_ns);
        self.report.last_ns = last_ns.max(now);
        live.datagrams.set(live.datagrams.read() + datagrams);
        live.wire_bytes
            .set(live.wire_bytes.read() + batch.wire_bytes());
        live.calls.set(live.calls.read() + 1);
        if work != Work::None {
            work.run(self.layer, &batch);
            self.report.last_ns = clock::monotonic_ns();
        }
        if self.task.inspect == Inspect::Auto && !self.stamped {
            let first = batch.packets().next();
            let first = first.map(|packet| payload(self.layer, packet.data));
            self.stamped = first.is_some_and(|payload| Stamp::read(payload).is_some());
        }
        if self.stamped && self.task.inspect != Inspect::Never {
            let now_ns = Stamp::now_ns();
            let flows = &mut self.report.flows;
            let markers = flows.end_markers();
            for packet in batch.packets() {
                flows.record(payload(self.layer, packet.data), now_ns);
            }
            // Markers follow the traffic by tens of milliseconds, and are not part of it.
            if flows.end_markers() - markers == datagrams {
                self.report.last_ns = last_ns;
            }
        }
        Ok(datagrams)
    }

    /// Takes the batch out of the common limit; true once nothing is left of it.
    fn is_limit_reached(&self, datagrams: u64) -> bool {
        let Some(limit) = &self.task.limit else {
            return false;
        };
        let left = limit.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            Some(left.saturating_sub(datagrams))
        });
        left.unwrap_or(0) <= datagrams
    }

    /// Counts what was still in the buffer when the worker was asked to stop.
    fn drain(&mut self) {
        let deadline = clock::monotonic_ns() + DRAIN.as_nanos() as u64;
        while clock::monotonic_ns() < deadline {
            match self.step(Wait::Poll, Work::None) {
                Ok(0) => return,
                Ok(datagrams) => self.report.queued += datagrams,
                Err(error) => {
                    self.report.error = Some(error);
                    return;
                }
            }
        }
    }

    #[cold]
    fn refresh(&self) {
        self.live.dropped.set(self.task.rx.counters().dropped);
        self.live.cpu.set(sched::current_cpu() as u64);
        self.live.refresh.store(false, Ordering::Release);
    }
}
