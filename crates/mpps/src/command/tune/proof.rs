//! The effect of each stage of a plan, and whether it exceeds the noise.

use crate::measure::envelope::{Envelope, EnvelopeBody};
use crate::measure::noise::{MeasuredChange, Noise, SAMPLES_MIN};
use crate::measure::samples::median;
use crate::udp::run::UdpRun;
use crate::udp::runs::Runs;
use mpps_host::setting::tune::TuneGoal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `USER_HZ`, the unit of /proc/stat (proc_stat(5)).
const TICKS_PER_SECOND: f64 = 100.0;
/// This share of packets is added to each, so that none lost has a logarithm.
const LOST_MIN: f64 = 1e-6;

/// A lost share this many times smaller than that without a change is as good as none. Otherwise runs that lost
/// nothing beside runs that lost a little would look like endless noise.
const AS_NONE: f64 = 32.0;

/// A run on one machine.
pub(crate) type ProofResult = Envelope<Proofs>;

/// The results.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Proofs {
    /// The definition of every rate in it.
    #[schemars(length(min = 1))]
    pub(super) rate_definition: String,
    /// The interface.
    pub(super) interface: String,
    /// The goal of the traffic; none in a file without a stage. With `tcp`, rates and ledgers count
    /// connections.
    pub(super) goal: Option<TuneGoal>,
    /// Where the traffic arrived, and who read it.
    pub(super) traffic: String,
    /// Notes on the run.
    pub(super) notes: Vec<String>,
    /// The stages in the order of measurement. Each is measured on top of the earlier stages that
    /// were kept. The first changes nothing.
    pub(super) rows: Vec<Proof>,
}

/// One stage: the same traffic without it and with it, in turn.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Proof {
    /// The stage; `nothing` is the comparison of a host with itself.
    pub(super) stage: String,
    /// Its changes.
    pub(super) edits: Vec<String>,
    /// Without it.
    pub(super) without: Compared,
    /// With it.
    pub(super) with: Compared,
    /// Its effect on the rate.
    pub(super) rate: Effect,
    /// Its effect on the share of lost packets.
    pub(super) lost: Effect,
    /// Its effect on the packets, or connections, for each second of CPU time.
    pub(super) cost: Effect,
    /// True if it was better, and stays.
    pub(crate) kept: bool,
    /// Why it was not measured, or not to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stopped: Option<String>,
}

/// The runs of one side.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Compared {
    /// Rates and ledgers.
    #[serde(flatten)]
    pub(super) runs: Runs,
    /// How long all CPUs of the machine were busy in each run, added up, in seconds; by ticks of 10 ms.
    pub(super) busy_seconds: Vec<f64>,
}

/// A difference between two sets of runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Effect {
    /// The median with the stage, divided by the median without it; of losses, without it by with it.
    /// More is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    /// `better`, `worse`, or `same`: no difference that the noise would not make.
    #[schemars(extend("enum" = ["better", "same", "worse"]))]
    pub(super) verdict: String,
    /// The smallest difference that would have been seen, as a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) visible: Option<f64>,
}

impl EnvelopeBody for Proofs {
    const SCHEMA: &'static str = "mpps.tune-prove.v1";
    const COMMAND: &'static str = "mpps tune prove";

    fn unsound(&self) -> Option<String> {
        let is_unsound = |row: &&Proof| row.without.runs.is_unsound() || row.with.runs.is_unsound();
        let row = self.rows.iter().find(is_unsound)?;
        Some(format!("stage {}", row.stage))
    }
}

impl Proof {
    /// A stage that was measured so far, after these others.
    pub(crate) fn new<'a>(
        stage: &str,
        edits: Vec<String>,
        [without, with]: &[Vec<UdpRun>; 2],
        before: impl Iterator<Item = &'a Self> + Clone,
    ) -> Self {
        let (without, with) = (Compared::new(without), Compared::new(with));
        let effect = |values: fn(&Compared, f64) -> Vec<f64>| {
            let before = before.clone().map(|row| [&row.without, &row.with]);
            let all = before.chain([[&without, &with]]);
            let all = all.map(|pair| {
                let as_none = pair[0].lost_share().unwrap_or(0.0) / AS_NONE;
                pair.map(|side| values(side, as_none.max(LOST_MIN)))
            });
            Effect::of(&all.collect::<Vec<_>>())
        };
        let (rate, lost, cost) = (
            effect(|one, _| one.runs.mpps_samples.clone()),
            effect(Compared::delivered_of_lost),
            effect(|one, _| one.packets_per_cpu_second()).at_least(tick_error(&without, &with)),
        );
        Self {
            stage: stage.to_owned(),
            edits,
            without,
            with,
            rate,
            lost,
            cost,
            kept: false,
            stopped: None,
        }
    }

    /// Why the host is better off with it; none where it is not.
    pub(super) fn gain(&self) -> Option<&'static str> {
        let is = |effect: &Effect, verdict| effect.verdict == verdict;
        if self.edits.is_empty()
            || self.stopped.is_some()
            || is(&self.rate, "worse")
            || is(&self.lost, "worse")
        {
            return None;
        }
        match () {
            () if is(&self.rate, "better") => Some("more packets"),
            () if is(&self.lost, "better") => Some("fewer lost"),
            () if is(&self.cost, "better") => Some("less CPU time"),
            () => None,
        }
    }

    /// The median share of lost packets, without it and with it; none of a side without a run.
    pub(crate) fn lost_shares(&self) -> [Option<f64>; 2] {
        [&self.without, &self.with].map(Compared::lost_share)
    }

    /// True if a smaller share was lost with it. Rates of live traffic are its senders' matter.
    pub(crate) fn loses_less(&self) -> bool {
        self.stopped.is_none() && self.lost.verdict == "better"
    }

    /// True if the host differs from itself.
    pub(super) fn is_noisy(&self) -> bool {
        let mut effects = [&self.rate, &self.lost, &self.cost].into_iter();
        self.edits.is_empty() && effects.any(|effect| effect.verdict != "same")
    }

    /// The harm that it did, if any.
    pub(super) fn harm(&self) -> Option<&'static str> {
        let is_worse = |effect: &Effect| effect.verdict == "worse";
        match () {
            () if is_worse(&self.rate) => Some("fewer packets"),
            () if is_worse(&self.lost) => Some("more lost"),
            () if is_worse(&self.cost) => Some("more CPU time"),
            () => None,
        }
    }
}

impl Compared {
    fn new(measured: &[UdpRun]) -> Self {
        let busy = |run: &UdpRun| {
            let cpus = run.busy.iter().map(|cpu| cpu.busy * cpu.ticks as f64);
            cpus.sum::<f64>() / TICKS_PER_SECOND
        };
        Self {
            runs: Runs::of(measured),
            busy_seconds: measured.iter().map(busy).collect(),
        }
    }

    fn shares(&self) -> impl Iterator<Item = f64> {
        self.runs.sample_ledgers.iter().map(|ledger| {
            let lost: u64 = ledger.losses.iter().map(|loss| loss.count).sum();
            lost as f64 / ledger.offered.max(1) as f64
        })
    }

    /// The median share of lost packets; none without a run.
    fn lost_share(&self) -> Option<f64> {
        median(&self.shares().collect::<Vec<_>>())
    }

    /// For each lost packet, how many were offered, where this share was lost besides: the order of runs stays.
    fn delivered_of_lost(&self, besides: f64) -> Vec<f64> {
        self.shares().map(|share| 1.0 / (share + besides)).collect()
    }

    fn packets_per_cpu_second(&self) -> Vec<f64> {
        let delivered = self.runs.sample_ledgers.iter();
        let delivered = delivered.map(|ledger| ledger.delivered as f64);
        let each = delivered.zip(&self.busy_seconds);
        each.map(|(delivered, busy)| delivered / busy.max(0.01))
            .collect()
    }
}

/// How far apart two counts of ticks may lie, as a share, though the CPUs were as busy: a tick is charged
/// to whatever runs when it ends, so that counts of them scatter by their square root. Three of these
/// deviations.
fn tick_error(a: &Compared, b: &Compared) -> f64 {
    let ticks = |one: &Compared| (one.busy_seconds.iter().sum::<f64>() * TICKS_PER_SECOND).max(1.0);
    3.0 * (1.0 / ticks(a) + 1.0 / ticks(b)).sqrt()
}

impl Effect {
    /// The same, where a difference up to this share says nothing.
    fn at_least(self, share: f64) -> Self {
        let is_small = self.ratio.is_none_or(|ratio| ratio.ln().abs() <= share);
        Self {
            verdict: match is_small {
                true => "same".to_owned(),
                false => self.verdict,
            },
            visible: self.visible.map(|visible| visible.max(share.exp_m1())),
            ..self
        }
    }

    /// Of the last pair, with the noise of all.
    fn of(pairs: &[[Vec<f64>; 2]]) -> Self {
        let same = Self {
            verdict: "same".to_owned(),
            ..Self::default()
        };
        let Some([without, with]) = pairs.last() else {
            return same;
        };
        let ratio = median(with)
            .zip(median(without))
            .filter(|(_, without)| *without > 0.0)
            .map(|(with, without)| with / without);
        if without.len().min(with.len()) < SAMPLES_MIN {
            return Self { ratio, ..same };
        }
        let noise = Noise::of(pairs.iter().map(|[a, b]| (&**a, &**b)));
        let (change, visible) = noise.judge(without, with);
        let verdict = match change {
            MeasuredChange::Same => "same",
            MeasuredChange::Better => "better",
            MeasuredChange::Worse => "worse",
        };
        Self {
            ratio,
            verdict: verdict.to_owned(),
            visible: Some(visible),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_host::{CpuBusy, Ledger, Loss, Station};

    /// Runs of a second with these packets read and lost, and so much CPU time.
    fn runs(of: &[(u64, u64, f64)]) -> Vec<UdpRun> {
        let run = |&(delivered, lost, busy_seconds): &(u64, u64, f64)| {
            let mut ledger = Ledger::new(delivered + lost, delivered, 0);
            ledger.lose(Loss::new(
                Station::Socket,
                "socket buffer full",
                lost,
                "sk_drops",
            ));
            UdpRun {
                mpps: delivered as f64 / 1e6,
                offered_mpps: (delivered + lost) as f64 / 1e6,
                ledger,
                busy: vec![CpuBusy {
                    cpu: 0,
                    busy: busy_seconds,
                    user: busy_seconds,
                    system: 0.0,
                    softirq: 0.0,
                    steal: 0.0,
                    ticks: 100,
                }],
                ..UdpRun::default()
            }
        };
        of.iter().map(run).collect()
    }

    fn proof(without: &[(u64, u64, f64)], with: &[(u64, u64, f64)]) -> Proof {
        let edits = vec!["rx ring 256 -> 4096".to_owned()];
        Proof::new("rings", edits, &[runs(without), runs(with)], [].iter())
    }

    const USUAL: [(u64, u64, f64); 5] = [
        (1000, 0, 1.00),
        (1010, 0, 1.01),
        (990, 0, 0.99),
        (1005, 0, 1.0),
        (995, 0, 1.0),
    ];

    #[test]
    fn a_host_is_as_good_as_itself() {
        let mut same = proof(&USUAL, &USUAL);
        assert_eq!((same.gain(), same.harm()), (None, None));
        assert_eq!(same.rate.ratio, Some(1.0));
        same.edits.clear();
        assert!(!same.is_noisy());
        // Few ticks, which agree by luck.
        let [one, two] =
            [0.01, 0.02].map(|busy| USUAL.map(|(packets, lost, _)| (packets, lost, busy)));
        assert_eq!(proof(&two, &one).gain(), None);
        let mut other = proof(&USUAL, &USUAL.map(|(packets, ..)| (packets / 2, 0, 1.0)));
        other.edits.clear();
        assert!(other.is_noisy() && other.gain().is_none());
    }

    #[test]
    fn each_gain_counts_where_nothing_is_lost_by_it() {
        let with = |factor: f64, lost, busy: f64| {
            USUAL.map(|(packets, _, seconds)| {
                ((packets as f64 * factor) as u64, lost, seconds * busy)
            })
        };
        for (with, gain, harm) in [
            (with(1.5, 0, 1.5), Some("more packets"), None),
            // A stage that costs more for each packet and brings more packets is a gain.
            (
                with(1.5, 0, 3.0),
                Some("more packets"),
                Some("more CPU time"),
            ),
            (with(1.0, 0, 0.5), Some("less CPU time"), None),
            (with(1.0, 0, 2.0), None, Some("more CPU time")),
            (with(0.5, 0, 0.1), None, Some("fewer packets")),
            (with(1.0, 100, 0.1), None, Some("more lost")),
        ] {
            let found = proof(&USUAL, &with);
            assert_eq!((found.gain(), found.harm()), (gain, harm), "{found:?}");
        }
        let lossy = USUAL.map(|(packets, _, seconds)| (packets, 100, seconds));
        assert_eq!(proof(&lossy, &USUAL).gain(), Some("fewer lost"));
    }

    /// As measured with four sockets beside other work: the runs with a change lost 0 to 5 %.
    #[test]
    fn a_loss_that_is_nearly_gone_is_less() {
        let of = |shares: [u64; 5]| shares.map(|lost| (1000 - lost, lost, 1.0));
        let without = of([586, 601, 570, 480, 610]);
        assert!(proof(&without, &of([0, 13, 50, 0, 20])).loses_less());
        assert!(proof(&without, &of([0; 5])).loses_less());
        assert!(!proof(&without, &of([590, 575, 610, 470, 600])).loses_less());
        assert!(proof(&of([586, 601, 2, 480, 610]), &of([0; 5])).loses_less());
        // Now and then it helped, and now and then not.
        assert!(!proof(&without, &of([0, 580, 50, 600, 590])).loses_less());
        // No loss cannot get smaller.
        assert!(!proof(&of([0; 5]), &of([0, 0, 1, 0, 0])).loses_less());
    }

    #[test]
    fn few_runs_and_those_that_stopped_prove_nothing() {
        let twice = USUAL.map(|(packets, lost, seconds)| (2 * packets, lost, seconds));
        let few = proof(&USUAL[..2], &twice[..2]);
        assert_eq!(few.gain(), None);
        assert!(few.rate.ratio > Some(1.9), "{few:?}");
        let mut stopped = proof(&USUAL, &twice);
        assert!(stopped.gain().is_some());
        stopped.stopped = Some("refused".to_owned());
        assert_eq!(stopped.gain(), None);
    }
}
