//! `mpps lab tcp`: the experiments of the 2014 paper.

use super::CommandEnding;
use super::args::TcpLadderArgs;
use crate::command::ended;
use crate::experiment::connections::{
    CellChoice, CellSchedule, Deal, LinkRate, PlannedCell, cells, document::document,
    run as run_cells,
};
use crate::output::{self, OutputStream};
use crate::signal::EndSignal;
use anyhow::{Context, Result, ensure};
use mpps_host::{SkbDefer, Topology};
use mpps_os::capability::{CAP_NET_ADMIN, CAP_SYS_ADMIN, Rights};
use std::time::Duration;

/// Connections in flight for each of the server's CPUs: few enough for the 150 processes of Apache's
/// prefork on one, and enough to hide the time that moderation holds packets back.
const CONNECTIONS: u64 = 256;
/// The most that `--connections` takes.
const CONNECTIONS_MAX: u64 = 10_000;

/// The length of each run, if the user names none.
const TIME: Duration = Duration::from_millis(700);

/// Measures the cells, or lists them.
pub(super) fn run(args: &TcpLadderArgs) -> Result<CommandEnding> {
    let skb_defer = skb_defer(args)?;
    let deal = Deal::of(&Topology::read()?);
    let server_cpus = deal.as_ref().map_or(1, |deal| deal.servers.len());
    let chosen = choose(args, server_cpus, &skb_defer)?;
    if args.list {
        return list(&chosen);
    }
    // Queues pinned, moderation set, servers that become www-data: all of it needs root.
    let (rights, needed) = (Rights::own(), [CAP_SYS_ADMIN, CAP_NET_ADMIN]);
    ensure!(
        rights.is_initial && needed.iter().all(|one| rights.has(*one)),
        "lab tcp pins kernel threads and starts servers that change their user; {}",
        rights.remedy(&needed)
    );
    let deal =
        deal.context("a server and its load need a CPU each, and this process may use one only")?;
    measure(args, chosen, &deal, skb_defer.ok())
}

/// How to switch off the kernel's reuse of packet buffers, if the user asks for it. Otherwise the
/// reason why it stays on.
fn skb_defer(args: &TcpLadderArgs) -> Result<Result<SkbDefer, String>> {
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
fn choose(
    args: &TcpLadderArgs,
    server_cpus: usize,
    skb_defer: &Result<SkbDefer, String>,
) -> Result<Vec<PlannedCell>> {
    ensure!(
        args.moderation != Some(Duration::ZERO),
        "--moderation 0: the step without it is the one before; take a time such as 100us"
    );
    let choice = |only: &[String]| CellChoice {
        only: only.iter().map(|name| name.trim().to_owned()).collect(),
        server_cpus,
        moderation: args.moderation,
        skb_defer_max: skb_defer
            .as_ref()
            .map(|plan| plan.was)
            .map_err(String::clone),
        quick: args.series.quick,
    };
    for wanted in &args.only {
        ensure!(
            !cells(&choice(std::slice::from_ref(wanted))).is_empty(),
            "--only {wanted}: no such cell; `mpps lab tcp --list` names them"
        );
    }
    let chosen = cells(&choice(&args.only));
    ensure!(
        !args.skb_defer || chosen.iter().any(|cell| cell.row.skb_defer_max.is_some()),
        "--skb-defer: none of these cells is about it; `--only 2` has some, `--quick` none"
    );
    Ok(chosen)
}

fn list(cells: &[PlannedCell]) -> Result<CommandEnding> {
    for cell in cells {
        let planned = cell.row.skipped.clone();
        let rest = match planned.or_else(|| cell.server.find().err()) {
            Some(why) => format!("skipped: {why}"),
            None => format!("switches {}", cell.switches()),
        };
        output::line(
            OutputStream::People,
            &format!("{:<34} {rest}", cell.row.key()),
        )?;
    }
    Ok(CommandEnding::Fine)
}

fn measure(
    args: &TcpLadderArgs,
    cells: Vec<PlannedCell>,
    deal: &Deal,
    skb_defer: Option<SkbDefer>,
) -> Result<CommandEnding> {
    let interrupt = match skb_defer {
        // This machine has its setting back before a second signal can end the process.
        Some(_) => EndSignal::listen_held()?,
        None => EndSignal::listen()?,
    };
    let session = args.series.begin("lab-tcp", interrupt)?;
    let usual = (CONNECTIONS * deal.servers.len() as u64).min(CONNECTIONS_MAX);
    let connections = args.connections.unwrap_or(usual);
    let schedule = schedule(args);
    let link_rate = args.link_rate.map(LinkRate);
    let ran = run_cells(
        cells,
        deal,
        connections,
        link_rate,
        skb_defer,
        schedule,
        &session,
    );
    session.interrupt.release();
    let (result, back) = ran?;
    let document = document(&result, &session.files());
    let told = session.conclude(&result, &document, &document.blocks, result.balances());
    ended(told, back)
}

fn schedule(args: &TcpLadderArgs) -> CellSchedule {
    if args.series.quick {
        return CellSchedule {
            time: Duration::from_millis(400),
            warm_up: Duration::from_millis(50),
            repeats: 1,
        };
    }
    CellSchedule {
        time: args.series.duration.unwrap_or(TIME),
        warm_up: Duration::from_millis(200),
        repeats: args.series.repeats(),
    }
}
