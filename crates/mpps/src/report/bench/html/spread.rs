//! Early drops over more and more queues: a chart of what a CPU handles, and every figure.

use crate::bench::result::SpreadRow;
use crate::report::bench::text::spread::{cpus, each_queue};
use crate::report::bench::title;
use crate::report::html::chart::{HEIGHT, Scale, axis, bar_key, guides};
use crate::report::html::ledger::equation;
use crate::report::{mpps, percent};
use maud::{Markup, html};

/// A chart and a table for each sender.
pub(super) fn section(rows: &[SpreadRow]) -> Markup {
    let mut senders: Vec<&str> = rows.iter().map(|row| row.sender.as_str()).collect();
    senders.dedup();
    // No CPU handles a million Mpps: such a figure of a foreign file is not drawn.
    let rates = rows.iter().filter_map(|row| row.mpps_per_cpu);
    let highest = rates.filter(|rate| (0.0..1e6).contains(rate));
    let scale = Scale::up_to(highest.fold(0.001, f64::max));
    html! {
        p.faint {
            "Mpps per CPU is packets over the CPU time of the queues' kernel threads: what a CPU handles that \
             does nothing else. Where nearly all that was offered was dropped, the sender was the slower \
             one, and the rate is the sender's. The article of 2015 measured 1.4 Mpps by one queue on one CPU, and \
             0.48 Mpps per CPU over four, on a network card, with iptables in the table raw."
        }
        @for sender in senders {
            @let of_sender = || rows.iter().filter(|row| row.sender == sender);
            h3 { (sender) }
            p.key { (bar_key("bar", "Mpps per CPU")) }
            ul.ladder {
                @for row in of_sender().filter(|row| row.skipped.is_none()) { (bar(row, &scale)) }
                (axis(&scale, "Mpps"))
            }
            table.cards.figures.wide {
                thead { tr {
                    th { "Path" } th.number { "Queues" } th { "On CPUs" } th.number { "Mpps" }
                    th.number { "Of offered" } th.number { "Each queue" } th.number { "NAPI ns" }
                    th.number { "Mpps per CPU" } th.number { "Article, per CPU" }
                } }
                tbody { @for row in of_sender() { (line(row)) } }
            }
            details {
                summary { "Ledgers of the repeats" }
                @for row in of_sender() {
                    @for ledger in &row.ledgers { p.faint { (name(row)) } (equation(ledger)) }
                }
            }
        }
    }
}

fn name(row: &SpreadRow) -> String {
    let queues = if row.queues == 1 { "queue" } else { "queues" };
    format!(
        "{}, {} {queues}",
        title(&row.path, &row.variant),
        row.queues
    )
}

fn bar(row: &SpreadRow, scale: &Scale) -> Markup {
    let said = row
        .mpps_per_cpu
        .map_or("unknown".to_owned(), |rate| format!("{} Mpps", mpps(rate)));
    html! {
        li {
            span.name { (name(row)) }
            svg height=(HEIGHT) role="img" aria-label=(said) {
                title { (said) }
                (guides(scale))
                @if let Some(rate) = row.mpps_per_cpu {
                    rect.bar x="0" y="9" width=(scale.at(rate)) height="15" {}
                }
            }
            span.figure.number { b { (said) } }
        }
    }
}

fn line(row: &SpreadRow) -> Markup {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    html! {
        tr {
            td { b.name { (title(&row.path, &row.variant)) } " " span.faint { (row.mode) } }
            td.number data-name="queues" { (row.queues) }
            @if let Some(why) = &row.skipped {
                td colspan="7" { "skipped: " (why) }
            } @else {
                td data-name="on CPUs" { (cpus(row)) }
                td.number data-name="Mpps" { (or_dash(row.mpps_median.map(mpps))) }
                td.number data-name="of offered" { (or_dash(row.delivered_ratio.map(percent))) }
                td.number data-name="each queue" { (each_queue(row)) }
                td.number data-name="NAPI, ns" { (or_dash(row.napi_ns_per_packet.map(|ns| format!("{ns:.0}")))) }
                td.number data-name="Mpps per CPU" { (or_dash(row.mpps_per_cpu.map(mpps))) }
                td.number data-name="article, per CPU" { (or_dash(row.article_mpps_per_cpu.map(mpps))) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::bench::tests::fixture;

    #[test]
    fn every_row_has_a_line_and_a_bar_or_its_reason() {
        let mut rows = fixture().spread;
        let page = section(&rows).into_string();
        let measured = rows.iter().filter(|row| row.skipped.is_none()).count();
        assert_eq!(page.matches("<li><span class=\"name\">").count(), measured);
        for row in &rows {
            let known = row.skipped.clone();
            let known = known.unwrap_or_else(|| mpps(row.mpps_median.expect("it was measured")));
            assert!(page.contains(&known), "{known}");
        }
        let odd = [f64::NAN, f64::INFINITY, -1.0, f64::MAX];
        for (row, rate) in rows.iter_mut().zip(odd.into_iter().cycle()) {
            (row.mpps_per_cpu, row.mpps_median) = (Some(rate), Some(rate));
            row.queue_mpps = vec![rate];
        }
        let page = section(&rows).into_string();
        for bad in ["width=\"NaN", "width=\"inf", "x=\"NaN"] {
            assert!(!page.contains(bad), "{bad}");
        }
    }
}
