//! `mpps recv`: receives UDP and counts it.

mod args;
mod carve_out;
mod elsewhere;
mod report;

pub(crate) use args::{Carving, RecvArgs};

use self::elsewhere::Elsewhere;
use super::lines::{LOOK, OutputLines, require, until_stopped};
use super::meter::{Interval, Meter, rate_line};
use crate::machine::{interface_at, snapshot};
use crate::measure::outcome::{CommandEnding, ended, put_back};
use crate::signal::EndSignal;
use crate::udp::screens::{ScreenLook, Screens};
use crate::udp::traffic::{CarvedOut, RECV_SCHEMA, RecvCarveOut, RecvInterval};
use anyhow::{Context, Result};
use mpps_host::setting::preflight::Settings;
use mpps_host::{Applied, Snapshot, SocketBuffer, irq_suspension};
use mpps_io::{
    Backend, FinishedWorker, Inspect, Layer, Property, Rx, RxCaps, RxConfig, RxProgress, RxReport,
    RxTask, RxWorker, Stop, Work,
};
use mpps_os::clock::monotonic_ns;
use mpps_os::netlink::{address, link};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

const CARVE_OUT: &str = "--queue-carve-out";
/// How long a worker without packets takes to have fresh counts.
const ANSWER_NS: u64 = 100_000_000;

/// A receiver that can be run.
#[derive(Debug)]
pub(crate) struct RecvPlan {
    pub(crate) backend: &'static Backend,
    /// Why this backend, if it was not named.
    pub(crate) because: Vec<String>,
    pub(crate) config: RxConfig,
    pub(crate) threads: usize,
    /// CPUs of the threads, in turn; empty leaves them to the scheduler.
    pub(crate) pin: Vec<usize>,
    pub(crate) lines: OutputLines,
    /// The arguments as given, for those that need no check.
    pub(crate) asked: RecvArgs,
}

impl RecvPlan {
    /// Receives until the count, the time or Ctrl-C.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        // Changes are undone before a second signal can end the process.
        let changes = self.asked.queue_carve_out.is_some() || self.asked.suspend_irqs.is_some();
        let interrupt = if changes {
            EndSignal::listen_held()?
        } else {
            EndSignal::listen()?
        };
        // A failed start has undone its changes. The error is reported after that.
        let (running, before) = RecvWorkers::start(self).inspect_err(|_| interrupt.release())?;
        // A closed pipe ends the run like Ctrl-C does, but the workers must be stopped first.
        let introduced = running.introduce();
        let watched = introduced.and_then(|()| running.watch(&interrupt));
        running.stop.stop();
        let (finished, back) = running.finish(before, &interrupt);
        let told = watched.and_then(|meter| report::print(self, finished, &meter));
        ended(told.map(|()| CommandEnding::Fine), back)
    }

    /// The interface that a receiver at the address reads.
    fn interface(&self) -> Result<String> {
        interface_at(
            self.config.ring.interface.as_deref(),
            self.config.address.ip(),
        )
    }

    /// True if the user asked for the host's screens. They cost a reading each second.
    fn has_screens(&self) -> bool {
        self.asked.verbose || self.lines.json
    }

    /// True if all threads read one socket. Each of them would report its drops.
    fn is_shared(&self) -> bool {
        self.backend.layer == Layer::Payload && !self.config.reuse_port && self.threads > 1
    }

    /// True if no earlier thread reports the drops of this thread's receiver.
    fn owns_drops(&self, thread: usize) -> bool {
        !self.is_shared() || thread == 0
    }

    /// How many sockets get each datagram: one, or with multicast all of them.
    fn deliveries(&self) -> u64 {
        let is_copied = self.config.reuse_port && !self.config.groups.is_empty();
        if is_copied { self.threads as u64 } else { 1 }
    }

    fn cpu(&self, thread: usize) -> Option<usize> {
        self.pin.get(thread.checked_rem(self.pin.len())?).copied()
    }

    /// Suspends the interrupts of the receivers' queues, if that was asked for.
    fn change(&self, receivers: &[Box<dyn Rx>]) -> Result<Option<Made>> {
        let Some(time) = self.asked.suspend_irqs else {
            return Ok(None);
        };
        let option = "--suspend-irqs";
        let queues = receivers.iter().filter_map(|rx| rx.caps().queue.as_ref());
        let queues: Vec<u32> = queues.map(|queue| queue.number).collect();
        let change = irq_suspension(&self.interface()?, &queues, time).context(option)?;
        let applied = Applied::new(&change).context(option)?;
        Ok(Some(Made {
            option,
            verb: "set",
            applied,
        }))
    }

    /// The queue that is to be taken out of the card's spreading for this receiver.
    fn queue(&self) -> Result<Option<u32>> {
        let how = self.asked.queue_carve_out;
        let queue = how.map(|how| carve_out::queue(self, how).context(CARVE_OUT));
        queue.transpose()
    }

    /// Takes it, once the receiver is open.
    fn carve_out(&self, queue: u32) -> Result<(CarvedOut, Made)> {
        let how = self.asked.queue_carve_out.unwrap_or(Carving::Auto);
        let (carved, applied) = carve_out::make(self, how, queue).context(CARVE_OUT)?;
        let made = Made {
            option: CARVE_OUT,
            verb: "steered",
            applied,
        };
        Ok((carved, made))
    }

    /// True if a receiver puts an XDP program on the interface.
    fn attaches(&self) -> bool {
        self.backend.rx_fields.contains(&"ring.attach")
    }

    /// How the interface is set, if the receiver may change that: some drivers set their rings, queues or
    /// offloads anew for an XDP program.
    fn settings(&self) -> Option<Settings> {
        let interface = self.attaches().then(|| self.interface())?.ok()?;
        Some(Settings::read(&interface))
    }

    /// Waits for the interface whose rings an XDP program had made anew; a socket can wait for its
    /// first packet as long as it likes.
    fn await_carrier(&self) -> Result<Duration> {
        if !self.attaches() {
            return Ok(Duration::ZERO);
        }
        let index = link::index(&self.interface()?)?;
        let context = || format!("cannot receive at {}", self.config.address);
        mpps_io::parts::await_carrier(index).with_context(context)
    }

    /// Opens what the threads receive with: a socket each, one for all, or a queue each.
    fn open(&self, carved: Option<u32>) -> Result<Vec<Box<dyn Rx>>> {
        let backend = self.backend;
        let mut config = self.config.clone();
        config.ring.queue = carved.or(config.ring.queue);
        let context = || format!("cannot receive at {}", self.config.address);
        let first = backend.open_rx(&config).with_context(context)?;
        let required = &self.asked.ring.require;
        let granted = |caps: &RxCaps| {
            let mode = caps.mode.clone();
            mode.with(Property::Steered, carved.is_some())
        };
        require(backend, &granted(first.caps()), required)?;
        // With port 0 the first socket's port is everybody's.
        config.address = first.caps().local_address;
        let mut receivers = vec![first];
        for thread in 1..self.threads {
            let next = if self.config.reuse_port {
                backend.open_rx(&config)
            } else {
                receivers[0].share()
            };
            let next = next.with_context(|| format!("thread {thread} of {}", self.threads));
            let next = next.with_context(context)?;
            // One queue may be granted less than another.
            require(backend, &granted(next.caps()), required)?;
            receivers.push(next);
        }
        if self.asked.steers_by_cpu {
            let cpus: Vec<usize> = (0..self.threads)
                .filter_map(|thread| self.cpu(thread))
                .collect();
            receivers[0].steer_by_cpu(&cpus).context("--steer cpu")?;
        }
        Ok(receivers)
    }
}

/// A change of the interface.
#[derive(Debug)]
struct Made {
    option: &'static str,
    /// The verb for the change, in a word.
    verb: &'static str,
    applied: Applied,
}

impl Made {
    fn said(&self) -> impl Iterator<Item = String> {
        let steps = self.applied.steps().into_iter();
        steps.map(|step| format!("{}: {step}", self.verb))
    }
}

/// How the threads share the packets, in words.
fn threads(plan: &RecvPlan, caps: &RxCaps) -> String {
    let threads = plan.threads;
    let queued = plan.backend.rx_fields.contains(&"ring.queue");
    match (caps.layer, queued) {
        _ if threads == 1 => "one thread".to_owned(),
        (Layer::Frame, true) => format!("{threads} threads, a queue each"),
        (Layer::Frame, false) => format!("{threads} threads, a ring each"),
        (Layer::Payload, _) if plan.config.reuse_port => {
            format!("{threads} threads, a socket each")
        }
        (Layer::Payload, _) => format!("{threads} threads on one socket"),
    }
}

/// The workers of a run.
struct RecvWorkers<'a> {
    plan: &'a RecvPlan,
    workers: Vec<RxWorker>,
    stop: Stop,
    began_ns: u64,
    changes: Vec<Made>,
    carved: Option<CarvedOut>,
    carrier_wait: Duration,
    /// Settings of the interface that changed since the receivers opened, in words.
    attaching_set: Vec<String>,
}

/// The results of the workers.
struct Finished {
    reports: Vec<RxReport>,
    host: Option<mpps_host::Delta>,
    caps: RxCaps,
    carved: Option<CarvedOut>,
    carrier_wait: Duration,
    attaching_set: Vec<String>,
}

impl<'a> RecvWorkers<'a> {
    /// Opens the receivers, reads the host's counters, and starts the workers.
    fn start(plan: &'a RecvPlan) -> Result<(Self, Snapshot)> {
        // All are opened before the first one runs: an error leaves nothing half done.
        let queue = plan.queue()?;
        // A failure closes the receivers before it puts these back.
        let mut changes: Vec<Made> = Vec::new();
        let earlier = plan.settings();
        let receivers = plan.open(queue)?;
        let carrier_wait = plan.await_carrier()?;
        let later = plan.settings().zip(earlier);
        let attaching_set = later.map(|(later, earlier)| later.since(&earlier));
        // An open receiver has passed every check, so that a refused option changes nothing. An XDP
        // program may also make the queues anew, without what was set before.
        changes.extend(plan.change(&receivers)?);
        let carved = queue.map(|queue| plan.carve_out(queue)).transpose()?;
        let carved = carved.map(|(carved, made)| {
            changes.push(made);
            carved
        });
        // Opening may reset a card, and its counters with it.
        let before = snapshot()?;
        let stop = Stop::new();
        let limit = plan
            .asked
            .count
            .map(|count| Arc::new(AtomicU64::new(count)));
        let began_ns = monotonic_ns();
        let task = |(thread, rx): (usize, Box<dyn Rx>)| RxTask {
            rx,
            cpu: plan.cpu(thread),
            wait: plan.asked.wait,
            inspect: Inspect::Auto,
            work: Work::None,
            limit: limit.clone(),
            stop: stop.clone(),
        };
        let workers = RxWorker::spawn_all(receivers.into_iter().enumerate().map(task), &stop)
            .context("cannot start a receiving thread")?;
        let running = Self {
            plan,
            workers,
            stop,
            began_ns,
            changes,
            carved,
            carrier_wait,
            attaching_set: attaching_set.unwrap_or_default(),
        };
        Ok((running, before))
    }

    /// The capabilities granted to the first receiver. Nothing starts without it.
    fn caps(&self) -> &RxCaps {
        self.workers[0].caps()
    }

    /// Says where and how is received, and what receive buffer it is done with.
    fn introduce(&self) -> Result<()> {
        let (plan, caps) = (self.plan, self.caps());
        let config = &plan.config;
        let is_frames = caps.layer == Layer::Frame;
        let mut said = Vec::new();
        if !self.carrier_wait.is_zero() {
            let seconds = self.carrier_wait.as_secs_f64();
            said.push(format!(
                "the carrier came after {seconds:.1} s; counters begin there"
            ));
        }
        let gro = if caps.gro { ", GRO trains" } else { "" };
        let (address, name, threads) = (caps.local_address, caps.backend, threads(plan, caps));
        said.push(format!("receiving at {address} by {name}, {threads}{gro}"));
        said.extend(plan.because.iter().map(|why| format!("best: {why}")));
        let wait = plan.asked.wait.name();
        said.push(format!("mode: {}, waits by {wait}", caps.mode));
        let set = self.attaching_set.iter();
        said.extend(set.map(|edit| format!("changed while attaching: {edit}")));
        said.extend(self.changes.iter().flat_map(Made::said));
        said.extend(self.carved.iter().flat_map(carve_out::said));
        if config.ring.all_traffic {
            let all = "all traffic: every frame that the interface receives counts";
            let gone = ", and none of them, neither ARP nor ssh, reaches the kernel";
            let gone = if caps.mode.is_tap { "" } else { gone };
            said.push(format!("{all}{gone}"));
        }
        said.extend(match caps.receive_buffer_bytes {
            Some(ring) if is_frames => Some(format!("ring {ring} bytes")),
            Some(got) => {
                // The kernel books twice what it grants.
                let asked = config.receive_buffer_bytes.unwrap_or(got);
                Some(SocketBuffer::receive(asked, got * 2)?.explanation())
            }
            None => None,
        });
        let whole = "bytes are those of whole frames, headers included";
        said.extend(is_frames.then(|| whole.to_owned()));
        if plan.deliveries() > 1 {
            let sockets = plan.threads;
            said.push(format!(
                "each multicast datagram is delivered to all {sockets} sockets"
            ));
        }
        if let Some(carved) = &self.carved {
            plan.lines.object(&RecvCarveOut {
                schema: RECV_SCHEMA.to_owned(),
                kind: "carve_out".to_owned(),
                carve_out: carved.clone(),
            })?;
        }
        said.iter().try_for_each(|line| plan.lines.say(line))
    }

    /// Prints a line a second until the workers are done or a signal asks to stop.
    fn watch(&self, interrupt: &EndSignal) -> Result<Meter<2>> {
        let mut meter = Meter::new(self.began_ns, [0, 0]);
        let mut last = vec![RxProgress::default(); self.workers.len()];
        let time = self.plan.asked.duration.map(|time| time.as_nanos() as u64);
        let deadline = time.map_or(u64::MAX, |time| self.began_ns.saturating_add(time));
        let interface = self.plan.interface().ok();
        let mut elsewhere = interface.as_deref().and_then(|name| self.elsewhere(name));
        let look = || {
            self.plan
                .has_screens()
                .then(|| ScreenLook::take(interface.as_deref()))
        };
        let mut looked = look();
        let mut asked_ns = 0;
        until_stopped(interrupt, meter.ends_ns().min(deadline), || {
            // Fresh for the line. It costs each worker a system call or two, and keeps the kernel's
            // 32-bit count of drops from wrapping unseen.
            let (now_ns, ends_ns) = (monotonic_ns(), meter.ends_ns());
            if asked_ns != ends_ns && now_ns + ANSWER_NS >= ends_ns {
                asked_ns = ends_ns;
                self.workers.iter().for_each(RxWorker::refresh);
            }
            let is_fresh = self.workers.iter().all(RxWorker::is_fresh);
            let may_end = is_fresh || now_ns > ends_ns + 5 * ANSWER_NS;
            let progress: Vec<RxProgress> = self.workers.iter().map(RxWorker::progress).collect();
            let firsts = progress.iter().map(|one| one.first_ns);
            if meter.align(firsts.filter(|at| *at > 0).min().unwrap_or(0)) {
                looked = look();
            }
            let datagrams = progress.iter().map(|one| one.datagrams).sum();
            let bytes = progress.iter().map(|one| one.wire_bytes).sum();
            let tick = || meter.tick(monotonic_ns(), [datagrams, bytes]);
            if let Some(interval) = may_end.then(tick).flatten() {
                let now = look();
                let screens = now.as_ref().zip(looked.as_ref());
                let screens = screens.map(|(now, then)| now.since(then));
                self.print(&interval, &progress, &last, screens)?;
                looked = now;
                if datagrams > 0 {
                    elsewhere = None;
                }
                let past = self.workers.iter().map(|one| one.progress().dropped).sum();
                if let Some(said) = elsewhere.as_ref().and_then(|ring| ring.look(past)) {
                    elsewhere = None;
                    self.plan.lines.say(&said)?;
                }
                last = progress;
            }
            let finished = self.workers.iter().any(RxWorker::is_finished);
            let over = finished || monotonic_ns() >= deadline;
            let next_ns = match may_end {
                true => meter.ends_ns(),
                false => now_ns + LOOK.as_nanos() as u64,
            };
            Ok((!over).then(|| next_ns.min(deadline)))
        })?;
        Ok(meter)
    }

    /// Where packets are that do not come to the ring; none for sockets.
    fn elsewhere(&self, interface: &str) -> Option<Elsewhere> {
        let (caps, config) = (self.caps(), &self.plan.config);
        let is_ring = caps.layer == Layer::Frame && !config.ring.all_traffic;
        let owner = || address::interface_of(config.address.ip()).ok().flatten();
        is_ring.then(|| Elsewhere::begin(interface, owner(), caps))?
    }

    fn print(
        &self,
        interval: &Interval<2>,
        now: &[RxProgress],
        last: &[RxProgress],
        screens: Option<Screens>,
    ) -> Result<()> {
        let lines = self.plan.lines;
        let is_verbose = self.plan.asked.verbose;
        let ([received, bytes], [pps, byte_rate]) = (interval.counts, interval.rates());
        let shown = screens.as_ref().filter(|_| is_verbose).map(Screens::blocks);
        lines.object(&RecvInterval {
            schema: RECV_SCHEMA.to_owned(),
            kind: "interval".to_owned(),
            seconds: interval.seconds,
            received,
            bytes,
            pps,
            screens,
        })?;
        let rate = rate_line(pps, byte_rate, self.plan.asked.article);
        let lost = self.lost(received, interval.seconds, now, last);
        lines.say(&format!("{rate}{lost}"))?;
        for (thread, (now, last)) in now.iter().zip(last).enumerate() {
            if is_verbose {
                let owns_drops = self.plan.owns_drops(thread);
                lines.say(&report::thread_line(
                    thread,
                    now,
                    last,
                    interval.seconds,
                    owns_drops,
                ))?;
            }
        }
        shown.map_or(Ok(()), |blocks| lines.tell(&blocks))
    }

    /// The losses of a second at the receivers themselves; empty without any.
    fn lost(&self, received: u64, seconds: f64, now: &[RxProgress], last: &[RxProgress]) -> String {
        let both = now.iter().zip(last).enumerate();
        let own = both.filter(|(thread, _)| self.plan.owns_drops(*thread));
        let lost = own.map(|(_, (now, last))| now.dropped.saturating_sub(last.dropped));
        report::lost(
            received,
            lost.sum(),
            seconds,
            self.plan.config.gro,
            self.caps(),
        )
    }

    /// Stops, puts back what was changed, and answers also what of it could not be.
    fn finish(self, before: Snapshot, interrupt: &EndSignal) -> (Finished, Result<()>) {
        let caps = self.caps().clone();
        let ended = self.workers.into_iter().map(RxWorker::join_open);
        let (reports, receivers): (_, Vec<FinishedWorker>) = ended.unzip();
        // The totals are worth more than the host's counters: without them they say `null`.
        let host = snapshot().ok().map(|after| after.since(&before));
        // Closing may reset a card, as opening does.
        drop(receivers);
        // The last change first, and all of them before anything is printed, which may take as long as
        // the reader likes.
        let undone = self.changes.into_iter().rev();
        let undone: Vec<_> = undone
            .map(|made| (made.option, made.applied.undo()))
            .collect();
        interrupt.release();
        let mut back = Ok(());
        for (option, outcomes) in &undone {
            for outcome in outcomes {
                // The totals follow, even if no program reads this line.
                let _ = self.plan.lines.say(&format!("put back: {outcome}"));
            }
            back = back.and(put_back(outcomes, option));
        }
        let finished = Finished {
            reports,
            host,
            caps,
            carved: self.carved,
            carrier_wait: self.carrier_wait,
            attaching_set: self.attaching_set,
        };
        (finished, back)
    }
}
