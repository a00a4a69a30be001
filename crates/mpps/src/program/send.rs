//! `mpps send`: UDP as fast as asked or possible.

mod args;

pub(crate) use args::SendArgs;

use super::lines::{OutputLines, require, until_stopped};
use super::meter::{Interval, Meter, rate_line, scaled};
use crate::failure::{CannotSend, answer_remedy};
use crate::machine::{boot_id, command_line, kernel_release, snapshot};
use crate::measure::outcome::CommandEnding;
use crate::signal::EndSignal;
use crate::udp::account;
use crate::udp::run::Span;
use crate::udp::traffic::{SEND_SCHEMA, SendInterval, SendThread, SendTotal, document};
use anyhow::{Context, Result};
use mpps_host::{Quota, Snapshot, SocketBuffer};
use mpps_io::{
    Backend, FinishedWorker, Layer, Stop, Tx, TxCaps, TxConfig, TxReport, TxTask, TxWorker,
};
use mpps_os::clock::monotonic_ns;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::route::{self, RouteKind};
use mpps_os::netlink::{link, neighbour};
use mpps_report::Quantity;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long what is accepted may take to leave, and between two looks at whether it does.
const DEPARTURE_WAIT: Duration = Duration::from_secs(2);
const DEPARTURE_LOOK: Duration = Duration::from_millis(50);

/// How often the clock is read before the start: it can be set meanwhile.
const START_LOOK: Duration = Duration::from_millis(100);

/// How long the kernel may ask for a neighbour.
const ANSWER_WAIT: Duration = Duration::from_secs(4);

/// A sender that can be run.
#[derive(Debug)]
pub(crate) struct SendPlan {
    pub(crate) backend: &'static Backend,
    /// The configuration of each thread. All are alike except for target and queue.
    pub(crate) configs: Vec<TxConfig>,
    /// CPUs of the threads, in turn; empty leaves them to the scheduler.
    pub(crate) pin: Vec<usize>,
    pub(crate) lines: OutputLines,
    /// The arguments as given, for those that need no check.
    pub(crate) asked: SendArgs,
}

impl SendPlan {
    /// Sends until the count, the time or Ctrl-C.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        let interrupt = EndSignal::listen()?;
        // A host that does not answer ARP is waited for.
        let senders = interrupt.ends_during(|| self.open())?;
        if let Some(start) = self.asked.start_at {
            self.await_start(start, &interrupt)?;
        }
        // Opening may reset a card, and its counters with it.
        let (before, quotas) = (snapshot()?, Quota::own());
        let running = SendWorkers::start(self, senders)?;
        // A closed pipe ends the run like Ctrl-C does, but the workers must be stopped first.
        let introduced = running.introduce();
        let watched = introduced.and_then(|()| running.watch(&interrupt));
        running.stop.stop();
        let (mut total, error) = running.finish(&before, &interrupt);
        total.pps_median = watched?.pps_median(total.sent, total.active_seconds);
        let quota = Quota::worst_between(&quotas, &Quota::own());
        let blocks = document::sent(&total, self.asked.rate, quota.as_ref());
        self.lines.tell(&blocks)?;
        self.lines.object(&total)?;
        let targets: BTreeSet<_> = self
            .configs
            .iter()
            .map(|config| config.target.ip())
            .collect();
        let none_left = total.sent == 0 || total.unanswered.len() == targets.len();
        match error {
            Some(error) => Err(self.explain(error)),
            None if total.offered > 0 && none_left => Ok(CommandEnding::Found),
            None => Ok(CommandEnding::Fine),
        }
    }

    /// Waits until this host's clock has this time.
    fn await_start(&self, start: SystemTime, interrupt: &EndSignal) -> Result<()> {
        let left = start.duration_since(SystemTime::now());
        let left = left.map_err(|past| {
            let ago = Quantity::Seconds(past.duration().as_secs_f64());
            anyhow::anyhow!(
                "--start-at: that was {ago} ago, by this host's clock; choose a later time"
            )
        })?;
        let left = Quantity::Seconds(left.as_secs_f64());
        self.lines.say(&format!("starting in {left}"))?;
        interrupt.ends_during(|| {
            while let Ok(left) = start.duration_since(SystemTime::now()) {
                thread::sleep(left.min(START_LOOK));
            }
        });
        Ok(())
    }

    fn threads(&self) -> usize {
        self.configs.len()
    }

    /// The configuration that all threads share.
    fn common(&self) -> &TxConfig {
        &self.configs[0]
    }

    fn target(&self, thread: usize) -> SocketAddr {
        self.configs[thread].target
    }

    /// The sender's number in the stamps of a thread.
    fn stamp(&self, thread: usize) -> Option<u8> {
        let number = self.asked.sender.saturating_add(thread as u8);
        self.asked.stamp.then_some(number)
    }

    fn cpu(&self, thread: usize) -> Option<usize> {
        self.pin.get(thread.checked_rem(self.pin.len())?).copied()
    }

    /// Opens a sender for each thread, all before the first one sends: an error leaves nothing half
    /// done.
    fn open(&self) -> Result<Vec<Box<dyn Tx>>> {
        let senders = self.configs.iter().map(|config| {
            let to = config.target;
            let opened = self.backend.open_tx(config);
            opened.context(CannotSend(to))
        });
        let senders = senders.collect::<Result<Vec<_>>>()?;
        for tx in &senders {
            require(self.backend, &tx.caps().mode, &self.asked.ring.require)?;
        }
        Ok(senders)
    }

    /// The interfaces that packets leave by, each with the kind of route; none for a target without.
    fn ways(&self) -> BTreeSet<Option<(u32, bool)>> {
        let named = self.common().ring.interface.as_deref();
        let named = named.and_then(|name| link::index(name).ok());
        let ways = self.configs.iter().map(|config| {
            let route = route::find(config.target.ip(), None, named).ok()?;
            Some((route.interface_index, route.kind == RouteKind::Unicast))
        });
        ways.collect()
    }

    /// The next hosts on the way to the targets that do not answer. Waits while the kernel still asks,
    /// which it does three times, a second apart (`mcast_solicit` and `retrans_time_ms`, arp(7)). After a
    /// signal, those that have not answered so far.
    fn unanswered(&self, interrupt: &EndSignal) -> Vec<String> {
        let named = self.common().ring.interface.as_deref();
        let named = named.and_then(|name| link::index(name).ok());
        let next = self.configs.iter().filter_map(|config| {
            let route = route::find(config.target.ip(), None, named).ok()?;
            let next = route.gateway.unwrap_or(config.target.ip());
            (route.kind == RouteKind::Unicast).then_some((route.interface_index, next))
        });
        let next: BTreeSet<_> = next.collect();
        let deadline = Instant::now() + ANSWER_WAIT;
        loop {
            let mut silent = neighbour::unanswered().unwrap_or_default();
            silent.retain(|(host, _)| next.contains(host));
            let is_asked = silent.iter().any(|(_, is_asked)| *is_asked);
            if !is_asked || interrupt.came() || Instant::now() >= deadline {
                let hosts = silent.into_iter().map(|((_, host), _)| host.to_string());
                return hosts.collect();
            }
            thread::sleep(DEPARTURE_LOOK);
        }
    }

    /// The interface that all packets leave by, if it is a single one and they go to another host
    /// only. Then its counters count each packet as one frame.
    fn interface(&self) -> Option<String> {
        let ways = self.ways();
        let (index, is_unicast) = ways.first().copied().flatten()?;
        let link = link::find(index).ok().flatten()?;
        (is_unicast && ways.len() == 1).then_some(link.name)
    }

    /// The part of a total that falls to one thread: the first ones take the remainder.
    fn part(&self, total: u64, thread: usize) -> u64 {
        let threads = self.threads() as u64;
        total / threads + u64::from((thread as u64) < total % threads)
    }

    /// Explains an error that makes every send fail, with a remedy.
    fn explain(&self, error: io::Error) -> anyhow::Error {
        let config = self.common();
        let (size, gso) = (config.payload_bytes, config.gso_segments);
        match error.raw_os_error() {
            // EMSGSIZE and EINVAL of include/uapi/asm-generic/errno*.h.
            Some(22 | 90) if gso > 1 => anyhow::anyhow!(
                "--gso {gso} with --size {size}: the kernel refuses such trains ({error}); a segment \
                 must fit into the path's MTU, and kernels before 6.9 take 64 segments"
            ),
            Some(90) => anyhow::anyhow!("--size {size}: too large for the path ({error})"),
            _ => match answer_remedy(&error.to_string()) {
                Some(remedy) => anyhow::anyhow!("sending failed: {error}; {remedy}"),
                None => anyhow::Error::new(error).context("sending failed"),
            },
        }
    }
}

/// The workers of a run.
struct SendWorkers<'a> {
    plan: &'a SendPlan,
    workers: Vec<TxWorker>,
    stop: Stop,
    began_ns: u64,
}

impl<'a> SendWorkers<'a> {
    fn start(plan: &'a SendPlan, senders: Vec<Box<dyn Tx>>) -> Result<Self> {
        let stop = Stop::new();
        let began_ns = monotonic_ns();
        let task = |(thread, tx): (usize, Box<dyn Tx>)| TxTask {
            tx,
            cpu: plan.cpu(thread),
            stamp: plan.stamp(thread),
            to_group: plan.target(thread).ip().is_multicast(),
            end_markers: true,
            rate_pps: plan.asked.rate.map(|rate| rate / plan.threads() as f64),
            count: plan.asked.count.map(|count| plan.part(count, thread)),
            duration: plan.asked.duration,
            stop: stop.clone(),
        };
        let workers = TxWorker::spawn_all(senders.into_iter().enumerate().map(task), &stop)
            .context("cannot start a sending thread")?;
        Ok(Self {
            plan,
            workers,
            stop,
            began_ns,
        })
    }

    /// The capabilities granted to the first sender. Nothing starts without it.
    fn caps(&self) -> &TxCaps {
        self.workers[0].caps()
    }

    /// Says what is sent where, and what send buffer it is done with.
    fn introduce(&self) -> Result<()> {
        let lines = self.plan.lines;
        let size = self.plan.common().payload_bytes;
        for (thread, worker) in self.workers.iter().enumerate() {
            let caps = worker.caps();
            let sources = match caps.local_addresses.as_slice() {
                [only] => only.to_string(),
                [first, .., last] => {
                    let (address, first, last) = (first.ip(), first.port(), last.port());
                    format!("{address}, ports {first} to {last},")
                }
                [] => "nowhere".to_owned(),
            };
            let to = self.plan.target(thread);
            let name = caps.backend;
            lines.say(&format!(
                "sending {size} bytes from {sources} to {to} by {name}"
            ))?;
        }
        let caps = self.caps();
        lines.say(&format!("mode: {}", caps.mode))?;
        if let Some(got) = caps.send_buffer_bytes {
            // The kernel books twice what it grants.
            let asked = self.plan.common().send_buffer_bytes.unwrap_or(got);
            let buffer = SocketBuffer::send(asked, got * 2)?;
            lines.say(&buffer.explanation())?;
        }
        Ok(())
    }

    /// Prints a line a second until the workers are done or a signal asks to stop.
    fn watch(&self, interrupt: &EndSignal) -> Result<Meter<3>> {
        let size = self.plan.common().payload_bytes as u64;
        let mut meter = Meter::new(self.began_ns, [0; 3]);
        meter.align(self.began_ns);
        until_stopped(interrupt, meter.ends_ns(), || {
            let finished = self.workers.iter().all(TxWorker::is_finished);
            let progress = self.workers.iter().map(TxWorker::progress);
            let [sent, refused] = progress.fold([0, 0], |[sent, refused], one| {
                [sent + one.accepted, refused + one.refused]
            });
            if let Some(interval) = meter.tick(monotonic_ns(), [sent, sent * size, refused]) {
                self.print(&interval)?;
            }
            Ok((!finished).then(|| meter.ends_ns()))
        })?;
        Ok(meter)
    }

    fn print(&self, interval: &Interval<3>) -> Result<()> {
        let lines = self.plan.lines;
        let [sent, _, refused] = interval.counts;
        let [pps, bytes, refused_pps] = interval.rates();
        lines.object(&SendInterval {
            schema: SEND_SCHEMA.to_owned(),
            kind: "interval".to_owned(),
            seconds: interval.seconds,
            offered: sent + refused,
            sent,
            refused,
            pps,
        })?;
        let line = rate_line(pps, bytes, self.plan.asked.article);
        lines.say(&match refused {
            0 => line,
            _ => {
                let share = Quantity::Share(refused as f64 / (sent + refused) as f64);
                format!("{line}  refused {share} ({}/s)", scaled(refused_pps))
            }
        })
    }

    /// Waits for the workers and adds up what they did.
    fn finish(self, before: &Snapshot, interrupt: &EndSignal) -> (SendTotal, Option<io::Error>) {
        let config = self.plan.common();
        let caps = self.caps().clone();
        let ended = self.workers.into_iter().map(TxWorker::join_open);
        let (mut reports, senders): (Vec<TxReport>, Vec<FinishedWorker>) = ended.unzip();
        let ways = self.plan.ways();
        ways.iter()
            .flatten()
            .for_each(|(index, _)| await_departure(*index));
        // The totals are worth more than the host's counters: without them they say `null`.
        let after = snapshot().ok();
        // Closing may reset a card, as opening does.
        drop(senders);
        let refused_by = account::refused(reports.iter().map(|report| &report.refused));
        let end_refused_by = account::refused(reports.iter().map(|report| &report.end_refused));
        let threads = reports
            .iter()
            .enumerate()
            .map(|(thread, report)| SendThread {
                cpu: self.plan.cpu(thread),
                target: self.plan.target(thread).to_string(),
                sender: self.plan.stamp(thread),
                run: self.plan.asked.stamp.then_some(report.run),
                offered: report.offered(),
                sent: report.accepted,
                cpu_ns_per_packet: report.cpu_ns as f64 / report.offered().max(1) as f64,
            });
        let total = SendTotal {
            schema: SEND_SCHEMA.to_owned(),
            kind: "total".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command_line(),
            kernel: kernel_release(),
            boot_id: boot_id(),
            namespace: NetNamespace::current_cookie().ok(),
            run_id: self.plan.asked.run.clone(),
            backend: self.plan.backend.name.to_owned(),
            offered: reports.iter().map(TxReport::offered).sum(),
            sent: reports.iter().map(|report| report.accepted).sum(),
            refused: refused_by.values().sum(),
            refused_by,
            end_markers: reports.iter().map(|report| report.end_markers).sum(),
            end_refused_by,
            active_seconds: Span::of(&reports).seconds(),
            pps_median: 0.0,
            size: config.payload_bytes,
            gso: config.gso_segments,
            send_buffer_bytes: caps.send_buffer_bytes,
            departure: account::departure(&caps),
            interface: self.plan.interface(),
            unanswered: match caps.layer {
                Layer::Payload => self.plan.unanswered(interrupt),
                Layer::Frame => Vec::new(),
            },
            mode: caps.mode.summary,
            blocked: reports.iter().map(|report| report.blocked).sum(),
            threads: threads.collect(),
            host: after.map(|after| after.since(before)),
        };
        let error = reports.iter_mut().find_map(|report| report.error.take());
        (total, error)
    }
}

/// Waits until the interface sends no more: what waits in front of it is in no counter yet. Other
/// programs may keep it busy, which ends the waiting after a while.
fn await_departure(interface_index: u32) {
    let sent = || {
        let statistics = link::statistics(interface_index);
        statistics.ok().map(|statistics| statistics.tx_packets)
    };
    let deadline = Instant::now() + DEPARTURE_WAIT;
    let mut last = None;
    while Instant::now() < deadline {
        let now = sent();
        if now == last {
            return;
        }
        last = now;
        thread::sleep(DEPARTURE_LOOK);
    }
}
