//! The results of the TCP connection experiments, as in the file of `mpps lab tcp --json`.

use crate::measure::envelope::{Envelope, EnvelopeBody};
use mpps_host::Witness;
use mpps_http::{Failure, LoadAccount, Switch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run of the experiments on one machine.
pub type TcpLabResult = Envelope<TcpLabBody>;

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpLabBody {
    /// The roles of the CPUs, in one line.
    pub placement: String,
    /// The load, and the side that closes, in one line.
    pub load: String,
    /// How the CPU time per connection was measured.
    pub cpu_method: String,
    /// Notes on all figures and on missing parts, one sentence each.
    pub notes: Vec<String>,
    /// The servers, with their versions and what was changed of how they are packaged.
    pub servers: Vec<ServerFacts>,
    /// The server's CPUs, each with a worker and a receive queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_cpus: Vec<usize>,
    /// The load's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_cpus: Vec<usize>,
    /// Bits per second that each direction of the link carried at most, Ethernet headers included;
    /// absent if it was not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub link_rate_bits: Option<u64>,
    /// The cells in the order of the experiments.
    pub cells: Vec<TcpCell>,
}

/// One server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerFacts {
    /// Its name.
    #[schemars(extend("enum" = ["mpps-epoll", "mpps", "mpps-files", "lighttpd", "nginx", "apache-event", "apache-prefork"]))]
    pub name: String,
    /// The version that it reports.
    pub version: Option<String>,
    /// How it is set up, and what differs from its package, a sentence each.
    #[schemars(length(min = 1))]
    pub set_up: Vec<String>,
    /// Why it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// One server in one state under one load, measured or skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"required": ["skipped"]},
    "then" = {"properties": {"figures": false, "ledger": false}},
    "else" = {"required": ["figures", "ledger"]}
))]
pub struct TcpCell {
    /// The experiment of the paper.
    #[schemars(extend("enum" = [1, 2, 3]))]
    pub experiment: u8,
    /// The server's name.
    #[schemars(extend("enum" = ["mpps-epoll", "mpps", "mpps-files", "lighttpd", "nginx", "apache-event", "apache-prefork"]))]
    pub server: String,
    /// `base`, `affinity`, `moderation`, `buffers`, `fds`, `events`; `all` where there is one state
    /// only; `skb-defer` and `no-skb-defer` in experiment 2, with all switches on; in experiment 1
    /// the setting of moderation: `1000 per s`, `off`, `adaptive`, with all other switches on at
    /// full load; followed by `alone` with all others off, and by `at 10 %` at a tenth of that load.
    pub step: String,
    /// Body of each reply in bytes.
    #[schemars(range(min = 1))]
    pub body_bytes: usize,
    /// The switches that were on, in the paper's order.
    pub switches: Vec<Switch>,
    /// The server's queue was polled once in this many microseconds. Null if every packet woke its
    /// thread, or if the time was adaptive.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub moderation_us: Option<f64>,
    /// A thread of the lab set that time, by the traffic.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adaptive: bool,
    /// Requests were begun at a steady rate, this share of what the server did at full load; absent
    /// at full load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub load_share: Option<f64>,
    /// `net.core.skb_defer_max` of the machine while the cell ran, which is what it is about;
    /// absent in all others, which have it as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skb_defer_max: Option<u32>,
    /// The paper's result for this step.
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
    /// Notes on this cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl TcpCell {
    /// Whether it is of the first experiment as the paper had it: all other techniques on, full load.
    pub(crate) fn is_sweep(&self) -> bool {
        self.experiment == 1 && self.load_share.is_none() && self.has_others()
    }

    /// Whether a technique other than moderation is on.
    pub(crate) fn has_others(&self) -> bool {
        let mut switches = self.switches.iter();
        switches.any(|switch| *switch != Switch::Moderation)
    }

    /// Its name for `--only`: `3/nginx/affinity/1k`.
    pub(crate) fn key(&self) -> String {
        let body = body(self.body_bytes);
        format!("{}/{}/{}/{body}", self.experiment, self.server, self.step)
    }
}

/// A size as the paper and the flags write it: `16k`.
pub(crate) fn body(bytes: usize) -> String {
    match bytes.is_multiple_of(1024) {
        true => format!("{}k", bytes / 1024),
        false => bytes.to_string(),
    }
}

/// The figures of a cell: medians over the repeats, and the repeats themselves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpFigures {
    /// Connections per second that got their whole reply.
    pub cps_median: f64,
    /// The same of each repeat.
    #[schemars(length(min = 1))]
    pub cps_samples: Vec<f64>,
    /// Body bits per second, in millions.
    pub throughput_mbit_median: f64,
    /// The server's CPU time per connection, in microseconds: its threads and its queue together.
    pub cpu_us_per_connection_median: f64,
    /// The same of each repeat.
    #[schemars(length(min = 1))]
    pub cpu_us_per_connection_samples: Vec<f64>,
    /// The share of the server's own threads in it, in microseconds.
    pub own_us_per_connection_median: f64,
    /// The share of the receive queues' kernel threads and of `ksoftirqd`, in microseconds.
    pub softirq_us_per_connection_median: f64,
    /// Context switches of the server's threads per second, voluntary and not.
    pub context_switches_per_second_median: f64,
    /// Time to the last byte of a reply, from before its connection was begun, in microseconds:
    /// median of the repeats' medians.
    pub latency_p50_us_median: Option<f64>,
    /// The same of the slowest hundredth.
    pub latency_p99_us_median: Option<f64>,
    /// The median of each repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_p50_us_samples: Vec<f64>,
    /// Busy share of the server's CPUs, 0 to 1. Tick based: good to a few per cent.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub server_cpu_busy_median: f64,
    /// Busy share of the load's CPUs, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub load_cpu_busy_median: f64,
    /// The bottleneck: the link, the server's CPUs, the load's, or none of them.
    pub limited_by: String,
    /// Share of the packets to the server that its queues' threads took from the ring, 0 to 1; the
    /// rest came by the backlog of the CPU that sent them.
    pub server_ring_share: Option<f64>,
    /// The same of the packets to the load.
    pub load_ring_share: Option<f64>,
    /// Share of `link_rate_bits` that the server's end of the link sent; a burst may make it more than 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_share: Option<f64>,
}

/// Where every connection of a cell went, with further counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionLedger {
    /// The account that `mpps load` kept, of all repeats.
    #[serde(flatten)]
    pub account: LoadAccount,
    /// The same of each thread of the load: their sum is the account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadAccount>,
    /// The first failure of each kind: the name of its error, or the words of the side that refused
    /// it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = {"enum": Failure::ALL}))]
    pub examples: BTreeMap<Failure, String>,
    /// The kernel's counts of the same, agreeing or not.
    pub witnesses: Vec<Witness>,
    /// Further counts of the two kernels that make a connection slow or fail, by host and name.
    pub kernel: BTreeMap<String, i64>,
}

impl ConnectionLedger {
    /// True if no connection is unaccounted for, and no count of a kernel is another one.
    pub fn balances(&self) -> bool {
        self.account.unaccounted == 0 && self.witnesses.iter().all(Witness::agrees)
    }

    /// True if the loads' accounts, if there are any, give the sum.
    fn is_whole(&self) -> bool {
        self.account.is_sum_of(&self.loads)
    }

    /// Adds another run's counts to this one's.
    pub fn add(&mut self, other: &Self) {
        self.account.add(&other.account);
        self.loads.resize(
            self.loads.len().max(other.loads.len()),
            LoadAccount::default(),
        );
        for (own, other) in self.loads.iter_mut().zip(&other.loads) {
            own.add(other);
        }
        for (failure, example) in &other.examples {
            let kept = self.examples.entry(*failure);
            kept.or_insert_with(|| example.clone());
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

impl EnvelopeBody for TcpLabBody {
    const SCHEMA: &'static str = "mpps.lab_tcp.v2";
    const COMMAND: &'static str = "mpps lab tcp";

    fn unsound(&self) -> Option<String> {
        let is_unsound = |cell: &&TcpCell| {
            let ledger = cell.ledger.as_ref();
            ledger.is_some_and(|ledger| !ledger.account.adds_up() || !ledger.is_whole())
        };
        Some(self.cells.iter().find(is_unsound)?.server.clone())
    }
}

impl TcpLabBody {
    /// True if every ledger does, see [`ConnectionLedger::balances`].
    pub fn balances(&self) -> bool {
        let mut ledgers = self.cells.iter().filter_map(|cell| cell.ledger.as_ref());
        ledgers.all(ConnectionLedger::balances)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(started: u64, completed: u64, failed: &[(Failure, u64)]) -> ConnectionLedger {
        let account = LoadAccount {
            started,
            completed,
            failed: failed.iter().copied().collect(),
            ..LoadAccount::default()
        };
        ConnectionLedger {
            account: account.close(),
            ..ConnectionLedger::default()
        }
    }

    #[test]
    fn a_count_of_a_kernel_that_is_another_one_is_no_balance() {
        let mut ledger = ledger(256, 205, &[(Failure::Other, 51)]);
        assert!(ledger.balances());
        for (count, balances) in [(256, true), (205, false)] {
            ledger.witnesses = vec![Witness {
                about: "connections begun".to_owned(),
                source: "load's host Tcp.ActiveOpens".to_owned(),
                ledger: 256,
                witness: count,
            }];
            assert_eq!(ledger.balances(), balances);
        }
        assert_eq!(ledger.account.unaccounted, 0);
    }

    #[test]
    fn repeats_add_up_by_kind_and_counter() {
        let counter = "receiver TcpExt.ListenDrops".to_owned();
        let mut sum = ledger(10, 9, &[(Failure::Reset, 1)]);
        sum.kernel.insert(counter.clone(), 1);
        let mut other = ledger(5, 2, &[(Failure::Reset, 1), (Failure::Refused, 2)]);
        other.kernel.insert(counter.clone(), 2);
        let example = |text: &str| [(Failure::Reset, text.to_owned())].into();
        (sum.examples, other.examples) = (example("the first"), example("another"));
        sum.add(&other);
        let account = &sum.account;
        assert_eq!((account.started, account.completed), (15, 11));
        assert_eq!((account.failed_total(), account.unaccounted), (4, 0));
        assert_eq!(account.remainder(), 0);
        assert_eq!(sum.kernel[&counter], 3);
        assert_eq!(sum.examples[&Failure::Reset], "the first");
    }
}
