//! The claim of each rung, and whether the figures of a run support it.

use super::evidence::{FactKind, LessonEvidence, LessonFact, LessonVerdict, OpenLesson, uneven};
use super::result::RungResult;
use super::rungs::{Point, Rung};
use crate::measure::noise::{MeasuredChange, Noise, SAMPLES_MIN};
use crate::measure::samples::median;
use crate::udp::trial::TrialSockets;
use mpps_host::Station;
use mpps_lab::Delivery;

/// A receiver that lost more than the rest of this share did not bear its load.
const BORNE: f64 = 0.999;

/// The results, each with what the figures of all of them say of its lesson.
pub(super) fn judge(all: Vec<(&Rung, RungResult)>) -> Vec<RungResult> {
    let verdict = |(rung, result): &(&Rung, RungResult)| rung.judge(result, &all);
    let verdicts: Vec<Option<LessonVerdict>> = all.iter().map(verdict).collect();
    let judged = all.into_iter().zip(verdicts);
    let judged = judged.filter(|((rung, _), _)| !rung.again);
    judged
        .map(|((_, result), verdict)| RungResult { verdict, ..result })
        .collect()
}

impl Rung {
    /// The verdict from these rungs; none if they say nothing.
    fn judge(&self, rung: &RungResult, all: &[(&Self, RungResult)]) -> Option<LessonVerdict> {
        rung.runs.mpps_median?;
        let points = self.points.iter();
        let told = points.filter_map(|point| self.judge_point(*point, rung, all));
        let (verdicts, facts): (Vec<_>, Vec<_>) = told.unzip();
        // A point that fails decides, and then an open point.
        let order = |holds: &Option<bool>| holds.map_or(1, |holds| if holds { 2 } else { 0 });
        let holds = verdicts.into_iter().min_by_key(order)?;
        let mut facts = facts.concat();
        if matches!(self.trial.sockets, TrialSockets::Shared(2..)) && holds == Some(true) {
            let one = |(one, _): &&(&Self, _)| self.references().any(|other| one.number == other);
            let waits = all.iter().filter(one);
            let one = waits.rev().find_map(|(_, one)| one.lock_waits_per_packet);
            let waits = rung.lock_waits_per_packet.zip(one);
            let waits = waits.map_or(Vec::new(), |(shared, one)| vec![shared, one]);
            facts.push(LessonFact::new(FactKind::Locks, waits));
        }
        let evidence = LessonEvidence::Facts(facts);
        Some(LessonVerdict { holds, evidence })
    }

    /// Whether the figures show a point, and these figures; none if they say nothing.
    fn judge_point(
        &self,
        point: Point,
        rung: &RungResult,
        all: &[(&Self, RungResult)],
    ) -> Option<PointVerdict> {
        let flows = self.trial.flow_count();
        let (mut holds, mut facts) = match point {
            Point::Reference => return None,
            Point::Above(other) => self.compare(rung, other, all, MeasuredChange::Better)?,
            Point::Below(other) => self.compare(rung, other, all, MeasuredChange::Worse)?,
            // Where senders serve the queues none of them overflows.
            Point::LostAt(_) if self.trial.layout.delivery == Delivery::SoftInterrupt => {
                return None;
            }
            Point::LostAt(station) => lost_at(rung, station)?,
            Point::Cheaper => cheaper(rung)?,
            Point::OneSocket | Point::Spread | Point::Idle | Point::Busy => {
                let came = came(rung);
                let idle = came.iter().filter(|count| **count == 0.0).count();
                if came.len() < 2 || idle == came.len() {
                    return None;
                }
                let (uneven, chance) = (uneven(&came), chance(flows, came.len()));
                let holds = match point {
                    Point::OneSocket => idle + 1 == came.len(),
                    Point::Idle => idle > 0,
                    Point::Spread => idle == 0 && uneven < 2.0 * chance,
                    _ => idle == 0,
                };
                let by_chance = LessonFact::new(FactKind::Chance, [flows as f64, chance]);
                let by_chance = (point != Point::Busy).then_some(by_chance);
                let came = LessonFact::new(FactKind::Sockets, came);
                (Some(holds), [came].into_iter().chain(by_chance).collect())
            }
        };
        let is_by_hash = matches!(point, Point::OneSocket | Point::Spread | Point::Idle);
        if holds == Some(false) && !is_by_hash && rung.unplaced {
            holds = None;
            facts.push(LessonFact::new(FactKind::Unplaced, []));
        }
        Some((holds, facts))
    }

    /// Whether a rung's rate differs from another's as it should; none if the other has none.
    fn compare(
        &self,
        rung: &RungResult,
        other: &str,
        all: &[(&Self, RungResult)],
        expected: MeasuredChange,
    ) -> Option<PointVerdict> {
        let mut known = all.iter().filter(|(one, found)| {
            one.number == other && found.runs.mpps_median.is_some() && !found.runs.is_unsound()
        });
        let alike = known.clone().find(|(one, _)| self.is_like(one));
        let (reference, other) = alike.or_else(|| known.next())?;
        let (own, its) = (&rung.runs.mpps_samples, &other.runs.mpps_samples);
        let median = other.runs.mpps_median.filter(|rate| *rate > 0.0)?;
        let times = rung.runs.mpps_median? / median;
        let kind = match reference.again {
            true => FactKind::RateAgain,
            false => FactKind::Rate,
        };
        let verdict = |holds, open| {
            let fact = LessonFact {
                rung: Some(other.rung.clone()),
                open,
                ..LessonFact::new(kind, [times])
            };
            Some((holds, vec![fact]))
        };
        let sender = |rung: &RungResult| rung.sender.as_ref().map(|sender| sender.backend.clone());
        if sender(rung) != sender(other) {
            return verdict(None, Some(OpenLesson::OtherSender));
        }
        if alike.is_none() && self.place.is_none() {
            return verdict(None, Some(OpenLesson::OtherWay));
        }
        // The lower rate may be the sender's, and a receiver that shares a CPU with the queue may do
        // well until too much comes.
        let outran = |rung: &RungResult| rung.sender.as_ref().is_none_or(|sender| sender.outran);
        let is_own = self.place.is_some() || rung.runs.mpps_median? < median;
        if !outran(if is_own { rung } else { other }) {
            return verdict(None, Some(OpenLesson::SenderLimit));
        }
        let samples = all.iter().map(|(_, one)| &*one.runs.mpps_samples);
        let (holds, open) = differs((its, own), samples, expected);
        verdict(holds, open)
    }
}

/// Whether a point holds, and the figures that say so.
type PointVerdict = (Option<bool>, Vec<LessonFact>);

/// Whether the second of two sets of samples differs from the first as expected, by the noise of all.
fn differs<'a>(
    (its, own): (&[f64], &[f64]),
    all: impl Iterator<Item = &'a [f64]>,
    expected: MeasuredChange,
) -> (Option<bool>, Option<OpenLesson>) {
    if own.len() < SAMPLES_MIN || its.len() < SAMPLES_MIN {
        return (None, Some(OpenLesson::FewRepeats));
    }
    let samples = all.filter(|samples| samples.len() >= SAMPLES_MIN);
    let found = Noise::of(samples.map(|one| (one, one))).judge(its, own).0;
    match found {
        MeasuredChange::Same => (None, Some(OpenLesson::Noise)),
        found => (Some(found == expected), None),
    }
}

/// Whether a receiver beside its queue bore its load, and with less CPU time than on another core.
fn cheaper(rung: &RungResult) -> Option<PointVerdict> {
    let ns = [0, 1].map(|at| {
        rung.same_load_ns
            .iter()
            .map(|pair| pair[at])
            .collect::<Vec<_>>()
    });
    let [own, other] = &ns;
    let delivered_ratio = rung.runs.delivered_ratio?;
    let all = ns.iter().map(Vec::as_slice);
    let (holds, open) = match delivered_ratio < BORNE {
        true => (None, Some(OpenLesson::NotBorne)),
        false => differs((other, own), all, MeasuredChange::Worse),
    };
    let offered = rung.runs.offered_mpps_median?;
    let figures = [delivered_ratio, offered, median(own)?, median(other)?];
    let fact = LessonFact {
        open,
        ..LessonFact::new(FactKind::Cost, figures)
    };
    Some((holds, vec![fact]))
}

/// Whether most of what was lost over all repeats was lost at a station; none if nothing was.
fn lost_at(rung: &RungResult, station: Station) -> Option<PointVerdict> {
    let losses = rung.runs.sample_ledgers.iter().flat_map(|one| &one.losses);
    let (mut there, mut lost) = (0, 0);
    for loss in losses {
        lost += loss.count;
        // With RPS a queue is the backlog of its CPU.
        let is_there = match loss.station {
            Station::Backlog => station == Station::Wire,
            other => other == station,
        };
        there += u64::from(is_there) * loss.count;
    }
    let kind = match station {
        Station::Socket => FactKind::LostAtSocket,
        _ => FactKind::LostInQueue,
    };
    let fact = LessonFact::new(kind, [there as f64, lost as f64]);
    (lost > 0).then_some((Some(there * 2 > lost), vec![fact]))
}

/// The datagrams that came to each socket, received or dropped.
fn came(rung: &RungResult) -> Vec<f64> {
    let threads = rung.threads.iter();
    threads
        .map(|thread| (thread.received + thread.socket_drops.unwrap_or(0)) as f64)
        .collect()
}

/// The expected share of the fullest socket, as a multiple of the mean. Each flow chooses its
/// socket by chance, and all flows are equal.
fn chance(flows: usize, sockets: usize) -> f64 {
    // The probability that no socket has more than `most` flows, socket by socket: of those that
    // are left, each flow chooses this one with probability 1 / sockets left.
    let none_above = |most: usize| {
        let mut within = vec![0.0; flows + 1];
        within[0] = 1.0;
        for left in 1..=sockets {
            let p = 1.0 / left as f64;
            within = (0..=flows)
                .map(|n| {
                    let to_this = |chosen: usize| binomial(n, chosen, p) * within[n - chosen];
                    (0..=n.min(most)).map(to_this).sum()
                })
                .collect();
        }
        within[flows]
    };
    let fullest: f64 = (0..flows).map(|most| 1.0 - none_above(most)).sum();
    fullest * sockets as f64 / flows.max(1) as f64
}

/// The probability of this number of successes in `n` trials with probability `p`.
fn binomial(n: usize, successes: usize, p: f64) -> f64 {
    let ways = (0..successes).fold(1.0, |ways, at| ways * (n - at) as f64 / (at + 1) as f64);
    ways * p.powi(successes as i32) * (1.0 - p).powi((n - successes) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ladder::result::{RungSender, ThreadShare};
    use crate::udp::roles::tests::two_cpus;
    use crate::udp::runs::Runs;
    use mpps_host::{Ledger, Loss, Relation};

    fn rung(number: &str, samples: &[f64]) -> RungResult {
        RungResult {
            rung: number.to_owned(),
            runs: Runs {
                mpps_median: crate::measure::samples::median(samples),
                mpps_samples: samples.to_vec(),
                ..Runs::default()
            },
            ..RungResult::default()
        }
    }

    fn sockets(came: &[(u64, u64)]) -> RungResult {
        let thread = |(received, dropped): &(u64, u64)| ThreadShare {
            cpu: None,
            received: *received,
            socket_drops: Some(*dropped),
            packets_per_call: 1.0,
            cpu_ns_per_packet: Some(1.0),
        };
        RungResult {
            threads: came.iter().map(thread).collect(),
            ..rung("8", &[1.0])
        }
    }

    const THREADS: Delivery = Delivery::ThreadedNapi;

    #[test]
    fn evidence_is_figures_and_an_old_sentence_is_read() {
        let text = r#"{"holds":true,"evidence":[{"kind":"lost_in_queue","figures":[7.0,9.0]}]}"#;
        let verdict: LessonVerdict = serde_json::from_str(text).expect("figures");
        assert_eq!(serde_json::to_string(&verdict).expect("JSON"), text);
        let words = "7 of 9 lost packets were lost in the receive queue";
        assert_eq!(
            verdict.sentence(true),
            format!("as in the article: {words}")
        );
        let old = r#"{"holds":false,"evidence":"a sentence"}"#;
        let old: LessonVerdict = serde_json::from_str(old).expect("a sentence");
        assert_eq!(old.sentence(true), "not here: a sentence");
    }

    /// A rung of four flows.
    fn claim(number: &'static str, point: Point, delivery: Delivery) -> Rung {
        let mut rung = Rung::new(&two_cpus(), number, "").teaches("", point);
        (rung.trial.layout.delivery, rung.trial.flows) = (delivery, 4);
        rung
    }

    /// The verdict on a rung of four flows, without other rungs.
    fn holds(point: Point, rung: &RungResult) -> Option<bool> {
        claim("1", point, THREADS).judge(rung, &[])?.holds
    }

    #[test]
    fn a_rate_is_held_against_another_rungs_and_the_noise() {
        let mut all = [
            rung("2", &[1.0, 1.01, 1.02]),
            rung("11", &[2.0, 2.02, 2.04]),
            rung("12", &[1.0, 1.02, 1.01]),
            rung("13", &[2.0]),
            rung("14", &[0.0, 0.0, 0.0]),
        ];
        let claims = ["2", "11", "12", "13", "14"].map(|one| claim(one, Point::Reference, THREADS));
        let judged = |all: &[RungResult], at: usize, claim: Rung| {
            let pairs: Vec<_> = claims.iter().zip(all.iter().cloned()).collect();
            claim.judge(&all[at], &pairs)
        };
        let verdict = |all: &[_], at, claim| judged(all, at, claim).map(|verdict| verdict.holds);
        let of = |point| claim("?", point, THREADS);
        assert_eq!(verdict(&all, 1, of(Point::Above("2"))), Some(Some(true)));
        assert_eq!(verdict(&all, 1, of(Point::Below("2"))), Some(Some(false)));
        assert_eq!(verdict(&all, 0, of(Point::Below("11"))), Some(Some(true)));
        let untold = Some(None);
        assert_eq!(verdict(&all, 2, of(Point::Above("2"))), untold, "the same");
        assert_eq!(
            verdict(&all, 3, of(Point::Above("2"))),
            untold,
            "one repeat"
        );
        assert_eq!(
            verdict(&all, 0, of(Point::Above("9a"))),
            None,
            "not measured"
        );
        assert_eq!(
            verdict(&all, 0, of(Point::Above("14"))),
            None,
            "nothing came"
        );
        let two = |other| of(Point::Above("2")).and(other);
        assert_eq!(verdict(&all, 1, two(Point::Above("12"))), Some(Some(true)));
        assert_eq!(verdict(&all, 1, two(Point::Above("13"))), untold, "of two");
        assert_eq!(verdict(&all, 1, two(Point::Below("2"))), Some(Some(false)));
        let said = judged(&all, 1, of(Point::Above("2"))).unwrap();
        let said = said.sentence(true).replace('\u{a0}', " ");
        assert!(said.starts_with("as in the article: 2.0"), "{said}");
        assert!(said.ends_with(" times what rung 2 received"), "{said}");
        all[1].unplaced = true;
        assert_eq!(
            verdict(&all, 1, of(Point::Below("2"))),
            untold,
            "an ordinary user"
        );
        all[1].unplaced = false;
        // A rung that differs in more than the lesson gives no verdict, unless that is its lesson.
        let soft = claim("?", Point::Below("11"), Delivery::SoftInterrupt);
        assert_eq!(verdict(&all, 0, soft.clone()), untold);
        let placement = || Rung {
            place: Some(Relation::SameCpu),
            ..soft.clone()
        };
        assert_eq!(verdict(&all, 0, placement()), Some(Some(true)));
        let sender = |outran| RungSender {
            backend: "xdp".to_owned(),
            outran,
            ..RungSender::default()
        };
        all[0].sender = Some(sender(false));
        assert_eq!(verdict(&all, 0, placement()), untold, "another sender");
        all[1].sender = Some(sender(true));
        assert_eq!(verdict(&all, 0, placement()), untold, "it did not outrun");
        all[0].sender = Some(sender(true));
        assert_eq!(verdict(&all, 0, placement()), Some(Some(true)));
    }

    #[test]
    fn a_lock_is_the_cause_only_where_it_was_seen() {
        let said = |shared, one| {
            let mut own = claim("7", Point::Below("5"), THREADS);
            own.trial.sockets = TrialSockets::Shared(2);
            let other = claim("5", Point::Reference, THREADS);
            let mut all = [rung("5", &[2.0, 2.02, 2.04]), rung("7", &[1.0, 1.01, 1.02])];
            (all[0].lock_waits_per_packet, all[1].lock_waits_per_packet) = (one, shared);
            let pairs: Vec<_> = [&other, &own]
                .into_iter()
                .zip(all.iter().cloned())
                .collect();
            own.judge(&all[1], &pairs).unwrap().sentence(true)
        };
        let seen = said(Some(0.3), Some(0.01));
        assert!(seen.contains("; lock contention: 0.3"), "{seen}");
        for few in [said(Some(0.3), Some(0.2)), said(Some(0.001), Some(0.0))] {
            assert!(few.ends_with("; no lock contention was seen"), "{few}");
        }
        let open = said(None, Some(0.2));
        assert!(open.ends_with("; the cause was not looked at"), "{open}");
    }

    #[test]
    fn a_load_that_a_cpu_bears_costs_it_less() {
        let verdict = |received: u64, other: f64| {
            let mut rung = rung("4e", &[0.2, 0.2, 0.2]);
            rung.runs.delivered_ratio = Some(received as f64 / 1e4);
            rung.runs.offered_mpps_median = Some(0.2);
            rung.same_load_ns = [600.0, 605.0, 610.0].map(|own| [own, other + own]).to_vec();
            holds(Point::Cheaper, &rung)
        };
        assert_eq!(verdict(10_000, 300.0), Some(true));
        assert_eq!(verdict(10_000, -300.0), Some(false));
        assert_eq!(verdict(10_000, 1.0), None, "noise");
        assert_eq!(verdict(9_000, 300.0), None, "it did not bear it");
    }

    #[test]
    fn where_packets_are_lost_is_told_over_all_repeats() {
        let lost = |station, count| Loss::new(station, "full", count, "counter");
        let mut rung = rung("3", &[1.0]);
        for (wire, socket) in [(10, 40), (60, 10)] {
            let mut ledger = Ledger::new(100, 100 - wire - socket, 0);
            ledger.lose(lost(Station::Wire, wire));
            ledger.lose(lost(Station::Socket, socket));
            rung.runs.sample_ledgers.push(ledger);
        }
        assert_eq!(holds(Point::LostAt(Station::Wire), &rung), Some(true));
        assert_eq!(holds(Point::LostAt(Station::Socket), &rung), Some(false));
        let soft = claim("3", Point::LostAt(Station::Socket), Delivery::SoftInterrupt);
        assert_eq!(soft.judge(&rung, &[]), None);
        rung.runs.sample_ledgers.clear();
        assert_eq!(
            holds(Point::LostAt(Station::Wire), &rung),
            None,
            "nothing was lost"
        );
    }

    #[test]
    fn the_shares_of_sockets_tell_who_was_idle() {
        let one = sockets(&[(0, 0), (5, 95), (0, 0), (0, 0)]);
        let two = sockets(&[(50, 0), (0, 0), (50, 0), (0, 0)]);
        let all = sockets(&[(30, 0), (20, 0), (26, 0), (0, 24)]);
        let points = [Point::OneSocket, Point::Idle, Point::Spread, Point::Busy];
        for (rung, expected) in [
            (&one, [true, true, false, false]),
            (&two, [false, true, false, false]),
            (&all, [false, false, true, true]),
        ] {
            assert_eq!(points.map(|point| holds(point, rung).unwrap()), expected);
        }
        let few = sockets(&[(97, 0), (1, 0), (1, 0), (1, 0)]);
        assert_eq!(holds(Point::Busy, &few), Some(true));
        let mut many = claim("8b", Point::Spread, THREADS);
        many.trial.flows = 64;
        assert_eq!(many.judge(&few, &[]).unwrap().holds, Some(false));
        assert_eq!(holds(Point::Busy, &sockets(&[(7, 0)])), None, "one socket");
        assert_eq!(holds(Point::OneSocket, &sockets(&[(0, 0), (0, 0)])), None);
        many.trial.flows = 64;
        let said = many.judge(&all, &[]).unwrap().sentence(false);
        assert_eq!(
            said.replace('\u{a0}', " "),
            "seen here: █▆▇▇ the sockets got 30.0 %, 20.0 %, 26.0 %, 24.0 %; the fullest has 1.20 \
             times the mean; chance gives 1.26 for 64 flows"
        );
    }

    #[test]
    fn chance_fills_sockets_as_every_draw_counted_says() {
        // All 4^4 ways to deal four flows to four sockets.
        let mut sum = 0;
        for deal in 0..256_u32 {
            let mut sockets = [0; 4];
            (0..4).for_each(|flow| sockets[(deal >> (2 * flow)) as usize & 3] += 1);
            sum += sockets.into_iter().max().unwrap();
        }
        assert!((chance(4, 4) - f64::from(sum) / 256.0).abs() < 1e-12);
        assert!((chance(1, 4) - 4.0).abs() < 1e-12);
        assert!((chance(7, 1) - 1.0).abs() < 1e-12);
        assert_eq!(chance(0, 4), 0.0);
    }
}
