//! All runs of all cells, interleaved, and what they give together.

use super::best::best;
use super::cpu_split::Deal;
use super::link_rate::LinkRate;
use super::plan::PlannedCell;
use super::result::{ConnectionLedger, ServerFacts, TcpCell, TcpLabBody, TcpLabResult};
use super::sample::{CPU_METHOD, CellSample};
use super::server::{RunningServer, SERVERS};
use super::stage::ConnectionLab;
use crate::machine::kernel_release;
use crate::measure::document::counted;
use crate::measure::outcome::ended;
use crate::measure::rounds::{Case, interleave};
use crate::measure::session::Session;
use anyhow::{Result, anyhow};
use mpps_host::{SkbDefer, Topology};
use mpps_os::sched;
use std::time::Duration;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CellSchedule {
    /// Length of each run.
    pub(crate) time: Duration,
    /// Length of the run before it, unmeasured but for its rate.
    pub(crate) warm_up: Duration,
    /// Runs per cell.
    pub(crate) repeats: usize,
}

/// Measures all cells on these CPUs with this many connections in flight, over a link of that rate.
/// `skb_defer` switches off
/// the kernel's reuse of packet buffers, if that is allowed. Also returns whether the settings of
/// this machine were restored.
///
/// # Errors
/// A failure before the first cell. The settings are then as they were.
pub(crate) fn run(
    cells: Vec<PlannedCell>,
    deal: &Deal,
    connections: u64,
    link_rate: Option<LinkRate>,
    skb_defer: Option<SkbDefer>,
    schedule: CellSchedule,
    session: &Session,
) -> Result<(TcpLabResult, Result<()>)> {
    skb_defer.as_ref().map_or(Ok(()), ConnectionLab::rehearse)?;
    let stage = ConnectionLab::new(deal, connections, link_rate, &cells, skb_defer)?;
    // Between runs, this process and its children stay off the server's CPUs.
    sched::pin_current(&deal.loads)?;
    let cases = cells.into_iter().map(|cell| case(&stage, cell));
    let mut cases: Vec<_> = cases.collect();
    let body = TcpLabBody {
        placement: format!(
            "two hosts on this machine   {}   Linux {}",
            deal.sentence(),
            kernel_release()
        ),
        load: format!(
            "mpps load: {} with addresses of their own, {connections} connections in flight, one \
             request on each, `Connection: close`, the server closes first",
            counted(stage.threads(), "thread")
        ),
        cpu_method: CPU_METHOD.to_owned(),
        notes: deal
            .notes(&Topology::read()?)
            .into_iter()
            .chain(stage.notes())
            .collect(),
        server_cpus: deal.servers.clone(),
        load_cpus: deal.loads.clone(),
        link_rate_bits: link_rate.map(|rate| rate.0),
        servers: servers(&cases),
        cells: rows(&stage, &cases),
    };
    let mut result = session.result(crate::machine::of_lab(&stage.lab)?, body);
    let first = cases.iter().position(|case| case.skipped.is_none());
    let ran = experiments(&stage, schedule, session, &mut cases, &mut result);
    // First of all, also after Ctrl-C.
    let back = stage.put_back();
    result.complete = ran?;
    let has_figures = cases.iter().any(|case| !case.samples.is_empty());
    match first.and_then(|first| cases[first].skipped.as_deref()) {
        Some(why) if !has_figures => ended(Err(anyhow!("no cell could be measured: {why}")), back),
        _ => Ok((result, back)),
    }
}

/// The first experiment whole, and then the others, at the rate that it has found best. Answers false
/// if Ctrl-C ended it.
fn experiments(
    stage: &ConnectionLab,
    schedule: CellSchedule,
    session: &Session,
    cases: &mut [Case<PlannedCell, CellSample>],
    result: &mut TcpLabResult,
) -> Result<bool> {
    let mut serving = None;
    let mut run =
        |before: &[TcpCell], cases: &mut [Case<PlannedCell, CellSample>], result: &mut _| {
            interleave(
                cases,
                schedule.repeats,
                &session.interrupt,
                |case| visit(stage, schedule, case, &mut serving),
                |cases| {
                    let result: &mut TcpLabResult = result;
                    result.cells = before.iter().cloned().chain(rows(stage, cases)).collect();
                    session.keep(result);
                    Ok(())
                },
            )
        };
    let sweep = cases.iter().filter(|case| case.plan.row.experiment == 1);
    let (sweep, others) = cases.split_at_mut(sweep.count());
    if !run(&[], sweep, result)? {
        return Ok(false);
    }
    let swept = rows(stage, sweep);
    let follows = others.iter().any(|case| case.plan.follows);
    if let Some((us, note)) = best(&swept).filter(|_| follows) {
        others.iter_mut().for_each(|case| case.plan.follow(us));
        result.notes.push(note);
    }
    run(&swept, others, result)
}

/// Leaves out, with the reason, a cell that cannot be run on this machine.
fn case(stage: &ConnectionLab, mut cell: PlannedCell) -> Case<PlannedCell, CellSample> {
    if !stage.has_threads() {
        cell.leave_out_moderation();
    }
    let skipped = cell.server.find().err().or(cell.row.skipped.take());
    Case::new(cell, skipped)
}

/// A server that answers, the cell that it was started for, and the round.
type ServedCell = (RunningServer, PlannedCell, usize);

/// Runs a cell once, with the server of the cell before if that will do.
fn visit(
    stage: &ConnectionLab,
    schedule: CellSchedule,
    case: &Case<PlannedCell, CellSample>,
    serving: &mut Option<ServedCell>,
) -> Result<CellSample> {
    let (cell, round) = (&case.plan, case.samples.len());
    // Another server ends here, before the new one begins: they have one address.
    let same = |(_, old, then): &ServedCell| *then == round && is_alike(old, cell);
    let mut server = match serving.take().filter(same) {
        Some((server, ..)) => server,
        None => stage.serve(cell)?,
    };
    stage.defer_skbs(cell.row.skb_defer_max)?;
    let sample = stage.moderated(cell, || {
        let cps = stage.warm_up(cell, schedule.warm_up)?;
        stage.run(cell, &mut server, schedule.time, cps)
    })?;
    *serving = Some((server, cell.clone(), round));
    Ok(sample)
}

/// Whether the server of one cell can go on to serve another.
fn is_alike(a: &PlannedCell, b: &PlannedCell) -> bool {
    let setting = |cell: &PlannedCell| (cell.switches(), cell.row.body_bytes);
    std::ptr::eq(a.server, b.server) && a.server.is_alike(setting(a), setting(b))
}

/// The servers that have cells.
fn servers(cases: &[Case<PlannedCell, CellSample>]) -> Vec<ServerFacts> {
    let has_cells = |name: &str| cases.iter().any(|case| case.plan.server.name == name);
    let servers = SERVERS.iter().filter(|server| has_cells(server.name));
    servers
        .map(|server| ServerFacts {
            name: server.name.to_owned(),
            version: server.version(),
            set_up: server.set_up.iter().map(|&said| said.to_owned()).collect(),
            skipped: server.find().err(),
        })
        .collect()
}

/// The results so far. Cells that did not run yet are left out.
fn rows(stage: &ConnectionLab, cases: &[Case<PlannedCell, CellSample>]) -> Vec<TcpCell> {
    cases.iter().filter_map(|case| row(stage, case)).collect()
}

fn row(stage: &ConnectionLab, case: &Case<PlannedCell, CellSample>) -> Option<TcpCell> {
    let (mut row, samples) = (case.plan.row.clone(), &case.samples);
    let Some(figures) = stage.figures(samples, &row) else {
        row.skipped = Some(case.skipped.clone()?);
        return Some(row);
    };
    let mut ledger = ConnectionLedger::default();
    for sample in samples {
        ledger.add(&sample.ledger);
        let new = sample.notes.iter().filter(|note| !row.notes.contains(note));
        let new: Vec<String> = new.cloned().collect();
        row.notes.extend(new);
    }
    row.notes.extend(case.stopped());
    (row.figures, row.ledger) = (Some(figures), Some(ledger));
    Some(row)
}
