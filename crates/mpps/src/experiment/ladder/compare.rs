//! Judges whether a second run is better or worse than a first, or equal within the noise, row by
//! row. Results of other experiments become results of the ladder, a rung for each row.
//!
//! [`crate::measure::noise`] decides what is noise. A ledger that no longer balances is worse at
//! any rate.

mod text;

use super::result::{LabResult, RungResult};
use crate::measure::noise::{CHANGE_MIN, MeasuredChange, Noise, RATE_MIN, SAMPLES_MIN};
use crate::measure::samples::median;
use crate::udp::runs::Runs;
use anyhow::{Result, bail, ensure};
use mpps_host::{Difference, Ledger};
use mpps_os::text::Foreign;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet};

/// The name of a file as the user gave it, and what it holds.
type ComparedFile<'a> = (&'a str, &'a LabResult);

/// The verdict on one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RungChange {
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

impl From<MeasuredChange> for RungChange {
    fn from(change: MeasuredChange) -> Self {
        match change {
            MeasuredChange::Same => Self::Same,
            MeasuredChange::Better => Self::Better,
            MeasuredChange::Worse => Self::Worse,
        }
    }
}

impl RungChange {
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
pub(crate) struct RungComparison {
    pub(crate) rung: String,
    pub(crate) name: String,
    pub(crate) verdict: RungChange,
    /// Median of A's samples, in million datagrams per second.
    pub(crate) a_mpps_median: Option<f64>,
    /// Median of B's samples, in million datagrams per second.
    pub(crate) b_mpps_median: Option<f64>,
    /// B's median over A's; absent if A received nothing.
    pub(crate) ratio: Option<f64>,
    /// The smallest change that would have exceeded the noise, as a share: 0.12 is 12 %.
    pub(crate) detectable: Option<f64>,
    /// Notes: why it is worse, why it was skipped.
    pub(crate) notes: Vec<String>,
}

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// `mpps.compare.v1`.
    pub(crate) schema: &'static str,
    /// True of connections, which are shown per second, not in millions.
    #[serde(skip)]
    pub(crate) is_load: bool,
    pub(crate) a: String,
    pub(crate) b: String,
    /// True if any row is worse in B, or missing.
    pub(crate) worse: bool,
    /// Rungs that were measured in A and not in B, but for those that B's `--only` left out.
    pub(crate) missing: usize,
    /// How the senders or the CPUs differ: rates of one say nothing about the other.
    pub(crate) not_comparable: Vec<String>,
    /// How the machines or their settings differ.
    pub(crate) fingerprint_differences: Vec<Difference>,
    /// Further differences between the two runs, or reasons why they are hard to compare.
    pub(crate) notes: Vec<String>,
    /// The rows in A's order, then those that only B has.
    pub(crate) rungs: Vec<RungComparison>,
}

/// Compares two runs, rung by rung.
///
/// # Errors
/// If one of them is a quick run, has a rung with fewer than three samples, or if they have no
/// measured rung in common.
pub(crate) fn compare(a: ComparedFile<'_>, b: ComparedFile<'_>) -> Result<Comparison> {
    refuse(a)?;
    refuse(b)?;
    let [in_a, in_b] = [a, b].map(by_name);
    let find = |rung| in_b.get(&named(rung)).copied();
    let pairs = a.1.rungs.iter();
    let pairs = pairs.filter_map(|rung| Some((&rung.runs, &find(rung)?.runs)));
    let pairs = pairs.filter(|(a, b)| a.skipped.is_none() && b.skipped.is_none());
    let samples: Vec<_> = pairs
        .map(|(a, b)| (&*a.mpps_samples, &*b.mpps_samples))
        .collect();
    ensure!(
        !samples.is_empty(),
        "{} and {} have no measured row in common: run both with the same --only, or without",
        a.0,
        b.0
    );
    let noise = Noise::of(samples.into_iter());
    let rungs = a.1.rungs.iter();
    let mut rungs: Vec<_> = rungs.map(|rung| beside(rung, find(rung), &noise)).collect();
    let only_in_b =
        b.1.rungs
            .iter()
            .filter(|rung| !in_a.contains_key(&named(rung)));
    rungs.extend(only_in_b.map(|rung| alone(rung, RungChange::OnlyInB)));
    let lacks = Lacks::of(a, b, &in_b);
    let mut notes = notes(a.1, b.1, &rungs);
    notes.extend(lacks.note());
    let fingerprint_differences = a.1.fingerprint.differences(&b.1.fingerprint);
    Ok(Comparison {
        schema: "mpps.compare.v1",
        is_load: command_of(a.1) == "mpps load",
        a: a.0.to_owned(),
        b: b.0.to_owned(),
        worse: lacks.missing > 0 || rungs.iter().any(|rung| rung.verdict == RungChange::Worse),
        missing: lacks.missing,
        not_comparable: not_comparable(a.1, b.1, &fingerprint_differences),
        fingerprint_differences,
        notes,
        rungs,
    })
}

/// Rungs that were measured in A and not in B.
struct Lacks {
    missing: usize,
    /// Those that `--only` left out.
    not_chosen: usize,
}

impl Lacks {
    fn of(a: ComparedFile<'_>, b: ComparedFile<'_>, in_b: &Rungs<'_>) -> Self {
        let in_a = a.1.rungs.iter();
        let in_a = in_a.filter(|rung| rung.runs.skipped.is_none());
        let found = in_a.map(|rung| in_b.get(&named(rung)));
        let (there, absent): (Vec<_>, Vec<_>) = found.partition(Option::is_some);
        // One that was chosen and not measured is missing, whatever else was chosen.
        let there = there.into_iter().flatten();
        let skipped = there.filter(|rung| rung.runs.skipped.is_some()).count();
        match chooses(&b.1.command) {
            true => Self {
                missing: skipped,
                not_chosen: absent.len(),
            },
            false => Self {
                missing: skipped + absent.len(),
                not_chosen: 0,
            },
        }
    }

    fn note(&self) -> Option<String> {
        let not_chosen = self.not_chosen;
        (not_chosen > 0).then(|| {
            format!("{not_chosen} rows measured in A are not in B, whose --only did not name them")
        })
    }
}

/// True of a command line that names its rungs; a word of it may be quoted.
fn chooses(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.any(|word| {
        let word = word.trim_start_matches('\'');
        word == "--only" || word.starts_with("--only=")
    })
}

/// The command that wrote a result: `mpps bench`.
pub(crate) fn command_of(result: &LabResult) -> String {
    let name = result.schema.split('.').take(2);
    name.collect::<Vec<_>>().join(" ")
}

/// Facts of a machine that rates depend on most.
const CPUS: [&str; 4] = ["architecture", "cpu_model", "cpus", "cpus_usable"];

/// Differences that make rates incomparable.
fn not_comparable(a: &LabResult, b: &LabResult, differences: &[Difference]) -> Vec<String> {
    let senders = |result: &LabResult| {
        let senders = result.rungs.iter().filter_map(|rung| rung.sender.as_ref());
        let usual = senders.filter(|sender| sender.usual);
        let names: BTreeSet<String> = usual.map(|sender| sender.name.clone()).collect();
        Vec::from_iter(names).join(" and ")
    };
    let senders = [senders(a), senders(b)];
    let [one, other] = &senders;
    let is_known = senders.iter().all(|names| !names.is_empty());
    let sender = format!("sender differs: A {one}, B {other}");
    let cpus = differences.iter();
    let cpus = cpus.filter(|difference| CPUS.contains(&&*difference.name));
    let sender = (is_known && one != other).then_some(sender).into_iter();
    sender.chain(cpus.map(text::difference)).collect()
}

/// A run that is too short says nothing, and too few repeats nothing of noise. Of two rungs of one name
/// either may be meant; mpps writes none.
fn refuse((file, result): ComparedFile<'_>) -> Result<()> {
    let command = command_of(result);
    let more = match &*command {
        "mpps load" => "--duration 10s",
        _ => "--repeat 5",
    };
    ensure!(
        !result.quick,
        "{file} is of a --quick run, too short to be compared: run `{command}` without --quick"
    );
    let mut names = HashSet::new();
    let again = result.rungs.iter().find(|rung| !names.insert(named(rung)));
    if let Some(RungResult { rung, name, .. }) = again {
        let (rung, name) = (Foreign(rung), Foreign(name));
        bail!(
            "{file} has row {rung} ({name}) twice: the file was changed after it was written; remove one"
        );
    }
    for rung in result
        .rungs
        .iter()
        .filter(|rung| rung.runs.skipped.is_none())
    {
        let repeats = rung.runs.mpps_samples.len();
        ensure!(
            repeats >= SAMPLES_MIN,
            "row {} ({}) of {file} was measured {repeats} times, fewer than {SAMPLES_MIN}: run \
             `{command} {more}`",
            Foreign(&rung.rung),
            Foreign(&rung.name)
        );
    }
    Ok(())
}

/// What is the same of a rung in two results: number and name, as `4b` may be another placement
/// elsewhere.
fn named(rung: &RungResult) -> [&str; 2] {
    [&rung.rung, &rung.name]
}

type Rungs<'a> = HashMap<[&'a str; 2], &'a RungResult>;

fn by_name((_, result): ComparedFile<'_>) -> Rungs<'_> {
    let rungs = result.rungs.iter();
    rungs.map(|rung| (named(rung), rung)).collect()
}

fn alone(rung: &RungResult, verdict: RungChange) -> RungComparison {
    let median = median(&rung.runs.mpps_samples);
    let (verdict, notes) = match &rung.runs.skipped {
        Some(reason) => (RungChange::Skipped, vec![reason.clone()]),
        None => (verdict, Vec::new()),
    };
    RungComparison {
        rung: rung.rung.clone(),
        name: rung.name.clone(),
        verdict,
        a_mpps_median: median.filter(|_| verdict == RungChange::OnlyInA),
        b_mpps_median: median.filter(|_| verdict == RungChange::OnlyInB),
        ratio: None,
        detectable: None,
        notes,
    }
}

fn beside(in_a: &RungResult, in_b: Option<&RungResult>, noise: &Noise) -> RungComparison {
    let Some(in_b) = in_b else {
        return alone(in_a, RungChange::OnlyInA);
    };
    let (a, b) = (&in_a.runs, &in_b.runs);
    let mut both = RungComparison {
        verdict: RungChange::Skipped,
        a_mpps_median: median(&a.mpps_samples),
        b_mpps_median: median(&b.mpps_samples),
        ..alone(in_a, RungChange::OnlyInA)
    };
    if a.skipped.is_some() || b.skipped.is_some() {
        both.notes = skips(a, b);
        return both;
    }
    let (verdict, detectable) = noise.judge(&a.mpps_samples, &b.mpps_samples);
    both.verdict = verdict.into();
    both.detectable = Some(detectable);
    let medians = both.a_mpps_median.zip(both.b_mpps_median);
    both.ratio = medians.filter(|(a, _)| *a > 0.0).map(|(a, b)| b / a);
    if let (Some(a), Some(b)) = (a.offered_mpps_median, b.offered_mpps_median)
        && verdict != MeasuredChange::Same
        && a > 0.0
        && (b / a - 1.0).abs() > CHANGE_MIN
    {
        let said = format!("the sender offered {:.2} times as much", b / a);
        both.notes.push(said);
    }
    if let (Some(a), Some(b)) = (&in_a.sender, &in_b.sender)
        && a.name != b.name
    {
        let said = format!("sent by {} in A, by {} in B", a.name, b.name);
        both.notes.push(said);
    }
    if let Some(fault) = lost_balance(a, b) {
        both.verdict = RungChange::Worse;
        both.notes.push(fault);
    }
    both
}

fn skips(a: &Runs, b: &Runs) -> Vec<String> {
    let skipped = |side: &str, runs: &Runs| {
        let why = runs.skipped.as_ref()?;
        Some(format!("skipped in {side}: {why}"))
    };
    match a.skipped == b.skipped {
        true => skipped("both", a).into_iter().collect(),
        false => skipped("A", a).into_iter().chain(skipped("B", b)).collect(),
    }
}

/// A fault of B's ledgers that A's do not have.
fn lost_balance(a: &Runs, b: &Runs) -> Option<String> {
    let mut in_a = a.ledgers().filter(|ledger| ledger.is_exact());
    if a.ledger.is_none() || !in_a.all(Ledger::balances) {
        return None;
    }
    if b.ledger.is_none() {
        return Some("B has no ledger, A's balanced".to_owned());
    }
    let mut in_b = b.ledgers().filter(|ledger| ledger.is_exact());
    let hole = in_b.find(|ledger| !ledger.balances())?.unaccounted;
    Some(format!(
        "a ledger of B does not balance, A's all do: UNACCOUNTED {hole}"
    ))
}

fn notes(a: &LabResult, b: &LabResult, rungs: &[RungComparison]) -> Vec<String> {
    let mut notes = Vec::new();
    let facts = [
        ("version", &a.version, &b.version),
        ("command", &a.command, &b.command),
        ("placement", &a.placement, &b.placement),
        ("delivery", &a.delivery, &b.delivery),
    ];
    for (what, a, b) in facts.into_iter().filter(|(_, a, b)| a != b) {
        notes.push(format!("{what} differs: A {a}, B {b}"));
    }
    for (side, _) in [("A", a), ("B", b)].iter().filter(|(_, of)| !of.complete) {
        notes.push(format!("{side} ended before its last row"));
    }
    let ratios = rungs.iter().filter_map(|rung| rung.ratio);
    let logs: Vec<f64> = ratios.map(|ratio| ratio.max(RATE_MIN).ln()).collect();
    let least = CHANGE_MIN.ln_1p();
    if let Some(shift) = median(&logs)
        && logs.len() >= 5
        && shift.abs() > least
        && logs
            .iter()
            .filter(|log| (**log - shift).abs() < least)
            .count()
            * 4
            >= logs.len() * 3
    {
        notes.push(format!(
            "nearly all rows moved alike, by {:.2}: look at the machine first, not at a row",
            shift.exp()
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::result::RungSender;
    use super::super::result::tests::{FIXTURE, fixture};
    use super::*;
    use crate::measure::envelope::EnvelopeError;
    use mpps_report::Terminal;
    use mpps_trial::mentions;
    use proptest::prelude::*;

    fn text(comparison: &Comparison, width: usize) -> String {
        Terminal::new(width, false).blocks(&comparison.blocks())
    }

    fn first(said: &str) -> &str {
        said.lines().next().unwrap_or_default()
    }

    fn side_by_side(a: &LabResult, b: &LabResult) -> anyhow::Result<Comparison> {
        compare(("a.json", a), ("b.json", b))
    }

    fn scale(result: &mut LabResult, number: &str, factor: f64) {
        let rung = result
            .rungs
            .iter_mut()
            .find(|rung| rung.rung == number)
            .unwrap();
        rung.runs
            .mpps_samples
            .iter_mut()
            .for_each(|rate| *rate *= factor);
    }

    fn verdict_on(comparison: &Comparison, number: &str) -> RungChange {
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
        assert!(!comparison.worse);
        assert_eq!(comparison.fingerprint_differences, []);
        for rung in &comparison.rungs {
            let expected = if rung.rung == "4c" || rung.rung == "4d" {
                RungChange::Skipped
            } else {
                RungChange::Same
            };
            assert_eq!(rung.verdict, expected, "{rung:?}");
        }
    }

    #[test]
    fn a_drop_and_a_gain_are_told_from_noise() {
        let mut b = fixture();
        scale(&mut b, "2", 0.7);
        scale(&mut b, "9", 1.4);
        scale(&mut b, "5", 1.03);
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert_eq!(verdict_on(&comparison, "2"), RungChange::Worse);
        assert_eq!(verdict_on(&comparison, "9"), RungChange::Better);
        assert_eq!(verdict_on(&comparison, "5"), RungChange::Same);
        assert!(comparison.worse);
        assert!(!side_by_side(&b, &b).unwrap().worse);
    }

    #[test]
    fn a_rung_that_fell_silent_is_worse_and_one_that_woke_up_better() {
        let mut b = fixture();
        scale(&mut b, "2", 0.0);
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert_eq!(verdict_on(&comparison, "2"), RungChange::Worse);
        let back = side_by_side(&b, &fixture()).unwrap();
        assert_eq!(verdict_on(&back, "2"), RungChange::Better);
        assert!(serde_json::to_string(&back).is_ok());
    }

    #[test]
    fn rungs_of_one_side_are_kept_and_are_no_loss_if_they_were_not_chosen() {
        let (mut a, mut b) = (fixture(), fixture());
        b.command.push_str(" --only 1,2,10");
        a.rungs.retain(|rung| rung.rung != "9");
        b.rungs.retain(|rung| rung.rung != "11");
        b.rungs[0].name.push_str(" elsewhere");
        let comparison = side_by_side(&a, &b).unwrap();
        assert_eq!(verdict_on(&comparison, "9"), RungChange::OnlyInB);
        assert_eq!(verdict_on(&comparison, "11"), RungChange::OnlyInA);
        assert_eq!(verdict_on(&comparison, "1"), RungChange::OnlyInA);
        assert_eq!(
            comparison.rungs.last().unwrap().verdict,
            RungChange::OnlyInB
        );
        assert!(!comparison.worse);
        let said = text(&comparison, 100);
        assert!(said.contains("note: 2 rows measured in A are not in B"));
        assert!(first(&said).ends_with("within noise"), "{said}");
    }

    #[test]
    fn rungs_that_only_a_measured_are_missing() {
        let (a, mut b) = (fixture(), fixture());
        let measured = |result: &LabResult| {
            let rungs = result.rungs.iter();
            rungs.filter(|rung| rung.runs.skipped.is_none()).count()
        };
        let missing = |b: &LabResult| {
            let comparison = side_by_side(&a, b).unwrap();
            let said = text(&comparison, 100);
            (
                comparison.missing,
                comparison.worse,
                first(&said).to_owned(),
            )
        };
        assert_eq!(missing(&b).0, 0);
        assert!(!missing(&b).1 && missing(&b).2.ends_with("within noise"));
        // A skipped rung is missing, even if the user chose rungs.
        b.rungs[0].runs.skipped = Some("the receiver died".to_owned());
        for command in ["mpps lab", "mpps lab --only=1,2,3"] {
            b.command = command.to_owned();
            let (count, worse, said) = missing(&b);
            assert_eq!((count, worse), (1, true), "{command}");
            assert!(said.ends_with(", 1 measured in A are not in B"), "{said}");
        }
        // A run that ended early, and a run with chosen rungs.
        b = fixture();
        b.rungs.truncate(3);
        let lost = measured(&a) - measured(&b);
        assert_eq!(missing(&b).0, lost);
        assert!(missing(&b).1);
        b.command = "mpps lab --only 1,2,3".to_owned();
        assert_eq!((missing(&b).0, missing(&b).1), (0, false));
        // A rung that only B has is no loss.
        assert_eq!(side_by_side(&b, &a).unwrap().missing, 0);
    }

    #[test]
    fn a_ledger_that_no_longer_balances_is_worse_at_the_same_rate() {
        let mut b = fixture();
        let ledger = &mut b.rungs[1].runs.sample_ledgers[0];
        ledger.offered += 1;
        ledger.unaccounted += 1;
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert_eq!(verdict_on(&comparison, "2"), RungChange::Worse);
        // Rung 4b of the fixture never balanced: that is old news.
        assert_eq!(verdict_on(&comparison, "4b"), RungChange::Same);
        assert!(!side_by_side(&b, &fixture()).unwrap().worse);
        b.rungs[1].runs.sample_ledgers.clear();
        b.rungs[1].runs.ledger = None;
        assert_eq!(
            verdict_on(&side_by_side(&fixture(), &b).unwrap(), "2"),
            RungChange::Worse
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
        mentions(&quick, "b.json | without --quick");
        let few = refused(&|b| b.rungs[3].runs.mpps_samples.truncate(2));
        mentions(&few, "row 4b ( | of b.json | --repeat 5");
        let again = fixture().rungs.remove(3);
        let twice = refused(&|b| b.rungs.push(again.clone()));
        assert!(twice.contains("b.json has row 4b"), "{twice}");
        // A placement of its own is another rung.
        let mut b = fixture();
        b.rungs.push(again.clone());
        b.rungs.last_mut().unwrap().name.push_str(" elsewhere");
        side_by_side(&fixture(), &b).unwrap();
        let nothing = refused(&|b| b.rungs.clear());
        assert!(nothing.contains("a.json and b.json"), "{nothing}");
        let silent = refused(&|b| b.rungs[0].runs.mpps_samples.clear());
        assert!(silent.contains("measured 0 times"), "{silent}");
    }

    #[test]
    fn other_senders_or_cpus_are_not_compared() {
        let usual = |name: &str| RungSender {
            name: name.to_owned(),
            usual: true,
            ..RungSender::default()
        };
        let mut a = fixture();
        a.rungs.iter_mut().for_each(|rung| rung.sender = None);
        a.rungs[0].sender = Some(usual("xdp"));
        let mut b = a.clone();
        let summary = |b: &LabResult| {
            let comparison = side_by_side(&a, b).unwrap();
            first(&text(&comparison, 200)).replace('\u{a0}', " ")
        };
        assert!(summary(&b).ends_with("within noise"), "{}", summary(&b));
        b.fingerprint.kernel_release = "6.1.0".to_owned();
        assert!(summary(&b).ends_with("within noise"), "{}", summary(&b));
        b.fingerprint.cpu_model = Some("Other".to_owned());
        assert!(
            summary(&b).contains("not comparable: cpu_model differs: A "),
            "{}",
            summary(&b)
        );
        b = a.clone();
        b.rungs[0].sender = Some(usual("sendmmsg"));
        let said = " not comparable: sender differs: A xdp, B sendmmsg";
        assert_eq!(summary(&b), said);
    }

    #[test]
    fn differences_of_machine_and_run_come_first() {
        let mut b = fixture();
        b.fingerprint.kernel_release = "6.1.0".to_owned();
        b.delivery = "RPS".to_owned();
        let text = text(&side_by_side(&fixture(), &b).unwrap(), 100);
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
        scale(&mut b, "2", 0.7);
        for width in [60, 80, 130] {
            let text = text(&side_by_side(&fixture(), &b).unwrap(), width);
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
                matches!(
                    LabResult::parse(&whole[..end]),
                    Err(EnvelopeError::Shape { .. })
                ),
                "at {end}"
            );
        }
    }

    #[test]
    fn a_foreign_schema_and_a_changed_count_are_named() {
        let older = FIXTURE.replace("mpps.lab.v2", "mpps.lab.v1");
        let refusal = LabResult::parse(&older).unwrap_err().to_string();
        for part in ["mpps.lab.v1", "mpps.lab.v2", "measure again"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        let delivered = fixture().rungs[1].runs.ledger.as_ref().unwrap().delivered;
        let changed = FIXTURE.replacen(
            &format!("\"delivered\": {delivered}"),
            "\"delivered\": 7",
            1,
        );
        assert!(
            matches!(LabResult::parse(&changed), Err(EnvelopeError::Ledger { of }) if of == "rung 2")
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
                    text(&comparison, 80);
                }
                let document = crate::experiment::ladder::document::document(&result, &[]);
                mpps_report::page(&document);
                mpps_report::Terminal::new(80, false).document(&document);
            }
        }
    }
}
