//! An open loop: when requests are to start, whatever the server does.

/// The starting times of one thread's share of a rate. They are fixed beforehand, so that a
/// request that could not start in time is late and never forgotten.
#[derive(Debug, Clone)]
pub(crate) struct StartPace {
    start_ns: u64,
    /// Between two starts of this thread.
    interval_ns: f64,
    /// Of this thread's first start, from the beginning.
    offset_ns: f64,
    next: u64,
    lateness_ns_max: u64,
}

impl StartPace {
    /// The `index`th of `threads` equal shares of `rate` starts a second.
    pub(crate) fn new(rate: f64, index: usize, threads: usize) -> Self {
        let interval_ns = 1e9 / rate;
        Self {
            start_ns: 0,
            interval_ns: interval_ns * threads as f64,
            offset_ns: interval_ns * index as f64,
            next: 0,
            lateness_ns_max: 0,
        }
    }

    /// Sets the beginning.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.start_ns = now_ns;
    }

    /// When the next request is to start.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.nth_ns(self.next)
    }

    /// The time of a start that is due, which is taken, or none.
    #[inline]
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next_ns();
        if due > now_ns {
            return None;
        }
        self.next += 1;
        self.lateness_ns_max = self.lateness_ns_max.max(now_ns - due);
        Some(due)
    }

    /// How much too late the latest start was.
    pub(crate) fn lateness_ns_max(&self) -> u64 {
        self.lateness_ns_max
    }

    /// How many starts were due before `end_ns` and not taken.
    pub(crate) fn missed(&self, end_ns: u64) -> u64 {
        let elapsed = end_ns.saturating_sub(self.start_ns) as f64;
        let due = ((elapsed - self.offset_ns) / self.interval_ns)
            .ceil()
            .max(0.0);
        (due as u64).saturating_sub(self.next)
    }

    fn nth_ns(&self, number: u64) -> u64 {
        // Not added up, so that errors do not add up either.
        self.start_ns + (self.offset_ns + self.interval_ns * number as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

        #[test]
        fn threads_together_keep_the_rate(
            rate in 0.5_f64..1e6, threads in 1_usize..8, seconds in 1_u64..5,
        ) {
            let end = 1_000 + seconds * 1_000_000_000;
            let mut starts = Vec::new();
            for index in 0..threads {
                let mut pace = StartPace::new(rate.min(10_000.0), index, threads);
                pace.begin(1_000);
                while pace.next_ns() < end {
                    starts.extend(pace.take(end));
                }
                prop_assert_eq!(pace.missed(end), 0);
            }
            let expected = rate.min(10_000.0) * seconds as f64;
            prop_assert!((starts.len() as f64 - expected).abs() <= 1.0, "{}", starts.len());
            prop_assert!(starts.iter().all(|start| (1_000..end).contains(start)));
        }
    }

    #[test]
    fn a_late_start_keeps_its_time_and_is_told() {
        let mut pace = StartPace::new(1000.0, 0, 1);
        pace.begin(0);
        assert_eq!(pace.take(0), Some(0));
        assert_eq!(pace.take(999_999), None);
        assert_eq!(pace.take(5_500_000), Some(1_000_000));
        assert_eq!(pace.lateness_ns_max(), 4_500_000);
        assert_eq!(pace.missed(5_500_000), 4);
    }
}
