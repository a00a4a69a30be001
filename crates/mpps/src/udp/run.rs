//! One run between the two hosts of a lab: receivers or a rule, then senders, until all have come
//! to rest, and the counters of both hosts around it.

use super::account::{self, ReceiverCounts, SenderCounts, account};
use super::screens::ScreenWatch;
use super::sender::PORT;
use super::waited::Waited;
use crate::measure::samples::per_second;
use crate::signal::EndSignal;
use anyhow::{Context, Result};
use mpps_host::counters::drop_probe::{DropFilter, DropProbe, DropProbeError};
use mpps_host::{
    CpuBusy, Delta, DropCount, Ledger, PacketRoute, ProcStat, QueuePackets, Quota, Snapshot,
};
use mpps_io::{
    Inspect, Property, Rx, RxCaps, RxReport, RxTask, RxWorker, Stop, Tx, TxReport, TxTask,
    TxWorker, Wait, Work,
};
use mpps_lab::{Installed, Lab, LabHost};
use mpps_os::sched::{self, Schedstat};
use std::thread;
use std::time::{Duration, Instant};

/// How often workers are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(10);
/// The longest wait for the receivers to come to rest.
const PATIENCE: Duration = Duration::from_secs(5);

/// The purpose of a run. By default it measures the rate: no probe, no stamps, at full speed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Purpose<'a> {
    /// Rate to offer; none is as fast as the sender can.
    pub(crate) rate_pps: Option<f64>,
    /// Stamp every packet and look at each: exactness, not rate.
    pub(crate) stamped: bool,
    /// Count drops by reason.
    pub(crate) probe: Option<&'a DropProbe>,
    /// Show what the receiving host does, each second.
    pub(crate) has_screens: bool,
}

/// Threads that receive.
pub(crate) struct Receivers {
    pub(crate) rx: Vec<Box<dyn Rx>>,
    /// Their CPUs, taken in turn; empty leaves them to the scheduler.
    pub(crate) cpus: Vec<usize>,
    pub(crate) wait: Wait,
    pub(crate) work: Work,
    /// True if all read one socket.
    pub(crate) is_shared: bool,
}

/// The program or the rule that takes the packets of a run.
pub(crate) enum Taker<'a> {
    /// A program.
    Program(Receivers),
    /// A rule that drops and counts them; true if it runs in the driver.
    Rule(&'a Installed<'a>, bool),
}

impl Taker<'_> {
    /// The granted capabilities, and true if an XDP program runs in the driver.
    fn granted(&self) -> (Option<RxCaps>, bool) {
        match self {
            Self::Rule(_, in_driver) => (None, *in_driver),
            Self::Program(receivers) => {
                let caps = receivers.rx.first().map(|rx| rx.caps().clone());
                let native = |caps: &RxCaps| caps.mode.properties.contains(&Property::Native);
                let in_driver = caps.as_ref().is_some_and(native);
                (caps, in_driver)
            }
        }
    }
}

/// Threads that send, with the CPU of each.
pub(crate) type Senders = Vec<(Box<dyn Tx>, usize)>;

/// The result of a run: the sample of every experiment.
#[derive(Debug, Default)]
pub(crate) struct UdpRun {
    pub(crate) tx: Vec<TxReport>,
    /// The CPU of each sending thread.
    pub(crate) tx_cpus: Vec<usize>,
    /// Empty if a rule took the packets.
    pub(crate) rx: Vec<RxReport>,
    /// Million datagrams per second received, or dropped by the rule.
    pub(crate) mpps: f64,
    pub(crate) offered_mpps: f64,
    pub(crate) ledger: Ledger,
    /// The ledger of a run for exactness, which the first round has.
    pub(crate) exact: Option<Ledger>,
    /// Waits for locks of the kernel on the CPUs of the threads that share a socket, for each datagram
    /// of that run.
    pub(crate) lock_waits: Option<f64>,
    /// A run that measures CPU time only, with the queue in a thread of its own.
    pub(crate) meter: Option<Box<Self>>,
    /// The same with work for each datagram.
    pub(crate) worked: Option<Box<Self>>,
    /// The receiving host's counters over the run.
    pub(crate) receiver: Delta,
    /// The packets that each queue of the receiving interface took.
    pub(crate) queues: Vec<QueuePackets>,
    /// The kernel threads of the receive queues: the CPU of each, if it is confined to one, and
    /// what the scheduler says of it; empty unless that is known of all.
    pub(crate) napi: Vec<(Option<usize>, Schedstat)>,
    pub(crate) busy: Vec<CpuBusy>,
    /// The CPU quota of this process over the run; none if it held nothing back.
    pub(crate) quota: Option<Quota>,
    /// Length of the sending.
    pub(crate) seconds: f64,
    /// How the receiver worked, as far as it was granted; empty of a rule.
    pub(crate) mode: String,
    /// How the receiver waited; none of a rule.
    pub(crate) waited: Option<Waited>,
    /// The send buffer granted, in bytes.
    pub(crate) send_buffer_bytes: Option<usize>,
}

/// A part of a whole; none of nothing.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl UdpRun {
    /// Nanoseconds of CPU time of the receiving thread per datagram delivered.
    pub(crate) fn app_ns(&self) -> Option<f64> {
        self.meter.as_deref().unwrap_or(self).own_app_ns()
    }

    /// The same of this run, even if another one measured it.
    pub(crate) fn own_app_ns(&self) -> Option<f64> {
        let report = self.rx.first()?;
        ratio(report.cpu_ns, report.counters.datagrams)
    }

    /// Nanoseconds of CPU time of the queues' kernel threads per packet that they took from a ring.
    pub(crate) fn napi_ns(&self) -> Option<f64> {
        let run = self.meter.as_deref().unwrap_or(self);
        let run_ns = run.napi.iter().map(|(_, stat)| stat.run_ns).sum();
        ratio(run_ns, run.polled()).filter(|_| !run.napi.is_empty())
    }

    /// Datagrams of a receive that brought any.
    pub(crate) fn packets_per_call(&self) -> Option<f64> {
        let counters = &self.rx.first()?.counters;
        ratio(counters.datagrams, counters.calls)
    }

    /// System calls of the receiving thread per datagram.
    pub(crate) fn calls_per_packet(&self) -> Option<f64> {
        let counters = &self.rx.first()?.counters;
        ratio(counters.system_calls, counters.datagrams)
    }

    /// The packets that the queues' polls took from their rings.
    fn polled(&self) -> u64 {
        self.queues
            .iter()
            .map(|queue| queue.packets.max(0) as u64)
            .sum()
    }

    /// The rate that the poll of a queue took from its ring.
    pub(crate) fn queue_mpps(&self, queue: usize) -> Option<f64> {
        let packets = self.queues.get(queue)?.packets.max(0) as u64;
        Some(Span::of(&self.tx).mpps(packets))
    }

    /// Packets that the receiver took from its queue itself.
    pub(crate) fn busy_polled(&self) -> u64 {
        let polled = self.receiver.snmp("TcpExt.BusyPollRxPackets").unwrap_or(0);
        u64::try_from(polled).unwrap_or(0)
    }

    /// The share of these.
    pub(crate) fn polled_share(&self) -> Option<f64> {
        ratio(self.busy_polled(), self.polled())
    }
}

/// The two hosts, for so long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hosts<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) interrupt: &'a EndSignal,
}

impl Hosts<'_> {
    /// Sends to the taker for so long, or until Ctrl-C, and accounts for every packet.
    pub(crate) fn run(
        &self,
        taker: Taker<'_>,
        senders: Senders,
        time: Duration,
        purpose: Purpose<'_>,
    ) -> Result<UdpRun> {
        let (first, _) = senders.first().context("no sender")?;
        let tx_caps = first.caps().clone();
        let tx_cpus = senders.iter().map(|(_, cpu)| *cpu).collect();
        let (caps, in_driver) = taker.granted();
        let (receivers, rule) = match taker {
            Taker::Program(receivers) => (Some(receivers), None),
            Taker::Rule(rule, _) => (None, Some(rule)),
        };
        let is_shared = receivers.as_ref().is_some_and(|one| one.is_shared);
        let wait = receivers.as_ref().map(|one| one.wait);
        self.lab.settle()?;
        let before = self.snapshots()?;
        let drops = purpose.probe.map(DropProbe::counts).transpose()?;
        let run = self.drive(receivers, senders, time, purpose)?;
        let UdpRun { tx, rx, .. } = &run;
        let (received, mpps) = match (rule, &caps) {
            (Some(rule), _) => {
                let dropped = rule.dropped()?;
                (ReceiverCounts::by_rule(dropped), Span::of(tx).mpps(dropped))
            }
            (None, Some(caps)) => (ReceiverCounts::by(rx, caps, is_shared), rate(rx)),
            (None, None) => anyhow::bail!("no receiver"),
        };
        let after = self.snapshots()?;
        let (sender, receiver) = (after.0.since(&before.0), after.1.since(&before.1));
        let route = self.route(in_driver);
        let sent = SenderCounts::by(tx, &tx_caps);
        let mut account = account(sent, received, route, (Some(&sender), Some(&receiver)));
        if let (Some(probe), Some(then)) = (purpose.probe, drops) {
            let namespace = self.lab.receiver().inode();
            account.reasons = Some(DropCount::since(&probe.counts()?, &then, namespace));
        }
        if purpose.stamped && rule.is_none() {
            let came = account::distinct(rx);
            account.sequence_lost = Some(account.offered.saturating_sub(came));
        }
        let mut ledger = account.ledger();
        if let Some(quota) = &run.quota {
            ledger.note(quota.said());
        }
        Ok(UdpRun {
            ledger,
            tx_cpus,
            mpps,
            offered_mpps: rate(&run.tx),
            queues: receiver.queue_packets(self.lab.receiver().interface()),
            receiver,
            waited: wait
                .zip(run.rx.first())
                .map(|(wait, report)| Waited::of(wait, &report.counters)),
            mode: caps.map(|caps| caps.mode.summary).unwrap_or_default(),
            send_buffer_bytes: tx_caps.send_buffer_bytes,
            ..run
        })
    }

    /// The way between the hosts: a veth has rings if the lab gave it some, or if an XDP program
    /// runs in its driver.
    fn route(&self, in_driver: bool) -> PacketRoute<'_> {
        let sender = self.lab.sender().interface();
        let receiver = self.lab.receiver().interface();
        PacketRoute::veth(sender, receiver, self.lab.has_rings() || in_driver)
    }

    fn snapshots(&self) -> Result<(Snapshot, Snapshot)> {
        let take = |host: &LabHost| -> Result<Snapshot> {
            Ok(host.run(|| Snapshot::take(&[host.interface()]))??)
        };
        Ok((take(self.lab.sender())?, take(self.lab.receiver())?))
    }

    /// Starts the receivers, then the senders; waits until both have come to rest.
    fn drive(
        &self,
        receivers: Option<Receivers>,
        senders: Senders,
        time: Duration,
        purpose: Purpose<'_>,
    ) -> Result<UdpRun> {
        let stop = Stop::new();
        let (stat, napi, quotas) = (ProcStat::read()?, self.napi(), Quota::own());
        let rx = match receivers {
            Some(receivers) => receivers.start(purpose, &stop)?,
            None => Vec::new(),
        };
        let began = Instant::now();
        let tx = self.send(senders, time, purpose);
        let busy = ProcStat::read()?.busy_since(&stat);
        let seconds = began.elapsed().as_secs_f64();
        let quota = Quota::worst_between(&quotas, &Quota::own());
        let served = self.napi();
        let settled = self.lab.settle();
        await_quiet(&rx, 2 * LOOK, PATIENCE);
        stop.stop();
        let mut rx: Vec<RxReport> = rx.into_iter().map(RxWorker::join).collect();
        settled?;
        let mut tx = tx?;
        if let Some(error) = rx.iter_mut().find_map(|report| report.error.take()) {
            return Err(error).context("receiving");
        }
        if let Some(error) = tx.iter_mut().find_map(|report| report.error.take()) {
            return Err(error).context("sending");
        }
        Ok(UdpRun {
            tx,
            rx,
            napi: served.into_iter().zip(napi).map(used).collect(),
            busy,
            quota,
            seconds,
            ..UdpRun::default()
        })
    }

    /// Sends for so long, or until Ctrl-C.
    fn send(
        &self,
        senders: Senders,
        time: Duration,
        purpose: Purpose<'_>,
    ) -> Result<Vec<TxReport>> {
        let stop = Stop::new();
        let watch = || ScreenWatch::begin(self.lab.receiver());
        let mut watch = purpose.has_screens.then(watch).flatten();
        let task = |(thread, (tx, cpu)): (usize, (Box<dyn Tx>, usize))| TxTask {
            tx,
            cpu: Some(cpu),
            stamp: purpose.stamped.then_some(thread as u8),
            to_group: false,
            end_markers: false,
            rate_pps: purpose.rate_pps,
            count: None,
            duration: Some(time),
            stop: stop.clone(),
        };
        let workers = TxWorker::spawn_all(senders.into_iter().enumerate().map(task), &stop)
            .context("cannot start a sending thread")?;
        while !workers.iter().all(TxWorker::is_finished) {
            if self.interrupt.came() {
                stop.stop();
            }
            thread::sleep(LOOK);
            watch.iter_mut().for_each(|watch| watch.tick(1.0));
        }
        watch.into_iter().for_each(ScreenWatch::finish);
        Ok(workers.into_iter().map(TxWorker::join).collect())
    }

    /// The scheduler's statistics of the kernel threads that serve the queues, with their CPUs.
    fn napi(&self) -> Vec<(Option<usize>, Schedstat)> {
        let threads = self.lab.napi_threads().iter();
        let stats = threads.map(|thread| {
            let stat = sched::schedstat(thread.pid, thread.pid)?;
            Ok((thread.cpu, stat))
        });
        stats
            .collect::<mpps_os::CallResult<_>>()
            .unwrap_or_default()
    }
}

/// Attaches the drop probe to the port of a lab's traffic.
pub(crate) fn attach() -> Result<DropProbe, DropProbeError> {
    DropProbe::attach(&DropFilter {
        details_of: None,
        ports: PORT..=PORT,
    })
}

impl Receivers {
    fn start(self, purpose: Purpose<'_>, stop: &Stop) -> Result<Vec<RxWorker>> {
        let task = |(thread, rx): (usize, Box<dyn Rx>)| RxTask {
            rx,
            cpu: self.cpus.get(thread % self.cpus.len().max(1)).copied(),
            wait: self.wait,
            inspect: match purpose.stamped {
                true => Inspect::Always,
                false => Inspect::Never,
            },
            work: self.work,
            limit: None,
            stop: stop.clone(),
        };
        RxWorker::spawn_all(self.rx.into_iter().enumerate().map(task), stop)
            .context("cannot start a receiving thread")
    }
}

/// A thread's use of its CPU between two readings.
fn used(
    ((cpu, now), (_, then)): ((Option<usize>, Schedstat), (Option<usize>, Schedstat)),
) -> (Option<usize>, Schedstat) {
    let used = Schedstat {
        run_ns: now.run_ns.saturating_sub(then.run_ns),
        wait_ns: now.wait_ns.saturating_sub(then.wait_ns),
        ..now
    };
    (cpu, used)
}

/// Waits until nothing new has come to the receivers for `quiet`, and no longer than `most`: others may
/// send to the port as well. A late look is one look: the receivers may have had no CPU, either.
pub(crate) fn await_quiet(workers: &[RxWorker], quiet: Duration, most: Duration) {
    let came = || workers.iter().map(|worker| worker.progress().datagrams);
    let came = || came().sum::<u64>();
    let began = Instant::now();
    let (mut last, mut still) = (came(), Duration::ZERO);
    while still < quiet && began.elapsed() < most && !workers.is_empty() {
        thread::sleep(LOOK);
        let now = came();
        still = if now == last {
            still + LOOK
        } else {
            Duration::ZERO
        };
        last = now;
    }
}

/// The definition of a rate, as result files give it in `rate_definition`.
pub const RATE_DEFINITION: &str = "datagrams received until the receivers were stopped, divided by \
     the time from the first to the last of them over all receivers of the run; a rule that drops has \
     no receivers: the datagrams that it counted, divided by the time from the first send to the last \
     over all senders";

/// The time from the first datagram to the last, over all threads of one end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    first_ns: u64,
    last_ns: u64,
}

/// A thread that moved datagrams from one time to another (`CLOCK_MONOTONIC`, nanoseconds).
pub(crate) trait Timed {
    /// Datagrams received before the stop, or handed to the kernel.
    fn datagrams(&self) -> u64;
    /// When the first and the last of them were.
    fn times_ns(&self) -> (u64, u64);
}

impl Timed for RxReport {
    fn datagrams(&self) -> u64 {
        self.counters.datagrams.saturating_sub(self.queued)
    }

    fn times_ns(&self) -> (u64, u64) {
        (self.first_ns, self.last_ns)
    }
}

impl Timed for TxReport {
    fn datagrams(&self) -> u64 {
        self.offered()
    }

    fn times_ns(&self) -> (u64, u64) {
        (self.first_ns, self.last_ns)
    }
}

impl Span {
    /// Of these threads; those that moved nothing have no times.
    pub(crate) fn of(threads: &[impl Timed]) -> Self {
        let active = threads.iter().filter(|thread| thread.datagrams() > 0);
        let times = active.map(Timed::times_ns);
        let (first_ns, last_ns) = times.fold((u64::MAX, 0), |sum, (first, last)| {
            (sum.0.min(first), sum.1.max(last))
        });
        Self { first_ns, last_ns }
    }

    /// Its length; zero for no datagram or a single one.
    pub(crate) fn seconds(self) -> f64 {
        self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9
    }

    /// So many datagrams in this time, in million per second.
    pub(crate) fn mpps(self, datagrams: u64) -> f64 {
        per_second(datagrams, self.seconds()) / 1e6
    }
}

/// The rate of these threads together, in million datagrams per second ([`RATE_DEFINITION`]).
pub(crate) fn rate<T: Timed>(threads: &[T]) -> f64 {
    Span::of(threads).mpps(threads.iter().map(Timed::datagrams).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(datagrams: u64, first_ns: u64, last_ns: u64) -> TxReport {
        TxReport {
            accepted: datagrams,
            first_ns,
            last_ns,
            ..TxReport::default()
        }
    }

    #[test]
    fn a_rate_is_of_all_threads_from_the_first_datagram_to_the_last() {
        let threads = [
            thread(3_000, 1_000_000, 3_000_000),
            thread(1_000, 2_000_000, 5_000_000),
        ];
        assert_eq!(Span::of(&threads).seconds(), 0.004);
        assert_eq!(rate(&threads), 1.0);
        assert_eq!(rate(&threads[..1]), 1.5);
    }

    #[test]
    fn a_receiver_counts_what_came() {
        let mut report = RxReport {
            first_ns: 1_000_000,
            last_ns: 3_000_000,
            ..RxReport::default()
        };
        (report.counters.datagrams, report.queued) = (3_007, 7);
        assert_eq!(rate(&[report, RxReport::default()]), 1.5);
    }

    #[test]
    fn a_thread_that_got_nothing_has_no_time() {
        let threads = [thread(0, 0, 9_000_000), thread(1_000, 2_000_000, 3_000_000)];
        assert_eq!(rate(&threads), 1.0);
    }

    #[test]
    fn nothing_and_one_datagram_have_no_rate() {
        assert_eq!(rate::<TxReport>(&[]), 0.0);
        assert_eq!(rate(&[thread(1, 7, 7)]), 0.0);
        assert_eq!(Span::of(&[thread(0, 5, 9)]).seconds(), 0.0);
    }
}
