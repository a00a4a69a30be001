//! What a comparison of receive paths found, as it is kept in the file of `mpps bench --json`.
//!
//! The published schema is `docs/schema/bench.schema.json`; a test holds the two together.

use mpps_host::{Fingerprint, Ledger};
use serde::{Deserialize, Serialize};

/// The `schema` of the result files that this version writes and reads.
pub const BENCH_SCHEMA: &str = "mpps.bench.v1";

/// One comparison of receive paths on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`BENCH_SCHEMA`].
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
    /// False if Ctrl-C ended the run before its last row.
    pub complete: bool,
    /// Who ran on which CPU, in one line.
    pub placement: String,
    /// What sent, why it was chosen, and what it sends, in one line.
    pub sender: String,
    /// Flows, by source port.
    pub flows: usize,
    /// UDP payload of each datagram in bytes.
    pub payload_bytes: usize,
    /// What could not be had on this machine, and why.
    pub notes: Vec<String>,
    /// The paths, fastest first, those that could not run last.
    pub rows: Vec<BenchRow>,
    /// What each path still delivers when more is offered than it can take; empty without
    /// `--overload`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overload: Vec<OverloadCurve>,
    /// What early drops make of traffic that is spread over more and more queues; empty without
    /// `--spread`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<SpreadRow>,
    /// What follows from these figures, a sentence each: which path to choose for which need.
    pub advice: Vec<String>,
}

/// One receive path, measured or skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    /// `recv`, `recvmmsg`, `io_uring`, `packet_mmap`, `af_xdp`, `dpdk`, `pcap`, `xdp_drop`,
    /// `nft_ingress_drop`, `nft_raw_drop`, `iptables_raw_drop`.
    pub path: String,
    /// Which way of the path was asked for, in few words: `spin`; empty for the plain one.
    pub variant: String,
    /// What the kernel granted: `native XDP, copy`; empty for a path that did not run.
    pub mode: String,
    /// Where NAPI ran: `generator's CPU 0`, `application's CPU 1`.
    pub napi: String,
    /// True if the kernel thread, or the soft interrupt, of the receive queue has the application's
    /// CPU; false if the application has its CPU to itself.
    pub shares_cpu: bool,
    /// True for the rows that the others are measured against: recv, recvmmsg and XDP drop.
    pub reference: bool,
    /// Receive queues that carried the traffic.
    pub queues: u16,
    /// Why the row did not run. A skipped row has no ledger and no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Median of `mpps_samples`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpps_median: Option<f64>,
    /// Received (or, of a rule that drops, dropped) rate of each repeat in million datagrams per
    /// second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpps_samples: Vec<f64>,
    /// Median of the offered rate over the same repeats, in million datagrams per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_mpps_median: Option<f64>,
    /// Delivered datagrams over offered ones, all repeats together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_ratio: Option<f64>,
    /// CPU time per datagram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_packet: Option<CpuCost>,
    /// Datagrams per receive that brought any; none for a rule, which nobody calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_call: Option<f64>,
    /// System calls of the receiving program per datagram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_packet: Option<f64>,
    /// Where every packet of the last repeat went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// The ledgers of the repeats, in the order of `mpps_samples`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sample_ledgers: Vec<Ledger>,
    /// What a reader has to know of this row on this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// CPU time per datagram, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuCost {
    /// Of the receiving program, per datagram delivered; a program that spins uses all of its CPU.
    pub app: Option<f64>,
    /// Of the kernel thread that polls the receive queue, per packet that it took from the ring.
    pub softirq: Option<f64>,
    /// How it was measured.
    pub method: String,
}

/// What one path delivers as more and more is offered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverloadCurve {
    /// The path.
    pub path: String,
    /// Which way of it was asked for; empty for the plain one.
    pub variant: String,
    /// What the kernel granted.
    pub mode: String,
    /// Where NAPI ran.
    pub napi: String,
    /// The highest goodput of the curve, in million datagrams per second.
    pub peak_mpps: f64,
    /// Goodput at the highest load over the peak: 1 is no livelock at all.
    pub kept: f64,
    /// The points, by load.
    pub points: Vec<OverloadPoint>,
    /// What a reader has to know of this curve: a load that could not be offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One point of an [`OverloadCurve`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverloadPoint {
    /// Load asked for, in multiples of the path's peak; of an unpaced point the load that it was.
    pub load: f64,
    /// True if the sender was not paced: as fast as it goes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpaced: bool,
    /// Offered rate in million datagrams per second.
    pub offered_mpps: f64,
    /// Delivered rate in million datagrams per second.
    pub goodput_mpps: f64,
    /// Where every packet went.
    pub ledger: Ledger,
}

/// An early drop whose traffic comes by so many queues, measured or skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SpreadRow {
    /// `xdp_drop`, `nft_ingress_drop`, `nft_raw_drop`, `iptables_raw_drop`.
    pub path: String,
    /// Which way of it; empty for the plain one.
    pub variant: String,
    /// Where and how it drops; empty for a row that did not run.
    pub mode: String,
    /// What sent, and on which CPUs. Rows of one sender compare with each other.
    pub sender: String,
    /// Receive queues that the traffic was sent to.
    pub queues: u16,
    /// The CPU whose kernel thread served each queue, in the order of the queues; empty where the
    /// scheduler chose, and in a row that did not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_cpus: Vec<usize>,
    /// Why the row did not run. A skipped row has no ledgers and no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Median of `mpps_samples`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpps_median: Option<f64>,
    /// Packets dropped by the rule, over all queues, of each repeat, in million per second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpps_samples: Vec<f64>,
    /// Median of the offered rate over the same repeats, in million datagrams per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_mpps_median: Option<f64>,
    /// Dropped by the rule over offered, all repeats together. Near 1 the sender was the slower
    /// one, and the rate is the sender's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_ratio: Option<f64>,
    /// Packets that each queue's thread took from its ring, in million per second, medians, in the
    /// order of the queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_mpps: Vec<f64>,
    /// CPU time of the queues' kernel threads per packet, in nanoseconds, median; none where they
    /// have no threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_ns_per_packet: Option<f64>,
    /// Packets per CPU time of these threads: what one CPU handles that does nothing else, in
    /// million per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpps_per_cpu: Option<f64>,
    /// What the article of 2015 measured for the same, on its network card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub article_mpps_per_cpu: Option<f64>,
    /// Where every packet of each repeat went, in the order of `mpps_samples`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledgers: Vec<Ledger>,
}

#[derive(Debug, Deserialize)]
struct SchemaOnly {
    schema: String,
}

/// Why a file is not a result of `mpps bench`.
#[derive(Debug, thiserror::Error)]
pub enum BenchParseError {
    /// Not JSON, cut short, or JSON of another shape.
    #[error("not a result of `mpps bench`: {0}")]
    Shape(#[from] serde_json::Error),
    /// A result, but of another schema.
    #[error("schema `{found}`, but this version of mpps reads `{BENCH_SCHEMA}`")]
    Schema {
        /// What the file says it is.
        found: String,
    },
    /// A ledger whose terms do not give the remainder it claims.
    #[error("a ledger of {path} does not add up: the file was changed after it was written")]
    Ledger {
        /// The path.
        path: String,
    },
}

impl BenchResult {
    /// Reads a result file's text.
    ///
    /// # Errors
    /// If the text is cut short, is of another shape or schema, or has a ledger that does not add up.
    pub fn parse(text: &str) -> Result<Self, BenchParseError> {
        let SchemaOnly { schema } = serde_json::from_str(text)?;
        if schema != BENCH_SCHEMA {
            return Err(BenchParseError::Schema { found: schema });
        }
        let result: Self = serde_json::from_str(text)?;
        let rows = result.rows.iter().map(|row| {
            let ledgers: Vec<&Ledger> = row.ledger.iter().chain(&row.sample_ledgers).collect();
            (&row.path, ledgers)
        });
        let curves = result.overload.iter().map(|curve| {
            let ledgers = curve.points.iter().map(|point| &point.ledger).collect();
            (&curve.path, ledgers)
        });
        let spread = result
            .spread
            .iter()
            .map(|row| (&row.path, row.ledgers.iter().collect()));
        for (path, ledgers) in rows.chain(curves).chain(spread) {
            if ledgers.iter().any(|ledger| !ledger.adds_up()) {
                return Err(BenchParseError::Ledger { path: path.clone() });
            }
        }
        Ok(result)
    }
}

impl BenchRow {
    /// Every ledger of the row.
    pub fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.ledger.iter().chain(&self.sample_ledgers)
    }
}
