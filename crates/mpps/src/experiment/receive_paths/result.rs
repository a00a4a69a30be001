//! The result of a comparison of receive paths, as in the file of `mpps bench --json`.
//!
//! The published schema is `docs/schema/bench.schema.json`; a test holds the two together.

use super::search::{SearchGoal, Searched};
use crate::measure::envelope::{Envelope, EnvelopeBody};
use crate::udp::TakenBy;
use crate::udp::runs::Runs;
use crate::udp::waited::Waited;
use mpps_host::Ledger;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `schema` of the result files that this version writes and reads.
pub const BENCH_SCHEMA: &str = "mpps.bench.v2";

/// One comparison of receive paths on one machine.
pub type BenchResult = Envelope<BenchBody>;

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchBody {
    /// The definition of every rate in it: [`crate::udp::RATE_DEFINITION`].
    #[schemars(length(min = 1))]
    pub rate_definition: String,
    /// The roles of the CPUs, in one line.
    pub placement: String,
    /// The sender, why it was chosen, and its traffic, in one line.
    pub sender: String,
    /// Flows, by source port, of what does not say it itself.
    #[schemars(range(min = 1, max = 65_535))]
    pub flows: usize,
    /// UDP payload of each datagram in bytes.
    pub payload_bytes: usize,
    /// The work of the receiving program for each datagram, `20us` or `parse`; absent if it only counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    /// The goal of the searches of the rows; absent without `--loss-free`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_free_goal: Option<SearchGoal>,
    /// Cases and options that this machine lacks, and why.
    pub notes: Vec<String>,
    /// The paths, fastest first, those that could not run last.
    pub rows: Vec<BenchRow>,
    /// The goodput of each path when more is offered than it can take; empty without `--overload`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overload: Vec<OverloadCurve>,
    /// The rates of early drops over more and more queues; empty without `--spread`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<SpreadRow>,
    /// Conclusions from these figures, one sentence each: the path to choose for each need.
    pub advice: Vec<String>,
}

/// One receive path, measured or skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"required": ["skipped"]},
    "then" = {"properties": {
        "cpu_ns_per_packet": false, "packets_per_call": false, "calls_per_packet": false,
        "loss_free": false
    }},
    "else" = {
        "required": ["mpps_median", "delivered_ratio", "cpu_ns_per_packet", "ledger",
                     "sample_ledgers"],
        "if": {"properties": {"taken_by": {"const": "rule"}}},
        "then": {"properties": {"packets_per_call": false, "calls_per_packet": false}}
    }
))]
pub struct BenchRow {
    /// `recv`, `recvmmsg`, `io_uring`, `packet_mmap`, `af_xdp`, `dpdk`, `pcap`, `xdp_drop`,
    /// `nft_ingress_drop`, `nft_raw_drop`, `iptables_raw_drop`.
    #[schemars(extend("enum" = ["recv", "recvmmsg", "io_uring", "packet_mmap", "af_xdp", "dpdk", "pcap", "xdp_drop", "nft_ingress_drop", "nft_raw_drop", "iptables_raw_drop"]))]
    pub path: String,
    /// Which way of the path was asked for, in few words: `spin`; empty for the plain one.
    pub variant: String,
    /// The mode that the kernel granted: `native XDP, copy`; empty for a path that did not run.
    pub mode: String,
    /// How the receiver of the last repeat waited; absent of a rule and of a path that did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Waited>,
    /// Where NAPI ran: `generator's CPU 0`, `application's CPU 1`.
    pub napi: String,
    /// True if the kernel thread, or the soft interrupt, of the receive queue has the application's
    /// CPU; false if the application has its CPU to itself.
    pub shares_cpu: bool,
    /// Flows, by source port, that it received; absent if all rows had the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub flows: Option<usize>,
    /// True for the rows that the others are measured against: recv, recvmmsg and XDP drop.
    pub reference: bool,
    /// Whether sockets, a ring or a rule take the packets.
    pub taken_by: TakenBy,
    /// True if the receiver asks again and again: it uses all of its CPU, whatever comes.
    pub spins: bool,
    /// Receive queues that carried the traffic.
    #[schemars(range(min = 1))]
    pub queues: u16,
    /// The results of its runs.
    #[serde(flatten)]
    pub runs: Runs,
    /// CPU time per datagram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_packet: Option<CpuCost>,
    /// Datagrams per receive that brought any; none for a rule, which has no receive calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_call: Option<f64>,
    /// System calls of the receiving program per datagram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_packet: Option<f64>,
    /// The highest rate without loss (`--loss-free`): one search for `loss_free_goal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_free: Option<Searched>,
    /// Notes on this row on this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// CPU time per datagram, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCost {
    /// Of the receiving program, per datagram delivered; a program that spins uses all of its CPU.
    pub app: Option<f64>,
    /// Of the kernel thread that polls the receive queue, per packet that it took from the ring.
    pub softirq: Option<f64>,
    /// Both together, of each repeat; empty where one of them is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// How it was measured.
    pub method: String,
}

/// The goodput of one path as the offered rate grows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverloadCurve {
    /// The path.
    pub path: String,
    /// Which way of it was asked for; empty for the plain one.
    pub variant: String,
    /// The mode that the kernel granted.
    pub mode: String,
    /// Where NAPI ran.
    pub napi: String,
    /// The highest goodput of the curve, in million datagrams per second.
    pub peak_mpps: f64,
    /// Goodput at the highest load over the peak: 1 is no livelock at all.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub kept: f64,
    /// The points, by what was offered.
    #[schemars(length(min = 1))]
    pub points: Vec<OverloadPoint>,
    /// Notes on this curve, such as a load that could not be measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One point of an [`OverloadCurve`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverloadPoint {
    /// Rate asked for, in million datagrams per second; none of the flood, as fast as the sender
    /// goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub asked_mpps: Option<f64>,
    /// Offered rate in million datagrams per second.
    pub offered_mpps: f64,
    /// Delivered rate in million datagrams per second.
    pub goodput_mpps: f64,
    /// Where every packet went.
    pub ledger: Ledger,
}

/// An early drop over a number of queues, measured or skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"required": ["skipped"]},
    "then" = {"properties": {
        "queue_cpus": false, "queue_mpps": false, "napi_ns_per_packet": false, "mpps_per_cpu": false
    }},
    "else" = {"required": ["mpps_median", "delivered_ratio", "sample_ledgers"]}
))]
pub struct SpreadRow {
    /// `xdp_drop`, `nft_ingress_drop`, `nft_raw_drop`, `iptables_raw_drop`.
    #[schemars(extend("enum" = ["xdp_drop", "nft_ingress_drop", "nft_raw_drop", "iptables_raw_drop"]))]
    pub path: String,
    /// Which way of it; empty for the plain one.
    pub variant: String,
    /// Where and how it drops; empty for a row that did not run.
    pub mode: String,
    /// The sender and its CPUs. Rows of one sender compare with each other.
    pub sender: String,
    /// The backend that sent: `xdp`, `sendmmsg`.
    pub backend: String,
    /// Receive queues that the traffic was sent to.
    #[schemars(range(min = 1))]
    pub queues: u16,
    /// The CPU whose kernel thread served each queue, in the order of the queues; empty where the
    /// scheduler chose, and in a row that did not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_cpus: Vec<usize>,
    /// The results of its runs, over all queues.
    #[serde(flatten)]
    pub runs: Runs,
    /// Packets that each queue's thread took from its ring, in million per second, medians, in the
    /// order of the queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_mpps: Vec<f64>,
    /// CPU time of the queues' kernel threads per packet, in nanoseconds, median; none where they
    /// have no threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_ns_per_packet: Option<f64>,
    /// Packets per CPU time of these threads, in million per second: the rate of a CPU that does
    /// nothing but that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpps_per_cpu: Option<f64>,
    /// The figure of the 2015 article for the same case, on its network card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub article_mpps_per_cpu: Option<f64>,
}

impl EnvelopeBody for BenchBody {
    const SCHEMA: &'static str = BENCH_SCHEMA;
    const COMMAND: &'static str = "mpps bench";

    fn unsound(&self) -> Option<String> {
        let rows = self.rows.iter().map(|row| (&row.path, &row.runs));
        let spread = self.spread.iter().map(|row| (&row.path, &row.runs));
        let mut runs = rows.chain(spread);
        if let Some((path, _)) = runs.find(|(_, runs)| runs.is_unsound()) {
            return Some(path.clone());
        }
        let searches = self
            .rows
            .iter()
            .filter_map(|row| Some((row, row.loss_free.as_ref()?)));
        let mut unsound =
            searches.filter(|(_, found)| found.ledgers().any(|ledger| !ledger.adds_up()));
        if let Some((row, _)) = unsound.next() {
            return Some(row.path.clone());
        }
        let is_unsound = |point: &OverloadPoint| !point.ledger.adds_up();
        let mut curves = self.overload.iter();
        let curve = curves.find(|curve| curve.points.iter().any(is_unsound))?;
        Some(curve.path.clone())
    }
}

/// The path and the way it was used: `af_xdp spin`.
pub(super) fn title(path: &str, variant: &str) -> String {
    match variant {
        "" => path.to_owned(),
        variant => format!("{path} {variant}"),
    }
}

impl BenchRow {
    /// The path and the way it was used: `af_xdp spin`.
    pub(crate) fn title(&self) -> String {
        title(&self.path, &self.variant)
    }

    /// True if other rows are compared with this row: plain recvmmsg.
    pub(crate) fn is_base(&self) -> bool {
        self.reference && self.path == "recvmmsg"
    }
}

impl OverloadCurve {
    /// The path and the way it was used.
    pub(crate) fn title(&self) -> String {
        title(&self.path, &self.variant)
    }
}

impl SpreadRow {
    /// The path and the way it was used.
    pub(crate) fn title(&self) -> String {
        title(&self.path, &self.variant)
    }

    /// The CPUs that serve the queues, in the order of the queues: `CPUs 0,1`; all on one is `CPU 1`.
    pub(crate) fn cpus(&self) -> String {
        let mut all = self.queue_cpus.clone();
        all.dedup();
        let names: Vec<String> = all.iter().map(usize::to_string).collect();
        match names.as_slice() {
            [] => "any CPU".to_owned(),
            [one] => format!("CPU {one}"),
            several => format!("CPUs {}", several.join(",")),
        }
    }
}
