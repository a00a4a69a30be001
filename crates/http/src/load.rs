//! The load: many connections a second against one address, each accounted for.

mod chunks;
mod failure;
mod flights;
mod latency;
mod ledger;
mod pace;
mod report;
mod response;
mod tally;
mod url;
mod worker;

pub use failure::Failure;
pub use latency::{Distribution, Latency};
pub use ledger::Ledger;
pub use report::{LoadReport, Progress};
pub use response::{BadReply, End, LastHead, Received, Response};
pub use url::Url;

pub(crate) use flights::{Request, Step};
pub(crate) use worker::LoadWorker;

use crate::{Engine, Error, Task};
use mpps_os::clock::monotonic_ns;
use mpps_os::sched;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use worker::{Live, Run};

/// How often it is looked whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Sockets of a thread that may be in closing, besides its connections.
pub(crate) const CLOSING_MAX: usize = 1024;
/// Descriptors that are no sockets of a load: rings, sets, files, the terminal.
const OTHERS: u64 = 256;

/// What one connection of a load asks for.
#[derive(Debug, Clone)]
pub struct LoadConfig {
    /// The server.
    pub target: SocketAddr,
    /// The value of the `Host` header.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// What drives the sockets.
    pub engine: &'static Engine,
    /// Connections in flight.
    pub connections: usize,
    /// Requests per second to start, whatever the server does (open loop); none is as fast as it
    /// goes, each connection waiting for its reply (closed loop).
    pub rate: Option<f64>,
    /// How long; none until the requests are done, or somebody stops it.
    pub duration: Option<Duration>,
    /// How many requests; none until the time is over.
    pub requests: Option<u64>,
    /// Requests per connection: 1 closes after each, none never closes.
    pub requests_per_connection: Option<u64>,
    /// Own addresses, in turn; empty leaves the choice to the kernel.
    pub sources: Vec<IpAddr>,
    /// Ends its connections with a RST, which leaves no TIME_WAIT. Otherwise a connection whose
    /// last reply announces the server's close waits for that, and others are closed from here.
    pub reset: bool,
    /// Closes as soon as the last reply is whole, and does not wait for the server's close.
    pub closes_first: bool,
    /// Time for one request, connecting included.
    pub timeout: Duration,
    /// Threads.
    pub threads: usize,
    /// The CPUs of the threads, in turn; empty leaves them to the scheduler.
    pub cpus: Vec<usize>,
}

/// A run of connections and requests against one server.
#[derive(Debug)]
pub struct Load {}

impl Load {
    /// Runs a load to its end, or until `stop` is raised, and shows how far it is now and then.
    /// What is in flight at the end is cut off, and counted.
    ///
    /// # Errors
    /// What cannot be, before anything is opened; what the kernel refused to a whole thread. What
    /// happens to a connection is in the report, and is no error.
    pub fn run(
        config: &LoadConfig,
        stop: &AtomicBool,
        mut progress: impl FnMut(&Progress),
    ) -> Result<LoadReport, Error> {
        config.check()?;
        config.allow_sockets()?;
        let config = Arc::new(config.clone());
        let tickets = config.requests.map(|count| Arc::new(AtomicU64::new(count)));
        let run = Arc::new(Run::default());
        let lives: Vec<Arc<Live>> = (0..config.threads).map(|_| Arc::default()).collect();
        let mut threads = Vec::new();
        for (index, live) in lives.iter().enumerate() {
            let worker = LoadWorker::new(&config, index, tickets.clone(), &run, live);
            match spawn(index, worker) {
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
            let mut now = Progress {
                elapsed: Duration::from_nanos(monotonic_ns().saturating_sub(start_ns)),
                ..Progress::default()
            };
            lives.iter().for_each(|live| live.add_to(&mut now));
            progress(&now);
        }
        join(threads)?;
        let (granted, end_ns, tally) = run.results();
        let elapsed = Duration::from_nanos(end_ns.saturating_sub(start_ns.unwrap_or(end_ns)));
        Ok(LoadReport::new(config.engine.name, granted, elapsed, tally))
    }
}

impl LoadConfig {
    /// Refuses what cannot be.
    fn check(&self) -> Result<(), Error> {
        let invalid = |option, value: String, why: &str| {
            Err(Error::Invalid {
                option,
                value,
                why: why.to_owned(),
            })
        };
        if self.connections == 0 || u32::try_from(self.connections).is_err() {
            let value = self.connections.to_string();
            return invalid("--connections", value, "there must be one at least");
        }
        if self.threads == 0 || self.threads > self.connections {
            let why = "there must be one at least, and a connection for each";
            return invalid("--threads", self.threads.to_string(), why);
        }
        if let Some(rate) = self.rate.filter(|rate| !(1e-6..=1e9).contains(rate)) {
            return invalid(
                "--rate",
                rate.to_string(),
                "it is from 0.000001 to 1000000000",
            );
        }
        if self.requests == Some(0) {
            return invalid("--requests", "0".to_owned(), "there must be one at least");
        }
        if self.requests_per_connection == Some(0) {
            return invalid(
                "--keep-alive",
                "0".to_owned(),
                "1 closes after each request",
            );
        }
        if self.timeout.is_zero() {
            return invalid("--timeout", "0".to_owned(), "nothing is that fast");
        }
        let is_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !self.path.starts_with('/') || !is_text(&self.path) {
            let why = "a path begins with / and has ASCII without spaces";
            return invalid("URL", self.path.clone(), why);
        }
        if !is_text(&self.host) {
            return invalid("URL", self.host.clone(), "a host has ASCII without spaces");
        }
        let foreign = |source: &&IpAddr| source.is_ipv4() != self.target.is_ipv4();
        if let Some(source) = self.sources.iter().find(foreign) {
            let why = format!("{} is of the other family", self.target.ip());
            return invalid("--source", source.to_string(), &why);
        }
        let binds = !self.sources.is_empty();
        self.engine.require(Task::Load { binds })
    }
}

impl LoadConfig {
    /// Sees to it that the process may have as many sockets. Slots of a ring are limited as
    /// descriptors are, and a ring has some besides for those that are being closed.
    fn allow_sockets(&self) -> Result<(), Error> {
        let wanted = self.connections as u64 + CLOSING_MAX as u64 + OTHERS;
        let allowed = mpps_os::limit::allow_descriptors(wanted)?;
        if allowed >= wanted {
            return Ok(());
        }
        Err(Error::Invalid {
            option: "--connections",
            value: self.connections.to_string(),
            why: format!("this process may have {allowed} descriptors, not {wanted}: ulimit -n"),
        })
    }
}

/// A request as it goes out.
fn request_text(config: &LoadConfig, is_last: bool) -> Vec<u8> {
    let connection = if is_last { "Connection: close\r\n" } else { "" };
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: mpps/{}\r\nAccept: */*\r\n{connection}\r\n",
        config.path,
        config.host,
        env!("CARGO_PKG_VERSION"),
    )
    .into_bytes()
}

fn spawn(index: usize, worker: LoadWorker) -> Result<JoinHandle<Result<(), Error>>, Error> {
    let name = format!("mpps-load-{index}");
    let config = Arc::clone(&worker.config);
    let task = move || {
        if let Some(&cpu) = config.cpus.get(index % config.cpus.len().max(1)) {
            sched::pin_current(&[cpu])?;
        }
        (config.engine.load)(worker)
    };
    let spawned = thread::Builder::new().name(name.clone()).spawn(task);
    Ok(spawned.map_err(|source| mpps_os::Error::new("clone", name, source))?)
}

/// Waits for all threads, and answers with the first error.
fn join(threads: Vec<JoinHandle<Result<(), Error>>>) -> Result<(), Error> {
    let ends: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    for end in ends {
        match end {
            Ok(end) => end?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(())
}
