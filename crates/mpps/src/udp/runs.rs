//! Repeated runs of one case: the results that are kept, and how they are shown.

use super::run::UdpRun;
use crate::measure::document::{RowTotals, doubts, equation, rates, spread, whole};
use crate::measure::samples::{extremes, median};
use mpps_host::{Ledger, Quota};
use mpps_report::{BarFigures, Block, Hue, Quantity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;

/// The runs of one thing, or why there are none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("allOf" = [{
    "if": {"required": ["skipped"]},
    "then": {"properties": {
        "mpps_median": false, "mpps_samples": false, "offered_mpps_median": false,
        "delivered_ratio": false, "ledger": false, "sample_ledgers": false
    }},
    "dependentRequired": {
        "mpps_median": ["mpps_samples"],
        "mpps_samples": ["mpps_median", "offered_mpps_median"]
    }
}]))]
pub struct Runs {
    /// Why it did not run. A skipped case has no ledger and no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Median of `mpps_samples`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpps_median: Option<f64>,
    /// Received (or, of a rule that drops, dropped) rate of each repeat in million datagrams per
    /// second, drop probe off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpps_samples: Vec<f64>,
    /// Median of the offered rate over the same repeats, in million datagrams per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_mpps_median: Option<f64>,
    /// Delivered datagrams over offered ones, all repeats together. Near 1 the sender was the
    /// slower one, and the rate is the sender's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub delivered_ratio: Option<f64>,
    /// Where every packet of the run for exactness went, drop probe on and traffic stamped; of a
    /// row of `mpps bench` that had no such run, those of the last repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// The ledgers of the repeats behind `mpps_samples`, drop probe off, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sample_ledgers: Vec<Ledger>,
    /// The CPU quota of this process in the last repeat. The ledgers' notes report it too.
    #[serde(skip)]
    pub(crate) quota: Option<Quota>,
}

impl Runs {
    /// Of something that did not run.
    pub(crate) fn skipped(skipped: Option<String>) -> Self {
        Self {
            skipped,
            ..Self::default()
        }
    }

    /// These repeats, with the first ledger of a run for exactness.
    pub(crate) fn of(repeats: &[impl Borrow<UdpRun>]) -> Self {
        let repeats = || repeats.iter().map(Borrow::borrow);
        let mut runs = Self {
            ledger: repeats().find_map(|one| one.exact.clone()),
            ..Self::default()
        };
        let mut offered = Vec::new();
        for one in repeats() {
            runs.mpps_samples.push(one.mpps);
            offered.push(one.offered_mpps);
            runs.sample_ledgers.push(one.ledger.clone());
            runs.quota.clone_from(&one.quota);
        }
        let sum = |count: fn(&Ledger) -> u64| runs.sample_ledgers.iter().map(count).sum::<u64>();
        let all = sum(|ledger| ledger.offered);
        Self {
            mpps_median: median(&runs.mpps_samples),
            offered_mpps_median: median(&offered),
            // Of traffic that was there before, a run delivers what waited in front of it.
            delivered_ratio: (all > 0)
                .then(|| (sum(|ledger| ledger.delivered) as f64 / all as f64).min(1.0)),
            ..runs
        }
    }

    /// The same. Without a run for exactness, the ledger is that of the last repeat.
    pub(crate) fn or_last(self) -> Self {
        let last = self.sample_ledgers.last();
        let ledger = self.ledger.as_ref().or(last).cloned();
        Self { ledger, ..self }
    }

    /// Every ledger, that of the exactness run first.
    pub fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.ledger.iter().chain(&self.sample_ledgers)
    }

    /// True if a ledger has terms that do not give the remainder it claims.
    pub(crate) fn is_unsound(&self) -> bool {
        self.ledgers().any(|ledger| !ledger.adds_up())
    }

    /// Where the packets went, all repeats together.
    pub(crate) fn totals(&self) -> Option<RowTotals> {
        RowTotals::of(self.ledger.as_ref(), &self.sample_ledgers)
    }

    /// The median rate with its unit.
    pub(crate) fn rate(&self) -> Option<Quantity> {
        self.mpps_median.map(Quantity::Mpps)
    }

    /// The lowest and the highest rate.
    pub(crate) fn spread(&self) -> Option<String> {
        spread(&self.mpps_samples, Quantity::Mpps)
    }

    /// The median rate as a bar, with its spread, and behind it the lost parts of the offered rate.
    pub(crate) fn measured(&self, hue: Hue) -> BarFigures {
        let dash = || "-".to_owned();
        let mut parts: Vec<(Hue, f64)> = self
            .mpps_median
            .map(|rate| (hue, rate))
            .into_iter()
            .collect();
        if let (Some(totals), Some(offered)) = (self.totals(), self.offered_mpps_median) {
            parts.extend(totals.lost_parts(offered));
        }
        BarFigures {
            parts,
            spread: extremes(&self.mpps_samples),
            figure: self.rate().map_or_else(dash, |rate| rate.to_string()),
            ..BarFigures::default()
        }
    }

    /// The bar of what was measured, or why there is none.
    pub(crate) fn outcome(&self, measured: BarFigures) -> Result<BarFigures, String> {
        let why = self.skipped.as_ref();
        why.map_or(Ok(measured), |why| Err(format!("skipped: {why}")))
    }

    /// The doubts about the ledgers. A repeat whose ledger counts trains has none here. `which`
    /// describes the repeats.
    pub(crate) fn doubts(&self, of: &str, which: &str) -> Vec<Block> {
        let exact = self.ledger.iter().flat_map(|one| doubts(of, which, one));
        // Without a run for exactness, the ledger is that of the last repeat and already shown.
        let repeats = self.sample_ledgers.iter().enumerate();
        let repeats =
            repeats.filter(|(_, one)| self.ledger.as_ref() != Some(one) && one.is_exact());
        let repeats =
            repeats.flat_map(|(at, one)| doubts(of, &format!("{which}, repeat {},", at + 1), one));
        exact.chain(repeats).collect()
    }

    /// The offered rate, and the rate of each repeat.
    pub(crate) fn offered(&self) -> Option<Block> {
        let offered = self.offered_mpps_median?;
        Some(rates(offered, &self.mpps_samples, Quantity::Mpps))
    }

    /// Where the packets went: as shares, and as the equation with its witnesses.
    pub(crate) fn whole(&self) -> Vec<Block> {
        let shares = self.totals().map(|totals| totals.shares().into());
        let ledger = self.ledger.iter().flat_map(whole);
        shares.into_iter().chain(ledger).collect()
    }

    /// The equation of each repeat.
    pub(crate) fn equations(&self, of: &str) -> impl Iterator<Item = Block> {
        let repeats = self.sample_ledgers.iter();
        repeats.map(move |ledger| equation(of, ledger).into())
    }
}
