//! The paper's second table: what a rate of polls gives and takes, at a low load and at full.

use super::{cpu, microseconds, named, rate, us};
use crate::experiment::connections::paper_2014;
use crate::experiment::connections::result::{TcpCell, TcpFigures, TcpLabResult, body};
use crate::measure::document::{firsts, together};
use crate::measure::noise::{MeasuredChange, Noise, SAMPLES_MIN};
use mpps_report::{Block, Column, Row, Table, Text};

/// A setting at a low load and at full, all other techniques on.
struct TradeOff<'a> {
    cell: &'a TcpCell,
    share: f64,
    low: &'a TcpFigures,
    full: &'a TcpFigures,
}

/// Those of each server that were measured at both loads.
fn settings(result: &TcpLabResult) -> Vec<(&str, Vec<TradeOff<'_>>)> {
    let low = firsts(result.cells.iter().filter_map(|cell| {
        let (step, _share) = cell.step.split_once(" at ")?;
        Some((cell, [&*cell.server, step]))
    }));
    let full = result.cells.iter().filter(|cell| cell.is_sweep());
    let both = full.filter_map(|cell| {
        let low = low.get(&named(cell))?;
        let setting = TradeOff {
            cell,
            share: low.load_share?,
            low: low.figures.as_ref()?,
            full: cell.figures.as_ref()?,
        };
        Some((setting, &*cell.server))
    });
    together(both)
}

/// Latency, throughput and CPU time against the rate.
pub(super) fn table(result: &TcpLabResult) -> Vec<Block> {
    let settings = settings(result);
    let Some(TradeOff { cell, share, .. }) = settings.first().and_then(|(_, own)| own.first())
    else {
        return Vec::new();
    };
    let share = share * 100.0;
    let low = |what: &str| format!("{share:.0}%: {what}");
    let mut table = Table::new([
        Column::words("server, rate", 13).grow(4),
        Column::figure(low("p50 \u{b5}s"), 7),
        Column::figure(low("p99 \u{b5}s"), 7).priority(2),
        Column::figure(low("CPU \u{b5}s"), 6).priority(3),
        Column::figure("full: p50 \u{b5}s", 7),
        Column::figure("full: p99 \u{b5}s", 7).priority(2),
        Column::figure("full: Mbit/s", 7).priority(1),
        Column::figure("full: CPU \u{b5}s", 6),
        Column::words("2014", 10).grow(30).priority(6),
    ]);
    for (server, own) in &settings {
        table
            .rows
            .push(Row::new([Text::new().strong(*server).into()]));
        table.rows.extend(own.iter().map(|one| {
            let paper = paper_2014::trade(&one.cell.step).unwrap_or_default();
            let figures = [
                latency(one.low.latency_p50_us_median),
                latency(one.low.latency_p99_us_median),
                us(cpu(one.low)),
                latency(one.full.latency_p50_us_median),
                latency(one.full.latency_p99_us_median),
                rate(one.full.throughput_mbit_median),
                us(cpu(one.full)),
            ];
            let figures = figures.into_iter().map(Into::into);
            let step = [(&*one.cell.step).into()].into_iter();
            Row::new(step.chain(figures).chain([Text::new().faint(paper).into()]))
        }));
    }
    let heading = format!(
        "Table 2: latency, throughput and CPU per connection against the rate, at {share:.0} % of the \
         load and at full, {} bodies, all other techniques on",
        body(cell.body_bytes)
    );
    vec![Block::heading(heading), table.into()]
}

fn latency(median: Option<f64>) -> String {
    median.map_or("-".to_owned(), us)
}

/// Whether the order of latencies turns round under load, as the paper's discussion has it: that a
/// high rate gives the lower latency where there is little to do, and the higher one where interrupts
/// take the CPU from the server.
pub(super) fn inversion(result: &TcpLabResult) -> Vec<String> {
    let settings = settings(result);
    let told = settings.iter().filter_map(|(server, own)| {
        let fixed = || own.iter().filter(|one| one.cell.moderation_us.is_some());
        let by_time = |a: &&TradeOff<'_>, b: &&TradeOff<'_>| {
            let times = [a, b].map(|one| one.cell.moderation_us.unwrap_or_default());
            times[0].total_cmp(&times[1])
        };
        let (few, many) = (fixed().max_by(by_time)?, fixed().min_by(by_time)?);
        (few.cell.step != many.cell.step).then(|| order(server, own, [few, many]))
    });
    told.collect()
}

/// The verdict of the noise test on two rates, the lower one first, at both loads.
fn order<'a>(server: &str, own: &[TradeOff<'a>], [few, many]: [&TradeOff<'a>; 2]) -> String {
    let of_few = |figures: &TcpFigures| figures.latency_p50_us_samples.len() < SAMPLES_MIN;
    if own.iter().any(|one| of_few(one.low) || of_few(one.full)) {
        return format!(
            "{server}: whether the order of latencies turns round under load is shown from \
             {SAMPLES_MIN} repeats on"
        );
    }
    let at = |load: fn(&TradeOff<'a>) -> &'a TcpFigures| {
        let samples = |one: &TradeOff<'a>| &*load(one).latency_p50_us_samples;
        let noise = Noise::of(own.iter().map(|one| (samples(one), samples(one))));
        let change = noise.judge(samples(few), samples(many)).0;
        let verdict = match change {
            MeasuredChange::Same => "alike by the noise test",
            MeasuredChange::Better => "higher",
            MeasuredChange::Worse => "lower",
        };
        let median = |one: &TradeOff<'a>| {
            load(one)
                .latency_p50_us_median
                .map_or("-".to_owned(), microseconds)
        };
        (
            change,
            format!("{} against {}, {verdict}", median(many), median(few)),
        )
    };
    let (low, at_low) = at(|one| one.low);
    let (full, at_full) = at(|one| one.full);
    let verdict = match (low, full) {
        (MeasuredChange::Worse, MeasuredChange::Better) => {
            "as in the paper, the order of latencies turns round under load"
        }
        (MeasuredChange::Same, _) | (_, MeasuredChange::Same) => {
            "not here: the noise hides whether the order turns round, as the paper's did"
        }
        _ => "not here: the order of latencies does not turn round under load, as the paper's did",
    };
    format!(
        "{server}, median latency with {} against {}: at {:.0} % of the load {at_low}; at full load \
         {at_full}; {verdict}",
        many.cell.step,
        few.cell.step,
        few.share * 100.0,
    )
}

#[cfg(test)]
mod tests;
