//! The rungs: what each one sets up, what the article measured, and what it teaches.

use super::point::Point;
use super::sender::Choice;
use crate::measure::document::counted;
use crate::udp::roles::{ARTICLE_PLACES, Layout, QUEUES, distinct};
use crate::udp::sender::Sender;
use mpps_host::{CpuList, Relation, Station};
use mpps_lab::{Delivery, address, steering};

/// Datagrams per train of the GSO rung: the most that kernels before 6.9 take.
const LONG_TRAIN: u16 = 64;

/// Flows of each of four sending threads where the packets are to reach several sockets: 64 in all.
/// The kernel's hash spreads them by source port, and not by destination where the sockets are bound
/// to the wildcard address.
const SPREAD_FLOWS: usize = 16;

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

/// Whether the receiving host tracks connections (Documentation/networking/nf_conntrack-sysctl.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracking {
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
    pub(crate) sockets: Sockets,
    pub(crate) layout: Layout,
    /// What the application's CPU is to the first queue's, if the rung is about that.
    pub(crate) place: Option<Relation>,
    /// Receive trains.
    pub(crate) gro: bool,
    pub(crate) sender: Sender,
    /// True if the rung is about its sender, which then stays.
    pub(crate) keeps_sender: bool,
    pub(crate) busy_poll_us: Option<u32>,
    /// What the receiving host does with the connections of its packets.
    pub(crate) tracking: Option<Tracking>,
    /// Why it cannot run on this host.
    pub(crate) skipped: Option<String>,
    /// What a reader has to know of it on this host.
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

    /// How many flows its packets are of, as the kernel tells them apart by source port.
    pub(super) fn flow_count(&self) -> usize {
        match self.one_port {
            true => 1,
            false => self.targets.len() * self.flows,
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

    /// What runs on a CPU.
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

    /// Who shares a CPU or a core with whom, which depends on who sends; a sentence each.
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

/// The ladder for a host, lowest rung first. A rung whose threads this host cannot give a CPU each is
/// skipped, unless `all` are to run.
pub(crate) fn rungs(layout: &Layout, choice: &Choice, all: bool) -> Vec<Rung> {
    let mut rungs = article(layout, all);
    rungs.extend(today(layout, all));
    for rung in &mut rungs {
        if !rung.keeps_sender {
            rung.sender = choice.sender;
            let unreached = rung.sender_cpus().is_err();
            if let Some(other) = choice.otherwise().filter(|_| unreached) {
                rung.sender = other;
            }
        }
        let unreached = rung.sender_cpus().err();
        rung.skipped = rung.skipped.take().or(unreached);
        if rung.layout.has_changed_places(layout) {
            let places = "the senders have left their CPUs to the application, and taken its own";
            rung.notes.push(places.to_owned());
        }
        if rung.layout.delivery == Delivery::SoftInterrupt
            && layout.delivery != rung.layout.delivery
        {
            let serve = "each sender serves a queue in its soft interrupts: there are too few CPUs for \
                         senders, queues and application each";
            rung.notes.push(serve.to_owned());
        }
    }
    rungs
}

impl Rung {
    /// A rung with one pinned thread on one socket and one sender, to be varied.
    fn new(layout: &Layout, number: &'static str, name: &'static str) -> Self {
        Self {
            number,
            name,
            lesson: "",
            point: Point::Reference,
            article_mpps: None,
            targets: &[1],
            flows: 1,
            one_port: false,
            sockets: Sockets::Shared(1),
            layout: layout.clone(),
            place: None,
            gro: false,
            sender: Sender::Socket { train: 1 },
            keeps_sender: false,
            busy_poll_us: None,
            tracking: None,
            skipped: None,
            notes: Vec::new(),
        }
    }

    fn teaches(self, lesson: &'static str, point: Point) -> Self {
        Self {
            lesson,
            point,
            ..self
        }
    }

    /// With the article's lowest and highest figure in Mpps.
    fn article(self, mpps: [f64; 2]) -> Self {
        let article_mpps = Some(mpps);
        Self {
            article_mpps,
            ..self
        }
    }

    /// With these CPUs, or why it cannot have them.
    fn at(mut self, place: Result<Layout, String>) -> Self {
        match place {
            Ok(layout) => self.layout = layout,
            Err(why) => self.skipped = Some(why),
        }
        self
    }

    /// With a sending thread to each of these addresses.
    fn to(self, targets: &'static [u8]) -> Self {
        Self { targets, ..self }
    }

    /// Received so, over four queues.
    fn by(self, sockets: Sockets) -> Self {
        Self {
            sockets,
            ..self.to(&[1, 2, 3, 4])
        }
    }

    /// By flows that reach several sockets.
    fn spread(self) -> Self {
        Self {
            flows: SPREAD_FLOWS,
            ..self
        }
    }

    /// With a CPU for each queue and each of so many receiving threads.
    fn on_own_cpus(self, threads: usize, all: bool) -> Self {
        let place = self.layout.with_cpus(self.queues().len(), threads);
        match place {
            Err(_) if all => self,
            place => self.at(place),
        }
    }
}

/// Rungs 1 to 9: the article's experiments with the article's figures.
fn article(layout: &Layout, all: bool) -> Vec<Rung> {
    let rung = |number, name| Rung::new(layout, number, name);
    let mut rungs = vec![
        rung("1", "one socket, unpinned")
            .teaches(
                "the scheduler moves the program between CPUs",
                Point::Reference,
            )
            .article([0.197, 0.352])
            .at(Ok(layout.unpinned())),
        rung("2", "one socket, pinned")
            .teaches(
                "a program that stays on its CPU keeps its caches",
                Point::Above("1"),
            )
            .article([0.360, 0.374]),
        Rung {
            tracking: Some(Tracking::On),
            ..rung("2b", "connections tracked").teaches(
                "the firewall looks up the connection of each packet",
                Point::Below("2"),
            )
        },
        Rung {
            tracking: Some(Tracking::Off),
            ..rung("2c", "connections not tracked (notrack)")
                .teaches("a rule for the port ends that", Point::Above("2b"))
        },
        rung("3", "two senders, one address")
            .teaches(
                "one address is one receive queue is one CPU: the queue overflows",
                Point::LostAt(Station::Wire),
            )
            .article([0.349, 0.354])
            .to(&[1, 1])
            .at(Ok(layout.with_threads())),
    ];
    let places = [
        ("4a", "receiver on the queue's CPU", Point::Below("4c")),
        ("4b", "receiver on its hyper-thread", Point::Below("4c")),
        ("4c", "receiver elsewhere on its node", Point::Reference),
        ("4d", "receiver on another node", Point::Below("4c")),
    ];
    for ((number, name, point), (relation, mpps)) in places.into_iter().zip(ARTICLE_PLACES) {
        rungs.push(Rung {
            place: Some(relation),
            ..rung(number, name)
                .teaches(
                    "where the receiver runs, relative to the queue's CPU, decides",
                    point,
                )
                .article(mpps)
                .at(layout.place(relation))
        });
    }
    let aligned = rung("9a", "four sockets, aligned")
        .teaches("an address, a queue and a socket per thread", Point::Busy)
        .article([1.4, 1.4])
        .spread()
        .by(Sockets::Addressed(4))
        .on_own_cpus(4, all);
    let elsewhere = match &aligned.skipped {
        Some(why) => Err(why.clone()),
        None => aligned.layout.on_another_node(4),
    };
    rungs.extend([
        rung("5", "two addresses, two queues")
            .teaches("more addresses are more queues", Point::Above("2"))
            .article([0.609, 0.657])
            .to(&[1, 2])
            .on_own_cpus(1, all),
        rung("6", "four queues, one socket")
            .teaches(
                "the loss moves from the NIC to the socket",
                Point::LostAt(Station::Socket),
            )
            .article([0.437, 0.437])
            .by(Sockets::Shared(1))
            .on_own_cpus(1, all),
        rung("7", "two threads, one socket")
            .teaches("threads contend for one receive buffer", Point::Below("5"))
            .article([0.461, 0.495])
            .by(Sockets::Shared(2))
            .on_own_cpus(2, all),
        Rung {
            one_port: true,
            ..rung("8a", "four sockets, one source port")
                .teaches(
                    "a group on the wildcard address is looked up without the destination: senders that \
                     differ in it only reach one socket",
                    Point::OneSocket,
                )
                .by(Sockets::ReusePort(4))
        },
        rung("8b", "four sockets, 64 flows")
            .teaches("a hash of the source port spreads the flows", Point::Spread)
            .spread()
            .by(Sockets::ReusePort(4))
            .on_own_cpus(4, all),
        rung("8c", "four sockets, 4 flows")
            .teaches("few flows collide: sockets stay idle", Point::Idle)
            .article([1.114, 1.147])
            .by(Sockets::ReusePort(4))
            .on_own_cpus(4, all),
        aligned,
        rung("9b", "four sockets, other node")
            .teaches("the way to another NUMA node costs", Point::Below("9a"))
            .article([1.0, 1.0])
            .spread()
            .by(Sockets::Addressed(4))
            .at(elsewhere),
    ]);
    rungs
}

/// What the article did not have.
fn today(layout: &Layout, all: bool) -> [Rung; 4] {
    let rung = |number, name| Rung::new(layout, number, name);
    let steered = rung("10", "sockets steered by CPU")
        .teaches("classic BPF in place of a hash: no collision", Point::Busy)
        .spread()
        .by(Sockets::Steered(4))
        .on_own_cpus(4, all);
    let queue_cpus = distinct(steered.layout.queues.clone());
    [
        Rung {
            sockets: Sockets::Steered(queue_cpus.len()),
            ..steered
        },
        Rung {
            gro: true,
            ..rung("11", "GRO receiver, 1 flow").teaches(
                "the stack handles trains and not datagrams",
                Point::Above("2"),
            )
        },
        Rung {
            gro: true,
            sender: Sender::Socket { train: LONG_TRAIN },
            keeps_sender: true,
            ..rung("12", "GSO sender, GRO receiver, 1 flow")
                .teaches("the sender's stack handles trains, too", Point::Above("2"))
        },
        Rung {
            busy_poll_us: Some(50),
            ..rung("13", "busy polling").teaches(
                "the receiver asks the queue instead of being woken",
                Point::Above("2"),
            )
        },
    ]
}

#[cfg(test)]
mod places;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::two_cpus;

    #[test]
    fn every_sending_thread_has_source_ports_of_its_own() {
        let choice = Choice::new(None, Some(4)).unwrap();
        for rung in rungs(&two_cpus(), &choice, true) {
            assert!(rung.flow_count() <= 64 && (!rung.one_port || rung.number == "8a"));
            if rung.one_port {
                continue;
            }
            let threads = 0..rung.targets.len();
            let ports = threads.flat_map(|thread| {
                let first = usize::from(rung.source_port(65_400, thread));
                first..first + rung.flows
            });
            let mut ports: Vec<usize> = ports.collect();
            let is_spread = ["8b", "9a", "9b", "10"].contains(&rung.number);
            let flows = if is_spread { 64 } else { rung.targets.len() };
            assert_eq!(ports.len(), flows, "rung {}", rung.number);
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), flows, "rung {}", rung.number);
        }
    }

    #[test]
    fn sending_threads_share_a_cpu_or_not_by_who_sends() {
        let rung = |senders: &[usize], targets: &'static [u8], sender| {
            let mut rung = Rung::new(&two_cpus(), "3", "two senders");
            rung.layout.senders = senders.to_vec();
            let notes = Rung {
                targets,
                sender,
                ..rung
            }
            .sharing();
            notes.into_iter().find(|note| note.contains("sending"))
        };
        let (socket, xdp) = (Sender::Socket { train: 4 }, Sender::Generator);
        let one_cpu = Some("2 sending threads share 1 CPU".to_owned());
        assert_eq!(rung(&[0], &[1, 2], socket), one_cpu);
        assert_eq!(rung(&[0], &[1], socket), None);
        assert_eq!(rung(&[8, 9, 10, 11], &[1, 1], socket), None);
        // Of these, only CPU 8 reaches queue 0.
        assert_eq!(rung(&[8, 9, 10, 11], &[1, 1], xdp), one_cpu);
        assert_eq!(rung(&[8, 9, 10, 11], &[1, 2], xdp), None);
        let four = rung(&[8, 9], &[1, 2, 1, 2], socket);
        assert_eq!(four.as_deref(), Some("4 sending threads share 2 CPUs"));
    }
}
