//! Judges a load by its trials, by the rules of RFC 9971. It is a lower or an upper bound of a
//! goal, and has a rate of delivery. No I/O, and no choice of loads.

/// The conditions for a load, and the trial time that decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LoadTarget {
    /// A trial that loses a greater share is a high-loss trial.
    pub(super) loss_ratio: f64,
    /// Which share of the time at a lower bound may be of high-loss trials.
    pub(super) exceed_ratio: f64,
    /// How far apart the bounds may lie, over the upper one.
    pub(super) width: f64,
    /// A shorter trial counts as a short one, which says less.
    pub(super) trial_seconds: f64,
    /// So much time of trials decides.
    pub(super) sum_seconds: f64,
}

/// One trial at a load, as far as it says something of that load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TrialResult {
    pub(super) seconds: f64,
    /// Lost of what was offered.
    pub(super) loss_ratio: f64,
}

/// The side of a load for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadSide {
    Lower,
    Upper,
}

/// The bounds that count: the lowest upper bound, and the highest lower bound below it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Bounds {
    pub(super) lower: Option<f64>,
    pub(super) upper: Option<f64>,
}

/// All trials of a search, by load in packets per second.
#[derive(Debug, Clone, Default)]
pub(super) struct Trials {
    /// In rising order.
    loads: Vec<(f64, Vec<TrialResult>)>,
}

impl LoadTarget {
    /// The side of a load with these trials, if it is decided.
    fn side(&self, trials: &[TrialResult]) -> Option<LoadSide> {
        let time = |is_long: bool, is_high: bool| -> f64 {
            let of_kind = trials.iter().filter(|trial| {
                let long = trial.seconds >= self.trial_seconds;
                long == is_long && (trial.loss_ratio > self.loss_ratio) == is_high
            });
            of_kind.map(|trial| trial.seconds).sum()
        };
        let exceed = self.exceed_ratio;
        // Short trials of low loss only make up for short ones of high loss.
        let made_up = time(false, false) * exceed / (1.0 - exceed);
        let high = time(true, true) + (time(false, true) - made_up).max(0.0);
        let low = time(true, false);
        let whole = (low + high).max(self.sum_seconds);
        let allowed = whole * exceed;
        // If all that is still to come lost little, and if all of it lost much.
        match (high <= allowed, whole - low <= allowed) {
            (true, true) => Some(LoadSide::Lower),
            (false, false) => Some(LoadSide::Upper),
            _ => None,
        }
    }

    /// The loss ratio that only the allowed share of the time of long trials exceeds, where what is
    /// missing to the sum is taken to lose everything.
    fn quantile(&self, trials: &[TrialResult]) -> f64 {
        let mut long: Vec<&TrialResult> = trials
            .iter()
            .filter(|trial| trial.seconds >= self.trial_seconds)
            .collect();
        long.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
        let time: f64 = long.iter().map(|trial| trial.seconds).sum();
        let mut rest = time.max(self.sum_seconds) * (1.0 - self.exceed_ratio);
        let mut quantile = None;
        for trial in long {
            if quantile.is_some() && rest <= 0.0 {
                return quantile.unwrap_or(1.0);
            }
            quantile = Some(trial.loss_ratio);
            rest -= trial.seconds;
        }
        if rest > 0.0 {
            1.0
        } else {
            quantile.unwrap_or(1.0)
        }
    }
}

impl Trials {
    pub(super) fn add(&mut self, pps: f64, outcome: TrialResult) {
        let place = self
            .loads
            .binary_search_by(|(load, _)| load.total_cmp(&pps));
        match place {
            Ok(at) => self.loads[at].1.push(outcome),
            Err(at) => self.loads.insert(at, (pps, vec![outcome])),
        }
    }

    /// The highest load of all.
    pub(super) fn highest(&self) -> Option<f64> {
        self.loads.last().map(|(load, _)| *load)
    }

    fn at(&self, pps: f64) -> &[TrialResult] {
        let place = self
            .loads
            .binary_search_by(|(load, _)| load.total_cmp(&pps));
        place.map_or(&[], |at| &self.loads[at].1)
    }

    /// The side of a load for this target, if it is decided.
    pub(super) fn side(&self, target: &LoadTarget, pps: f64) -> Option<LoadSide> {
        target.side(self.at(pps))
    }

    /// How many loads are decided to be so.
    pub(super) fn count(&self, target: &LoadTarget, side: LoadSide) -> usize {
        let sides = self.loads.iter().map(|(_, trials)| target.side(trials));
        sides.filter(|one| *one == Some(side)).count()
    }

    /// The bounds that count for this target. A load above an upper bound is none, whatever its
    /// trials lost.
    pub(super) fn bounds(&self, target: &LoadTarget) -> Bounds {
        let mut bounds = Bounds::default();
        for (pps, trials) in &self.loads {
            match target.side(trials) {
                Some(LoadSide::Lower) => bounds.lower = Some(*pps),
                Some(LoadSide::Upper) => {
                    bounds.upper = Some(*pps);
                    break;
                }
                None => {}
            }
        }
        bounds
    }

    /// The mean loss of the trials at a load.
    pub(super) fn mean_loss(&self, pps: f64) -> f64 {
        let trials = self.at(pps);
        let sum: f64 = trials.iter().map(|trial| trial.loss_ratio).sum();
        sum / trials.len().max(1) as f64
    }

    /// The conditional throughput of a load, which is to be a lower bound of this target: what of it
    /// is delivered in all but the allowed share of the time.
    pub(super) fn conditional(&self, target: &LoadTarget, pps: f64) -> f64 {
        pps * (1.0 - target.quantile(self.at(pps)))
    }
}
