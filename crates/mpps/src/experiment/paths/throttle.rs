//! A receiver that takes at most so many packets a second: a bound that is known before the search
//! looks for it.

use mpps_io::{Batch, Error, Rx, RxCaps, RxCounters, RxDrop, Wait};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How much unused time is saved up: what a token bucket calls its depth.
const DEPTH: Duration = Duration::from_millis(1);
/// A shorter wait is spun, since a sleep takes longer than it is asked to.
const SLEEP_MIN: Duration = Duration::from_micros(200);

/// A receiver behind a token bucket: what comes meanwhile fills the receiver's own buffer.
#[derive(Debug)]
pub(super) struct Throttled {
    rx: Box<dyn Rx>,
    pps: f64,
    /// When all is paid for that was taken.
    due: Instant,
}

impl Throttled {
    pub(super) fn new(rx: Box<dyn Rx>, pps: f64) -> Self {
        let due = Instant::now();
        Self { rx, pps, due }
    }
}

/// When the bucket is paid for after it gave so many, if it was to be at `due`.
fn paid(due: Instant, now: Instant, datagrams: u64, pps: f64) -> Instant {
    let earliest = now.checked_sub(DEPTH).unwrap_or(now);
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
        let batch = self.rx.recv(wait)?;
        self.due = paid(self.due, Instant::now(), batch.datagrams(), self.pps);
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
    fn a_bucket_gives_its_rate_and_saves_no_more_than_its_depth() {
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        // 1000 a second: each costs a millisecond.
        assert_eq!(paid(after(10), after(10), 3, 1000.0), after(13));
        // Still to be paid for, it goes on from there.
        assert_eq!(paid(after(13), after(10), 2, 1000.0), after(15));
        // Nine idle milliseconds save one.
        assert_eq!(paid(after(13), after(22), 2, 1000.0), after(23));
    }
}
