//! The bar charts of a group: CPU time per connection, and connections per second.

use crate::report::extremes;
use crate::report::html::chart::{HEIGHT, Scale, axis, bar_key, guides, whisker, whisker_key};
use crate::report::tcp_lab::{Group, base, microseconds, per_second, skipped, times};
use crate::tcp_lab::result::{TcpCell, TcpFigures};
use maud::{Markup, html};

/// No figure of a chart is beyond this: a chart of a foreign file must not be pressed flat.
const HIGHEST: f64 = 1e7;

/// The server's own part and the kernel's, one bar behind the other.
pub(super) fn costs(group: &Group<'_>) -> Markup {
    let all = figures(group).map(|figures| figures.cpu_us_per_connection_median);
    let scale = Scale::up_to(highest(all).max(1.0));
    html! {
        h3 { "Server CPU per connection" }
        p.key { (bar_key("bar", "the server's threads")) (bar_key("napi", "its queue and soft interrupts")) }
        @for (name, cells) in &group.servers {
            h4 { (name) }
            ul.ladder {
                @for cell in cells { @if let Some(figures) = &cell.figures { (cost(cell, figures, base(cells), &scale)) } }
                (left_out(cells))
            }
        }
        ul.ladder { (axis(&scale, "µs")) }
    }
}

fn cost(cell: &TcpCell, figures: &TcpFigures, base: Option<&TcpFigures>, scale: &Scale) -> Markup {
    let own = figures.own_us_per_connection_median;
    let softirq = figures.softirq_us_per_connection_median;
    let all = figures.cpu_us_per_connection_median;
    let said = format!(
        "{}: own {}, softirq {}",
        microseconds(all),
        microseconds(own),
        microseconds(softirq)
    );
    html! {
        li {
            span.name { (cell.step) }
            svg height=(HEIGHT) role="img" aria-label=(said) {
                title { (said) }
                (guides(scale))
                rect.bar x="0" y="5" width=(scale.at(own)) height="17" {}
                rect.napi x=(scale.at(own)) y="5" width=(scale.length(own, (own + softirq).min(scale.end))) height="17" {}
            }
            span.figure.number {
                b { (microseconds(all)) }
                @if let Some(base) = base { span.faint { (times(all, base.cpu_us_per_connection_median)) " " (against(cell)) } }
            }
        }
    }
}

/// Connections per second with the spread of the repeats.
pub(super) fn rates(group: &Group<'_>) -> Markup {
    let all = figures(group).flat_map(|figures| figures.cps_samples.iter().copied());
    let scale = Scale::up_to(highest(all).max(1.0));
    html! {
        h3 { "Connections per second" }
        p.key { (bar_key("bar", "completed, median")) (whisker_key()) }
        @for (name, cells) in &group.servers {
            h4 { (name) }
            ul.ladder {
                @for cell in cells { @if let Some(figures) = &cell.figures { (rate(cell, figures, base(cells), &scale)) } }
            }
        }
        ul.ladder { (axis(&scale, "per second")) }
    }
}

fn rate(cell: &TcpCell, figures: &TcpFigures, base: Option<&TcpFigures>, scale: &Scale) -> Markup {
    let said = format!(
        "{} per second, limited by {}",
        per_second(figures.cps_median),
        figures.limited_by
    );
    html! {
        li {
            span.name { (cell.step) }
            svg height=(HEIGHT) role="img" aria-label=(said) {
                title { (said) }
                (guides(scale))
                rect.bar x="0" y="9" width=(scale.at(figures.cps_median)) height="15" {}
                @if let Some(extremes) = extremes(&figures.cps_samples) { (whisker(extremes, scale)) }
            }
            span.figure.number {
                b { (per_second(figures.cps_median)) "/s" }
                @if let Some(base) = base { span.faint { (times(figures.cps_median, base.cps_median)) " " (against(cell)) } }
            }
        }
    }
}

/// What a cell is measured against: the first experiment's base is the step without moderation.
fn against(cell: &TcpCell) -> &'static str {
    if cell.experiment == 1 { "off" } else { "base" }
}

fn left_out(cells: &[&TcpCell]) -> Markup {
    html! {
        @for (steps, why) in skipped(cells) {
            li { span.name { (steps) } span.skipped.faint { "skipped: " (why) } }
        }
    }
}

fn figures<'a>(group: &'a Group<'_>) -> impl Iterator<Item = &'a TcpFigures> {
    let cells = group.servers.iter().flat_map(|(_, cells)| cells);
    cells.filter_map(|cell| cell.figures.as_ref())
}

fn highest(figures: impl Iterator<Item = f64>) -> f64 {
    figures
        .filter(|figure| (0.0..HIGHEST).contains(figure))
        .fold(0.0, f64::max)
}
