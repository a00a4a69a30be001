//! The figures behind the verdict on a lesson, and their words.

use crate::measure::document::counted;
use crate::measure::noise::SAMPLES_MIN;
use mpps_report::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Waits for a lock per datagram, above which threads are held up by it.
const CONTENDED: f64 = 0.01;

/// Whether a run shows what its rung teaches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LessonVerdict {
    /// Absent without a verdict: too few repeats, or a difference within the noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// The figures that say so.
    pub evidence: LessonEvidence,
}

/// The figures behind a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum LessonEvidence {
    /// In the order of the lesson's points.
    Facts(Vec<LessonFact>),
    /// A sentence, in files of older versions.
    Said(String),
}

/// A fact behind a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LessonFact {
    /// The meaning of its figures.
    pub kind: FactKind,
    /// In the order that the kind names them.
    pub figures: Vec<f64>,
    /// The rung that it compares with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<String>,
    /// Why it decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenLesson>,
}

/// The meaning of a fact's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactKind {
    /// The rate over that of another rung.
    Rate,
    /// The same; the other rung was measured once more, with this rung's sender and delivery.
    RateAgain,
    /// The share received, the Mpps offered, the CPU time per datagram in ns, and that on another core.
    Cost,
    /// The packets lost in the receive queue, and all lost packets.
    LostInQueue,
    /// The packets lost at the socket, and all lost packets.
    LostAtSocket,
    /// The datagrams that came to each socket, received or dropped.
    Sockets,
    /// The flows, and how many times the mean the fullest socket has by chance.
    Chance,
    /// No figures: receive queues have no CPU of their own.
    Unplaced,
    /// Waits for a lock per datagram, of threads that share a socket and of one thread; no figures if
    /// these were not counted.
    Locks,
}

/// Why figures decide nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpenLesson {
    /// Too few repeats.
    FewRepeats,
    /// The difference is within the noise.
    Noise,
    /// The other rung had another sender.
    OtherSender,
    /// The packets of the other rung came another way.
    OtherWay,
    /// The sender did not outrun the lower rate.
    SenderLimit,
    /// Datagrams of the load were lost.
    NotBorne,
}

impl OpenLesson {
    fn said(self) -> String {
        match self {
            Self::FewRepeats => {
                return format!("; fewer than {SAMPLES_MIN} repeats say nothing about noise");
            }
            Self::Noise => ", which is within the noise",
            Self::OtherSender => ", and that had another sender",
            Self::OtherWay => ", whose packets came another way",
            Self::SenderLimit => ", and the sender did not outrun it",
            Self::NotBorne => ": the load was not borne",
        }
        .to_owned()
    }
}

impl LessonVerdict {
    /// As a sentence; the article is named only of a rung of the article.
    pub(super) fn sentence(&self, is_the_articles: bool) -> String {
        let begins = match (self.holds, is_the_articles) {
            (Some(true), true) => "as in the article",
            (Some(true), false) => "seen here",
            (Some(false), _) => "not here",
            (None, _) => "not decided by this run",
        };
        let said = match &self.evidence {
            LessonEvidence::Said(said) => said.clone(),
            LessonEvidence::Facts(facts) => {
                let said: Vec<String> = facts.iter().map(LessonFact::said).collect();
                said.join("; ")
            }
        };
        format!("{begins}: {said}")
    }
}

impl LessonFact {
    /// A fact that decides.
    pub(super) fn new(kind: FactKind, figures: impl Into<Vec<f64>>) -> Self {
        Self {
            kind,
            figures: figures.into(),
            rung: None,
            open: None,
        }
    }

    fn said(&self) -> String {
        let count = |figure: f64| Quantity::Count(figure as u128);
        let rung = self.rung.as_deref().unwrap_or_default();
        let said = match (self.kind, &self.figures[..]) {
            (FactKind::Rate, [times]) => {
                format!(
                    "{} times what rung {rung} received",
                    Quantity::Times(*times).figure()
                )
            }
            (FactKind::RateAgain, [times]) => format!(
                "{} times what rung {rung} received, measured with this rung's sender and delivery",
                Quantity::Times(*times).figure()
            ),
            (FactKind::Cost, [received, offered, here, there]) => format!(
                "received {} of {}, with {} of CPU time for each, and {} on another core",
                Quantity::Share(*received),
                Quantity::Mpps(*offered),
                Quantity::Nanoseconds(*here),
                Quantity::Nanoseconds(*there)
            ),
            (kind @ (FactKind::LostInQueue | FactKind::LostAtSocket), [there, lost]) => {
                let place = match kind {
                    FactKind::LostInQueue => "in the receive queue",
                    _ => "at the socket",
                };
                format!(
                    "{} of {} lost packets were lost {place}",
                    count(*there),
                    count(*lost)
                )
            }
            (FactKind::Sockets, came) => shares(came),
            (FactKind::Chance, [flows, times]) => format!(
                "chance gives {} for {}",
                Quantity::Times(*times).figure(),
                counted(*flows as usize, "flow")
            ),
            (FactKind::Unplaced, _) => "receive queues have no CPU of their own".to_owned(),
            // Threads that share a socket receive less than one thread.
            (FactKind::Locks, [shared, one]) if *shared > (2.0 * one).max(CONTENDED) => format!(
                "lock contention: {} waits for a lock per datagram, and {} of one thread \
                 (lock:contention_begin)",
                Quantity::Each(*shared).figure(),
                Quantity::Each(*one).figure()
            ),
            (FactKind::Locks, [_, _]) => "no lock contention was seen".to_owned(),
            (FactKind::Locks, _) => "the cause was not looked at".to_owned(),
            (kind, figures) => format!("{kind:?} {figures:?}"),
        };
        said + &self.open.map_or_else(String::new, OpenLesson::said)
    }
}

/// The shares of sockets, as a picture and in per cent, and how uneven they are.
fn shares(came: &[f64]) -> String {
    const BARS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let all = came.iter().sum::<f64>().max(1.0);
    let fullest = came.iter().copied().fold(1.0, f64::max);
    let bar = |count: &f64| BARS[((count * 8.0 / fullest).ceil() as usize).min(8)];
    let share = |count: &f64| Quantity::Share(count / all).to_string();
    let bars: String = came.iter().map(bar).collect();
    let each: Vec<String> = came.iter().map(share).collect();
    let uneven = Quantity::Times(uneven(came)).figure();
    format!(
        "{bars} the sockets got {}; the fullest has {uneven} times the mean",
        each.join(", ")
    )
}

/// How many times the mean the fullest of these sockets has.
pub(super) fn uneven(came: &[f64]) -> f64 {
    let all: f64 = came.iter().sum();
    came.iter().copied().fold(0.0, f64::max) * came.len() as f64 / all.max(1.0)
}
