//! One way to receive, with its traffic and its CPUs: the run of every experiment in a lab.

use super::TakenBy;

use super::path::{Path, PathTaker};
use super::roles::{CpuLayout, Labs, distinct};
use super::rotation::Rotation;
use super::run::{Hosts, Purpose, Receivers, Senders, Taker, UdpRun, attach};
use super::sender::{LabSender, PORT, SenderTraffic, open, source_port};
use super::throttle::Throttled;
use crate::failure;
use crate::measure::document::counted;
use crate::measure::rounds::Case;
use anyhow::{Context, Result, anyhow, ensure};
use mpps_host::{Ledger, LockProbe};
use mpps_io::{Rx, Tx, Work};
use mpps_lab::{Lab, Tracking, address, steering};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Bytes of each datagram of the 2015 article.
pub(crate) const PAYLOAD_BYTES: usize = 32;
/// Messages of one `sendmmsg` if packets are paced or stamped: a larger batch would be a burst.
const BATCH: usize = 64;
/// The lowest rate of [`UdpTrial::load`].
const PPS_MIN: f64 = 1000.0;
/// How long the kernel leaves a queue to a receiver that polls it itself; napi.rst of the kernel's
/// documentation has 0.2 ms as its example.
const POLLING_DEFERRED: Duration = Duration::from_micros(200);

/// The sockets or rings that take the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrialSockets {
    /// This number of threads read one socket.
    Shared(usize),
    /// This number of threads have a socket each on one port; the kernel spreads flows by hash.
    ReusePort(usize),
    /// The same, but a packet goes to the socket of the CPU that received it.
    Steered(usize),
    /// This number of threads have a socket each on an address of its own.
    Addressed(usize),
}

impl TrialSockets {
    /// How many threads receive.
    pub(crate) fn threads(self) -> usize {
        match self {
            Self::Shared(n) | Self::ReusePort(n) | Self::Steered(n) | Self::Addressed(n) => n,
        }
    }
}

/// Whether the receiving host tracks connections (Documentation/networking/nf_conntrack-sysctl.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowTracking {
    /// Every packet's.
    On,
    /// Every packet's but those to the port, as the article's rule in the table raw had it.
    Off,
}

/// One way to receive, with its traffic and its CPUs.
#[derive(Debug, Clone)]
pub(crate) struct UdpTrial {
    pub(crate) layout: CpuLayout,
    pub(crate) path: Path,
    pub(crate) sockets: TrialSockets,
    pub(crate) sender: LabSender,
    /// The last byte of each address that is sent to, by a thread each.
    pub(crate) targets: &'static [u8],
    /// True if one thread sends to all targets in turn.
    pub(crate) in_turn: bool,
    /// Flows to each target, by source port.
    pub(crate) flows: usize,
    /// True if all sending threads have one source port, as the article's had.
    pub(crate) one_port: bool,
    pub(crate) payload_bytes: usize,
    /// Messages of one `sendmmsg`.
    pub(crate) batch: usize,
    /// Rate to offer; none is as fast as the sender can.
    pub(crate) pps: Option<f64>,
    /// The share to offer of the rate that it receives when it is flooded, which is then measured before
    /// each run.
    pub(crate) load: Option<f64>,
    /// Where its CPU time is measured, if not in the same layout.
    pub(crate) meter: Option<CpuLayout>,
    /// How the receiving host tracks the connections of its packets.
    pub(crate) tracking: Option<FlowTracking>,
    /// The rate limit of a receiver; none without a limit.
    pub(crate) throttle_pps: Option<f64>,
    /// The work of a receiver for each datagram.
    pub(crate) work: Work,
}

/// A trial and its runs.
pub(crate) type TrialRuns = Case<UdpTrial, UdpRun>;

/// `af_xdp, busy poll, 256 flows`.
impl fmt::Display for UdpTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.path, counted(self.flows, "flow"))
    }
}

impl UdpTrial {
    /// One receiver of one flow from one sender.
    pub(crate) fn new(layout: CpuLayout, path: Path, sender: LabSender) -> Self {
        Self {
            layout,
            path,
            sockets: TrialSockets::Addressed(1),
            sender,
            targets: &[1],
            in_turn: false,
            flows: 1,
            one_port: false,
            payload_bytes: PAYLOAD_BYTES,
            batch: BATCH,
            pps: None,
            load: None,
            meter: None,
            tracking: None,
            throttle_pps: None,
            work: Work::None,
        }
    }

    /// The same on another path.
    pub(crate) fn on(&self, path: &Path) -> Self {
        Self {
            path: *path,
            ..self.clone()
        }
    }

    /// The same at a rate below the sender's.
    pub(crate) fn paced(&self, pps: f64) -> Self {
        Self {
            pps: Some(pps),
            ..self.clone()
        }
    }

    /// The runs of one round. The first has one for exactness, so that an interrupted experiment
    /// has ledgers. A rule receives nothing that could be looked at for stamps.
    pub(crate) fn round(
        &self,
        labs: &Labs,
        (time, exact_time): (Duration, Duration),
        is_first: bool,
        purpose: Purpose<'_>,
    ) -> Result<UdpRun> {
        if let Some(share) = self.load {
            let kept = self.run(labs, time, Purpose::default())?.mpps;
            // A receiver that is flooded may receive nothing.
            let mut paced = self.paced((kept * 1e6 * share).max(PPS_MIN));
            paced.load = None;
            return paced.round(labs, (time, exact_time), is_first, purpose);
        }
        let mut run = self.run(labs, time, purpose)?;
        if let Some(layout) = self.meter.clone() {
            let meter = Self {
                layout,
                ..self.clone()
            };
            run.meter = Some(Box::new(meter.run(labs, time, Purpose::default())?));
        }
        if is_first && !self.path.is_rule() && !labs.interrupt.came() {
            let locks = match self.sockets {
                TrialSockets::Shared(_) => LockProbe::attach().ok(),
                _ => None,
            };
            let exact = self.run_exactly(labs, exact_time)?;
            let waits = locks.and_then(|probe| probe.waits().ok());
            run.lock_waits = waits.and_then(|all| {
                let own = self.applications().iter().map(|cpu| all.get(*cpu));
                let own = own.sum::<Option<u64>>().filter(|_| exact.delivered > 0)?;
                Some(own as f64 / exact.delivered as f64)
            });
            run.exact = Some(exact);
        }
        Ok(run)
    }

    /// The ledger of a run whose packets are stamped, and whose drops are counted by reason where a
    /// socket receives them: with all witnesses, and too slow for a rate.
    fn run_exactly(&self, labs: &Labs, time: Duration) -> Result<Ledger> {
        let probe = match self.path.taken_by() {
            TakenBy::Socket => attach().ok(),
            TakenBy::Ring | TakenBy::Rule => None,
        };
        let purpose = Purpose {
            stamped: true,
            probe: probe.as_ref(),
            ..Purpose::default()
        };
        let mut ledger = self.run(labs, time, purpose)?.ledger;
        let missed = probe.and_then(|probe| probe.overflowed().ok());
        if let Some(missed) = missed.filter(|missed| *missed > 0) {
            ledger.note(format!("the drop probe missed {missed} drops"));
        }
        Ok(ledger)
    }

    /// Sends for this time, and accounts for every packet.
    pub(crate) fn run(&self, labs: &Labs, time: Duration, purpose: Purpose<'_>) -> Result<UdpRun> {
        let mut purpose = purpose;
        purpose.rate_pps = self.pps;
        let lab = labs.of(&self.layout)?;
        let interrupt = &labs.interrupt;
        let hosts = Hosts { lab, interrupt };
        if lab.napi_threads().iter().any(|thread| thread.cpu.is_some()) {
            let queues = self.targets.iter();
            let queues = queues.filter_map(|to| lab.queue_of(address::v4(*to).into()));
            lab.share_weight(&queues.collect::<Vec<_>>())?;
        }
        let tracking = self.tracked(lab)?;
        let run = self.deferred(lab, || self.send(hosts, time, purpose))?;
        if let Some(tracking) = tracking {
            let (packets, wanted) = (tracking.packets()?, run.ledger.delivered);
            tracking.remove()?;
            ensure!(
                packets >= wanted,
                "the rule saw {packets} of {wanted} received packets"
            );
        }
        Ok(run)
    }

    fn send(&self, hosts: Hosts<'_>, time: Duration, purpose: Purpose<'_>) -> Result<UdpRun> {
        let lab = hosts.lab;
        match self.path.takes {
            PathTaker::Rule(rule) => {
                let installed = rule.install(lab, PORT)?;
                let taker = Taker::Rule(&installed, self.path.is_in_driver());
                let run = hosts.run(taker, self.open_tx(lab, purpose)?, time, purpose)?;
                let mode = rule.mode().to_owned();
                Ok(UdpRun { mode, ..run })
            }
            PathTaker::Backend { wait, .. } => {
                let taker = Taker::Program(Receivers {
                    rx: self.open_rx(lab)?,
                    cpus: self.layout.applications.clone(),
                    wait,
                    work: self.work,
                    is_shared: matches!(self.sockets, TrialSockets::Shared(_)),
                });
                let run = hosts.run(taker, self.open_tx(lab, purpose)?, time, purpose);
                run.with_context(|| self.path.name)
            }
        }
    }

    /// Does this while the kernel leaves the queue to a receiver that polls it itself.
    fn deferred<T>(&self, lab: &Lab, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.path.is_preferred() {
            return work();
        }
        lab.defer_polling(Some(POLLING_DEFERRED))?;
        let done = work();
        lab.defer_polling(None)?;
        done
    }

    /// The tracking of connections, if there is to be any, until it is dropped.
    fn tracked<'lab>(&self, lab: &'lab Lab) -> Result<Option<Tracking<'lab>>> {
        let track = |it| lab.track(PORT, it == FlowTracking::On);
        Ok(self.tracking.map(track).transpose()?)
    }

    /// Why it cannot run here, if it cannot.
    pub(crate) fn obstacle(&self, labs: &Labs) -> Option<String> {
        let tried = self.tried(labs);
        tried.err().map(|error| failure::explain(&error))
    }

    /// Opens the receiver and closes it.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub(crate) fn tried(&self, labs: &Labs) -> Result<()> {
        let lab = labs.of(&self.layout)?;
        self.tracked(lab)?;
        if let PathTaker::Rule(rule) = self.path.takes {
            let missing =
                |missing: mpps_lab::Unavailable| anyhow!("{}; {}", missing.why, missing.remedy);
            return rule.probe(lab).map_err(missing);
        }
        lab.receiver().run(|| self.path.probe())??;
        self.deferred(lab, || self.open_rx(lab).map(drop))
    }

    /// Opens the receivers inside the receiving host.
    fn open_rx(&self, lab: &Lab) -> Result<Vec<Box<dyn Rx>>> {
        lab.receiver().run(|| {
            let mut receivers: Vec<Box<dyn Rx>> = Vec::new();
            for thread in 0..self.sockets.threads() {
                let address = match self.sockets {
                    TrialSockets::Addressed(_) => {
                        address::v4(self.targets[thread % self.targets.len()])
                    }
                    _ => Ipv4Addr::UNSPECIFIED,
                };
                let mut config = self.path.config(SocketAddr::new(address.into(), PORT))?;
                config.reuse_port = matches!(
                    self.sockets,
                    TrialSockets::ReusePort(_) | TrialSockets::Steered(_)
                );
                let next = match (self.sockets, receivers.first()) {
                    (TrialSockets::Shared(_), Some(first)) => Ok(first.share()?),
                    _ => self.path.open(&config),
                };
                receivers.push(match self.throttle_pps {
                    Some(pps) => Box::new(Throttled::new(next?, pps)),
                    None => next?,
                });
            }
            if matches!(self.sockets, TrialSockets::Steered(_)) {
                receivers[0].steer_by_cpu(&self.steered_cpus())?;
            }
            Ok(receivers)
        })?
    }

    /// Opens the senders inside the sending host.
    fn open_tx(&self, lab: &Lab, purpose: Purpose<'_>) -> Result<Senders> {
        let cpus = self.sender_cpus().map_err(anyhow::Error::msg)?;
        let is_even = purpose.stamped || self.pps.is_some();
        let opened = |(nth, target): (usize, &u8)| {
            let traffic = SenderTraffic {
                target: address::v4(*target).into(),
                source_port: source_port(self.flow_count(), self.nth_flow(nth))?,
                flows: self.flows,
                payload_bytes: self.payload_bytes,
                train: self.sender.train().unwrap_or(1),
                batch: self.batch.min(if is_even { BATCH } else { self.batch }),
            };
            open(lab, self.sender.backend(), &traffic)
        };
        let opened = self.targets.iter().enumerate().map(opened);
        let opened = opened.collect::<Result<Vec<_>>>()?;
        if self.in_turn && opened.len() > 1 {
            let one: Box<dyn Tx> = Box::new(Rotation::new(opened)?);
            return Ok(vec![(one, cpus[0])]);
        }
        Ok(opened.into_iter().zip(cpus).collect())
    }

    /// The first flow of a sending thread, which no other thread of the trial has unless the trial
    /// is about that.
    pub(crate) fn nth_flow(&self, thread: usize) -> usize {
        match self.one_port {
            true => 0,
            false => thread * self.flows,
        }
    }

    /// The number of flows. The kernel distinguishes them by source port.
    pub(crate) fn flow_count(&self) -> usize {
        match self.one_port {
            true => 1,
            false => self.targets.len() * self.flows,
        }
    }

    /// The CPU of each sending thread.
    ///
    /// # Errors
    /// Why the sender cannot reach the queues.
    pub(crate) fn sender_cpus(&self) -> Result<Vec<usize>, String> {
        self.sender.cpus(&self.layout, self.targets)
    }

    /// The CPUs of the sockets that packets are steered to, one each: those of the queues.
    pub(crate) fn steered_cpus(&self) -> Vec<usize> {
        distinct(self.layout.queues.clone())
    }

    /// The queues that its packets take.
    pub(crate) fn queues(&self) -> Vec<usize> {
        let queues = self.layout.queue_count();
        let queue = |to: &u8| usize::from(steering::queue(address::v4(*to).into(), queues));
        distinct(self.targets.iter().map(queue).collect())
    }

    /// The CPUs that its receiving threads use; none if the scheduler chooses, or if no thread
    /// receives.
    pub(crate) fn applications(&self) -> &[usize] {
        let all = &self.layout.applications;
        let threads = match self.path.is_rule() {
            true => 0,
            false => self.sockets.threads(),
        };
        &all[..all.len().min(threads)]
    }
}
