//! What a run of the ladder found, as it is kept in `lab.json`.
//!
//! The published schema is `docs/schema/lab.schema.json`; a test holds the two together.

use mpps_host::{Fingerprint, Ledger};
use serde::{Deserialize, Serialize};

/// The `schema` of the result files that this version writes and reads.
pub const LAB_SCHEMA: &str = "mpps.lab.v1";

/// One run of the ladder on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabResult {
    /// [`LAB_SCHEMA`].
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
    /// False if Ctrl-C ended the run before its last rung.
    pub complete: bool,
    /// How the two hosts were laid over the CPUs, in one line.
    pub placement: String,
    /// How queues were tied to CPUs: `threaded NAPI`, `RPS`, `unplaced`.
    pub delivery: String,
    /// Who sent, and what happened where that was not enough; absent in files of versions that had
    /// one sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// What could not be had on this machine, and why.
    pub notes: Vec<String>,
    /// Nanoseconds that the drop probe costs for one dropped packet, if it ran and was measured.
    pub drop_probe_ns: Option<f64>,
    /// The rungs in the order of the ladder.
    pub rungs: Vec<RungResult>,
}

/// One rung of the ladder, measured or skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RungResult {
    /// Number on the ladder, with a letter for variants: `4a`.
    pub rung: String,
    /// The rung's name: `one socket, pinned`.
    pub name: String,
    /// What the rung teaches, one sentence.
    pub lesson: String,
    /// The lowest and highest figure of the 2015 article, in Mpps; absent if it has none.
    pub article_mpps: Option<[f64; 2]>,
    /// Why the rung did not run. A skipped rung has no ledger and no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Median of `mpps_samples`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpps_median: Option<f64>,
    /// Received rate of each repeat in million datagrams per second, drop probe off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpps_samples: Vec<f64>,
    /// Median of the offered rate over the same repeats, in million datagrams per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_mpps_median: Option<f64>,
    /// Who sent on this rung, and whether it outran the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<RungSender>,
    /// Where every packet of the exactness run went: drop probe on, traffic stamped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// The ledgers of the repeats behind `mpps_samples`, drop probe off, same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sample_ledgers: Vec<Ledger>,
    /// Receiving threads of the last repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadShare>,
    /// Share of each CPU's time that was busy in the last repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_busy: Vec<CpuBusy>,
    /// What was full, with the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<Limit>,
    /// Which way the packets took through the kernel, and the counter that proves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathTaken>,
    /// What a reader has to know of this rung on this machine: CPUs shared, options not had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Who sent on a rung, and whether it was enough.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RungSender {
    /// As people read it: `sendmmsg, trains of 4`.
    pub name: String,
    /// The backend: `sendmmsg` or `xdp`.
    pub backend: String,
    /// Datagrams handed over as one train, cut before the link; absent for a sender without trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<u16>,
    /// Why this one: `as asked`.
    pub why: String,
    /// True if it is the one that every rung begins with.
    pub usual: bool,
    /// True if it offered at least 1.05 times what was received, over all repeats.
    pub outran: bool,
    /// What it offered for each datagram received, over all repeats; absent if none was.
    pub offered_per_received: Option<f64>,
    /// The plainest sender that did outrun this receiver when it was tried, if this one does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_outrun: Option<String>,
    /// True if no stronger sender was left untried: this one outran the receiver, or one was found
    /// that does, or none does. False if the run ended before, or if a trial failed; also in files
    /// of versions that did not say.
    #[serde(default)]
    pub search_complete: bool,
    /// Senders that were tried on this rung, in this order; empty if the first one was enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<SenderTrial>,
}

/// One run of a sender against a rung's receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SenderTrial {
    /// As people read it.
    pub name: String,
    /// Million datagrams per second offered.
    pub offered_mpps: f64,
    /// Million datagrams per second received.
    pub mpps: f64,
    /// True if it outran the receiver.
    pub outran: bool,
}

/// What one receiving thread got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadShare {
    /// The CPU that it is pinned to; absent if the scheduler moves it.
    pub cpu: Option<usize>,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that its own socket dropped; absent on a shared socket after the first thread.
    pub socket_drops: Option<u64>,
    /// Datagrams per receive call.
    pub packets_per_call: f64,
    /// Nanoseconds of CPU time per datagram, by the scheduler's account of the thread.
    pub cpu_ns_per_packet: f64,
}

/// How busy one CPU was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuBusy {
    /// The CPU's number.
    pub cpu: usize,
    /// Busy share of the time, 0 to 1.
    pub busy: f64,
    /// Share of the time in soft interrupts, 0 to 1. Tick based: good to a few per cent.
    pub softirq: f64,
    /// What ran there: `sender`, `queues 0-3`, `application`.
    pub roles: Vec<String>,
}

/// What limited a rung.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// `application CPU 1`, `receive queue 0 on CPU 1`, `sender`.
    pub what: String,
    /// The counters that show it.
    pub evidence: String,
}

/// Which way packets took through the receiving kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathTaken {
    /// `veth ring → threaded NAPI → IP → UDP → socket`.
    pub name: String,
    /// The counter that proves it: `rx_queue_N_xdp_packets`.
    pub counter: String,
    /// What that counter said.
    pub count: u64,
    /// Packets per receive queue.
    pub queues: Vec<QueueShare>,
}

/// Packets that one receive queue took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueShare {
    /// The queue's number.
    pub queue: u16,
    /// Packets on the wire; a GSO sender's segments count each.
    pub packets: u64,
}

#[derive(Debug, Deserialize)]
struct SchemaOnly {
    schema: String,
}

/// Why a file is not a result of the ladder.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Not JSON, cut short, or JSON of another shape.
    #[error("not a result of `mpps lab`: {0}")]
    Shape(#[from] serde_json::Error),
    /// A result, but of another schema.
    #[error("schema `{found}`, but this version of mpps reads `{LAB_SCHEMA}`")]
    Schema {
        /// What the file says it is.
        found: String,
    },
    /// A ledger whose terms do not give the remainder it claims.
    #[error("the ledger of rung {rung} does not add up: the file was changed after it was written")]
    Ledger {
        /// The rung.
        rung: String,
    },
}

impl LabResult {
    /// Reads a result file's text.
    ///
    /// # Errors
    /// If the text is cut short, is of another shape or schema, or has a ledger that does not add up.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let SchemaOnly { schema } = serde_json::from_str(text)?;
        if schema != LAB_SCHEMA {
            return Err(ParseError::Schema { found: schema });
        }
        let result: Self = serde_json::from_str(text)?;
        for rung in &result.rungs {
            if rung
                .ledger
                .iter()
                .chain(&rung.sample_ledgers)
                .any(|ledger| !ledger.adds_up())
            {
                return Err(ParseError::Ledger {
                    rung: rung.rung.clone(),
                });
            }
        }
        Ok(result)
    }
}
