//! The placements as a document.

use super::{PlacementResult, PlacementRow};
use crate::measure::document::{LOST, RunHead, document_of};
use crate::measure::noise;
use mpps_report::{
    BarFigures, Bars, Block, ChartBar, Column, Document, Hue, Quantity, Row, Section, Table, Text,
    range,
};
use std::path::Path;

/// The whole report.
pub(crate) fn document(result: &PlacementResult, written: &[(&str, &Path)]) -> Document {
    let head = RunHead::of(result, &result.placement, "repeat", &result.notes);
    let mut blocks = head.first([Block::paragraph(format!("sender: {}", result.sender))]);
    let columns = [
        Column::words("receiver on", 20),
        Column::figure("Mpps", 6),
        Column::figure("lowest-highest", 14).priority(1),
        Column::figure("lost", 7),
        Column::words("lost where", LOST).grow(20).priority(2),
        Column::figure("queue CPU", 5).priority(3),
        Column::figure("receiver CPU", 8).priority(3),
        Column::figure("sender CPU", 6).priority(3),
        Column::figure("article 2015", 9).priority(4),
    ];
    let bar = |row: &PlacementRow| ChartBar {
        name: (*row.place).into(),
        link: String::new(),
        outcome: row.runs.outcome(BarFigures {
            range: Some(row.article_mpps),
            ..row.runs.measured(Hue::Main)
        }),
    };
    let bars = Bars {
        unit: "Mpps".to_owned(),
        key: vec![(Hue::Main, "received, median".to_owned())],
        range: Some("article, 2015".to_owned()),
        break_at: None,
        bars: result.rows.iter().map(bar).collect(),
    };
    blocks.push(Block::on_page([bars.into()]));
    blocks.push(Table::new(columns).rows(result.rows.iter().map(row)).into());
    let measured = || result.rows.iter().filter(|row| row.runs.skipped.is_none());
    blocks.extend(measured().flat_map(|row| row.runs.doubts(&row.place, "")));
    blocks.extend([Block::Paragraph(result.balanced().said()), head.last()]);
    let rates: Vec<(&str, Vec<f64>)> = measured()
        .map(|row| (&*row.place, row.runs.mpps_samples.clone()))
        .collect();
    let best = noise::best(&rates, Quantity::Mpps);
    blocks.push(Block::Sentences(best.map(Text::from).into_iter().collect()));
    blocks.push(Block::on_page(measured().map(|row| section(row).into())));
    let hosts = match result.interface {
        None => {
            "Two hosts on one machine share its CPUs: ratios between the placements mean more than \
             the figures, and the article's are of two servers with a 10G NIC."
        }
        Some(_) => {
            "Losses before this host, and packets that its sender held back, have no counter here. The \
             article's figures are of two servers with a 10G NIC."
        }
    };
    let rate = format!("A rate is {}.", result.rate_definition);
    let about = [hosts.into(), rate.into()];
    let title = "mpps placement: the receiver and its queue's CPU";
    document_of(title, result, blocks, about, written)
}

fn section(row: &PlacementRow) -> Section {
    let rate = row.runs.rate().map(|rate| rate.to_string());
    let offered = row.runs.offered().into_iter();
    Section {
        heading: format!("Receiver on {}", row.place).into(),
        anchor: String::new(),
        figure: Text::new().strong(rate.unwrap_or_default()),
        blocks: offered.chain(row.runs.whole()).collect(),
    }
}

fn row(row: &PlacementRow) -> Row {
    if let Some(why) = &row.runs.skipped {
        let cells = [row.place.clone(), format!("skipped: {why}")];
        return Row::new(cells.map(|words| Text::new().faint(words).into()));
    }
    let dash = || "-".to_owned();
    let totals = row.runs.totals();
    let lost = totals
        .as_ref()
        .map_or_else(dash, |totals| totals.lost().to_string());
    let lost_where = totals.map_or_else(String::new, |totals| totals.lost_where(LOST));
    let cpu = |cpu: Option<usize>| cpu.map_or_else(dash, |cpu| cpu.to_string()).into();
    let rate = row.runs.rate().map_or_else(dash, Quantity::figure);
    let article = range(row.article_mpps.map(Quantity::Mpps));
    Row::new([
        (*row.place).into(),
        Text::new().strong(rate).into(),
        row.runs.spread().unwrap_or_else(dash).into(),
        lost.into(),
        lost_where.into(),
        cpu(row.queue_cpu),
        cpu(row.receiver_cpu),
        cpu(row.sender_cpu),
        Text::new().faint(article).into(),
    ])
}
