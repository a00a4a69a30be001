//! What one thread has counted.

use super::{Failure, Latency, Ledger};

/// Counts of one thread, or of several added up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) connections: Ledger,
    pub(crate) requests: Ledger,
    pub(crate) latency: Latency,
    /// Whole replies by the first digit of their status.
    pub(crate) statuses: [u64; 6],
    /// Connections that the server closed between two requests.
    pub(crate) closed_early: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) body_bytes: u64,
    pub(crate) system_calls: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) lateness_ns_max: u64,
    pub(crate) not_started: u64,
    /// True if a request was due while no connection was free or idle.
    pub(crate) was_busy: bool,
    examples: [Option<String>; Failure::ALL.len()],
}

impl Tally {
    /// Keeps the first example of a failure.
    pub(crate) fn remember(&mut self, failure: Failure, example: impl FnOnce() -> String) {
        let kept = &mut self.examples[failure as usize];
        if kept.is_none() {
            *kept = Some(example());
        }
    }

    /// What the first failure of a kind was, where there is more to say than its name.
    pub(crate) fn example(&self, failure: Failure) -> Option<&str> {
        let example = self.examples[failure as usize].as_deref();
        example.filter(|example| !example.is_empty())
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.connections.add(&other.connections);
        self.requests.add(&other.requests);
        self.latency.add(&other.latency);
        for (sum, more) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += more;
        }
        self.closed_early += other.closed_early;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.body_bytes += other.body_bytes;
        self.system_calls += other.system_calls;
        self.cpu_ns += other.cpu_ns;
        self.lateness_ns_max = self.lateness_ns_max.max(other.lateness_ns_max);
        self.not_started += other.not_started;
        self.was_busy |= other.was_busy;
        for (kept, more) in self.examples.iter_mut().zip(&other.examples) {
            if kept.is_none() {
                kept.clone_from(more);
            }
        }
    }
}
