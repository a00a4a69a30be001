//! One experiment of the ladder: who sends, who receives and where, and who shares a CPU in it.

use super::result::RungNeed;
use crate::measure::document::counted;
use crate::udp::path::SOCKET;
use crate::udp::roles::distinct;
use crate::udp::trial::UdpTrial;
use mpps_host::{CpuList, Relation, Station};
use std::fmt;

/// By what the figures of a run show the lesson of a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// Others are held against it.
    Reference,
    /// It receives more than that rung.
    Above(&'static str),
    /// It receives less than that rung.
    Below(&'static str),
    /// It receives all of a load, with less CPU time than on another core.
    Cheaper,
    /// Most losses are there.
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

/// One experiment.
#[derive(Debug, Clone)]
pub(crate) struct Rung {
    /// Number on the ladder, with a letter for variants.
    pub(crate) number: &'static str,
    pub(crate) name: &'static str,
    pub(crate) lesson: &'static str,
    /// By what the figures of a run show the lesson: by all of these.
    pub(super) points: Vec<Point>,
    /// The article's lowest and highest figure in Mpps.
    pub(crate) article_mpps: Option<[f64; 2]>,
    pub(crate) trial: UdpTrial,
    /// The relation of the application's CPU to the first queue's, if the rung is about that.
    pub(crate) place: Option<Relation>,
    /// Why it has a sender of its own, if it has.
    pub(crate) own_sender: Option<&'static str>,
    /// Why it cannot run on this host.
    pub(crate) skipped: Option<String>,
    /// The lack behind that, if one word says it.
    pub(super) needs: Option<RungNeed>,
    /// Notes on it on this host.
    pub(crate) notes: Vec<String>,
    /// True of a further trial of a rung, for comparison, with another rung's sender and delivery.
    pub(super) again: bool,
}

/// `rung 2 one socket, pinned`.
impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = if self.again { ", for comparison" } else { "" };
        write!(f, "rung {} {}{again}", self.number, self.name)
    }
}

impl Rung {
    /// The rungs that its rate is held against.
    pub(super) fn references(&self) -> impl Iterator<Item = &'static str> {
        self.points.iter().filter_map(|point| match point {
            Point::Above(other) | Point::Below(other) if !self.again => Some(*other),
            _ => None,
        })
    }

    /// True if only the lesson distinguishes it from this rung, and not the sender or the delivery.
    /// The places of 4a to 4d have a delivery each.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let (own, its) = (&self.trial, &other.trial);
        own.sender.backend() == its.sender.backend()
            && (self.place.is_some() || own.layout.delivery == its.layout.delivery)
    }

    /// The same with this rung's sender and delivery, to hold its rate against; none if the sender
    /// cannot reach the queues.
    fn again_as(&self, rung: &Self) -> Option<Self> {
        let mut again = Self {
            again: true,
            ..self.clone()
        };
        if rung.place.is_none() && again.trial.layout.delivery != rung.trial.layout.delivery {
            again.trial.layout = rung.trial.layout.clone();
        }
        again.trial.sender = rung.trial.sender;
        again.trial.sender_cpus().is_ok().then_some(again)
    }

    /// True if it receives by another backend than the article's.
    pub(super) fn is_beyond(&self) -> bool {
        self.trial.path.name != SOCKET.name
    }

    /// The roles of a CPU.
    pub(super) fn roles(&self, cpu: usize) -> Vec<String> {
        let layout = &self.trial.layout;
        let mut roles = Vec::new();
        if self
            .trial
            .sender_cpus()
            .is_ok_and(|cpus| cpus.contains(&cpu))
        {
            roles.push("sender".to_owned());
        }
        let mut queues = self.trial.queues();
        queues.retain(|queue| layout.queues[*queue] == cpu);
        if layout.is_placed && !queues.is_empty() {
            let plural = if queues.len() == 1 { "" } else { "s" };
            roles.push(format!("queue{plural} {}", CpuList(queues)));
        }
        if self.trial.applications().contains(&cpu) {
            roles.push("application".to_owned());
        }
        roles
    }

    /// The CPUs and cores that tasks share, one sentence each. They depend on the sender.
    pub(super) fn sharing(&self) -> Vec<String> {
        let layout = &self.trial.layout;
        let mut notes = Vec::new();
        let senders = self.trial.sender_cpus().unwrap_or_default();
        notes.extend(self.crowded("sending", senders.len(), &distinct(senders.clone())));
        let applications = self.trial.applications();
        if !applications.is_empty() {
            let threads = self.trial.sockets.threads();
            notes.extend(self.crowded("receiving", threads, applications));
        }
        let queues = match layout.is_placed {
            true => self
                .trial
                .queues()
                .iter()
                .map(|queue| layout.queues[*queue])
                .collect(),
            false => Vec::new(),
        };
        // Some rungs are about sharing them.
        let is_point = matches!(self.place, Some(Relation::SameCpu | Relation::Sibling));
        let with = [
            ("receive queues", &queues, is_point),
            ("sender", &senders, false),
        ];
        for (who, others, is_point) in with {
            let is_shared = |cpu: &usize| others.contains(cpu);
            let on_a_core = |cpu: &usize| layout.share_a_core(*cpu, others);
            let what = match applications {
                _ if is_point => continue,
                cpus if cpus.iter().any(is_shared) => "CPU",
                cpus if cpus.iter().any(on_a_core) => "core",
                _ => continue,
            };
            notes.push(format!("{who} and application share a {what}"));
        }
        notes
    }

    /// Says so if there are fewer CPUs than threads, or fewer cores than CPUs.
    fn crowded(&self, what: &str, threads: usize, cpus: &[usize]) -> Option<String> {
        let cores = self.trial.layout.cores(cpus);
        let (unit, count) = match cpus.len() {
            many if cores < many => ("core", cores),
            many => ("CPU", many),
        };
        let shared = counted(count, unit);
        (threads > count).then(|| format!("{threads} {what} threads share {shared}"))
    }
}

/// These rungs, and before each that is unlike its reference a further trial of the latter.
pub(super) fn with_references(rungs: Vec<Rung>) -> Vec<Rung> {
    let mut all: Vec<Rung> = Vec::new();
    for rung in &rungs {
        for reference in rung.references().filter(|_| rung.skipped.is_none()) {
            let is_reference = |other: &&Rung| other.number == reference;
            let mut known = all.iter().chain(&rungs).filter(is_reference);
            let is_unlike = !known.any(|other| rung.is_like(other));
            let own = rungs
                .iter()
                .find(is_reference)
                .filter(|other| is_unlike && other.skipped.is_none());
            all.extend(own.and_then(|other| other.again_as(rung)));
        }
        all.push(rung.clone());
    }
    all
}
