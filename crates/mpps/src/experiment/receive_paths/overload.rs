//! The goodput of a path when more is offered than it can take: receive livelock, or none.

use super::result::{OverloadCurve, OverloadPoint};
use crate::measure::rounds::Case;
use crate::udp::run::UdpRun;
use crate::udp::trial::TrialRuns;
use mpps_report::Quantity;

/// The offered rates, as shares of the flood. The flood is the sender's unpaced rate on this path.
/// A paced sender reaches about half of it (the kernel's generator; sockets reach more).
const SHARES: [f64; 9] = [0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5];

/// The shares of what each path's flood was.
pub(super) fn loads(floods: &[TrialRuns]) -> Vec<TrialRuns> {
    let measured = floods.iter().filter(|flood| flood.skipped.is_none());
    let loads = measured.filter_map(|flood| {
        let offered_pps = typical(&flood.samples)?.offered_mpps * 1e6;
        Some(SHARES.map(|share| flood.plan.paced(share * offered_pps)))
    });
    loads.flatten().map(|load| Case::new(load, None)).collect()
}

/// The results of each curve so far.
pub(super) fn curves(napi: &str, floods: &[TrialRuns], loads: &[TrialRuns]) -> Vec<OverloadCurve> {
    let measured = floods.iter().filter(|flood| flood.skipped.is_none());
    let curves = measured.filter_map(|flood| {
        let path = &flood.plan.path;
        let own = loads
            .iter()
            .filter(|load| load.plan.path.key() == path.key());
        Some(OverloadCurve {
            path: path.name.to_owned(),
            variant: path.variant.to_owned(),
            napi: napi.to_owned(),
            ..drawn(typical(&flood.samples)?, &own.collect::<Vec<_>>())
        })
    });
    curves.collect()
}

/// The curve of a flood and of the loads. A point stands where the sender brought it, which on a busy
/// machine is below what was asked for.
fn drawn(flood: &UdpRun, loads: &[&TrialRuns]) -> OverloadCurve {
    let (mut points, mut notes) = (vec![point(None, flood)], Vec::new());
    for load in loads {
        let asked_mpps = load.plan.pps.unwrap_or_default() / 1e6;
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
    use crate::udp::roles::tests::two_cpus;
    use crate::udp::sender::LabSender;
    use crate::udp::trial::UdpTrial;

    fn sample(offered_mpps: f64, mpps: f64) -> UdpRun {
        UdpRun {
            mpps,
            offered_mpps,
            ..UdpRun::default()
        }
    }

    fn trial(at: usize) -> UdpTrial {
        UdpTrial::new(two_cpus().one_queue(), PATHS[at], LabSender::Generator)
    }

    fn load(asked_mpps: f64, samples: Vec<UdpRun>) -> TrialRuns {
        Case {
            samples,
            ..Case::new(trial(0).paced(asked_mpps * 1e6), None)
        }
    }

    #[test]
    fn a_path_is_offered_shares_of_its_own_flood() {
        let mut floods = [0, 1, 2].map(|at| Case::new(trial(at), None));
        floods[0].samples.push(sample(4.0, 1.0));
        floods[1].skipped = Some("not here".to_owned());
        floods[2].samples.push(sample(2.0, 1.0));
        let loads = loads(&floods);
        let asked = |flood: usize| {
            let key = PATHS[flood].key();
            let own = loads.iter().filter(|load| load.plan.path.key() == key);
            own.filter_map(|load| load.plan.pps).collect::<Vec<_>>()
        };
        assert_eq!(asked(0), SHARES.map(|share| share * 4e6));
        assert_eq!((asked(1).len(), asked(2)[8]), (0, 1e6));
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
