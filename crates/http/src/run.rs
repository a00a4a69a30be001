//! A load on its threads.

use crate::load::{LoadConfig, LoadProgress, LoadReport, LoadRun, LoadWorker};
use crate::thread_counts::ThreadCounts;
use crate::threads::{join, spawn};
use crate::{Engine, HttpError, Task};
use mpps_os::clock::monotonic_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it is looked whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(20);

/// A run of connections and requests against one server.
#[derive(Debug)]
pub struct HttpLoad {}

impl HttpLoad {
    /// Runs a load on sockets that `engine` drives to its end, or until `stop` is raised. Calls
    /// `progress` now and then. Requests in flight at the end are cut off, and counted.
    ///
    /// # Errors
    /// An impossible configuration, before anything is opened; a refusal by the kernel that stops a
    /// whole thread. A failed connection is in the report, and is no error.
    pub fn run(
        engine: &'static Engine,
        config: &LoadConfig,
        stop: &AtomicBool,
        mut progress: impl FnMut(&LoadProgress),
    ) -> Result<LoadReport, HttpError> {
        config.check()?;
        engine.require(Task::Load)?;
        config.allow_sockets()?;
        let config = Arc::new(config.clone());
        let tickets = config.requests.map(|count| Arc::new(AtomicU64::new(count)));
        let run = Arc::new(LoadRun::default());
        let lives: Vec<Arc<ThreadCounts<LoadProgress>>> =
            (0..config.threads).map(|_| Arc::default()).collect();
        let mut threads = Vec::new();
        for (index, live) in lives.iter().enumerate() {
            let worker = LoadWorker::new(&config, index, tickets.clone(), &run, live);
            let cpu = config.cpus.get(index % config.cpus.len().max(1)).copied();
            let name = format!("mpps-load-{index}");
            match spawn(name, cpu, move || (engine.load)(worker)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    run.open(usize::MAX, || true);
                    let _ = join(threads);
                    return Err(error);
                }
            }
        }
        let has_ended = || threads.iter().any(JoinHandle::is_finished);
        let start_ns = run.open(config.threads, has_ended);
        while let Some(start_ns) = start_ns
            && !threads.iter().all(JoinHandle::is_finished)
        {
            let failed = threads.iter().any(JoinHandle::is_finished);
            if stop.load(Ordering::Relaxed) {
                run.stop();
            }
            run.rest(if failed { usize::MAX } else { config.threads }, LOOK);
            let mut now = LoadProgress {
                elapsed: Duration::from_nanos(monotonic_ns().saturating_sub(start_ns)),
                ..LoadProgress::default()
            };
            lives.iter().for_each(|live| now += live.look());
            progress(&now);
        }
        join(threads)?;
        let (granted, end_ns, tally, by_thread) = run.results();
        let elapsed = Duration::from_nanos(end_ns.saturating_sub(start_ns.unwrap_or(end_ns)));
        let is_open = config.rate.is_some();
        let mut report = LoadReport::new(engine.name, granted, elapsed, &tally, is_open);
        if by_thread.len() > 1 {
            report.by_thread = by_thread;
        }
        let left = tickets.map_or(0, |left| left.load(Ordering::Relaxed));
        Ok(report.with_unmade(&config, left))
    }
}
