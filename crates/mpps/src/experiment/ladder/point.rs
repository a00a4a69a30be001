//! What each rung is to show, and whether the figures of a run show it.

use super::result::{RungResult, Verdict};
use crate::measure::document::counted;
use crate::measure::noise::{Change, Noise, SAMPLES_MIN};
use mpps_host::Station;
use mpps_report::Quantity;

/// By what the figures of a run show the lesson of a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// Others are held against it.
    Reference,
    /// It receives more than that rung.
    Above(&'static str),
    /// It receives less than that rung.
    Below(&'static str),
    /// Most of what is lost is lost there.
    LostAt(Station),
    /// One of several sockets gets everything.
    OneSocket,
    /// Every socket gets some, as evenly as a hash makes it.
    Spread,
    /// There are sockets that get nothing.
    Idle,
    /// Every socket gets some.
    Busy,
}

impl Point {
    /// What these rungs say of it for one of them; none if that was not measured.
    pub(super) fn judge(
        self,
        rung: &RungResult,
        all: &[RungResult],
        flows: usize,
    ) -> Option<Verdict> {
        rung.runs.mpps_median?;
        let (holds, evidence) = match self {
            Self::Reference => return None,
            Self::Above(other) => compare(rung, find(all, other)?, all, Change::Better)?,
            Self::Below(other) => compare(rung, find(all, other)?, all, Change::Worse)?,
            Self::LostAt(station) => lost_at(rung, station),
            Self::OneSocket | Self::Spread | Self::Idle | Self::Busy => {
                let came = came(rung);
                let idle = came.iter().filter(|count| **count == 0).count();
                let holds = match self {
                    Self::OneSocket => idle + 1 == came.len(),
                    Self::Idle => idle > 0,
                    _ => idle == 0,
                };
                (Some(holds), shares(&came, flows))
            }
        };
        Some(Verdict { holds, evidence })
    }
}

impl Verdict {
    /// As a sentence; the article is named only of a rung of the article.
    pub(super) fn sentence(&self, is_the_articles: bool) -> String {
        let begins = match (self.holds, is_the_articles) {
            (Some(true), true) => "as in the article",
            (Some(true), false) => "seen here",
            (Some(false), _) => "not here",
            (None, _) => "not told by this run",
        };
        format!("{begins}: {}", self.evidence)
    }
}

fn find<'a>(all: &'a [RungResult], number: &str) -> Option<&'a RungResult> {
    all.iter().find(|rung| rung.rung == number)
}

/// Whether a rung's rate differs from another's as it should; none if the other has none.
fn compare(
    rung: &RungResult,
    other: &RungResult,
    all: &[RungResult],
    expected: Change,
) -> Option<(Option<bool>, String)> {
    let (own, its) = (&rung.runs.mpps_samples, &other.runs.mpps_samples);
    let times = Quantity::Times(rung.runs.mpps_median? / other.runs.mpps_median?).figure();
    let said = format!("{times} times what rung {} received", other.rung);
    if own.len() < SAMPLES_MIN || its.len() < SAMPLES_MIN {
        let few = format!("{said}; fewer than {SAMPLES_MIN} repeats say nothing about noise");
        return Some((None, few));
    }
    let samples = all.iter().map(|rung| &*rung.runs.mpps_samples);
    let samples = samples.filter(|samples| samples.len() >= SAMPLES_MIN);
    let found = Noise::of(samples.map(|one| (one, one))).judge(its, own).0;
    Some(match found {
        Change::Same => (None, format!("{said}, which is within the noise")),
        found => (Some(found == expected), said),
    })
}

/// Whether most of what was lost over all repeats was lost at a station.
fn lost_at(rung: &RungResult, station: Station) -> (Option<bool>, String) {
    let losses = rung.runs.sample_ledgers.iter().flat_map(|one| &one.losses);
    let (mut there, mut lost) = (0, 0);
    for loss in losses {
        lost += loss.count;
        there += u64::from(loss.station == station) * loss.count;
    }
    let (there_of, of) = (Quantity::Count(there.into()), Quantity::Count(lost.into()));
    let place = match station {
        Station::Wire => "the receive queue",
        Station::Socket => "the socket",
        other => other.name(),
    };
    let said = format!("{there_of} of {of} lost packets were lost at {place}");
    (Some(there * 2 > lost), said)
}

/// What came to each socket, taken in time or not.
fn came(rung: &RungResult) -> Vec<u64> {
    let threads = rung.threads.iter();
    threads
        .map(|thread| thread.received + thread.socket_drops.unwrap_or(0))
        .collect()
}

/// The shares of sockets, as a picture and in per cent, and how uneven they are.
fn shares(came: &[u64], flows: usize) -> String {
    const BARS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let all: u64 = came.iter().sum::<u64>().max(1);
    let fullest = came.iter().max().copied().unwrap_or(0).max(1);
    let bar = |count: &u64| BARS[(count * 8).div_ceil(fullest) as usize];
    let share = |count: &u64| Quantity::Share(*count as f64 / all as f64).to_string();
    let bars: String = came.iter().map(bar).collect();
    let each: Vec<String> = came.iter().map(share).collect();
    let uneven = Quantity::Times(fullest as f64 * came.len() as f64 / all as f64).figure();
    let chance = Quantity::Times(chance(flows, came.len())).figure();
    format!(
        "{bars} the sockets got {}; the fullest has {uneven} times the mean, and chance gives \
         {chance} for {}",
        each.join(", "),
        counted(flows, "flow")
    )
}

/// How many times the mean the fullest of so many sockets has on average, if each flow chooses its
/// socket by chance and all flows are equal.
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

/// The probability of so many successes in n trials of this probability.
fn binomial(n: usize, successes: usize, p: f64) -> f64 {
    let ways = (0..successes).fold(1.0, |ways, at| ways * (n - at) as f64 / (at + 1) as f64);
    ways * p.powi(successes as i32) * (1.0 - p).powi((n - successes) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ladder::result::ThreadShare;
    use crate::udp::runs::Runs;
    use mpps_host::{Ledger, Loss, Scope};

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
            cpu_ns_per_packet: 1.0,
        };
        RungResult {
            threads: came.iter().map(thread).collect(),
            ..rung("8", &[1.0])
        }
    }

    fn holds(point: Point, rung: &RungResult) -> Option<bool> {
        point.judge(rung, &[], 4).unwrap().holds
    }

    #[test]
    fn a_rate_is_held_against_another_rungs_and_the_noise() {
        let all = [
            rung("2", &[1.0, 1.01, 1.02]),
            rung("11", &[2.0, 2.02, 2.04]),
            rung("12", &[1.0, 1.02, 1.01]),
            rung("13", &[2.0]),
        ];
        let holds = |at: usize, point: Point| {
            let verdict = point.judge(&all[at], &all, 1);
            verdict.map(|verdict| verdict.holds)
        };
        assert_eq!(holds(1, Point::Above("2")), Some(Some(true)));
        assert_eq!(holds(1, Point::Below("2")), Some(Some(false)));
        assert_eq!(holds(0, Point::Below("11")), Some(Some(true)));
        assert_eq!(holds(2, Point::Above("2")), Some(None), "the same");
        assert_eq!(holds(3, Point::Above("2")), Some(None), "one repeat");
        assert_eq!(holds(0, Point::Above("9a")), None, "not measured");
        let said = Point::Above("2").judge(&all[1], &all, 1).unwrap();
        let said = said.sentence(true).replace('\u{a0}', " ");
        assert!(said.starts_with("as in the article: 2.0"), "{said}");
        assert!(said.ends_with(" times what rung 2 received"), "{said}");
    }

    #[test]
    fn where_packets_are_lost_is_told_over_all_repeats() {
        let lost = |station, count| Loss {
            station,
            reason: "full".to_owned(),
            count,
            source: "counter".to_owned(),
            scope: Scope::Namespace,
            by_difference: false,
            exact: true,
        };
        let mut rung = rung("3", &[1.0]);
        for (wire, socket) in [(10, 40), (60, 10)] {
            let mut ledger = Ledger::new(100, 100 - wire - socket, 0);
            ledger.lose(lost(Station::Wire, wire));
            ledger.lose(lost(Station::Socket, socket));
            rung.runs.sample_ledgers.push(ledger);
        }
        assert_eq!(holds(Point::LostAt(Station::Wire), &rung), Some(true));
        assert_eq!(holds(Point::LostAt(Station::Socket), &rung), Some(false));
        rung.runs.sample_ledgers.clear();
        assert_eq!(holds(Point::LostAt(Station::Wire), &rung), Some(false));
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
        let said = shares(&came(&all), 64).replace('\u{a0}', " ");
        assert_eq!(
            said,
            "█▆▇▇ the sockets got 30.0 %, 20.0 %, 26.0 %, 24.0 %; the fullest has 1.20 times the \
             mean, and chance gives 1.26 for 64 flows"
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
