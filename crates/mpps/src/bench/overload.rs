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
/// A load is reached if the paced sender brings this share of it: pacing makes up for pauses, but a
/// machine that others use takes some of its time.
const REACHED: f64 = 0.9;
/// A load below this share of what the sender brings unpaced can be paced: if it is missed, other
/// programs took the time, and the point stays as it was measured. (The `xdp` generator paces about
/// half of what it sends unpaced.)
const PACED: f64 = 0.25;
/// Steps of the search at the most: 50 000 times 1.3 to the 24th is 27 million a second.
const STEPS_MAX: usize = 24;

/// Draws the curve of one path on one stage, or none if Ctrl-C came.
///
/// A load that the paced sender does not reach is the end of the pacing: the last point is then the
/// sender as fast as it goes.
pub(crate) fn overload(
    stage: &Stage<'_>,
    path: &Path,
    loads: &Loads,
    mut step: impl FnMut(f64),
) -> Result<Option<OverloadCurve>> {
    step(0.0);
    let Some(flood) = typical(stage, path, loads, None)? else {
        return Ok(None);
    };
    let Some(peak_mpps) = peak(stage, path, loads.time, &flood, &mut step)? else {
        return Ok(None);
    };
    let mut curve = Drawing {
        peak_mpps,
        mode: flood.mode.clone(),
        points: Vec::new(),
    };
    for factor in loads.factors {
        step(*factor);
        let asked_mpps = curve.peak_mpps * factor;
        // Up to the peak a curve without a point would tell less than one with a low one.
        let may_miss = *factor > 1.0 && asked_mpps >= flood.offered_mpps * PACED;
        let mut sample = None;
        if asked_mpps <= flood.offered_mpps {
            sample = typical(stage, path, loads, Some(asked_mpps * 1e6))?;
            if sample.is_none() {
                return Ok(None);
            }
        }
        let brought = |sample: &Sample| sample.offered_mpps >= asked_mpps * REACHED || !may_miss;
        match sample.filter(brought) {
            Some(sample) => curve.add(*factor, false, sample),
            None => break,
        }
    }
    let most = loads.factors.iter().copied().fold(0.0, f64::max);
    let notes = if curve.reaches(most) {
        Vec::new()
    } else {
        curve.flood(most, flood)
    };
    Ok(Some(curve.finish(stage, path, notes)))
}

/// A curve under way.
struct Drawing {
    /// The best goodput so far.
    peak_mpps: f64,
    mode: String,
    points: Vec<OverloadPoint>,
}

impl Drawing {
    fn add(&mut self, load: f64, unpaced: bool, sample: Sample) {
        // A point may do better than the search did: what comes after it is a multiple of that.
        self.peak_mpps = self.peak_mpps.max(sample.mpps);
        self.points.push(OverloadPoint {
            load,
            unpaced,
            offered_mpps: sample.offered_mpps,
            goodput_mpps: sample.mpps,
            ledger: sample.ledger,
        });
    }

    /// True if the last point is of so many times the peak.
    fn reaches(&self, load: f64) -> bool {
        let last = self.points.last();
        last.is_some_and(|last| last.offered_mpps >= load * self.peak_mpps * REACHED)
    }

    /// Ends the curve with the point of the sender that is not paced, if that is more than the
    /// points have, and says what could not be offered of the load that was wanted.
    fn flood(&mut self, wanted: f64, flood: Sample) -> Vec<String> {
        let last = self.points.last().map_or(0.0, |last| last.offered_mpps);
        if flood.offered_mpps > last {
            let load = flood.offered_mpps / self.peak_mpps.max(flood.mpps);
            // What was asked for beyond that was not brought.
            self.points.retain(|point| point.load < load);
            self.add(load, true, flood);
        }
        if self.reaches(wanted) {
            return Vec::new();
        }
        let last = self.points.last().map_or(0.0, |last| last.offered_mpps);
        let offered = last / self.peak_mpps;
        vec![format!(
            "the sender reaches {offered:.1} times this path's peak as fast as it goes: {wanted} times \
             cannot be offered on this machine"
        )]
    }

    fn finish(self, stage: &Stage<'_>, path: &Path, notes: Vec<String>) -> OverloadCurve {
        let goodputs = self.points.iter().map(|point| point.goodput_mpps);
        let peak_mpps = goodputs.fold(0.0, f64::max);
        let last = self.points.last().map_or(0.0, |point| point.goodput_mpps);
        OverloadCurve {
            path: path.name.to_owned(),
            variant: path.variant.to_owned(),
            mode: self.mode,
            napi: stage.napi_place(),
            peak_mpps,
            kept: if peak_mpps > 0.0 {
                last / peak_mpps
            } else {
                0.0
            },
            points: self.points,
            notes,
        }
    }
}

/// The middle one of several runs at this rate, or as fast as the sender goes; none if Ctrl-C came.
fn typical(
    stage: &Stage<'_>,
    path: &Path,
    loads: &Loads,
    rate_pps: Option<f64>,
) -> Result<Option<Sample>> {
    let purpose = Purpose {
        rate_pps,
        ..Purpose::default()
    };
    let mut samples = Vec::new();
    for _ in 0..loads.repeats.max(1) {
        samples.push(stage.run(path, loads.time, purpose)?);
        if stage.interrupt.came() {
            return Ok(None);
        }
    }
    samples.sort_by(|a, b| a.mpps.total_cmp(&b.mpps));
    let middle = samples.len() / 2;
    Ok(samples.into_iter().nth(middle))
}

/// The most that the path delivers, in million datagrams per second: of the unpaced flood, or of a
/// search from a low rate upwards.
fn peak(
    stage: &Stage<'_>,
    path: &Path,
    time: Duration,
    flood: &Sample,
    step: &mut impl FnMut(f64),
) -> Result<Option<f64>> {
    let mut best = flood.mpps;
    let mut past = 0;
    let mut rate_pps = RATE_MIN_PPS;
    for _ in 0..STEPS_MAX {
        step(0.0);
        let purpose = Purpose {
            rate_pps: Some(rate_pps),
            ..Purpose::default()
        };
        let sample = stage.run(path, time, purpose)?;
        if stage.interrupt.came() {
            return Ok(None);
        }
        best = best.max(sample.mpps);
        // One low run is noise, two in a row are the slope behind the peak.
        let is_past = sample.mpps < best * PAST_PEAK && sample.offered_mpps > best;
        past = if is_past { past + 1 } else { 0 };
        let is_spent = sample.offered_mpps * 1e6 < rate_pps * SPENT
            && rate_pps > flood.offered_mpps * 1e6 * PACED;
        if past > 1 || is_spent || sample.offered_mpps > 3.0 * best {
            break;
        }
        rate_pps *= STEP;
    }
    Ok(Some(best.max(RATE_MIN_PPS / 1e6)))
}

#[cfg(test)]
mod tests {
    use super::super::sample::Cost;
    use super::*;
    use mpps_host::Ledger;

    fn sample(offered_mpps: f64, mpps: f64) -> Sample {
        Sample {
            mpps,
            offered_mpps,
            queue_mpps: Vec::new(),
            cost: Cost::default(),
            ledger: Ledger::new(0, 0, 0),
            mode: String::new(),
            polled_share: None,
        }
    }

    fn drawing(points: &[(f64, f64)]) -> Drawing {
        let mut drawing = Drawing {
            peak_mpps: 1.0,
            mode: String::new(),
            points: Vec::new(),
        };
        for (offered, goodput) in points {
            drawing.add(*offered, false, sample(*offered, *goodput));
        }
        drawing
    }

    #[test]
    fn a_sender_that_is_not_paced_gives_the_last_point_with_the_load_that_it_was() {
        let mut curve = drawing(&[(1.0, 1.0), (2.0, 0.9)]);
        assert_eq!(curve.flood(4.0, sample(4.2, 0.8)), [""; 0]);
        let last = curve.points.last().unwrap();
        assert!(last.unpaced);
        assert_eq!((last.load, last.offered_mpps), (4.2, 4.2));
    }

    #[test]
    fn what_cannot_be_offered_is_said() {
        let mut curve = drawing(&[(1.0, 1.0), (2.0, 1.0)]);
        let said = curve.flood(4.0, sample(2.5, 1.0));
        assert!(
            said[0].contains("2.5 times") && said[0].contains("4 times"),
            "{said:?}"
        );
        // A flood that is less than the last point adds none.
        let mut curve = drawing(&[(2.0, 1.0)]);
        let said = curve.flood(4.0, sample(1.9, 1.0));
        assert_eq!((curve.points.len(), said.len()), (1, 1));
        assert!(said[0].contains("2.0 times"), "{said:?}");
    }

    #[test]
    fn a_point_above_the_peak_is_the_new_peak() {
        assert_eq!(drawing(&[(1.0, 1.0), (1.5, 1.2)]).peak_mpps, 1.2);
    }
}
