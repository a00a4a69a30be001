//! The counts of a load.

use super::latency::Latencies;
use super::{Failure, LoadAccount};
use std::collections::BTreeMap;

/// Counts of one thread, or of several added up.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadTally {
    /// The fate of the connections.
    pub(crate) connections: LoadAccount,
    /// The fate of the requests.
    pub(crate) requests: LoadAccount,
    /// Times of connections that were made, and of replies with status 2xx.
    pub(crate) latency: Latencies,
    /// Whole replies by the first digit of their status; the first is of no class.
    pub(crate) statuses: [u64; 6],
    /// Connections that the server closed between two requests, and that were opened anew if there
    /// was more to ask for. They count as completed.
    pub(crate) closed_early: u64,
    /// Bytes of requests that the kernel took.
    pub(crate) bytes_sent: u64,
    /// Bytes of replies, heads and all.
    pub(crate) bytes_received: u64,
    /// Bytes of bodies that came whole.
    pub(crate) body_bytes: u64,
    /// System calls of the threads while they ran.
    pub(crate) system_calls: u64,
    /// Processor time of the threads while they ran, system time included, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// In an open loop: how much after its time the latest request started, in nanoseconds.
    pub(crate) lateness_ns_max: u64,
    /// In an open loop: requests that were due before the end and never started.
    pub(crate) not_started: u64,
    /// In an open loop: whether a request was due while no connection was free or idle.
    pub(crate) was_busy: bool,
    /// How long the request had waited that was cut off at the end and had waited longest, in
    /// nanoseconds.
    pub(crate) cut_off_ns_max: Option<u64>,
    /// For how long the thread that had a reply last had none at the end, in nanoseconds.
    pub(crate) silent_ns: Option<u64>,
    /// Connections that were cut off at the end and never had a byte of a reply.
    pub(crate) never_answered: u64,
    /// Replies whose length only the server's close showed, and the bytes of the shortest and the
    /// longest.
    pub(crate) unsized_replies: u64,
    pub(crate) unsized_bytes: Option<(u64, u64)>,
    /// The first failure of a kind, if a report has more to say than its name.
    pub(crate) examples: BTreeMap<Failure, String>,
}

impl LoadTally {
    /// Keeps the first example of a failure.
    pub(crate) fn remember(&mut self, failure: Failure, example: impl FnOnce() -> String) {
        self.examples.entry(failure).or_insert_with(example);
    }

    /// Keeps the least and the most bytes.
    pub(crate) fn note_unsized(&mut self, least: u64, most: u64) {
        let (shortest, longest) = self.unsized_bytes.unwrap_or((least, most));
        self.unsized_bytes = Some((shortest.min(least), longest.max(most)));
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
        self.cut_off_ns_max = self.cut_off_ns_max.max(other.cut_off_ns_max);
        let silent_ns = self.silent_ns.into_iter().chain(other.silent_ns);
        self.silent_ns = silent_ns.min();
        self.never_answered += other.never_answered;
        self.unsized_replies += other.unsized_replies;
        if let Some((least, most)) = other.unsized_bytes {
            self.note_unsized(least, most);
        }
        for (failure, example) in &other.examples {
            let kept = self.examples.entry(*failure);
            kept.or_insert_with(|| example.clone());
        }
    }
}
