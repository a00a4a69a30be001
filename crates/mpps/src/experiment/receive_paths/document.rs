//! The result of a comparison of receive paths, as a document.
//!
//! It is built from a [`BenchResult`] only. A report has no figure that the result file lacks.

mod answer;
mod under_load;

pub(crate) use answer::answer;

use super::result::{BenchResult, BenchRow, OverloadPoint};
use super::search::Searched;
use crate::measure::document::{
    Balanced, RunHead, counted, document_of, doubts, notes_on, together, with_losses,
};
use crate::udp::waited::Waited;
use mpps_host::Ledger;
use mpps_report::{
    BarFigures, Bars, Block, Cell, ChartBar, Column, Document, Hue, Quantity, Row, Section, Table,
    Text,
};
use std::path::Path;

/// The note on a lab's figures.
const ABOUT: &str = "Two hosts on one machine, joined by a veth pair, share its CPUs: ratios between \
    rows of one run mean more than the figures. Where more than 95 % of what was offered arrived, the \
    sender was the limit, and the path may be faster still. The generator hands frames over inside the kernel, and \
    no network card is involved: on one, the order of the paths may be another.";
/// The note on the CPU time of a receiver that spins.
const SPINS: &str = "A receiver that spins uses all of its CPU: its figure follows from the rate, \
    and does not show what a packet needs.";

/// BenchFiles as kinds and paths: `data`, `bench.json`.
type BenchFiles<'a> = &'a [(&'a str, &'a Path)];

/// The report; `files` are those that were written.
pub(crate) fn document(result: &BenchResult, files: BenchFiles<'_>) -> Document {
    let head = RunHead::of(result, &result.placement, "row", &result.notes);
    let advice = result.advice.iter().map(|said| Text::from(&**said));
    let mut found = vec![Block::Sentences(advice.collect())];
    found.extend(checks(result));
    let comparison = answer::comparison(result);
    let mut blocks = vec![Block::on_page(comparison.clone())];
    let said = [
        Block::paragraph(format!("sender: {}", result.sender)),
        Block::on_page(found.clone()),
    ];
    blocks.extend(head.first(said.into_iter().chain(worked(result.work.as_deref()))));
    let groups = PlacementGroup::all(result);
    blocks.extend(groups.iter().flat_map(PlacementGroup::blocks));
    let rows = result.rows.iter();
    blocks.extend(skipped(
        rows.map(|row| (name(row), row.runs.skipped.as_deref())),
    ));
    blocks.extend(under_load::overload(&result.overload));
    blocks.extend(under_load::spread(&result.spread));
    blocks.push(Block::on_page(
        groups.iter().flat_map(PlacementGroup::sections),
    ));
    blocks.push(Block::on_text(found));
    blocks.push(head.last());
    let notes = result.rows.iter().map(|row| (name(row), &*row.notes));
    blocks.push(notes_on("", notes));
    blocks.push(Block::on_text(comparison));
    let title = "mpps bench: every way to receive";
    document_of(title, result, blocks, [Text::from(ABOUT)], files)
}

/// The work that the receivers of a run did.
pub(super) fn worked(work: Option<&str>) -> Option<Block> {
    let said = "of work per datagram in each receiving program (--work); a rule does none";
    work.map(|work| Block::note(format!("{work} {said}")))
}

/// All ledgers of a result, those of the overload curves and of spread traffic included.
fn ledgers(result: &BenchResult) -> impl Iterator<Item = &Ledger> {
    let rows = result.rows.iter().flat_map(|row| row.runs.ledgers());
    let points = result.overload.iter().flat_map(|curve| &curve.points);
    let spread = result.spread.iter().flat_map(|row| row.runs.ledgers());
    let searches = result.rows.iter().filter_map(|row| row.loss_free.as_ref());
    let rows = rows.chain(searches.flat_map(Searched::ledgers));
    rows.chain(points.map(|point| &point.ledger)).chain(spread)
}

/// True if no datagram is unaccounted for where the counters are exact.
pub(crate) fn balances(result: &BenchResult) -> bool {
    ledgers(result).collect::<Balanced>().is_good()
}

/// The doubts about the figures, and the number of rows and curves.
fn checks(result: &BenchResult) -> Vec<Block> {
    let mut found = Vec::new();
    for row in &result.rows {
        let with = row
            .flows
            .map(|flows| format!(" with {}", counted(flows, "flow")));
        found.extend(row.runs.doubts(&name(row), &with.unwrap_or_default()));
    }
    for curve in &result.overload {
        for point in curve.points.iter().filter(|point| point.ledger.is_exact()) {
            let which = format!(" at {} offered", Quantity::Mpps(point.offered_mpps));
            found.extend(doubts(&curve.title(), &which, &point.ledger));
        }
    }
    for row in &result.spread {
        let which = format!(" over {} queues", row.queues);
        found.extend(row.runs.doubts(&row.title(), &which));
    }
    let measured = result.rows.iter().map(|row| &row.runs.skipped);
    let measured = measured.chain(result.spread.iter().map(|row| &row.runs.skipped));
    let rows = measured.filter(|skipped| skipped.is_none()).count();
    let mut said = Text::from(match (rows, result.overload.len()) {
        (rows, 0) => format!("{rows} rows measured"),
        (0, curves) => format!("{curves} curves measured"),
        (rows, curves) => format!("{rows} rows and {curves} curves measured"),
    });
    if result.rows.iter().any(|row| row.reference) {
        said = said.plain(", * marks references");
    }
    if ledgers(result).next().is_some() {
        let balanced = ledgers(result).collect::<Balanced>().said();
        said = said.plain("; ");
        said.spans.extend(balanced.spans);
    }
    found.push(Block::Paragraph(said));
    found
}

/// The path and the way it was used: `af_xdp spin`; a reference has a star.
fn name(row: &BenchRow) -> String {
    let star = if row.reference { " *" } else { "" };
    format!("{}{star}", row.title())
}

/// The anchor of links to a row: one path, one way, one group.
fn anchor(row: &BenchRow) -> String {
    let place = if row.shares_cpu { "shared" } else { "own" };
    let plain = |letter: char| match letter {
        letter if letter.is_alphanumeric() => letter,
        _ => '-',
    };
    let flows = row
        .flows
        .map_or_else(String::new, |flows| format!("-{flows}"));
    let words = format!("row-{place}{flows}-{}", name(row));
    words.chars().map(plain).collect()
}

/// A figure, or a dash.
pub(super) fn or_dash(quantity: Option<Quantity>) -> String {
    quantity.map_or_else(|| "-".to_owned(), Quantity::figure)
}

/// Measured rows that compare with each other: those of one placement of queue and application.
#[derive(Debug)]
struct PlacementGroup<'a> {
    /// The placement that they share.
    heading: String,
    /// In the order of the result, which is fastest first.
    rows: Vec<&'a BenchRow>,
    /// The rate of the plain recvmmsg row among them, in Mpps.
    base_mpps: Option<f64>,
}

impl<'a> PlacementGroup<'a> {
    /// The groups that have rows.
    fn all(result: &'a BenchResult) -> Vec<Self> {
        let rows = result.rows.iter().filter(|row| row.runs.skipped.is_none());
        let mut groups = together(rows.map(|row| (row, (row.shares_cpu, row.flows))));
        groups.sort_by_key(|(kind, _)| *kind);
        let group = |((shares_cpu, flows), rows): (_, Vec<&'a BenchRow>)| {
            let heading = match shares_cpu {
                false => "The application has its CPU to itself",
                true => "Receive queue and application share a CPU",
            };
            let base = rows.iter().find(|row| row.is_base());
            Self {
                heading: match flows {
                    Some(flows) => format!("{heading}, {}", counted(flows, "flow")),
                    None => heading.to_owned(),
                },
                base_mpps: base.and_then(|row| row.runs.mpps_median),
                rows,
            }
        };
        groups.into_iter().map(group).collect()
    }

    /// The row's rate over that of recvmmsg, if the group has both.
    fn times(&self, row: &BenchRow) -> Option<Quantity> {
        let base = self.base_mpps.filter(|base| *base > 0.0)?;
        Some(Quantity::Times(row.runs.mpps_median? / base))
    }

    fn blocks(&self) -> [Block; 3] {
        [
            Block::heading(&*self.heading),
            Block::on_page([
                with_losses(self.rates()).into(),
                self.costs().into(),
                Block::paragraph(SPINS),
            ]),
            self.table(true).into(),
        ]
    }

    /// A bar per row with the spread of its repeats.
    fn rates(&self) -> Bars {
        let mut key = vec![(Hue::Main, "received, median".to_owned())];
        if self.rows.iter().any(|row| row.reference) {
            key.push((Hue::Reference, "reference row (*)".to_owned()));
        }
        let bars = self.rows.iter().map(|row| {
            let hue = match row.reference {
                true => Hue::Reference,
                false => Hue::Main,
            };
            let measured = BarFigures {
                beside: self.times(row).map_or_else(String::new, against),
                ..row.runs.measured(hue)
            };
            bar(row, measured)
        });
        Bars {
            unit: "Mpps".to_owned(),
            key,
            bars: bars.collect(),
            ..Bars::default()
        }
    }

    /// The CPU time per packet of the application and of the queue's kernel thread, one bar behind
    /// the other. A row that spins and gets few packets would press all others to the left edge.
    /// Its bar is broken off instead.
    fn costs(&self) -> Bars {
        let total = |row: &BenchRow| {
            let cost = row.cpu_ns_per_packet.as_ref();
            cost.map_or(0.0, |cost| {
                cost.app.unwrap_or(0.0) + cost.softirq.unwrap_or(0.0)
            })
        };
        let sleeping = self.rows.iter().filter(|row| !row.spins);
        let most = sleeping.map(|row| total(row)).fold(0.0, f64::max);
        let bars = self.rows.iter().map(|row| {
            let cost = row.cpu_ns_per_packet.clone().unwrap_or_default();
            let parts = [(Hue::Main, cost.app), (Hue::Second, cost.softirq)];
            let known = parts.iter().filter_map(|(hue, ns)| Some((*hue, (*ns)?)));
            let said =
                |what, ns: Option<f64>| Some(format!("{what} {}", Quantity::Nanoseconds(ns?)));
            let said = [said("app", cost.app), said("NAPI", cost.softirq)];
            let measured = BarFigures {
                parts: known.collect(),
                figure: match cost.app.or(cost.softirq) {
                    Some(_) => Quantity::Nanoseconds(total(row)).to_string(),
                    None => "unknown".to_owned(),
                },
                beside: said.into_iter().flatten().collect::<Vec<_>>().join(", "),
                ..BarFigures::default()
            };
            bar(row, measured)
        });
        Bars {
            unit: "ns".to_owned(),
            key: vec![
                (Hue::Main, "application".to_owned()),
                (Hue::Second, "NAPI, the kernel's part".to_owned()),
            ],
            range: None,
            break_at: (most > 0.0).then_some(most),
            bars: bars.collect(),
        }
    }

    /// Every figure; without modes only those that stand side by side in 80 characters.
    fn table(&self, has_modes: bool) -> Table {
        let searched = self.rows.iter().any(|row| row.loss_free.is_some());
        let mut columns = vec![
            Column::words("path", 20).grow(7),
            Column::figure("Mpps", 6),
            Column::figure("low-high", 13).priority(3),
            Column::figure("% of offered", 7),
            Column::figure("times recvmmsg", 8),
            Column::figure("app ns", 6).priority(1),
            Column::figure("NAPI ns", 7).priority(1),
            Column::figure("packets per call", 7).priority(2),
            Column::figure("calls per packet", 6).priority(3),
            Column::words("mode", 40).grow(200).priority(4),
        ];
        if searched {
            columns.insert(2, Column::figure("loss-free", 9));
        }
        let shown = columns.len() - if has_modes { 0 } else { 3 };
        columns.truncate(shown);
        let rows = self.rows.iter().map(|row| {
            let cost = row.cpu_ns_per_packet.as_ref();
            let ns = |figure: Option<f64>| or_dash(figure.map(Quantity::Nanoseconds));
            let mode = format!("{}; NAPI: {}", row.mode, row.napi);
            let mut cells: Vec<Cell> = vec![
                name(row).into(),
                Text::new().strong(or_dash(row.runs.rate())).into(),
                row.runs.spread().unwrap_or_else(|| "-".to_owned()).into(),
                or_dash(row.runs.delivered_ratio.map(Quantity::Share)).into(),
                or_dash(self.times(row)).into(),
                ns(cost.and_then(|cost| cost.app)).into(),
                ns(cost.and_then(|cost| cost.softirq)).into(),
                or_dash(row.packets_per_call.map(Quantity::Each)).into(),
                or_dash(row.calls_per_packet.map(Quantity::Each)).into(),
                Text::new().faint(mode).into(),
            ];
            if searched {
                cells.insert(2, loss_free(row).into());
            }
            cells.truncate(shown);
            Row::new(cells)
        });
        Table::new(columns).rows(rows)
    }

    /// How each row ran, and where its packets went.
    fn sections(&self) -> Vec<Block> {
        let heading = format!("Where the packets went: {}", lower(&self.heading));
        let mut blocks = vec![
            Block::heading(heading),
            Block::paragraph(
                "Shares are of all repeats behind the rate. The unit is the datagram.",
            ),
        ];
        blocks.extend(self.rows.iter().map(|row| self.section(row).into()));
        blocks
    }

    fn section(&self, row: &BenchRow) -> Section {
        let mut figure = Text::new().strong(rate(row));
        if let Some(times) = self.times(row) {
            figure = figure.faint(format!(" · {}", against(times)));
        }
        let mut blocks = vec![
            Block::paragraph(format!("Mode: {}.", mode(&row.mode, row.waited.as_ref()))),
            Block::paragraph(format!(
                "NAPI ran: {}; queues that carried the traffic: {}.",
                row.napi, row.queues
            )),
        ];
        blocks.extend(row.runs.offered());
        if let Some(cost) = &row.cpu_ns_per_packet {
            let said = format!("CPU time by {}.", cost.method);
            blocks.push(Block::Paragraph(Text::new().faint(said)));
        }
        blocks.extend(row.notes.iter().map(Block::note));
        blocks.extend(row.runs.whole());
        blocks.extend(repeats(row.runs.equations("")));
        Section {
            heading: name(row).into(),
            anchor: anchor(row),
            figure,
            blocks,
        }
    }
}

/// The mode that the kernel granted, and how the receiver waited.
pub(super) fn mode(granted: &str, waited: Option<&Waited>) -> String {
    let waited = waited.map(|waited| format!(", {}", waited.said()));
    format!("{granted}{}", waited.unwrap_or_default())
}

fn bar(row: &BenchRow, measured: BarFigures) -> ChartBar {
    ChartBar {
        name: name(row).into(),
        link: anchor(row),
        outcome: Ok(measured),
    }
}

fn rate(row: &BenchRow) -> String {
    let rate = row.runs.rate().map(|rate| rate.to_string());
    rate.unwrap_or_else(|| "unknown".to_owned())
}

fn against(times: Quantity) -> String {
    format!("{times} recvmmsg")
}

/// The highest rate without loss that was found; at least that, if no load above it was tried or the
/// search did not end.
fn loss_free(row: &BenchRow) -> String {
    let found = row
        .loss_free
        .as_ref()
        .and_then(|searched| searched.found.first());
    let rate = found.and_then(|found| Some((found, Quantity::Mpps(found.lower_mpps?).figure())));
    match rate {
        None => "-".to_owned(),
        Some((found, rate)) if found.upper_mpps.is_none() || !found.settled => format!("≥{rate}"),
        Some((_, rate)) => rate,
    }
}

/// A heading as the end of another.
fn lower(heading: &str) -> String {
    let mut letters = heading.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// The ledgers of the repeats; a page shows them on request.
fn repeats(equations: impl Iterator<Item = Block>) -> Option<Block> {
    let equations: Vec<Block> = equations.collect();
    (!equations.is_empty()).then(|| Block::Details("Ledgers of the repeats".to_owned(), equations))
}

/// Paths that did not run, with their reasons. Each reason appears once. A path that is skipped in
/// several groups also appears once.
pub(super) fn skipped<'a>(paths: impl Iterator<Item = (String, Option<&'a str>)>) -> Vec<Block> {
    let skipped = paths.filter_map(|(name, why)| Some(((), (name, why?))));
    let once = together(skipped).into_iter().map(|(one, _)| one);
    let all = together(once);
    if all.is_empty() {
        return Vec::new();
    }
    let columns = [
        Column::words("path", 16).grow(11),
        Column::words("why, and what would help", 20).grow(200),
    ];
    let rows = all
        .into_iter()
        .map(|(why, names)| Row::new([names.join(", ").into(), Text::new().faint(why).into()]));
    vec![
        Block::heading("Skipped"),
        Table::new(columns).rows(rows).into(),
    ]
}

/// The offered rate over the path's peak.
fn of_peak(point: &OverloadPoint, peak_mpps: f64) -> Quantity {
    Quantity::Times(match peak_mpps > 0.0 {
        true => point.offered_mpps / peak_mpps,
        false => f64::NAN,
    })
}

#[cfg(test)]
mod tests;
