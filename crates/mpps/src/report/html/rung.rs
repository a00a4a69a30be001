//! One rung's section: its breakdown, ledger, witnesses, threads, queues and CPUs.

use super::chart::{stack, station_class};
use crate::report::{LostShare, Shares, article, hard_numbers, mpps, percent};
use crate::result::{PathTaken, RungResult};
use maud::{Markup, html};
use mpps_host::{Grouped, Ledger, Loss};

/// The whole section.
pub(super) fn section(rung: &RungResult) -> Markup {
    html! {
        article id={ "rung-" (rung.rung) } {
            header {
                h3 { "Rung " (rung.rung) ": " (rung.name) }
                @if let Some(rate) = rung.mpps_median {
                    span.number {
                        b { (mpps(rate)) " Mpps" }
                        @if let Some(range) = rung.article_mpps { span.faint { " · article " (article(range)) } }
                    }
                }
            }
            p.faint { (rung.lesson) }
            @if let Some(reason) = &rung.skipped {
                p { b { "Skipped: " } (reason) }
            } @else {
                (measured(rung))
            }
        }
    }
}

fn measured(rung: &RungResult) -> Markup {
    html! {
        @if let Some(offered) = rung.offered_mpps_median {
            p { "Offered " b { (mpps(offered)) " Mpps" } (samples(rung)) "." }
        }
        @if let Some(limit) = &rung.limited_by {
            p { "Limited by " b { (limit.what) } ": " (limit.evidence) "." }
        }
        @for note in &rung.notes { p { b { "Note: " } (note) } }
        @if let Some(shares) = Shares::of(rung) { (breakdown(rung, &shares)) }
        @if let Some(ledger) = &rung.ledger { (equation(ledger)) (witnesses(ledger)) }
        @if let Some(path) = &rung.path { (path_taken(path)) }
        (details(rung))
    }
}

fn samples(rung: &RungResult) -> String {
    if rung.mpps_samples.is_empty() {
        return String::new();
    }
    let rates: Vec<_> = rung.mpps_samples.iter().copied().map(mpps).collect();
    format!(
        "; received in {} repeats: {}",
        rates.len(),
        rates.join(", ")
    )
}

/// The stacked bar and its table: delivered, each loss with its counter, queued, unaccounted.
fn breakdown(rung: &RungResult, shares: &Shares) -> Markup {
    let end = shares.losses.len() + 2;
    html! {
        (stack(shares))
        table.cards {
            thead {
                tr { th { "Where" } th.number { "Datagrams" } th.number { "Share" } th { "Counter" } }
            }
            tbody {
                (line(1, "delivered", "delivered", shares.delivered, shares, "the receiving program's own count"))
                @for (at, lost) in shares.losses.iter().enumerate() {
                    (line(at + 2, station_class(lost.station), &format!("{}: {}", lost.station, lost.reason),
                        lost.count, shares, &counter(rung, lost)))
                }
                (line(end, "queued", "still queued", shares.queued, shares, "drained and counted at the end"))
                @if shares.unaccounted != 0 {
                    tr {
                        td { (swatch("unaccounted")) span.mark { (end + 1) } " " span.flag.bad { "UNACCOUNTED" } }
                        td.number { (shares.unaccounted) }
                        td.number {}
                        td { "no counter explains these" }
                    }
                }
            }
        }
    }
}

fn line(
    number: usize,
    class: &str,
    what: &str,
    count: u128,
    shares: &Shares,
    counter: &str,
) -> Markup {
    html! {
        tr {
            td { (swatch(class)) span.mark { (number) } " " (what) }
            td.number { (grouped(count)) }
            td.number { (percent(shares.share(count))) }
            td.faint data-name="counter:" { (counter) }
        }
    }
}

fn swatch(class: &str) -> Markup {
    html! { svg.swatch aria-hidden="true" { rect class=(class) width="100%" height="100%" {} } }
}

/// The counter behind a loss, and what has to be known of it.
fn counter(rung: &RungResult, lost: &LostShare) -> String {
    let mut all = rung
        .sample_ledgers
        .iter()
        .chain(&rung.ledger)
        .flat_map(|ledger| &ledger.losses);
    let same = |loss: &&Loss| loss.station == lost.station && loss.reason == lost.reason;
    let Some(loss) = all.find(same) else {
        return String::new();
    };
    let mut said = loss.source.clone();
    if loss.by_difference {
        said.push_str(", by difference");
    }
    if !loss.exact {
        said.push_str(", inexact");
    }
    said
}

/// The ledger as the equation it is, its last term green or red.
fn equation(ledger: &Ledger) -> Markup {
    let text = hard_numbers(&ledger.to_string());
    let (terms, last) = match text.rfind("UNACCOUNTED") {
        Some(at) => text.split_at(at),
        None => (&*text, ""),
    };
    let good = ledger.balances();
    html! {
        p.equation.number {
            (terms)
            span.flag.good[good].bad[!good] { (last) }
            @if good { " it balances" } @else if ledger.unaccounted == 0 { " a row is inexact" } @else { " it does not balance" }
        }
        @for note in &ledger.notes { p.faint { "Ledger: " (note) } }
    }
}

fn witnesses(ledger: &Ledger) -> Markup {
    html! {
        @if !ledger.witnesses.is_empty() {
            h4 { "Witnesses" }
            table.cards {
                thead {
                    tr { th { "About" } th { "Second count" } th.number { "Ledger" } th.number { "Witness" } th { "Verdict" } }
                }
                tbody {
                    @for witness in &ledger.witnesses {
                        tr {
                            td { (witness.about) }
                            td.faint { (witness.source) }
                            td.number data-name="ledger" { (Grouped(witness.ledger)) }
                            td.number data-name="witness" { (Grouped(witness.witness)) }
                            td {
                                @if witness.agrees() { span.good { "✓ agrees" } }
                                @else { span.flag.bad { "✗ disagrees" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn path_taken(path: &PathTaken) -> Markup {
    html! {
        p { "Path: " (path.name) ", proved by " code { (path.counter) } " = " span.number { (Grouped(path.count)) } "." }
    }
}

fn details(rung: &RungResult) -> Markup {
    let queues = rung.path.as_ref().map_or(&[][..], |path| &path.queues);
    html! {
        details {
            summary {
                (several(rung.threads.len(), "thread")) ", " (several(queues.len(), "queue")) ", "
                (several(rung.cpu_busy.len(), "CPU"))
            }
            @if !rung.threads.is_empty() {
                h4 { "Receiving threads, last repeat" }
                table.cards {
                    thead { tr {
                        th { "CPU" } th.number { "Datagrams" } th.number { "Dropped by its socket" }
                        th.number { "Per call" } th.number { "CPU ns each" }
                    } }
                    tbody { @for thread in &rung.threads { tr {
                        td { (thread.cpu.map_or("not pinned".to_owned(), |cpu| format!("CPU {cpu}"))) }
                        td.number data-name="received" { (Grouped(thread.received)) }
                        td.number data-name="dropped" { (thread.socket_drops.map_or("shared".to_owned(), |drops| Grouped(drops).to_string())) }
                        td.number data-name="per call" { (format!("{:.1}", thread.packets_per_call)) }
                        td.number data-name="CPU ns each" { (format!("{:.0}", thread.cpu_ns_per_packet)) }
                    } } }
                }
            }
            @if !queues.is_empty() {
                h4 { "Receive queues" }
                table.cards {
                    thead { tr { th { "Queue" } th.number { "Packets" } } }
                    tbody { @for queue in queues { tr {
                        td { "queue " (queue.queue) }
                        td.number data-name="packets" { (Grouped(queue.packets)) }
                    } } }
                }
            }
            @if !rung.cpu_busy.is_empty() {
                h4 { "CPUs" }
                table.cards {
                    thead { tr { th { "CPU" } th.number { "Busy" } th.number { "In soft interrupts" } th { "What ran there" } } }
                    tbody { @for cpu in &rung.cpu_busy { tr {
                        td { "CPU " (cpu.cpu) }
                        td.number data-name="busy" { (percent(cpu.busy)) }
                        td.number data-name="soft interrupts" { (percent(cpu.softirq)) }
                        td { (cpu.roles.join(", ")) }
                    } } }
                }
            }
            @if !rung.sample_ledgers.is_empty() {
                h4 { "Ledgers of the repeats" }
                @for ledger in &rung.sample_ledgers { (equation(ledger)) }
            }
        }
    }
}

fn several(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn grouped(count: u128) -> String {
    u64::try_from(count).map_or(count.to_string(), |count| Grouped(count).to_string())
}
