//! The goodput of a path when more is offered than it can take: receive livelock, or none.

use super::result::{OverloadCurve, OverloadPoint};
use crate::measure::rounds::Case;
use crate::udp::path::Path;
use crate::udp::run::UdpRun;
use mpps_report::Quantity;
use std::fmt;

/// The offered rates, as shares of the flood. The flood is the sender's unpaced rate on this path.
/// A paced sender reaches about half of it (the kernel's generator; sockets reach more).
const SHARES: [f64; 9] = [0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5];

/// A path, and what is offered to it.
#[derive(Debug)]
pub(super) struct OverloadPath {
    /// The place of the path's flood.
    flood: usize,
    pub(super) path: Path,
    /// The rate to ask of its sender: a share of the flood's offered rate.
    pub(super) asked_mpps: f64,
}

/// `recvmmsg, busy poll`.
impl fmt::Display for OverloadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// The shares of what each path's flood was.
pub(super) fn loads(floods: &[Case<Path, UdpRun>]) -> Vec<Case<OverloadPath, UdpRun>> {
    let measured = floods.iter().enumerate();
    let measured = measured.filter(|(_, flood)| flood.skipped.is_none());
    let loads = measured.filter_map(|(at, flood)| {
        let offered_mpps = typical(&flood.samples)?.offered_mpps;
        Some(SHARES.map(|share| OverloadPath {
            flood: at,
            path: flood.plan,
            asked_mpps: share * offered_mpps,
        }))
    });
    loads.flatten().map(|load| Case::new(load, None)).collect()
}

/// The results of each curve so far.
pub(super) fn curves(
    napi: &str,
    floods: &[Case<Path, UdpRun>],
    loads: &[Case<OverloadPath, UdpRun>],
) -> Vec<OverloadCurve> {
    let measured = floods.iter().enumerate();
    let measured = measured.filter(|(_, flood)| flood.skipped.is_none());
    let curves = measured.filter_map(|(at, flood)| {
        let own: Vec<_> = loads.iter().filter(|load| load.plan.flood == at).collect();
        Some(OverloadCurve {
            path: flood.plan.name.to_owned(),
            variant: flood.plan.variant.to_owned(),
            napi: napi.to_owned(),
            ..drawn(typical(&flood.samples)?, &own)
        })
    });
    curves.collect()
}

/// The curve of a flood and of the loads. A point stands where the sender brought it, which on a busy
/// machine is below what was asked for.
fn drawn(flood: &UdpRun, loads: &[&Case<OverloadPath, UdpRun>]) -> OverloadCurve {
    let (mut points, mut notes) = (vec![point(None, flood)], Vec::new());
    for load in loads {
        let asked_mpps = load.plan.asked_mpps;
        if let Some(why) = &load.skipped {
            let asked = Quantity::Mpps(asked_mpps);
            notes.push(format!("no point where {asked} were asked for: {why}"));
        } else if let Some(sample) = typical(&load.samples) {
            points.push(point(Some(asked_mpps), sample));
        }
    }
    points.sort_by(|a, b| a.offered_mpps.total_cmp(&b.offered_mpps));
    let goodputs = points.iter().map(|point| point.goodput_mpps);
    let peak_mpps = goodputs.fold(0.0, f64::max);
    let last = points.last().map_or(0.0, |point| point.goodput_mpps);
    OverloadCurve {
        mode: flood.mode.clone(),
        peak_mpps,
        kept: if peak_mpps > 0.0 {
            last / peak_mpps
        } else {
            0.0
        },
        points,
        notes,
        ..OverloadCurve::default()
    }
}

fn point(asked_mpps: Option<f64>, sample: &UdpRun) -> OverloadPoint {
    OverloadPoint {
        asked_mpps,
        offered_mpps: sample.offered_mpps,
        goodput_mpps: sample.mpps,
        ledger: sample.ledger.clone(),
    }
}

/// The middle one of several runs, by what was delivered.
fn typical(samples: &[UdpRun]) -> Option<&UdpRun> {
    let mut samples: Vec<&UdpRun> = samples.iter().collect();
    samples.sort_by(|a, b| a.mpps.total_cmp(&b.mpps));
    samples.get(samples.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::path::PATHS;

    fn sample(offered_mpps: f64, mpps: f64) -> UdpRun {
        UdpRun {
            mpps,
            offered_mpps,
            ..UdpRun::default()
        }
    }

    fn load(asked_mpps: f64, samples: Vec<UdpRun>) -> Case<OverloadPath, UdpRun> {
        let plan = OverloadPath {
            flood: 0,
            path: PATHS[0],
            asked_mpps,
        };
        Case {
            samples,
            ..Case::new(plan, None)
        }
    }

    #[test]
    fn a_path_is_offered_shares_of_its_own_flood() {
        let mut floods = [0, 1, 2].map(|at| Case::new(PATHS[at], None));
        floods[0].samples.push(sample(4.0, 1.0));
        floods[1].skipped = Some("not here".to_owned());
        floods[2].samples.push(sample(2.0, 1.0));
        let loads = loads(&floods);
        let asked = |flood: usize| {
            let own = loads.iter().filter(move |load| load.plan.flood == flood);
            own.map(|load| load.plan.asked_mpps).collect::<Vec<_>>()
        };
        assert_eq!(asked(0), SHARES.map(|share| share * 4.0));
        assert_eq!((asked(1).len(), asked(2)[8]), (0, 1.0));
    }

    #[test]
    fn the_peak_is_the_best_point_and_points_stand_where_they_were_brought() {
        let mut failed = load(0.2, Vec::new());
        failed.skipped = Some("refused".to_owned());
        let middle = [sample(0.9, 0.2), sample(1.0, 0.8), sample(1.0, 0.9)];
        let loads = [
            load(1.0, middle.into()),
            load(0.5, vec![sample(0.4, 0.4)]),
            failed,
        ];
        let curve = drawn(&sample(4.0, 0.2), &loads.iter().collect::<Vec<_>>());
        let points = curve.points.iter();
        let points = points.map(|point| (point.asked_mpps, point.offered_mpps, point.goodput_mpps));
        assert_eq!(
            points.collect::<Vec<_>>(),
            [
                (Some(0.5), 0.4, 0.4),
                (Some(1.0), 1.0, 0.8),
                (None, 4.0, 0.2)
            ]
        );
        assert_eq!((curve.peak_mpps, curve.kept), (0.8, 0.25));
        assert!(curve.notes.len() == 1 && curve.notes[0].ends_with("refused"));
        assert_eq!(drawn(&sample(0.0, 0.0), &[]).kept, 0.0);
    }
}
