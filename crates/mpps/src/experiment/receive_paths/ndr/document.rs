//! The bounds of each path as a document.

use super::super::document::{mode, or_dash, skipped, worked};
use super::result::{GoalBounds, NdrResult, NdrRow, NdrTrial, SearchGoal};
use crate::measure::document::{
    Balanced, RunHead, counted, document_of, doubts, equation, notes_on,
};
use mpps_report::{
    BarFigures, Bars, Block, ChartBar, Column, Document, Hue, Quantity, Row, Section, Table, Text,
};
use std::path::Path;

/// The note on figures between two hosts.
const BETWEEN: &str = "Packets that the other host's interface sent and this one's did not count are lost on \
    the way. The way has no counters here. Counters of an interface, a namespace or a host may include other \
    programs' packets.";
/// The note on a lab's figures.
const ABOUT: &str = "Two hosts on one machine, joined by a veth pair, share its CPUs: ratios between \
    rows of one run mean more than the figures. A moment in which the host takes a CPU away loses \
    packets that a machine of its own would not lose, so that a bound without any loss is lower here, \
    and wanders more from run to run, than one with a little.";
/// The meaning of the table's words.
const KEY: &str = "highest kept: the highest load that keeps to the goal, below all that do not; lowest \
    lost: the lowest load that does not; delivered: what came of the former in all but the allowed share of the time \
    (conditional throughput)";

/// The report; `files` are kinds and paths of what was written: `data`, `ndr.json`.
pub(crate) fn document(result: &NdrResult, files: &[(&str, &Path)]) -> Document {
    let head = RunHead::of(result, &result.placement, "search", &result.notes);
    let throttle = result.throttle_mpps.map(|rate| {
        let rate = Quantity::Mpps(rate);
        Block::note(format!(
            "every receiver is held back to {rate} (--throttle)"
        ))
    });
    let mut blocks = vec![Block::on_page(answer(result))];
    blocks.extend(
        head.first(
            [
                Block::paragraph(format!("sender: {}", result.sender)),
                Block::Paragraph(asked(&result.goals)),
            ]
            .into_iter()
            .chain(throttle)
            .chain(worked(result.work.as_deref())),
        ),
    );
    let searched = || result.rows.iter().filter(|row| row.skipped.is_none());
    if searched().next().is_some() {
        blocks.push(Block::on_page([bars(result).into()]));
        blocks.push(table(result).into());
        blocks.push(Block::Paragraph(Text::new().faint(KEY)));
    }
    let rows = result.rows.iter();
    blocks.extend(skipped(
        rows.map(|row| (row.title(), row.skipped.as_deref())),
    ));
    for row in searched() {
        let exact = row.searched.trials.iter().enumerate();
        let exact = exact.filter(|(_, trial)| trial.ledger.is_exact());
        blocks.extend(exact.flat_map(|(at, trial)| {
            doubts(&row.title(), &format!(", trial {},", at + 1), &trial.ledger)
        }));
    }
    blocks.push(Block::Paragraph(
        result.ledgers().collect::<Balanced>().said(),
    ));
    blocks.push(Block::on_page(
        searched().map(|row| section(row, &result.goals).into()),
    ));
    blocks.push(head.last());
    blocks.push(notes_on(
        "",
        searched().map(|row| (row.title(), &*row.searched.notes)),
    ));
    let about = [
        match result.address {
            Some(_) => BETWEEN.into(),
            None => ABOUT.into(),
        },
        format!("A load is {}.", result.load_definition).into(),
    ];
    let title = "mpps ndr: the highest rate without loss";
    document_of(title, result, blocks, about, files)
}

/// The goals of the search.
fn asked(goals: &[SearchGoal]) -> Text {
    let named: Vec<String> = goals.iter().map(name).collect();
    let said = Text::from("what may be lost: ").strong(named.join(", "));
    match goals.first() {
        None => said,
        Some(goal) => said.plain(format!(
            "; trials of {} to {}, {} of the long ones decide of a load, and {} of that time may lose \
             more; bounds {} apart",
            Quantity::Seconds(goal.initial_seconds),
            Quantity::Seconds(goal.final_seconds),
            Quantity::Seconds(goal.sum_seconds),
            Quantity::Share(goal.exceed_ratio),
            Quantity::Share(goal.width),
        )),
    }
}

/// `nothing`, `0.5 %`.
fn name(goal: &SearchGoal) -> String {
    match goal.loss_ratio {
        0.0 => "nothing".to_owned(),
        share => Quantity::Share(share).to_string(),
    }
}

/// A load with as many digits as bounds 1 % apart need.
fn load(mpps: f64) -> Quantity {
    let digits = 10_f64.powf((mpps * 1e6).max(1.0).log10().floor() - 3.0);
    Quantity::PerSecond((mpps * 1e6 / digits).round() * digits)
}

/// The path that keeps the highest load with the first goal.
fn answer(result: &NdrResult) -> Option<Block> {
    let goal = name(result.goals.first()?);
    let rows = result.rows.iter();
    let known = rows.filter_map(|row| Some((row.searched.found.first()?.lower_mpps?, row)));
    let (mpps, row) = known.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let paths = counted(result.rows.len(), "path");
    let said = format!(
        "{} keeps {}, the highest load of {paths} if {goal} may be lost",
        row.title(),
        load(mpps)
    );
    Some(Block::Paragraph(Text::new().strong(said)))
}

/// The reason why the search for a goal has no upper bound, or the loss at that bound.
fn limit(row: &NdrRow, found: &GoalBounds) -> String {
    if let Some(limit) = &found.held_back {
        return limit.what.clone();
    }
    match (found.lower_mpps, found.upper_mpps, &found.loses) {
        _ if !found.settled => "ended before".to_owned(),
        (_, Some(_), Some(loses)) => format!(
            "{}: {} {}",
            loses.station,
            loses.reason,
            Quantity::Share(loses.share)
        ),
        (Some(_), None, _) if row.searched.sender_mpps.is_some() => {
            "the sender or its CPU".to_owned()
        }
        (Some(_), None, _) => "--max".to_owned(),
        (None, None, _) => "the sender, which missed every load".to_owned(),
        (_, Some(_), None) => "no counter says".to_owned(),
    }
}

/// The rate of the first goal, a bar each, with both bounds.
fn bars(result: &NdrResult) -> Bars {
    let goal = result.goals.first().map_or_else(String::new, name);
    let bars = result.rows.iter().map(|row| {
        let found = row.searched.found.first().cloned().unwrap_or_default();
        let rate = found.lower_mpps.map(Quantity::Mpps);
        ChartBar {
            name: row.title().into(),
            link: anchor(row),
            outcome: match &row.skipped {
                Some(why) => Err(format!("skipped: {why}")),
                None => Ok(BarFigures {
                    parts: found
                        .lower_mpps
                        .iter()
                        .map(|rate| (Hue::Main, *rate))
                        .collect(),
                    range: found.lower_mpps.zip(found.upper_mpps).map(<[f64; 2]>::from),
                    figure: rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string()),
                    beside: limit(row, &found),
                    ..BarFigures::default()
                }),
            },
        }
    });
    Bars {
        unit: "Mpps".to_owned(),
        key: vec![(
            Hue::Main,
            format!("highest load that loses no more than {goal}"),
        )],
        range: Some("highest kept to lowest lost".to_owned()),
        break_at: None,
        bars: bars.collect(),
    }
}

fn anchor(row: &NdrRow) -> String {
    format!("row-{}", row.title().replace(' ', "-"))
}

/// A row for each path and goal.
fn table(result: &NdrResult) -> Table {
    let columns = [
        Column::words("path", 20).grow(7),
        Column::words("may be lost", 8),
        Column::figure("highest kept, pps", 9),
        Column::figure("lowest lost", 9),
        Column::figure("delivered", 9).priority(1),
        Column::words("what limits it, first", 24)
            .grow(20)
            .priority(1),
        Column::figure("trials", 6).priority(2),
        Column::figure("void", 4).priority(2),
        Column::words("mode", 30).grow(200).priority(3),
    ];
    let rows = result.rows.iter().flat_map(|row| {
        let found = row.searched.found.iter().zip(&result.goals);
        found.enumerate().map(move |(nth, (found, goal))| {
            // Facts about the path appear once.
            let once = |words: String| if nth == 0 { words } else { String::new() };
            let void = row
                .searched
                .trials
                .iter()
                .filter(|trial| trial.void)
                .count();
            Row::new([
                once(row.title()).into(),
                name(goal).into(),
                Text::new()
                    .strong(or_dash(found.lower_mpps.map(load)))
                    .into(),
                or_dash(found.upper_mpps.map(load)).into(),
                or_dash(found.conditional_mpps.map(load)).into(),
                limit(row, found).into(),
                once(row.searched.trials.len().to_string()).into(),
                once(void.to_string()).into(),
                Text::new()
                    .faint(once(format!("{}; NAPI: {}", row.mode, row.napi)))
                    .into(),
            ])
        })
    });
    Table::new(columns).rows(rows)
}

/// Every trial of a path, and where its packets went at the bounds.
fn section(row: &NdrRow, goals: &[SearchGoal]) -> Section {
    let columns = [
        Column::figure("load, pps", 9),
        Column::figure("seconds", 7),
        Column::figure("offered, pps", 9),
        Column::figure("lost", 8),
        Column::words("", 20),
    ];
    let trials = row.searched.trials.iter().map(|trial| {
        let void = trial.void_kind();
        let void = void.map_or_else(String::new, |(why, _)| format!("void: {why}"));
        Row::new([
            load(trial.load_mpps).figure().into(),
            Quantity::Seconds(trial.seconds).figure().into(),
            load(trial.offered_mpps).figure().into(),
            Quantity::Share(trial.loss_ratio).to_string().into(),
            Text::new().faint(void).into(),
        ])
    });
    let mut blocks: Vec<Block> = row.searched.notes.iter().map(Block::note).collect();
    blocks.push(Block::paragraph(format!(
        "Mode: {}. {}, in their order:",
        mode(&row.mode, row.waited.as_ref()),
        counted(row.searched.trials.len(), "trial")
    )));
    blocks.push(Table::new(columns).rows(trials).into());
    for (found, goal) in row.searched.found.iter().zip(goals) {
        for bound in [found.lower_mpps, found.upper_mpps].into_iter().flatten() {
            let is_at = |trial: &&NdrTrial| trial.load_mpps == bound && !trial.void;
            let last = row.searched.trials.iter().rev().find(is_at);
            let of = format!("{} may be lost, ledger at {}", name(goal), load(bound));
            blocks.extend(last.map(|trial| equation(of, &trial.ledger).into()));
        }
    }
    let rate = row
        .searched
        .found
        .first()
        .and_then(|found| found.lower_mpps);
    Section {
        heading: row.title().into(),
        anchor: anchor(row),
        figure: Text::new()
            .strong(rate.map_or_else(|| "-".to_owned(), |rate| Quantity::Mpps(rate).to_string())),
        blocks,
    }
}

#[cfg(test)]
mod tests;
