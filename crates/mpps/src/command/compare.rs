//! `mpps compare A.json B.json`.

use super::CommandEnding;
use crate::experiment::ladder::compare::{command_of, compare};
use crate::experiment::ladder::result::{LabBody, LabResult, RungResult, RungSender};
use crate::experiment::receive_paths::ndr::result::{NdrBody, NdrResult};
use crate::experiment::receive_paths::result::{BenchBody, BenchResult};
use crate::input;
use crate::measure::document::counted;
use crate::measure::envelope::{Envelope, EnvelopeBody, EnvelopeError, SchemaOnly};
use crate::measure::samples::median;
use crate::program::connections::{LoadBody, LoadResult};
use crate::program::lines::JsonArgs;
use crate::program::load::document::shape;
use crate::udp::runs::Runs;
use anyhow::{Context, Result, ensure};
use clap::Args;
use mpps_host::Ledger;
use mpps_report::Quantity;
use std::path::{Path, PathBuf};

/// Arguments of `mpps compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Read the earlier result: a JSON file of `mpps lab`, `mpps placement`, `mpps bench`, `mpps
    /// ndr` or `mpps load`
    pub(crate) a: PathBuf,
    /// Read the later result: a JSON file of the same command
    pub(crate) b: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// Compares two results; status 1 if the second is worse, or lacks what the first measured, and 2 if
/// their rates say nothing about each other.
pub(super) fn run(args: &CompareArgs) -> Result<CommandEnding> {
    let lines = args.json.begin()?;
    let (a, b) = (load(&args.a)?, load(&args.b)?);
    let (a_name, b_name) = (args.a.display().to_string(), args.b.display().to_string());
    let [a_command, b_command] = [&a, &b].map(command_of);
    ensure!(
        a_command == b_command,
        "{a_name} is a result of `{a_command}`, {b_name} of `{b_command}`: compare two of one command"
    );
    let comparison = compare((&a_name, &a), (&b_name, &b))?;
    lines.found(&comparison, || comparison.blocks())?;
    Ok(match comparison.worse {
        _ if !comparison.not_comparable.is_empty() => CommandEnding::Status(2),
        true => CommandEnding::Found,
        false => CommandEnding::Fine,
    })
}

/// Reads a result as one of the ladder, with a rung for each row.
type ReadRows = fn(&str) -> Result<LabResult, EnvelopeError>;

const KINDS: [(&str, ReadRows); 3] = [
    (BenchBody::SCHEMA, |text| {
        BenchResult::parse(text).map(of_bench)
    }),
    (NdrBody::SCHEMA, |text| NdrResult::parse(text).map(of_ndr)),
    (LoadBody::SCHEMA, |text| {
        LoadResult::parse(text).map(of_load)
    }),
];

fn load(path: &Path) -> Result<LabResult> {
    let text = input::text(path)?;
    let schema = serde_json::from_str(&text).map(|SchemaOnly { schema }| schema);
    let schema = schema.unwrap_or_default();
    let kind = KINDS.iter().find(|(known, _)| *known == schema);
    let read = kind.map_or(LabResult::parse as ReadRows, |(_, read)| *read);
    read(&text).with_context(|| path.display().to_string())
}

/// A result of other rows.
fn with<T>(result: Envelope<T>, placement: String, rungs: Vec<RungResult>) -> LabResult {
    Envelope {
        schema: result.schema,
        fingerprint: result.fingerprint,
        command: result.command,
        version: result.version,
        started: result.started,
        quick: result.quick,
        complete: result.complete,
        body: LabBody {
            placement,
            rungs,
            ..LabBody::default()
        },
    }
}

/// The sender without the reason for it, and the size of its packets.
fn packets(sender: &str, bytes: usize) -> String {
    let sender = sender.split(" (").next().unwrap_or_default();
    format!("{sender}, {bytes} bytes")
}

/// A row that this sender met.
fn row(name: String, sender: String, runs: Runs) -> RungResult {
    RungResult {
        name,
        runs,
        sender: Some(RungSender {
            name: sender,
            usual: true,
            ..RungSender::default()
        }),
        ..RungResult::default()
    }
}

fn of_bench(result: BenchResult) -> LabResult {
    let bytes = result.payload_bytes;
    let rows = result.rows.iter().map(|one| {
        let cpu = if one.shares_cpu { ", shared CPU" } else { "" };
        let flows = one
            .flows
            .map(|flows| format!(", {}", counted(flows, "flow")));
        let name = format!("{}{cpu}{}", one.title(), flows.unwrap_or_default());
        row(name, packets(&result.sender, bytes), one.runs.clone())
    });
    let spread = result.spread.iter().map(|one| {
        let queues = counted(one.queues.into(), "queue");
        let name = format!("{}, {queues}, sent by {}", one.title(), one.backend);
        row(name, packets(&one.sender, bytes), one.runs.clone())
    });
    let rungs = rows.chain(spread).collect();
    let placement = result.placement.clone();
    with(result, placement, rungs)
}

/// The repeats of a row are the trials at the highest load that was kept.
fn of_ndr(result: NdrResult) -> LabResult {
    let rows = result.rows.iter().flat_map(|one| {
        let none = one.skipped.iter().map(|why| (None, why.clone()));
        let found = one.searched.found.iter().zip(&result.goals);
        let found = found.map(|(found, goal)| {
            let lost = Quantity::Share(goal.loss_ratio);
            (found.lower_mpps, format!("no load lost at most {lost}"))
        });
        let goals = found
            .zip(&result.goals)
            .map(|(found, goal)| (found, Some(goal)));
        let all = goals.chain(none.map(|found| (found, None)));
        all.map(|((load, why), goal)| {
            let trials = one.searched.trials.iter();
            let trials = trials.filter(|trial| !trial.void && Some(trial.load_mpps) == load);
            let rates = trials.map(|trial| trial.load_mpps * (1.0 - trial.loss_ratio));
            let rates: Vec<f64> = rates.collect();
            let lost = goal.map(|goal| format!(", loss {}", Quantity::Share(goal.loss_ratio)));
            let runs = Runs {
                skipped: load.is_none().then_some(why),
                mpps_median: median(&rates),
                mpps_samples: rates,
                ..Runs::default()
            };
            let name = format!("{}{}", one.title(), lost.unwrap_or_default());
            row(name, packets(&result.sender, result.payload_bytes), runs)
        })
    });
    let rungs = rows.collect();
    let placement = result.placement.clone();
    with(result, placement, rungs)
}

/// The repeats of its one row are its seconds.
fn of_load(result: LoadResult) -> LabResult {
    let samples = result.rates().map(|[_, completed, _]| completed / 1e6);
    let samples: Vec<f64> = samples.collect();
    let requests = &result.found.ledger.requests;
    let known = requests
        .started
        .saturating_add_signed(-requests.unaccounted);
    let runs = Runs {
        mpps_median: median(&samples),
        mpps_samples: samples,
        ledger: Some(Ledger::new(requests.started, known, 0)),
        ..Runs::default()
    };
    let rung = row(result.unit().to_owned(), shape(&result), runs);
    let placement = result.asked.url.to_string();
    with(result, placement, vec![rung])
}
