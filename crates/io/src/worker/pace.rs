//! A rate kept without bursts longer than a batch.

use std::time::{Duration, Instant};

/// Says how many datagrams are due. It makes up for one batch of lost time at the most: a sender
/// that was held up does not flood afterwards.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    rate_pps: f64,
    batch: f64,
    chunk: f64,
    credit: f64,
    seen: Instant,
}

impl Pacer {
    /// Paces `rate_pps` datagrams per second from `now` on: at least `train` at a time, because
    /// they are sent as one, and at most `batch`.
    pub(crate) fn new(rate_pps: f64, train: usize, batch: usize, now: Instant) -> Self {
        // A rate of nothing would never be due; one in a thousand years will do for it.
        let rate_pps = if rate_pps > 1e-10 { rate_pps } else { 1e-10 };
        let train = train.max(1) as f64;
        let batch = (batch as f64).max(train);
        // It is worth waking up for a millisecond of traffic, so that a slow rate is even.
        let chunk = (rate_pps / 1000.0).clamp(train, batch);
        Self {
            rate_pps,
            batch,
            chunk,
            credit: train,
            seen: now,
        }
    }

    /// Datagrams that may be sent at `now`.
    pub(crate) fn due(&mut self, now: Instant) -> usize {
        let elapsed = now.saturating_duration_since(self.seen).as_secs_f64();
        self.seen = self.seen.max(now);
        self.credit = (self.credit + elapsed * self.rate_pps).min(self.batch);
        self.credit as usize
    }

    /// Records that `datagrams` were sent.
    pub(crate) fn spend(&mut self, datagrams: u64) {
        self.credit -= datagrams as f64;
    }

    /// How long until it is worth sending again.
    pub(crate) fn wait(&self) -> Duration {
        let missing = (self.chunk.floor() - self.credit).max(0.0);
        Duration::from_secs_f64((missing / self.rate_pps).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_held_up_sender_does_not_flood() {
        let start = Instant::now();
        let mut pacer = Pacer::new(1_000_000.0, 1, 64, start);
        assert_eq!(pacer.due(start + Duration::from_secs(10)), 64);
    }

    #[test]
    fn a_slow_rate_is_even() {
        let start = Instant::now();
        let mut pacer = Pacer::new(10.0, 1, 1024, start);
        assert_eq!(pacer.due(start), 1);
        pacer.spend(1);
        assert_eq!(pacer.due(start + Duration::from_millis(50)), 0);
        assert_eq!(pacer.due(start + Duration::from_millis(101)), 1);
    }

    proptest! {
        #[test]
        fn keeps_the_rate_and_the_burst_whatever_the_clock_does(
            rate in 1.0_f64..5_000_000.0,
            steps_us in proptest::collection::vec(0_u64..2_000, 1..200),
        ) {
            let start = Instant::now();
            let mut pacer = Pacer::new(rate, 1, 256, start);
            let (mut now, mut sent) = (start, 0_u64);
            for step in steps_us {
                now += Duration::from_micros(step);
                let due = pacer.due(now);
                prop_assert!(due <= 256);
                pacer.spend(due as u64);
                sent += due as u64;
                let allowed = now.duration_since(start).as_secs_f64() * rate + 257.0;
                prop_assert!(sent as f64 <= allowed);
            }
        }
    }
}
