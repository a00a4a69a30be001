//! Tells whether a second run of the ladder is better or worse than a first, or only noise apart.
//!
//! What is noise is decided in [`noise`]; a ledger that no longer balances is worse at any rate.

mod noise;
mod text;

use self::noise::{CHANGE_MIN, Noise, RATE_MIN, SAMPLES_MIN};
use crate::report::{ledgers, median};
use crate::result::{LabResult, RungResult};
use mpps_host::Difference;
use serde::Serialize;

/// A result and the name of its file, which errors and reports use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    /// The file's name as the user gave it.
    pub(crate) file: &'a str,
    /// What it held.
    pub(crate) result: &'a LabResult,
}

/// Why two results cannot be compared.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// A `--quick` run is too short for its figures to mean anything.
    #[error("{file} is of a --quick run, too short to be compared: run `mpps lab` without --quick")]
    Quick {
        /// The file.
        file: String,
    },
    /// Too few samples to know the noise.
    #[error(
        "rung {rung} of {file} was measured {samples} times, fewer than {SAMPLES_MIN}: run `mpps lab --repeat 5`"
    )]
    TooFewSamples {
        /// The file.
        file: String,
        /// The rung's number on the ladder.
        rung: String,
        /// How many samples there are.
        samples: usize,
    },
    /// The two runs measured no rung both.
    #[error(
        "{a} and {b} have no measured rung in common: run both with the same --only, or without"
    )]
    NothingInCommon {
        /// The first file.
        a: String,
        /// The second file.
        b: String,
    },
}

/// What became of one rung.
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

/// One rung in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RungComparison {
    /// The rung's number on the ladder.
    pub(crate) rung: String,
    /// The rung's name.
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

/// Two runs of the ladder side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// `mpps.compare.v1`.
    pub(crate) schema: &'static str,
    /// The first file.
    pub(crate) a: String,
    /// The second file.
    pub(crate) b: String,
    /// True if any rung is worse in B.
    pub(crate) worse: bool,
    /// How the machines or their settings differ.
    pub(crate) fingerprint_differences: Vec<Difference>,
    /// What else differs between the two runs, or makes them hard to compare.
    pub(crate) notes: Vec<String>,
    /// The rungs in A's order, then those that only B has.
    pub(crate) rungs: Vec<RungComparison>,
}

/// Compares two runs of the ladder, rung by rung.
///
/// # Errors
/// If one of them is a quick run, has a rung with fewer than three samples, or if they have no
/// measured rung in common.
pub(crate) fn compare(a: Input<'_>, b: Input<'_>) -> Result<Comparison, Error> {
    for input in [a, b] {
        refuse(input)?;
    }
    let pairs: Vec<_> = a
        .result
        .rungs
        .iter()
        .filter_map(|rung| Some((rung, find(b.result, rung)?)))
        .filter(|(a, b)| measured(a) && measured(b))
        .collect();
    if pairs.is_empty() {
        return Err(Error::NothingInCommon {
            a: a.file.to_owned(),
            b: b.file.to_owned(),
        });
    }
    let noise = Noise::of(
        pairs
            .iter()
            .map(|(a, b)| (&*a.mpps_samples, &*b.mpps_samples)),
    );
    let mut rungs: Vec<_> = a
        .result
        .rungs
        .iter()
        .map(|rung| beside(rung, find(b.result, rung), &noise))
        .collect();
    let only_in_b = b
        .result
        .rungs
        .iter()
        .filter(|rung| find(a.result, rung).is_none());
    rungs.extend(only_in_b.map(|rung| alone(rung, Verdict::OnlyInB)));
    Ok(Comparison {
        schema: "mpps.compare.v1",
        a: a.file.to_owned(),
        b: b.file.to_owned(),
        worse: rungs.iter().any(|rung| rung.verdict == Verdict::Worse),
        fingerprint_differences: a.result.fingerprint.differences(&b.result.fingerprint),
        notes: notes(a, b, &rungs),
        rungs,
    })
}

fn refuse(input: Input<'_>) -> Result<(), Error> {
    if input.result.quick {
        return Err(Error::Quick {
            file: input.file.to_owned(),
        });
    }
    let few = |rung: &&RungResult| measured(rung) && rung.mpps_samples.len() < SAMPLES_MIN;
    match input.result.rungs.iter().find(few) {
        None => Ok(()),
        Some(rung) => Err(Error::TooFewSamples {
            file: input.file.to_owned(),
            rung: rung.rung.clone(),
            samples: rung.mpps_samples.len(),
        }),
    }
}

fn measured(rung: &RungResult) -> bool {
    rung.skipped.is_none()
}

/// The same rung in another result: number and name, as `4b` may be another placement elsewhere.
fn find<'a>(result: &'a LabResult, rung: &RungResult) -> Option<&'a RungResult> {
    result
        .rungs
        .iter()
        .find(|other| other.rung == rung.rung && other.name == rung.name)
}

fn alone(rung: &RungResult, verdict: Verdict) -> RungComparison {
    let median = median(&rung.mpps_samples);
    let (verdict, notes) = match &rung.skipped {
        Some(reason) => (Verdict::Skipped, vec![reason.clone()]),
        None => (verdict, Vec::new()),
    };
    RungComparison {
        rung: rung.rung.clone(),
        name: rung.name.clone(),
        verdict,
        a_mpps_median: median.filter(|_| verdict == Verdict::OnlyInA),
        b_mpps_median: median.filter(|_| verdict == Verdict::OnlyInB),
        ratio: None,
        detectable: None,
        notes,
    }
}

fn beside(a: &RungResult, b: Option<&RungResult>, noise: &Noise) -> RungComparison {
    let Some(b) = b else {
        return alone(a, Verdict::OnlyInA);
    };
    let mut both = RungComparison {
        verdict: Verdict::Skipped,
        a_mpps_median: median(&a.mpps_samples),
        b_mpps_median: median(&b.mpps_samples),
        ..alone(a, Verdict::OnlyInA)
    };
    if !measured(a) || !measured(b) {
        both.notes = skips(a, b);
        return both;
    }
    let (verdict, detectable) = noise.judge(&a.mpps_samples, &b.mpps_samples);
    both.verdict = verdict;
    both.detectable = Some(detectable);
    both.ratio = both
        .a_mpps_median
        .zip(both.b_mpps_median)
        .filter(|(a, _)| *a > 0.0)
        .map(|(a, b)| b / a);
    if let (Some(in_a), Some(in_b)) = (a.offered_mpps_median, b.offered_mpps_median)
        && verdict != Verdict::Same
        && in_a > 0.0
        && (in_b / in_a - 1.0).abs() > CHANGE_MIN
    {
        both.notes.push(format!(
            "the sender offered {:.2} times as much",
            in_b / in_a
        ));
    }
    if let (Some(in_a), Some(in_b)) = (&a.sender, &b.sender)
        && in_a.name != in_b.name
    {
        let (in_a, in_b) = (&in_a.name, &in_b.name);
        both.notes
            .push(format!("sent by {in_a} in A, by {in_b} in B"));
    }
    if let Some(fault) = lost_balance(a, b) {
        both.verdict = Verdict::Worse;
        both.notes.push(fault);
    }
    both
}

fn skips(a: &RungResult, b: &RungResult) -> Vec<String> {
    if a.skipped == b.skipped {
        let reason = a.skipped.iter();
        return reason
            .map(|reason| format!("skipped in both: {reason}"))
            .collect();
    }
    [("A", &a.skipped), ("B", &b.skipped)]
        .into_iter()
        .filter_map(|(side, reason)| Some(format!("skipped in {side}: {}", reason.as_ref()?)))
        .collect()
}

/// What is wrong with B's ledgers that was right with A's.
fn lost_balance(a: &RungResult, b: &RungResult) -> Option<String> {
    let exact = |rung| ledgers(rung).filter(|ledger| ledger.is_exact());
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

fn notes(a: Input<'_>, b: Input<'_>, rungs: &[RungComparison]) -> Vec<String> {
    let mut notes = Vec::new();
    for (what, in_a, in_b) in [
        ("version", &a.result.version, &b.result.version),
        ("command", &a.result.command, &b.result.command),
        ("placement", &a.result.placement, &b.result.placement),
        ("delivery", &a.result.delivery, &b.result.delivery),
    ] {
        if in_a != in_b {
            notes.push(format!("{what} differs: A {in_a}, B {in_b}"));
        }
    }
    for (side, input) in [("A", a), ("B", b)] {
        if !input.result.complete {
            notes.push(format!("{side} ended before its last rung"));
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
            "nearly all rungs moved alike, by {:.2}: look at the machine first, not at a rung",
            shift.exp()
        ));
    }
    notes
}

impl Comparison {
    /// True if B is worse on any rung: the command then exits with 1.
    pub(crate) fn is_worse(&self) -> bool {
        self.worse
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{FIXTURE, fixture};
    use crate::result::ParseError;
    use proptest::prelude::*;

    fn side_by_side(a: &LabResult, b: &LabResult) -> Result<Comparison, Error> {
        let input = |file, result| Input { file, result };
        compare(input("a.json", a), input("b.json", b))
    }

    fn scale(result: &mut LabResult, number: &str, factor: f64) {
        let rung = result
            .rungs
            .iter_mut()
            .find(|rung| rung.rung == number)
            .unwrap();
        rung.mpps_samples
            .iter_mut()
            .for_each(|rate| *rate *= factor);
    }

    fn verdict_on(comparison: &Comparison, number: &str) -> Verdict {
        comparison
            .rungs
            .iter()
            .find(|rung| rung.rung == number)
            .unwrap()
            .verdict
    }

    #[test]
    fn a_run_is_the_same_as_itself() {
        let comparison = side_by_side(&fixture(), &fixture()).unwrap();
        assert!(!comparison.is_worse());
        assert_eq!(comparison.fingerprint_differences, []);
        for rung in &comparison.rungs {
            let expected = if rung.rung == "4c" || rung.rung == "4d" {
                Verdict::Skipped
            } else {
                Verdict::Same
            };
            assert_eq!(rung.verdict, expected, "{rung:?}");
        }
    }

    #[test]
    fn a_drop_and_a_gain_are_told_from_noise() {
        let mut b = fixture();
        scale(&mut b, "3", 0.7);
        scale(&mut b, "6", 1.4);
        scale(&mut b, "7", 1.03);
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert_eq!(verdict_on(&comparison, "3"), Verdict::Worse);
        assert_eq!(verdict_on(&comparison, "6"), Verdict::Better);
        assert_eq!(verdict_on(&comparison, "7"), Verdict::Same);
        assert!(comparison.is_worse());
        assert!(!side_by_side(&b, &b).unwrap().is_worse());
    }

    #[test]
    fn a_rung_that_fell_silent_is_worse_and_one_that_woke_up_better() {
        let mut b = fixture();
        scale(&mut b, "3", 0.0);
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert_eq!(verdict_on(&comparison, "3"), Verdict::Worse);
        let back = side_by_side(&b, &fixture()).unwrap();
        assert_eq!(verdict_on(&back, "3"), Verdict::Better);
        assert!(serde_json::to_string(&back).is_ok());
    }

    #[test]
    fn rungs_of_one_side_are_kept_and_are_no_loss() {
        let (mut a, mut b) = (fixture(), fixture());
        a.rungs.retain(|rung| rung.rung != "10");
        b.rungs.retain(|rung| rung.rung != "11");
        b.rungs[0].name.push_str(" elsewhere");
        let comparison = side_by_side(&a, &b).unwrap();
        assert_eq!(verdict_on(&comparison, "10"), Verdict::OnlyInB);
        assert_eq!(verdict_on(&comparison, "11"), Verdict::OnlyInA);
        assert_eq!(verdict_on(&comparison, "1"), Verdict::OnlyInA);
        assert_eq!(comparison.rungs.last().unwrap().verdict, Verdict::OnlyInB);
        assert!(!comparison.is_worse());
    }

    #[test]
    fn a_ledger_that_no_longer_balances_is_worse_at_the_same_rate() {
        let mut b = fixture();
        let ledger = &mut b.rungs[1].sample_ledgers[0];
        ledger.offered += 1;
        ledger.unaccounted += 1;
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert_eq!(verdict_on(&comparison, "2"), Verdict::Worse);
        // Rung 4b of the fixture never balanced: that is old news.
        assert_eq!(verdict_on(&comparison, "4b"), Verdict::Same);
        assert!(!side_by_side(&b, &fixture()).unwrap().is_worse());
        b.rungs[1].sample_ledgers.clear();
        b.rungs[1].ledger = None;
        assert_eq!(
            verdict_on(&side_by_side(&fixture(), &b).unwrap(), "2"),
            Verdict::Worse
        );
    }

    #[test]
    fn what_cannot_be_compared_is_refused_with_its_file_and_the_remedy() {
        let refused = |change: &dyn Fn(&mut LabResult)| {
            let mut b = fixture();
            change(&mut b);
            side_by_side(&fixture(), &b).unwrap_err().to_string()
        };
        let quick = refused(&|b| b.quick = true);
        assert!(
            quick.contains("b.json") && quick.contains("without --quick"),
            "{quick}"
        );
        let few = refused(&|b| b.rungs[4].mpps_samples.truncate(2));
        assert!(
            few.contains("rung 4b of b.json") && few.contains("--repeat 5"),
            "{few}"
        );
        let nothing = refused(&|b| b.rungs.clear());
        assert!(nothing.contains("a.json and b.json"), "{nothing}");
        let silent = refused(&|b| b.rungs[0].mpps_samples.clear());
        assert!(silent.contains("measured 0 times"), "{silent}");
    }

    #[test]
    fn differences_of_machine_and_run_come_first() {
        let mut b = fixture();
        b.fingerprint.kernel_release = "6.1.0".to_owned();
        b.delivery = "RPS".to_owned();
        let text = side_by_side(&fixture(), &b).unwrap().text(100, false);
        let place = |what| {
            text.find(what)
                .unwrap_or_else(|| panic!("no {what} in {text}"))
        };
        assert!(place("kernel_release differs: A 6.18.44, B 6.1.0") < place("delivery differs"));
        assert!(place("delivery differs") < place("one socket, unpinned"));
    }

    #[test]
    fn a_machine_that_got_slower_as_a_whole_is_suspected_first() {
        let mut b = fixture();
        let numbers: Vec<_> = b.rungs.iter().map(|rung| rung.rung.clone()).collect();
        numbers.iter().for_each(|number| scale(&mut b, number, 0.8));
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert!(
            comparison.notes.iter().any(|note| note.contains("by 0.80")),
            "{:?}",
            comparison.notes
        );
        assert_eq!(side_by_side(&fixture(), &fixture()).unwrap().notes, [""; 0]);
    }

    #[test]
    fn the_text_fits_the_terminal() {
        let mut b = fixture();
        scale(&mut b, "3", 0.7);
        for width in [60, 80, 130] {
            let text = side_by_side(&fixture(), &b).unwrap().text(width, false);
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
            assert!(text.contains("WORSE") && text.contains("1 worse"));
        }
    }

    #[test]
    fn a_text_cut_short_anywhere_is_an_error() {
        let whole = FIXTURE.trim_end();
        for end in (0..whole.len())
            .step_by(97)
            .filter(|end| whole.is_char_boundary(*end))
        {
            assert!(
                matches!(LabResult::parse(&whole[..end]), Err(ParseError::Shape(_))),
                "at {end}"
            );
        }
    }

    #[test]
    fn a_foreign_schema_and_a_changed_count_are_named() {
        let foreign = FIXTURE.replace("mpps.lab.v1", "mpps.lab.v9");
        assert!(
            LabResult::parse(&foreign)
                .unwrap_err()
                .to_string()
                .contains("mpps.lab.v9")
        );
        let delivered = fixture().rungs[1].ledger.as_ref().unwrap().delivered;
        let changed = FIXTURE.replacen(
            &format!("\"delivered\": {delivered}"),
            "\"delivered\": 7",
            1,
        );
        assert!(
            matches!(LabResult::parse(&changed), Err(ParseError::Ledger { rung }) if rung == "2")
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = LabResult::parse(&text);
        }

        #[test]
        fn no_damage_makes_reading_comparing_or_rendering_panic(
            at in 0..FIXTURE.len(),
            length in 0_usize..40,
            with in "[0-9a-z{}\\[\\]\",:.-]{0,12}",
        ) {
            let end = (at + length).min(FIXTURE.len());
            prop_assume!(FIXTURE.is_char_boundary(at) && FIXTURE.is_char_boundary(end));
            let damaged = format!("{}{with}{}", &FIXTURE[..at], &FIXTURE[end..]);
            if let Ok(result) = LabResult::parse(&damaged) {
                if let Ok(comparison) = side_by_side(&fixture(), &result) {
                    comparison.text(80, false);
                }
                crate::report::html::page(&result, None);
            }
        }
    }
}
