//! A lab with a task on each CPU, which runs the paths.

use super::result::BenchRow;
use super::sender::PathSender;
use crate::failure;
use crate::signal::EndSignal;
use crate::udp::path::{Path, PathTaker};
use crate::udp::roles::Cpus;
use crate::udp::sender::PORT;
use crate::udp::throttle::Throttled;
use anyhow::{Context, Result};
use mpps_io::Rx;
use mpps_io::backend::{self, Support};
use mpps_lab::{Delivery, Lab, LabConfig};
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long the kernel leaves a queue to a receiver that polls it itself; napi.rst of the kernel's
/// documentation has 0.2 ms as its example.
const POLLING_DEFERRED: Duration = Duration::from_micros(200);

/// Where NAPI runs: which CPU takes packets from the receive ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NapiPlace {
    /// On the CPU that also generates the traffic, in its soft interrupts: the application has its
    /// CPU to itself.
    WithGenerator,
    /// On the same CPU in a thread of its own, whose time the scheduler knows. It competes with the
    /// generator, so this is for CPU time and not for rates.
    Metered,
    /// On the application's CPU, in a thread: they share it, as on a machine with one CPU per queue.
    WithApplication,
}

/// A sending thread: its CPU, and the receive queues that its packets are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueFeed {
    pub(crate) cpu: usize,
    pub(crate) queues: Vec<u16>,
}

/// A lab whose receive queues have their CPUs, with the programs' CPUs.
#[derive(Debug)]
pub(crate) struct PathLab<'a> {
    pub(crate) lab: Lab,
    pub(crate) cpus: Cpus,
    pub(crate) napi: NapiPlace,
    pub(crate) sender: &'a PathSender,
    pub(crate) interrupt: &'a EndSignal,
    pub(crate) feeds: Vec<QueueFeed>,
    /// The rate limit of a receiver; none without a limit.
    pub(crate) throttle_pps: Option<f64>,
    /// True while the queue is left to a receiver that polls.
    deferred: Cell<bool>,
}

impl<'a> PathLab<'a> {
    /// Makes the two hosts, with one receive queue.
    pub(crate) fn new(
        cpus: Cpus,
        napi: NapiPlace,
        sender: &'a PathSender,
        interrupt: &'a EndSignal,
    ) -> Result<Self> {
        let (queue_cpu, delivery) = match napi {
            NapiPlace::WithGenerator => (cpus.generator, Delivery::SoftInterrupt),
            NapiPlace::Metered => (cpus.generator, Delivery::ThreadedNapi),
            NapiPlace::WithApplication => (cpus.application, Delivery::ThreadedNapi),
        };
        let feeds = vec![QueueFeed {
            cpu: cpus.generator,
            queues: vec![0],
        }];
        let config = LabConfig {
            queues: 1,
            queue_cpus: vec![queue_cpu],
            delivery,
            ..LabConfig::default()
        };
        Self::of(&config, cpus, napi, feeds, sender, interrupt)
    }

    fn of(
        config: &LabConfig,
        cpus: Cpus,
        napi: NapiPlace,
        feeds: Vec<QueueFeed>,
        sender: &'a PathSender,
        interrupt: &'a EndSignal,
    ) -> Result<Self> {
        Ok(Self {
            lab: Lab::new(config)?,
            cpus,
            napi,
            sender,
            interrupt,
            feeds,
            throttle_pps: None,
            deferred: Cell::new(false),
        })
    }

    /// Makes the two hosts, with a receive queue for each of these CPUs, served by a kernel thread
    /// there. Only rules run on it: there is no CPU for an application.
    pub(crate) fn spread(
        feeds: Vec<QueueFeed>,
        queue_cpus: &[usize],
        sender: &'a PathSender,
        interrupt: &'a EndSignal,
    ) -> Result<Self> {
        let generator = feeds.first().context("no sender")?.cpu;
        let cpus = Cpus {
            generator,
            application: generator,
        };
        let config = LabConfig {
            queues: u16::try_from(queue_cpus.len()).context("too many queues")?,
            queue_cpus: queue_cpus.to_vec(),
            delivery: Delivery::ThreadedNapi,
            ..LabConfig::default()
        };
        Self::of(&config, cpus, NapiPlace::Metered, feeds, sender, interrupt)
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
            _ if self.lab.napi_threads().is_empty() => {
                format!("generator's CPU {generator}, soft interrupt")
            }
            NapiPlace::WithGenerator => format!("generator's CPU {generator}, soft interrupt"),
            NapiPlace::Metered => format!("generator's CPU {generator}, own thread"),
            NapiPlace::WithApplication => format!("application's CPU {application}, own thread"),
        }
    }

    /// Why NAPI does not run where this stage is to have it, if it does not.
    pub(crate) fn misplaced(&self) -> Option<String> {
        let is_one_cpu = self.cpus.generator == self.cpus.application;
        if self.napi == NapiPlace::WithGenerator || is_one_cpu {
            return None;
        }
        self.lab.unplaced().map(str::to_owned)
    }

    /// Why this path cannot run here, if it cannot.
    pub(crate) fn obstacle(&self, path: &Path) -> Option<String> {
        if let PathTaker::Rule(rule) = path.takes {
            let missing = rule.probe(&self.lab).err()?;
            return Some(format!("{}; {}", missing.why, missing.remedy));
        }
        self.try_out(path)
            .err()
            .map(|error| failure::explain(&error))
    }

    /// A row of this path without figures, with the reason why it did not run, if any.
    pub(crate) fn row(&self, path: &Path, skipped: Option<String>) -> BenchRow {
        BenchRow {
            shares_cpu: self.napi == NapiPlace::WithApplication,
            ..BenchRow::new(path, self.napi_place(), skipped)
        }
    }

    /// Opens the path's receiver and closes it.
    fn try_out(&self, path: &Path) -> Result<()> {
        let backend = backend::find(path.name)?;
        if let Support::No { why, remedy } = self.lab.receiver().run(backend.probe)? {
            anyhow::bail!("{why}; {remedy}");
        }
        self.prepare(path)?;
        self.open_rx(path).map(drop)
    }

    /// Opens the receiver inside the receiving host.
    pub(crate) fn open_rx(&self, path: &Path) -> Result<Box<dyn Rx>> {
        let config = path.config(SocketAddr::new(self.target_of(0)?, PORT))?;
        let backend = backend::find(path.name)?;
        let opened = self.lab.receiver().run(|| backend.open_rx(&config))?;
        let rx = opened.with_context(|| format!("cannot receive by {}", path.name))?;
        Ok(match self.throttle_pps {
            Some(pps) => Box::new(Throttled::new(rx, pps)),
            None => rx,
        })
    }

    /// Leaves the queue to a receiver that polls it itself. Takes it back for any other receiver.
    pub(crate) fn prepare(&self, path: &Path) -> Result<()> {
        // A setting that was never made is not undone: an ordinary user may do neither.
        if path.is_preferred() {
            self.lab.defer_polling(Some(POLLING_DEFERRED))?;
            self.deferred.set(true);
        } else if self.deferred.replace(false) {
            self.lab.defer_polling(None)?;
        }
        Ok(())
    }
}
