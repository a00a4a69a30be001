//! `mpps send`: UDP as fast as asked or possible.

use super::{Outcome, boot_id, command_line, kernel_release, snapshot};
use crate::args::SendArgs;
use crate::meter::{Interval, Meter, per_second};
use crate::output::{self, Stream};
use crate::signal::Interrupt;
use crate::traffic::{SEND_SCHEMA, SendInterval, SendThread, SendTotal};
use anyhow::{Context, Result, bail, ensure};
use mpps_host::{Grouped, Snapshot, SocketBuffer, Topology};
use mpps_io::{
    Layer, Property, RingConfig, STAMP_BYTES, Stop, Tx, TxCaps, TxConfig, TxReport, TxTask,
    TxWorker, backend,
};
use mpps_os::clock::monotonic_ns;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

/// How often the main thread looks for Ctrl-C and finished workers.
const LOOK: Duration = Duration::from_millis(20);
/// Large, so that a slow receiver does not slow the sender: in-flight packets stay charged to the
/// sending socket.
const SEND_BUFFER_BYTES: usize = 32 << 20;

/// Sends until the count, the time or Ctrl-C.
pub(super) fn run(args: SendArgs) -> Result<Outcome> {
    let plan = Plan::check(args)?;
    let interrupt = Interrupt::listen()?;
    let before = snapshot()?;
    let running = Running::start(&plan)?;
    // A closed pipe ends the run like Ctrl-C does, but the workers must be stopped first.
    let introduced = running.introduce();
    let watched = introduced.and_then(|()| running.watch(&interrupt));
    running.stop.stop();
    let (total, error) = running.finish(&before);
    let meter = watched?;
    let total = meter.fill(total);
    report(&plan, &total)?;
    match error {
        Some(error) => Err(explain_send_error(error, &plan)),
        None => Ok(Outcome::Fine),
    }
}

/// The checked arguments.
struct Plan {
    args: SendArgs,
    threads: usize,
}

impl Plan {
    fn check(args: SendArgs) -> Result<Self> {
        let threads = args.threads.map_or(args.targets.len(), usize::from);
        ensure!(
            threads >= args.targets.len(),
            "--threads {threads}: there are {} targets, and each needs a thread of its own",
            args.targets.len()
        );
        ensure!(
            threads <= 127,
            "{threads} targets: 127 sending threads are the most"
        );
        ensure!(
            !args.stamp || args.size >= STAMP_BYTES,
            "--stamp needs --size {STAMP_BYTES} or more, not {}",
            args.size
        );
        if let Some(pin) = &args.pin {
            Topology::read()?.check(pin).context("--pin")?;
        }
        if let Some(rate) = args.rate {
            ensure!(
                rate / threads as f64 >= 1e-3,
                "--rate {rate}: less than a packet in 1000 s"
            );
        }
        let backend = backend::find(&args.backend).context("--backend")?;
        ensure!(
            backend.sends(),
            "--backend {}: it only receives; `mpps backends` lists those that send",
            backend.name
        );
        ensure!(
            !backend.in_process,
            "--backend {}: it moves packets inside one process, for tests and examples",
            backend.name
        );
        Ok(Self { args, threads })
    }

    fn target(&self, thread: usize) -> SocketAddr {
        self.args.targets[thread % self.args.targets.len()]
    }

    fn config(&self, thread: usize) -> TxConfig {
        let target = self.target(thread);
        let any: IpAddr = match target {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        TxConfig {
            source: Some(SocketAddr::new(any, self.args.source_port)),
            flows: self.args.flows,
            payload_bytes: self.args.size,
            batch: self.batch(),
            gso_segments: self.args.gso,
            connect: !self.args.no_connect,
            send_buffer_bytes: self.send_buffer_bytes(),
            ring: RingConfig {
                target_mac: self.args.target_mac,
                queue: self.queue(thread),
                ..self.args.ring.config()
            },
            ..TxConfig::new(target)
        }
    }

    /// The transmit queue of a thread, where one can be chosen: two rings on one are refused.
    fn queue(&self, thread: usize) -> Option<u32> {
        let row = backend::find(&self.args.backend).ok();
        let has_queues = row.is_some_and(|row| row.tx_options.contains(&"--queue"));
        match self.args.ring.queue {
            None if thread == 0 || !has_queues => None,
            first => u32::try_from(thread)
                .ok()
                .and_then(|thread| thread.checked_add(first.unwrap_or(0))),
        }
    }

    /// What was asked for, or plenty where there is a socket to have it.
    fn send_buffer_bytes(&self) -> Option<usize> {
        let row = backend::find(&self.args.backend).ok();
        let has_socket = row.is_some_and(|row| row.tx_options.contains(&"--sndbuf"));
        self.args.sndbuf.or(has_socket.then_some(SEND_BUFFER_BYTES))
    }

    /// Small enough for every flow to have its turn where there are few datagrams to send.
    fn batch(&self) -> usize {
        let Some(count) = self.args.count.filter(|_| self.args.flows > 1) else {
            return self.args.batch;
        };
        let turns = (self.threads * self.args.flows * usize::from(self.args.gso.max(1))) as u64;
        let each = usize::try_from(count.div_ceil(turns.max(1))).unwrap_or(usize::MAX);
        self.args.batch.min(each.max(1))
    }

    /// The part of a total that falls to one thread: the first ones take the remainder.
    fn part(&self, total: u64, thread: usize) -> u64 {
        let threads = self.threads as u64;
        total / threads + u64::from((thread as u64) < total % threads)
    }
}

/// The workers of a run.
struct Running<'a> {
    plan: &'a Plan,
    workers: Vec<TxWorker>,
    stop: Stop,
    began_ns: u64,
}

impl<'a> Running<'a> {
    fn start(plan: &'a Plan) -> Result<Self> {
        let backend = backend::find(&plan.args.backend)?;
        // All are opened before the first one sends: an error leaves nothing half done.
        let senders = (0..plan.threads)
            .map(|thread| {
                let to = plan.target(thread);
                backend
                    .open_tx(&plan.config(thread))
                    .with_context(|| format!("cannot send to {to}"))
            })
            .collect::<Result<Vec<_>>>()?;
        for tx in &senders {
            check_caps(tx.caps(), &plan.args)?;
        }
        let stop = Stop::new();
        let began_ns = monotonic_ns();
        let task = |(thread, tx): (usize, Box<dyn Tx>)| TxTask {
            tx,
            cpu: plan
                .args
                .pin
                .as_ref()
                .and_then(|pin| pin.0.get(thread % pin.0.len()).copied()),
            stamp: plan.args.stamp.then_some(thread as u8),
            end_markers: true,
            rate_pps: plan.args.rate.map(|rate| rate / plan.threads as f64),
            count: plan.args.count.map(|count| plan.part(count, thread)),
            duration: plan.args.duration,
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

    /// Says what is sent where, and what send buffer it is done with.
    fn introduce(&self) -> Result<()> {
        let args = &self.plan.args;
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
            let (size, name) = (args.size, caps.backend);
            say(
                args,
                &format!("sending {size} bytes from {sources} to {to} by {name}"),
            )?;
        }
        let Some(caps) = self.workers.first().map(TxWorker::caps) else {
            return Ok(());
        };
        say(args, &format!("mode: {}", caps.mode))?;
        if let Some(got) = caps.send_buffer_bytes {
            // The kernel books twice what it grants.
            let asked = self.plan.send_buffer_bytes().unwrap_or(got);
            let buffer = SocketBuffer::send(asked, got * 2)?;
            say(args, &buffer.explanation())?;
        }
        Ok(())
    }

    /// Prints a line a second until the workers are done or somebody asks to stop.
    fn watch(&self, interrupt: &Interrupt) -> Result<Watched> {
        let mut watched = Watched {
            meter: Meter::new(self.began_ns),
            size: self.plan.args.size as u64,
            refused: 0,
        };
        watched.meter.align(self.began_ns);
        let result = loop {
            let now = monotonic_ns();
            let left = Duration::from_nanos(watched.meter.ends_ns().saturating_sub(now));
            thread::sleep(LOOK.min(left));
            let finished = self.workers.iter().all(TxWorker::is_finished);
            if let Err(error) = self.tick(&mut watched) {
                break Err(error);
            }
            if finished || interrupt.came() {
                break Ok(());
            }
        };
        result.map(|()| watched)
    }

    fn tick(&self, watched: &mut Watched) -> Result<()> {
        let (accepted, refused) = self.progress();
        let bytes = accepted * watched.size;
        if let Some(interval) = watched.meter.tick(monotonic_ns(), accepted, bytes) {
            watched.print(self.plan, &interval, refused)?;
        }
        Ok(())
    }

    fn progress(&self) -> (u64, u64) {
        self.workers
            .iter()
            .map(TxWorker::progress)
            .fold((0, 0), |sum, progress| {
                (sum.0 + progress.accepted, sum.1 + progress.refused)
            })
    }

    /// Waits for the workers and adds up what they did.
    fn finish(self, before: &Snapshot) -> (SendTotal, Option<io::Error>) {
        let args = &self.plan.args;
        let caps = self.workers.first().map(|worker| worker.caps().clone());
        let mut reports: Vec<TxReport> = self.workers.into_iter().map(TxWorker::join).collect();
        // The totals are worth more than the host's counters: without them they say `null`.
        let after = snapshot().ok();
        let mut refused_by = BTreeMap::new();
        for (errno, count) in reports.iter().flat_map(|report| &report.refused) {
            let name = io::Error::from_raw_os_error(*errno).to_string();
            *refused_by.entry(name).or_default() += count;
        }
        let first_ns = reports
            .iter()
            .map(|report| report.first_ns)
            .min()
            .unwrap_or(0);
        let last_ns = reports
            .iter()
            .map(|report| report.last_ns)
            .max()
            .unwrap_or(0);
        let threads = reports
            .iter()
            .enumerate()
            .map(|(thread, report)| SendThread {
                cpu: args
                    .pin
                    .as_ref()
                    .and_then(|pin| pin.0.get(thread % pin.0.len()).copied()),
                target: self.plan.target(thread).to_string(),
                run: args.stamp.then_some(report.run),
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
            backend: args.backend.clone(),
            offered: reports.iter().map(TxReport::offered).sum(),
            sent: reports.iter().map(|report| report.accepted).sum(),
            refused: refused_by.values().sum(),
            refused_by,
            end_markers: reports.iter().map(|report| report.end_markers).sum(),
            active_seconds: last_ns.saturating_sub(first_ns) as f64 / 1e9,
            pps_median: 0.0,
            size: args.size,
            gso: args.gso,
            send_buffer_bytes: caps.as_ref().and_then(|caps| caps.send_buffer_bytes),
            departure: departure(caps.as_ref()).to_owned(),
            mode: caps.map(|caps| caps.mode.summary).unwrap_or_default(),
            blocked: reports.iter().map(|report| report.blocked).sum(),
            threads: threads.collect(),
            host: after.map(|after| after.since(before)),
        };
        let error = reports.iter_mut().find_map(|report| report.error.take());
        (total, error)
    }
}

/// How packets leave the program, as the ledger wants to know it.
fn departure(caps: Option<&TxCaps>) -> &'static str {
    match caps {
        Some(caps) if caps.template => "redirect",
        Some(caps) if caps.layer == Layer::Frame => "frames",
        _ => "socket",
    }
}

/// Fails before the first packet if the sender cannot do what was asked.
fn check_caps(caps: &TxCaps, args: &SendArgs) -> Result<()> {
    let required: Vec<Property> = args.ring.required();
    if let Some(first) = caps.mode.lacks(&required).first() {
        bail!(
            "--require {first}: not granted; {} works as: {}",
            caps.backend,
            caps.mode
        );
    }
    Ok(())
}

/// What was seen of the run second by second.
struct Watched {
    meter: Meter,
    size: u64,
    refused: u64,
}

impl Watched {
    fn print(&mut self, plan: &Plan, interval: &Interval, refused: u64) -> Result<()> {
        let new_refused = refused - self.refused;
        self.refused = refused;
        if plan.args.json {
            let object = SendInterval {
                schema: SEND_SCHEMA.to_owned(),
                kind: "interval".to_owned(),
                seconds: interval.seconds,
                offered: interval.datagrams + new_refused,
                sent: interval.datagrams,
                refused: new_refused,
                pps: interval.pps(),
            };
            output::line(Stream::Out, &serde_json::to_string(&object)?)?;
        }
        let offered = per_second(interval.datagrams + new_refused, interval.seconds) / 1e6;
        let refused = per_second(new_refused, interval.seconds) / 1e6;
        let line = interval.line();
        say(
            &plan.args,
            &format!("{line}   offered {offered:.3}M  refused {refused:.3}M"),
        )
    }

    fn fill(self, mut total: SendTotal) -> SendTotal {
        total.pps_median = self.meter.pps_median(total.sent, total.active_seconds);
        total
    }
}

/// Prints the totals for people, and for programs with `--json`.
fn report(plan: &Plan, total: &SendTotal) -> Result<()> {
    let args = &plan.args;
    say(
        args,
        &format!(
            "offered {} = sent {} + refused {}   {:.3}M pps over {:.3} s",
            Grouped(total.offered),
            Grouped(total.sent),
            Grouped(total.refused),
            per_second(total.offered, total.active_seconds) / 1e6,
            total.active_seconds,
        ),
    )?;
    let reached = per_second(total.offered, total.active_seconds);
    if let Some(rate) = args.rate.filter(|rate| reached < 0.95 * rate) {
        let (rate, reached) = (rate / 1e6, reached / 1e6);
        say(
            args,
            &format!("asked for {rate:.3}M pps and reached {reached:.3}M: the CPU did not keep up"),
        )?;
    }
    for (why, count) in &total.refused_by {
        say(args, &format!("refused {}: {why}", Grouped(*count)))?;
    }
    let host = total.host.as_ref();
    let dropped = host.and_then(|host| host.udp("SndbufErrors")).unwrap_or(0);
    if dropped > 0 {
        let dropped = Grouped(dropped.unsigned_abs());
        say(
            args,
            &format!("taken and then dropped on this host: {dropped} (SndbufErrors)"),
        )?;
    }
    if total.blocked > 0 {
        let blocked = total.blocked;
        say(
            args,
            &format!("not open loop: {blocked} calls found the send buffer full"),
        )?;
    }
    if args.json {
        output::line(Stream::Out, &serde_json::to_string(total)?)?;
    }
    Ok(())
}

/// People's lines: on standard output, or on standard error beside `--json`.
fn say(args: &SendArgs, text: &str) -> Result<()> {
    let stream = if args.json { Stream::Err } else { Stream::Out };
    Ok(output::line(stream, text)?)
}

/// What makes every send fail, with what helps.
fn explain_send_error(error: io::Error, plan: &Plan) -> anyhow::Error {
    let (size, gso) = (plan.args.size, plan.args.gso);
    match error.raw_os_error() {
        // EMSGSIZE and EINVAL of include/uapi/asm-generic/errno*.h.
        Some(22 | 90) if gso > 1 => anyhow::anyhow!(
            "--gso {gso} with --size {size}: the kernel refuses such trains ({error}); a segment \
             must fit into the path's MTU, and kernels before 6.9 take 64 segments"
        ),
        Some(90) => anyhow::anyhow!("--size {size}: too large for the path ({error})"),
        _ => anyhow::Error::new(error).context("sending failed"),
    }
}
