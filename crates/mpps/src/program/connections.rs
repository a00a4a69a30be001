//! The results of `serve` and `load`, as `--json` writes them.

use super::meter::Interval;
use crate::measure::envelope::{Envelope, EnvelopeBody};
use crate::measure::samples::per_second;
use mpps_http::{Close, ENGINES, Ending, LoadConfig, LoadReport, SwitchState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of a load on one machine.
pub type LoadResult = Envelope<LoadBody>;

/// The result of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadBody {
    /// The load that was asked for.
    #[serde(flatten)]
    pub asked: LoadConfig,
    /// The measured load.
    #[serde(flatten)]
    pub found: LoadReport,
    /// Its whole seconds, in order; absent in files of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each_second: Vec<LoadSecond>,
}

/// One second of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadSecond {
    /// Its measured length.
    pub seconds: f64,
    /// Connections that ended in it as they should.
    pub connections_completed: u64,
    /// Connections that failed in it.
    pub connections_failed: u64,
    /// Requests that were answered in it.
    pub requests_completed: u64,
    /// Requests that failed in it.
    pub requests_failed: u64,
}

impl From<Interval<4>> for LoadSecond {
    fn from(Interval { seconds, counts }: Interval<4>) -> Self {
        let [
            connections_completed,
            connections_failed,
            requests_completed,
            requests_failed,
        ] = counts;
        Self {
            seconds,
            connections_completed,
            connections_failed,
            requests_completed,
            requests_failed,
        }
    }
}

impl LoadBody {
    /// The unit that a load counts: connections, or the requests of connections that have several.
    pub(crate) fn unit(&self) -> &'static str {
        match self.asked.requests_per_connection {
            Some(1) => "connections/s",
            _ => "requests/s",
        }
    }

    /// The length of each second, and the completed and failed of this unit per second.
    pub(crate) fn rates(&self) -> impl Iterator<Item = [f64; 3]> {
        self.each_second.iter().map(|second| {
            let [completed, failed] = match self.unit() {
                "connections/s" => [second.connections_completed, second.connections_failed],
                _ => [second.requests_completed, second.requests_failed],
            };
            let rate = |count| per_second(count, second.seconds);
            [second.seconds, rate(completed), rate(failed)]
        })
    }
}

impl EnvelopeBody for LoadBody {
    const SCHEMA: &'static str = "mpps.load.v2";
    const COMMAND: &'static str = "mpps load";

    fn unsound(&self) -> Option<String> {
        let mut ledgers = ["connections", "requests"]
            .into_iter()
            .zip(self.found.ledger.both());
        let unsound = ledgers.find(|(_, ledger)| !ledger.adds_up());
        let unsound = unsound.map(|(name, _)| name);
        let found = &self.found;
        let is_sum = found.ledger.connections.is_sum_of(&found.by_thread);
        Some(unsound.or((!is_sum).then_some("threads"))?.to_owned())
    }
}

/// The result of a server on one machine.
pub type ServeResult = Envelope<ServeBody>;

/// An object that `mpps serve --json` writes: one a second, and one with the totals at the end.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub enum ServeObject {
    /// A second.
    Interval(ServeInterval),
    /// The totals.
    Total(Box<ServeResult>),
}

/// One second of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServeInterval {
    /// The schema that this object is of.
    pub schema: String,
    /// `interval`.
    #[serde(rename = "type")]
    #[schemars(extend("const" = "interval"))]
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

/// The names of the classes of status, in the order of `ServeCounters::statuses`.
pub(super) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The totals of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServeBody {
    /// `total`.
    #[serde(rename = "type")]
    #[schemars(extend("const" = "total"))]
    pub kind: String,
    /// The content and its server, in one line.
    pub placement: String,
    /// Where it listened.
    pub address: String,
    /// The engine.
    #[schemars(extend("enum" = ENGINES.iter().map(|engine| engine.name).collect::<Vec<_>>()))]
    pub engine: String,
    /// Every switch of the paper, in its order.
    pub switches: Vec<SwitchState>,
    /// Worker threads.
    pub workers: usize,
    /// Their CPUs; empty if the scheduler chose.
    pub cpus: Vec<usize>,
    /// The side that ended connections.
    pub close: Close,
    /// From the start to the end.
    pub seconds: f64,
    /// Connections taken from the kernel: those that ended, by reason, and those still open.
    pub accepted: u64,
    /// How many of them each worker took, in the order of `cpus`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_by_worker: Vec<u64>,
    /// Connections that ended, by how.
    #[schemars(extend("propertyNames" = {"enum": Ending::ALL}, "required" = Ending::ALL))]
    pub ended: BTreeMap<Ending, u64>,
    /// Connections that were open at the end.
    pub open: u64,
    /// `accepted` less all others: 0 unless the server has lost one.
    pub unaccounted: i64,
    /// Requests that were answered.
    pub requests: u64,
    /// Of those, by the first digit of their status: `2xx`.
    #[schemars(extend("propertyNames" = {"enum": CLASSES}, "required" = CLASSES))]
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

impl ServeBody {
    /// Accepted connections, less ended and open ones.
    pub(super) fn remainder(&self) -> i64 {
        let ended = self.ended.values().map(|count| i128::from(*count));
        let rest = i128::from(self.accepted) - i128::from(self.open) - ended.sum::<i128>();
        rest.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// True if every connection has ended, and none was lost.
    pub(super) fn is_fine(&self) -> bool {
        self.unaccounted == 0 && self.open == 0
    }
}

impl EnvelopeBody for ServeBody {
    const SCHEMA: &'static str = "mpps.serve.v2";
    const COMMAND: &'static str = "mpps serve";

    fn unsound(&self) -> Option<String> {
        (self.unaccounted != self.remainder()).then(|| "connections".to_owned())
    }
}
