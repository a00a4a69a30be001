//! The repeated runs of one thing: what is kept of them, and how they are told.

use super::run::Run;
use super::sample::mpps;
use crate::measure::document::{Totals, doubts, rates, spread, whole};
use crate::measure::samples::{extremes, median};
use mpps_host::Ledger;
use mpps_report::{Bar, Bars, Block, Hue, Measured, Quantity, Section, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Received, in million datagrams per second.
    pub mpps: f64,
    /// Offered, in million datagrams per second.
    pub offered_mpps: f64,
    /// Where every packet went.
    pub ledger: Ledger,
}

impl From<Run> for Sample {
    fn from(run: Run) -> Self {
        Self {
            mpps: run.mpps,
            offered_mpps: mpps(&run.tx),
            ledger: run.ledger,
        }
    }
}

/// The runs of one thing; none if it was skipped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Runs {
    /// The median rate of `samples`.
    pub mpps_median: Option<f64>,
    /// The run for exactness, drop probe on and traffic stamped, whose rate says nothing; null if
    /// there was none.
    pub exact: Option<Sample>,
    /// The runs for the rate.
    pub samples: Vec<Sample>,
}

impl Runs {
    /// These runs, of which the first so many are for exactness.
    pub(crate) fn new(runs: &[Sample], exact: usize) -> Self {
        let (first, samples) = runs.split_at(exact.min(runs.len()));
        let mut runs = Self {
            mpps_median: None,
            exact: first.first().cloned(),
            samples: samples.to_vec(),
        };
        runs.mpps_median = median(&runs.rates());
        runs
    }

    /// The rate of each repeat.
    pub(crate) fn rates(&self) -> Vec<f64> {
        self.samples.iter().map(|run| run.mpps).collect()
    }

    /// Every ledger.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.exact
            .iter()
            .chain(&self.samples)
            .map(|run| &run.ledger)
    }

    /// Where the packets went.
    pub(crate) fn totals(&self) -> Option<Totals> {
        let exact = self.exact.as_ref().map(|run| &run.ledger);
        let samples = self.samples.iter().map(|run| run.ledger.clone());
        Totals::of(exact, &samples.collect::<Vec<_>>())
    }

    /// The median rate with its unit.
    pub(crate) fn rate(&self) -> Option<Quantity> {
        self.mpps_median.map(Quantity::Mpps)
    }

    /// The lowest and the highest rate.
    pub(crate) fn spread(&self) -> Option<String> {
        spread(&self.rates(), Quantity::Mpps)
    }

    /// A bar of the median rate, with its spread.
    pub(crate) fn bar(&self, name: &str, skipped: Option<&String>, range: [f64; 2]) -> Bar {
        let measured = Measured {
            parts: self
                .mpps_median
                .map(|rate| (Hue::Main, rate))
                .into_iter()
                .collect(),
            spread: extremes(&self.rates()),
            range: Some(range),
            figure: self.rate().map_or("-".to_owned(), |rate| rate.to_string()),
            ..Measured::default()
        };
        Bar {
            name: name.into(),
            link: String::new(),
            outcome: skipped.map_or(Ok(measured), |why| Err(format!("skipped: {why}"))),
        }
    }

    /// What is to be doubted of the ledgers.
    pub(crate) fn doubts(&self, of: &str) -> Vec<Block> {
        let ledgers = self.ledgers().enumerate();
        let exact = ledgers.filter(|(_, ledger)| ledger.is_exact());
        let told = exact.map(|(at, ledger)| doubts(of, &format!(", run {},", at + 1), ledger));
        told.flatten().collect()
    }

    /// All that is known: what was offered, each rate, and where the packets went.
    pub(crate) fn section(&self, heading: &str) -> Section {
        let mut blocks: Vec<Block> = Vec::new();
        let offered: Vec<f64> = self.samples.iter().map(|run| run.offered_mpps).collect();
        blocks.extend(median(&offered).map(|offered| rates(offered, &self.rates())));
        blocks.extend(self.totals().map(|totals| totals.shares().into()));
        let ledgers = self.ledgers().take(1);
        blocks.extend(ledgers.flat_map(whole));
        Section {
            heading: heading.into(),
            anchor: String::new(),
            figure: Text::new().strong(
                self.rate()
                    .map_or_else(String::new, |rate| rate.to_string()),
            ),
            blocks,
        }
    }
}

/// The bars of a page; `range` is what stands beside each of them.
pub(crate) fn bars(range: &str, bars: impl Iterator<Item = Bar>) -> Block {
    let bars = Bars {
        unit: "Mpps".to_owned(),
        key: vec![(Hue::Main, "received, median".to_owned())],
        range: Some(range.to_owned()),
        break_at: None,
        bars: bars.collect(),
    };
    Block::on_page([bars.into()])
}
