//! The result of a search, as in result files.

use crate::measure::document::{counted, together};
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
    /// True if the sender missed the load, or more arrived than it sent: such a trial says nothing.
    pub void: bool,
    /// Where every packet went.
    pub ledger: Ledger,
    /// The CPU quota of this process over the trial. The ledger's notes report it too.
    #[serde(skip)]
    pub(crate) quota: Option<Quota>,
}

/// A sender that differs from the load by more than this share has missed it.
pub(crate) const MISSED: f64 = 0.01;
/// With this many void trials, a search without both bounds gives their kinds.
const VOIDS_TOLD: usize = 5;

type VoidKind = (fn(&NdrTrial) -> bool, &'static str, &'static str);

/// Kinds of void trials with their remedies. A trial is of the first that fits.
const VOID_KINDS: [VoidKind; 6] = [
    (
        |trial| trial.ledger.offered == 0,
        "the sender sent nothing",
        "run it by hand",
    ),
    (
        |trial| trial.ledger.delivered + trial.ledger.queued == 0,
        "nothing arrived",
        "look for the address and the firewall with mpps doctor",
    ),
    (
        |trial| {
            let ledger = &trial.ledger;
            let brought = ledger
                .offered
                .saturating_sub(ledger.lost_at(Station::Sender));
            ledger.delivered.saturating_add(ledger.queued) > brought
        },
        "more arrived than was sent",
        "end other senders to this port",
    ),
    (
        |trial| trial.offered_mpps > trial.load_mpps,
        "sender too fast",
        "use a sender that keeps to --rate",
    ),
    (
        |trial| trial.ledger.lost_at(Station::Sender) as f64 > MISSED * trial.ledger.offered as f64,
        "the sender's own host refused packets",
        "lower --max",
    ),
    (
        |_| true,
        "sender too slow",
        "end other programs on its CPU, or lower --max",
    ),
];

impl NdrTrial {
    /// Why the trial is void and what helps, if it is void.
    pub(crate) fn void_kind(&self) -> Option<(&'static str, &'static str)> {
        let kind = VOID_KINDS.iter().find(|(is_it, ..)| is_it(self));
        kind.filter(|_| self.void)
            .map(|(_, why, remedy)| (*why, *remedy))
    }
}

impl Searched {
    /// The kinds of the void trials, if bounds are missing because of them.
    pub(crate) fn void_note(&self) -> Option<String> {
        let kinds = self.trials.iter().filter_map(NdrTrial::void_kind);
        let kinds = together(kinds.map(|kind| ((), kind)));
        let void: usize = kinds.iter().map(|(_, trials)| trials.len()).sum();
        let mut found = self.found.iter();
        let has_all = found.all(|found| found.lower_mpps.and(found.upper_mpps).is_some());
        let mut found = self.found.iter();
        let has_any = found.any(|found| found.lower_mpps.or(found.upper_mpps).is_some());
        let is_told = void > 0 && !has_all && (void >= VOIDS_TOLD || !has_any);
        let kinds = kinds.iter().map(|((why, remedy), trials)| {
            let times = trials.len();
            format!("{times} {why} ({remedy})")
        });
        let kinds: Vec<String> = kinds.collect();
        let all = counted(self.trials.len(), "trial");
        is_told.then(|| format!("{void} of {all} void: {}", kinds.join("; ")))
    }

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
