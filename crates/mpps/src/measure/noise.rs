//! Which differences between two sets of samples are no noise.
//!
//! The rule, for the rates of one rung in two runs, on a logarithmic scale:
//!
//! 1. The medians differ by more than 5 %.
//! 2. They differ by more than a multiple of the noise, divided by the root of the sample count.
//!    The noise is taken from how far samples lie from their own median: mostly in this rung, a
//!    little in all rungs, and never less than in all rungs together. The few samples of one rung
//!    may agree by luck, those of fifteen do not.
//! 3. The samples do not overlap; from seven samples on, one stray on either side is forgiven.
//!
//! All three, or it is noise. The multiples were found by simulation, and the tests below hold them
//! to it: a whole comparison of 15 rungs gives a false alarm in under 5 of 100 cases, and five
//! samples find a drop by a quarter in over 95.

use crate::measure::samples::median;

/// Fewest samples of a rung that say anything about noise.
pub(crate) const SAMPLES_MIN: usize = 3;

/// Differences below this share are never called a change: turbo, temperature and neighbours do
/// more between two runs than within one.
pub(crate) const CHANGE_MIN: f64 = 0.05;

/// Rates below this (one packet a second, in Mpps) count as this, so that a logarithm exists.
pub(crate) const RATE_MIN: f64 = 1e-6;

/// The change of one measured quantity between two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeasuredChange {
    /// No difference that the noise would not make.
    Same,
    /// The second is higher.
    Better,
    /// The second is lower.
    Worse,
}

/// How far apart samples of the same thing lie, on a logarithmic scale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noise {
    /// The standard deviation over all rungs.
    machine: f64,
}

impl Noise {
    /// The noise of rungs that were measured twice.
    pub(crate) fn of<'a>(pairs: impl Iterator<Item = (&'a [f64], &'a [f64])>) -> Self {
        let mut scaled = Vec::new();
        for (a, b) in pairs {
            let factor = to_deviation(a.len().min(b.len()));
            scaled.extend(
                residuals(a)
                    .into_iter()
                    .chain(residuals(b))
                    .map(|residual| residual * factor),
            );
        }
        Self {
            machine: median(&scaled).unwrap_or(0.0),
        }
    }

    /// The verdict on one rung and the smallest change that would have been seen, as a share.
    pub(crate) fn judge(&self, a: &[f64], b: &[f64]) -> (MeasuredChange, f64) {
        let samples = a.len().min(b.len());
        let mut own = residuals(a);
        own.extend(residuals(b));
        let own = median(&own).unwrap_or(0.0) * to_deviation(samples);
        let noise = self.machine.max(0.7 * own + 0.3 * self.machine);
        let error = noise * (1.0 / a.len() as f64 + 1.0 / b.len() as f64).sqrt();
        let threshold = (multiple(samples) * error).max(CHANGE_MIN.ln_1p());
        let (a, b) = (logarithms(a), logarithms(b));
        let change = median(&b).unwrap_or(0.0) - median(&a).unwrap_or(0.0);
        let verdict = if change.abs() <= threshold {
            MeasuredChange::Same
        } else if change < 0.0 && apart(&b, &a) {
            MeasuredChange::Worse
        } else if change > 0.0 && apart(&a, &b) {
            MeasuredChange::Better
        } else {
            MeasuredChange::Same
        };
        (verdict, threshold.exp_m1())
    }
}

/// The item with the highest median, and the others that are within the noise of it. Those are all
/// if there are too few samples.
pub(crate) fn leader<'a>(rows: &[(&'a str, Vec<f64>)]) -> Option<(&'a str, Vec<&'a str>)> {
    let middle = |rates: &[f64]| median(rates).unwrap_or(0.0);
    let (name, most) = rows
        .iter()
        .max_by(|(_, a), (_, b)| middle(a).total_cmp(&middle(b)))?;
    let noise = Noise::of(rows.iter().map(|(_, rates)| (&**rates, &**rates)));
    let alike = rows.iter().filter(|(other, rates)| {
        let is_few = rates.len().min(most.len()) < SAMPLES_MIN;
        other != name && (is_few || noise.judge(rates, most).0 != MeasuredChange::Better)
    });
    Some((name, alike.map(|(other, _)| *other).collect()))
}

/// True if the samples of `low` lie below those of `high`; one stray is forgiven among seven.
fn apart(low: &[f64], high: &[f64]) -> bool {
    let stray = |samples: &[f64]| usize::from(samples.len() >= 7);
    let top = low
        .len()
        .checked_sub(1 + stray(low))
        .and_then(|at| low.get(at));
    let bottom = high.get(stray(high));
    matches!((top, bottom), (Some(top), Some(bottom)) if top < bottom)
}

/// How many standard errors apart two medians have to be. Few samples know their noise badly.
fn multiple(samples: usize) -> f64 {
    match samples {
        ..=3 => 6.0,
        4 => 5.0,
        5 | 6 => 4.2,
        _ => 4.5,
    }
}

/// From the median distance to the own median to a standard deviation. Small samples lie close to
/// their own median because one of them is it: found by simulating normal samples of that number.
fn to_deviation(samples: usize) -> f64 {
    match samples {
        ..=3 => 2.46,
        4 => 2.07,
        5 => 1.88,
        6 => 1.87,
        7 => 1.74,
        8 => 1.72,
        9 | 10 => 1.67,
        _ => 1.62,
    }
}

fn residuals(samples: &[f64]) -> Vec<f64> {
    let logs = logarithms(samples);
    let middle = median(&logs).unwrap_or(0.0);
    logs.into_iter().map(|log| (log - middle).abs()).collect()
}

/// The samples' logarithms in rising order.
fn logarithms(samples: &[f64]) -> Vec<f64> {
    let mut logs: Vec<f64> = samples.iter().map(|rate| rate.max(RATE_MIN).ln()).collect();
    logs.sort_by(f64::total_cmp);
    logs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A generator with a seed, so that a failure can be repeated (splitmix64, Vigna 2015).
    struct Dice(u64);

    impl Dice {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.0;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// A normal number (Box and Muller 1958).
        fn normal(&mut self) -> f64 {
            let (radius, angle) = (1.0 - self.uniform(), self.uniform());
            (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
        }
    }

    /// Two runs of 15 rungs. The noise is what one bare receiver showed in eight runs of one
    /// program: 0.64 to 0.76 Mpps, a standard deviation of 6 %.
    struct World {
        samples: usize,
        /// Factors on the noise of 6 %, one rung after the other.
        spread: &'static [f64],
        /// How far two runs as a whole lie apart.
        between: f64,
        /// How many samples are strays, a third lower than the others.
        strays: f64,
    }

    impl World {
        /// The share of comparisons that call any rung but the eighth changed, and the share that
        /// call the eighth worse.
        fn try_out(&self, factor: f64) -> (f64, f64) {
            const TRIALS: u64 = 1000;
            let mut dice = Dice(2015);
            let (mut alarms, mut found) = (0, 0);
            for _ in 0..TRIALS {
                let shift = [dice.normal() * self.between, dice.normal() * self.between];
                let pairs: Vec<[Vec<f64>; 2]> = (0..15)
                    .map(|rung| {
                        [0, 1].map(|side| {
                            let real = if (rung, side) == (7, 1) { factor } else { 1.0 };
                            self.draw(&mut dice, rung, 0.7 * real * shift[side].exp())
                        })
                    })
                    .collect();
                let noise = Noise::of(pairs.iter().map(|[a, b]| (&**a, &**b)));
                let verdicts: Vec<_> = pairs.iter().map(|[a, b]| noise.judge(a, b).0).collect();
                found += u32::from(verdicts[7] == MeasuredChange::Worse);
                let mut others = verdicts
                    .iter()
                    .enumerate()
                    .filter(|(rung, _)| *rung != 7 || factor == 1.0);
                alarms += u32::from(others.any(|(_, verdict)| *verdict != MeasuredChange::Same));
            }
            (
                f64::from(alarms) / TRIALS as f64,
                f64::from(found) / TRIALS as f64,
            )
        }

        fn draw(&self, dice: &mut Dice, rung: usize, rate: f64) -> Vec<f64> {
            let deviation = 0.06 * self.spread[rung % self.spread.len()];
            (0..self.samples)
                .map(|_| {
                    let stray = if dice.uniform() < self.strays {
                        0.65
                    } else {
                        1.0
                    };
                    rate * stray * (dice.normal() * deviation).exp()
                })
                .collect()
        }
    }

    /// `count` rates with gaps between them. No rate is 1.
    fn spread_out(count: i32) -> Vec<f64> {
        (0..count)
            .map(|at| 2.0 * 1.1_f64.powi(at * at % 7))
            .collect()
    }

    #[test]
    fn the_leader_has_the_most_and_few_samples_tell_it_from_none() {
        let row = |name, middle: f64, count| (name, vec![middle; count]);
        let three = [
            row("low", 1.0, 3),
            row("most", 9.0, 3),
            row("alike", 8.9, 3),
        ];
        assert_eq!(leader(&three), Some(("most", vec!["alike"])));
        let two = [row("low", 1.0, 3), row("most", 9.0, 2)];
        assert_eq!(leader(&two), Some(("most", vec!["low"])));
        assert_eq!(leader(&[]), None);
    }

    /// Computed apart from this program, by the rule at the top of this file: the smallest change
    /// that counts on a quiet machine and on a noisy one.
    #[test]
    fn the_threshold_is_what_the_rule_says() {
        let table = [
            (2, [0.555_809, 1.827_041]),
            (3, [1.079_861, 1.669_958]),
            (4, [0.762_697, 1.118_720]),
            (5, [0.371_410, 0.635_345]),
            (6, [0.434_108, 0.632_044]),
            (7, [0.310_051, 0.573_901]),
            (8, [0.285_759, 0.532_511]),
            (9, [0.260_390, 0.498_583]),
            (10, [0.246_648, 0.470_139]),
            (11, [0.227_258, 0.445_862]),
            (12, [0.217_314, 0.424_838]),
        ];
        for (count, expected) in table {
            for (machine, expected) in [0.01, 0.2].into_iter().zip(expected) {
                let (a, b) = (spread_out(count), spread_out(count + 2));
                let (_, threshold) = Noise { machine }.judge(&a, &b);
                assert!((threshold - expected).abs() < 1e-6, "{count}: {threshold}");
            }
        }
        let pairs = [(3, 9), (5, 5), (12, 11)].map(|(a, b)| (spread_out(a), spread_out(b)));
        let noise = Noise::of(pairs.iter().map(|(a, b)| (&**a, &**b)));
        assert!((noise.machine - 0.179_183).abs() < 1e-6, "{noise:?}");
    }

    #[test]
    fn samples_that_overlap_are_no_change_but_for_one_stray_among_seven() {
        let with = |usual: f64, strays: &[f64], count| {
            let mut samples = vec![usual; count];
            samples[..strays.len()].copy_from_slice(strays);
            samples
        };
        for (a, b, rises) in [
            (with(1.0, &[], 5), with(1.04, &[], 5), false),
            (with(1.0, &[], 5), with(1.06, &[], 5), true),
            (with(1.0, &[3.0], 6), with(2.0, &[], 6), false),
            (with(1.0, &[], 6), with(2.0, &[0.5], 6), false),
            (with(1.0, &[3.0], 7), with(2.0, &[0.5], 7), true),
            (with(1.0, &[3.0, 3.0], 7), with(2.0, &[], 7), false),
            (with(1.0, &[], 7), with(2.0, &[0.5, 0.5], 7), false),
        ] {
            let [up, down] =
                [(&a, &b), (&b, &a)].map(|(a, b)| Noise { machine: 0.0 }.judge(a, b).0);
            let expected = match rises {
                true => (MeasuredChange::Better, MeasuredChange::Worse),
                false => (MeasuredChange::Same, MeasuredChange::Same),
            };
            assert_eq!((up, down), expected, "{a:?} {b:?}");
        }
    }

    const EVEN: World = World {
        samples: 5,
        spread: &[1.0],
        between: 0.0,
        strays: 0.0,
    };

    #[test]
    fn five_samples_find_a_drop_of_a_quarter_and_seldom_cry_wolf() {
        let (alarms, _) = EVEN.try_out(1.0);
        assert!(alarms < 0.05, "{alarms}");
        let (_, found) = EVEN.try_out(0.75);
        assert!(found > 0.95, "{found}");
    }

    #[test]
    fn any_number_of_samples_seldom_cries_wolf() {
        for samples in [3, 4, 6, 7, 9] {
            let (alarms, _) = World { samples, ..EVEN }.try_out(1.0);
            assert!(alarms < 0.05, "{samples} samples: {alarms}");
        }
    }

    #[test]
    fn uneven_noise_and_runs_that_lie_apart_seldom_cry_wolf() {
        for samples in [5, 7] {
            let world = World {
                samples,
                spread: &[0.3, 1.0, 1.0, 1.5],
                between: 0.015,
                strays: 0.0,
            };
            let (alarms, _) = world.try_out(1.0);
            assert!(alarms < 0.08, "{samples} samples: {alarms}");
        }
    }

    #[test]
    fn strays_do_not_hide_a_drop_by_a_third_from_seven_samples() {
        let world = World {
            samples: 7,
            strays: 0.05,
            ..EVEN
        };
        let ((alarms, _), (_, found)) = (world.try_out(1.0), world.try_out(0.67));
        assert!(alarms < 0.05, "{alarms}");
        assert!(found > 0.9, "{found}");
    }

    proptest! {
        #[test]
        fn any_rates_give_a_verdict(
            a in prop::collection::vec(any::<f64>(), 0..12),
            b in prop::collection::vec(any::<f64>(), 0..12),
        ) {
            let noise = Noise::of([(&*a, &*b)].into_iter());
            let mirrored = match noise.judge(&b, &a).0 {
                MeasuredChange::Better => MeasuredChange::Worse,
                MeasuredChange::Worse => MeasuredChange::Better,
                other => other,
            };
            prop_assert_eq!(noise.judge(&a, &b).0, mirrored);
        }
    }
}
