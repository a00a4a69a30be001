//! Every figure, every ledger and every server, as tables.

use crate::report::percent;
use crate::report::tcp_lab::{
    Group, base, body, disagreements, equation, microseconds, passed_by, per_second, spread, times,
};
use crate::tcp_lab::result::{TcpCell, TcpFigures, TcpLabResult};
use maud::{Markup, html};

/// Every figure of a group.
pub(super) fn figures(group: &Group<'_>) -> Markup {
    html! {
        h3 { "Every figure" }
        table.cards.figures.wide {
            thead {
                tr {
                    th { "Server, step" }
                    th.number { "CPS" }
                    th.number { "Lowest-highest" }
                    th.number { "To base" }
                    th.number { "CPU µs" }
                    th.number { "To base" }
                    th.number { "Latency p50 / p99, µs" }
                    th.number { "Context switches/s" }
                    th { "Limited by" }
                    th { "Paper, 2014" }
                }
            }
            tbody {
                @for (name, cells) in &group.servers {
                    @for cell in cells {
                        @if let Some(figures) = &cell.figures { (line(name, cell, figures, base(cells))) }
                    }
                }
            }
        }
    }
}

fn line(name: &str, cell: &TcpCell, figures: &TcpFigures, base: Option<&TcpFigures>) -> Markup {
    let ratio = |own: f64, of: fn(&TcpFigures) -> f64| base.map(|base| times(own, of(base)));
    let cpu = figures.cpu_us_per_connection_median;
    let latency = [figures.latency_p50_us_median, figures.latency_p99_us_median];
    let latency = latency.map(|us| us.map_or("-".to_owned(), |us| format!("{us:.0}")));
    let columns = [
        ("CPS", Some(per_second(figures.cps_median))),
        ("lowest-highest", spread(&figures.cps_samples, per_second)),
        (
            "CPS to base",
            ratio(figures.cps_median, |base| base.cps_median),
        ),
        ("CPU, µs", Some(format!("{cpu:.1}"))),
        (
            "CPU to base",
            ratio(cpu, |base| base.cpu_us_per_connection_median),
        ),
        ("latency p50 / p99, µs", Some(latency.join(" / "))),
        (
            "context switches/s",
            Some(per_second(figures.context_switches_per_second_median)),
        ),
    ];
    html! {
        tr {
            td.name { (name) " " (cell.step) }
            @for (what, figure) in columns {
                td.number data-name=(what) { (figure.unwrap_or_else(|| "-".to_owned())) }
            }
            td data-name="limited by" { (figures.limited_by) }
            @if let Some(paper) = &cell.paper { td.faint data-name="paper, 2014" { (paper) } } @else { td {} }
        }
    }
}

/// A way to show one figure of a cell.
type Show = fn(&TcpFigures) -> String;

/// What is told of every body side by side.
pub(super) fn bodies(groups: &[&Group<'_>]) -> Markup {
    let shown: [(&str, Show); 3] = [
        ("Connections per second, by body", |f| {
            per_second(f.cps_median)
        }),
        ("Server CPU per connection in µs, by body", |f| {
            format!("{:.1}", f.cpu_us_per_connection_median)
        }),
        ("Throughput of bodies in Mbit/s, by body", |f| {
            per_second(f.throughput_mbit_median)
        }),
    ];
    html! {
        @for (heading, show) in shown {
            h3 { (heading) }
            table.cards.figures {
                thead {
                    tr { th { "Server, step" } @for group in groups { th.number { (body(group.body_bytes)) } } }
                }
                tbody { @for (name, step) in names(groups) { (by_body(groups, name, step, show)) } }
            }
        }
    }
}

/// The servers and steps that were measured, in the order of the first body.
fn names<'a>(groups: &[&'a Group<'_>]) -> Vec<(&'a str, &'a str)> {
    let Some(first) = groups.first() else {
        return Vec::new();
    };
    let servers = first.servers.iter().flat_map(|(name, cells)| {
        let measured = cells.iter().filter(|cell| cell.skipped.is_none());
        measured.map(move |cell| (*name, &*cell.step))
    });
    servers.collect()
}

fn by_body(groups: &[&Group<'_>], name: &str, step: &str, show: Show) -> Markup {
    html! {
        tr {
            td.name { (name) " " (step) }
            @for group in groups {
                @let cells = group.servers.iter().find(|(server, _)| *server == name).map(|(_, cells)| cells);
                @let cell = cells.and_then(|cells| cells.iter().find(|cell| cell.step == step));
                @let figures = cell.and_then(|cell| cell.figures.as_ref());
                td.number data-name=(body(group.body_bytes)) { (figures.map_or("-".to_owned(), show)) }
            }
        }
    }
}

/// The ledger of every cell, with what the two kernels counted.
pub(super) fn ledgers(result: &TcpLabResult) -> Markup {
    html! {
        @for cell in &result.cells {
            @if let Some(ledger) = &cell.ledger {
                details {
                    summary {
                        (cell.experiment) " / " (cell.server) " / " (cell.step) " / " (body(cell.body_bytes)) " "
                        @if ledger.unaccounted != 0 { span.flag.bad { "DOES NOT BALANCE" } }
                    }
                    p.equation { (equation(ledger)) }
                    @for said in disagreements(ledger) { p.bad { (said) } }
                    @for witness in ledger.witnesses.iter().filter(|witness| witness.agrees()) {
                        p { (witness.about) ": " (witness.source) " agrees, " (witness.witness) }
                    }
                    @if !ledger.kernel.is_empty() {
                        p.faint { "The kernels also counted: " @for (name, count) in &ledger.kernel { (name) " " (count) "; " } }
                    }
                    @if let Some(figures) = &cell.figures { (path(figures)) }
                    @for note in &cell.notes { p { b { "Note: " } (note) } }
                }
            }
        }
    }
}

/// Which way the packets took.
fn path(figures: &TcpFigures) -> Markup {
    let share = |share: Option<f64>| share.map_or("-".to_owned(), percent);
    let bad = passed_by(figures);
    html! {
        p.bad[bad] {
            "Taken from the ring by the queue's thread: " (share(figures.server_ring_share))
            " of the packets to the server, " (share(figures.load_ring_share)) " of those to the load. "
            "CPU of the server " (percent(figures.server_cpu_busy_median)) " busy, of the load "
            (percent(figures.load_cpu_busy_median)) "; of a connection "
            (microseconds(figures.own_us_per_connection_median)) " in the server's threads, "
            (microseconds(figures.softirq_us_per_connection_median)) " in its queue's."
        }
    }
}

/// How each server was set up.
pub(super) fn servers(result: &TcpLabResult) -> Markup {
    html! {
        table.cards {
            thead { tr { th { "Server" } th { "Version" } th { "Set-up" } } }
            tbody {
                @for server in &result.servers {
                    tr {
                        td { b { (server.name) } }
                        td { (server.version.as_deref().unwrap_or("-")) }
                        td {
                            @for said in &server.set_up { p { (said) } }
                            @if let Some(why) = &server.skipped { p.bad { "Skipped: " (why) } }
                        }
                    }
                }
            }
        }
    }
}
