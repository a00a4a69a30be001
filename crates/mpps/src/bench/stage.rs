//! A lab with somebody on each CPU, on which paths are run.

use super::path::{Napi, Path, Takes};
use super::sender::{PORT, Sender};
use crate::failure;
use crate::signal::Interrupt;
use anyhow::{Context, Result};
use mpps_host::Topology;
use mpps_io::backend::{self, Support};
use mpps_io::{Rx, RxConfig};
use mpps_lab::{Delivery, Lab, LabConfig};
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long the kernel leaves a queue to a receiver that polls it itself; napi.rst of the kernel's
/// documentation has 0.2 ms as its example.
const POLLING_DEFERRED: Duration = Duration::from_micros(200);

/// Who runs where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpus {
    /// The generator's CPU.
    pub(crate) generator: usize,
    /// The application's.
    pub(crate) application: usize,
}

impl Cpus {
    /// The first two usable CPUs that share no core, if there are such; on a machine with one CPU
    /// everybody shares it.
    pub(crate) fn choose(topology: &Topology) -> Self {
        let usable = topology.usable();
        let first = usable.first().copied().unwrap_or(0);
        let is_sibling = |cpu: &usize| {
            let first = topology.cpu(first);
            first.is_some_and(|first| first.siblings.contains(cpu))
        };
        let other = usable.iter().copied().find(|cpu| !is_sibling(cpu));
        let application = other.or(usable.get(1).copied()).unwrap_or(first);
        Self {
            generator: first,
            application,
        }
    }
}

/// A sending thread: its CPU, and the receive queues that its packets are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Feed {
    pub(crate) cpu: usize,
    pub(crate) queues: Vec<u16>,
}

/// A lab whose receive queues have their CPUs, with the programs' CPUs.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) lab: Lab,
    pub(crate) cpus: Cpus,
    pub(crate) napi: Napi,
    pub(crate) sender: &'a Sender,
    pub(crate) interrupt: &'a Interrupt,
    /// Who sends.
    pub(crate) feeds: Vec<Feed>,
    /// True while the queue is left to a receiver that polls.
    deferred: Cell<bool>,
}

impl<'a> Stage<'a> {
    /// Makes the two hosts, with one receive queue.
    pub(crate) fn new(
        cpus: Cpus,
        napi: Napi,
        sender: &'a Sender,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let (queue_cpu, delivery) = match napi {
            Napi::WithGenerator => (cpus.generator, Delivery::SoftInterrupt),
            Napi::Metered => (cpus.generator, Delivery::ThreadedNapi),
            Napi::WithApplication => (cpus.application, Delivery::ThreadedNapi),
        };
        let config = LabConfig {
            queues: 1,
            queue_cpus: vec![queue_cpu],
            delivery,
            ..LabConfig::default()
        };
        Ok(Self {
            lab: Lab::new(&config)?,
            cpus,
            napi,
            sender,
            interrupt,
            feeds: vec![Feed {
                cpu: cpus.generator,
                queues: vec![0],
            }],
            deferred: Cell::new(false),
        })
    }

    /// Makes the two hosts, with a receive queue for each of these CPUs, served by a kernel thread
    /// there. Only rules run on it: there is no CPU for an application.
    pub(crate) fn spread(
        feeds: Vec<Feed>,
        queue_cpus: &[usize],
        sender: &'a Sender,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let generator = feeds.first().context("nobody sends")?.cpu;
        let config = LabConfig {
            queues: u16::try_from(queue_cpus.len()).context("too many queues")?,
            queue_cpus: queue_cpus.to_vec(),
            delivery: Delivery::ThreadedNapi,
            ..LabConfig::default()
        };
        Ok(Self {
            lab: Lab::new(&config)?,
            cpus: Cpus {
                generator,
                application: generator,
            },
            napi: Napi::Metered,
            sender,
            interrupt,
            feeds,
            deferred: Cell::new(false),
        })
    }

    /// Where the traffic goes.
    pub(crate) fn target(&self) -> Result<IpAddr> {
        self.target_of(0)
    }

    /// An address whose packets take this queue, as far as addresses decide that.
    pub(crate) fn target_of(&self, queue: u16) -> Result<IpAddr> {
        let mut addresses = self.lab.receiver().v4().iter().copied().map(IpAddr::from);
        let takes = |found: Option<u16>| found.is_none_or(|found| found == queue);
        let target = addresses.find(|address| takes(self.lab.queue_of(*address)));
        target.with_context(|| format!("the receiving host has no address of queue {queue}"))
    }

    /// Where NAPI runs.
    pub(crate) fn napi_place(&self) -> String {
        let Cpus {
            generator,
            application,
        } = self.cpus;
        match self.napi {
            Napi::WithGenerator => format!("generator's CPU {generator}, soft interrupt"),
            Napi::Metered => format!("generator's CPU {generator}, own thread"),
            Napi::WithApplication => format!("application's CPU {application}, own thread"),
        }
    }

    /// Why this path cannot run here, if it cannot.
    pub(crate) fn obstacle(&self, path: &Path) -> Result<Option<String>> {
        let obstacle = match path.takes {
            Takes::Rule(rule) => rule
                .probe(&self.lab)
                .err()
                .map(|missing| format!("{}; {}", missing.why, missing.remedy)),
            Takes::Backend { .. } => {
                let backend = backend::find(path.name)?;
                match self.lab.receiver().run(backend.probe)? {
                    Support::Yes => {
                        let tried = self.prepare(path).and_then(|()| self.open_rx(path));
                        tried.err().map(|error| failure::explain(&error))
                    }
                    Support::No { why, remedy } => Some(format!("{why}; {remedy}")),
                }
            }
        };
        Ok(obstacle)
    }

    /// Opens the receiver inside the receiving host.
    pub(crate) fn open_rx(&self, path: &Path) -> Result<Box<dyn Rx>> {
        let Takes::Backend { configure, .. } = path.takes else {
            anyhow::bail!("{}: a rule receives nothing", path.name);
        };
        let mut config = RxConfig::new(SocketAddr::new(self.target()?, PORT));
        configure(&mut config);
        let backend = backend::find(path.name)?;
        let opened = self.lab.receiver().run(|| backend.open_rx(&config))?;
        opened.with_context(|| format!("cannot receive by {}", path.name))
    }

    /// Leaves the queue to a receiver that polls it itself, and takes it back for one that does not.
    pub(crate) fn prepare(&self, path: &Path) -> Result<()> {
        // What was never set is not put back: an ordinary user may do neither.
        if path.is_preferred() {
            self.lab.defer_polling(Some(POLLING_DEFERRED))?;
            self.deferred.set(true);
        } else if self.deferred.replace(false) {
            self.lab.defer_polling(None)?;
        }
        Ok(())
    }
}
