//! Renders what a comparison of receive paths found: a table for a terminal, one HTML file.
//!
//! The renderers take a [`BenchResult`] and nothing else: a figure that is not in the result file
//! is in no report either.

pub(crate) mod html;
pub(crate) mod text;

use super::{extremes, mpps};
use crate::bench::result::{BenchResult, BenchRow};
use mpps_host::Ledger;

/// Measured rows that compare with each other: those of one placement of queue and application.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// What they have in common.
    pub(crate) heading: &'static str,
    /// In the order of the result, which is fastest first.
    pub(crate) rows: Vec<&'a BenchRow>,
    /// The rate of the plain recvmmsg row among them, in Mpps.
    base_mpps: Option<f64>,
}

impl<'a> Group<'a> {
    /// The groups that have rows.
    pub(crate) fn all(result: &'a BenchResult) -> Vec<Self> {
        let headings = [
            (false, "the application has its CPU to itself"),
            (true, "receive queue and application share a CPU"),
        ];
        let groups = headings.map(|(shares_cpu, heading)| {
            let of_group = |row: &&BenchRow| row.skipped.is_none() && row.shares_cpu == shares_cpu;
            let rows: Vec<&BenchRow> = result.rows.iter().filter(of_group).collect();
            let base = rows
                .iter()
                .find(|row| row.reference && row.path == "recvmmsg");
            Self {
                heading,
                base_mpps: base.and_then(|row| row.mpps_median),
                rows,
            }
        });
        let mut groups = Vec::from(groups);
        groups.retain(|group| !group.rows.is_empty());
        groups
    }

    /// The row's rate over that of recvmmsg, if the group has both.
    pub(crate) fn times(&self, row: &BenchRow) -> Option<f64> {
        let base = self.base_mpps.filter(|base| *base > 0.0)?;
        Some(row.mpps_median? / base)
    }
}

/// Paths that did not run, with their reasons; each reason is told once.
pub(crate) fn skipped(result: &BenchResult) -> Vec<(String, &str)> {
    let mut all: Vec<(Vec<String>, &str)> = Vec::new();
    for row in &result.rows {
        let Some(why) = &row.skipped else { continue };
        let name = name(row);
        match all.iter_mut().find(|(_, known)| known == why) {
            // A path that is kept from running in both groups is one path.
            Some((names, _)) if names.contains(&name) => {}
            Some((names, _)) => names.push(name),
            None => all.push((vec![name], why)),
        }
    }
    let joined = all.into_iter().map(|(names, why)| (names.join(", "), why));
    joined.collect()
}

/// The path and the way it was used: `af_xdp spin`; a reference has a star.
pub(crate) fn name(row: &BenchRow) -> String {
    let star = if row.reference { " *" } else { "" };
    format!("{}{star}", title(&row.path, &row.variant))
}

/// The path and the way it was used, without more: `af_xdp spin`.
pub(crate) fn title(path: &str, variant: &str) -> String {
    match variant {
        "" => path.to_owned(),
        variant => format!("{path} {variant}"),
    }
}

/// The lowest and the highest repeat as a range, if there are two repeats to differ.
pub(crate) fn spread(row: &BenchRow) -> Option<String> {
    let [low, high] = extremes(&row.mpps_samples)?;
    (row.mpps_samples.len() > 1).then(|| format!("{}-{}", mpps(low), mpps(high)))
}

/// A ratio with the digits that mean something: `0.43`, `2.65`, `29.1`.
pub(crate) fn times(ratio: f64) -> String {
    if ratio < 9.995 {
        format!("{ratio:.2}x")
    } else {
        format!("{ratio:.1}x")
    }
}

/// Packets per call, with a digit behind the point only where it is seen.
pub(crate) fn per_call(packets: f64) -> String {
    if packets < 99.95 {
        format!("{packets:.1}")
    } else {
        format!("{packets:.0}")
    }
}

/// Calls per packet; a little is not nothing.
pub(crate) fn calls(per_packet: f64) -> String {
    if per_packet > 0.0 && per_packet < 0.0005 {
        "<0.001".to_owned()
    } else {
        format!("{per_packet:.3}")
    }
}

/// All ledgers of a result, those of the overload curves and of spread traffic included.
pub(crate) fn ledgers(result: &BenchResult) -> impl Iterator<Item = &Ledger> {
    let rows = result.rows.iter().flat_map(|row| row.ledgers());
    let points = result.overload.iter().flat_map(|curve| &curve.points);
    let spread = result.spread.iter().flat_map(|row| &row.ledgers);
    rows.chain(points.map(|point| &point.ledger)).chain(spread)
}

/// True if no datagram is unaccounted for where the counters are exact.
pub(crate) fn balances(result: &BenchResult) -> bool {
    ledgers(result)
        .filter(|ledger| ledger.is_exact())
        .all(|ledger| ledger.unaccounted == 0)
}

/// How many ledgers balance.
pub(crate) fn balanced(result: &BenchResult) -> String {
    let exact = ledgers(result).filter(|ledger| ledger.is_exact());
    let balanced = ledgers(result).filter(|ledger| ledger.balances());
    format!(
        "{} of {} exact ledgers UNACCOUNTED 0",
        balanced.count(),
        exact.count()
    )
}

/// What the other ledgers are, if there are others.
pub(crate) fn inexact(result: &BenchResult) -> Option<String> {
    let others = ledgers(result).filter(|ledger| !ledger.is_exact()).count();
    (others > 0).then(|| {
        format!(
            "{others} of rate runs inexact: without the drop probe a dropped train counts as one"
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up run with everything that a report has to cope with.
    pub(crate) const FIXTURE: &str = include_str!("../../tests/fixtures/bench.json");

    pub(crate) fn fixture() -> BenchResult {
        BenchResult::parse(FIXTURE).expect("the fixture is a result file")
    }

    #[test]
    fn what_was_read_is_written_back_byte_for_byte() {
        let mut text = Vec::new();
        crate::report::json::write(&fixture(), &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), FIXTURE);
    }

    #[test]
    fn rows_are_grouped_by_who_has_the_cpu_and_measured_against_their_own_recvmmsg() {
        let result = fixture();
        let groups = Group::all(&result);
        let rows: usize = groups.iter().map(|group| group.rows.len()).sum();
        let measured = result.rows.iter().filter(|row| row.skipped.is_none());
        assert_eq!((groups.len(), rows), (2, measured.count()));
        for group in &groups {
            let base = group.rows.iter().find(|row| name(row) == "recvmmsg *");
            let base = base.expect("the fixture has it in both groups");
            assert_eq!(group.times(base), Some(1.0));
        }
        assert_ne!(groups[0].base_mpps, groups[1].base_mpps);
    }

    #[test]
    fn a_group_without_recvmmsg_or_rows_is_no_fault() {
        let mut result = fixture();
        result.rows.retain(|row| row.path != "recvmmsg");
        for group in Group::all(&result) {
            assert!(group.rows.iter().all(|row| group.times(row).is_none()));
        }
        result.rows.clear();
        assert!(Group::all(&result).is_empty());
    }

    #[test]
    fn what_is_skipped_alike_twice_is_named_once() {
        let mut result = fixture();
        let row = result.rows.iter().find(|row| row.skipped.is_some());
        let mut again = row.expect("the fixture has one").clone();
        let before = skipped(&result).len();
        again.shares_cpu = !again.shares_cpu;
        result.rows.push(again);
        assert_eq!(skipped(&result).len(), before);
    }

    #[test]
    fn paths_with_one_reason_are_named_together() {
        let mut result = fixture();
        result.rows.retain(|row| row.skipped.is_some());
        result.rows.truncate(1);
        let mut other = result.rows[0].clone();
        other.path = "pcap".to_owned();
        result.rows.push(other);
        assert_eq!(skipped(&result)[0].0, "dpdk, pcap");
    }

    #[test]
    fn figures_have_the_digits_that_mean_something() {
        assert_eq!(
            (times(2.654), times(29.13)),
            ("2.65x".into(), "29.1x".into())
        );
        assert_eq!(
            (per_call(1.0), per_call(875.4)),
            ("1.0".into(), "875".into())
        );
        assert_eq!(calls(0.0), "0.000");
        assert_eq!(calls(0.0001), "<0.001");
        assert_eq!(calls(1.0), "1.000");
    }
}
