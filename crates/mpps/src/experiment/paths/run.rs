//! From the plan of a comparison to its result.

use super::live::Live;
use super::overload;
use super::path::{Napi, Path};
use super::result::{BenchBody, BenchResult, BenchRow};
use super::sample::Sample;
use super::sender::Sender;
use super::spread::{self, Arrangement};
use super::stage::Stage;
use super::{advice, balances, comparison};
use crate::machine;
use crate::measure::rounds::{Case, interleave};
use crate::measure::session::Session;
use crate::signal::Interrupt;
use crate::udp::RATE_DEFINITION;
use crate::udp::roles::Cpus;
use crate::udp::run::Purpose;
use crate::udp::sender::{Generator, Sender as Kind};
use anyhow::{Context, Result, anyhow, bail, ensure};
use mpps_host::{Fingerprint, Topology};
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

/// What is to be measured.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What of the paths.
    pub(crate) question: Question,
    /// Which.
    pub(crate) paths: Vec<Path>,
    /// Who sends.
    pub(crate) generator: Generator,
    /// Flows, by source port.
    pub(crate) flows: usize,
    /// UDP payload of each datagram.
    pub(crate) payload_bytes: usize,
    /// Length of each run.
    pub(crate) time: Duration,
    /// Runs of each row.
    pub(crate) repeats: usize,
}

/// What is asked of the paths.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// What each can take, by who has the CPU.
    Rate,
    /// What those whose queue and application share a CPU deliver of more than they can take.
    Overload,
    /// What early drops make of traffic that comes by more and more queues.
    Spread,
    /// What each can take of the traffic that really comes.
    Live {
        /// The host that sends.
        host: String,
        /// Where it arrives.
        address: SocketAddr,
    },
}

/// Measures, and keeps what is known after each run.
///
/// # Errors
/// If there is no lab, or nothing to send with.
pub(crate) fn run(plan: &Plan, session: &Session) -> Result<BenchResult> {
    let topology = Topology::read()?;
    let bench = Bench {
        plan,
        session,
        sender: &plan.sender()?,
        cpus: Cpus::choose(&topology),
    };
    match &plan.question {
        Question::Rate => bench.rate(),
        Question::Overload => bench.overload(),
        Question::Spread => bench.spread(&topology.usable()),
        Question::Live { host, address } => bench.live(host, *address),
    }
}

/// Each path, and whether it runs on this host.
///
/// # Errors
/// If there is no lab, or nothing to send with.
pub(crate) fn list(plan: &Plan, interrupt: &Interrupt) -> Result<Vec<String>> {
    let (sender, cpus) = (plan.sender()?, Cpus::choose(&Topology::read()?));
    let stage = Stage::new(cpus, Napi::WithGenerator, &sender, interrupt)?;
    let line = |path: &Path| {
        let rest = match stage.obstacle(path) {
            Some(why) => format!("skipped: {why}"),
            None => "runs".to_owned(),
        };
        format!("{:<26} {rest}", path.key())
    };
    Ok(plan.paths.iter().map(line).collect())
}

/// True if every ledger of the plan's result balances that ought to.
///
/// # Errors
/// If no row could run.
pub(crate) fn is_good(plan: &Plan, result: &BenchResult) -> Result<bool> {
    let skipped = result.rows.iter().map(|row| &row.runs.skipped);
    let skipped = skipped.chain(result.spread.iter().map(|row| &row.runs.skipped));
    ensure!(
        !result.complete || !result.overload.is_empty() || skipped.clone().any(Option::is_none),
        "no path could be measured: {}",
        skipped
            .flatten()
            .next()
            .map_or("none can run", String::as_str)
    );
    // What was lost before this host is nobody's count here.
    Ok(matches!(plan.question, Question::Live { .. }) || balances(result))
}

impl Plan {
    fn sender(&self) -> Result<Sender> {
        Sender::choose(self.generator, self.flows, self.payload_bytes).context("--generator")
    }
}

/// A plan under way.
struct Bench<'a> {
    plan: &'a Plan,
    session: &'a Session,
    sender: &'a Sender,
    cpus: Cpus,
}

impl Bench<'_> {
    /// A result without figures.
    fn result(&self, placement: &str, machine: Fingerprint, notes: Vec<String>) -> BenchResult {
        let body = BenchBody {
            rate_definition: RATE_DEFINITION.to_owned(),
            placement: format!("{placement}   Linux {}", machine::kernel_release()),
            sender: self.sender.sentence(),
            flows: self.plan.flows,
            payload_bytes: self.plan.payload_bytes,
            notes,
            rows: Vec::new(),
            overload: Vec::new(),
            spread: Vec::new(),
            advice: Vec::new(),
        };
        self.session.result(machine, body)
    }

    /// A result of two hosts on this machine.
    fn of_lab<'s>(
        &self,
        stages: impl Iterator<Item = &'s Stage<'s>> + Clone,
        placement: &str,
    ) -> Result<BenchResult> {
        let first = stages.clone().next().context("no stage to run on")?;
        let mut notes: Vec<String> = Vec::new();
        for note in stages.flat_map(|stage| stage.lab.notes()) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        let placement = format!("two hosts on this machine   {placement}");
        Ok(self.result(&placement, machine::of_lab(&first.lab)?, notes))
    }

    /// Runs these cases; `find` enters what is known of them.
    fn measure<P: Display, S>(
        &self,
        result: &mut BenchResult,
        cases: &mut [Case<P, S>],
        run: impl FnMut(&Case<P, S>) -> Result<S>,
        find: impl Fn(&mut BenchResult, &[Case<P, S>]),
    ) -> Result<()> {
        let interrupt = &self.session.interrupt;
        result.complete = interleave(cases, self.plan.repeats, interrupt, run, |cases| {
            find(result, cases);
            self.session.keep(result);
            Ok(())
        })?;
        find(result, cases);
        Ok(())
    }

    fn rate(&self) -> Result<BenchResult> {
        let places: &[Napi] = if self.cpus.generator == self.cpus.application {
            &[Napi::WithApplication]
        } else {
            &[Napi::WithGenerator, Napi::Metered, Napi::WithApplication]
        };
        let interrupt = &self.session.interrupt;
        let stages = places.iter();
        let stages = stages.map(|napi| Stage::new(self.cpus, *napi, self.sender, interrupt));
        let stages = stages.collect::<Result<Vec<_>>>()?;
        let mut result = self.of_lab(stages.iter(), &self.cpus.to_string())?;
        let mut cases = comparison::cases(&stages, &self.plan.paths);
        self.measure(
            &mut result,
            &mut cases,
            |case| case.plan.run(self.plan.time, case.samples.is_empty()),
            |result, cases| result.rows = fastest_first(cases.iter().filter_map(comparison::row)),
        )?;
        result.advice = advice(&result.rows);
        Ok(result)
    }

    fn overload(&self) -> Result<BenchResult> {
        let interrupt = &self.session.interrupt;
        let stage = Stage::new(self.cpus, Napi::WithApplication, self.sender, interrupt)?;
        if let Some(why) = stage.misplaced() {
            bail!("--overload: queue and application are to share a CPU, and cannot here: {why}");
        }
        let mut result = self.of_lab([&stage].into_iter(), &self.cpus.to_string())?;
        let run = |path: &Path, asked_mpps: Option<f64>| {
            let purpose = Purpose {
                rate_pps: asked_mpps.map(|rate| rate * 1e6),
                ..Purpose::default()
            };
            stage.run(path, self.plan.time, purpose)
        };
        let paths = self.plan.paths.iter().filter(|path| path.shares_cpu);
        let floods = paths.map(|path| Case::new(*path, stage.obstacle(path)));
        let mut floods: Vec<_> = floods.collect();
        self.measure(
            &mut result,
            &mut floods,
            |flood| run(&flood.plan, None),
            |result, floods| result.overload = overload::curves(&stage, floods, &[]),
        )?;
        result.rows = floods
            .iter()
            .filter(|flood| flood.skipped.is_some())
            .map(|flood| stage.row(&flood.plan, flood.skipped.clone()))
            .collect();
        if result.complete {
            self.measure(
                &mut result,
                &mut overload::loads(&floods),
                |load| run(&load.plan.path, Some(load.plan.asked_mpps)),
                |result, loads| result.overload = overload::curves(&stage, &floods, loads),
            )?;
        }
        Ok(result)
    }

    fn spread(&self, usable: &[usize]) -> Result<BenchResult> {
        let interrupt = &self.session.interrupt;
        let mut arrangements = Arrangement::all(self.sender, usable, interrupt)?;
        let Plan {
            flows,
            payload_bytes,
            generator,
            ..
        } = *self.plan;
        let sockets = Sender::choose(Generator::Sendmmsg, flows, payload_bytes)?;
        // The generator reaches as many queues as there are CPUs. A socket reaches all, and is
        // slower: both are shown, unless one was asked for.
        let may_add = generator == Generator::Auto && self.sender.kind == Kind::Generator;
        if may_add && !Arrangement::is_complete(&arrangements) {
            arrangements.extend(Arrangement::all(&sockets, usable, interrupt)?);
        }
        let stages = arrangements.iter().filter_map(Arrangement::stage);
        let why = arrangements.iter().find_map(Arrangement::obstacle);
        let placement = format!("{} usable CPUs", usable.len());
        let nowhere = || format!("--spread: {}", why.unwrap_or("no arrangement of queues"));
        let mut result = self.of_lab(stages, &placement).with_context(nowhere)?;
        let run = |case: &spread::Row<'_>| -> Result<Sample> {
            let stage = case.plan.arrangement.stage.as_ref();
            let stage = stage.map_err(|why| anyhow!("{why}"))?;
            stage.run(&case.plan.path, self.plan.time, Purpose::default())
        };
        let mut cases = spread::cases(&arrangements, &self.plan.paths);
        self.measure(&mut result, &mut cases, run, |result, cases| {
            result.spread = spread::rows(cases);
        })?;
        result.advice = spread::advice(&result.spread);
        Ok(result)
    }

    fn live(&self, host: &str, address: SocketAddr) -> Result<BenchResult> {
        let cpu = self.cpus.application;
        let command = self.plan.command_of(address);
        let placement = format!("traffic from {host} to {address}   application: CPU {cpu}");
        let note = "early drops are the lab's: on this host they would be its firewall's rules";
        let mut result = self.result(&placement, machine::of_all()?, vec![note.to_owned()]);
        result.sender = format!("{host}: {command}");
        let live = Live {
            address,
            cpu,
            time: self.plan.time,
            interrupt: &self.session.interrupt,
        };
        let paths = self.plan.paths.iter().filter(|path| !path.is_rule());
        let cases = paths.map(|path| Case::new(*path, live.obstacle(path)));
        let mut cases: Vec<_> = cases.collect();
        let mut is_first = true;
        self.measure(
            &mut result,
            &mut cases,
            |case| live.run(&case.plan, std::mem::take(&mut is_first)),
            |result, cases| result.rows = fastest_first(cases.iter().filter_map(Live::row)),
        )?;
        result.advice = advice(&result.rows);
        Ok(result)
    }
}

impl Plan {
    /// What is to run on the host that sends to this address.
    pub(crate) fn command_of(&self, address: SocketAddr) -> String {
        let Self {
            payload_bytes,
            flows,
            ..
        } = self;
        format!("mpps send {address} --stamp --size {payload_bytes} --flows {flows} --gso 16")
    }
}

fn fastest_first(rows: impl Iterator<Item = BenchRow>) -> Vec<BenchRow> {
    let mut rows: Vec<BenchRow> = rows.collect();
    let rate = |row: &BenchRow| row.runs.mpps_median.unwrap_or(-1.0);
    rows.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    rows
}
