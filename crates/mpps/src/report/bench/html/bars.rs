//! The bar charts: received rates, and CPU time per packet.

use super::{anchor, capital};
use crate::bench::result::BenchRow;
use crate::report::bench::{Group, name, times};
use crate::report::html::chart::{
    HEIGHT, Scale, axis, bar_key, break_key, broken, guides, whisker, whisker_key,
};
use crate::report::{extremes, mpps};
use maud::{Markup, html};

/// A bar per row with the spread of its repeats, by group, all on one scale.
pub(super) fn rates(groups: &[Group<'_>]) -> Markup {
    let all = || groups.iter().flat_map(|group| &group.rows);
    let rates = all().flat_map(|row| row.mpps_samples.iter().copied().chain(row.mpps_median));
    let scale = Scale::up_to(highest(rates, 1e6).max(0.001));
    html! {
        p.key {
            (bar_key("bar", "received, median"))
            @if all().any(|row| row.reference) { (bar_key("reference", "reference row (*)")) }
            (whisker_key())
        }
        @for group in groups {
            h3 { (capital(group.heading)) }
            ul.ladder {
                @for row in &group.rows { (rate(row, group, &scale)) }
                (axis(&scale, "Mpps"))
            }
        }
    }
}

fn rate(row: &BenchRow, group: &Group<'_>, scale: &Scale) -> Markup {
    let said = row
        .mpps_median
        .map_or("unknown".to_owned(), |rate| format!("{} Mpps", mpps(rate)));
    let extremes = extremes(&row.mpps_samples);
    html! {
        li {
            a.name href={ "#" (anchor(row)) } { (name(row)) }
            svg height=(HEIGHT) role="img" aria-label=(said) {
                title { (said) }
                (guides(scale))
                @if let Some(median) = row.mpps_median {
                    rect class=(class(row)) x="0" y="9" width=(scale.at(median)) height="15" {}
                }
                @if let Some(extremes) = extremes { (whisker(extremes, scale)) }
            }
            span.figure.number {
                b { (said) }
                @if let Some(ratio) = group.times(row) {
                    span.faint { (times(ratio)) " recvmmsg" }
                }
            }
        }
    }
}

fn class(row: &BenchRow) -> &'static str {
    if row.reference { "reference" } else { "bar" }
}

/// What the application and the queue's kernel thread took for a packet, one bar behind the other.
pub(super) fn costs(groups: &[Group<'_>]) -> Markup {
    let scale = cost_scale(groups);
    let all = || groups.iter().flat_map(|group| &group.rows);
    let is_broken = |row: &&&BenchRow| cost(row).total() > scale.end;
    html! {
        p.key {
            (bar_key("bar", "application"))
            (bar_key("napi", "NAPI, the kernel's part"))
            @if all().any(|row| is_broken(&row)) { (break_key()) }
        }
        p.faint {
            "A receiver that spins uses all of its CPU: its figure tells what the rate leaves, and not what \
             a packet needs."
        }
        @for group in groups {
            h3 { (capital(group.heading)) }
            ul.ladder {
                @for row in &group.rows { (bar(row, &scale)) }
                (axis(&scale, "ns"))
            }
        }
    }
}

/// CPU time for a packet in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Cost {
    app: Option<f64>,
    napi: Option<f64>,
}

impl Cost {
    fn total(self) -> f64 {
        self.app.unwrap_or(0.0) + self.napi.unwrap_or(0.0)
    }
}

fn cost(row: &BenchRow) -> Cost {
    let cost = row.cpu_ns_per_packet.as_ref();
    Cost {
        app: cost.and_then(|cost| cost.app),
        napi: cost.and_then(|cost| cost.softirq),
    }
}

/// Ends at the highest cost of a row that sleeps between packets. One that spins, and gets few
/// packets, would press all others against the left edge: its bar is broken off instead.
fn cost_scale(groups: &[Group<'_>]) -> Scale {
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let sleeping = rows().filter(|row| row.variant != "spin");
    let top = highest(sleeping.map(|row| cost(row).total()), 1e6);
    let all = highest(rows().map(|row| cost(row).total()), 1e6);
    Scale::up_to(if top > 0.0 { top } else { all }.max(1.0))
}

fn bar(row: &BenchRow, scale: &Scale) -> Markup {
    let cost = cost(row);
    let (said, short) = match (cost.app, cost.napi) {
        (Some(app), Some(napi)) => (
            format!("app {app:.0} ns, NAPI {napi:.0} ns"),
            format!("{app:.0} + {napi:.0}"),
        ),
        (Some(app), None) => (format!("app {app:.0} ns"), "app".to_owned()),
        (None, Some(napi)) => (format!("NAPI {napi:.0} ns"), "NAPI".to_owned()),
        (None, None) => ("unknown".to_owned(), String::new()),
    };
    html! {
        li {
            a.name href={ "#" (anchor(row)) } { (name(row)) }
            svg height=(HEIGHT) role="img" aria-label=(said) {
                title { (said) }
                (guides(scale))
                @if let Some(app) = cost.app {
                    rect.bar x="0" y="5" width=(scale.at(app)) height="17" {}
                }
                @if let Some(napi) = cost.napi {
                    @let from = cost.app.unwrap_or(0.0);
                    rect.napi x=(scale.at(from)) y="5" width=(scale.length(from, (from + napi).min(scale.end))) height="17" {}
                }
                @if cost.total() > scale.end { (broken()) }
            }
            span.figure.number {
                b { @if short.is_empty() { "-" } @else { (format!("{:.0} ns", cost.total())) } }
                span.faint { (short) }
            }
        }
    }
}

/// The highest figure that a chart can be drawn to; no receiver gets a million Mpps, and no packet
/// takes a millisecond.
fn highest(figures: impl Iterator<Item = f64>, bound: f64) -> f64 {
    figures
        .filter(|figure| (0.0..bound).contains(figure))
        .fold(0.0, f64::max)
}
