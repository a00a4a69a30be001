//! The result of a run of the ladder, as `lab.json` has it.
//!
//! The published schema is `docs/schema/lab.schema.json`; a test holds the two together.

use super::evidence::LessonVerdict;
use crate::measure::envelope::{Envelope, EnvelopeBody};
use crate::udp::runs::Runs;
pub use crate::udp::{Limit, TakenBy};
use mpps_host::Ledger;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `schema` of the result files that this version writes and reads.
pub const LAB_SCHEMA: &str = "mpps.lab.v2";

/// One run of the ladder on one machine.
pub type LabResult = Envelope<LabBody>;

/// The results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabBody {
    /// The definition of every rate in it: [`crate::udp::RATE_DEFINITION`].
    #[schemars(length(min = 1))]
    pub rate_definition: String,
    /// How the two hosts were laid over the CPUs, in one line.
    pub placement: String,
    /// How queues were tied to CPUs: `threaded NAPI`, `RPS`, `soft interrupts of the sender's CPU`,
    /// `no CPU of their own (unplaced)`.
    pub delivery: String,
    /// The sender, and why it is not the generator, if it had to be replaced; absent in files of
    /// versions that had one sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The interface where the traffic arrived; absent for the lab's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The work of `with_work` for each datagram, `20us` or `parse`; absent without `--work`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    /// Cases and options that this machine lacks, and why.
    pub notes: Vec<String>,
    /// Nanoseconds that the drop probe costs for one dropped packet, if it ran and was measured.
    pub drop_probe_ns: Option<f64>,
    /// The rungs in the order of the ladder.
    pub rungs: Vec<RungResult>,
    /// The answer to the article's question; absent in files of versions that gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<LadderAnswer>,
}

/// How to receive a million packets a second, by the results of these rungs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LadderAnswer {
    /// The lowest rung that received a million datagrams a second, by its median; absent if none
    /// did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub million: Option<RungRate>,
    /// The rung that received the most; absent if none ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<RungRate>,
    /// The rate that the driver delivers to a rule that drops everything; absent if that did not
    /// run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<RungRate>,
}

/// A rung and its rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungRate {
    /// Number on the ladder.
    pub rung: String,
    /// The rung's name.
    pub name: String,
    /// Median, in million datagrams per second.
    pub mpps: f64,
    /// Nanoseconds of CPU time that the receiving threads had for a datagram; absent if that is not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_packet: Option<f64>,
}

impl LadderAnswer {
    /// The answer of these rungs, given in the order of the ladder.
    pub fn of(rungs: &[RungResult]) -> Self {
        let rate = |rung: &RungResult| {
            Some(RungRate {
                rung: rung.rung.clone(),
                name: rung.name.clone(),
                mpps: rung.runs.mpps_median?,
                cpu_ns_per_packet: rung.cpu_ns_per_packet(),
            })
        };
        let (ceilings, received): (Vec<_>, Vec<_>) = rungs
            .iter()
            .partition(|rung| rung.taken_by == TakenBy::Rule);
        let received: Vec<RungRate> = received.into_iter().filter_map(rate).collect();
        let highest = |rates: &[RungRate]| {
            let rates = rates.iter();
            rates.max_by(|a, b| a.mpps.total_cmp(&b.mpps)).cloned()
        };
        Self {
            million: received.iter().find(|rung| rung.mpps >= 1.0).cloned(),
            most: highest(&received),
            ceiling: ceilings.into_iter().find_map(rate),
        }
    }
}

impl RungResult {
    /// Nanoseconds of CPU time that all receiving threads together had for a datagram, in the last
    /// repeat.
    pub(super) fn cpu_ns_per_packet(&self) -> Option<f64> {
        let received: u64 = self.threads.iter().map(|thread| thread.received).sum();
        let ns = |thread: &ThreadShare| Some(thread.cpu_ns_per_packet? * thread.received as f64);
        let ns: f64 = self.threads.iter().filter_map(ns).sum();
        (received > 0)
            .then(|| ns / received as f64)
            .or(self.application_ns)
    }
}

/// One rung of the ladder, measured or skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"required": ["skipped"]},
    "then" = {"properties": {
        "sender": false, "threads": false, "cpu_busy": false, "limited_by": false, "path": false
    }},
    "else" = {
        "required": ["mpps_median", "ledger", "limited_by"],
        "if": {"anyOf": [{"required": ["taken_by"]}, {"required": ["application_ns"]}]},
        "else": {"required": ["threads", "cpu_busy", "path"]}
    }
))]
pub struct RungResult {
    /// Number on the ladder, with a letter for variants: `4a`.
    #[schemars(length(min = 1))]
    pub rung: String,
    /// The rung's name: `one socket, pinned`.
    pub name: String,
    /// The lesson of the rung, in one sentence.
    pub lesson: String,
    /// Whether this run shows it; absent of rungs that others are held against, and of versions that
    /// did not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<LessonVerdict>,
    /// The lowest and highest figure of the 2015 article, in Mpps; absent if it has none.
    pub article_mpps: Option<[f64; 2]>,
    /// Whether sockets, a ring or a rule took the packets; absent for sockets.
    #[serde(default, skip_serializing_if = "TakenBy::is_socket")]
    pub taken_by: TakenBy,
    /// The results of its runs.
    #[serde(flatten)]
    pub runs: Runs,
    /// The same with work for each datagram; absent without `--work`, and of a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_work: Option<Runs>,
    /// The lack of this host, if one word says why it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<RungNeed>,
    /// The ways to receive that were tried; the results are of the fastest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<RungPath>,
    /// The CPU of the first receive queue, of a rung about placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_cpu: Option<usize>,
    /// The CPU of the receiver, of a rung about placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver_cpu: Option<usize>,
    /// True if the receive queues have no CPU of their own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unplaced: bool,
    /// The sender of this rung, and whether it outran the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<RungSender>,
    /// Receiving threads of the last repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadShare>,
    /// Nanoseconds of CPU time of the receiving program per datagram, for a rung without `threads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_ns: Option<f64>,
    /// Nanoseconds of CPU time of the receiving thread per datagram at the same load, here and on
    /// another core, a pair for each repeat; only on rung 4e.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same_load_ns: Vec<[f64; 2]>,
    /// Waits for locks of the kernel on the CPUs of the threads that share a socket
    /// (`lock:contention_begin`), per datagram of the run for exactness; absent if they were not
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_waits_per_packet: Option<f64>,
    /// Share of each CPU's time that was busy in the last repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_busy: Vec<RungCpuBusy>,
    /// The bottleneck, with the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<Limit>,
    /// Which way the packets took through the kernel, and the counter that proves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathTaken>,
    /// Notes on this rung on this machine: shared CPUs, missing options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The lack of a host for a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RungNeed {
    /// More CPUs.
    Cpus,
    /// The program nft(8).
    Nft,
    /// The rights of root.
    Root,
}

/// One way to receive on a rung.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungPath {
    /// As `mpps bench` names it: `af_xdp`.
    pub name: String,
    /// The way of it: `spin`.
    pub variant: String,
    /// Median, in million datagrams per second; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpps_median: Option<f64>,
    /// Why it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// The sender of a rung, and whether it was fast enough.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungSender {
    /// As people read it: `sendmmsg, trains of 4`.
    pub name: String,
    /// The backend: `sendmmsg` or `xdp`.
    #[schemars(extend("enum" = ["sendmmsg", "xdp"]))]
    pub backend: String,
    /// Datagrams handed over as one train, cut before the link; absent for a sender without trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub train: Option<u16>,
    /// Why this one: `as asked`.
    pub why: String,
    /// True if it is the sender of all rungs, except those about another sender.
    pub usual: bool,
    /// True if it offered at least 1.05 times what was received, over all repeats.
    pub outran: bool,
    /// Datagrams that it offered for each one received, over all repeats; absent if none was
    /// received.
    pub offered_per_received: Option<f64>,
}

/// The result of one receiving thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadShare {
    /// The CPU that it is pinned to; absent if the scheduler moves it.
    pub cpu: Option<usize>,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that its own socket dropped; absent on a shared socket after the first thread.
    pub socket_drops: Option<u64>,
    /// Datagrams per receive call.
    pub packets_per_call: f64,
    /// Nanoseconds of CPU time per datagram, by the scheduler's account of the thread; absent if it
    /// received none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_packet: Option<f64>,
}

/// How busy one CPU was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungCpuBusy {
    /// The CPU's number.
    pub cpu: usize,
    /// Busy share of the time, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub busy: f64,
    /// Share of the time in soft interrupts, 0 to 1. Tick based: good to a few per cent.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub softirq: f64,
    /// The tasks that ran there: `sender`, `queues 0-3`, `application`.
    pub roles: Vec<String>,
}

/// Which way packets took through the receiving kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathTaken {
    /// `veth ring → threaded NAPI → IP → UDP → socket`.
    pub name: String,
    /// The counter that proves it: `rx_queue_N_xdp_packets`.
    pub counter: String,
    /// The value of that counter.
    pub count: u64,
    /// Packets per receive queue.
    pub queues: Vec<QueueShare>,
}

/// Packets that one receive queue took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueShare {
    /// The queue's number.
    pub queue: u16,
    /// Packets on the wire; a GSO sender's segments count each.
    pub packets: u64,
}

impl RungResult {
    /// Every ledger, those with work last.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        let runs = [&self.runs].into_iter().chain(&self.with_work);
        runs.flat_map(Runs::ledgers)
    }
}

impl EnvelopeBody for LabBody {
    const SCHEMA: &'static str = LAB_SCHEMA;
    const COMMAND: &'static str = "mpps lab";

    fn unsound(&self) -> Option<String> {
        let mut rungs = self.rungs.iter();
        let rung = rungs.find(|rung| rung.ledgers().any(|ledger| !ledger.adds_up()))?;
        Some(format!("rung {}", rung.rung))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::LabResult;

    /// A made-up run with everything that a report has to cope with.
    pub(in super::super) const FIXTURE: &str = include_str!("../../../tests/fixtures/lab.json");

    pub(in super::super) fn fixture() -> LabResult {
        LabResult::parse(FIXTURE).expect("the fixture is a result file")
    }
}
