//! Rates over intervals that are measured and not assumed.

/// One finished interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    /// Its length.
    pub(crate) seconds: f64,
    /// Datagrams in it.
    pub(crate) datagrams: u64,
    /// Payload bytes in it.
    pub(crate) bytes: u64,
}

impl Interval {
    /// Datagrams per second.
    pub(crate) fn pps(&self) -> f64 {
        per_second(self.datagrams, self.seconds)
    }

    /// The article's line: `0.352M pps  10.730MiB /  90.010Mb`: packets, payload mebibytes and
    /// payload megabits, each per second.
    pub(crate) fn line(&self) -> String {
        let bytes = per_second(self.bytes, self.seconds);
        let (mebibytes, megabits) = (bytes / f64::from(1 << 20), bytes * 8.0 / 1e6);
        format!(
            "{:.3}M pps {mebibytes:7.3}MiB / {megabits:7.3}Mb",
            self.pps() / 1e6
        )
    }
}

/// Cuts a running count into intervals of one second, beginning at the first datagram.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    began_ns: u64,
    datagrams: u64,
    bytes: u64,
    has_traffic: bool,
    full_pps: Vec<f64>,
}

/// The length of an interval.
const SECOND_NS: u64 = 1_000_000_000;

impl Meter {
    /// A meter whose first interval begins at `now_ns`.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            began_ns: now_ns,
            datagrams: 0,
            bytes: 0,
            has_traffic: false,
            full_pps: Vec::new(),
        }
    }

    /// Begins the intervals anew at the first datagram, the first time that there is one.
    pub(crate) fn align(&mut self, first_ns: u64) {
        if first_ns != 0 && !self.has_traffic {
            self.has_traffic = true;
            self.began_ns = first_ns;
        }
    }

    /// When the current interval ends.
    pub(crate) fn ends_ns(&self) -> u64 {
        self.began_ns + SECOND_NS
    }

    /// Ends the interval if its time has come, given the counts so far.
    pub(crate) fn tick(&mut self, now_ns: u64, datagrams: u64, bytes: u64) -> Option<Interval> {
        if now_ns < self.ends_ns() {
            return None;
        }
        let interval = Interval {
            seconds: (now_ns - self.began_ns) as f64 / SECOND_NS as f64,
            datagrams: datagrams - self.datagrams,
            bytes: bytes - self.bytes,
        };
        (self.began_ns, self.datagrams, self.bytes) = (now_ns, datagrams, bytes);
        if self.has_traffic && interval.datagrams > 0 {
            self.full_pps.push(interval.pps());
        }
        Some(interval)
    }

    /// The median rate over the full intervals that had traffic, in datagrams per second; with
    /// none, `received / active_seconds`.
    pub(crate) fn pps_median(&self, received: u64, active_seconds: f64) -> f64 {
        crate::report::median(&self.full_pps)
            .unwrap_or_else(|| per_second(received, active_seconds))
    }
}

/// A rate; zero over no time at all.
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_NS;

    #[test]
    fn prints_the_articles_line() {
        // 351 600 packets of 32 bytes are 10.730 MiB and 90.010 Mb.
        let interval = Interval {
            seconds: 1.0,
            datagrams: 351_600,
            bytes: 351_600 * 32,
        };
        assert_eq!(interval.line(), "0.352M pps  10.730MiB /  90.010Mb");
    }

    #[test]
    fn divides_by_the_time_that_passed() {
        let mut meter = Meter::new(0);
        meter.align(S / 2);
        assert_eq!(
            meter.tick(S, 100, 0),
            None,
            "the clock starts at the first datagram"
        );
        let interval = meter.tick(S / 2 + 2 * S, 100, 3200).unwrap();
        assert_eq!((interval.seconds, interval.pps()), (2.0, 50.0));
    }

    #[test]
    fn the_median_leaves_out_idle_seconds_and_the_last_piece() {
        let mut meter = Meter::new(0);
        assert!(meter.tick(S, 0, 0).is_some(), "an idle second is printed");
        meter.align(S + 5);
        for (second, total) in [(2, 100), (3, 300), (4, 300), (5, 600)] {
            meter.tick(second * S + 5, total, 0).unwrap();
        }
        assert_eq!(meter.pps_median(10_000, 4.0), 200.0, "of 100, 200 and 300");
    }

    #[test]
    fn a_run_of_less_than_a_second_is_received_over_active() {
        let mut meter = Meter::new(0);
        meter.align(10);
        assert_eq!(meter.tick(S / 2, 500, 0), None);
        assert_eq!(meter.pps_median(500, 0.25), 2000.0);
        assert_eq!(Meter::new(0).pps_median(0, 0.0), 0.0);
    }
}
