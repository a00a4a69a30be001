//! What the experiments with TCP connections found, as it is kept in the file of
//! `mpps lab tcp --json`.
//!
//! The published schema is `docs/schema/lab_tcp.schema.json`; a test holds the two together.

use mpps_host::{Fingerprint, Witness};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The `schema` of the result files that this version writes and reads.
pub const TCP_LAB_SCHEMA: &str = "mpps.lab_tcp.v1";

/// One run of the experiments on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TcpLabResult {
    /// [`TCP_LAB_SCHEMA`].
    pub schema: String,
    /// The machine and its settings.
    pub fingerprint: Fingerprint,
    /// The full command line.
    pub command: String,
    /// The version of mpps.
    pub version: String,
    /// When the run began, RFC 3339, UTC.
    pub started: String,
    /// True for `--quick`: too short to be compared with another run.
    pub quick: bool,
    /// False if Ctrl-C ended the run before its last cell.
    pub complete: bool,
    /// Who ran on which CPU, in one line.
    pub placement: String,
    /// What the load does, and who closes, in one line.
    pub load: String,
    /// How the CPU time per connection was measured.
    pub cpu_method: String,
    /// What a reader has to know of all figures, and what could not be had, a sentence each.
    pub notes: Vec<String>,
    /// The servers, with their versions and what was changed of how they are packaged.
    pub servers: Vec<ServerFacts>,
    /// The cells in the order of the experiments.
    pub cells: Vec<TcpCell>,
}

/// One server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// `mpps-epoll`, `mpps`, `mpps-files`, `lighttpd`, `nginx`, `apache-event`, `apache-prefork`.
    pub name: String,
    /// What it says of its version.
    pub version: Option<String>,
    /// How it is set up, and what differs from its package, a sentence each.
    pub set_up: Vec<String>,
    /// Why it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// One server in one state under one load, measured or skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpCell {
    /// The experiment of the paper: 1, 2 or 3.
    pub experiment: u8,
    /// The server's name.
    pub server: String,
    /// The step: `base`, `affinity`, `moderation`, `buffers`, `fds`, `events`; `skb-defer` and
    /// `no-skb-defer` in experiment 2; in experiment 1 the setting of moderation.
    pub step: String,
    /// Body of each reply in bytes.
    pub body_bytes: usize,
    /// The switches that were on, in the paper's order.
    pub switches: Vec<String>,
    /// The server's queue was polled once in so many microseconds; absent where every packet woke
    /// its thread.
    pub moderation_us: Option<f64>,
    /// `net.core.skb_defer_max` of the machine while the cell ran, which is what it is about;
    /// absent in all others, which have it as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skb_defer_max: Option<u32>,
    /// What the paper says of this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// Why the cell did not run. A skipped cell has no ledger and no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The figures, if it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<TcpFigures>,
    /// Where every connection of all repeats went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<ConnectionLedger>,
    /// What a reader has to know of this cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The figures of a cell: medians over the repeats, and the repeats themselves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpFigures {
    /// Connections per second that got their whole reply.
    pub cps_median: f64,
    /// The same of each repeat.
    pub cps_samples: Vec<f64>,
    /// Body bits per second, in millions.
    pub throughput_mbit_median: f64,
    /// The server's CPU time per connection, in microseconds: its threads and its queue together.
    pub cpu_us_per_connection_median: f64,
    /// The same of each repeat.
    pub cpu_us_per_connection_samples: Vec<f64>,
    /// The share of the server's own threads in it, in microseconds.
    pub own_us_per_connection_median: f64,
    /// The share of the receive queue's kernel thread and of `ksoftirqd`, in microseconds.
    pub softirq_us_per_connection_median: f64,
    /// Context switches of the server's threads per second, voluntary and not.
    pub context_switches_per_second_median: f64,
    /// Time to the last byte of a reply, from before its connection was begun, in microseconds:
    /// median of the repeats' medians.
    pub latency_p50_us_median: Option<f64>,
    /// The same of the slowest hundredth.
    pub latency_p99_us_median: Option<f64>,
    /// Busy share of the server's CPU, 0 to 1. Tick based: good to a few per cent.
    pub server_cpu_busy_median: f64,
    /// Busy share of the load's CPU, 0 to 1.
    pub load_cpu_busy_median: f64,
    /// What was full: the server's CPU, the load's, or neither.
    pub limited_by: String,
    /// Share of the packets to the server that its queue's thread took from the ring, 0 to 1; the
    /// rest came by the backlog of the CPU that sent them.
    pub server_ring_share: Option<f64>,
    /// The same of the packets to the load.
    pub load_ring_share: Option<f64>,
}

/// The kind of those that were in flight when the load ended.
pub(crate) const ABORTED_AT_END: &str = "aborted_at_end";

/// Where every connection went.
///
/// ```text
/// started = completed + all failures + UNACCOUNTED
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionLedger {
    /// Connections that the load began.
    pub started: u64,
    /// Those that got their whole reply.
    pub completed: u64,
    /// The others by kind, disjoint; kinds that did not happen are left out.
    pub failures: Vec<Failure>,
    /// `started - completed - failures`.
    pub unaccounted: i64,
    /// The kernel's counts of the same, agreeing or not.
    pub witnesses: Vec<Witness>,
    /// What else the two kernels counted that makes a connection slow or fail, by host and name.
    pub kernel: BTreeMap<String, i64>,
}

/// Connections that failed in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// `refused`, `reset`, `timed_out` and so on, as `mpps load` calls them.
    pub kind: String,
    /// How many.
    pub count: u64,
}

impl ConnectionLedger {
    /// Makes the ledger of these counts; what is missing is unaccounted for.
    pub fn new(started: u64, completed: u64, failures: Vec<Failure>) -> Self {
        let mut ledger = Self {
            started,
            completed,
            failures,
            ..Self::default()
        };
        ledger.unaccounted = ledger.remainder();
        ledger
    }

    /// What the terms leave, in a sum that no count can break.
    fn remainder(&self) -> i64 {
        let failed: i128 = self.failures.iter().map(|one| i128::from(one.count)).sum();
        let rest = i128::from(self.started) - i128::from(self.completed) - failed;
        rest.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// True if the remainder is that of the terms.
    pub fn adds_up(&self) -> bool {
        self.unaccounted == self.remainder()
    }

    /// All failures together.
    pub fn failed(&self) -> u64 {
        let counts = self.failures.iter().map(|failure| failure.count);
        counts.fold(0, u64::saturating_add)
    }

    /// Failures, without the connections that the end of the load cut off.
    pub fn failed_in_use(&self) -> u64 {
        let failures = self.failures.iter();
        let in_use = failures.filter(|failure| failure.kind != ABORTED_AT_END);
        in_use.fold(0, |sum, failure| sum.saturating_add(failure.count))
    }

    /// Adds another run's counts to this one's.
    pub fn add(&mut self, other: &Self) {
        self.started = self.started.saturating_add(other.started);
        self.completed = self.completed.saturating_add(other.completed);
        self.unaccounted = self.unaccounted.saturating_add(other.unaccounted);
        for failure in &other.failures {
            match self
                .failures
                .iter_mut()
                .find(|own| own.kind == failure.kind)
            {
                Some(own) => own.count = own.count.saturating_add(failure.count),
                None => self.failures.push(failure.clone()),
            }
        }
        for witness in &other.witnesses {
            let same =
                |own: &&mut Witness| own.about == witness.about && own.source == witness.source;
            match self.witnesses.iter_mut().find(same) {
                Some(own) => {
                    own.ledger = own.ledger.saturating_add(witness.ledger);
                    own.witness = own.witness.saturating_add(witness.witness);
                }
                None => self.witnesses.push(witness.clone()),
            }
        }
        for (name, count) in &other.kernel {
            let own = self.kernel.entry(name.clone()).or_default();
            *own = own.saturating_add(*count);
        }
    }
}

#[derive(Debug, Deserialize)]
struct SchemaOnly {
    schema: String,
}

/// Why a file is not a result of `mpps lab tcp`.
#[derive(Debug, thiserror::Error)]
pub enum TcpLabParseError {
    /// Not JSON, cut short, or JSON of another shape.
    #[error("not a result of `mpps lab tcp`: {0}")]
    Shape(#[from] serde_json::Error),
    /// A result, but of another schema.
    #[error("schema `{found}`, but this version of mpps reads `{TCP_LAB_SCHEMA}`")]
    Schema {
        /// What the file says it is.
        found: String,
    },
    /// A ledger whose terms do not give the remainder it claims.
    #[error("a ledger of {server} does not add up: the file was changed after it was written")]
    Ledger {
        /// The server.
        server: String,
    },
}

impl TcpLabResult {
    /// Reads a result file's text.
    ///
    /// # Errors
    /// If the text is cut short, is of another shape or schema, or has a ledger that does not add up.
    pub fn parse(text: &str) -> Result<Self, TcpLabParseError> {
        let SchemaOnly { schema } = serde_json::from_str(text)?;
        if schema != TCP_LAB_SCHEMA {
            return Err(TcpLabParseError::Schema { found: schema });
        }
        let result: Self = serde_json::from_str(text)?;
        for cell in &result.cells {
            if cell.ledger.as_ref().is_some_and(|ledger| !ledger.adds_up()) {
                let server = cell.server.clone();
                return Err(TcpLabParseError::Ledger { server });
            }
        }
        Ok(result)
    }

    /// True if no connection is unaccounted for.
    pub fn balances(&self) -> bool {
        let mut ledgers = self.cells.iter().filter_map(|cell| cell.ledger.as_ref());
        ledgers.all(|ledger| ledger.unaccounted == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(counts: &[(&str, u64)]) -> Vec<Failure> {
        let one = |(kind, count): &(&str, u64)| Failure {
            kind: (*kind).to_owned(),
            count: *count,
        };
        counts.iter().map(one).collect()
    }

    #[test]
    fn what_no_term_explains_is_unaccounted_for() {
        let ledger = ConnectionLedger::new(10, 6, failures(&[("refused", 2), ("reset", 1)]));
        assert_eq!((ledger.unaccounted, ledger.failed()), (1, 3));
        assert!(ledger.adds_up());
        let twice = ConnectionLedger::new(1, 1, failures(&[("reset", 1)]));
        assert_eq!(twice.unaccounted, -1);
    }

    #[test]
    fn repeats_add_up_by_kind_and_counter() {
        let mut sum = ConnectionLedger::new(10, 9, failures(&[("reset", 1)]));
        sum.kernel
            .insert("receiver TcpExt.ListenDrops".to_owned(), 1);
        let mut other = ConnectionLedger::new(5, 2, failures(&[("reset", 1), ("refused", 2)]));
        other
            .kernel
            .insert("receiver TcpExt.ListenDrops".to_owned(), 2);
        sum.add(&other);
        assert_eq!((sum.started, sum.completed, sum.failed()), (15, 11, 4));
        assert!(sum.adds_up() && sum.unaccounted == 0);
        assert_eq!(sum.kernel["receiver TcpExt.ListenDrops"], 3);
    }

    #[test]
    fn counts_of_any_size_are_added_up() {
        let huge = ConnectionLedger::new(0, u64::MAX, failures(&[("reset", u64::MAX)]));
        assert_eq!(huge.unaccounted, i64::MIN);
        let mut sum = huge.clone();
        sum.add(&huge);
        assert_eq!(sum.completed, u64::MAX);
    }
}
