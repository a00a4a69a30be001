//! One experiment of the ladder: who sends, who receives and where, and who shares a CPU in it.

use super::lesson::{Claim, Point};
use crate::measure::document::counted;
use crate::udp::roles::{CpuLayout, QUEUES, distinct};
use crate::udp::sender::LabSender;
use mpps_host::{CpuList, Relation};
use mpps_lab::{address, steering};

/// How the receiving program takes its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RungReceiver {
    /// So many threads read one socket.
    Shared(usize),
    /// So many threads have a socket each on one port; the kernel spreads flows by hash.
    ReusePort(usize),
    /// The same, but a packet goes to the socket of the CPU that received it.
    Steered(usize),
    /// So many threads have a socket each on an address of its own.
    Addressed(usize),
}

impl RungReceiver {
    /// How many threads receive.
    pub(crate) fn threads(self) -> usize {
        match self {
            Self::Shared(n) | Self::ReusePort(n) | Self::Steered(n) | Self::Addressed(n) => n,
        }
    }
}

/// Whether the receiving host tracks connections (Documentation/networking/nf_conntrack-sysctl.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RungTracking {
    /// Every packet's.
    On,
    /// Every packet's but those to the port, as the article's rule in the table raw had it.
    Off,
}

/// One experiment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rung {
    /// Number on the ladder, with a letter for variants.
    pub(crate) number: &'static str,
    pub(crate) name: &'static str,
    pub(crate) lesson: &'static str,
    /// By what the figures of a run show the lesson.
    pub(super) point: Point,
    /// The article's lowest and highest figure in Mpps.
    pub(crate) article_mpps: Option<[f64; 2]>,
    /// Sending threads: the last byte of the address that each one sends to.
    pub(crate) targets: &'static [u8],
    /// Flows of each sending thread, by source port.
    pub(crate) flows: usize,
    /// True if all sending threads have one source port, as the article's had.
    pub(crate) one_port: bool,
    pub(crate) sockets: RungReceiver,
    pub(crate) layout: CpuLayout,
    /// The relation of the application's CPU to the first queue's, if the rung is about that.
    pub(crate) place: Option<Relation>,
    /// Receive trains.
    pub(crate) gro: bool,
    pub(crate) sender: LabSender,
    /// True if the rung is about its sender, which then stays.
    pub(crate) keeps_sender: bool,
    pub(crate) busy_poll_us: Option<u32>,
    /// How the receiving host tracks the connections of its packets.
    pub(crate) tracking: Option<RungTracking>,
    /// Why it cannot run on this host.
    pub(crate) skipped: Option<String>,
    /// Notes on it on this host.
    pub(crate) notes: Vec<String>,
}

impl Rung {
    /// The first source port of a sending thread, whose flows no other thread of the rung has unless
    /// the rung is about that.
    pub(super) fn source_port(&self, first: u16, thread: usize) -> u16 {
        match self.one_port {
            true => first,
            // At most four threads and 64 flows.
            false => first + (thread * self.flows) as u16,
        }
    }

    /// The number of flows. The kernel distinguishes them by source port.
    pub(super) fn flow_count(&self) -> usize {
        match self.one_port {
            true => 1,
            false => self.targets.len() * self.flows,
        }
    }

    /// The claim of its lesson.
    pub(super) fn claim(&self) -> Claim {
        Claim {
            number: self.number,
            point: self.point,
            flows: self.flow_count(),
            delivery: self.layout.delivery,
            is_placement: self.place.is_some(),
        }
    }

    /// The CPU of each sending thread.
    ///
    /// # Errors
    /// Why the sender cannot reach the rung's queues.
    pub(super) fn sender_cpus(&self) -> Result<Vec<usize>, String> {
        self.sender.cpus(&self.layout, self.targets)
    }

    /// The CPUs of the sockets that packets are steered to, one each: those of the queues.
    pub(super) fn steered_cpus(&self) -> Vec<usize> {
        distinct(self.layout.queues.clone())
    }

    /// The queues that its packets take.
    pub(super) fn queues(&self) -> Vec<usize> {
        let queue = |to: &u8| usize::from(steering::queue(address::v4(*to).into(), QUEUES));
        distinct(self.targets.iter().map(queue).collect())
    }

    /// The CPUs that its receiving threads use; none if the scheduler chooses.
    fn applications(&self) -> &[usize] {
        let all = &self.layout.applications;
        &all[..all.len().min(self.sockets.threads())]
    }

    /// The roles of a CPU.
    pub(super) fn roles(&self, cpu: usize) -> Vec<String> {
        let layout = &self.layout;
        let mut roles = Vec::new();
        if self.sender_cpus().is_ok_and(|cpus| cpus.contains(&cpu)) {
            roles.push("sender".to_owned());
        }
        let mut queues = self.queues();
        queues.retain(|queue| layout.queues[*queue] == cpu);
        if layout.is_placed && !queues.is_empty() {
            let plural = if queues.len() == 1 { "" } else { "s" };
            roles.push(format!("queue{plural} {}", CpuList(queues)));
        }
        if self.applications().contains(&cpu) {
            roles.push("application".to_owned());
        }
        roles
    }

    /// The CPUs and cores that tasks share, one sentence each. They depend on the sender.
    pub(super) fn sharing(&self) -> Vec<String> {
        let layout = &self.layout;
        let mut notes = Vec::new();
        if !layout.is_placed {
            notes.push("receive queues have no CPU of their own".to_owned());
        }
        let senders = self.sender_cpus().unwrap_or_default();
        notes.extend(self.crowded("sending", senders.len(), &distinct(senders.clone())));
        let applications = self.applications();
        if !applications.is_empty() {
            let threads = self.sockets.threads();
            notes.extend(self.crowded("receiving", threads, applications));
        }
        let queues = match layout.is_placed {
            true => self
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
        let cores = self.layout.cores(cpus);
        let (unit, count) = match cpus.len() {
            many if cores < many => ("core", cores),
            many => ("CPU", many),
        };
        let shared = counted(count, unit);
        (threads > count).then(|| format!("{threads} {what} threads share {shared}"))
    }
}
