//! The rungs: what each one sets up, what the article measured, and what it teaches.

use super::{Layout, Sender};
use mpps_host::Relation;

/// Datagrams per train of the GSO rung: the most that kernels before 6.9 take.
const LONG_TRAIN: u16 = 64;

/// How the receiving program takes its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// So many threads read one socket.
    Shared(usize),
    /// So many threads have a socket each on one port; the kernel spreads flows by hash.
    ReusePort(usize),
    /// The same, but a packet goes to the socket of the CPU that received it.
    Steered(usize),
    /// So many threads have a socket each on an address of its own.
    Addressed(usize),
}

impl Sockets {
    /// How many threads receive.
    pub(crate) fn threads(self) -> usize {
        match self {
            Self::Shared(n) | Self::ReusePort(n) | Self::Steered(n) | Self::Addressed(n) => n,
        }
    }
}

/// One experiment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rung {
    /// Number on the ladder, with a letter for variants.
    pub(crate) number: String,
    /// What is done.
    pub(crate) name: String,
    /// What it teaches.
    pub(crate) lesson: &'static str,
    /// The article's lowest and highest figure in Mpps.
    pub(crate) article_mpps: Option<[f64; 2]>,
    /// Sending threads: the last byte of the address that each one sends to.
    pub(crate) targets: Vec<u8>,
    /// How it is received.
    pub(crate) sockets: Sockets,
    /// CPUs of the receiving threads, taken in turn; empty leaves them to the scheduler.
    pub(crate) cpus: Vec<usize>,
    /// Receive trains.
    pub(crate) gro: bool,
    /// Who sends.
    pub(crate) sender: Sender,
    /// True if the rung is about its sender, which then stays.
    pub(crate) keeps_sender: bool,
    /// Microseconds of busy polling.
    pub(crate) busy_poll_us: Option<u32>,
    /// Why it cannot run on this host.
    pub(crate) skipped: Option<String>,
    /// What a reader has to know of it on this host.
    pub(crate) notes: Vec<String>,
}

impl Rung {
    /// The same with another sender; none if that one cannot reach the rung's queues.
    pub(super) fn sent_by(&self, sender: Sender, layout: &Layout) -> Option<Self> {
        sender.cpus(layout, &self.targets).ok()?;
        Some(Self {
            sender,
            ..self.clone()
        })
    }

    /// Says so if sending threads share a CPU, which depends on who sends.
    pub(super) fn shared_senders(&self, layout: &Layout) -> Option<String> {
        let mut cpus = self.sender.cpus(layout, &self.targets).ok()?;
        let threads = cpus.len();
        cpus.sort_unstable();
        cpus.dedup();
        let plural = if cpus.len() == 1 { "" } else { "s" };
        (threads > cpus.len())
            .then(|| format!("{threads} sending threads share {} CPU{plural}", cpus.len()))
    }
}

/// The ladder for a host, lowest rung first, with this sender on all rungs but those about another.
pub(crate) fn rungs(layout: &Layout, sender: Sender) -> Vec<Rung> {
    let mut rungs = article(layout);
    rungs.extend(today(layout));
    for rung in &mut rungs {
        if !rung.keeps_sender {
            rung.sender = sender;
        }
        let unreached = rung.sender.cpus(layout, &rung.targets).err();
        rung.skipped = rung.skipped.take().or(unreached);
        note_sharing(rung, layout);
    }
    rungs
}

/// A rung with one pinned thread on one socket and one sender, to be varied.
fn base(layout: &Layout, number: &str, name: &str, lesson: &'static str) -> Rung {
    Rung {
        number: number.to_owned(),
        name: name.to_owned(),
        lesson,
        article_mpps: None,
        targets: vec![1],
        sockets: Sockets::Shared(1),
        cpus: layout.applications.clone(),
        gro: false,
        sender: Sender::Socket { train: 1 },
        keeps_sender: false,
        busy_poll_us: None,
        skipped: None,
        notes: Vec::new(),
    }
}

/// Rungs 1 to 9: the article's experiments with the article's figures.
fn article(layout: &Layout) -> Vec<Rung> {
    let rung = |number, name, lesson| base(layout, number, name, lesson);
    let mut rungs = vec![
        Rung {
            article_mpps: Some([0.197, 0.352]),
            cpus: Vec::new(),
            ..rung(
                "1",
                "one socket, unpinned",
                "the scheduler moves the program between CPUs",
            )
        },
        Rung {
            article_mpps: Some([0.360, 0.374]),
            ..rung(
                "2",
                "one socket, pinned",
                "a program that stays on its CPU keeps its caches",
            )
        },
        Rung {
            article_mpps: Some([0.349, 0.354]),
            targets: vec![1, 1],
            ..rung(
                "3",
                "two senders, one address",
                "one address is one receive queue is one CPU",
            )
        },
    ];
    rungs.extend(placements(layout));
    rungs.extend(queues(layout));
    rungs.push(other_node(layout));
    rungs
}

/// Rungs 5 to 9a: more queues, and who reads them.
fn queues(layout: &Layout) -> Vec<Rung> {
    let rung = |number, name, lesson| base(layout, number, name, lesson);
    vec![
        Rung {
            article_mpps: Some([0.609, 0.657]),
            targets: vec![1, 2],
            ..rung(
                "5",
                "two addresses, two queues",
                "more addresses are more queues",
            )
        },
        Rung {
            article_mpps: Some([0.437, 0.437]),
            targets: vec![1, 2, 3, 4],
            ..rung(
                "6",
                "four queues, one socket",
                "the loss moves from the NIC to the socket",
            )
        },
        Rung {
            article_mpps: Some([0.461, 0.495]),
            targets: vec![1, 2, 3, 4],
            sockets: Sockets::Shared(2),
            ..rung(
                "7",
                "two threads, one socket",
                "threads fight over one receive buffer",
            )
        },
        Rung {
            article_mpps: Some([1.114, 1.147]),
            targets: vec![1, 2, 3, 4],
            sockets: Sockets::ReusePort(4),
            ..rung(
                "8",
                "four sockets, SO_REUSEPORT",
                "a socket per thread, but hashes collide",
            )
        },
        Rung {
            article_mpps: Some([1.4, 1.4]),
            targets: vec![1, 2, 3, 4],
            sockets: Sockets::Addressed(4),
            ..rung(
                "9a",
                "four sockets, aligned",
                "an address, a queue and a socket per thread",
            )
        },
    ]
}

/// Rung 4: the receiver in every place that it can have relative to the queue's CPU.
fn placements(layout: &Layout) -> Vec<Rung> {
    let places = [
        (
            "4a",
            Relation::SameCpu,
            "receiver on the queue's CPU",
            // "Up to 430k", and "falls to zero" under overload.
            [0.0, 0.430],
        ),
        (
            "4b",
            Relation::Sibling,
            "receiver on its hyper-thread",
            [0.200, 0.200],
        ),
        (
            "4c",
            Relation::SameNode,
            "receiver elsewhere on its node",
            [0.360, 0.360],
        ),
        (
            "4d",
            Relation::OtherNode,
            "receiver on another node",
            [0.250, 0.330],
        ),
    ];
    let lesson = "where the receiver runs, relative to the queue's CPU, decides";
    let rung = |(number, relation, name, article): (&str, Relation, &str, [f64; 2])| {
        let cpu = layout.related(relation);
        Rung {
            article_mpps: Some(article),
            cpus: cpu.into_iter().collect(),
            skipped: cpu.is_none().then(|| {
                let missing = match relation {
                    Relation::Sibling => "hyper-thread sibling",
                    Relation::OtherNode => "CPU on another NUMA node",
                    Relation::SameCpu | Relation::SameNode => "such CPU",
                };
                format!("this host has no {missing} for CPU {}", layout.queues[0])
            }),
            ..base(layout, number, name, lesson)
        }
    };
    places.into_iter().map(rung).collect()
}

/// Rung 9 with the receiving threads on the wrong node.
fn other_node(layout: &Layout) -> Rung {
    let cpu = layout.related(Relation::OtherNode);
    let lesson = "the other NUMA node costs a third";
    Rung {
        article_mpps: Some([1.0, 1.0]),
        targets: vec![1, 2, 3, 4],
        sockets: Sockets::Addressed(4),
        cpus: cpu.into_iter().collect(),
        skipped: cpu.is_none().then(|| {
            let nodes = layout.nodes();
            format!(
                "this host has {nodes} NUMA node{}",
                if nodes == 1 { "" } else { "s" }
            )
        }),
        ..base(layout, "9b", "four sockets, other node", lesson)
    }
}

/// What the article did not have.
fn today(layout: &Layout) -> Vec<Rung> {
    let rung = |number, name, lesson| base(layout, number, name, lesson);
    let mut queue_cpus = layout.queues.clone();
    queue_cpus.sort_unstable();
    queue_cpus.dedup();
    vec![
        Rung {
            targets: vec![1, 2, 3, 4],
            sockets: Sockets::Steered(queue_cpus.len()),
            cpus: queue_cpus,
            ..rung(
                "10",
                "sockets steered by CPU",
                "classic BPF instead of a hash: no collision",
            )
        },
        Rung {
            gro: true,
            ..rung(
                "11",
                "GRO receiver",
                "the stack handles trains and not datagrams",
            )
        },
        Rung {
            gro: true,
            sender: Sender::Socket { train: LONG_TRAIN },
            keeps_sender: true,
            ..rung(
                "12",
                "GSO sender, GRO receiver",
                "the sender's stack handles trains, too",
            )
        },
        Rung {
            busy_poll_us: Some(50),
            ..rung(
                "13",
                "busy polling",
                "the receiver asks the queue instead of being woken",
            )
        },
    ]
}

/// Says which CPUs do several jobs at once.
fn note_sharing(rung: &mut Rung, layout: &Layout) {
    if rung.skipped.is_some() {
        return;
    }
    if !layout.is_placed {
        rung.notes
            .push("receive queues are not placed: the scheduler chooses their CPU".to_owned());
    }
    if rung.cpus.is_empty() {
        return;
    }
    let threads = rung.sockets.threads();
    if threads > rung.cpus.len() {
        let cpus = rung.cpus.len();
        let plural = if cpus == 1 { "" } else { "s" };
        rung.notes.push(format!(
            "{threads} receiving threads share {cpus} CPU{plural}"
        ));
    }
    let on_queue = rung.cpus.iter().any(|cpu| layout.queues.contains(cpu));
    if layout.is_placed && on_queue && rung.number != "4a" {
        rung.notes
            .push("receive queues and application share a CPU".to_owned());
    }
    if rung.cpus.iter().any(|cpu| layout.senders.contains(cpu)) {
        rung.notes
            .push("sender and application share a CPU".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::two_cpus;
    use super::*;

    #[test]
    fn sending_threads_share_a_cpu_or_not_by_who_sends() {
        let mut layout = two_cpus();
        let rung = |targets: &[u8], sender| Rung {
            targets: targets.to_vec(),
            sender,
            ..base(&two_cpus(), "3", "two senders", "")
        };
        let (socket, xdp) = (Sender::Socket { train: 4 }, Sender::Generator);
        let shared =
            |layout: &Layout, targets: &[u8], sender| rung(targets, sender).shared_senders(layout);
        let one_cpu = Some("2 sending threads share 1 CPU".to_owned());
        assert_eq!(shared(&layout, &[1, 2], socket), one_cpu);
        assert_eq!(shared(&layout, &[1], socket), None);
        layout.senders = vec![8, 9, 10, 11];
        assert_eq!(shared(&layout, &[1, 1], socket), None);
        // Of these, only CPU 8 reaches queue 0.
        assert_eq!(shared(&layout, &[1, 1], xdp), one_cpu);
        assert_eq!(shared(&layout, &[1, 2], xdp), None);
        layout.senders = vec![8, 9];
        let four = shared(&layout, &[1, 2, 1, 2], socket);
        assert_eq!(four.as_deref(), Some("4 sending threads share 2 CPUs"));
        let notes = |notes: Vec<String>| notes.iter().any(|note| note.contains("sending"));
        let all = rungs(&two_cpus(), socket);
        assert!(!all.into_iter().any(|rung| notes(rung.notes)));
    }
}
