//! What a path still delivers when more is offered than it can take: receive livelock, or none.

use super::path::Path;
use super::result::{OverloadCurve, OverloadPoint};
use super::sample::Sample;
use super::stage::Stage;
use super::traffic::Purpose;
use anyhow::Result;
use std::time::Duration;

/// Which loads are offered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loads {
    /// In multiples of the path's peak.
    pub(crate) factors: &'static [f64],
    /// Length of each run.
    pub(crate) time: Duration,
    /// Runs per load; the median one counts.
    pub(crate) repeats: usize,
}

impl Default for Loads {
    fn default() -> Self {
        Self {
            factors: &[0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0],
            time: Duration::from_millis(500),
            repeats: 3,
        }
    }
}

/// The search for a path's peak begins with this rate, and grows by [`STEP`].
const RATE_MIN_PPS: f64 = 50_000.0;
const STEP: f64 = 1.3;
/// The search ends when goodput stays below this share of the best one: it only falls from there.
const PAST_PEAK: f64 = 0.8;
/// So does a sender that brings less than this share of what it was asked for.
const SPENT: f64 = 0.5;
/// Steps of the search at the most: 50 000 times 1.3 to the 24th is 27 million a second.
const STEPS_MAX: usize = 24;

/// Draws the curve of one path on one stage, or none if Ctrl-C came.
pub(crate) fn overload(
    stage: &Stage<'_>,
    path: &Path,
    loads: &Loads,
    mut step: impl FnMut(f64),
) -> Result<Option<OverloadCurve>> {
    let Some(peak_pps) = peak(stage, path, loads.time, &mut step)? else {
        return Ok(None);
    };
    let mut points = Vec::new();
    let mut mode = String::new();
    for factor in loads.factors {
        let mut samples = Vec::new();
        for _ in 0..loads.repeats {
            step(*factor);
            samples.push(stage.run(path, loads.time, at(peak_pps * factor))?);
            if stage.interrupt.came() {
                return Ok(None);
            }
        }
        samples.sort_by(|a, b| a.mpps.total_cmp(&b.mpps));
        let middle = samples.len() / 2;
        if let Some(sample) = samples.into_iter().nth(middle) {
            mode.clone_from(&sample.mode);
            points.push(OverloadPoint {
                load: *factor,
                offered_mpps: sample.offered_mpps,
                goodput_mpps: sample.mpps,
                ledger: sample.ledger,
            });
        }
    }
    let goodputs = points.iter().map(|point| point.goodput_mpps);
    let peak_mpps = goodputs.fold(0.0, f64::max);
    let last = points.last().map_or(0.0, |point| point.goodput_mpps);
    Ok(Some(OverloadCurve {
        path: path.name.to_owned(),
        mode: match path.variant {
            "" => mode,
            variant => format!("{variant}: {mode}"),
        },
        napi: stage.napi_place(),
        peak_mpps,
        kept: if peak_mpps > 0.0 {
            last / peak_mpps
        } else {
            0.0
        },
        points,
    }))
}

/// A run that offers this rate.
fn at(rate_pps: f64) -> Purpose<'static> {
    Purpose {
        rate_pps: Some(rate_pps),
        ..Purpose::default()
    }
}

/// The rate at which the path delivers most, in datagrams per second.
fn peak(
    stage: &Stage<'_>,
    path: &Path,
    time: Duration,
    step: &mut impl FnMut(f64),
) -> Result<Option<f64>> {
    let mut best: f64 = 0.0;
    let mut past = 0;
    let mut rate_pps = RATE_MIN_PPS;
    for _ in 0..STEPS_MAX {
        step(0.0);
        let sample: Sample = stage.run(path, time, at(rate_pps))?;
        if stage.interrupt.came() {
            return Ok(None);
        }
        best = best.max(sample.mpps);
        // One low run is noise, two in a row are the slope behind the peak.
        past = if sample.mpps < best * PAST_PEAK {
            past + 1
        } else {
            0
        };
        let is_spent = sample.offered_mpps * 1e6 < rate_pps * SPENT;
        if past > 1 || is_spent || sample.offered_mpps > 3.0 * best {
            break;
        }
        rate_pps *= STEP;
    }
    Ok(Some(best.max(RATE_MIN_PPS / 1e6) * 1e6))
}
