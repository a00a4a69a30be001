//! What `serve` and `load` found, as they write it with `--json`.
//!
//! The published schemas are `docs/schema/serve.schema.json` and `docs/schema/load.schema.json`;
//! tests hold them together.

use mpps_host::Fingerprint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The `schema` of the server's objects.
pub const SERVE_SCHEMA: &str = "mpps.serve.v1";
/// The `schema` of a load's result.
pub const LOAD_SCHEMA: &str = "mpps.load.v1";

/// One second of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServeInterval {
    /// [`SERVE_SCHEMA`].
    pub schema: String,
    /// `interval`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its measured length.
    pub seconds: f64,
    /// Connections accepted in it, per second.
    pub connections_per_second: f64,
    /// Requests answered in it, per second.
    pub requests_per_second: f64,
    /// Bytes of replies that the kernel took in it, per second.
    pub bytes_per_second: f64,
    /// Connections that were open at its end.
    pub open: u64,
    /// CPU time of the process in it, as a share of one CPU: 2 is two CPUs.
    pub cpu: f64,
}

/// The totals of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServeTotal {
    /// [`SERVE_SCHEMA`].
    pub schema: String,
    /// `total`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The version of mpps.
    pub version: String,
    /// The full command line.
    pub command: String,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// The machine and its settings.
    pub fingerprint: Fingerprint,
    /// Where it listened.
    pub address: String,
    /// The engine.
    pub engine: String,
    /// Every switch of the paper, in its order.
    pub switches: Vec<SwitchState>,
    /// Worker threads.
    pub workers: usize,
    /// Their CPUs, in turn; empty if the scheduler chose.
    pub cpus: Vec<usize>,
    /// Who ended connections: `server`, `client` or `rst`.
    pub close: String,
    /// From the start to the end.
    pub seconds: f64,
    /// Connections taken from the kernel: those that ended, by reason, and those still open.
    pub accepted: u64,
    /// Connections that ended, by how.
    pub ended: BTreeMap<String, u64>,
    /// Connections that were open at the end.
    pub open: u64,
    /// `accepted` less all others: 0 unless the server has lost one.
    pub unaccounted: i64,
    /// Requests that were answered.
    pub requests: u64,
    /// Of those, by the first digit of their status: `2xx`.
    pub statuses: BTreeMap<String, u64>,
    /// Bytes of replies that the kernel took.
    pub bytes_sent: u64,
    /// Bytes of requests.
    pub bytes_received: u64,
    /// System calls of the workers, as far as they make them themselves.
    pub system_calls: u64,
    /// How often accepting was refused.
    pub accept_errors: u64,
    /// CPU time of the process. Soft interrupts that ran on top of it are in it.
    pub cpu_seconds: f64,
    /// The same for each connection, in microseconds; none if there was no connection.
    pub cpu_us_per_connection: Option<f64>,
}

/// What became of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchState {
    /// Its name.
    pub name: String,
    /// Whether it was on.
    pub on: bool,
    /// What it does in this engine, on this kernel.
    pub what: String,
    /// Why it was off, or empty.
    pub why_not: String,
}

/// What a load found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`LOAD_SCHEMA`].
    pub schema: String,
    /// The machine and its settings.
    pub fingerprint: Fingerprint,
    /// The full command line.
    pub command: String,
    /// The version of mpps.
    pub version: String,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// False if Ctrl-C ended it early.
    pub complete: bool,
    /// What was asked for.
    pub url: String,
    /// The address that its host has.
    pub target: String,
    /// The engine.
    pub engine: String,
    /// What the engine was granted, in a line.
    pub granted: String,
    /// Threads.
    pub threads: usize,
    /// Their CPUs, in turn; empty if the scheduler chose.
    pub cpus: Vec<usize>,
    /// Connections in flight.
    pub connections: usize,
    /// Requests per connection; none is as many as the server allows.
    pub requests_per_connection: Option<u64>,
    /// Requests to start a second; none is as fast as it goes.
    pub rate: Option<f64>,
    /// Own addresses; empty if the kernel chose.
    pub sources: Vec<String>,
    /// Who ended connections: `server`, `client` or `rst`.
    pub close: String,
    /// Time for one request, connecting included.
    pub timeout_seconds: f64,
    /// From the first start to the last end.
    pub seconds: f64,
    /// Connections that were completed, per second.
    pub cps: f64,
    /// Requests that were completed, per second.
    pub requests_per_second: f64,
    /// Bytes of requests that the kernel took.
    pub bytes_sent: u64,
    /// Bytes of replies, heads included.
    pub bytes_received: u64,
    /// Bytes of bodies that came whole.
    pub body_bytes: u64,
    /// Bytes received per second.
    pub bytes_per_second: f64,
    /// Requests that failed, by how; every kind is there.
    pub errors: BTreeMap<String, u64>,
    /// Of a kind of failure the first one, in the words of the kernel or of the parser.
    pub error_examples: BTreeMap<String, String>,
    /// Whole replies by the first digit of their status: `2xx`.
    pub statuses: BTreeMap<String, u64>,
    /// How long connecting, the first and the last byte took.
    pub latency_us: LoadLatency,
    /// With `rate`: how much too late the latest request started, in microseconds.
    pub lateness_us_max: Option<f64>,
    /// With `rate`: requests that were due before the end and never started.
    pub not_started: Option<u64>,
    /// Connections that the server closed between two requests; they are completed ones.
    pub closed_early: u64,
    /// Where every connection and every request went.
    pub ledger: LoadLedger,
    /// CPU time of the load's threads.
    pub cpu_seconds: f64,
    /// The same for each completed connection, in microseconds; none without any.
    pub cpu_us_per_connection: Option<f64>,
    /// The same for each completed request, in microseconds; none without any.
    pub cpu_us_per_request: Option<f64>,
    /// System calls of the load's threads.
    pub system_calls: u64,
    /// What a reader has to know of this run.
    pub notes: Vec<String>,
}

/// The three times of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadLatency {
    /// To an established connection, one per connection.
    pub connect: Times,
    /// From the start of a request, connecting included, to the first byte of the reply; with
    /// `rate` from the moment at which it was to start.
    pub first_byte: Times,
    /// The same to the last byte.
    pub last_byte: Times,
}

/// Times in microseconds, kept to three digits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many there are.
    pub count: u64,
    /// The shortest.
    pub min: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// Half of them are not longer.
    pub p50: f64,
    /// Nine of ten are not longer.
    pub p90: f64,
    /// 99 of 100 are not longer.
    pub p99: f64,
    /// 999 of 1000 are not longer.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// The whole distribution: a percentage, and the time that so many do not exceed.
    pub percentiles: Vec<[f64; 2]>,
}

/// The account of a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadLedger {
    /// Of its connections.
    pub connections: LoadAccount,
    /// Of its requests.
    pub requests: LoadAccount,
}

/// `started = completed + failed + aborted_at_end + unaccounted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadAccount {
    /// Begun.
    pub started: u64,
    /// Ended as it should.
    pub completed: u64,
    /// Failed, by how; every kind is there.
    pub failed: BTreeMap<String, u64>,
    /// In flight when the run ended.
    pub aborted_at_end: u64,
    /// What no counter explains; negative if something was counted twice.
    pub unaccounted: i64,
}

impl LoadAccount {
    /// How many failed, in whatever way.
    pub fn failed_total(&self) -> u64 {
        self.failed
            .values()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl LoadResult {
    /// True if no request failed and both accounts balance.
    pub fn is_fine(&self) -> bool {
        let ledger = &self.ledger;
        ledger.requests.failed_total() == 0
            && ledger.connections.failed_total() == 0
            && self.balances()
    }

    /// True if nothing is unaccounted for.
    pub fn balances(&self) -> bool {
        self.ledger.connections.unaccounted == 0 && self.ledger.requests.unaccounted == 0
    }

    /// Reads a result file.
    ///
    /// # Errors
    /// What is wrong with it: no JSON, another schema, a field that is missing.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        use serde::de::Error;
        let result: Self = serde_json::from_str(text)?;
        if result.schema != LOAD_SCHEMA {
            let message = format!("schema `{}`, not `{LOAD_SCHEMA}`", result.schema);
            return Err(serde_json::Error::custom(message));
        }
        Ok(result)
    }
}
