//! Threads that receive and send: where stopping, timing and counting live.
//!
//! A worker owns its [`Rx`](crate::Rx) or [`Tx`](crate::Tx); its hot loop touches nothing shared but a stop flag and its
//! own line of live counters, which it stores and never adds to.

mod receive;
mod send;

pub use receive::{Inspect, RxProgress, RxReport, RxTask, RxWorker};
pub use send::{TxProgress, TxReport, TxTask, TxWorker};

use mpps_os::sched::{self, Schedstat};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Asks workers to stop; clones ask the same workers.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that nobody has raised yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to stop.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True once somebody asked.
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

/// Puts the calling thread on its CPU, if it has one; the error names the CPU.
fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else {
        return Ok(());
    };
    sched::pin_current(&[cpu])
        .map_err(|error| io::Error::new(error.source.kind(), format!("CPU {cpu}: {error}")))
}

/// What the scheduler says of the calling thread; zeros where it does not say.
fn scheduled() -> Schedstat {
    sched::schedstat(std::process::id(), sched::thread_id()).unwrap_or_default()
}
