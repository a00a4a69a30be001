//! What a search found, as it is kept in the file of `mpps ndr --json`.
//!
//! The published schema is `docs/schema/ndr.schema.json`; a test holds the two together.

pub use super::search::Goal;

use crate::measure::envelope::{Body, Envelope};
use crate::udp::TakenBy;
use mpps_host::{Ledger, Station};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One search on one machine.
pub type NdrResult = Envelope<NdrBody>;

/// What it found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NdrBody {
    /// What every load in it is: [`LOAD_DEFINITION`].
    #[schemars(length(min = 1))]
    pub load_definition: String,
    /// Who ran on which CPU, in one line.
    pub placement: String,
    /// What sent, why it was chosen, and what it sends, in one line.
    pub sender: String,
    /// Flows, by source port.
    #[schemars(range(min = 1, max = 65_535))]
    pub flows: usize,
    /// UDP payload of each datagram in bytes.
    pub payload_bytes: usize,
    /// What every receiver was held back to, in million datagrams per second; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_mpps: Option<f64>,
    /// What could not be had on this machine, and why.
    pub notes: Vec<String>,
    /// What was searched for, the least loss first.
    #[schemars(length(min = 1))]
    pub goals: Vec<Goal>,
    /// The paths, the highest rate of the first goal first, those that could not run last.
    pub rows: Vec<NdrRow>,
}

/// What a load is, as result files say it.
pub const LOAD_DEFINITION: &str = "datagrams per second that the sender is asked for; a trial in \
    which it brings over 1 % less, what it refused itself left out, is void; lost is what was brought \
    and not delivered";

/// One receive path, searched or skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"required": ["skipped"]},
    "then" = {"properties": {"found": false, "trials": false, "sender_mpps": false}},
    "else" = {"required": ["found", "trials"]}
))]
pub struct NdrRow {
    /// `recvmmsg`.
    pub path: String,
    /// Which way of the path was asked for; empty for the plain one.
    pub variant: String,
    /// What the kernel granted; empty for a path that did not run.
    pub mode: String,
    /// Where NAPI ran.
    pub napi: String,
    /// What takes the packets.
    pub taken_by: TakenBy,
    /// Why it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// What was found for each goal, in the order of the goals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<Found>,
    /// The highest load that was tried in the end, in million datagrams per second, since the sender
    /// missed those above; absent if it missed none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_mpps: Option<f64>,
    /// Every trial, in the order in which they ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<NdrTrial>,
    /// What a reader has to know of this row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The bounds of one goal, in million datagrams per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// The relevant lower bound: the highest load that keeps to the goal, below all that do not.
    /// Absent if the lowest load does not, or if the search ended before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_mpps: Option<f64>,
    /// The relevant upper bound: the lowest load that does not keep to the goal. Absent if the highest
    /// load does, or if the search ended before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_mpps: Option<f64>,
    /// The conditional throughput: what is delivered at the lower bound, in all but the allowed share
    /// of the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditional_mpps: Option<f64>,
    /// True if the bounds are as close as the goal asks, or one is at the end of the loads; false if
    /// the search ended before.
    pub settled: bool,
    /// The first station on a packet's way that loses at the upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loses: Option<Loses>,
}

/// Where packets are lost first, in the last trial at the upper bound that lost too much.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Loses {
    /// Where.
    pub station: Station,
    /// Why.
    pub reason: String,
    /// The share of what was offered.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub share: f64,
}

/// One trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NdrTrial {
    /// Its load in million datagrams per second.
    pub load_mpps: f64,
    /// Its length in seconds.
    pub seconds: f64,
    /// What the sender brought, in million datagrams per second.
    pub offered_mpps: f64,
    /// Lost of what the sender brought.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub loss_ratio: f64,
    /// True if the sender missed the load: such a trial says nothing.
    pub void: bool,
    /// Where every packet went.
    pub ledger: Ledger,
}

impl Body for NdrBody {
    const SCHEMA: &'static str = "mpps.ndr.v1";
    const COMMAND: &'static str = "mpps ndr";

    fn unsound(&self) -> Option<String> {
        let is_unsound = |row: &&NdrRow| row.ledgers().any(|ledger| !ledger.adds_up());
        Some(self.rows.iter().find(is_unsound)?.path.clone())
    }
}

impl NdrBody {
    /// Every ledger.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.rows.iter().flat_map(NdrRow::ledgers)
    }
}

impl NdrRow {
    /// The path and the way it was used: `af_xdp spin`.
    pub(crate) fn title(&self) -> String {
        super::super::result::title(&self.path, &self.variant)
    }

    /// The ledgers of the trials.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.trials.iter().map(|trial| &trial.ledger)
    }

    /// The first station that loses at this load, in the last trial that lost more than that share.
    pub(super) fn loses(&self, load_mpps: f64, loss_ratio: f64) -> Option<Loses> {
        let is_bad = |trial: &&NdrTrial| {
            let at_load = trial.load_mpps == load_mpps && !trial.void;
            at_load && trial.loss_ratio > loss_ratio
        };
        let trial = self.trials.iter().rev().find(is_bad)?;
        let mut losses = trial.ledger.losses.iter();
        let first = losses.find(|loss| loss.station != Station::Sender)?;
        Some(Loses {
            station: first.station,
            reason: first.reason.clone(),
            share: (first.count as f64 / trial.ledger.offered.max(1) as f64).min(1.0),
        })
    }
}
