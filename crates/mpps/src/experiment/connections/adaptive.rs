//! Moderation that adapts itself to the traffic, as the driver of the paper's card did.
//!
//! A veth has no such driver: a thread of the lab sets the queues' time. Its rule is that of ixgbe in
//! Linux 3.4 (`ixgbe_update_itr` and `ixgbe_set_itr` in ixgbe_main.c). That looked after each
//! interrupt, this looks once a millisecond.

use super::plan::PlannedCell;
use super::stage::ConnectionLab;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often the thread looks.
const LOOK: Duration = Duration::from_millis(1);
/// Interrupts per second of the three classes of traffic: of the lowest latency, low, and bulk.
const PER_SECOND: [f64; 3] = [100_000.0, 20_000.0, 8_000.0];
/// A queue with more bytes per microsecond than this is of the next class.
const BYTES_PER_US: [f64; 2] = [10.0, 20.0];

/// The state of the rule.
#[derive(Debug)]
struct AdaptiveRule {
    class: usize,
    per_second: f64,
}

impl Default for AdaptiveRule {
    fn default() -> Self {
        Self {
            class: 0,
            per_second: PER_SECOND[1],
        }
    }
}

impl AdaptiveRule {
    /// Returns the time between polls, after `bytes` of a queue in `time`. The class moves by one,
    /// and the rate by a tenth of the way. Without traffic nothing changes.
    fn next(&mut self, bytes: f64, time: Duration) -> Duration {
        let rate = bytes / (time.as_secs_f64() * 1e6);
        if rate > 0.0 {
            let limits = BYTES_PER_US;
            if self.class < 2 && rate > limits[self.class] {
                self.class += 1;
            } else if self.class > 0 && rate <= limits[self.class - 1] {
                self.class -= 1;
            }
            self.per_second += (PER_SECOND[self.class] - self.per_second) / 10.0;
        }
        Duration::from_micros((1e6 / self.per_second).round() as u64)
    }
}

impl ConnectionLab {
    /// Does something while the server's queues wait as a cell says.
    pub(super) fn moderated<R>(
        &self,
        cell: &PlannedCell,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        if !cell.row.adaptive {
            self.moderate(cell.moderation())?;
            return work();
        }
        let mut rule = AdaptiveRule::default();
        self.moderate(Some(rule.next(0.0, LOOK)))?;
        let (lab, queues) = (&self.lab, self.deal.servers.len() as f64);
        let stop = AtomicBool::new(false);
        let done = thread::scope(|scope| {
            // The thread ends also if the work panics.
            let stopping = Stopping(&stop);
            let wait = |bytes: u64, time| rule.next(bytes as f64 / queues, time);
            let adapt = || lab.adapt_polling(&stop, LOOK, wait);
            let thread = thread::Builder::new().spawn_scoped(scope, adapt)?;
            let done = work();
            drop(stopping);
            let adapted = thread.join();
            adapted.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            done
        });
        // The thread has left another time than the stage knows of.
        self.moderate(None)?;
        done
    }
}

/// Stops a thread when it is dropped.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_left_for_the_next_one_only_and_the_rate_follows() {
        let mut rule = AdaptiveRule::default();
        // Bytes per millisecond, the class after it, and where the time ends up if it stays so.
        for (bytes, class, us) in [
            (9_000.0, 0, 10),
            (15_000.0, 1, 50),
            (25_000.0, 2, 125),
            (15_000.0, 1, 50),
            (5_000.0, 0, 10),
        ] {
            let first = rule.next(bytes, LOOK);
            assert_eq!(rule.class, class, "{bytes}");
            let last = (0..200).map(|_| rule.next(bytes, LOOK)).last();
            assert_eq!(last, Some(Duration::from_micros(us)), "{bytes}: {first:?}");
            assert_eq!(rule.next(0.0, LOOK), Duration::from_micros(us));
        }
        // From the lowest latency to bulk it takes two looks.
        let classes = [(); 2].map(|()| {
            rule.next(1e9, LOOK);
            rule.class
        });
        assert_eq!(classes, [1, 2]);
    }
}
