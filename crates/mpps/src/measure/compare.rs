//! Tells whether a second run is better or worse than a first, or only noise apart, row by row.
//!
//! What is noise is decided in [`super::noise`]; a ledger that no longer balances is worse at any
//! rate.

mod text;

use super::noise::{CHANGE_MIN, Change, Noise, RATE_MIN, SAMPLES_MIN};
use super::samples::median;
use anyhow::{Result, ensure};
use mpps_host::{Difference, Fingerprint, Ledger};
use serde::Serialize;

/// A result to be compared.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    /// The file's name as the user gave it.
    pub(crate) file: &'a str,
    /// The command that writes such files: `mpps lab`.
    pub(crate) command: &'static str,
    /// What one row is called: `rung`.
    pub(crate) unit: &'static str,
    /// True for a run that is too short.
    pub(crate) quick: bool,
    /// False if it ended early.
    pub(crate) complete: bool,
    /// The machine.
    pub(crate) fingerprint: &'a Fingerprint,
    /// What else should be alike, by name.
    pub(crate) facts: Vec<(&'static str, &'a str)>,
    /// What was measured.
    pub(crate) rows: Vec<Row<'a>>,
}

/// Repeated measurements of one thing. It is the same in another result if number and name are, as
/// `4b` may be another placement elsewhere.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    /// A number, with a letter for variants.
    pub(crate) number: &'a str,
    /// What was done.
    pub(crate) name: &'a str,
    /// Why it was not measured.
    pub(crate) skipped: Option<&'a str>,
    /// The rate of each repeat, in million datagrams per second.
    pub(crate) mpps: &'a [f64],
    /// The median of the offered rate.
    pub(crate) offered_mpps: Option<f64>,
    /// Who sent.
    pub(crate) sender: Option<&'a str>,
    /// Where every packet of the exactness run went.
    pub(crate) ledger: Option<&'a Ledger>,
    /// The same of each repeat.
    pub(crate) sample_ledgers: &'a [Ledger],
}

/// What became of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// No difference that the noise would not make.
    Same,
    /// B received more.
    Better,
    /// B received less, or its ledger no longer balances.
    Worse,
    /// Measured in A, not in B's file.
    OnlyInA,
    /// Measured in B, not in A's file.
    OnlyInB,
    /// Skipped in at least one of them.
    Skipped,
}

impl From<Change> for Verdict {
    fn from(change: Change) -> Self {
        match change {
            Change::Same => Self::Same,
            Change::Better => Self::Better,
            Change::Worse => Self::Worse,
        }
    }
}

impl Verdict {
    /// The verdict as people read it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Same => "same (noise)",
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::OnlyInA => "only in A",
            Self::OnlyInB => "only in B",
            Self::Skipped => "skipped",
        }
    }
}

/// One row in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RowComparison {
    /// Its number.
    pub(crate) rung: String,
    /// What was done.
    pub(crate) name: String,
    /// What became of it.
    pub(crate) verdict: Verdict,
    /// Median of A's samples, in million datagrams per second.
    pub(crate) a_mpps_median: Option<f64>,
    /// Median of B's samples, in million datagrams per second.
    pub(crate) b_mpps_median: Option<f64>,
    /// B's median over A's; absent if A received nothing.
    pub(crate) ratio: Option<f64>,
    /// The smallest change that could have been told from noise, as a share: 0.12 is 12 %.
    pub(crate) detectable: Option<f64>,
    /// What a reader has to know: why it is worse, why it was skipped.
    pub(crate) notes: Vec<String>,
}

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// `mpps.compare.v1`.
    pub(crate) schema: &'static str,
    /// The first file.
    pub(crate) a: String,
    /// The second file.
    pub(crate) b: String,
    /// True if any row is worse in B.
    pub(crate) worse: bool,
    /// How the machines or their settings differ.
    pub(crate) fingerprint_differences: Vec<Difference>,
    /// What else differs between the two runs, or makes them hard to compare.
    pub(crate) notes: Vec<String>,
    /// The rows in A's order, then those that only B has.
    pub(crate) rungs: Vec<RowComparison>,
}

/// Compares two runs of one command, row by row.
///
/// # Errors
/// If one of them is a quick run, has a row with fewer than three samples, or if they have no
/// measured rung in common.
pub(crate) fn compare(a: &Side<'_>, b: &Side<'_>) -> Result<Comparison> {
    refuse(a)?;
    refuse(b)?;
    let pairs = a.rows.iter().filter_map(|row| Some((row, find(b, row)?)));
    let pairs = pairs.filter(|(a, b)| a.skipped.is_none() && b.skipped.is_none());
    let samples: Vec<_> = pairs.map(|(a, b)| (a.mpps, b.mpps)).collect();
    ensure!(
        !samples.is_empty(),
        "{} and {} have no measured {} in common: run both with the same --only, or without",
        a.file,
        b.file,
        a.unit
    );
    let noise = Noise::of(samples.into_iter());
    let rows = a.rows.iter();
    let mut rungs: Vec<_> = rows.map(|row| beside(row, find(b, row), &noise)).collect();
    let only_in_b = b.rows.iter().filter(|row| find(a, row).is_none());
    rungs.extend(only_in_b.map(|row| alone(row, Verdict::OnlyInB)));
    Ok(Comparison {
        schema: "mpps.compare.v1",
        a: a.file.to_owned(),
        b: b.file.to_owned(),
        worse: rungs.iter().any(|rung| rung.verdict == Verdict::Worse),
        fingerprint_differences: a.fingerprint.differences(b.fingerprint),
        notes: notes(a, b, &rungs),
        rungs,
    })
}

/// A run that is too short says nothing, and too few repeats nothing of noise.
fn refuse(side: &Side<'_>) -> Result<()> {
    let Side { command, file, .. } = side;
    ensure!(
        !side.quick,
        "{file} is of a --quick run, too short to be compared: run `{command}` without --quick"
    );
    let measured = side.rows.iter().filter(|row| row.skipped.is_none());
    for row in measured {
        ensure!(
            row.mpps.len() >= SAMPLES_MIN,
            "{} {} of {file} was measured {} times, fewer than {SAMPLES_MIN}: run `{command} \
             --repeat 5`",
            side.unit,
            row.number,
            row.mpps.len()
        );
    }
    Ok(())
}

fn find<'s>(side: &'s Side<'_>, row: &Row<'_>) -> Option<&'s Row<'s>> {
    let mut rows = side.rows.iter();
    rows.find(|other| other.number == row.number && other.name == row.name)
}

fn alone(row: &Row<'_>, verdict: Verdict) -> RowComparison {
    let median = median(row.mpps);
    let (verdict, notes) = match row.skipped {
        Some(reason) => (Verdict::Skipped, vec![reason.to_owned()]),
        None => (verdict, Vec::new()),
    };
    RowComparison {
        rung: row.number.to_owned(),
        name: row.name.to_owned(),
        verdict,
        a_mpps_median: median.filter(|_| verdict == Verdict::OnlyInA),
        b_mpps_median: median.filter(|_| verdict == Verdict::OnlyInB),
        ratio: None,
        detectable: None,
        notes,
    }
}

fn beside(a: &Row<'_>, b: Option<&Row<'_>>, noise: &Noise) -> RowComparison {
    let Some(b) = b else {
        return alone(a, Verdict::OnlyInA);
    };
    let mut both = RowComparison {
        verdict: Verdict::Skipped,
        a_mpps_median: median(a.mpps),
        b_mpps_median: median(b.mpps),
        ..alone(a, Verdict::OnlyInA)
    };
    if a.skipped.is_some() || b.skipped.is_some() {
        both.notes = skips(a, b);
        return both;
    }
    let (verdict, detectable) = noise.judge(a.mpps, b.mpps);
    both.verdict = verdict.into();
    both.detectable = Some(detectable);
    both.ratio = both
        .a_mpps_median
        .zip(both.b_mpps_median)
        .filter(|(a, _)| *a > 0.0)
        .map(|(a, b)| b / a);
    if let (Some(in_a), Some(in_b)) = (a.offered_mpps, b.offered_mpps)
        && verdict != Change::Same
        && in_a > 0.0
        && (in_b / in_a - 1.0).abs() > CHANGE_MIN
    {
        both.notes.push(format!(
            "the sender offered {:.2} times as much",
            in_b / in_a
        ));
    }
    if let (Some(in_a), Some(in_b)) = (a.sender, b.sender)
        && in_a != in_b
    {
        both.notes
            .push(format!("sent by {in_a} in A, by {in_b} in B"));
    }
    if let Some(fault) = lost_balance(a, b) {
        both.verdict = Verdict::Worse;
        both.notes.push(fault);
    }
    both
}

fn skips(a: &Row<'_>, b: &Row<'_>) -> Vec<String> {
    if a.skipped == b.skipped {
        let reason = a.skipped.iter();
        return reason
            .map(|reason| format!("skipped in both: {reason}"))
            .collect();
    }
    [("A", &a.skipped), ("B", &b.skipped)]
        .into_iter()
        .filter_map(|(side, reason)| Some(format!("skipped in {side}: {}", (*reason)?)))
        .collect()
}

/// What is wrong with B's ledgers that was right with A's.
fn lost_balance(a: &Row<'_>, b: &Row<'_>) -> Option<String> {
    fn exact<'r>(row: &'r Row<'_>) -> impl Iterator<Item = &'r Ledger> {
        let ledgers = row.ledger.into_iter().chain(row.sample_ledgers);
        ledgers.filter(|ledger| ledger.is_exact())
    }
    let all_balance = a.ledger.is_some() && exact(a).all(mpps_host::Ledger::balances);
    if !all_balance {
        return None;
    }
    if b.ledger.is_none() {
        return Some("B has no ledger, A's balanced".to_owned());
    }
    let fault = exact(b).find(|ledger| !ledger.balances())?;
    let hole = fault.unaccounted;
    Some(format!(
        "a ledger of B does not balance, A's all do: UNACCOUNTED {hole}"
    ))
}

fn notes(a: &Side<'_>, b: &Side<'_>, rungs: &[RowComparison]) -> Vec<String> {
    let mut notes = Vec::new();
    for ((what, in_a), (_, in_b)) in a.facts.iter().zip(&b.facts) {
        if in_a != in_b {
            notes.push(format!("{what} differs: A {in_a}, B {in_b}"));
        }
    }
    for (side, input) in [("A", a), ("B", b)] {
        if !input.complete {
            notes.push(format!("{side} ended before its last {}", input.unit));
        }
    }
    let logs: Vec<f64> = rungs
        .iter()
        .filter_map(|rung| rung.ratio)
        .map(|ratio| ratio.max(RATE_MIN).ln())
        .collect();
    if let Some(shift) = median(&logs)
        && logs.len() >= 5
        && shift.abs() > CHANGE_MIN.ln_1p()
        && logs
            .iter()
            .filter(|log| (**log - shift).abs() < CHANGE_MIN.ln_1p())
            .count()
            * 4
            >= logs.len() * 3
    {
        notes.push(format!(
            "nearly all {unit}s moved alike, by {:.2}: look at the machine first, not at a {unit}",
            shift.exp(),
            unit = a.unit
        ));
    }
    notes
}
