//! `mpps serve`: an HTTP/1.1 server for many short connections.

use super::{Outcome, command_line, ended, engine, fingerprint_at, put_back};
use crate::args::{ServeArgs, ThrottleArg};
use crate::connections::{SERVE_SCHEMA, ServeInterval, ServeTotal, SwitchState};
use crate::meter::per_second;
use crate::output::{self, Stream};
use crate::report::serve::{self as lines, Granted};
use crate::signal::Interrupt;
use anyhow::{Context, Result, bail};
use mpps_host::{Fingerprint, Moderation, ModerationPlan, Throttle, Topology};
use mpps_http::{Close, Content, Ending, Limits, ServeConfig, ServeCounters, Server, Switch, Task};
use mpps_os::clock::{monotonic_ns, process_cpu_ns};
use mpps_os::netlink::{address, link};
use std::io;
use std::thread;
use std::time::{Duration, SystemTime};

/// How often the main thread looks for Ctrl-C and finished workers.
const LOOK: Duration = Duration::from_millis(20);
/// The length of an interval.
const SECOND_NS: u64 = 1_000_000_000;

/// Serves until Ctrl-C or SIGTERM.
pub(super) fn run(args: ServeArgs) -> Result<Outcome> {
    let plan = Plan::check(args)?;
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let fingerprint = fingerprint_at(plan.args.address.ip())?;
    // A changed interface has its settings back before a second signal can end the process.
    let interrupt = match plan.moderation {
        Some(_) => Interrupt::listen_held()?,
        None => Interrupt::listen()?,
    };
    // What fails to start has put back what it did, and is told after that.
    let mut running = Running::start(&plan).inspect_err(|_| interrupt.release())?;
    // A closed pipe ends the run like Ctrl-C does, but connections may end first.
    let watched = running.introduce().and_then(|()| running.watch(&interrupt));
    let (drained, back) = running.drain(&interrupt);
    let total = running.finish(started, fingerprint);
    let told = total.and_then(|total| {
        watched.and(drained)?;
        report(&plan, &total)?;
        // What is still open when all workers have ended is as lost as what no counter explains.
        Ok(if total.unaccounted == 0 && total.open == 0 {
            Outcome::Fine
        } else {
            Outcome::Found
        })
    });
    ended(told, back)
}

/// The checked arguments.
struct Plan {
    args: ServeArgs,
    config: ServeConfig,
    /// Why this engine, if nobody named it.
    chosen: Option<String>,
    moderation: Option<ModerationPlan>,
}

impl Plan {
    fn check(args: ServeArgs) -> Result<Self> {
        let close = args.close.close();
        let reset = close == Close::Rst;
        let (engine, chosen) = engine::choose(args.engine.as_deref(), Task::Serve { reset })?;
        let topology = Topology::read()?;
        if let Some(pin) = &args.pin {
            topology.check(pin).context("--pin")?;
        }
        let switches = args.switches.choose(engine.default_switches());
        let mut cpus = args.pin.as_ref().map_or_else(Vec::new, |pin| pin.0.clone());
        if cpus.is_empty() && switches.has(Switch::Affinity) {
            cpus = topology.usable();
        }
        let places = args
            .pin
            .as_ref()
            .map_or_else(|| topology.usable().len(), |pin| pin.0.len());
        let limits = &args.limits;
        let config = ServeConfig {
            address: args.address,
            engine,
            switches,
            content: match &args.root {
                Some(root) => Content::Root(root.clone()),
                None => Content::Size(args.size),
            },
            close,
            limits: Limits {
                head_bytes: limits.head_bytes,
                head_time: limits.head_time,
                idle_time: limits.idle_time,
                send_time: limits.send_time,
                connections: number(limits.max_connections),
                connections_per_address: limits.max_per_address.map(number),
            },
            workers: args.workers.map_or(places.max(1), usize::from),
            cpus,
            drain_time: limits.drain_time,
            metrics: !args.no_metrics,
        };
        let moderation = moderation(&args)?;
        Ok(Self {
            args,
            config,
            chosen,
            moderation,
        })
    }
}

/// A count as the machine counts.
fn number(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// What `--moderation` will change, if it was asked for.
fn moderation(args: &ServeArgs) -> Result<Option<ModerationPlan>> {
    let Some(time) = args.switches.moderation else {
        return Ok(None);
    };
    let interface = interface(args)?;
    let plan = |throttle| Moderation::plan(&interface, time, throttle).context("--moderation");
    match args.moderation_by.map(ThrottleArg::throttle) {
        Some(throttle) => plan(throttle).map(Some),
        // A driver without coalescing leaves it to the kernel, which the plan tells.
        None => plan(Throttle::Nic)
            .or_else(|_| plan(Throttle::Kernel))
            .map(Some),
    }
}

/// The interface that moderation changes.
fn interface(args: &ServeArgs) -> Result<String> {
    if let Some(name) = &args.interface {
        return Ok(name.clone());
    }
    let ip = args.address.ip();
    if ip.is_unspecified() {
        bail!("--moderation: {ip} is every interface's address; name one by --interface");
    }
    let index = address::interface_of(ip)?;
    let links = link::list()?;
    let link = links.into_iter().find(|link| Some(link.index) == index);
    let link = link.with_context(|| {
        format!(
            "--moderation: no interface of this host has the address {ip}; name one by --interface"
        )
    })?;
    Ok(link.name)
}

/// A server under way, and what was changed for it.
struct Running<'a> {
    plan: &'a Plan,
    server: Server,
    /// None once it was put back.
    moderation: Option<Moderation>,
    moderated: Option<ModerationPlan>,
    began_ns: u64,
    began_cpu_ns: u64,
}

impl<'a> Running<'a> {
    fn start(plan: &'a Plan) -> Result<Self> {
        let (began_ns, began_cpu_ns) = (monotonic_ns(), process_cpu_ns());
        let server = Server::start(&plan.config)
            .with_context(|| format!("cannot serve at {}", plan.args.address))?;
        let moderation = plan
            .moderation
            .as_ref()
            .map(|planned| moderate(plan, planned))
            .transpose()?;
        let moderated = moderation.as_ref().map(Moderation::plan_done).cloned();
        Ok(Self {
            plan,
            server,
            moderation,
            moderated,
            began_ns,
            began_cpu_ns,
        })
    }

    /// Says where and how is served, with a line per switch.
    fn introduce(&self) -> Result<()> {
        let plan = self.plan;
        for line in lines::introduction(&self.granted(), output::width()) {
            say(plan, &line)?;
        }
        if let Some(why) = &plan.chosen {
            say(plan, why)?;
        }
        Ok(())
    }

    fn granted(&self) -> Granted {
        let granted = self.server.granted();
        let mut switches: Vec<SwitchState> = granted
            .switches
            .iter()
            .filter(|(advice, _)| advice.switch != Switch::Moderation)
            .map(|(advice, on)| SwitchState {
                name: advice.switch.name().to_owned(),
                on: *on,
                what: advice.what.to_owned(),
                why_not: off(advice.why_not, *on),
            })
            .collect();
        let place = switches.len().min(1);
        switches.insert(place, lines::moderation(self.moderated.as_ref()));
        Granted {
            address: self.server.address(),
            engine: granted.engine,
            switches,
            cpus: granted.worker_cpus.clone(),
            content: self.plan.config.content.clone(),
            close: self.plan.args.close.name(),
            metrics: self.plan.config.metrics,
            descriptors: granted.descriptors,
            limits: self.plan.config.limits.clone(),
        }
    }

    /// Prints a line a second until somebody asks to stop, or a worker has failed.
    fn watch(&self, interrupt: &Interrupt) -> Result<()> {
        let mut last = (self.began_ns, self.began_cpu_ns, ServeCounters::default());
        while !interrupt.came() && !self.server.is_finished() {
            let now = monotonic_ns();
            let ends = last.0 + SECOND_NS;
            if now < ends {
                thread::sleep(LOOK.min(Duration::from_nanos(ends - now)));
                continue;
            }
            let next = (now, process_cpu_ns(), self.server.counters());
            self.print(&interval(&last, &next))?;
            last = next;
        }
        Ok(())
    }

    fn print(&self, interval: &ServeInterval) -> Result<()> {
        if self.plan.args.json {
            output::line(Stream::Out, &serde_json::to_string(interval)?)?;
        }
        say(self.plan, &lines::second(interval))
    }

    /// Gives the interface its settings back, and lets open connections end, as long as they may.
    /// Answers what could not be printed, and what could not be put back.
    fn drain(&mut self, interrupt: &Interrupt) -> (Result<()>, Result<()>) {
        let open = self.server.counters().open;
        self.server.drain();
        // Before the wait, which a second signal cuts short, and with it the process.
        let moderation = self.moderation.take();
        let outcomes = moderation.map(Moderation::undo).unwrap_or_default();
        interrupt.release();
        for outcome in &outcomes {
            // The totals follow, whether or not anybody reads this.
            let _ = say(self.plan, &format!("put back: {outcome}"));
        }
        // Whether or not somebody reads it, connections are waited for.
        let told = if open > 0 {
            let time = self.plan.args.limits.drain_time.as_secs_f64();
            let text = format!("draining: {open} connections have {time} s to end");
            say(self.plan, &text)
        } else {
            Ok(())
        };
        while !self.server.is_finished() {
            thread::sleep(LOOK);
        }
        (told, put_back(&outcomes, "--moderation"))
    }

    fn finish(self, started: String, fingerprint: Fingerprint) -> Result<ServeTotal> {
        let granted = self.granted();
        let plan = self.plan;
        let seconds = (monotonic_ns() - self.began_ns) as f64 / 1e9;
        let counters = self.server.wait().context("serving failed")?;
        let cpu_ns = process_cpu_ns().saturating_sub(self.began_cpu_ns);
        let ended = |ending: &Ending| (ending.name().to_owned(), counters.ended(*ending));
        let statuses = counters.statuses.iter().zip(1..);
        Ok(ServeTotal {
            schema: SERVE_SCHEMA.to_owned(),
            kind: "total".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command_line(),
            started,
            fingerprint,
            address: granted.address.to_string(),
            engine: granted.engine.to_owned(),
            switches: granted.switches,
            workers: plan.config.workers,
            cpus: granted.cpus.into_iter().flatten().collect(),
            close: plan.args.close.name().to_owned(),
            seconds,
            accepted: counters.accepted,
            ended: Ending::ALL.iter().map(ended).collect(),
            open: counters.open,
            unaccounted: counters.accepted as i64 - (counters.closed() + counters.open) as i64,
            requests: counters.requests,
            statuses: statuses
                .map(|(count, class)| (format!("{class}xx"), *count))
                .collect(),
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
            system_calls: counters.system_calls,
            accept_errors: counters.accept_errors,
            cpu_seconds: cpu_ns as f64 / 1e9,
            cpu_us_per_connection: (counters.accepted > 0)
                .then(|| cpu_ns as f64 / 1e3 / counters.accepted as f64),
        })
    }
}

/// Carries a moderation out. Where nobody said who is to wait, and the card's driver turns out
/// not to take the value, the kernel waits.
fn moderate(plan: &Plan, planned: &ModerationPlan) -> Result<Moderation> {
    let applied = Moderation::apply(planned);
    let is_open = plan.args.moderation_by.is_none() && planned.throttle == Throttle::Nic;
    match applied {
        Err(error @ mpps_host::Error::Impossible { .. }) if is_open => {
            say(plan, &format!("the card does not wait: {error}"))?;
            let time = Duration::from_nanos(planned.time_ns);
            let second = Moderation::plan(&planned.interface, time, Throttle::Kernel)?;
            Moderation::apply(&second).context("--moderation")
        }
        applied => applied.context("--moderation"),
    }
}

/// Why a switch is off: because it does not help, or because somebody said so.
fn off(why_not: &str, on: bool) -> String {
    match (on, why_not) {
        (true, _) => String::new(),
        (false, "") => "as asked".to_owned(),
        (false, why) => why.to_owned(),
    }
}

/// What happened between two looks: when, CPU time, counters.
fn interval(last: &(u64, u64, ServeCounters), now: &(u64, u64, ServeCounters)) -> ServeInterval {
    let seconds = (now.0 - last.0) as f64 / 1e9;
    let rate = |now: u64, last: u64| per_second(now.saturating_sub(last), seconds);
    ServeInterval {
        schema: SERVE_SCHEMA.to_owned(),
        kind: "interval".to_owned(),
        seconds,
        connections_per_second: rate(now.2.accepted, last.2.accepted),
        requests_per_second: rate(now.2.requests, last.2.requests),
        bytes_per_second: rate(now.2.bytes_sent, last.2.bytes_sent),
        open: now.2.open,
        cpu: rate(now.1, last.1) / 1e9,
    }
}

/// Prints the totals for people, and for programs with `--json`.
fn report(plan: &Plan, total: &ServeTotal) -> io::Result<()> {
    for line in lines::totals(total, output::width()) {
        output::line(stream(plan), &line)?;
    }
    if plan.args.json {
        let text = serde_json::to_string(total).map_err(io::Error::from)?;
        output::line(Stream::Out, &text)?;
    }
    Ok(())
}

/// Where people's lines go: to standard output, or to standard error beside `--json`.
fn stream(plan: &Plan) -> Stream {
    if plan.args.json {
        Stream::Err
    } else {
        Stream::Out
    }
}

fn say(plan: &Plan, text: &str) -> Result<()> {
    Ok(output::line(stream(plan), text)?)
}
