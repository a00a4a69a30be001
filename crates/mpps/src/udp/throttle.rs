//! A receiver that takes at most `pps` packets a second. Its bound is known before the search looks
//! for it.

use mpps_io::{Batch, Error, Rx, RxCaps, RxCounters, RxDrop, Wait};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The depth of the bucket: the most time that is saved up while the receiver could not take
/// packets, such as without its CPU.
const DEPTH: Duration = Duration::from_millis(50);
/// A receiver that waited so long had nothing to take: that time is not saved.
const IDLE: Duration = Duration::from_millis(1);
/// A shorter wait is spun, because a sleep takes longer than it is asked to.
const SLEEP_MIN: Duration = Duration::from_micros(200);

/// A receiver behind a token bucket: what comes meanwhile fills the receiver's own buffer.
#[derive(Debug)]
pub(crate) struct Throttled {
    rx: Box<dyn Rx>,
    pps: f64,
    /// When all is paid for that was taken.
    due: Instant,
}

impl Throttled {
    pub(crate) fn new(rx: Box<dyn Rx>, pps: f64) -> Self {
        let due = Instant::now();
        Self { rx, pps, due }
    }
}

/// When the bucket is paid for after a receive of `datagrams`, if it was to be at `due`.
fn paid(due: Instant, asked: Instant, came: Instant, datagrams: u64, pps: f64) -> Instant {
    let saved = if came - asked >= IDLE {
        Duration::ZERO
    } else {
        DEPTH
    };
    let earliest = came.checked_sub(saved).unwrap_or(came);
    due.max(earliest) + Duration::from_secs_f64(datagrams as f64 / pps)
}

impl Rx for Throttled {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        while let Some(left) = self.due.checked_duration_since(Instant::now()) {
            if left >= SLEEP_MIN {
                thread::sleep(left - SLEEP_MIN / 2);
            }
            std::hint::spin_loop();
        }
        let asked = Instant::now();
        let batch = self.rx.recv(wait)?;
        let came = Instant::now();
        self.due = paid(self.due, asked, came, batch.datagrams(), self.pps);
        Ok(batch)
    }

    fn counters(&self) -> RxCounters {
        self.rx.counters()
    }

    fn drops(&self) -> Vec<RxDrop> {
        self.rx.drops()
    }

    fn caps(&self) -> &RxCaps {
        self.rx.caps()
    }

    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        Ok(Box::new(Self::new(self.rx.share()?, self.pps)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_rate_and_saves_only_time_in_which_there_was_something_to_take() {
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        // 1000 a second: each costs a millisecond.
        for (due, asked, came, expected) in [
            (110, 110, 110, 113),
            // Still to be paid for, it goes on from there.
            (113, 110, 110, 116),
            // It had no CPU for nine milliseconds, and catches up.
            (113, 122, 122, 116),
            // Nor had it for longer than the bucket is deep.
            (113, 200, 200, 153),
            // There was nothing to take.
            (113, 113, 122, 125),
        ] {
            let due = paid(after(due), after(asked), after(came), 3, 1000.0);
            assert_eq!(due, after(expected), "{asked} {came}");
        }
    }
}
