//! `mpps recv`: receives UDP and counts it.

mod report;

use super::{Outcome, ended, put_back, snapshot};
use crate::args::{FanoutArg, RecvArgs, Steer, WaitArg};
use crate::meter::{Interval, Meter};
use crate::output::{self, Stream};
use crate::signal::Interrupt;
use crate::traffic::{RECV_SCHEMA, RecvInterval};
use anyhow::{Context, Result, bail, ensure};
use mpps_host::{CarveOut, Snapshot, SocketBuffer, Topology};
use mpps_io::{
    Group, Inspect, Layer, Property, RingConfig, Rx, RxCaps, RxConfig, RxProgress, RxReport,
    RxTask, RxWorker, Stop, Wait, backend,
};
use mpps_os::clock::monotonic_ns;
use mpps_os::netlink::{address, link};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

/// How often the main thread looks for the first packet, Ctrl-C and finished workers.
const LOOK: Duration = Duration::from_millis(20);

/// Receives until the count, the time or Ctrl-C.
pub(super) fn run(args: RecvArgs) -> Result<Outcome> {
    let plan = Plan::check(args)?;
    // A carve-out is undone before a second signal can end the process.
    let interrupt = if plan.args.queue_carve_out {
        Interrupt::listen_held()?
    } else {
        Interrupt::listen()?
    };
    let before = snapshot()?;
    // What fails to start has undone what it did, and is told after that.
    let running = Running::start(&plan).inspect_err(|_| interrupt.release())?;
    // A closed pipe ends the run like Ctrl-C does, but the workers must be stopped first.
    let introduced = running.introduce();
    let watched = introduced.and_then(|()| running.watch(&interrupt));
    running.stop.stop();
    let (finished, back) = running.finish(before, &interrupt);
    let told = watched.and_then(|meter| report::print(&plan, finished, &meter));
    ended(told.map(|()| Outcome::Fine), back)
}

/// The checked arguments.
struct Plan {
    args: RecvArgs,
    threads: usize,
    reuse_port: bool,
    groups: Vec<Group>,
}

impl Plan {
    fn check(args: RecvArgs) -> Result<Self> {
        let asked = args.threads.or(args.positional_threads).map(usize::from);
        let reuse_port = args.reuseport || args.positional_reuseport == Some(1);
        if let Some(pin) = &args.pin {
            Topology::read()?.check(pin).context("--pin")?;
        }
        if args.steer == Steer::Cpu {
            ensure!(
                reuse_port,
                "--steer cpu chooses among sockets: add --reuseport"
            );
            ensure!(
                args.pin.is_some(),
                "--steer cpu needs to know the CPU of each socket: add --pin"
            );
        }
        let backend = backend::find(&args.backend).context("--backend")?;
        ensure!(
            backend.receives(),
            "--backend {}: it only sends; `mpps backends` lists those that receive",
            backend.name
        );
        ensure!(
            !backend.in_process,
            "--backend {}: it moves packets inside one process, for tests and examples",
            backend.name
        );
        ensure!(
            !args.queue_carve_out || backend.rx_options.contains(&"--queue"),
            "--queue-carve-out: backend {} does not read a queue; add --backend af_xdp",
            backend.name
        );
        let threads = match asked {
            Some(threads) => threads,
            // A queue that nobody reads would pass its packets on to the kernel.
            None if backend.rx_options.contains(&"--queue") && args.ring.queue.is_none() => {
                queues(&args).unwrap_or(1)
            }
            None => 1,
        };
        let groups = args
            .join
            .iter()
            .map(|text| group(text))
            .collect::<Result<_>>()?;
        Ok(Self {
            args,
            threads,
            reuse_port,
            groups,
        })
    }

    fn config(&self) -> RxConfig {
        let mut config = RxConfig::new(self.args.address);
        if self.args.gro {
            config = config.with_gro();
        }
        if let Some(batch) = self.args.batch {
            config.batch = batch;
        }
        if let Some(bytes) = self.args.buffer {
            config.buffer_bytes = bytes;
        }
        config.receive_buffer_bytes = self.args.rcvbuf;
        config.reuse_port = self.reuse_port;
        config.busy_poll_us = self.args.busy_poll;
        config.groups = self.groups.clone();
        config.ring = RingConfig {
            all_traffic: self.args.all_traffic,
            take: self.args.take,
            fanout: self.args.fanout.map(FanoutArg::fanout),
            ..self.args.ring.config()
        };
        config
    }

    /// How a thread waits.
    fn wait(&self) -> Wait {
        let time = Duration::from_secs(1);
        match self.args.wait {
            WaitArg::Block => Wait::Block(time),
            WaitArg::Epoll => Wait::Epoll(time),
            WaitArg::Spin => Wait::Spin(time),
        }
    }

    /// True if all threads read one socket, whose drops each of them would tell.
    fn is_shared(&self) -> bool {
        let payloads =
            backend::find(&self.args.backend).is_ok_and(|row| row.layer == Layer::Payload);
        payloads && !self.reuse_port && self.threads > 1
    }

    /// True if what a thread's receiver dropped is told by no earlier thread.
    fn owns_drops(&self, thread: usize) -> bool {
        !self.is_shared() || thread == 0
    }

    /// How many sockets get each datagram: one, or with multicast all of them.
    fn deliveries(&self) -> u64 {
        let is_copied = self.reuse_port && !self.groups.is_empty();
        if is_copied { self.threads as u64 } else { 1 }
    }

    fn cpu(&self, thread: usize) -> Option<usize> {
        let pin = &self.args.pin.as_ref()?.0;
        pin.get(thread % pin.len()).copied()
    }

    /// Takes a queue out of the card's spreading for this flow, if that was asked for.
    fn carve_out(&self) -> Result<Option<CarveOut>> {
        if !self.args.queue_carve_out {
            return Ok(None);
        }
        let interface = interface(&self.args)?;
        let carved = CarveOut::plan(&interface, self.args.address, self.args.ring.queue)
            .and_then(|plan| CarveOut::apply(&plan));
        carved.context("--queue-carve-out").map(Some)
    }

    /// Opens what the threads receive with: a socket each, one for all, or a queue each.
    fn open(&self, carve_out: Option<&CarveOut>) -> Result<Vec<Box<dyn Rx>>> {
        let backend = backend::find(&self.args.backend)?;
        let mut config = self.config();
        if let Some(carve_out) = carve_out {
            config.ring.queue = Some(carve_out.queue());
        }
        let context = || format!("cannot receive at {}", self.args.address);
        let first = backend.open_rx(&config).with_context(context)?;
        let required = self.args.ring.required();
        require(first.caps(), carve_out, &required)?;
        // With port 0 the first socket's port is everybody's.
        config.address = first.caps().local_address;
        let mut receivers = vec![first];
        for thread in 1..self.threads {
            let next = if self.reuse_port {
                backend.open_rx(&config)
            } else {
                receivers[0].share()
            };
            let next = next.with_context(|| format!("thread {thread} of {}", self.threads));
            let next = next.with_context(context)?;
            // One queue may be granted less than another.
            require(next.caps(), carve_out, &required)?;
            receivers.push(next);
        }
        if self.args.steer == Steer::Cpu {
            let cpus: Vec<usize> = (0..self.threads)
                .filter_map(|thread| self.cpu(thread))
                .collect();
            receivers[0].steer_by_cpu(&cpus).context("--steer cpu")?;
        }
        Ok(receivers)
    }
}

/// The interface that a receiver at the address reads.
fn interface(args: &RecvArgs) -> Result<String> {
    if let Some(name) = &args.ring.interface {
        return Ok(name.clone());
    }
    let index = address::interface_of(args.address.ip())?;
    let links = link::list()?;
    let link = links.into_iter().find(|link| Some(link.index) == index);
    let link = link.with_context(|| {
        format!(
            "no interface of this host has the address {}; name one by --interface",
            args.address.ip()
        )
    })?;
    Ok(link.name)
}

/// How many queues that interface receives on, if there is such a number.
fn queues(args: &RecvArgs) -> Option<usize> {
    if args.queue_carve_out {
        return Some(1);
    }
    let channels = mpps_os::ethtool::channels(&interface(args).ok()?).ok()?;
    usize::try_from(channels.rx.max(channels.combined)).ok()
}

/// How the threads share the packets, in words.
fn threads(plan: &Plan, caps: &RxCaps) -> String {
    let threads = plan.threads;
    let queued = backend::find(caps.backend).is_ok_and(|row| row.rx_options.contains(&"--queue"));
    match (caps.layer, queued) {
        _ if threads == 1 => "one thread".to_owned(),
        (Layer::Frame, true) => format!("{threads} threads, a queue each"),
        (Layer::Frame, false) => format!("{threads} threads, a ring each"),
        (Layer::Payload, _) if plan.reuse_port => format!("{threads} threads, a socket each"),
        (Layer::Payload, _) => format!("{threads} threads on one socket"),
    }
}

/// How packets reach a receiver, as the ledger wants to know it.
fn arrival(caps: &RxCaps) -> &'static str {
    match caps.layer {
        Layer::Payload => "socket",
        Layer::Frame if caps.mode.is_tap => "tap",
        Layer::Frame => "xdp",
    }
}

/// Fails if the kernel granted less than was required.
fn require(caps: &RxCaps, carve_out: Option<&CarveOut>, required: &[Property]) -> Result<()> {
    let mode = caps
        .mode
        .clone()
        .with(Property::Steered, carve_out.is_some());
    let lacking = mode.lacks(required);
    let Some(first) = lacking.first() else {
        return Ok(());
    };
    bail!(
        "--require {first}: not granted; {} works as: {}",
        caps.backend,
        caps.mode
    )
}

/// `GROUP[%IF]`.
fn group(text: &str) -> Result<Group> {
    let (address, interface) = match text.split_once('%') {
        Some((address, interface)) => (address, Some(interface)),
        None => (text, None),
    };
    let Ok(address) = address.parse() else {
        bail!("--join {text}: `{address}` is no address; write 239.1.2.3 or ff02::4321%eth1");
    };
    let interface_index = match interface {
        Some(name) => link::index(name).with_context(|| format!("--join {text}"))?,
        None => 0,
    };
    Ok(Group {
        address,
        interface_index,
    })
}

/// The workers of a run.
struct Running<'a> {
    plan: &'a Plan,
    workers: Vec<RxWorker>,
    stop: Stop,
    began_ns: u64,
    carve_out: Option<CarveOut>,
}

/// What the workers found.
struct Finished {
    reports: Vec<RxReport>,
    host: Option<mpps_host::Delta>,
    receive_buffer_bytes: Option<usize>,
    address: String,
    /// How packets reached the program: `socket`, `tap` or `xdp`.
    arrival: &'static str,
    mode: String,
}

impl<'a> Running<'a> {
    fn start(plan: &'a Plan) -> Result<Self> {
        // All are opened before the first one runs: an error leaves nothing half done.
        let carve_out = plan.carve_out()?;
        let receivers = plan.open(carve_out.as_ref())?;
        let stop = Stop::new();
        let limit = plan.args.count.map(|count| Arc::new(AtomicU64::new(count)));
        let began_ns = monotonic_ns();
        let task = |(thread, rx): (usize, Box<dyn Rx>)| RxTask {
            rx,
            cpu: plan.cpu(thread),
            wait: plan.wait(),
            inspect: Inspect::Auto,
            limit: limit.clone(),
            stop: stop.clone(),
        };
        let workers = RxWorker::spawn_all(receivers.into_iter().enumerate().map(task), &stop)
            .context("cannot start a receiving thread")?;
        Ok(Self {
            plan,
            workers,
            stop,
            began_ns,
            carve_out,
        })
    }

    /// Says where and how is received, and what receive buffer it is done with.
    fn introduce(&self) -> Result<()> {
        let plan = self.plan;
        let Some(caps) = self.workers.first().map(RxWorker::caps) else {
            return Ok(());
        };
        let (address, name) = (caps.local_address, caps.backend);
        let threads = threads(plan, caps);
        let gro = if caps.gro { ", GRO trains" } else { "" };
        say(
            plan,
            &format!("receiving at {address} by {name}, {threads}{gro}"),
        )?;
        say(plan, &format!("mode: {}", caps.mode))?;
        for step in self.carve_out.iter().flat_map(CarveOut::steps) {
            say(plan, &format!("steered: {step}"))?;
        }
        if plan.args.all_traffic {
            let all = "all traffic: every frame that the interface receives counts";
            let gone = ", and none of them, neither ARP nor ssh, reaches the kernel";
            let gone = if caps.mode.is_tap { "" } else { gone };
            say(plan, &format!("{all}{gone}"))?;
        }
        match caps.receive_buffer_bytes {
            Some(got) if caps.layer == Layer::Payload => {
                // The kernel books twice what it grants.
                let asked = plan.args.rcvbuf.unwrap_or(got);
                say(plan, &SocketBuffer::receive(asked, got * 2)?.explanation())?;
            }
            Some(ring) => say(plan, &format!("ring {ring} bytes"))?,
            None => {}
        }
        if caps.layer == Layer::Frame {
            say(plan, "bytes are those of whole frames, headers included")?;
        }
        let sockets = if plan.reuse_port { plan.threads } else { 1 };
        if !plan.groups.is_empty() && sockets > 1 {
            say(
                plan,
                &format!("each multicast datagram is delivered to all {sockets} sockets"),
            )?;
        }
        Ok(())
    }

    /// Prints a line a second until the workers are done or somebody asks to stop.
    fn watch(&self, interrupt: &Interrupt) -> Result<Meter> {
        let mut meter = Meter::new(self.began_ns);
        let mut last = vec![RxProgress::default(); self.workers.len()];
        let deadline = self
            .plan
            .args
            .duration
            .map(|time| self.began_ns + time.as_nanos() as u64);
        // A thread's first line is to know its CPU.
        self.workers.iter().for_each(RxWorker::refresh);
        let result = loop {
            let now = monotonic_ns();
            let ends = meter.ends_ns().min(deadline.unwrap_or(u64::MAX));
            thread::sleep(LOOK.min(Duration::from_nanos(ends.saturating_sub(now))));
            let progress: Vec<RxProgress> = self.workers.iter().map(RxWorker::progress).collect();
            let first_ns = progress
                .iter()
                .map(|one| one.first_ns)
                .filter(|at| *at > 0)
                .min();
            meter.align(first_ns.unwrap_or(0));
            if let Err(error) = self.tick(&mut meter, &progress, &mut last) {
                break Err(error);
            }
            let finished = self.workers.iter().any(RxWorker::is_finished);
            let over = deadline.is_some_and(|at| monotonic_ns() >= at);
            if finished || over || interrupt.came() {
                break Ok(());
            }
        };
        result.map(|()| meter)
    }

    fn tick(
        &self,
        meter: &mut Meter,
        now: &[RxProgress],
        last: &mut Vec<RxProgress>,
    ) -> Result<()> {
        let datagrams = now.iter().map(|one| one.datagrams).sum();
        let bytes = now.iter().map(|one| one.wire_bytes).sum();
        let Some(interval) = meter.tick(monotonic_ns(), datagrams, bytes) else {
            return Ok(());
        };
        self.print(&interval)?;
        if self.plan.args.verbose {
            for (thread, (now, last)) in now.iter().zip(last.iter()).enumerate() {
                let owns_drops = self.plan.owns_drops(thread);
                let line = report::thread_line(thread, now, last, interval.seconds, owns_drops);
                say(self.plan, &line)?;
            }
        }
        // Fresh for the next line. It costs each worker a system call or two, and keeps the
        // kernel's 32-bit count of drops from wrapping unseen.
        self.workers.iter().for_each(RxWorker::refresh);
        *last = now.to_vec();
        Ok(())
    }

    fn print(&self, interval: &Interval) -> Result<()> {
        if self.plan.args.json {
            let object = RecvInterval {
                schema: RECV_SCHEMA.to_owned(),
                kind: "interval".to_owned(),
                seconds: interval.seconds,
                received: interval.datagrams,
                bytes: interval.bytes,
                pps: interval.pps(),
            };
            output::line(Stream::Out, &serde_json::to_string(&object)?)?;
        }
        say(self.plan, &interval.line())
    }

    /// Stops, undoes the carve-out, and answers also what of it could not be undone.
    fn finish(self, before: Snapshot, interrupt: &Interrupt) -> (Finished, Result<()>) {
        let caps = self.workers.first().map(|worker| worker.caps().clone());
        let reports = self.workers.into_iter().map(RxWorker::join).collect();
        let outcomes = self.carve_out.map_or_else(Vec::new, |carve_out| {
            let outcomes = carve_out.undo();
            // Before anything is printed, which may take as long as the reader likes.
            interrupt.release();
            outcomes
        });
        for outcome in &outcomes {
            // The totals follow, whether or not anybody reads this.
            let _ = say(self.plan, &format!("put back: {outcome}"));
        }
        let back = put_back(&outcomes, "--queue-carve-out");
        // The totals are worth more than the host's counters: without them they say `null`.
        let host = snapshot().ok().map(|after| after.since(&before));
        let address = caps.as_ref().map(|caps| caps.local_address.to_string());
        let arrival = caps.as_ref().map_or("socket", arrival);
        let mode = caps.as_ref().map(|caps| caps.mode.summary.clone());
        let mode = mode.unwrap_or_default();
        let finished = Finished {
            reports,
            host,
            receive_buffer_bytes: caps.and_then(|caps| caps.receive_buffer_bytes),
            address: address.unwrap_or_default(),
            arrival,
            mode,
        };
        (finished, back)
    }
}

/// People's lines: on standard output, or on standard error beside `--json`.
fn say(plan: &Plan, text: &str) -> Result<()> {
    let stream = if plan.args.json {
        Stream::Err
    } else {
        Stream::Out
    };
    Ok(output::line(stream, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_may_name_its_interface() {
        assert_eq!(group("239.1.2.3").unwrap().interface_index, 0);
        assert!(group("239.1.2.3%lo").unwrap().interface_index > 0);
        let error = group("239.1.2.3%nosuch0").unwrap_err();
        assert!(format!("{error:#}").contains("nosuch0"));
        assert!(group("%").is_err());
    }
}
