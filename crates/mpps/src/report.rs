//! Renders what the ladder found: a table for a terminal, JSON for programs, one HTML file for people.
//!
//! The renderers take a [`LabResult`](crate::result::LabResult) and nothing else: a figure that is
//! not in the result file is in no report either.

pub(crate) mod bench;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod load;
pub(crate) mod sender;
pub(crate) mod serve;
pub(crate) mod table;
pub(crate) mod tcp_lab;
pub(crate) mod text;

use crate::result::RungResult;
use mpps_host::{Grouped, Ledger, Station};

/// Where the packets of a rung's rate runs went, all repeats together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shares {
    /// Everything that had to be accounted for: offered datagrams and multicast copies.
    pub(crate) offered: u128,
    /// Datagrams that arrived.
    pub(crate) delivered: u128,
    /// Losses by station and reason, largest first.
    pub(crate) losses: Vec<LostShare>,
    /// Datagrams still in the socket buffers at the end.
    pub(crate) queued: u128,
    /// What no counter explains; negative if something was counted twice.
    pub(crate) unaccounted: i128,
}

/// One loss of [`Shares`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostShare {
    /// Where.
    pub(crate) station: Station,
    /// Why.
    pub(crate) reason: String,
    /// Datagrams.
    pub(crate) count: u128,
}

impl Shares {
    /// Adds up the ledgers behind a rate; takes the exact ledger if there are none, or if they count
    /// trains and so could not add up to the datagrams.
    pub(crate) fn of(exact: Option<&Ledger>, samples: &[Ledger]) -> Option<Self> {
        match exact {
            Some(exact) if samples.is_empty() || !samples.iter().all(Ledger::is_exact) => {
                Some(Self::sum([exact]))
            }
            _ if samples.is_empty() => None,
            _ => Some(Self::sum(samples)),
        }
    }

    /// Those of a rung's rate.
    pub(crate) fn of_rung(rung: &RungResult) -> Option<Self> {
        Self::of(rung.ledger.as_ref(), &rung.sample_ledgers)
    }

    /// Adds up ledgers. The sums are wide because a result file may claim any count.
    pub(crate) fn sum<'a>(ledgers: impl IntoIterator<Item = &'a Ledger>) -> Self {
        let mut sum = Self {
            offered: 0,
            delivered: 0,
            losses: Vec::new(),
            queued: 0,
            unaccounted: 0,
        };
        for ledger in ledgers {
            sum.offered += u128::from(ledger.offered) + u128::from(ledger.copies);
            sum.delivered += u128::from(ledger.delivered);
            sum.queued += u128::from(ledger.queued);
            sum.unaccounted += i128::from(ledger.unaccounted);
            for loss in &ledger.losses {
                sum.lose(loss.station, &loss.reason, loss.count);
            }
        }
        sum.losses.sort_by_key(|loss| std::cmp::Reverse(loss.count));
        sum
    }

    fn lose(&mut self, station: Station, reason: &str, count: u64) {
        let known = |loss: &&mut LostShare| loss.station == station && loss.reason == reason;
        if let Some(loss) = self.losses.iter_mut().find(known) {
            loss.count += u128::from(count);
        } else {
            self.losses.push(LostShare {
                station,
                reason: reason.to_owned(),
                count: u128::from(count),
            });
        }
    }

    /// A count's share of what was offered, 0 to 1 in a ledger that balances.
    pub(crate) fn share(&self, count: u128) -> f64 {
        if self.offered == 0 {
            return 0.0;
        }
        count as f64 / self.offered as f64
    }
}

/// The rung with the highest median that has a ledger to show.
pub(crate) fn fastest(rungs: &[RungResult]) -> Option<&RungResult> {
    rungs
        .iter()
        .filter(|rung| rung.ledger.is_some() && rung.mpps_median.is_some())
        .max_by(|a, b| {
            a.mpps_median
                .unwrap_or(0.0)
                .total_cmp(&b.mpps_median.unwrap_or(0.0))
        })
}

/// All ledgers of a rung: that of the exactness run first, then those of the repeats.
pub(crate) fn ledgers(rung: &RungResult) -> impl Iterator<Item = &Ledger> {
    rung.ledger.iter().chain(&rung.sample_ledgers)
}

/// What is wrong with a ledger, if it does not balance.
pub(crate) fn fault(ledger: &Ledger) -> Option<&'static str> {
    if ledger.balances() {
        None
    } else if ledger.is_exact() {
        Some("DOES NOT BALANCE")
    } else {
        Some("is not exact")
    }
}

/// A sentence for each witness of a ledger that disagrees with it.
pub(crate) fn disagreements(ledger: &Ledger) -> impl Iterator<Item = String> {
    let disagree = ledger.witnesses.iter().filter(|witness| !witness.agrees());
    disagree.map(|witness| {
        format!(
            "{} disagrees about {}: it says {}, the ledger {}",
            witness.source,
            witness.about,
            table::unbroken(&Grouped(witness.witness).to_string()),
            table::unbroken(&Grouped(witness.ledger).to_string()),
        )
    })
}

/// A rate in million datagrams per second with the digits that mean something: `0.052`, `1.14`.
pub(crate) fn mpps(rate: f64) -> String {
    let size = rate.abs();
    if size >= 100.0 {
        format!("{rate:.0}")
    } else if size >= 0.1 || size == 0.0 {
        format!("{rate:.2}")
    } else if size >= 0.0005 {
        format!("{rate:.3}")
    } else {
        // A rate so low is a trickle, and its digits would not fit the column.
        "<0.001".to_owned()
    }
}

/// A share as per cent. Neither "all" nor "nothing" is ever the product of rounding.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value > 0.0 && value < 0.05 {
        "<0.1 %".to_owned()
    } else if (99.95..100.0).contains(&value) {
        ">99.9 %".to_owned()
    } else {
        format!("{value:.1} %")
    }
}

/// The article's figures as a range, `0.20-0.35`, or as one figure if both ends are the same.
pub(crate) fn article([low, high]: [f64; 2]) -> String {
    let (from, to) = (format!("{low:.2}"), format!("{high:.2}"));
    if low == high {
        from
    } else if from == to {
        format!("{low:.3}-{high:.3}")
    } else {
        format!("{from}-{to}")
    }
}

/// Keeps a line from breaking inside the grouped numbers of a ledger.
pub(crate) fn hard_numbers(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let digit = |at: Option<usize>| {
        at.and_then(|at| letters.get(at))
            .is_some_and(char::is_ascii_digit)
    };
    (0..letters.len())
        .map(|at| match letters[at] {
            ' ' if digit(at.checked_sub(1)) && digit(Some(at + 1)) => '\u{a0}',
            letter => letter,
        })
        .collect()
}

/// The lowest and the highest of the rates that are numbers.
pub(crate) fn extremes(rates: &[f64]) -> Option<[f64; 2]> {
    let mut finite = rates.iter().copied().filter(|rate| rate.is_finite());
    let first = finite.next()?;
    Some(finite.fold([first, first], |[low, high], rate| {
        [low.min(rate), high.max(rate)]
    }))
}

/// The middle value, or the mean of the middle two; nothing of an empty list.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[middle - 1], upper))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::result::LabResult;

    /// A made-up run with everything that a report has to cope with.
    pub(crate) const FIXTURE: &str = include_str!("../tests/fixtures/lab.json");

    pub(crate) fn fixture() -> LabResult {
        LabResult::parse(FIXTURE).expect("the fixture is a result file")
    }

    #[test]
    fn repeats_are_added_up_by_station_and_reason_largest_first() {
        let mut one = Ledger::new(100, 50, 0);
        one.lose(loss("socket buffer full", 30));
        one.lose(loss("no port", 20));
        let mut two = Ledger::new(100, 40, 10);
        two.lose(loss("no port", 40));
        let sum = Shares::sum([&one, &two]);
        assert_eq!(
            (sum.offered, sum.delivered, sum.queued, sum.unaccounted),
            (200, 90, 10, 10)
        );
        let losses: Vec<_> = sum
            .losses
            .iter()
            .map(|loss| (&*loss.reason, loss.count))
            .collect();
        assert_eq!(losses, [("no port", 60), ("socket buffer full", 30)]);
        assert_eq!(sum.share(50), 0.25);
    }

    #[test]
    fn counts_of_any_size_are_added_up() {
        let mut huge = Ledger::new(u64::MAX, u64::MAX, u64::MAX);
        huge.lose(loss("no port", u64::MAX));
        huge.lose(loss("no port", u64::MAX));
        assert_eq!(
            Shares::sum([&huge, &huge]).losses[0].count,
            4 * u128::from(u64::MAX)
        );
    }

    #[test]
    fn a_little_is_not_nothing_and_nearly_all_is_not_all() {
        assert_eq!(percent(0.0), "0.0 %");
        assert_eq!(percent(0.000_001), "<0.1 %");
        assert_eq!(percent(0.390_4), "39.0 %");
        assert_eq!(percent(0.999_999), ">99.9 %");
        assert_eq!(percent(1.0), "100.0 %");
    }

    #[test]
    fn rates_and_ranges_read_as_in_the_article() {
        assert_eq!(mpps(0.0521), "0.052");
        assert_eq!(mpps(1.1437), "1.14");
        assert_eq!(mpps(0.0), "0.00");
        assert_eq!(mpps(0.000_012), "<0.001");
        assert_eq!(article([0.197, 0.352]), "0.20-0.35");
        assert_eq!(article([1.4, 1.4]), "1.40");
        assert_eq!(article([0.349, 0.354]), "0.349-0.354");
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_spread_is_of_numbers() {
        assert_eq!(
            extremes(&[2.0, f64::NAN, 0.5, f64::INFINITY]),
            Some([0.5, 2.0])
        );
        assert_eq!(extremes(&[f64::NAN]), None);
    }

    fn loss(reason: &str, count: u64) -> mpps_host::Loss {
        mpps_host::Loss {
            station: Station::Udp,
            reason: reason.to_owned(),
            count,
            source: "test".to_owned(),
            scope: mpps_host::Scope::Namespace,
            by_difference: false,
            exact: true,
        }
    }
}
