//! The effects of each stage, as a document.

use super::proof::{Compared, Effect, Proof, ProofResult};
use crate::measure::document::{LOST, RunHead, document_of, rates};
use mpps_host::setting::tune::TuneGoal;
use mpps_report::{Block, Column, Document, Quantity, Row, Table, Text};
use std::path::Path;

/// The whole report.
pub(crate) fn document(result: &ProofResult, written: &[(&str, &Path)]) -> Document {
    let head = RunHead::of(result, &result.traffic, "stage", &result.notes);
    let mut blocks = head.first([]);
    let unit = Unit::of(result.goal);
    let columns = [
        Column::words("stage", 13),
        Column::figure("without", 7),
        Column::figure("with", 7),
        Column::figure("rate", 6),
        Column::figure("lost without", 7).priority(1),
        Column::figure("lost with", 7).priority(1),
        Column::figure(format!("{} per CPU time", unit.name()), unit.name().len()).priority(2),
        Column::words("verdict", 20).grow(20),
        Column::figure("seen from", 7).priority(3),
    ];
    blocks.push(
        Table::new(columns)
            .rows(result.rows.iter().map(|one| row(one, unit)))
            .into(),
    );
    blocks.push(head.last());
    blocks.push(Block::Sentences(
        sentences(result).into_iter().map(Text::from).collect(),
    ));
    blocks.push(Block::on_page(
        result.rows.iter().flat_map(|row| section(row, unit)),
    ));
    let about = [
        "Each stage was measured on top of those before it that were kept, without it and with it in \
         turn; the row `nothing` compares the host with itself. Rates are of the traffic that came, so \
         that they do not compare with those of another run."
            .into(),
        format!("A rate is {}.", result.rate_definition).into(),
        "CPU time is that of all CPUs of the machine together, by ticks of 10 ms (/proc/stat).".into(),
    ];
    let title = "mpps tune prove: what each setting brings here";
    document_of(title, result, blocks, about, written)
}

/// The unit of rates.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Packets,
    Connections,
}

impl Unit {
    fn of(goal: Option<TuneGoal>) -> Self {
        match goal {
            Some(TuneGoal::Tcp) => Self::Connections,
            Some(TuneGoal::Udp | TuneGoal::AfXdp) | None => Self::Packets,
        }
    }

    fn rate(self, millions: f64) -> Quantity {
        match self {
            Self::Packets => Quantity::Mpps(millions),
            Self::Connections => Quantity::PerSecond(millions * 1e6),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Connections => "connections",
        }
    }
}

fn row(row: &Proof, unit: Unit) -> Row {
    let dash = || "-".to_owned();
    let rate = |side: &Compared| {
        let rate = side.runs.mpps_median.map(|median| unit.rate(median));
        rate.map_or_else(dash, Quantity::figure)
    };
    let lost = |side: &Compared| {
        let totals = side.runs.totals();
        totals.map_or_else(dash, |totals| totals.lost().to_string())
    };
    let ratio = |effect: &Effect| {
        let ratio = effect.ratio.map(Quantity::Times);
        ratio.map_or_else(dash, |ratio| ratio.to_string())
    };
    let visible = row.rate.visible.map(Quantity::Share);
    Row::new([
        (*row.stage).into(),
        rate(&row.without).into(),
        Text::new().strong(rate(&row.with)).into(),
        ratio(&row.rate).into(),
        lost(&row.without).into(),
        lost(&row.with).into(),
        ratio(&row.cost).into(),
        verdict(row, unit).into(),
        visible
            .map_or_else(dash, |visible| visible.to_string())
            .into(),
    ])
}

/// The outcome of a stage, and why.
fn verdict(row: &Proof, unit: Unit) -> String {
    if let Some(why) = &row.stopped {
        return format!("put back: {why}");
    }
    let of = |what: &str| what.replace("packets", unit.name());
    match (row.kept, row.gain(), row.harm()) {
        (true, gain, _) => format!("kept: {}", of(gain.unwrap_or("better"))),
        (false, Some(gain), _) => of(gain),
        (false, None, Some(harm)) => format!("put back: {}", of(harm)),
        (false, None, None) if row.edits.is_empty() => "no difference".to_owned(),
        (false, None, None) => "put back: no difference".to_owned(),
    }
}

fn sentences(result: &ProofResult) -> Vec<String> {
    let kept: Vec<&str> = result
        .rows
        .iter()
        .filter(|row| row.kept)
        .map(|row| &*row.stage)
        .collect();
    let first = match kept.as_slice() {
        [] => "No stage helps beyond the noise.".to_owned(),
        kept => format!("Better beyond the noise: {}.", kept.join(", ")),
    };
    let noisy = result.rows.iter().find(|row| row.is_noisy()).map(|_| {
        "The host differs from itself: the traffic changed meanwhile, and none of these verdicts can be \
         trusted."
            .to_owned()
    });
    [first].into_iter().chain(noisy).collect()
}

/// The changes of a stage, and where its packets went.
fn section(row: &Proof, unit: Unit) -> Vec<Block> {
    let mut blocks = vec![Block::heading(&*row.stage)];
    blocks.extend(row.edits.iter().map(|edit| Block::paragraph(&**edit)));
    for (side, compared) in [("without", &row.without), ("with", &row.with)] {
        let lost = compared.runs.totals().map(|totals| totals.lost_where(LOST));
        let lost = lost.filter(|lost| !lost.is_empty());
        blocks.extend(lost.map(|lost| Block::paragraph(format!("lost {side}: {lost}"))));
        let offered = compared.runs.offered_mpps_median;
        let each = &compared.runs.mpps_samples;
        blocks.extend(offered.map(|offered| rates(offered, each, |rate| unit.rate(rate))));
    }
    blocks
}
