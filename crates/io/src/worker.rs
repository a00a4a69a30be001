//! Threads that receive and send: where stopping, timing and counting live.
//!
//! A worker owns its [`Rx`](crate::Rx) or [`Tx`](crate::Tx); its hot loop touches nothing shared but a stop flag and its
//! own line of live counters, which it stores and never adds to.

mod flow;
mod pace;
mod receive;
mod send;
mod work;

pub use flow::{FlowDecision, FlowKey, FlowReport, FlowTable};
pub use receive::{Inspect, RxProgress, RxReport, RxTask, RxWorker};
pub use send::{TxProgress, TxReport, TxTask, TxWorker};
pub use work::Work;

use mpps_os::On;
use mpps_os::sched::{self, Schedstat};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// Asks workers to stop; clones ask the same workers.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to stop.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True once a stop was requested.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter that one thread stores and others read now and then.
#[derive(Debug, Default)]
struct Published(AtomicU64);

impl Published {
    #[inline]
    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Starts a worker for each task; if one cannot be started, those that run are stopped and joined.
fn spawn_all<T, W, R>(
    tasks: impl IntoIterator<Item = T>,
    stop: &Stop,
    spawn: fn(T) -> io::Result<W>,
    join: fn(W) -> R,
) -> io::Result<Vec<W>> {
    let mut workers = Vec::new();
    for task in tasks {
        match spawn(task) {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                stop.stop();
                workers.into_iter().for_each(|worker| drop(join(worker)));
                return Err(error);
            }
        }
    }
    Ok(workers)
}

/// The thread of a worker.
#[derive(Debug)]
struct WorkerThread<R> {
    report: Receiver<R>,
    is_finished: Arc<AtomicBool>,
    /// Taken only by `join_open`.
    held: Option<FinishedWorker>,
    stop: Stop,
}

/// A running receiver or sender: what it publishes, what it is, and what it will report.
#[derive(Debug)]
pub struct Worker<L, C, R> {
    running: WorkerThread<R>,
    live: Arc<L>,
    caps: C,
}

impl<L, C, R> Worker<L, C, R> {
    /// The properties of its receiver or sender, as granted.
    pub fn caps(&self) -> &C {
        &self.caps
    }

    /// True once it has ended, by its limit, its count, its time or an error.
    pub fn is_finished(&self) -> bool {
        self.running.is_finished()
    }

    /// Waits for its end. If it has no end of its own, ask it to stop first.
    ///
    /// # Panics
    /// If the worker panicked, with its panic.
    pub fn join(self) -> R {
        self.join_open().0
    }

    /// The same, with the receiver or sender still open: what it has attached to a card goes when it
    /// closes, and some drivers then forget their counters.
    ///
    /// # Panics
    /// As [`Worker::join`].
    pub fn join_open(self) -> (R, FinishedWorker) {
        self.running.join_open()
    }
}

/// The receiver or sender of a finished worker, still open. Its own thread closes it when this is
/// dropped: rings of the kernel belong to a thread.
#[derive(Debug)]
pub struct FinishedWorker {
    /// The thread waits for the end of this, which comes first.
    _let_go: Sender<()>,
    thread: JoinedThread,
}

/// A thread that is waited for.
#[derive(Debug)]
struct JoinedThread(Option<JoinHandle<()>>);

impl Drop for JoinedThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // A panic was passed on where the report was missed.
            let _ = thread.join();
        }
    }
}

impl<R: Send + 'static> WorkerThread<R> {
    /// Starts a thread on its CPU, if it has one; the error names the CPU. `work` returns its
    /// report, and the value that it leaves open until it is dropped.
    fn start<T>(
        name: &str,
        cpu: Option<usize>,
        stop: Stop,
        work: impl FnOnce() -> (R, T) + Send + 'static,
    ) -> io::Result<Self> {
        let (ready, started) = mpsc::sync_channel(1);
        let (done, report) = mpsc::channel();
        let (let_go, is_let_go) = mpsc::channel::<()>();
        let is_finished = Arc::new(AtomicBool::new(false));
        let finished = Arc::clone(&is_finished);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let pinned = pin(cpu);
                let is_pinned = pinned.is_ok();
                // The spawner waits for this answer; if it is gone, no code needs it.
                let _ = ready.send(pinned);
                if !is_pinned {
                    return;
                }
                let (report, open) = work();
                let _ = done.send(report);
                finished.store(true, Ordering::Release);
                // Nothing is ever sent: the other end goes.
                let _ = is_let_go.recv();
                drop(open);
            })
            .on("clone", name)
            .map_err(|error| io::Error::new(error.source.kind(), error))?;
        let ended = || Err(io::Error::other("a worker's thread ended before it began"));
        started.recv().unwrap_or_else(|_| ended())?;
        Ok(Self {
            report,
            is_finished,
            held: Some(FinishedWorker {
                _let_go: let_go,
                thread: JoinedThread(Some(thread)),
            }),
            stop,
        })
    }
}

impl<R> WorkerThread<R> {
    fn is_finished(&self) -> bool {
        let thread = self.held.as_ref().and_then(|held| held.thread.0.as_ref());
        // A worker that panicked has finished too.
        self.is_finished.load(Ordering::Acquire) || thread.is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the work, and goes on with the worker's panic if it had one.
    fn join_open(mut self) -> (R, FinishedWorker) {
        let held = self.held.take();
        let mut held = held.expect("only `join_open` takes it, and it takes the worker too");
        if let Ok(report) = self.report.recv() {
            return (report, held);
        }
        let thread = held.thread.0.take().map(JoinHandle::join);
        match thread {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => unreachable!("a worker that was not pinned was never handed out"),
        }
    }
}

impl<R> Drop for WorkerThread<R> {
    /// Dropping a worker without a join asks it to stop, with those that share its [`Stop`].
    fn drop(&mut self) {
        if let Some(mut held) = self.held.take() {
            self.stop.stop();
            held.thread.0 = None;
        }
    }
}

/// Puts the calling thread on its CPU, if it has one; the error names the CPU.
fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else {
        return Ok(());
    };
    sched::pin_current(&[cpu])
        .map_err(|error| io::Error::new(error.source.kind(), format!("CPU {cpu}: {error}")))
}

/// The scheduler's counts of the calling thread; zeros if it has none.
fn scheduled() -> Schedstat {
    sched::schedstat(std::process::id(), sched::thread_id()).unwrap_or_default()
}
