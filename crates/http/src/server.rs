//! The running server: its listeners, its threads, and what they have counted.

use crate::serve::{
    Close, Limits, Peers, ServeCounters, ServePhase, ServeStage, ServeWorker, ServedContent,
    ServedSite,
};
use crate::thread_counts::ThreadCounts;
use crate::threads::{ServeThread, join, spawn};
use crate::{Advice, Engine, HttpError, Switch, Switches, Task};
use mpps_os::tcp::{self, AcceptingSocket, ListenOptions};
use mpps_os::{limit, sched};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Descriptors of a worker beside its connections: its listener, its ring or epoll set, what wakes
/// it, the reserve, and pipes.
const DESCRIPTORS_PER_WORKER: u64 = 16;

/// Descriptors of the rest of the process, files that are being served among them.
const DESCRIPTORS_OF_PROCESS: u64 = 256;

/// How a server is to be.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// The engine that drives its sockets.
    pub engine: &'static Engine,
    /// The switches that are on.
    pub switches: Switches,
    /// The content to serve.
    pub content: ServedContent,
    /// The side that closes.
    pub close: Close,
    /// How much a client may ask for.
    pub limits: Limits,
    /// Worker threads.
    pub workers: usize,
    /// The CPUs of the workers, in turn; empty leaves them to the scheduler.
    pub cpus: Vec<usize>,
    /// How long a drain waits for open connections.
    pub drain_time: Duration,
}

/// A running server; dropped, it ends at once.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    granted: Granted,
    phase: Arc<ServePhase>,
    counters: Arc<[Arc<ThreadCounts<ServeCounters>>]>,
    threads: Vec<ServeThread>,
}

/// The state of a switch in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchState {
    /// Which.
    pub name: Switch,
    /// Whether it was on.
    pub on: bool,
    /// Its effect in this engine, on this kernel.
    pub what: String,
    /// Why it was off, or empty.
    pub why_not: String,
}

/// The features that a server was granted, as opposed to those asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The engine that drives its sockets.
    pub engine: &'static str,
    /// Every switch that the engine has.
    pub switches: Vec<SwitchState>,
    /// The CPU of each worker, or none where the scheduler decides.
    pub worker_cpus: Vec<Option<usize>>,
    /// Descriptors that the process may have open. With fewer than there are connections allowed,
    /// connections are shed when they run out.
    pub descriptors: u64,
}

impl SwitchState {
    fn new(advice: &Advice, chosen: Switches) -> Self {
        let on = chosen.has(advice.switch);
        let why_not = match (on, &*advice.why_not) {
            (true, _) => "",
            (false, "") => "as asked",
            (false, why) => why,
        };
        Self {
            name: advice.switch,
            on,
            what: advice.what.to_owned(),
            why_not: why_not.to_owned(),
        }
    }
}

impl Server {
    /// Opens the listeners and starts the workers in the calling thread's network namespace. When
    /// it returns, connections are accepted.
    ///
    /// # Errors
    ///
    /// Those of [`Server::open`] and [`Opened::start`].
    pub fn start(config: &ServeConfig) -> Result<Self, HttpError> {
        Self::open(config)?.start(config)
    }

    /// Opens all that an unprivileged user may not be able to, in the calling thread's network
    /// namespace, and starts no thread.
    ///
    /// # Errors
    ///
    /// An impossible option: [`HttpError::Invalid`], [`HttpError::NoSwitch`]; an engine that this kernel
    /// lacks; a directory that cannot be opened; an address that is taken; other refusals of the
    /// kernel.
    pub fn open(config: &ServeConfig) -> Result<Opened, HttpError> {
        let worker_cpus = worker_cpus(config)?;
        let workers = config.workers as u64;
        Ok(Opened {
            site: ServedSite::open(&config.content)?,
            descriptors: limit::allow_descriptors(
                config.limits.connections as u64
                    + workers * DESCRIPTORS_PER_WORKER
                    + DESCRIPTORS_OF_PROCESS,
            )?,
            listeners: listen(config, &worker_cpus)?,
            worker_cpus,
        })
    }

    /// Where it listens, with the port that was got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The features that it was granted.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// The counts of all workers, as of their last batches.
    pub fn counters(&self) -> ServeCounters {
        sum(&self.counters)
    }

    /// The connections that each worker has accepted, as of its last batch.
    pub fn accepted(&self) -> Vec<u64> {
        let workers = self.counters.iter();
        workers.map(|worker| worker.look().accepted).collect()
    }

    /// Ends gracefully: what has connected is accepted, and nothing more; every reply is the last
    /// of its connection; idle connections are closed; what is left after the drain time is reset.
    pub fn drain(&self) {
        self.phase.advance(ServeStage::Draining);
    }

    /// Ends at once: every connection is reset.
    pub fn stop(&self) {
        self.phase.advance(ServeStage::Stopped);
    }

    /// Whether every worker has ended.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until every worker has ended, and returns what was counted.
    ///
    /// # Errors
    ///
    /// That of the first worker that failed. The others were stopped then.
    pub fn wait(mut self) -> Result<ServeCounters, HttpError> {
        self.join()?;
        Ok(self.counters())
    }

    /// Each worker says that it is ready, or ends.
    fn wait_for_start(mut self, starts: &Receiver<()>) -> Result<Self, HttpError> {
        for _ in 0..self.threads.len() {
            if starts.recv().is_err() {
                self.stop();
                self.join()?;
                // A worker that ends without an error has not been ready only if it was stopped.
                break;
            }
        }
        Ok(self)
    }

    fn join(&mut self) -> Result<(), HttpError> {
        join(self.threads.drain(..))
    }
}

/// A server before it has threads.
#[derive(Debug)]
pub struct Opened {
    site: ServedSite,
    descriptors: u64,
    listeners: Vec<Arc<AcceptingSocket>>,
    worker_cpus: Vec<Option<usize>>,
}

impl Opened {
    /// Starts the workers, as the user that the calling thread is. When it returns, connections are
    /// accepted.
    ///
    /// # Errors
    ///
    /// A directory that this user may not search; what the kernel refuses.
    pub fn start(self, config: &ServeConfig) -> Result<Server, HttpError> {
        let Self {
            site,
            descriptors,
            listeners,
            worker_cpus,
        } = self;
        site.check()?;
        let site = Arc::new(site);
        let phase = Arc::new(ServePhase::new(config.workers)?);
        let peers = Arc::new(Peers::new(config.limits.connections));
        let counters: Arc<[Arc<ThreadCounts<ServeCounters>>]> =
            (0..config.workers).map(|_| Arc::default()).collect();
        let (started, starts) = sync_channel(config.workers);
        let mut server = Server {
            address: listeners[0].address(),
            granted: Granted {
                engine: config.engine.name,
                switches: (config.engine.switches)()
                    .iter()
                    .map(|advice| SwitchState::new(advice, config.switches))
                    .collect(),
                worker_cpus: worker_cpus.clone(),
                descriptors,
            },
            phase: Arc::clone(&phase),
            counters: Arc::clone(&counters),
            threads: Vec::with_capacity(config.workers),
        };
        for (index, cpu) in worker_cpus.into_iter().enumerate() {
            let worker = ServeWorker {
                index,
                listener: Arc::clone(&listeners[index % listeners.len()]),
                shared: listeners.len() < config.workers,
                switches: config.switches,
                close: config.close,
                limits: config.limits.clone(),
                drain_time: config.drain_time,
                site: Arc::clone(&site),
                counters: Arc::clone(&counters[index]),
                phase: Arc::clone(&phase),
                peers: Arc::clone(&peers),
                started: Some(SyncSender::clone(&started)),
            };
            server.threads.push(start(worker, config, cpu)?);
        }
        drop(started);
        server.wait_for_start(&starts)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // The caller drops the server without asking how it ended.
            let _ = thread.join();
        }
    }
}

/// Checks what can be checked before anything is opened, and gives each worker its CPU.
fn worker_cpus(config: &ServeConfig) -> Result<Vec<Option<usize>>, HttpError> {
    config.engine.check(config.switches)?;
    let reset = config.close == Close::Rst;
    config.engine.require(Task::Serve { reset })?;
    config.limits.check()?;
    let invalid = |why: String| HttpError::invalid("workers", config.workers, why);
    if config.workers == 0 {
        return Err(invalid("at least one thread must serve".to_owned()));
    }
    if !config.switches.has(Switch::Affinity) {
        let cpus = &config.cpus;
        let cpu = |worker| cpus.get(worker % cpus.len().max(1)).copied();
        return Ok((0..config.workers).map(cpu).collect());
    }
    let mut cpus = config.cpus.clone();
    if cpus.is_empty() {
        cpus = sched::affinity(sched::thread_id())?;
    }
    // Connections are steered to a worker by their CPU, so that two workers of one CPU would leave
    // one of them idle.
    let mut each_once = cpus.clone();
    each_once.sort_unstable();
    each_once.dedup();
    if each_once.len() < config.workers {
        let count = each_once.len();
        return Err(invalid(format!(
            "with affinity each worker has a CPU of its own, and there are {count}"
        )));
    }
    cpus.truncate(config.workers);
    if cpus
        .iter()
        .any(|cpu| cpus.iter().filter(|c| *c == cpu).count() > 1)
    {
        let why = "with affinity each worker has a CPU of its own, and one is named twice";
        return Err(HttpError::invalid("cpus", format!("{cpus:?}"), why));
    }
    Ok(cpus.into_iter().map(Some).collect())
}

/// One listener for all workers, or with `affinity` one for each.
fn listen(
    config: &ServeConfig,
    cpus: &[Option<usize>],
) -> Result<Vec<Arc<AcceptingSocket>>, HttpError> {
    let mut options = ListenOptions {
        // A silent connection is no better than an unfinished first line.
        defer_accept: config
            .switches
            .has(Switch::Events)
            .then_some(config.limits.head_time),
        late_acknowledgement: config.switches.has(Switch::Events),
        reset_on_close: config.close == Close::Rst,
        ..ListenOptions::default()
    };
    if !config.switches.has(Switch::Affinity) {
        return Ok(vec![Arc::new(AcceptingSocket::listen(
            &config.address,
            &options,
        )?)]);
    }
    // The kernel does not refuse a shared address: a second server would silently take a part of
    // the first one's connections.
    let address = tcp::free_address(&config.address)?;
    options.reuse_port = true;
    let mut listeners = Vec::with_capacity(cpus.len());
    for _ in cpus {
        listeners.push(Arc::new(AcceptingSocket::listen(&address, &options)?));
    }
    let cpus: Vec<usize> = cpus.iter().flatten().copied().collect();
    listeners[0].steer_by_cpu(&cpus)?;
    Ok(listeners)
}

/// Starts a worker's thread. If it fails, all workers are stopped.
fn start(
    worker: ServeWorker,
    config: &ServeConfig,
    cpu: Option<usize>,
) -> Result<ServeThread, HttpError> {
    let serve = config.engine.serve;
    let name = format!("mpps-serve-{}", worker.index);
    let others = OtherWorkers {
        phase: Arc::clone(&worker.phase),
        stop: true,
    };
    spawn(name, cpu, move || {
        // All of it comes along, and not only the field that is written.
        let mut others = others;
        let served = serve(worker);
        others.stop = served.is_err();
        served
    })
}

/// Stops the other workers if one fails or panics. Otherwise they would silently go on without it.
struct OtherWorkers {
    phase: Arc<ServePhase>,
    stop: bool,
}

impl Drop for OtherWorkers {
    fn drop(&mut self) {
        if self.stop {
            self.phase.advance(ServeStage::Stopped);
        }
    }
}

fn sum(counters: &[Arc<ThreadCounts<ServeCounters>>]) -> ServeCounters {
    let mut sum = ServeCounters::default();
    for worker in counters {
        sum += worker.look();
    }
    sum
}

#[cfg(test)]
mod tests;
