//! The results of the connection experiments, as a document.
//!
//! It is built from a [`TcpLabResult`] only. A report has no figure that the result file lacks.

mod by_body;
mod like_for_like;
mod paper;
#[cfg(test)]
mod tests;
mod trade_off;

use super::plan::{NO_SKB_DEFER, SKB_DEFER};
use super::result::{TcpCell, TcpFigures, TcpLabResult, body};
use crate::measure::connection_ledger::equation;
use crate::measure::document::{
    RunHead, disagreement, document_of, firsts, notes_on, spread, together,
};
use crate::measure::samples::extremes;
use mpps_report::{
    BarFigures, Bars, Block, ChartBar, Column, Document, Hue, Quantity, Row, Style, Table, Text,
    grouped, unbroken,
};
use std::collections::BTreeMap;
use std::path::Path;

/// Columns of a table by body. A file may have as many bodies as cells.
const BODIES_MAX: usize = 16;
/// Less than this share of the packets through the queues is worth a word.
const NEARLY_ALL: f64 = 0.99;

/// The report; `written` are the kinds and paths of the files that the run wrote.
pub(crate) fn document(result: &TcpLabResult, written: &[(&str, &Path)]) -> Document {
    let head = RunHead::of(result, &result.placement, "cell", &result.notes);
    let summary = like_for_like::claims(result).into_iter();
    let summary = summary.chain(trade_off::inversion(result));
    let summary = summary.chain(skb_reuse(result));
    let sentences = Block::Sentences(summary.map(Text::from).collect());
    let balanced = Block::Paragraph(balanced(result));
    let mut blocks = vec![Block::on_page([sentences.clone(), balanced.clone()])];
    blocks.extend(head.first([Block::paragraph(format!("load: {}", result.load))]));
    let groups = CellGroup::all(result);
    for experiment in [1, 2, 3] {
        let same = groups.iter().filter(|group| group.experiment == experiment);
        let same: Vec<&CellGroup<'_>> = same.collect();
        // The smallest body is shown in full, the others side by side.
        if let Some(first) = same.first() {
            blocks.push(Block::heading(first.heading()));
            blocks.push(Block::on_page(first.charts()));
            blocks.push(Block::on_page(paper::chart(first)));
            blocks.push(first.table().into());
        }
        if same.len() > 1 {
            let same = &same[..same.len().min(BODIES_MAX)];
            blocks.push(Block::on_page([by_body::curves(
                same,
                result.link_rate_bits,
            )]));
            blocks.extend(by_body::tables(same));
        }
        if let Some(more @ 1..) = same.len().checked_sub(BODIES_MAX) {
            blocks.push(Block::note(format!("{more} larger bodies are not shown")));
        }
        if experiment == 1 {
            blocks.extend(trade_off::table(result));
        }
    }
    blocks.push(Block::on_text([Block::heading("In short"), sentences]));
    blocks.push(Block::on_text(doubts(result)));
    let notes = result.cells.iter().map(|cell| (cell.key(), &*cell.notes));
    blocks.push(notes_on("", notes));
    blocks.extend(ledgers(result));
    blocks.extend(servers(result));
    let method = format!("CPU per connection: {}", result.cpu_method);
    blocks.push(Block::on_text([Block::note(&method)]));
    blocks.push(head.last());
    blocks.push(Block::on_text([balanced]));
    let about = [
        format!("{method}.").into(),
        "Two hosts on one machine share its caches and its memory, and no network card is involved: \
         ratios between cells of one run mean more than the figures. The paper of 2014 had a server \
         with a 10G card and Linux 3.4, and a load on another machine."
            .into(),
    ];
    let title = "mpps lab tcp: what short connections cost";
    document_of(title, result, blocks, about, written)
}

/// The cells of one experiment with one body, in the order of the result.
struct CellGroup<'a> {
    experiment: u8,
    body_bytes: usize,
    /// The cells that are measured against one base together, by the name of their server.
    servers: Vec<(String, Vec<&'a TcpCell>)>,
}

/// A figure of a cell, given the figures of its base.
type Show = fn(&TcpFigures, Option<&TcpFigures>) -> String;

/// The figures that the table of a group has.
fn columns() -> Vec<(Column, Show)> {
    vec![
        (Column::figure("CPS", 7), |own, _| rate(own.cps_median)),
        (Column::figure("low-high", 13).priority(3), |own, _| {
            let spread = spread(&own.cps_samples, Quantity::PerSecond);
            spread.unwrap_or_else(|| "-".to_owned())
        }),
        (Column::figure("CPS to base", 6), |own, base| {
            base.map_or("-".to_owned(), |base| times(cps(own), cps(base)))
        }),
        (Column::figure("CPU µs", 6), |own, _| us(cpu(own))),
        (Column::figure("own", 5).priority(4), |own, _| {
            us(own.own_us_per_connection_median)
        }),
        (Column::figure("softirq", 7).priority(4), |own, _| {
            us(own.softirq_us_per_connection_median)
        }),
        (Column::figure("CPU to base", 6), |own, base| {
            base.map_or("-".to_owned(), |base| times(cpu(own), cpu(base)))
        }),
        (Column::figure("switches /s", 8).priority(1), |own, _| {
            rate(own.context_switches_per_second_median)
        }),
        (Column::words("limited by", 7).priority(2), |own, _| {
            let first = own.limited_by.split_whitespace().next();
            first.unwrap_or_default().trim_end_matches(',').to_owned()
        }),
    ]
}

impl<'a> CellGroup<'a> {
    fn all(result: &'a TcpLabResult) -> Vec<Self> {
        let mut groups: BTreeMap<_, Vec<(&TcpCell, String)>> = BTreeMap::new();
        // Cells at a low load have a table of their own.
        for cell in result.cells.iter().filter(|cell| cell.load_share.is_none()) {
            let cells = groups.entry((cell.experiment, cell.body_bytes));
            let others = match (cell.experiment, cell.has_others()) {
                (1, true) => ", all other techniques on",
                (1, false) => ", all others off",
                _ => "",
            };
            let name = format!("{}{others}", cell.server);
            cells.or_default().push((cell, name));
        }
        let group = |((experiment, body_bytes), cells)| Self {
            experiment,
            body_bytes,
            servers: together(cells),
        };
        groups.into_iter().map(group).collect()
    }

    /// The subject of the group, as a heading.
    fn heading(&self) -> String {
        let what = match self.experiment {
            1 => "moderation of the server's queues",
            2 => "moderation, then descriptors, events and packet buffers reused",
            _ => "one technique after the other",
        };
        let (experiment, body) = (self.experiment, body(self.body_bytes));
        format!("Experiment {experiment}: {what}, {body} bodies")
    }

    /// Every cell with the figures of its base, if it has any itself.
    fn measured(
        &self,
    ) -> impl Iterator<Item = (&'a TcpCell, &'a TcpFigures, Option<&'a TcpFigures>)> {
        self.servers.iter().flat_map(|(_, cells)| {
            let base = base(cells).and_then(|cell| cell.figures.as_ref());
            let cells = cells.iter();
            cells.filter_map(move |cell| Some((*cell, cell.figures.as_ref()?, base)))
        })
    }

    /// CPU time per connection, and connections per second.
    fn charts(&self) -> Vec<Block> {
        let own: BarPart = (Hue::Main, "the server's threads", |figures| {
            figures.own_us_per_connection_median
        });
        let softirq: BarPart = (Hue::Second, "its queue and soft interrupts", |figures| {
            figures.softirq_us_per_connection_median
        });
        let completed: BarPart = (Hue::Main, "completed, median", cps);
        let cost = |figures: &TcpFigures| BarFigures {
            figure: microseconds(cpu(figures)),
            ..BarFigures::default()
        };
        let rate = |figures: &TcpFigures| BarFigures {
            spread: extremes(&figures.cps_samples),
            figure: Quantity::PerSecond(figures.cps_median).to_string(),
            ..BarFigures::default()
        };
        let title = |text: &str| Block::Paragraph(Text::new().strong(text));
        vec![
            title("Server CPU per connection"),
            self.chart("µs", &[own, softirq], cpu, cost),
            title("Connections per second"),
            self.chart("per second", &[completed], cps, rate),
        ]
    }

    fn chart(
        &self,
        unit: &str,
        parts: &[BarPart],
        whole: fn(&TcpFigures) -> f64,
        measured: fn(&TcpFigures) -> BarFigures,
    ) -> Block {
        let bases = self.servers.iter().filter_map(|(_, cells)| base(cells));
        let against = match self.experiment {
            1 => bases.map(|cell| first_word(&cell.step)).next(),
            _ => None,
        };
        let against = against.unwrap_or("base");
        let key = parts
            .iter()
            .map(|(hue, what, _)| (*hue, (*what).to_owned()));
        let bars = self.measured().map(|(cell, figures, base)| ChartBar {
            name: format!("{} {}", cell.server, cell.step).into(),
            link: String::new(),
            outcome: Ok(BarFigures {
                parts: parts
                    .iter()
                    .map(|(hue, _, of)| (*hue, of(figures)))
                    .collect(),
                beside: base.map_or_else(String::new, |base| {
                    format!("{} {against}", times(whole(figures), whole(base)))
                }),
                ..measured(figures)
            }),
        });
        Block::Bars(Bars {
            unit: unit.to_owned(),
            key: key.collect(),
            bars: bars.collect(),
            ..Bars::default()
        })
    }

    /// Every figure, and why there are none.
    fn table(&self) -> Table {
        let (columns, show): (Vec<Column>, Vec<Show>) = columns().into_iter().unzip();
        let first = Column::words("server, step", 13).grow(4);
        let last = Column::words("2014", 10).grow(30).priority(6);
        let mut table = Table::new([first].into_iter().chain(columns).chain([last]));
        for (server, cells) in &self.servers {
            let base = base(cells).and_then(|cell| cell.figures.as_ref());
            let name = Text::new().strong(&**server).into();
            table.rows.push(Row::new([name]));
            let measured = cells.iter().filter_map(|cell| {
                let figures = cell.figures.as_ref()?;
                let paper = cell.paper.as_deref().unwrap_or_default();
                let paper = Text::new().faint(paper.replace(" %", "\u{a0}%"));
                let shown = show.iter().map(|show| show(figures, base).into());
                let step = [(&*cell.step).into()].into_iter();
                Some(Row::new(step.chain(shown).chain([paper.into()])))
            });
            table.rows.extend(measured);
            let skipped = cells.iter().filter_map(|cell| {
                let why = cell.skipped.as_deref()?;
                Some((&*cell.step, why))
            });
            let skipped = together(skipped).into_iter().map(|(why, steps)| {
                let said = format!("{}: skipped, {why}", steps.join(", "));
                Row::new([Text::new().faint(said).into()])
            });
            table.rows.extend(skipped);
        }
        table
    }
}

/// A part of a bar: its colour, what it is, and how long.
type BarPart = (Hue, &'static str, fn(&TcpFigures) -> f64);

/// The cell that a server's others are measured against: its base; in the first experiment the
/// adaptive setting, as in the paper, or that without moderation; in the second its first step.
fn base<'a>(cells: &[&'a TcpCell]) -> Option<&'a TcpCell> {
    let named = |name: &str| {
        let mut cells = cells.iter().filter(|cell| cell.figures.is_some());
        cells.find(|cell| first_word(&cell.step) == name).copied()
    };
    let first = cells.first().filter(|cell| cell.experiment == 2);
    ["base", "adaptive", "off"]
        .into_iter()
        .find_map(named)
        .or(first.copied())
}

fn first_word(words: &str) -> &str {
    words.split(' ').next().unwrap_or_default()
}

/// The server and the step of a cell.
fn named(cell: &TcpCell) -> [&str; 2] {
    [&cell.server, &cell.step]
}

/// The gain from the kernel's reuse of packet buffers, for each server measured with and without
/// it.
fn skb_reuse(result: &TcpLabResult) -> Option<String> {
    let cells = firsts(result.cells.iter().map(|cell| (cell, named(cell))));
    let cell = |server: &str, step: &str| {
        let cell = cells.get(&[server, step])?;
        Some((cell.skb_defer_max?, cpu(cell.figures.as_ref()?)))
    };
    let mut limit = None;
    let on = result.cells.iter().filter(|cell| cell.step == SKB_DEFER);
    let said = on.filter_map(|TcpCell { server, .. }| {
        let (found, on) = cell(server, SKB_DEFER)?;
        let (_, off) = cell(server, NO_SKB_DEFER)?;
        limit = Some(found);
        let ratio = times(off, on);
        let [on, off] = [on, off].map(microseconds);
        Some(format!("{server} {on} and {off} ({ratio})"))
    });
    let said: Vec<String> = said.collect();
    Some(format!(
        "server CPU per connection with the kernel's reuse of packet buffers (skb_defer_max {}) and \
         without (0): {}",
        limit?,
        said.join(", ")
    ))
}

/// How many ledgers balance, in a line.
fn balanced(result: &TcpLabResult) -> Text {
    let ledgers = || result.cells.iter().filter_map(|cell| cell.ledger.as_ref());
    let good = ledgers().filter(|ledger| ledger.account.unaccounted == 0);
    let wrong = ledgers().filter(|ledger| ledger.witnesses.iter().any(|one| !one.agrees()));
    let wrong = match wrong.count() {
        0 => String::new(),
        wrong => format!(", {wrong} contradicted by a kernel's count"),
    };
    let started = ledgers().map(|ledger| u128::from(ledger.account.started));
    let measured = result.cells.iter().filter(|cell| cell.figures.is_some());
    let said = format!(
        "{} cells measured; {} of {} connection ledgers UNACCOUNTED 0{wrong}, {} connections",
        measured.count(),
        good.count(),
        ledgers().count(),
        grouped(started.sum())
    );
    Text::new().flag(result.balances(), said)
}

/// Every ledger that does not balance, every witness that disagrees, every connection that failed,
/// and every figure that is not of what it should be.
fn doubts(result: &TcpLabResult) -> Vec<Block> {
    let mut doubts = Vec::new();
    for cell in &result.cells {
        let name = cell.key();
        if let Some(figures) = cell.figures.as_ref().filter(|figures| passed_by(figures)) {
            let said = format!("{name}: packets passed by the queues: {}", ways(figures));
            doubts.push(flagged(true, said));
        }
        let Some(ledger) = &cell.ledger else { continue };
        let account = &ledger.account;
        let fault = if account.unaccounted == 0 { "" } else { FAULT };
        if account.unaccounted != 0 || account.failed_total() > 0 {
            let name = format!("ledger of {name}{fault}");
            doubts.push(equation(&name, account, &ledger.examples).into());
        }
        let said = ledger.witnesses.iter().filter_map(disagreement);
        doubts.extend(said.map(|said| flagged(true, format!("{name}: {said}"))));
    }
    doubts
}

/// The suffix behind the name of a ledger that does not balance.
const FAULT: &str = " DOES NOT BALANCE";

/// A paragraph, highlighted if it is bad news.
fn flagged(bad: bool, said: String) -> Block {
    let style = if bad { Style::Bad } else { Style::Plain };
    Block::Paragraph(Text::styled(style, said))
}

/// True if some of a cell's packets passed by the queues.
fn passed_by(figures: &TcpFigures) -> bool {
    let shares = [figures.server_ring_share, figures.load_ring_share];
    shares.into_iter().flatten().any(|share| share < NEARLY_ALL)
}

/// Which way the packets took.
fn ways(figures: &TcpFigures) -> String {
    let [server, load] = [figures.server_ring_share, figures.load_ring_share]
        .map(|share| share.map_or("-".to_owned(), |share| Quantity::Share(share).to_string()));
    format!(
        "the queue's thread took {server} of those to the server and {load} of those to the load"
    )
}

/// The ledger of every cell, with what the two kernels counted.
fn ledgers(result: &TcpLabResult) -> Vec<Block> {
    let mut blocks = vec![Block::on_page([Block::heading(
        "Where the connections went",
    )])];
    for cell in &result.cells {
        let Some(ledger) = &cell.ledger else { continue };
        let mut inside = vec![equation("", &ledger.account, &ledger.examples).into()];
        inside.extend(ledger.witnesses.iter().map(|witness| {
            let count = grouped(witness.witness.into());
            let agrees = || format!("{}: {} agrees, {count}", witness.about, witness.source);
            let doubt = disagreement(witness);
            flagged(doubt.is_some(), doubt.unwrap_or_else(agrees))
        }));
        let kernel = ledger.kernel.iter();
        let kernel: Vec<String> = kernel
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        if !kernel.is_empty() {
            let said = format!("The kernels also counted: {}", kernel.join("; "));
            inside.push(Block::Paragraph(Text::new().faint(said)));
        }
        if let Some(figures) = &cell.figures {
            let [server, load] =
                [figures.server_cpu_busy_median, figures.load_cpu_busy_median].map(Quantity::Share);
            let latency = [figures.latency_p50_us_median, figures.latency_p99_us_median];
            let [half, most] = latency.map(|us| us.map_or("-".to_owned(), microseconds));
            let said = format!(
                "Limited by {}. Of the packets {}. CPU of the server {server} busy, of the load \
                 {load}. A connection's latency: p50 {half}, p99 {most}.",
                figures.limited_by,
                ways(figures)
            );
            inside.push(flagged(passed_by(figures), said));
        }
        inside.extend(cell.notes.iter().map(Block::note));
        let fault = if ledger.balances() { "" } else { FAULT };
        blocks.push(Block::Details(format!("{}{fault}", cell.key()), inside));
    }
    blocks
}

/// How each server was set up. A terminal shows only the servers that did not run.
fn servers(result: &TcpLabResult) -> Vec<Block> {
    let columns = [
        Column::words("Server", 14),
        Column::words("Version", 10).grow(20),
        Column::words("Set-up", 20).grow(60),
    ];
    let rows = result.servers.iter().map(|server| {
        let skipped = server.skipped.iter().map(|why| format!("skipped: {why}"));
        let set_up: Vec<String> = server.set_up.iter().cloned().chain(skipped).collect();
        Row::new([
            Text::new().strong(&*server.name).into(),
            server.version.as_deref().unwrap_or("-").into(),
            set_up.join("; ").into(),
        ])
    });
    let table = Table::new(columns).rows(rows);
    let skipped = result.servers.iter().filter_map(|server| {
        let why = server.skipped.as_ref()?;
        let said = format!("skipped {}: {why}", server.name);
        Some(Block::Paragraph(Text::new().faint(said)))
    });
    vec![
        Block::on_page([Block::heading("The servers"), table.into()]),
        Block::on_text(skipped),
    ]
}

fn cps(figures: &TcpFigures) -> f64 {
    figures.cps_median
}

fn cpu(figures: &TcpFigures) -> f64 {
    figures.cpu_us_per_connection_median
}

fn us(us: f64) -> String {
    Quantity::Microseconds(us).figure()
}

fn rate(rate: f64) -> String {
    Quantity::PerSecond(rate).figure()
}

fn microseconds(us: f64) -> String {
    unbroken(&Quantity::Microseconds(us).to_string())
}

/// A ratio, `1.40x`; a dash where there is none.
fn times(a: f64, b: f64) -> String {
    let ratio = if b > 0.0 { a / b } else { f64::NAN };
    Quantity::Times(ratio).to_string()
}
