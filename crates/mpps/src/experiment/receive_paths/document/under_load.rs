//! Goodput against offered load, and early drops over more and more queues.

use super::{of_peak, or_dash, repeats};
use crate::experiment::receive_paths::result::{OverloadCurve, OverloadPoint, SpreadRow};
use crate::measure::document::{equation, together};
use crate::measure::samples::extremes;
use mpps_report::{
    Axis, BarFigures, Bars, Block, Cell, ChartBar, ChartLine, Column, Curve, Hue, Quantity, Row,
    Scale, Section, Table, Text, range,
};

/// The note on how to read the curves.
const IDEAL: &str = "Queue and application share one CPU. The dashed line is an ideal receiver: it \
    takes everything up to the path's peak, and stays there. Each drawing has its own scale.";
/// The same for a table with bars.
const KEY: &str = "█ received   ░ what is missing to all of it, or to the path's peak; asked: Mpps asked \
    of the sender; full: not paced, as fast as it goes";
/// The note on the figures per CPU.
const PER_CPU: &str = "Mpps per CPU: packets over the CPU time of the queues' kernel threads, what a \
    CPU handles that does nothing else. Where nearly all that was offered was dropped, the sender was \
    the slower one, and Mpps is the sender's. The article of 2015 measured 1.4 Mpps by one queue on one \
    CPU, and 0.48 Mpps per CPU over four, on a network card, with iptables in the table raw.";

/// The goodput of each path as the offered rate grows.
pub(super) fn overload(curves: &[OverloadCurve]) -> Vec<Block> {
    if curves.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        Block::heading("Goodput in Mpps against offered load"),
        Block::on_page([
            Block::paragraph(IDEAL),
            Block::Curves(curves.iter().map(drawing).collect()),
        ]),
        Block::on_text([Block::Paragraph(Text::new().faint(KEY))]),
    ];
    blocks.extend(curves.iter().map(|curve| points(curve).into()));
    blocks
}

/// The peak, and what is kept of it.
fn said(curve: &OverloadCurve) -> String {
    let most = curve
        .points
        .last()
        .map(|last| of_peak(last, curve.peak_mpps));
    format!(
        "peak {}, keeps {} of it at {} offered",
        Quantity::Mpps(curve.peak_mpps),
        Quantity::Share(curve.kept),
        most.map_or_else(String::new, |most| most.to_string()),
    )
}

fn drawing(curve: &OverloadCurve) -> Curve {
    let axis = |name: &str| Axis {
        name: name.to_owned(),
        scale: Scale::Linear,
    };
    let line = |name: &str, hue, points| ChartLine {
        name: name.to_owned(),
        hue,
        points,
    };
    let offered = curve.points.iter().map(|point| point.offered_mpps);
    let (peak, end) = (curve.peak_mpps, offered.fold(0.0, f64::max));
    let measured = curve.points.iter();
    let measured = measured.map(|point| (point.offered_mpps, point.goodput_mpps));
    Curve {
        title: Text::new()
            .strong(curve.title())
            .faint(format!(" {}", said(curve))),
        x: axis("offered, Mpps"),
        y: axis("received, Mpps"),
        lines: vec![
            line(
                "ideal",
                Hue::Ideal,
                vec![(0.0, 0.0), (peak, peak), (end.max(peak), peak)],
            ),
            line("received", Hue::Main, measured.collect()),
        ],
    }
}

/// The figures of a curve, a bar per load, and the ledger of each point.
fn points(curve: &OverloadCurve) -> Section {
    let columns = [
        Column::figure("asked", 6),
        Column::figure("offered", 7),
        Column::figure("times peak", 6),
        Column::figure("received", 8),
        Column::figure("% of offered", 7).priority(2),
        Column::bar("", 60).priority(1),
    ];
    let rows = curve.points.iter().map(|point| {
        let asked = point.asked_mpps.map(Quantity::Mpps);
        Row::new([
            asked
                .map_or_else(|| "full".to_owned(), Quantity::figure)
                .into(),
            Quantity::Mpps(point.offered_mpps).figure().into(),
            of_peak(point, curve.peak_mpps).figure().into(),
            Text::new()
                .strong(Quantity::Mpps(point.goodput_mpps).figure())
                .into(),
            Quantity::Share(point.ledger.delivered_ratio())
                .figure()
                .into(),
            bar(point, curve.peak_mpps),
        ])
    });
    let mode = format!("{}; NAPI: {}", curve.mode, curve.napi);
    let mut blocks = vec![Block::Paragraph(Text::new().faint(mode))];
    blocks.extend(curve.notes.iter().map(Block::note));
    blocks.push(Table::new(columns).rows(rows).into());
    let ledgers = curve.points.iter().map(|point| {
        let offered = Quantity::Mpps(point.offered_mpps);
        equation(format!("ledger at {offered} offered"), &point.ledger).into()
    });
    blocks.extend(repeats(ledgers));
    Section {
        heading: curve.title().into(),
        anchor: String::new(),
        figure: said(curve).into(),
        blocks,
    }
}

/// The received part of a load, and behind it the part missing to the ideal receiver. That receiver
/// takes everything up to its peak, and stays there.
fn bar(point: &OverloadPoint, peak_mpps: f64) -> Cell {
    // A value that is no number has no length; the cast of NaN is 0.
    let place = |rate: f64| {
        let share = (rate / peak_mpps.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        (share * 1000.0).round() as u16
    };
    let full = place(point.goodput_mpps);
    Cell::Bar {
        full,
        missing: place(point.offered_mpps).saturating_sub(full),
    }
}

/// Early drops over more and more receive queues: a chart and a table for each sender.
pub(super) fn spread(rows: &[SpreadRow]) -> Vec<Block> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        Block::heading("Early drops over more and more receive queues"),
        Block::Paragraph(Text::new().faint(PER_CPU)),
    ];
    for of_sender in rows.chunk_by(|one, next| one.sender == next.sender) {
        blocks.push(Block::heading(&*of_sender[0].sender));
        blocks.push(Block::on_page([bars(of_sender).into()]));
        blocks.push(table(of_sender).into());
        let ledgers = of_sender.iter().flat_map(|row| {
            let of = format!("ledger of {}", name(row));
            row.runs.equations(&of).collect::<Vec<_>>()
        });
        blocks.extend(repeats(ledgers));
    }
    blocks
}

fn name(row: &SpreadRow) -> String {
    let queues = if row.queues == 1 { "queue" } else { "queues" };
    format!("{}, {} {queues}", row.title(), row.queues)
}

fn bars(rows: &[SpreadRow]) -> Bars {
    let measured = rows.iter().filter(|row| row.runs.skipped.is_none());
    let bars = measured.map(|row| ChartBar {
        name: name(row).into(),
        link: String::new(),
        outcome: Ok(BarFigures {
            parts: row
                .mpps_per_cpu
                .iter()
                .map(|rate| (Hue::Main, *rate))
                .collect(),
            figure: row.mpps_per_cpu.map_or_else(
                || "unknown".to_owned(),
                |rate| Quantity::Mpps(rate).to_string(),
            ),
            ..BarFigures::default()
        }),
    });
    Bars {
        unit: "Mpps".to_owned(),
        key: vec![(Hue::Main, "Mpps per CPU".to_owned())],
        bars: bars.collect(),
        ..Bars::default()
    }
}

fn table(rows: &[SpreadRow]) -> Table {
    let columns = [
        Column::words("path", 18).grow(7),
        Column::figure("queues", 6),
        Column::words("on", 8).priority(2),
        Column::figure("Mpps", 6),
        Column::figure("% of offered", 7).priority(2),
        Column::figure("each queue", 11).priority(3),
        Column::figure("NAPI ns", 4).priority(3),
        Column::figure("Mpps per CPU", 7),
        Column::figure("article per CPU", 7).priority(1),
        Column::words("mode", 30).grow(60).priority(4),
    ];
    let measured = rows.iter().filter(|row| row.runs.skipped.is_none());
    let measured = measured.map(|row| {
        let mpps = |rate: Option<f64>| or_dash(rate.map(Quantity::Mpps)).into();
        let each = extremes(&row.queue_mpps).map(|ends| range(ends.map(Quantity::Mpps)));
        Row::new([
            row.title().into(),
            row.queues.to_string().into(),
            row.cpus().into(),
            or_dash(row.runs.rate()).into(),
            or_dash(row.runs.delivered_ratio.map(Quantity::Share)).into(),
            each.unwrap_or_else(|| "-".to_owned()).into(),
            or_dash(row.napi_ns_per_packet.map(Quantity::Nanoseconds)).into(),
            mpps(row.mpps_per_cpu),
            mpps(row.article_mpps_per_cpu),
            Text::new().faint(&*row.mode).into(),
        ])
    });
    Table::new(columns).rows(measured).rows(skipped(rows))
}

/// The rows that did not run, those of one reason in one row.
fn skipped(rows: &[SpreadRow]) -> impl Iterator<Item = Row> {
    let all = rows.iter().filter_map(|row| {
        let why = row.runs.skipped.as_deref()?;
        Some((row.title(), (row.queues, why)))
    });
    together(all).into_iter().map(|((queues, why), names)| {
        Row::new([
            names.join(", ").into(),
            queues.to_string().into(),
            Text::new().faint(format!("skipped: {why}")).into(),
        ])
    })
}
