//! How long connecting, the first byte and the last byte took.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest time that is distinguished: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Decimal digits that are kept of a time.
const DIGITS: u8 = 3;

/// The three times of a load.
///
/// A clock is read once for each batch of events that the kernel hands over, and a time ends when
/// the load sees the event, not when the kernel does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// From the first packet to an established connection; one per connection.
    pub connect: Times,
    /// From the start of a request, connecting included, to the first byte of the reply; with
    /// `rate` from its intended start.
    pub first_byte: Times,
    /// The same to its last byte.
    pub last_byte: Times,
}

/// Times in microseconds, kept to three digits; all are 0 if there are none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// How many there are.
    pub count: u64,
    /// The shortest.
    pub min: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// Half of them are not longer.
    pub p50: f64,
    /// Nine of ten are not longer.
    pub p90: f64,
    /// 99 of 100 are not longer.
    pub p99: f64,
    /// 999 of 1000 are not longer.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// The whole distribution: a percentage, and the time that this share does not exceed.
    pub percentiles: Vec<[f64; 2]>,
}

/// Percentages of [`Times::percentiles`], those that `ab` prints among them.
const PERCENTAGES: [f64; 16] = [
    0.0, 10.0, 25.0, 50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 99.999,
    100.0,
];

/// The three times while they are counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies {
    pub(crate) connect: Distribution,
    pub(crate) first_byte: Distribution,
    pub(crate) last_byte: Distribution,
}

/// Times while they are counted.
#[derive(Clone)]
pub(crate) struct Distribution(Histogram<u64>);

impl Latencies {
    pub(crate) fn add(&mut self, other: &Self) {
        self.connect.add(&other.connect);
        self.first_byte.add(&other.first_byte);
        self.last_byte.add(&other.last_byte);
    }

    pub(crate) fn report(&self) -> Latency {
        Latency {
            connect: self.connect.times(),
            first_byte: self.first_byte.times(),
            last_byte: self.last_byte.times(),
        }
    }
}

impl Distribution {
    pub(crate) fn times(&self) -> Times {
        let us = |ns: u64| ns as f64 / 1e3;
        // The highest value of a bucket may lie beyond the longest time that was met.
        let at = |share: f64| us(self.0.value_at_quantile(share).min(self.0.max()));
        Times {
            count: self.0.len(),
            min: us(self.0.min()),
            mean: self.0.mean() / 1e3,
            deviation: self.0.stdev() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: us(self.0.max()),
            percentiles: PERCENTAGES.map(|share| [share, at(share / 100.0)]).into(),
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, from_ns: u64, to_ns: u64) {
        self.0.saturating_record(to_ns.saturating_sub(from_ns));
    }

    fn add(&mut self, other: &Self) {
        // It fails for a histogram of other bounds, and there is none.
        let _ = self.0.add(&other.0);
    }
}

impl Default for Distribution {
    fn default() -> Self {
        // Times below 64 ns are not distinguished; none is that short.
        let histogram = Histogram::new_with_bounds(64, LONGEST_NS, DIGITS);
        Self(histogram.expect("bounds in order, and no more than five digits"))
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.times().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_times_to_three_digits() {
        let mut times = Distribution::default();
        let none = times.times();
        assert_eq!((none.count, none.p50, none.max), (0, 0.0, 0.0));
        for us in 1..=1000_u64 {
            times.record(5_000, 5_000 + us * 1000);
        }
        let times = times.times();
        let shares = [
            (0.5, times.p50),
            (0.9, times.p90),
            (0.99, times.p99),
            (0.999, times.p999),
        ];
        for (share, found) in shares {
            let expected = share * 1000.0;
            assert!(
                (found - expected).abs() <= expected * 0.002 + 0.1,
                "{found}"
            );
        }
        assert!(times.max >= 1000.0 && times.max < 1001.5);
        assert_eq!(times.percentiles.last(), Some(&[100.0, times.max]));
    }

    #[test]
    fn a_time_that_is_too_long_or_runs_backwards_is_kept_at_the_edge() {
        let mut times = Distribution::default();
        times.record(10, 0);
        times.record(0, u64::MAX);
        let times = times.times();
        assert_eq!(times.count, 2);
        assert!(times.max >= LONGEST_NS as f64 / 1e3);
        assert!(times.min < 1.0);
    }

    #[test]
    fn threads_add_up() {
        let (mut one, mut other) = (Latencies::default(), Latencies::default());
        one.connect.record(0, 1000);
        other.connect.record(0, 9000);
        other.last_byte.record(0, 5000);
        one.add(&other);
        let one = one.report();
        assert_eq!((one.connect.count, one.last_byte.count), (2, 1));
    }
}
