//! The account of connections, or of their requests, as documents show it.

use super::document::count;
use mpps_http::{Failure, LoadAccount};
use mpps_report::{Balance, Equation, Quantity};
use std::collections::BTreeMap;

/// The account of connections or requests as an equation, without what did not happen; `examples`
/// are the first failures of their kinds.
pub(crate) fn equation(
    name: &str,
    account: &LoadAccount,
    examples: &BTreeMap<Failure, String>,
) -> Equation {
    let words = |failure: &Failure| failure.to_string().replace('_', " ");
    let mut terms = format!(
        "started {} = completed {}",
        count(account.started),
        count(account.completed)
    );
    for (failure, number) in account.failed.iter().filter(|(_, number)| **number > 0) {
        terms.push_str(&format!(" + {} {}", words(failure), count(*number)));
    }
    if account.aborted_at_end > 0 {
        let cut_off = count(account.aborted_at_end);
        terms.push_str(&format!(" + cut off at the end {cut_off}"));
    }
    let example =
        |(failure, text): (&Failure, &String)| format!("{}, the first: {text}", words(failure));
    let notes = examples.iter().map(example).collect();
    self::account(name, terms, account.unaccounted, notes)
}

/// Terms of connections as an equation, with what no counter explains.
pub(crate) fn account(name: &str, terms: String, unaccounted: i64, notes: Vec<String>) -> Equation {
    Equation {
        name: name.to_owned(),
        terms,
        remainder: format!(
            "UNACCOUNTED {}",
            Quantity::Signed(unaccounted.into()).figure()
        ),
        balance: match unaccounted {
            0 => Balance::Balances,
            _ => Balance::Unbalanced,
        },
        notes,
    }
}
