//! The table of the rungs: what each one sets up, what the article measured, and what it teaches.

use super::lesson::Point;
use super::rung::{Rung, RungReceiver, RungTracking};
use super::sender::SenderChoice;
use crate::udp::roles::{ARTICLE_PLACES, CpuLayout, distinct};
use crate::udp::sender::LabSender;
use mpps_host::Station;
use mpps_lab::Delivery;

/// Datagrams per train of the GSO rung: the most that kernels before 6.9 take.
const LONG_TRAIN: u16 = 64;

/// Flows of each of four sending threads where the packets are to reach several sockets: 64 in all.
/// The kernel's hash spreads them by source port, and not by destination where the sockets are bound
/// to the wildcard address.
const SPREAD_FLOWS: usize = 16;

/// The ladder for a host, lowest rung first. A rung whose threads this host cannot give a CPU each is
/// skipped, unless `all` are to run.
pub(crate) fn rungs(layout: &CpuLayout, choice: &SenderChoice, all: bool) -> Vec<Rung> {
    let mut rungs = one_queue(layout);
    rungs.extend(several_queues(layout, all));
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
        if rung.layout.delivery == Delivery::SoftInterrupt && rung.layout.senders != layout.senders
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
    fn new(layout: &CpuLayout, number: &'static str, name: &'static str) -> Self {
        Self {
            number,
            name,
            lesson: "",
            point: Point::Reference,
            article_mpps: None,
            targets: &[1],
            flows: 1,
            one_port: false,
            sockets: RungReceiver::Shared(1),
            layout: layout.clone(),
            place: None,
            gro: false,
            sender: LabSender::Socket { train: 1 },
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
    fn at(mut self, place: Result<CpuLayout, String>) -> Self {
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
    fn by(self, sockets: RungReceiver) -> Self {
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

    /// With a CPU for each queue and each of this number of receiving threads.
    fn on_own_cpus(self, threads: usize, all: bool) -> Self {
        let place = self.layout.with_cpus(self.queues().len(), threads);
        match place {
            Err(_) if all => self,
            place => self.at(place),
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
        Rung {
            tracking: Some(RungTracking::On),
            ..rung("2b", "connections tracked").teaches(
                "the firewall looks up the connection of each packet",
                Point::Below("2"),
            )
        },
        Rung {
            tracking: Some(RungTracking::Off),
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
        .article([1.4, 1.4])
        .spread()
        .by(RungReceiver::Addressed(4))
        .on_own_cpus(4, all);
    let elsewhere = match &aligned.skipped {
        Some(why) => Err(why.clone()),
        None => aligned.layout.on_another_node(4),
    };
    [
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
            .by(RungReceiver::Shared(1))
            .on_own_cpus(1, all),
        rung("7", "two threads, one socket")
            .teaches("two threads on one socket receive less than one thread of two queues", Point::Below("5"))
            .article([0.461, 0.495])
            .by(RungReceiver::Shared(2))
            .on_own_cpus(2, all),
        Rung {
            one_port: true,
            ..rung("8a", "four sockets, one source port")
                .teaches(
                    "a group on the wildcard address is looked up without the destination: senders that \
                     differ in it only reach one socket",
                    Point::OneSocket,
                )
                .by(RungReceiver::ReusePort(4))
        },
        rung("8b", "four sockets, 64 flows")
            .teaches("a hash of the source port spreads the flows", Point::Spread)
            .spread()
            .by(RungReceiver::ReusePort(4))
            .on_own_cpus(4, all),
        rung("8c", "four sockets, 4 flows")
            .teaches("few flows collide: sockets stay idle", Point::Idle)
            .article([1.114, 1.147])
            .by(RungReceiver::ReusePort(4))
            .on_own_cpus(4, all),
        aligned,
        rung("9b", "four sockets, other node")
            .teaches("the way to another NUMA node costs", Point::Below("9a"))
            .article([1.0, 1.0])
            .spread()
            .by(RungReceiver::Addressed(4))
            .at(elsewhere),
    ]
}

/// Rungs that the article did not have.
fn today(layout: &CpuLayout, all: bool) -> [Rung; 4] {
    let rung = |number, name| Rung::new(layout, number, name);
    let steered = rung("10", "sockets steered by CPU")
        .teaches("classic BPF in place of a hash: no collision", Point::Busy)
        .spread()
        .by(RungReceiver::Steered(4))
        .on_own_cpus(4, all);
    let queue_cpus = distinct(steered.layout.queues.clone());
    [
        Rung {
            sockets: RungReceiver::Steered(queue_cpus.len()),
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
            sender: LabSender::Socket { train: LONG_TRAIN },
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
        let choice = SenderChoice::new(None, Some(4)).unwrap();
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
}
