//! `mpps serve`: an HTTP/1.1 server for many short connections.

use super::connections::{CLASSES, ServeBody, ServeInterval, ServeResult};
use super::lines::{LOOK, OutputLines, until_stopped};
use super::meter::{Interval, Meter};
use super::undo_helper::Keeper;
use crate::failure::flags::HTTP;
use crate::machine::{command_line, fingerprint_at, now};
use crate::measure::connection_ledger::account;
use crate::measure::document::{RunHead, counted, document_of};
use crate::measure::envelope::EnvelopeBody;
use crate::measure::outcome::{CommandEnding, ended, put_back};
use crate::signal::EndSignal;
use anyhow::{Context, Result};
use mpps_host::{CpuList, Fingerprint, Moderation};
use mpps_http::{Ending, ServeConfig, ServedContent, Server, Switch, SwitchState};
use mpps_os::clock::{monotonic_ns, process_cpu_ns};
use mpps_os::user::{self, User};
use mpps_report::{Block, Column, Document, Quantity, Row, Table, grouped};
use std::path::Path;
use std::thread;

/// A server that can be run.
#[derive(Debug)]
pub(crate) struct ServePlan {
    pub(crate) config: ServeConfig,
    /// Why this engine, if the user named none.
    pub(crate) chosen: Option<String>,
    /// As whom root goes on.
    pub(crate) user: Option<User>,
    /// Possible changes of an interface while the server runs. The first that works is made.
    pub(crate) moderation: Vec<Moderation>,
    pub(crate) lines: OutputLines,
}

impl ServePlan {
    /// Serves until Ctrl-C or SIGTERM.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        let started = now();
        let fingerprint = fingerprint_at(self.config.address.ip())?;
        // A changed interface has its settings back before a second signal can end the process.
        let interrupt = match self.moderation.is_empty() {
            false => EndSignal::listen_held()?,
            true => EndSignal::listen()?,
        };
        // A failed start has undone its changes. The error is reported after that.
        let mut running = ServeRun::start(self).inspect_err(|_| interrupt.release())?;
        // A closed pipe ends the run like Ctrl-C does, but connections may end first.
        let watched = running.introduce().and_then(|()| running.watch(&interrupt));
        let (drained, back) = running.drain(&interrupt);
        let total = running.finish(started, fingerprint);
        let told = total.and_then(|total| {
            watched.and(drained)?;
            self.lines.tell(&totals(&total))?;
            self.lines.object(&total)?;
            // A connection still open after all workers ended is lost, like an unaccounted one.
            Ok(CommandEnding::of(true, total.is_fine()))
        });
        ended(told, back)
    }

    /// Starts the process that will moderate, if that was asked for, while there are rights to keep.
    fn keeper(&self) -> Result<Option<Keeper>> {
        let changes: Vec<_> = self.moderation.iter().map(|plan| &plan.change).collect();
        (!changes.is_empty())
            .then(|| Keeper::start(&changes))
            .transpose()
    }

    /// Opens all that needs rights, gives them up, and starts the workers.
    fn serve(&self) -> Result<Server> {
        let at = || format!("cannot serve at {}", self.config.address);
        let opened = Server::open(&self.config).with_context(at)?;
        if let Some(user) = &self.user {
            crate::output::open_json()?;
            user.become_for_good().context("--user")?;
        }
        let opened = opened.start(&self.config);
        opened.with_context(|| match &self.user {
            Some(user) => format!("{} as user {} (--user)", at(), user.name),
            None => at(),
        })
    }

    /// Has a moderation carried out.
    fn moderate(&self, keeper: &mut Keeper) -> Result<Moderation> {
        let (at, refused) = keeper.make().context("--moderation")?;
        for why in refused {
            self.lines.say(&format!("the card does not wait: {why}"))?;
        }
        let made = self.moderation.get(at).context("--moderation")?;
        Ok(made.clone())
    }
}

/// A server under way, and what was changed for it.
struct ServeRun<'a> {
    plan: &'a ServePlan,
    server: Server,
    /// None once it was put back.
    moderation: Option<Keeper>,
    moderated: Option<Moderation>,
    began_ns: u64,
    began_cpu_ns: u64,
}

impl<'a> ServeRun<'a> {
    fn start(plan: &'a ServePlan) -> Result<Self> {
        let (began_ns, began_cpu_ns) = (monotonic_ns(), process_cpu_ns());
        let mut moderation = plan.keeper()?;
        let server = plan.serve()?;
        let moderated = moderation
            .as_mut()
            .map(|keeper| plan.moderate(keeper))
            .transpose()?;
        Ok(Self {
            plan,
            server,
            moderation,
            moderated,
            began_ns,
            began_cpu_ns,
        })
    }

    /// Says where and how is served, with a line per switch. The first line is for programs as well:
    /// the address stands behind `http://`.
    fn introduce(&self) -> Result<()> {
        let (lines, config) = (self.plan.lines, &self.plan.config);
        lines.say(&format!("serving at http://{}/", self.server.address()))?;
        let granted = self.server.granted();
        let switches = self.switches();
        let mut said = vec![self.facts()];
        let has_slots = switches
            .iter()
            .any(|switch| switch.on && switch.name == Switch::Fds);
        // Each connection takes a descriptor, unless it takes a slot of a ring.
        if !has_slots && granted.descriptors < config.limits.connections as u64 {
            said.push(format!(
                "{} descriptors are fewer than the {} connections allowed: raise `ulimit -n`, or \
                 lower --max-connections",
                granted.descriptors, config.limits.connections
            ));
        }
        let mut blocks: Vec<Block> = said.into_iter().map(Block::paragraph).collect();
        blocks.push(table(&switches).into());
        blocks.extend(self.plan.chosen.as_deref().map(Block::paragraph));
        lines.tell(&blocks)
    }

    /// The outcome of each switch.
    fn switches(&self) -> Vec<SwitchState> {
        let mut switches = self.server.granted().switches.clone();
        switches.retain(|switch| switch.name != Switch::Moderation);
        for switch in &mut switches {
            switch.what = HTTP.translate(&switch.what);
        }
        let place = switches.len().min(1);
        switches.insert(place, moderation(self.moderated.as_ref()));
        switches
    }

    /// Prints a line a second until a signal asks to stop, or all workers have ended.
    fn watch(&self, interrupt: &EndSignal) -> Result<()> {
        let lines = self.plan.lines;
        let mut meter = Meter::new(self.began_ns, [0, 0, 0, self.began_cpu_ns]);
        until_stopped(interrupt, meter.ends_ns(), || {
            let now = self.server.counters();
            let counts = [now.accepted, now.requests, now.bytes_sent, process_cpu_ns()];
            if let Some(interval) = meter.tick(monotonic_ns(), counts) {
                let second = second(&interval, now.open);
                lines.object(&second)?;
                lines.say(&line(&second))?;
            }
            Ok((!self.server.is_finished()).then(|| meter.ends_ns()))
        })
    }

    /// Gives the interface its settings back, and lets open connections end, as long as they may.
    /// Answers what could not be printed, and what could not be put back.
    fn drain(&mut self, interrupt: &EndSignal) -> (Result<()>, Result<()>) {
        let lines = self.plan.lines;
        let open = self.server.counters().open;
        self.server.drain();
        // Before the wait, which a second signal cuts short, and with it the process.
        let moderation = self.moderation.take();
        let outcomes = moderation.map(Keeper::undo).unwrap_or_default();
        interrupt.release();
        for outcome in &outcomes {
            // The totals follow, even if no program reads this line.
            let _ = lines.say(&format!("put back: {outcome}"));
        }
        // Connections get their time to end, even if no program reads this line.
        let told = if open > 0 {
            let time = self.plan.config.drain_time.as_secs_f64();
            lines.say(&format!(
                "draining: {open} connections have {time} s to end"
            ))
        } else {
            Ok(())
        };
        while !self.server.is_finished() {
            thread::sleep(LOOK);
        }
        (told, put_back(&outcomes, "--moderation"))
    }

    fn finish(self, started: String, fingerprint: Fingerprint) -> Result<ServeResult> {
        let (address, switches, placement) = (self.server.address(), self.switches(), self.facts());
        let granted = self.server.granted();
        let (engine, cpus) = (granted.engine, granted.worker_cpus.clone());
        let seconds = (monotonic_ns() - self.began_ns) as f64 / 1e9;
        // Every worker has ended: its counts are whole.
        let accepted_by_worker = self.server.accepted();
        let counters = self.server.wait().context("serving failed")?;
        let cpu_ns = process_cpu_ns().saturating_sub(self.began_cpu_ns);
        let ended = Ending::ALL.map(|ending| (ending, counters.ended(ending)));
        let statuses = CLASSES.map(str::to_owned).into_iter();
        let mut total = ServeBody {
            kind: "total".to_owned(),
            placement,
            address: address.to_string(),
            engine: engine.to_owned(),
            switches,
            workers: self.plan.config.workers,
            cpus: cpus.into_iter().flatten().collect(),
            close: self.plan.config.close,
            seconds,
            accepted: counters.accepted,
            accepted_by_worker,
            ended: ended.into(),
            open: counters.open,
            unaccounted: 0,
            requests: counters.requests,
            statuses: statuses.zip(counters.statuses).collect(),
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
            system_calls: counters.system_calls,
            accept_errors: counters.accept_errors,
            cpu_seconds: cpu_ns as f64 / 1e9,
            cpu_us_per_connection: (counters.accepted > 0)
                .then(|| cpu_ns as f64 / 1e3 / counters.accepted as f64),
        };
        total.unaccounted = total.remainder();
        let mut result = ServeResult::new(fingerprint, command_line(), started, total);
        result.complete = result.open == 0;
        Ok(result)
    }

    /// The content, its server, and the side that ends connections, in one line.
    fn facts(&self) -> String {
        let (config, granted) = (&self.plan.config, self.server.granted());
        let what = match &config.content {
            ServedContent::Size(bytes) => {
                format!("{} bytes at every path", grouped(*bytes as u128))
            }
            ServedContent::Root(root) => {
                format!("the files below {}", root.display())
            }
        };
        let user = match &self.plan.user {
            Some(user) => format!("; user {}, without rights", user.name),
            None if user::is_root() => "; user root".to_owned(),
            None => String::new(),
        };
        format!(
            "{what}; engine {}, {}; connections are ended by {}{user}",
            granted.engine,
            workers(&granted.worker_cpus),
            config.close
        )
    }
}

/// The state of the one switch that acts on an interface.
fn moderation(done: Option<&Moderation>) -> SwitchState {
    let (what, why_not) = match done {
        Some(plan) => (plan.to_string(), ""),
        None => (
            "interrupts of the interface throttled".to_owned(),
            "acts on the whole interface, and so only with --moderation TIME",
        ),
    };
    SwitchState {
        name: Switch::Moderation,
        on: done.is_some_and(|plan| plan.time_ns > 0),
        what,
        why_not: why_not.to_owned(),
    }
}

/// `2 workers on CPUs 0-1`.
fn workers(cpus: &[Option<usize>]) -> String {
    let count = counted(cpus.len(), "worker");
    let mut places: Vec<usize> = cpus.iter().flatten().copied().collect();
    places.sort_unstable();
    places.dedup();
    match places.len() {
        0 => format!("{count}, wherever the scheduler puts them"),
        1 => format!("{count} on CPU {}", CpuList(places)),
        _ => format!("{count} on CPUs {}", CpuList(places)),
    }
}

fn table(switches: &[SwitchState]) -> Table {
    let rows = switches.iter().map(|switch| {
        let state = if switch.on { "on" } else { "off" };
        let why_not = match &*switch.why_not {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        let what = format!("{}{why_not}", switch.what);
        Row::new([switch.name.to_string().into(), state.into(), what.into()])
    });
    let columns = [
        Column::words("", 10),
        Column::words("", 3),
        Column::words("", 20).grow(400),
    ];
    Table::new(columns).rows(rows)
}

fn second(interval: &Interval<4>, open: u64) -> ServeInterval {
    let [connections, requests, bytes, cpu_ns] = interval.rates();
    ServeInterval {
        schema: ServeBody::SCHEMA.to_owned(),
        kind: "interval".to_owned(),
        seconds: interval.seconds,
        connections_per_second: connections,
        requests_per_second: requests,
        bytes_per_second: bytes,
        open,
        cpu: cpu_ns / 1e9,
    }
}

/// `12 345 connections/s  12 345 requests/s  13.20 MiB/s   open 64     CPU 0.93`.
fn line(second: &ServeInterval) -> String {
    let rate = |rate: f64| Quantity::PerSecond(rate).figure();
    format!(
        "{:>7} connections/s {:>7} requests/s {:>9}/s   open {:<6} CPU {:.2}",
        rate(second.connections_per_second),
        rate(second.requests_per_second),
        Quantity::Mebibytes(second.bytes_per_second).to_string(),
        second.open,
        second.cpu,
    )
}

/// The report of a server that has ended; `written` are the kinds and paths of its files.
pub(crate) fn document(result: &ServeResult, written: &[(&str, &Path)]) -> Document {
    let head = RunHead::of(result, &result.placement, "connection", &[]);
    let address = format!("served at http://{}/", result.address);
    let mut blocks = head.first([Block::paragraph(address)]);
    blocks.push(table(&result.switches).into());
    blocks.extend(totals(result));
    blocks.push(head.last());
    let about =
        "The CPU time is of the whole process, with the soft interrupts that ran on top of it.";
    let title = "mpps serve: how every connection ended";
    document_of(title, result, blocks, [about.into()], written)
}

/// The totals as people read them.
fn totals(total: &ServeBody) -> Vec<Block> {
    let count = |count: u64| grouped(count.into());
    let ended = total.ended.iter().filter(|(_, count)| **count > 0);
    let ended = ended
        .map(|(how, number)| format!("{} {}", count(*number), how.to_string().replace('_', " ")));
    let ended = match &*ended.collect::<Vec<_>>() {
        [] => "0".to_owned(),
        some => some.join(" + "),
    };
    let statuses = total.statuses.iter().filter(|(_, count)| **count > 0);
    let statuses = statuses.map(|(class, number)| format!("{class} {}", count(*number)));
    let statuses = match &*statuses.collect::<Vec<_>>() {
        [] => String::new(),
        some => format!(" ({})", some.join(", ")),
    };
    let cpu = total.cpu_us_per_connection.map_or_else(String::new, |us| {
        format!(", {} CPU a connection", Quantity::Microseconds(us))
    });
    let accepted = format!(
        "accepted {} = ended {ended} + open {}",
        count(total.accepted),
        count(total.open)
    );
    let accepted = account("", accepted, total.unaccounted, Vec::new());
    let requests = format!(
        "requests {}{statuses}, sent {} in {}{cpu}",
        count(total.requests),
        Quantity::Mebibytes(total.bytes_sent as f64),
        Quantity::Seconds(total.seconds),
    );
    let mut blocks = vec![accepted.into(), Block::paragraph(requests)];
    if total.accept_errors > 0 {
        blocks.push(Block::paragraph(format!(
            "accepting was refused {} times: raise `ulimit -n`, or lower --max-connections",
            count(total.accept_errors)
        )));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_report::{Terminal, page};
    use mpps_trial::mentions;

    const FIXTURE: &str = include_str!("../../tests/fixtures/serve.json");

    #[test]
    fn every_switch_has_a_line_and_none_is_too_long() {
        let switch = |name: Switch, on: bool| SwitchState {
            name,
            on,
            what: "a sentence that is long enough to need more than one line of a narrow terminal"
                .to_owned(),
            why_not: if on { "" } else { "as asked" }.to_owned(),
        };
        let all = [
            switch(Switch::Affinity, true),
            moderation(None),
            switch(Switch::Fds, false),
        ];
        for width in [40, 60, 80, 160] {
            let text = Terminal::new(width, false).blocks(&[table(&all).into()]);
            for name in ["affinity    on", "moderation  off", "fds         off"] {
                let found = text.lines().filter(|line| line.contains(name)).count();
                assert_eq!(found, 1, "{name}: {text}");
            }
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {text}");
        }
    }

    #[test]
    fn workers_are_told_with_their_cpus() {
        assert_eq!(workers(&[Some(1), Some(0)]), "2 workers on CPUs 0-1");
        assert_eq!(workers(&[Some(3), Some(3)]), "2 workers on CPU 3");
        assert!(workers(&[None]).starts_with("1 worker, wherever"));
    }

    #[test]
    fn a_second_fits_a_narrow_terminal() {
        let interval = Interval {
            seconds: 1.0,
            counts: [123_457, 123_457, 1_000_000_000, 1_500_000_000],
        };
        let line = line(&second(&interval, 10_000)).replace('\u{a0}', " ");
        assert!(line.chars().count() <= 80, "{line}");
        mentions(
            &line,
            "123 457 connections/s | 954 MiB/s | open 10000  CPU 1.50",
        );
    }

    #[test]
    fn totals_are_an_equation() {
        let total = ServeResult::parse(FIXTURE).expect("the fixture is a result");
        let text = Terminal::new(100, false).blocks(&totals(&total));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_was_read_is_written_back_byte_for_byte() {
        let total = ServeResult::parse(FIXTURE).expect("the fixture is a result");
        let text = serde_json::to_string_pretty(&total).expect("it is JSON");
        assert_eq!(text + "\n", FIXTURE);
    }

    #[test]
    fn a_changed_account_is_refused() {
        let text = FIXTURE.replace("\"accepted\": 100003", "\"accepted\": 100004");
        ServeResult::parse(&text).expect_err("one is missing");
    }

    #[test]
    fn a_server_that_ended_is_told_whole() {
        let mut total = ServeResult::parse(FIXTURE).expect("the fixture is a result");
        total.placement = "<script>".to_owned();
        let shown = document(&total, &[]);
        let text = Terminal::new(100, false).document(&shown);
        for part in [
            "served at http://127.0.0.1:8080/",
            "moderation  off",
            "UNACCOUNTED 0",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            text.contains("ended before its last connection"),
            "one was open: {text}"
        );
        assert!(!page(&shown).contains("<script"));
    }
}
