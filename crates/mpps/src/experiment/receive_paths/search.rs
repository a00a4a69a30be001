//! The search for the highest loads that keep to goals of loss, as a state machine without I/O:
//! MLRsearch (RFC 9971). [`Search::next`] says which trial to run, [`Search::take`] takes what it
//! found.
//!
//! The RFC leaves open which load is tried next. Here each goal has three targets, one after the
//! other: short trials and a wide interval at first, then longer ones. Without bounds the search
//! begins at the highest load and goes down to what that delivered; from a bound that lacks its
//! partner it moves away by steps that double; between two bounds it halves.

mod classify;
mod found;

pub(super) use found::MISSED;
pub use found::{GoalBounds, Loses, NdrTrial, Searched};

use classify::{Bounds, LoadSide, LoadTarget, TrialResult, Trials};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Targets before the goal's own, each with half the width of the one before it.
const PRECEDING: i32 = 2;
/// The largest step from a bound, over the upper load of the step.
const STEP_MAX: f64 = 0.5;
/// A load that the sender misses in this many trials in a row counts as more than it can send.
const VOIDS_MAX: usize = 4;
/// Below the precision of a place on the grid.
const ALMOST: f64 = 1e-6;
/// A sender that brings less than this share of a load twice is not asked for it again.
const HOPELESS: f64 = 0.25;

/// A goal of the search: the highest load whose trials lose no more than this.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchGoal {
    /// The share of the offered datagrams that a trial may lose.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub loss_ratio: f64,
    /// The share of the time at a load that trials with more loss may take.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub exceed_ratio: f64,
    /// How far apart the two bounds may lie, over the upper one.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub width: f64,
    /// Length of the first trials in seconds.
    pub initial_seconds: f64,
    /// Length of the trials that decide, in seconds.
    pub final_seconds: f64,
    /// How much time of such trials decides of a load, in seconds.
    pub sum_seconds: f64,
}

/// A trial to be run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SearchTrial {
    /// Its load in packets per second.
    pub(crate) pps: f64,
    pub(crate) seconds: f64,
}

/// The bounds of a goal, in packets per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RateBounds {
    /// The highest load that keeps to the goal, below all that do not.
    pub(crate) lower: Option<f64>,
    /// The lowest load that does not.
    pub(crate) upper: Option<f64>,
    /// The delivered rate at the lower bound.
    pub(crate) conditional: Option<f64>,
    /// True if nothing is left to be tried.
    pub(crate) is_settled: bool,
}

/// A search under way.
#[derive(Debug)]
pub(crate) struct Search {
    goals: Vec<Pursuit>,
    trials: Trials,
    grid: Grid,
    missed: Missed,
    /// True if the sender missed again and again what it had brought before.
    gave_up: bool,
}

/// A load that the sender missed last.
#[derive(Debug, Clone, Copy, Default)]
struct Missed {
    pps: f64,
    /// How often in a row.
    times: usize,
    /// The most that it brought.
    brought_pps: f64,
}

/// The loads that may be tried: a grid, so that what is measured for one goal serves the others.
#[derive(Debug, Clone, Copy)]
struct Grid {
    min: f64,
    max: f64,
    /// The logarithm of the ratio of two neighbours, which lie closer than the narrowest goal asks.
    unit: f64,
}

/// A goal on its way through its targets.
#[derive(Debug)]
struct Pursuit {
    targets: Vec<LoadTarget>,
    /// Which of them it is at.
    at: usize,
    /// The bounds of the target before.
    before: Bounds,
}

impl Search {
    /// A search between these loads, in packets per second.
    pub(crate) fn new(goals: &[SearchGoal], min: f64, max: f64) -> Self {
        let pursuit = |goal: &SearchGoal| Pursuit {
            targets: goal.targets(),
            at: 0,
            before: Bounds::default(),
        };
        Self {
            goals: goals.iter().map(pursuit).collect(),
            trials: Trials::default(),
            grid: Grid::new(goals, min, max),
            missed: Missed::default(),
            gave_up: false,
        }
    }

    /// The next trial, the shortest that a goal wants; none if the search is over.
    pub(crate) fn next(&mut self) -> Option<SearchTrial> {
        if self.gave_up {
            return None;
        }
        let wanted = self.goals.iter_mut();
        let wanted = wanted.filter_map(|goal| goal.next(&self.trials, self.grid));
        wanted.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    /// Takes what a trial found.
    pub(crate) fn take(&mut self, trial: SearchTrial, offered: u64, lost: u64) {
        let outcome = TrialResult {
            seconds: trial.seconds,
            loss_ratio: if offered > 0 {
                lost as f64 / offered as f64
            } else {
                1.0
            },
        };
        self.missed = Missed::default();
        self.trials.add(trial.pps, outcome);
    }

    /// Takes a trial that brought only `brought_pps` packets per second, so that it says nothing. A
    /// load that is missed repeatedly lowers the highest load to try. But if the sender brought as
    /// much before, the machine is busy with other work. Then the search gives up.
    pub(crate) fn miss(&mut self, trial: SearchTrial, brought_pps: f64) {
        if self.missed.pps != trial.pps {
            self.missed = Missed::default();
        }
        let missed = Missed {
            pps: trial.pps,
            times: self.missed.times + 1,
            brought_pps: self.missed.brought_pps.max(brought_pps),
        };
        self.missed = missed;
        let is_hopeless = missed.times > 1 && missed.brought_pps < HOPELESS * trial.pps;
        if missed.times >= VOIDS_MAX || is_hopeless {
            let below = trial.pps * (-self.grid.unit).exp();
            let max = missed.brought_pps.min(below);
            match self.trials.highest() {
                Some(taken) if max < taken => self.gave_up = true,
                _ => self.grid.max = max,
            }
        }
    }

    /// The highest load that may still be tried: all that the sender can, if it missed one.
    pub(crate) fn max(&self) -> f64 {
        self.grid.max
    }

    /// The answer for each goal, in the order of the goals.
    pub(crate) fn answers(&mut self) -> Vec<RateBounds> {
        let (trials, grid, gave_up) = (&self.trials, self.grid, self.gave_up);
        let answer = |goal: &mut Pursuit| {
            let is_over = goal.next(trials, grid).is_none();
            let target = goal.targets.last().copied();
            let bounds = target.map_or_else(Bounds::default, |target| trials.bounds(&target));
            // One bound is enough only at an end of what may be tried.
            let is_settled = is_over
                && match (bounds.lower, bounds.upper) {
                    (Some(_), Some(_)) => target.is_some_and(|target| target.is_reached(bounds)),
                    (Some(_), None) => !gave_up,
                    (None, Some(upper)) => upper <= grid.min,
                    (None, None) => grid.max < grid.min,
                };
            RateBounds {
                lower: bounds.lower,
                upper: bounds.upper,
                conditional: target
                    .zip(bounds.lower)
                    .map(|(target, lower)| trials.conditional(&target, lower)),
                is_settled,
            }
        };
        self.goals.iter_mut().map(answer).collect()
    }
}

impl SearchGoal {
    /// The goal's targets, its own last: the time that decides grows by equal factors.
    fn targets(&self) -> Vec<LoadTarget> {
        let growth = self.initial_seconds / self.sum_seconds;
        let target = |before: i32| {
            let sum_seconds = match before {
                0 => self.sum_seconds,
                PRECEDING => self.initial_seconds,
                _ => self.sum_seconds * growth.powf(f64::from(before) / f64::from(PRECEDING)),
            };
            LoadTarget {
                loss_ratio: self.loss_ratio,
                exceed_ratio: self.exceed_ratio,
                width: (self.width * 2_f64.powi(before)).min(STEP_MAX),
                trial_seconds: self.final_seconds.min(sum_seconds),
                sum_seconds,
            }
        };
        (0..=PRECEDING).rev().map(target).collect()
    }
}

impl Pursuit {
    /// The trial that the goal wants next. A target that was reached is left for good.
    fn next(&mut self, trials: &Trials, grid: Grid) -> Option<SearchTrial> {
        loop {
            let target = &self.targets[self.at];
            if let Some(pps) = target.next(trials, self.before, grid) {
                let seconds = target.trial_seconds;
                return Some(SearchTrial { pps, seconds });
            }
            if self.at + 1 == self.targets.len() {
                return None;
            }
            self.before = trials.bounds(target);
            self.at += 1;
        }
    }
}

impl LoadTarget {
    /// The load that brings this target further; none if it is reached, or out of reach.
    fn next(&self, trials: &Trials, before: Bounds, grid: Grid) -> Option<f64> {
        let bounds = trials.bounds(self);
        if grid.max < grid.min || self.is_reached(bounds) {
            return None;
        }
        let is_inside = |pps: &f64| {
            let above = bounds.lower.is_none_or(|lower| *pps > lower);
            above && bounds.upper.is_none_or(|upper| *pps < upper) && *pps <= grid.max
        };
        // The bounds of shorter trials come first.
        let mut known = [before.lower, before.upper].into_iter().flatten();
        let is_open = |pps: &f64| is_inside(pps) && trials.side(self, *pps).is_none();
        if let Some(pps) = known.find(is_open) {
            return Some(pps);
        }
        let step = |side| self.step(trials.count(self, side), grid);
        let above = |lower| grid.place(lower) + step(LoadSide::Lower);
        let place = match (bounds.lower, bounds.upper) {
            (None, None) => grid.place(grid.max),
            (None, Some(upper)) => {
                let delivered = upper * (1.0 - trials.mean_loss(upper)) / (1.0 - self.loss_ratio);
                let delivered = grid.place(delivered.max(grid.min)) + ALMOST;
                (grid.place(upper) - step(LoadSide::Upper)).min(delivered.floor())
            }
            (Some(lower), None) => above(lower),
            (Some(lower), Some(upper)) => {
                above(lower).min(f64::midpoint(grid.place(lower), grid.place(upper)))
            }
        };
        let near = [0.0, 1.0, -1.0].map(|by| grid.load(place.round() + by));
        near.into_iter().find(is_inside)
    }

    fn is_reached(&self, bounds: Bounds) -> bool {
        match (bounds.lower, bounds.upper) {
            (Some(lower), Some(upper)) => upper - lower <= upper * self.width,
            _ => false,
        }
    }

    /// Places from a bound to the next load: the width of the target, which doubles with every bound
    /// that was found on that side.
    fn step(&self, found: usize, grid: Grid) -> f64 {
        let places = |share: f64| -(-share).ln_1p() / grid.unit;
        let doublings = i32::try_from(found.saturating_sub(1)).unwrap_or(i32::MAX);
        let width = (places(self.width) + ALMOST).floor().max(1.0);
        (width * 2_f64.powi(doublings.min(30))).min(places(STEP_MAX).ceil())
    }
}

impl Grid {
    fn new(goals: &[SearchGoal], min: f64, max: f64) -> Self {
        let narrowest = goals.iter().map(|goal| goal.width).fold(STEP_MAX, f64::min);
        let (whole, most) = ((max / min).ln(), -(-narrowest).ln_1p());
        Self {
            min,
            max,
            // A little closer, so that no rounding makes neighbours lie too far apart.
            unit: whole / (whole / most + ALMOST).ceil().max(1.0),
        }
    }

    /// The place of a load; that of a load of the grid is almost a whole number.
    fn place(&self, load: f64) -> f64 {
        (load / self.min).ln() / self.unit
    }

    fn load(&self, place: f64) -> f64 {
        // The ends are loads themselves, even an end that the sender set.
        if place + ALMOST >= self.place(self.max) {
            return self.max;
        }
        (self.min * (place * self.unit).exp()).max(self.min)
    }
}

#[cfg(test)]
mod tests;
