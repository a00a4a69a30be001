//! The figures of the rows as a table, and one row's section with its ledgers.

use super::{anchor, capital};
use crate::bench::result::BenchRow;
use crate::report::bench::{Group, calls, name, per_call, spread, times};
use crate::report::html::ledger::{breakdown, equation, samples, witnesses};
use crate::report::{Shares, mpps, percent};
use maud::{Markup, html};

/// Every figure of a group.
pub(super) fn table(group: &Group<'_>) -> Markup {
    html! {
        h3 { (capital(group.heading)) }
        table.cards.figures.wide {
            thead {
                tr {
                    th { "Path" }
                    th.number { "Received Mpps" }
                    th.number { "Lowest-highest" }
                    th.number { "Of offered" }
                    th.number { "Against recvmmsg" }
                    th.number { "App ns" }
                    th.number { "NAPI ns" }
                    th.number { "Packets per call" }
                    th.number { "Calls per packet" }
                }
            }
            tbody { @for row in &group.rows { (line(row, group)) } }
        }
    }
}

fn line(row: &BenchRow, group: &Group<'_>) -> Markup {
    let cost = row.cpu_ns_per_packet.as_ref();
    let ns = |figure: Option<f64>| figure.map(|ns| format!("{ns:.0}"));
    let figures = [
        ("received, Mpps", row.mpps_median.map(mpps)),
        ("lowest-highest", spread(row)),
        ("of offered", row.delivered_ratio.map(percent)),
        ("against recvmmsg", group.times(row).map(times)),
        ("app, ns", ns(cost.and_then(|cost| cost.app))),
        ("NAPI, ns", ns(cost.and_then(|cost| cost.softirq))),
        ("packets per call", row.packets_per_call.map(per_call)),
        ("calls per packet", row.calls_per_packet.map(calls)),
    ];
    html! {
        tr {
            td.name { a href={ "#" (anchor(row)) } { (name(row)) } }
            @for (what, figure) in figures {
                td.number data-name=(what) { (figure.unwrap_or_else(|| "-".to_owned())) }
            }
        }
    }
}

/// One row: how it ran, and where its packets went.
pub(super) fn section(row: &BenchRow, group: &Group<'_>) -> Markup {
    html! {
        article id=(anchor(row)) {
            header {
                h3 { (name(row)) }
                span.number {
                    b { (row.mpps_median.map_or("-".to_owned(), mpps)) " Mpps" }
                    @if let Some(ratio) = group.times(row) { span.faint { " · " (times(ratio)) " recvmmsg" } }
                }
            }
            p { "Mode: " (row.mode) "." }
            p { "NAPI ran: " (row.napi) "; queues that carried the traffic: " (row.queues) "." }
            @if let Some(offered) = row.offered_mpps_median {
                p { "Offered " b { (mpps(offered)) " Mpps" } (samples(&row.mpps_samples)) "." }
            }
            @if let Some(cost) = &row.cpu_ns_per_packet { p.faint { "CPU time by " (cost.method) "." } }
            @for note in &row.notes { p { b { "Note: " } (note) } }
            @if let Some(shares) = Shares::of(row.ledger.as_ref(), &row.sample_ledgers) { (breakdown(&shares, row.ledger.iter().chain(&row.sample_ledgers))) }
            @if let Some(ledger) = &row.ledger { (equation(ledger)) (witnesses(ledger)) }
            @if !row.sample_ledgers.is_empty() {
                details {
                    summary { "Ledgers of the repeats" }
                    @for ledger in &row.sample_ledgers { (equation(ledger)) }
                }
            }
        }
    }
}
