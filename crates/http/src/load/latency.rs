//! How long connecting, the first byte and the last byte took.

use hdrhistogram::Histogram;
use std::fmt;

/// The longest time that is told apart: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Decimal digits that are kept of a time.
const DIGITS: u8 = 3;

/// The three times of the requests that were answered.
///
/// A clock is read once for each batch of events that the kernel hands over, and a time ends when
/// the load sees the event, not when the kernel does.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    /// From the first packet to an established connection; one per connection.
    pub connect: Distribution,
    /// From the moment at which the request was to start, connecting included, to the first byte
    /// of the reply.
    pub first_byte: Distribution,
    /// The same to its last byte.
    pub last_byte: Distribution,
}

/// Times, kept to three digits.
#[derive(Clone)]
pub struct Distribution(Histogram<u64>);

impl Latency {
    pub(crate) fn add(&mut self, other: &Self) {
        self.connect.add(&other.connect);
        self.first_byte.add(&other.first_byte);
        self.last_byte.add(&other.last_byte);
    }
}

impl Distribution {
    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time in microseconds that a share of them, from 0 to 1, did not exceed; 0 without any.
    pub fn quantile_us(&self, share: f64) -> f64 {
        // The highest value of a bucket may lie beyond the longest time that was met.
        let value = self.0.value_at_quantile(share).min(self.0.max());
        value as f64 / 1e3
    }

    /// The shortest in microseconds; 0 without any.
    pub fn min_us(&self) -> f64 {
        self.0.min() as f64 / 1e3
    }

    /// The longest in microseconds; 0 without any.
    pub fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    /// The mean in microseconds; 0 without any.
    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// The standard deviation in microseconds; 0 without any.
    pub fn deviation_us(&self) -> f64 {
        self.0.stdev() / 1e3
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
        // Times below 64 ns are not told apart; none is that short.
        let histogram = Histogram::new_with_bounds(64, LONGEST_NS, DIGITS);
        Self(histogram.expect("bounds in order, and no more than five digits"))
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distribution")
            .field("count", &self.count())
            .field("p50_us", &self.quantile_us(0.5))
            .field("max_us", &self.max_us())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_times_to_three_digits() {
        let mut times = Distribution::default();
        assert_eq!(
            (times.count(), times.quantile_us(0.5), times.max_us()),
            (0, 0.0, 0.0)
        );
        for us in 1..=1000_u64 {
            times.record(5_000, 5_000 + us * 1000);
        }
        for share in [0.5, 0.9, 0.99, 0.999] {
            let expected = share * 1000.0;
            let found = times.quantile_us(share);
            assert!(
                (found - expected).abs() <= expected * 0.002 + 0.1,
                "{found}"
            );
        }
        assert!(times.max_us() >= 1000.0 && times.max_us() < 1001.5);
        assert!(times.quantile_us(1.0) <= times.max_us());
    }

    #[test]
    fn a_time_that_is_too_long_or_runs_backwards_is_kept_at_the_edge() {
        let mut times = Distribution::default();
        times.record(10, 0);
        times.record(0, u64::MAX);
        assert_eq!(times.count(), 2);
        assert!(times.max_us() >= LONGEST_NS as f64 / 1e3);
        assert!(times.min_us() < 1.0);
    }

    #[test]
    fn threads_add_up() {
        let (mut one, mut other) = (Latency::default(), Latency::default());
        one.connect.record(0, 1000);
        other.connect.record(0, 9000);
        other.last_byte.record(0, 5000);
        one.add(&other);
        assert_eq!((one.connect.count(), one.last_byte.count()), (2, 1));
    }
}
