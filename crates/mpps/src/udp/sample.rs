//! The rate of a run, defined once.

use crate::measure::samples::per_second;
use mpps_io::{RxReport, TxReport};

/// The definition of a rate, as result files give it in `rate_definition`.
pub const RATE_DEFINITION: &str = "datagrams received until the receivers were stopped, divided by \
     the time from the first to the last of them over all receivers of the run; a rule that drops has \
     no receivers: the datagrams that it counted, divided by the time from the first send to the last \
     over all senders";

/// The time from the first datagram to the last, over all threads of one end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    first_ns: u64,
    last_ns: u64,
}

/// A thread that moved datagrams from one time to another (`CLOCK_MONOTONIC`, nanoseconds).
pub(crate) trait Timed {
    /// Datagrams received before the stop, or handed to the kernel.
    fn datagrams(&self) -> u64;
    /// When the first and the last of them were.
    fn times_ns(&self) -> (u64, u64);
}

impl Timed for RxReport {
    fn datagrams(&self) -> u64 {
        self.counters.datagrams.saturating_sub(self.queued)
    }

    fn times_ns(&self) -> (u64, u64) {
        (self.first_ns, self.last_ns)
    }
}

impl Timed for TxReport {
    fn datagrams(&self) -> u64 {
        self.offered()
    }

    fn times_ns(&self) -> (u64, u64) {
        (self.first_ns, self.last_ns)
    }
}

impl Span {
    /// Of these threads; those that moved nothing have no times.
    pub(crate) fn of(threads: &[impl Timed]) -> Self {
        let active = threads.iter().filter(|thread| thread.datagrams() > 0);
        let times = active.map(Timed::times_ns);
        let (first_ns, last_ns) = times.fold((u64::MAX, 0), |sum, (first, last)| {
            (sum.0.min(first), sum.1.max(last))
        });
        Self { first_ns, last_ns }
    }

    /// Its length; zero for no datagram or a single one.
    pub(crate) fn seconds(self) -> f64 {
        self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9
    }

    /// So many datagrams in this time, in million per second.
    pub(crate) fn mpps(self, datagrams: u64) -> f64 {
        per_second(datagrams, self.seconds()) / 1e6
    }
}

/// The rate of these threads together, in million datagrams per second ([`RATE_DEFINITION`]).
pub(crate) fn mpps<T: Timed>(threads: &[T]) -> f64 {
    Span::of(threads).mpps(threads.iter().map(Timed::datagrams).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(datagrams: u64, first_ns: u64, last_ns: u64) -> TxReport {
        TxReport {
            accepted: datagrams,
            first_ns,
            last_ns,
            ..TxReport::default()
        }
    }

    #[test]
    fn a_rate_is_of_all_threads_from_the_first_datagram_to_the_last() {
        let threads = [
            thread(3_000, 1_000_000, 3_000_000),
            thread(1_000, 2_000_000, 5_000_000),
        ];
        assert_eq!(Span::of(&threads).seconds(), 0.004);
        assert_eq!(mpps(&threads), 1.0);
        assert_eq!(mpps(&threads[..1]), 1.5);
    }

    #[test]
    fn a_receiver_counts_what_came() {
        let mut report = RxReport {
            first_ns: 1_000_000,
            last_ns: 3_000_000,
            ..RxReport::default()
        };
        (report.counters.datagrams, report.queued) = (3_007, 7);
        assert_eq!(mpps(&[report, RxReport::default()]), 1.5);
    }

    #[test]
    fn a_thread_that_got_nothing_has_no_time() {
        let threads = [thread(0, 0, 9_000_000), thread(1_000, 2_000_000, 3_000_000)];
        assert_eq!(mpps(&threads), 1.0);
    }

    #[test]
    fn nothing_and_one_datagram_have_no_rate() {
        assert_eq!(mpps::<TxReport>(&[]), 0.0);
        assert_eq!(mpps(&[thread(1, 7, 7)]), 0.0);
        assert_eq!(Span::of(&[thread(0, 5, 9)]).seconds(), 0.0);
    }
}
