//! The result of a search, as in result files.

use crate::udp::limit::{self, Limit};
use mpps_host::{Ledger, Quota, Station};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of the search on one path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Searched {
    /// The bounds for each goal, in the order of the goals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<GoalBounds>,
    /// The highest load that was tried in the end, in million datagrams per second, because the
    /// sender missed higher ones; absent if it missed none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_mpps: Option<f64>,
    /// Every trial, in the order of execution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<NdrTrial>,
    /// Notes on this search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The bounds of one goal, in million datagrams per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GoalBounds {
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
    /// The CPU quota that held the threads back in the trials that bound the search; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<Limit>,
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
    /// The rate that the sender brought, in million datagrams per second.
    pub offered_mpps: f64,
    /// Lost of what the sender brought.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub loss_ratio: f64,
    /// True if the sender missed the load: such a trial says nothing.
    pub void: bool,
    /// Where every packet went.
    pub ledger: Ledger,
    /// The CPU quota of this process over the trial. The ledger's notes report it too.
    #[serde(skip)]
    pub(crate) quota: Option<Quota>,
}

impl Searched {
    /// The ledgers of the trials.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.trials.iter().map(|trial| &trial.ledger)
    }

    /// The CPU quota that held the threads back in the last trial that was void or at this load.
    pub(crate) fn held_back(&self, load_mpps: Option<f64>) -> Option<Limit> {
        let bounds = |trial: &&NdrTrial| trial.void || Some(trial.load_mpps) == load_mpps;
        let trials = self.trials.iter().rev().filter(bounds);
        let mut limits = trials.filter_map(|trial| limit::held_back(trial.quota.as_ref()));
        limits.next()
    }

    /// The station where losses on the way exceed this share. It is that of the last trial at this
    /// load that lost too much.
    pub(crate) fn loses(&self, load_mpps: f64, loss_ratio: f64) -> Option<Loses> {
        let is_bad = |trial: &&NdrTrial| {
            let at_load = trial.load_mpps == load_mpps && !trial.void;
            at_load && trial.loss_ratio > loss_ratio
        };
        let trial = self.trials.iter().rev().find(is_bad)?;
        let losses = trial.ledger.losses.iter();
        let mut losses = losses.filter(|loss| loss.station != Station::Sender);
        let may_lose = loss_ratio * trial.ledger.offered as f64;
        let mut lost = 0;
        let first = losses.find(|loss| {
            lost += loss.count;
            lost as f64 > may_lose
        })?;
        Some(Loses {
            station: first.station,
            reason: first.reason.clone(),
            share: (first.count as f64 / trial.ledger.offered.max(1) as f64).min(1.0),
        })
    }
}
