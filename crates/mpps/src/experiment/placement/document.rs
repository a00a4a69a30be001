//! The placements as a document.

use super::{Placed, PlacementResult};
use crate::measure::document::{Head, end_of_page, files};
use crate::measure::noise;
use crate::udp::runs::bars;
use mpps_report::{Block, Column, Document, Quantity, Row, Table, Text, range};
use std::path::Path;

/// Characters that the words of a loss have at least.
const LOST: usize = 26;

/// The whole report.
pub(crate) fn document(result: &PlacementResult, written: &[(&str, &Path)]) -> Document {
    let head = Head::of(result, &result.placement, "repeat", &result.notes);
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
    let bar = |row: &Placed| {
        row.runs
            .bar(&row.place, row.skipped.as_ref(), row.article_mpps)
    };
    blocks.push(bars("article, 2015", result.rows.iter().map(bar)));
    blocks.push(Table::new(columns).rows(result.rows.iter().map(row)).into());
    let measured = || result.rows.iter().filter(|row| row.skipped.is_none());
    blocks.extend(measured().flat_map(|row| row.runs.doubts(&row.place)));
    blocks.extend([Block::Paragraph(result.balanced().said()), head.last()]);
    let rates: Vec<(&str, Vec<f64>)> = measured()
        .map(|row| (&*row.place, row.runs.rates()))
        .collect();
    let best = noise::best(&rates, Quantity::Mpps);
    blocks.push(Block::Sentences(best.map(Text::from).into_iter().collect()));
    let sections = measured().map(|row| {
        let heading = format!("Receiver on {}", row.place);
        row.runs.section(&heading).into()
    });
    blocks.push(Block::on_page(sections));
    let hosts = match result.interface {
        None => {
            "Two hosts on one machine share its CPUs: ratios between the placements mean more than \
             the figures, and the article's are of two servers with a 10G NIC."
        }
        Some(_) => {
            "What was lost before this host, and what its sender held back, has no counter here. The \
             article's figures are of two servers with a 10G NIC."
        }
    };
    let rate = format!("A rate is {}.", result.rate_definition);
    let about = [hosts.into(), rate.into()];
    blocks.push(end_of_page(result, about, written));
    blocks.push(files(written));
    Document::new(
        "mpps placement: the receiver and its queue's CPU",
        format!("mpps {}", result.version),
        blocks,
    )
}

fn row(row: &Placed) -> Row {
    if let Some(why) = &row.skipped {
        let cells = [row.place.clone(), format!("skipped: {why}")];
        return Row::new(cells.map(|words| Text::new().faint(words).into()));
    }
    let dash = || "-".to_owned();
    let totals = row.runs.totals();
    let lost = totals
        .as_ref()
        .map_or_else(dash, |totals| totals.lost().to_string());
    let cpu = |cpu: Option<usize>| cpu.map_or_else(dash, |cpu| cpu.to_string()).into();
    let rate = row.runs.rate().map_or_else(dash, Quantity::figure);
    let article = range(row.article_mpps.map(Quantity::Mpps));
    Row::new([
        (*row.place).into(),
        Text::new().strong(rate).into(),
        row.runs.spread().unwrap_or_else(dash).into(),
        lost.into(),
        totals
            .map_or_else(String::new, |totals| totals.lost_where(LOST))
            .into(),
        cpu(row.queue_cpu),
        cpu(row.receiver_cpu),
        cpu(row.sender_cpu),
        Text::new().faint(article).into(),
    ])
}
