//! The rungs: what each one sets up, what the article measured, and what it teaches.

#[cfg(test)]
mod places;

use super::result::RungNeed;
use crate::measure::document::counted;
use crate::udp::path::{BUSY_POLLING, PATHS, Path, SOCKET, TRAINS};
use crate::udp::roles::{ARTICLE_PLACES, CpuLayout, distinct};
use crate::udp::sender::{LabSender, SenderChoice};
use crate::udp::trial::{FlowTracking, TrialSockets, UdpTrial};
use mpps_host::{CpuList, Relation, Station};
use mpps_lab::Delivery;
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

    /// The roles of a CPU, and of queues only if they are on theirs.
    pub(super) fn roles(&self, cpu: usize, is_placed: bool) -> Vec<String> {
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
        if is_placed && !queues.is_empty() {
            let plural = if queues.len() == 1 { "" } else { "s" };
            roles.push(format!("queue{plural} {}", CpuList(queues)));
        }
        if self.trial.applications().contains(&cpu) {
            roles.push("application".to_owned());
        }
        roles
    }

    /// The CPUs and cores that tasks share, one sentence each. They depend on the sender.
    pub(super) fn sharing(&self, is_placed: bool) -> Vec<String> {
        let layout = &self.trial.layout;
        let mut notes = Vec::new();
        let senders = self.trial.sender_cpus().unwrap_or_default();
        notes.extend(self.crowded("sending", senders.len(), &distinct(senders.clone())));
        let applications = self.trial.applications();
        if !applications.is_empty() {
            let threads = self.trial.sockets.threads();
            notes.extend(self.crowded("receiving", threads, applications));
        }
        let queues = match is_placed {
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

/// Datagrams per train of the GSO rung: the most that kernels before 6.9 take.
const LONG_TRAIN: u16 = 64;

/// Flows of each of four sending threads where the packets are to reach several sockets: 64 in all.
/// The kernel's hash spreads them by source port, and not by destination where the sockets are bound
/// to the wildcard address.
const SPREAD_FLOWS: usize = 16;
/// Messages of one `sendmmsg`, as in the article.
const BATCH: usize = 1024;
/// The same where flows take turns: a longer one would fill one receiver's socket and leave the
/// others without packets.
const FLOW_BATCH: usize = 16;

/// The share of what a flooded receiver beside its queue receives, which it bears.
const LOAD: f64 = 0.7;

/// The ladder for a host, lowest rung first. A rung whose threads this host cannot give a CPU each is
/// skipped, unless `all` are to run.
pub(crate) fn rungs(layout: &CpuLayout, choice: &SenderChoice, all: bool) -> Vec<Rung> {
    let mut rungs = one_queue(layout);
    rungs.extend(several_queues(layout, all));
    rungs.extend(today(layout, all));
    for rung in &mut rungs {
        let trial = &mut rung.trial;
        if rung.own_sender.is_none() {
            trial.sender = choice.sender;
            let unreached = trial.sender_cpus().is_err();
            if let Some(other) = choice.otherwise().filter(|_| unreached) {
                trial.sender = other;
            }
        }
        let unreached = trial.sender_cpus().err();
        rung.skipped = rung.skipped.take().or(unreached);
        if trial.layout.has_changed_places(layout) {
            let places = "the senders have left their CPUs to the application, and taken its own";
            rung.notes.push(places.to_owned());
        }
        let is_soft = trial.layout.delivery == Delivery::SoftInterrupt;
        if is_soft && trial.layout.senders != layout.senders {
            let serve = "each sender serves a queue in its soft interrupts: there are too few CPUs for \
                         senders, queues and application each";
            rung.notes.push(serve.to_owned());
        }
    }
    rungs.extend(beyond(layout, choice));
    rungs
}

impl Rung {
    /// A rung with one pinned thread on one socket and one sender, to be varied.
    pub(super) fn new(layout: &CpuLayout, number: &'static str, name: &'static str) -> Self {
        Self {
            number,
            name,
            lesson: "",
            points: vec![Point::Reference],
            article_mpps: None,
            trial: UdpTrial {
                sockets: TrialSockets::Shared(1),
                batch: BATCH,
                ..UdpTrial::new(layout.clone(), SOCKET, LabSender::Socket { train: 1 })
            },
            place: None,
            own_sender: None,
            skipped: None,
            needs: None,
            notes: Vec::new(),
            again: false,
        }
    }

    pub(super) fn teaches(self, lesson: &'static str, point: Point) -> Self {
        Self {
            lesson,
            points: vec![point],
            ..self
        }
    }

    /// If the figures show this, too.
    pub(super) fn and(mut self, point: Point) -> Self {
        self.points.push(point);
        self
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
    fn at(mut self, place: Result<CpuLayout, String>) -> Self {
        match place {
            Ok(layout) => self.trial.layout = layout,
            Err(why) => self.skipped = Some(why),
        }
        self
    }

    /// With a sending thread to each of these addresses.
    fn to(mut self, targets: &'static [u8]) -> Self {
        self.trial.targets = targets;
        self
    }

    /// Received by these sockets, over four queues.
    fn by(mut self, sockets: TrialSockets) -> Self {
        self.trial.sockets = sockets;
        self.to(&[1, 2, 3, 4])
    }

    /// By flows that reach several sockets.
    fn spread(mut self) -> Self {
        (self.trial.flows, self.trial.batch) = (SPREAD_FLOWS, FLOW_BATCH);
        self
    }

    /// On this path.
    fn on(mut self, path: Path) -> Self {
        self.trial.path = path;
        self
    }

    /// With the connections of its packets tracked, or not.
    fn tracked(mut self, how: FlowTracking) -> Self {
        self.trial.tracking = Some(how);
        self
    }

    /// With a CPU for each queue and each of this number of receiving threads.
    fn on_own_cpus(self, threads: usize, all: bool) -> Self {
        let trial = &self.trial;
        let place = trial.layout.with_cpus(trial.queues().len(), threads);
        match place {
            Err(_) if all => self,
            place => Self {
                needs: place.is_err().then_some(RungNeed::Cpus),
                ..self.at(place)
            },
        }
    }
}

/// Rungs 1 to 4: one flow, or two to one queue, with the article's figures.
fn one_queue(layout: &CpuLayout) -> Vec<Rung> {
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
        rung("2b", "connections tracked")
            .teaches(
                "the firewall looks up the connection of each packet",
                Point::Below("2"),
            )
            .tracked(FlowTracking::On),
        rung("2c", "connections not tracked (notrack)")
            .teaches("a rule for the port ends that", Point::Above("2b"))
            .tracked(FlowTracking::Off),
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
    for ((number, name, point), (relation, _, mpps)) in places.into_iter().zip(ARTICLE_PLACES) {
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
    let [same, other] = [Relation::SameCpu, Relation::SameNode].map(|place| layout.place(place));
    let mut borne = rung("4e", "4a with a load that it bears")
        .teaches(
            "a receiver on the queue's CPU finds packets in its caches, until there are too many",
            Point::Cheaper,
        )
        .article([0.430, 0.430])
        .at(other.clone().and(same));
    borne.trial.load = Some(LOAD);
    borne.trial.meter = other.ok();
    borne.place = Some(Relation::SameCpu);
    rungs.push(borne);
    rungs
}

/// Rungs 5 to 9: several queues, and then several sockets, with the article's figures.
fn several_queues(layout: &CpuLayout, all: bool) -> [Rung; 8] {
    let rung = |number, name| Rung::new(layout, number, name);
    let aligned = rung("9a", "four sockets, aligned")
        .teaches(
            "an address, a queue and a socket per thread",
            Point::Above("2"),
        )
        .and(Point::Above("8c"))
        .article([1.4, 1.4])
        .spread()
        .by(TrialSockets::Addressed(4))
        .on_own_cpus(4, all);
    let elsewhere = aligned.trial.layout.on_another_node(4);
    let elsewhere = aligned.skipped.clone().map_or(elsewhere, Err);
    let needs = aligned.needs;
    let mut one_port = rung("8a", "four sockets, one source port")
        .teaches(
            "a group on the wildcard address is looked up without the destination: senders that \
             differ in it only reach one socket",
            Point::OneSocket,
        )
        .by(TrialSockets::ReusePort(4));
    one_port.trial.one_port = true;
    let mut overflows = rung("6", "four queues, one socket")
        .teaches(
            "the loss moves from the NIC to the socket",
            Point::LostAt(Station::Socket),
        )
        .article([0.437, 0.437])
        .by(TrialSockets::Shared(1))
        .on_own_cpus(1, all);
    // Queues that senders serve cannot overflow.
    if overflows.trial.layout.delivery == Delivery::SoftInterrupt {
        let threaded = layout.with_queue_cpus(overflows.trial.queues().len());
        overflows.trial.layout = threaded.unwrap_or(overflows.trial.layout);
    }
    [
        rung("5", "two addresses, two queues")
            .teaches("more addresses are more queues", Point::Above("2"))
            .article([0.609, 0.657])
            .to(&[1, 2])
            .on_own_cpus(1, all),
        overflows,
        rung("7", "two threads, one socket")
            .teaches("one thread receives more than two", Point::Below("5"))
            .article([0.461, 0.495])
            .by(TrialSockets::Shared(2))
            .to(&[1, 2])
            .on_own_cpus(2, all),
        one_port,
        rung("8b", "four sockets, 64 flows")
            .teaches("a socket each: a hash spreads the flows", Point::Spread)
            .and(Point::Above("7"))
            .spread()
            .by(TrialSockets::ReusePort(4))
            .on_own_cpus(4, all),
        rung("8c", "four sockets, 4 flows")
            .teaches("few flows collide: sockets stay idle", Point::Idle)
            .article([1.114, 1.147])
            .by(TrialSockets::ReusePort(4))
            .on_own_cpus(4, all),
        aligned,
        Rung {
            needs,
            ..rung("9b", "four sockets, other node")
                .teaches("the way to another NUMA node costs", Point::Below("9a"))
                .article([1.0, 1.0])
                .spread()
                .by(TrialSockets::Addressed(4))
                .at(elsewhere)
        },
    ]
}

/// Rungs that the article did not have.
fn today(layout: &CpuLayout, all: bool) -> [Rung; 4] {
    let rung = |number, name| Rung::new(layout, number, name);
    let mut steered = rung("10", "sockets steered by CPU")
        .teaches("classic BPF in place of a hash: no collision", Point::Busy)
        .spread()
        .by(TrialSockets::Steered(4))
        .on_own_cpus(4, all);
    steered.trial.sockets = TrialSockets::Steered(steered.trial.steered_cpus().len());
    let mut trains = rung("12", "GSO sender, GRO receiver, 1 flow")
        .teaches("the sender's stack handles trains, too", Point::Above("2"))
        .on(TRAINS);
    trains.own_sender = Some("the rung is about this sender");
    trains.trial.sender = LabSender::Socket { train: LONG_TRAIN };
    [
        steered,
        rung("11", "GRO receiver, 1 flow")
            .teaches(
                "the stack handles trains and not datagrams",
                Point::Above("2"),
            )
            .on(TRAINS),
        trains,
        rung("13", "busy polling")
            .teaches(
                "the receiver asks the queue instead of being woken",
                Point::Above("2"),
            )
            .on(BUSY_POLLING),
    ]
}

/// Rungs beyond recvmmsg: number, name, lesson, and the paths of `mpps bench`. The fastest of these is
/// the rung's.
const BEYOND: [(&str, &str, &str, &[&str]); 5] = [
    (
        "14",
        "io_uring",
        "packets come without a call for each batch",
        &["io_uring"],
    ),
    (
        "15",
        "packet_mmap, taken",
        "a ring shared with the kernel: one copy and no call per packet",
        &["packet_mmap/take"],
    ),
    (
        "16",
        "AF_XDP, copy",
        "packets leave the stack before it begins",
        &["af_xdp/poll", "af_xdp/spin", "af_xdp/busy-poll"],
    ),
    (
        "17",
        "AF_XDP, zero-copy",
        "the card writes into the memory of the program",
        &["af_xdp/auto"],
    ),
    (
        "18",
        "XDP drop, the ceiling",
        "what the driver delivers if no program receives it",
        &["xdp_drop/packet-untouched"],
    ),
];
const NO_ZERO_COPY: &str = "a veth has no zero-copy; on a card whose driver has it: mpps recv --backend \
                            af_xdp --copy zero";

/// A rung for each of their paths: of one queue, which the strongest sender's CPU serves.
fn beyond(layout: &CpuLayout, choice: &SenderChoice) -> Vec<Rung> {
    let mut rungs = Vec::new();
    for (number, name, lesson, keys) in BEYOND {
        let paths = PATHS.iter().filter(|path| keys.contains(&&*path.key()));
        rungs.extend(paths.map(|path| {
            let point = match path.is_rule() {
                true => Point::Reference,
                false => Point::Above("2"),
            };
            let strongest = "the strongest sender of this machine";
            Rung {
                trial: UdpTrial::new(layout.one_queue(), *path, choice.strongest()),
                own_sender: (!choice.asked).then_some(strongest),
                skipped: (number == "17").then(|| NO_ZERO_COPY.to_owned()),
                ..Rung::new(layout, number, name).teaches(lesson, point)
            }
        }));
    }
    rungs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::two_cpus;
    use crate::udp::sender::{GeneratorChoice, source_port};

    #[test]
    fn every_sending_thread_has_source_ports_of_its_own() {
        let choice = SenderChoice::new(None, Some(4), 4).unwrap();
        for rung in rungs(&two_cpus(), &choice, true) {
            let trial = &rung.trial;
            assert!(trial.flow_count() <= 64 && (!trial.one_port || rung.number == "8a"));
            if trial.one_port {
                continue;
            }
            let threads = 0..trial.targets.len();
            let ports = threads.flat_map(|thread| {
                let first = source_port(trial.flow_count(), trial.nth_flow(thread)).unwrap();
                usize::from(first)..usize::from(first) + trial.flows
            });
            let mut ports: Vec<usize> = ports.collect();
            let is_spread = ["8b", "9a", "9b", "10"].contains(&rung.number);
            let flows = if is_spread { 64 } else { trial.targets.len() };
            assert_eq!(ports.len(), flows, "rung {}", rung.number);
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), flows, "rung {}", rung.number);
        }
    }

    #[test]
    fn sending_threads_share_a_cpu_or_not_by_who_sends() {
        let rung = |senders: &[usize], targets: &'static [u8], sender| {
            let mut rung = Rung::new(&two_cpus(), "3", "two senders").to(targets);
            rung.trial.layout.senders = senders.to_vec();
            rung.trial.sender = sender;
            let notes = rung.sharing(true);
            notes.into_iter().find(|note| note.contains("sending"))
        };
        let (socket, xdp) = (LabSender::Socket { train: 4 }, LabSender::Generator);
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

    #[test]
    fn each_rung_beyond_sockets_has_its_paths() {
        let choice = SenderChoice::new(Some(GeneratorChoice::Sendmmsg), Some(8), 4).unwrap();
        let rungs = beyond(&two_cpus(), &choice);
        let paths = BEYOND.iter().map(|(.., keys)| keys.len()).sum::<usize>();
        assert_eq!(rungs.len(), paths);
        for rung in rungs {
            assert_eq!(rung.skipped.is_some(), rung.number == "17");
            assert_eq!(rung.trial.path.is_rule(), rung.number == "18");
            assert_eq!(rung.trial.sender, LabSender::Socket { train: 8 });
            assert_eq!(rung.trial.sender_cpus(), Ok(vec![0]));
        }
    }
}
