//! What a load found out.

use super::tally::Tally;
use super::{Failure, Latency, Ledger};
use std::time::Duration;

/// The result of a load, over all threads.
#[derive(Debug, Clone)]
pub struct LoadReport {
    /// The engine's name.
    pub engine: &'static str,
    /// What the engine was granted, in a line.
    pub granted: String,
    /// From the first start to the end of the last thread.
    pub elapsed: Duration,
    /// What became of the connections.
    pub connections: Ledger,
    /// What became of the requests.
    pub requests: Ledger,
    /// Times of connections that were made, and of replies with status 2xx.
    pub latency: Latency,
    /// Whole replies by the first digit of their status; the first is of no class.
    pub statuses: [u64; 6],
    /// Connections that the server closed between two requests, and that were opened anew if there
    /// was more to ask for. They count as completed.
    pub closed_early: u64,
    /// Bytes of requests that the kernel took.
    pub bytes_sent: u64,
    /// Bytes of replies, heads and all.
    pub bytes_received: u64,
    /// Bytes of bodies that came whole.
    pub body_bytes: u64,
    /// System calls of the threads while they ran.
    pub system_calls: u64,
    /// Processor time of the threads while they ran, system time included.
    pub cpu: Duration,
    /// In an open loop: how much after its time the latest request started.
    pub lateness_max: Duration,
    /// In an open loop: requests that were due before the end and never started.
    pub not_started: u64,
    /// In an open loop: whether a request was due while all connections were busy.
    pub was_busy: bool,
    tally: Tally,
}

/// How far a load is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Since the first start.
    pub elapsed: Duration,
    /// Connections that ended as they should.
    pub connections_completed: u64,
    /// Connections that failed.
    pub connections_failed: u64,
    /// Requests that were answered.
    pub requests_completed: u64,
    /// Requests that failed.
    pub requests_failed: u64,
    /// Bytes of replies.
    pub bytes_received: u64,
}

impl LoadReport {
    pub(crate) fn new(
        engine: &'static str,
        granted: String,
        elapsed: Duration,
        tally: Tally,
    ) -> Self {
        Self {
            engine,
            granted,
            elapsed,
            connections: tally.connections.clone(),
            requests: tally.requests.clone(),
            latency: tally.latency.clone(),
            statuses: tally.statuses,
            closed_early: tally.closed_early,
            bytes_sent: tally.bytes_sent,
            bytes_received: tally.bytes_received,
            body_bytes: tally.body_bytes,
            system_calls: tally.system_calls,
            cpu: Duration::from_nanos(tally.cpu_ns),
            lateness_max: Duration::from_nanos(tally.lateness_ns_max),
            not_started: tally.not_started,
            was_busy: tally.was_busy,
            tally,
        }
    }

    /// Completed connections a second.
    pub fn connections_per_second(&self) -> f64 {
        self.per_second(self.connections.completed)
    }

    /// Completed requests a second.
    pub fn requests_per_second(&self) -> f64 {
        self.per_second(self.requests.completed)
    }

    /// Bytes of replies a second, heads and all.
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second(self.bytes_received)
    }

    /// Processor time in microseconds for each completed connection; none without any.
    pub fn cpu_us_per_connection(&self) -> Option<f64> {
        per(self.cpu, self.connections.completed)
    }

    /// Processor time in microseconds for each completed request; none without any.
    pub fn cpu_us_per_request(&self) -> Option<f64> {
        per(self.cpu, self.requests.completed)
    }

    /// What the first failure of a kind was, where there is more to say than its name.
    pub fn example(&self, failure: Failure) -> Option<&str> {
        self.tally.example(failure)
    }

    /// True if nothing failed and both accounts add up.
    pub fn is_clean(&self) -> bool {
        let ledgers = [&self.connections, &self.requests];
        ledgers
            .iter()
            .all(|ledger| ledger.failed_total() == 0 && ledger.unaccounted() == 0)
    }

    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            count as f64 / seconds
        } else {
            0.0
        }
    }
}

fn per(time: Duration, count: u64) -> Option<f64> {
    (count > 0).then(|| time.as_secs_f64() * 1e6 / count as f64)
}
