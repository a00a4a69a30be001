//! The page since it began: the last minute, totals and peaks.

use mpps_host::check::{between_reads, ledger};
use mpps_host::{Observed, Overview};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The time that a line of bars covers.
const MINUTE: f64 = 60.0;
/// A bar, from nothing to the largest. A little is more than nothing.
const BARS: [char; 9] = [
    '\u{b7}', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
    '\u{2588}',
];

/// UDP of the network namespace since the page began.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TopTotals {
    /// How long ago that is.
    pub(super) seconds: f64,
    /// Datagrams that came.
    pub(super) offered: u64,
    /// Datagrams that programs read.
    pub(super) delivered: u64,
    /// Datagrams that were lost.
    pub(super) lost: u64,
    /// The rest, on either side of zero.
    pub(super) unaccounted: i64,
    /// How many of the rest may be only the time between two readings.
    between_reads: u64,
    /// The most that came per second, between two looks.
    pub(super) peak_offered_pps: f64,
    /// The most that were lost per second, between two looks.
    pub(super) peak_lost_pps: f64,
}

/// The rates between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RatesOfLook {
    /// When the later look was, in seconds since the page began.
    end: f64,
    seconds: f64,
    /// Datagrams that came per second.
    pub(super) came: f64,
    /// Datagrams that were lost per second.
    pub(super) lost: f64,
}

/// The looks of the last minute, and what all of them saw.
#[derive(Debug, Default)]
pub(super) struct TopHistory {
    looks: VecDeque<RatesOfLook>,
    pub(super) totals: TopTotals,
}

impl TopHistory {
    /// Adds a look; `in_all` is everything since the page began.
    pub(super) fn add(&mut self, page: &Overview, in_all: &Observed) {
        let ledger = ledger(in_all);
        let rate = |count: u64| count as f64 / page.seconds;
        let (came, lost) = (rate(page.ledger.offered), rate(page.ledger.lost()));
        let before = &self.totals;
        self.totals = TopTotals {
            seconds: in_all.seconds(),
            offered: ledger.offered,
            delivered: ledger.delivered,
            lost: ledger.lost(),
            unaccounted: ledger.unaccounted,
            between_reads: between_reads(in_all),
            peak_offered_pps: before.peak_offered_pps.max(came),
            peak_lost_pps: before.peak_lost_pps.max(lost),
        };
        self.remember(RatesOfLook {
            end: self.totals.seconds,
            seconds: page.seconds,
            came,
            lost,
        });
    }

    fn remember(&mut self, look: RatesOfLook) {
        self.looks.push_back(look);
        while self
            .looks
            .front()
            .is_some_and(|first| first.end <= look.end - MINUTE)
        {
            self.looks.pop_front();
        }
    }

    /// The last minute as `width` bars; each is the highest rate in its part of the minute. Before the
    /// page began there are none.
    pub(super) fn bars(&self, of: fn(&RatesOfLook) -> f64, width: usize) -> String {
        let now = self.looks.back().map_or(0.0, |last| last.end);
        let most = self.looks.iter().map(of).fold(0.0, f64::max);
        let part = MINUTE / width.max(1) as f64;
        let bars = (0..width).map(|at| {
            let end = now - part * (width - 1 - at) as f64;
            let looks = self.looks.iter();
            let here = looks.filter(|look| look.end > end - part && look.end - look.seconds < end);
            match here.map(of).reduce(f64::max) {
                None => ' ',
                Some(rate) => {
                    BARS[((rate / most.max(f64::MIN_POSITIVE) * 8.0).ceil() as usize).min(8)]
                }
            }
        });
        bars.collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A history of looks each second with these rates of losses.
    pub(in crate::command::top) fn history(lost: &[f64]) -> TopHistory {
        let mut history = TopHistory::default();
        for (at, &lost) in lost.iter().enumerate() {
            history.remember(RatesOfLook {
                end: (at + 1) as f64,
                seconds: 1.0,
                came: 352_000.0,
                lost,
            });
        }
        history.totals = TopTotals {
            seconds: lost.len() as f64,
            offered: 352_000 * lost.len() as u64,
            lost: 2000,
            peak_offered_pps: 352_000.0,
            peak_lost_pps: 2000.0,
            ..TopTotals::default()
        };
        history
    }

    #[test]
    fn bars_are_of_the_last_minute() {
        let lost = |rates: &[f64], width| history(rates).bars(|look| look.lost, width);
        assert_eq!(lost(&[], 4), "    ");
        assert_eq!(lost(&[0.0; 60], 6), "\u{b7}".repeat(6));
        // One in a hundred thousand is seen, and what is older than a minute is not.
        let mut rates = vec![1e9; 10];
        rates.extend([0.0; 58]);
        rates.extend([1.0, 100_000.0]);
        assert_eq!(lost(&rates, 60), "\u{b7}".repeat(58) + "\u{2581}\u{2588}");
        assert_eq!(lost(&rates, 6), "\u{b7}".repeat(5) + "\u{2588}");
        assert_eq!(lost(&[4.0, 8.0], 60).trim_start(), "\u{2584}\u{2588}");
        assert_eq!(lost(&rates, 0), "");
    }

    #[test]
    fn a_look_longer_than_a_minute_fills_it() {
        let mut history = TopHistory::default();
        history.remember(RatesOfLook {
            end: 600.0,
            seconds: 600.0,
            came: 1.0,
            lost: 0.0,
        });
        assert_eq!(history.bars(|look| look.came, 5), "\u{2588}".repeat(5));
    }
}
