//! The ladder as a document: what a terminal, a page and Markdown show of its result, and nothing
//! that is not in the result file.

pub(crate) mod answer;
pub(super) mod rung;

use super::result::{LabBody, LabResult, LadderAnswer, RungRate, RungResult, TakenBy};
use crate::measure::document::{
    Balanced, LOST, RowTotals, RunHead, end_of_page, equation, files, notes_on, with_losses,
};
use crate::udp::runs::Runs;
use mpps_host::Ledger;
use mpps_report::{
    BarFigures, Bars, Block, Cell, ChartBar, Column, Document, Hue, Quantity, Row, Table, Text,
    range,
};
use std::path::Path;

/// A bar is broken off if it is this many times the highest of the article's rungs.
const FAR: f64 = 8.0;
/// The files that a run wrote, as kinds and paths: `report`, `lab.html`.
type Files<'a> = &'a [(&'a str, &'a Path)];

/// The whole report.
pub(crate) fn document(result: &LabResult, files: Files<'_>) -> Document {
    let mut blocks = head(result);
    let rows = result.rungs.iter().map(|rung| row(result, rung));
    blocks.push(Block::on_text([columns(result.work.is_some())
        .rows(rows)
        .into()]));
    blocks.push(on_page(result, files));
    blocks.extend(closing(result, files));
    Document::new(
        "mpps lab: the million-packet ladder",
        format!("mpps {}", result.version),
        blocks,
    )
}

/// The part before the first rung.
pub(crate) fn head(result: &LabResult) -> Vec<Block> {
    let sender = result.sender.iter();
    let sender = sender.map(|sender| Block::paragraph(format!("sender: {sender}")));
    let delivery = format!("queues are tied to CPUs by {}", result.delivery);
    let answer = sentence(&LadderAnswer::of(&result.rungs));
    let answer = [
        Block::Sentences(vec![answer.into()]),
        Block::Paragraph(summary(result)),
    ];
    let mut blocks = vec![Block::on_page(
        answer.into_iter().chain(answer::doubts(result)),
    )];
    let delivery = Block::on_page([Block::paragraph(delivery)]);
    blocks.extend(about(result).first(sender.chain([delivery])));
    blocks
}

fn about(result: &LabResult) -> RunHead<'_, LabBody> {
    RunHead::of(result, &result.placement, "rung", &result.notes)
}

/// The columns of the ladder, without rows.
pub(crate) fn columns(has_work: bool) -> Table {
    let columns = [
        Column::figure("", 3),
        Column::words("rung", 25).grow(12),
        Column::figure("received", 10),
        Column::figure("min-max", 11).priority(4),
        Column::figure("of offered", 10),
        Column::words("lost where", LOST).grow(20).priority(1),
        Column::words("article 2015", 12).priority(3),
        Column::words("limited by", 20).grow(40).priority(2),
    ];
    Table::new(columns.into_iter().chain(work_column(has_work)))
}

/// The column of the rates with work, the last one.
fn work_column(has_work: bool) -> Option<Column> {
    has_work.then(|| Column::figure("with work", 9))
}

/// Its cell.
fn with_work(result: &LabResult, rung: &RungResult) -> Option<Cell> {
    result.work.as_ref()?;
    let rate = rung.with_work.as_ref().and_then(Runs::rate);
    Some(rate.map_or_else(|| "-".to_owned(), Quantity::figure).into())
}

/// One rung, measured or skipped.
pub(crate) fn row(result: &LabResult, rung: &RungResult) -> Row {
    let faint = |words: &str| Text::new().faint(words);
    if let Some(reason) = &rung.runs.skipped {
        let why = format!("skipped: {reason}");
        return Row::new([&*rung.rung, &*rung.name, &*why].map(|words| faint(words).into()));
    }
    let totals = rung.runs.totals();
    let dash = || "-".to_owned();
    let received = rung.runs.rate();
    let received = received.map_or_else(dash, |rate| rate.to_string());
    let of_offered = totals.as_ref().map_or_else(dash, |totals| {
        Quantity::Share(totals.share(totals.delivered)).to_string()
    });
    let lost = totals.map_or_else(String::new, |totals| totals.lost_where(LOST));
    let cells = [
        (*rung.rung).into(),
        (*rung.name).into(),
        Text::new().strong(received).into(),
        rung.runs.spread().unwrap_or_default().into(),
        of_offered.into(),
        lost.into(),
        faint(&article(rung).unwrap_or_default()).into(),
        limit(rung).into(),
    ];
    Row::new(cells.into_iter().chain(with_work(result, rung)))
}

/// The part after the last rung.
pub(crate) fn closing(result: &LabResult, written: Files<'_>) -> Vec<Block> {
    let mut text = vec![Block::heading("all rungs together")];
    let best = fastest(&result.rungs);
    text.extend(
        best.map(|(rung, ledger)| equation(format!("ledger of rung {}", rung.rung), ledger).into()),
    );
    text.push(Block::Paragraph(summary(result)));
    text.extend(answer::doubts(result));
    let sentences = rung::other_senders(&result.rungs);
    text.extend(sentences.into_iter().map(Block::paragraph));
    text.extend(
        rung::lessons(&result.rungs)
            .into_iter()
            .map(Block::paragraph),
    );
    text.extend(probe_cost(result).map(Block::paragraph));
    // The last lines are what stays in sight.
    let rungs = result.rungs.iter();
    let doubts = rungs.flat_map(|rung| rung.runs.doubts(&format!("rung {}", rung.rung), ""));
    let mut last: Vec<Block> = doubts.collect();
    let answer = result.answer.iter();
    last.extend(answer.map(|answer| Block::Sentences(vec![sentence(answer).into()])));
    let rungs = result.rungs.iter();
    let remarks = rungs.map(|rung| (rung.rung.clone(), rung::remarks(rung)));
    let remarks: Vec<_> = remarks.collect();
    let rungs = remarks.iter().map(|(rung, all)| (rung.clone(), &**all));
    vec![
        Block::on_text(text),
        about(result).last(),
        notes_on("rung", rungs),
        files(written),
        Block::on_text(last),
    ]
}

/// The part that a page shows instead of the table and the text below it.
fn on_page(result: &LabResult, written: Files<'_>) -> Block {
    let mut blocks = vec![
        Block::heading("The ladder"),
        with_losses(bars(&result.rungs)).into(),
        Block::heading("Where the packets went"),
        Block::Paragraph(Text::new().faint(
            "Shares are of all repeats behind the rate, drop probe off, where a dropped train may \
             count as one. The ledger below each is of the exactness run, drop probe on, or of the \
             last repeat if it had none. The unit is the datagram.",
        )),
    ];
    let rungs = result
        .rungs
        .iter()
        .filter(|rung| rung.runs.skipped.is_none());
    blocks.extend(rungs.map(|rung| Block::from(rung::section(rung))));
    let hosts = match result.interface {
        None => {
            "Two hosts on one machine share its CPUs: ratios between rungs of one run mean more than \
             the figures. The article's figures of 2015 are of two servers with 24 CPUs each and a \
             10G NIC."
        }
        Some(_) => {
            "Losses before this host, and packets that its sender held back, have no counter here. \
             The article's figures are of two servers with a 10G NIC."
        }
    };
    let about = [
        Text::from(hosts),
        format!("A rate is {}.", result.rate_definition).into(),
    ];
    let compare = Text::from("Compare two runs with ")
        .code("mpps compare A.json B.json")
        .plain(".");
    let about = about
        .into_iter()
        .chain(probe_cost(result).map(Text::from))
        .chain([compare]);
    blocks.push(end_of_page(result, about, written));
    Block::on_page(blocks)
}

/// A bar for each rung. A rung far above those of the article, such as one of segmented trains,
/// would press all others against the left edge: its bar is broken off.
fn bars(rungs: &[RungResult]) -> Bars {
    let highest = |rung: &RungResult| {
        let runs = &rung.runs;
        let rates = runs.mpps_samples.iter().copied().chain(runs.mpps_median);
        let rates = rates.chain(runs.offered_mpps_median);
        let rates = rates.chain(rung.article_mpps.map(|[_, high]| high));
        // No receiver gets a million Mpps: such a figure of a foreign file sets no scale.
        rates
            .filter(|rate| (0.0..1e6).contains(rate))
            .fold(0.0, f64::max)
    };
    let of_article =
        |rung: &&RungResult| rung.article_mpps.is_some() && rung.runs.skipped.is_none();
    let story = rungs
        .iter()
        .filter(of_article)
        .map(highest)
        .fold(0.0, f64::max);
    let (near, far): (Vec<f64>, Vec<f64>) = rungs
        .iter()
        .map(highest)
        .partition(|rate| story == 0.0 || *rate <= story * FAR);
    let beyond = (!far.is_empty()).then(|| near.into_iter().fold(story, f64::max));
    Bars {
        unit: "Mpps".to_owned(),
        key: vec![(Hue::Main, "received, median".to_owned())],
        range: Some("article, 2015".to_owned()),
        break_at: beyond,
        bars: rungs.iter().map(bar).collect(),
    }
}

fn bar(rung: &RungResult) -> ChartBar {
    let measured = BarFigures {
        range: rung.article_mpps,
        beside: article(rung).map_or_else(String::new, |range| format!("2015: {range}")),
        ..rung.runs.measured(Hue::Main)
    };
    ChartBar {
        name: Text::new()
            .strong(&*rung.rung)
            .plain(format!(" {}", rung.name)),
        link: rung
            .runs
            .skipped
            .as_ref()
            .map_or_else(|| rung::anchor(rung), |_| String::new()),
        outcome: rung.runs.outcome(measured),
    }
}

/// How many ledgers of the run balance.
pub(crate) fn balanced(result: &LabResult) -> Balanced {
    ledgers(result).collect()
}

fn ledgers(result: &LabResult) -> impl Iterator<Item = &Ledger> {
    result.rungs.iter().flat_map(RungResult::ledgers)
}

/// The article's figures, as a range.
fn article(rung: &RungResult) -> Option<String> {
    Some(range(rung.article_mpps?.map(Quantity::Mpps)))
}

/// The bottleneck, and the sender if it is not the usual one.
fn limit(rung: &RungResult) -> String {
    let limit = rung.limited_by.as_ref().map_or("", |limit| &limit.what);
    let sender = rung.sender.as_ref().filter(|sender| !sender.usual);
    match sender {
        Some(sender) => format!("{limit}; sent by {}", sender.name),
        None => limit.to_owned(),
    }
}

/// The rung that received the most, and its ledger.
fn fastest(rungs: &[RungResult]) -> Option<(&RungResult, &Ledger)> {
    let received = rungs.iter().filter(|rung| rung.taken_by != TakenBy::Rule);
    let known = received
        .filter_map(|rung| Some((rung.runs.mpps_median?, rung, rung.runs.ledger.as_ref()?)));
    let best = known.max_by(|(a, ..), (b, ..)| a.total_cmp(b));
    best.map(|(_, rung, ledger)| (rung, ledger))
}

/// How many rungs ran, and how many of their ledgers balance.
fn summary(result: &LabResult) -> Text {
    let skipped = result
        .rungs
        .iter()
        .filter(|rung| rung.runs.skipped.is_some())
        .count();
    let sum: RowTotals = ledgers(result).collect();
    let offered = Quantity::Count(sum.offered);
    let measured = result.rungs.len() - skipped;
    let mut text = Text::from(format!("{measured} rungs measured, {skipped} skipped; "));
    text.spans.extend(balanced(result).said().spans);
    text.plain(format!("; {offered} datagrams offered in all"))
}

fn probe_cost(result: &LabResult) -> Option<String> {
    let cost = Quantity::Nanoseconds(result.drop_probe_ns?);
    Some(format!(
        "the drop probe costs {cost} per dropped packet: rates were taken with it off, the ledger \
         of each rung with it on"
    ))
}

/// The first rung that receives a million packets a second, the highest rate, and the ceiling.
fn sentence(answer: &LadderAnswer) -> String {
    let mpps = |rate: &RungRate| Quantity::Mpps(rate.mpps);
    let on = |rate: &RungRate| format!("rung {}, {}, {}", rate.rung, rate.name, mpps(rate));
    let million = match &answer.million {
        Some(first) => format!("from {} on", on(first)),
        None => "received on none of these rungs".to_owned(),
    };
    let most = match &answer.most {
        Some(most) => {
            let cost = most.cpu_ns_per_packet.map(Quantity::Nanoseconds);
            let cost = cost.map_or_else(String::new, |ns| format!(" at {ns} of CPU a packet"));
            format!("most here: {}{cost}", on(most))
        }
        None => "no rung was measured that receives".to_owned(),
    };
    let ceiling = match &answer.ceiling {
        Some(top) => format!("ceiling {} (rung {})", mpps(top), top.rung),
        None => "the ceiling was not measured".to_owned(),
    };
    format!("a million packets a second: {million}; {most}; {ceiling}")
}

#[cfg(test)]
mod tests;
