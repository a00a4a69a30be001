//! A ledger as a bar, a table, an equation and its witnesses.

use super::chart::{stack, station_class};
use crate::report::{LostShare, Shares, hard_numbers, mpps, percent};
use maud::{Markup, html};
use mpps_host::{Grouped, Ledger, Loss};

/// The stacked bar and its table: delivered, each loss with its counter, queued, unaccounted. The
/// counters are those that the ledgers name.
pub(in crate::report) fn breakdown<'a>(
    shares: &Shares,
    ledgers: impl Iterator<Item = &'a Ledger> + Clone,
) -> Markup {
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
                        lost.count, shares, &counter(ledgers.clone(), lost)))
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

/// A little square in the colour of a style class.
pub(in crate::report) fn swatch(class: &str) -> Markup {
    html! { svg.swatch aria-hidden="true" { rect class=(class) width="100%" height="100%" {} } }
}

/// The counter behind a loss, and what has to be known of it.
fn counter<'a>(ledgers: impl Iterator<Item = &'a Ledger>, lost: &LostShare) -> String {
    let mut all = ledgers.flat_map(|ledger| &ledger.losses);
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
pub(in crate::report) fn equation(ledger: &Ledger) -> Markup {
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

/// Second and third counts, agreeing or not.
pub(in crate::report) fn witnesses(ledger: &Ledger) -> Markup {
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

/// The rates of the repeats, as the end of a sentence.
pub(in crate::report) fn samples(rates: &[f64]) -> String {
    if rates.is_empty() {
        return String::new();
    }
    let said: Vec<_> = rates.iter().copied().map(mpps).collect();
    format!("; received in {} repeats: {}", said.len(), said.join(", "))
}

fn grouped(count: u128) -> String {
    u64::try_from(count).map_or(count.to_string(), |count| Grouped(count).to_string())
}
