//! Rates over intervals that are measured and not assumed.

use crate::measure::samples::{median, per_second};

/// One finished interval, with what was counted in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval<const N: usize> {
    /// Its length.
    pub(crate) seconds: f64,
    /// How many of each, in the order of [`Meter::tick`].
    pub(crate) counts: [u64; N],
}

impl<const N: usize> Interval<N> {
    /// The rate of each, per second.
    pub(crate) fn rates(&self) -> [f64; N] {
        self.counts.map(|count| per_second(count, self.seconds))
    }
}

/// A rate in bits or datagrams per second with three digits and an SI prefix: `47.1 k`.
pub(crate) fn scaled(rate: f64) -> String {
    let prefixes = [("G", 1e9), ("M", 1e6), ("k", 1e3)];
    let prefix = prefixes
        .into_iter()
        .find(|(_, scale)| rate >= 0.9995 * scale);
    let (prefix, scale) = prefix.unwrap_or(("", 1.0));
    let rate = rate / scale;
    let digits = match rate {
        _ if prefix.is_empty() => 0,
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    format!("{rate:.digits$} {prefix}")
}

/// The line of a second: `47.1 k/s  12.1 Mbit/s`, or as the article had it.
pub(crate) fn rate_line(pps: f64, bytes_per_second: f64, as_article: bool) -> String {
    match as_article {
        true => article_line(pps, bytes_per_second),
        false => {
            let (packets, bits) = (scaled(pps), scaled(bytes_per_second * 8.0));
            format!("{packets:>7}/s {bits:>7}bit/s")
        }
    }
}

/// The article's line for datagrams and bytes per second: `0.352M pps  10.730MiB /  90.010Mb`. The
/// bytes are in mebibytes and in megabits.
fn article_line(pps: f64, bytes_per_second: f64) -> String {
    let mebibytes = bytes_per_second / f64::from(1 << 20);
    let megabits = bytes_per_second * 8.0 / 1e6;
    format!(
        "{:.3}M pps {mebibytes:7.3}MiB / {megabits:7.3}Mb",
        pps / 1e6
    )
}

/// Cuts running counts into intervals of one second, beginning at the first of what the first one
/// counts.
#[derive(Debug, Clone)]
pub(crate) struct Meter<const N: usize> {
    began_ns: u64,
    counts: [u64; N],
    has_traffic: bool,
    /// The rate of the first count in each full interval.
    full: Vec<f64>,
}

/// The length of an interval.
const SECOND_NS: u64 = 1_000_000_000;

impl<const N: usize> Meter<N> {
    /// A meter whose first interval begins at `now_ns` with these counts.
    pub(crate) fn new(now_ns: u64, counts: [u64; N]) -> Self {
        Self {
            began_ns: now_ns,
            counts,
            has_traffic: false,
            full: Vec::new(),
        }
    }

    /// Begins the intervals anew at the first datagram, the first time that there is one; true then.
    pub(crate) fn align(&mut self, first_ns: u64) -> bool {
        let is_first = first_ns != 0 && !self.has_traffic;
        if is_first {
            self.has_traffic = true;
            self.began_ns = first_ns;
        }
        is_first
    }

    /// When the current interval ends.
    pub(crate) fn ends_ns(&self) -> u64 {
        self.began_ns + SECOND_NS
    }

    /// Ends the interval if its time has come, given the counts so far.
    pub(crate) fn tick(&mut self, now_ns: u64, counts: [u64; N]) -> Option<Interval<N>> {
        if now_ns < self.ends_ns() {
            return None;
        }
        let mut interval = Interval {
            seconds: (now_ns - self.began_ns) as f64 / SECOND_NS as f64,
            counts,
        };
        for (count, before) in interval.counts.iter_mut().zip(self.counts) {
            *count = count.saturating_sub(before);
        }
        (self.began_ns, self.counts) = (now_ns, counts);
        if self.has_traffic && interval.counts[0] > 0 {
            self.full.push(interval.rates()[0]);
        }
        Some(interval)
    }

    /// The median rate over the full intervals that had traffic, in datagrams per second; with
    /// none, `received / active_seconds`.
    pub(crate) fn pps_median(&self, received: u64, active_seconds: f64) -> f64 {
        median(&self.full).unwrap_or_else(|| per_second(received, active_seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_NS;

    #[test]
    fn prints_the_articles_line() {
        // 351 600 packets of 32 bytes are 10.730 MiB and 90.010 Mb.
        let (pps, bytes) = (351_600.0, 351_600.0 * 32.0);
        let line = "0.352M pps  10.730MiB /  90.010Mb";
        assert_eq!(article_line(pps, bytes), line);
    }

    #[test]
    fn rates_have_three_digits_and_a_prefix() {
        let rates = [
            0.0,
            312.0,
            999.4,
            999.6,
            47_060.0,
            99_960.0,
            1_048_000.0,
            1.2e10,
        ];
        let scaled = rates.map(scaled);
        let expected = [
            "0 ", "312 ", "999 ", "1.00 k", "47.1 k", "100 k", "1.05 M", "12.0 G",
        ];
        assert_eq!(scaled, expected);
        let line = " 47.1 k/s  12.0 Mbit/s";
        assert_eq!(rate_line(47_060.0, 47_060.0 * 32.0, false), line);
    }

    #[test]
    fn divides_by_the_time_that_passed() {
        let mut meter = Meter::new(0, [0, 0]);
        for first_ns in [0, S / 2, S / 3] {
            meter.align(first_ns);
        }
        let early = meter.tick(S, [100, 0]);
        assert_eq!(early, None, "the clock starts at the first datagram");
        let interval = meter.tick(S / 2 + 2 * S, [100, 3200]).unwrap();
        assert_eq!((interval.seconds, interval.rates()), (2.0, [50.0, 1600.0]));
        let interval = meter.tick(S / 2 + 3 * S, [130, 3700]).unwrap();
        assert_eq!(interval.rates(), [30.0, 500.0]);
    }

    #[test]
    fn the_median_leaves_out_idle_seconds_and_the_last_piece() {
        let mut meter = Meter::new(0, [0]);
        assert!(meter.tick(S, [0]).is_some(), "an idle second is printed");
        meter.align(S + 5);
        for (second, total) in [(2, 100), (3, 300), (4, 300), (5, 600)] {
            meter.tick(second * S + 5, [total]).unwrap();
        }
        assert_eq!(meter.pps_median(10_000, 4.0), 200.0, "of 100, 200 and 300");
    }

    #[test]
    fn a_run_of_less_than_a_second_is_received_over_active() {
        let mut meter = Meter::new(0, [0]);
        meter.align(10);
        assert_eq!(meter.tick(S / 2, [500]), None);
        assert_eq!(meter.pps_median(500, 0.25), 2000.0);
        assert_eq!(Meter::new(0, [0]).pps_median(0, 0.0), 0.0);
    }
}
