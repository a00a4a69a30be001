//! The result of a search, as in the file of `mpps ndr --json`.
//!
//! The published schema is `docs/schema/ndr.schema.json`; a test holds the two together.

pub use super::super::search::{GoalBounds, Loses, NdrTrial, SearchGoal, Searched};

use crate::measure::envelope::{Envelope, EnvelopeBody};
use crate::udp::TakenBy;
use crate::udp::waited::Waited;
use mpps_host::Ledger;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One search on one machine.
pub type NdrResult = Envelope<NdrBody>;

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NdrBody {
    /// The definition of every load in it: [`LOAD_DEFINITION`].
    #[schemars(length(min = 1))]
    pub load_definition: String,
    /// The roles of the CPUs, in one line.
    pub placement: String,
    /// The sender, why it was chosen, and its traffic, in one line.
    pub sender: String,
    /// Flows, by source port.
    #[schemars(range(min = 1, max = 65_535))]
    pub flows: usize,
    /// UDP payload of each datagram in bytes.
    pub payload_bytes: usize,
    /// The work of the receiving program for each datagram, `20us` or `parse`; absent if it only counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    /// Where the traffic of another host arrived; absent for two hosts on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The rate limit of every receiver, in million datagrams per second; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_mpps: Option<f64>,
    /// Cases and options that this machine lacks, and why.
    pub notes: Vec<String>,
    /// The goals of the search, the least loss first.
    #[schemars(length(min = 1))]
    pub goals: Vec<SearchGoal>,
    /// The paths, the highest rate of the first goal first, those that could not run last.
    pub rows: Vec<NdrRow>,
}

/// The definition of a load, as result files give it.
pub const LOAD_DEFINITION: &str = "datagrams per second that the sender is to bring; a trial in \
    which it brings over 1 % and 128 datagrams less or more, what it refused itself left out, is void; lost is what was \
    brought and not delivered";

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
    /// The mode that the kernel granted; empty for a path that did not run.
    pub mode: String,
    /// How the receiver of the last trial waited; absent of a rule and of a path that did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Waited>,
    /// Where NAPI ran.
    pub napi: String,
    /// Whether sockets, a ring or a rule take the packets.
    pub taken_by: TakenBy,
    /// Why it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The result of the search.
    #[serde(flatten)]
    pub searched: Searched,
}

impl EnvelopeBody for NdrBody {
    const SCHEMA: &'static str = "mpps.ndr.v1";
    const COMMAND: &'static str = "mpps ndr";

    fn unsound(&self) -> Option<String> {
        let is_unsound = |row: &&NdrRow| row.searched.ledgers().any(|ledger| !ledger.adds_up());
        Some(self.rows.iter().find(is_unsound)?.path.clone())
    }
}

impl NdrBody {
    /// Every ledger.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.rows.iter().flat_map(|row| row.searched.ledgers())
    }
}

impl NdrRow {
    /// The path and the way it was used: `af_xdp spin`.
    pub(crate) fn title(&self) -> String {
        super::super::result::title(&self.path, &self.variant)
    }
}
