//! One rung's section: its breakdown, ledger, witnesses, threads, queues and CPUs.

use super::ledger::{breakdown, equation, samples, witnesses};
use crate::report::sender::verdict;
use crate::report::{Shares, article, mpps, percent};
use crate::result::{PathTaken, RungResult};
use maud::{Markup, html};
use mpps_host::Grouped;

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
            p { "Offered " b { (mpps(offered)) " Mpps" } (samples(&rung.mpps_samples)) "." }
        }
        @if let Some(sender) = &rung.sender {
            p { "Sent by " b { (sender.name) } " (" (sender.why) "): " (verdict(sender)) "." }
        }
        @if let Some(limit) = &rung.limited_by {
            p { "Limited by " b { (limit.what) } ": " (limit.evidence) "." }
        }
        @for note in &rung.notes { p { b { "Note: " } (note) } }
        @if let Some(shares) = Shares::of_rung(rung) { (breakdown(&shares, rung.sample_ledgers.iter().chain(&rung.ledger))) }
        @if let Some(ledger) = &rung.ledger { (equation(ledger)) (witnesses(ledger)) }
        @if let Some(path) = &rung.path { (path_taken(path)) }
        (details(rung))
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
