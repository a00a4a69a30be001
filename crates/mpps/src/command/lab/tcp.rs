//! `mpps lab tcp`: the experiments of the 2014 paper.

use super::files::OutputFile;
use super::{Outcome, command_line, kernel_release, output_files, progress};
use crate::args::LabArgs;
use crate::bench::Cpus;
use crate::command::ended;
use crate::output::{self, Stream};
use crate::report::tcp_lab::{html, text::TcpLabText};
use crate::signal::Interrupt;
use crate::tcp_lab::result::{TCP_LAB_SCHEMA, TcpLabResult};
use crate::tcp_lab::{CPU_METHOD, Campaign, Cell, Choice, Schedule, Stage, cells};
use anyhow::{Context, Result, ensure};
use mpps_host::{SkbDefer, SkbDeferPlan, Topology};
use mpps_os::{capability, sched};
use std::time::{Duration, SystemTime};

/// Connections in flight: few enough for the 150 processes of Apache's prefork, and enough to hide
/// the time that moderation holds packets back.
const CONNECTIONS: u64 = 256;
/// The period of moderation: some connections per poll, at a small part of their life.
const MODERATION: Duration = Duration::from_micros(500);

/// Measures the cells, or lists them.
pub(super) fn run(args: &LabArgs) -> Result<Outcome> {
    let skb_defer = skb_defer(args)?;
    let chosen = choose(args, &skb_defer)?;
    if args.list {
        return list(&chosen);
    }
    // Queues pinned, moderation set, servers that become www-data: all of it needs root.
    ensure!(
        capability::in_initial_user_namespace()
            && capability::effective(capability::CAP_SYS_ADMIN)
            && capability::effective(capability::CAP_NET_ADMIN),
        "lab tcp pins kernel threads and starts servers that change their user; run as root"
    );
    measure(args, chosen, skb_defer.ok())
}

/// How the kernel's reuse of packet buffers is switched off if that is asked for, and else why it is
/// not.
fn skb_defer(args: &LabArgs) -> Result<Result<SkbDeferPlan, String>> {
    let plan = SkbDefer::plan();
    if args.skb_defer {
        return Ok(Ok(plan.context("--skb-defer")?));
    }
    Ok(Err(match plan {
        Ok(plan) => format!(
            "it needs --skb-defer, which changes net.core.skb_defer_max of this machine, {} now, \
             while the lab runs",
            plan.was
        ),
        Err(error) => error.to_string(),
    }))
}

/// The cells that `--only` names.
fn choose(args: &LabArgs, skb_defer: &Result<SkbDeferPlan, String>) -> Result<Vec<Cell>> {
    ensure!(
        args.moderation != Some(Duration::ZERO),
        "--moderation 0: the step without it is the one before; take a time such as 100us"
    );
    let choice = |only: &[String]| Choice {
        only: only.iter().map(|name| name.trim().to_owned()).collect(),
        moderation: args.moderation.unwrap_or(MODERATION),
        skb_defer_max: skb_defer
            .as_ref()
            .map(|plan| plan.was)
            .map_err(String::clone),
        quick: args.quick,
    };
    for wanted in &args.only {
        ensure!(
            !cells(&choice(std::slice::from_ref(wanted))).is_empty(),
            "--only {wanted}: no such cell; `mpps lab tcp --list` names them"
        );
    }
    let chosen = cells(&choice(&args.only));
    ensure!(
        !args.skb_defer || chosen.iter().any(|cell| cell.skb_defer_max.is_some()),
        "--skb-defer: none of these cells is about it; `--only 2` has some, `--quick` none"
    );
    Ok(chosen)
}

fn list(cells: &[Cell]) -> Result<Outcome> {
    for cell in cells {
        let obstacle = cell.skipped.clone().or_else(|| cell.server.find().err());
        let rest = match obstacle {
            Some(why) => format!("skipped: {why}"),
            None => format!("switches {}", cell.switches),
        };
        output::line(Stream::Out, &format!("{:<34} {rest}", cell.key()))?;
    }
    Ok(Outcome::Fine)
}

fn measure(args: &LabArgs, chosen: Vec<Cell>, skb_defer: Option<SkbDeferPlan>) -> Result<Outcome> {
    let files = output_files(args)?;
    if skb_defer.is_none() {
        return campaign(args, chosen, None, files, &Interrupt::listen()?);
    }
    // This machine has its setting back before a second signal can end the process.
    let interrupt = Interrupt::listen_held()?;
    // What fails has put it back, and is told after that.
    campaign(args, chosen, skb_defer, files, &interrupt).inspect_err(|_| interrupt.release())
}

fn campaign(
    args: &LabArgs,
    chosen: Vec<Cell>,
    skb_defer: Option<SkbDeferPlan>,
    (json, page): (OutputFile, OutputFile),
    interrupt: &Interrupt,
) -> Result<Outcome> {
    skb_defer.as_ref().map_or(Ok(()), Stage::rehearse)?;
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let cpus = Cpus::choose(&Topology::read()?);
    ensure!(
        cpus.generator != cpus.application,
        "a server and its load need a CPU each, and this process may use one only"
    );
    let connections = args.connections.unwrap_or(CONNECTIONS);
    let held = skb_defer.is_some();
    let stage = Stage::new(cpus, connections, &chosen, skb_defer, interrupt)?;
    // What this process does between runs, and what it starts, stays off the server's CPU.
    sched::pin_current(&[cpus.generator])?;
    let mut campaign = Campaign::new(&stage, schedule(args), chosen);
    let bar = progress(campaign.steps());
    let ran = campaign.run(|cell| {
        bar.set_message(cell.key());
        bar.inc(1);
    });
    // Before anything else: also after Ctrl-C, and after a failure, which is told with it.
    let back = stage.put_back();
    if held {
        interrupt.release();
    }
    bar.finish_and_clear();
    let result = ran.and_then(|complete| {
        Ok(TcpLabResult {
            schema: TCP_LAB_SCHEMA.to_owned(),
            fingerprint: stage.fingerprint()?,
            command: command_line(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            quick: args.quick,
            complete,
            placement: placement(cpus),
            load: format!(
                "mpps load: {connections} connections in flight, one request on each, \
                 `Connection: close`, the server closes first"
            ),
            cpu_method: CPU_METHOD.to_owned(),
            notes: stage.notes(),
            servers: campaign.servers(),
            cells: campaign.results(),
        })
    });
    drop(stage);
    ended(
        result.and_then(|result| conclude(&result, json, page)),
        back,
    )
}

fn placement(cpus: Cpus) -> String {
    format!(
        "two hosts on this machine   server and its queue: CPU {}   load: CPU {}   Linux {}",
        cpus.application,
        cpus.generator,
        kernel_release()
    )
}

/// Writes the report, and says whether every ledger balances.
fn conclude(result: &TcpLabResult, json: OutputFile, page: OutputFile) -> Result<Outcome> {
    report(result, json, page)?;
    Ok(match (result.complete, result.balances()) {
        (false, _) => Outcome::Interrupted,
        (true, false) => Outcome::Found,
        (true, true) => Outcome::Fine,
    })
}

fn schedule(args: &LabArgs) -> Schedule {
    if args.quick {
        return Schedule {
            time: Duration::from_millis(400),
            warm_up: Duration::from_millis(50),
            repeats: 1,
        };
    }
    Schedule {
        time: args.seconds,
        warm_up: Duration::from_millis(200),
        repeats: usize::from(args.repeat),
    }
}

fn report(result: &TcpLabResult, json: OutputFile, page: OutputFile) -> Result<()> {
    let text = TcpLabText::new(output::width(), output::colour());
    let files = [
        ("report", page.path().to_owned()),
        ("data", json.path().to_owned()),
    ];
    let name = json
        .path()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let mut data = Vec::new();
    crate::report::json::write(result, &mut data)?;
    json.write(&data)?;
    page.write(html::page(result, name.as_deref()).as_bytes())?;
    let files: Vec<_> = files
        .iter()
        .map(|(what, path)| (*what, path.as_path()))
        .collect();
    Ok(output::line(
        Stream::Out,
        text.report(result, &files).trim_end(),
    )?)
}
