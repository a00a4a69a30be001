//! One host on one page: each receive queue, its interrupt and the CPU that takes it; what each CPU does;
//! each socket and who reads it; and where packets are lost.

use crate::check::{Evidence, Observed, SeenSocket, between_reads, ledger, nic_no_room, unhandled};
use crate::{CpuBusy, Ledger, LinkDelta, SoftnetDelta, Topology};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A queue that has this many times its share is marked.
const UNEVEN: f64 = 1.5;
/// Fewer packets than this say nothing of how they are spread.
const SPREAD_MIN: i64 = 100;

/// The load of a host between two looks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overview {
    /// The time between the looks.
    pub seconds: f64,
    /// UDP of the network namespace, from the interfaces on.
    pub ledger: Ledger,
    /// How many packets UNACCOUNTED may have, on either side of zero, only because counters are not
    /// read at one instant.
    pub between_reads: u64,
    /// The CPUs of the machine, in their order.
    pub cpus: Vec<CpuLoad>,
    /// The interfaces, and behind each those of its receive queues that its driver counts.
    pub queues: Vec<QueueLoad>,
    /// The UDP sockets, those that lost most first.
    pub sockets: Vec<SocketLoad>,
}

/// One CPU of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuLoad {
    /// Its number.
    pub cpu: usize,
    /// Its NUMA node.
    pub node: Option<usize>,
    /// The share of the time for programs and for the kernel on their behalf; none if no tick passed.
    pub application: Option<f64>,
    /// The share for interrupts and soft interrupts, among them the receive path.
    pub soft_interrupt: Option<f64>,
    /// The share that the hypervisor took away.
    pub steal: Option<f64>,
    /// Packet buffers that it took into the network stack, a second.
    pub packets_pps: f64,
    /// Packets that it dropped because its backlog was full, a second.
    pub dropped_pps: f64,
    /// How often a second it stopped to receive with work left.
    pub squeezes_ps: f64,
    /// How often a second another CPU woke it to receive (RPS).
    pub steered_ps: f64,
}

/// One interface, or one of its receive queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueLoad {
    /// The interface.
    pub interface: String,
    /// The queue; none for the interface as a whole.
    pub queue: Option<usize>,
    /// Packets received a second: datagrams or trains of them, as the driver counts.
    pub received_pps: f64,
    /// Packets per second that the whole interface dropped on their way in, or had no room for. It
    /// is the larger of the two, because some drivers count one in the other. Frames that no protocol
    /// takes are left out, if they are all that was dropped.
    pub dropped_pps: Option<f64>,
    /// Those frames, per second, such as LLDP and STP of a switch.
    pub unhandled_pps: Option<f64>,
    /// Its part of what the interface received by its queues.
    pub share: Option<f64>,
    /// It has half as much again as its share.
    pub is_uneven: bool,
    /// The number of its interrupt, where the card has one of its own for it.
    pub interrupt: Option<u32>,
    /// How often a second that came.
    pub interrupts_ps: Option<f64>,
    /// The CPU that took most of them, or that is to take them.
    pub cpu: Option<usize>,
    /// The NUMA node of that CPU.
    pub node: Option<usize>,
    /// That CPU is not at the node where the card sits.
    pub is_far: bool,
}

/// One UDP socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketLoad {
    /// Where it receives.
    pub local: SocketAddr,
    /// The program that has it; none where this user may not see it.
    pub process: Option<String>,
    /// Its process; of several the busiest.
    pub pid: Option<u32>,
    /// Datagrams that it dropped.
    pub dropped: u64,
    /// The same per second.
    pub dropped_pps: f64,
    /// Bytes that wait in its buffer, including the kernel's own overhead.
    pub queued_bytes: u32,
    /// The size of its buffer.
    pub buffer_bytes: u32,
    /// The share of the time that the busiest thread of its process ran.
    pub ran: Option<f64>,
    /// The largest share of the time that a thread of its process waited for a CPU.
    pub waited: Option<f64>,
    /// The CPU that the busiest thread last ran on.
    pub cpu: Option<usize>,
    /// The NUMA node of that CPU.
    pub node: Option<usize>,
    /// A signal has stopped its process.
    pub is_stopped: bool,
}

impl Overview {
    /// The page of what was seen.
    pub fn of(seen: &Observed) -> Self {
        let topology = &seen.after.topology;
        let mut sockets: Vec<_> = seen
            .sockets
            .iter()
            .map(|socket| SocketLoad::of(socket, seen, topology))
            .collect();
        sockets.sort_by_key(|socket| {
            (
                std::cmp::Reverse(socket.dropped),
                std::cmp::Reverse(socket.queued_bytes),
                socket.local.port(),
            )
        });
        Self {
            seconds: seen.seconds(),
            ledger: ledger(seen),
            between_reads: between_reads(seen),
            cpus: seen
                .delta
                .softnet
                .iter()
                .map(|row| CpuLoad::of(row, seen, topology))
                .collect(),
            queues: seen
                .delta
                .links
                .iter()
                .flat_map(|(name, delta)| QueueLoad::of(name, delta, seen, topology))
                .collect(),
            sockets,
        }
    }

    /// UNACCOUNTED, or 0 if it may be only the time between two readings.
    pub fn unaccounted(&self) -> i64 {
        match self.ledger.unaccounted.unsigned_abs() > self.between_reads {
            true => self.ledger.unaccounted,
            false => 0,
        }
    }
}

/// A counter's growth per second, or 0 if it went back.
fn rate(count: i64, seen: &Observed) -> f64 {
    count.max(0) as f64 / seen.seconds()
}

/// The same of a counter of 32 bits, which goes on where it wraps.
fn rate32(count: i64, seen: &Observed) -> f64 {
    f64::from(count as u32) / seen.seconds()
}

fn node(cpu: usize, topology: &Topology) -> Option<usize> {
    topology.cpu(cpu).map(|cpu| cpu.node)
}

impl CpuLoad {
    fn of(row: &SoftnetDelta, seen: &Observed, topology: &Topology) -> Self {
        let busy = seen.cpus.iter().find(|busy| busy.cpu == row.cpu);
        let share = |of: fn(&CpuBusy) -> f64| busy.map(of);
        Self {
            cpu: row.cpu,
            node: node(row.cpu, topology),
            application: share(|busy| busy.user + busy.system),
            soft_interrupt: share(|busy| busy.softirq),
            steal: share(|busy| busy.steal),
            packets_pps: rate32(row.processed, seen),
            dropped_pps: rate32(row.dropped, seen),
            squeezes_ps: rate32(row.time_squeeze, seen),
            steered_ps: rate32(row.received_rps, seen),
        }
    }
}

impl QueueLoad {
    /// An interface and its queues.
    fn of(name: &str, delta: &LinkDelta, seen: &Observed, topology: &Topology) -> Vec<Self> {
        let counters = &delta.counters;
        let no_room = nic_no_room::losses_of(seen, name);
        let no_room = i64::try_from(Evidence::sum(&no_room)).unwrap_or(i64::MAX);
        let (dropped, unhandled) = match unhandled::explains_all(seen) {
            true => (0, counters.rx_dropped),
            false => (counters.rx_dropped, 0),
        };
        let whole = Self {
            dropped_pps: Some(rate(dropped.max(no_room), seen)),
            unhandled_pps: Some(rate(unhandled, seen)),
            ..Self::received(name, None, rate(counters.rx_packets, seen))
        };
        let queues = seen.delta.queue_packets(name);
        let card = seen.after.cards.get(name);
        // A queue that is the only one is the interface; a driver that does not count by queue may
        // still have an interrupt for it.
        if queues.len() < 2 {
            let interrupts = card.into_iter().flat_map(|card| &card.interrupts);
            let of: Vec<usize> = interrupts.filter_map(|one| one.queue).collect();
            let only = of[..] == [0];
            return vec![if only {
                whole.with_interrupt(0, seen, topology)
            } else {
                whole
            }];
        }
        let sum: i64 = queues.iter().map(|queue| queue.packets.max(0)).sum();
        let fair = 1.0 / queues.len() as f64;
        let queues = queues.iter().map(|queue| {
            let share = (sum > 0).then(|| queue.packets.max(0) as f64 / sum as f64);
            let row = Self {
                share,
                is_uneven: sum >= SPREAD_MIN && share.is_some_and(|share| share >= UNEVEN * fair),
                ..Self::received(name, Some(queue.queue), rate(queue.packets, seen))
            };
            row.with_interrupt(queue.queue, seen, topology)
        });
        std::iter::once(whole).chain(queues).collect()
    }

    fn received(name: &str, queue: Option<usize>, received_pps: f64) -> Self {
        Self {
            interface: name.to_owned(),
            queue,
            received_pps,
            dropped_pps: None,
            unhandled_pps: None,
            share: None,
            is_uneven: false,
            interrupt: None,
            interrupts_ps: None,
            cpu: None,
            node: None,
            is_far: false,
        }
    }

    /// The row with the interrupt of that queue, if it has one of its own.
    fn with_interrupt(mut self, queue: usize, seen: &Observed, topology: &Topology) -> Self {
        let card = seen.after.cards.get(&self.interface);
        let Some(interrupt) = card.and_then(|card| card.interrupt_of(queue)) else {
            return self;
        };
        let earlier = seen.before.cards.get(&self.interface);
        let earlier = earlier.and_then(|card| {
            let mut same = card.interrupts.iter();
            same.find(|one| one.number == interrupt.number)
        });
        let grown = interrupt.counts.iter().map(|(&cpu, &count)| {
            let before = earlier.and_then(|earlier| earlier.counts.get(&cpu));
            (cpu, count.saturating_sub(before.copied().unwrap_or(count)))
        });
        let grown: Vec<(usize, u64)> = grown.collect();
        let sum: u64 = grown.iter().map(|(_, count)| count).sum();
        let most = grown.iter().max_by_key(|(_, count)| count);
        let most = most.filter(|(_, count)| *count > 0).map(|(cpu, _)| *cpu);
        self.interrupt = Some(interrupt.number);
        self.interrupts_ps = Some(sum as f64 / seen.seconds());
        self.cpu = most.or_else(|| interrupt.effective.first().copied());
        self.node = self.cpu.and_then(|cpu| node(cpu, topology));
        let sits = card.and_then(|card| card.node);
        self.is_far = sits.zip(self.node).is_some_and(|(sits, node)| sits != node);
        self
    }
}

impl SocketLoad {
    fn of(socket: &SeenSocket, seen: &Observed, topology: &Topology) -> Self {
        let dropped = socket.drops.grown();
        let cpu = socket.busy.and_then(|busy| busy.cpu);
        Self {
            local: socket.entry.local,
            process: socket.owner.map(|owner| owner.name.clone()),
            pid: socket.owner.map(|owner| owner.pid),
            dropped,
            dropped_pps: dropped as f64 / seen.seconds(),
            queued_bytes: socket.entry.queued_bytes,
            buffer_bytes: socket.entry.buffer_bytes,
            ran: socket.busy.map(|busy| busy.ran),
            waited: socket.busy.map(|busy| busy.waited),
            cpu,
            node: cpu.and_then(|cpu| node(cpu, topology)),
            is_stopped: socket.owner.is_some_and(|owner| owner.stopped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Busy, Interface, Interrupt, Observation, Process, ThreadTime};
    use crate::{LinkCounters, LinkSnapshot, Softnet};
    use mpps_os::netlink::sock_diag::UdpEntry;
    use std::collections::BTreeMap;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Two CPUs of two nodes, a card at node 0 whose second queue is at node 1, and a socket.
    fn facts(then: u64) -> Observation {
        let mut facts = Observation::default();
        facts.snapshot.monotonic_ns = then * SECOND_NS;
        let row = |cpu| {
            format!(
                "{:08x} {:08x} 0 0 0 0 0 0 0 0 0 0 {cpu:08x}\n",
                1000 * then,
                then
            )
        };
        facts.snapshot.softnet = Softnet::parse(&(row(0) + &row(1))).expect("two rows");
        let counters = LinkCounters {
            rx_packets: 1000 * then,
            rx_missed_errors: 7 * then,
            ..LinkCounters::default()
        };
        let driver = [("rx_queue_0_packets", 100), ("rx_queue_1_packets", 900)];
        let driver = driver.map(|(name, each)| (name.to_owned(), each * then));
        let link = LinkSnapshot {
            counters,
            driver: driver.into(),
            ..LinkSnapshot::default()
        };
        facts.snapshot.links = [("eth0".to_owned(), link)].into();
        let interrupt = |number: u32, queue, cpu| Interrupt {
            number,
            queue: Some(queue),
            counts: [(cpu, 50 * then)].into(),
            effective: vec![cpu],
            ..Interrupt::default()
        };
        let interrupts = vec![interrupt(40, 0, 0), interrupt(41, 1, 1)];
        let card = Interface {
            node: Some(0),
            interrupts,
            ..Interface::default()
        };
        facts.cards = [("eth0".to_owned(), card)].into();
        facts.topology = topology();
        facts.sockets = vec![UdpEntry {
            local: "0.0.0.0:53".parse().expect("an address"),
            inode: 9,
            drops: u32::try_from(5 * then).expect("small"),
            queued_bytes: 4096,
            buffer_bytes: 212_992,
            ..entry()
        }];
        facts.owners = [(9, vec![812])].into();
        let thread = ThreadTime {
            run_ns: then * SECOND_NS / 2,
            wait_ns: 0,
            turns: 1,
            cpu: Some(1),
            priority: None,
        };
        let process = Process {
            pid: 812,
            name: "unbound".to_owned(),
            threads: [(812, thread)].into(),
            read_ns: then * SECOND_NS,
            ..Process::default()
        };
        facts.processes = BTreeMap::from([(812, process)]);
        facts
    }

    fn entry() -> UdpEntry {
        UdpEntry {
            local: "0.0.0.0:1".parse().expect("an address"),
            remote: None,
            interface: 0,
            only_v6: false,
            inode: 1,
            cookie: 0,
            user: 0,
            queued_bytes: 0,
            buffer_bytes: 0,
            unsent_bytes: 0,
            send_buffer_bytes: 0,
            drops: 0,
        }
    }

    fn topology() -> Topology {
        let cpu = |id| crate::Cpu {
            id,
            package: None,
            siblings: vec![id],
            node: id,
            capacity: None,
            allowed: true,
        };
        Topology {
            cpus: vec![cpu(0), cpu(1)],
            offline: Vec::new(),
        }
    }

    #[test]
    fn queues_meet_their_cpus_and_sockets_their_readers() {
        let (before, after) = (facts(1), facts(3));
        let seen = Observed::new(&before, &after, None, crate::DoctorRequest::default());
        let page = Overview::of(&seen);
        assert_eq!(page.seconds, 2.0);
        let [whole, first, second] = &page.queues[..] else {
            panic!("{:?}", page.queues)
        };
        assert_eq!((whole.queue, whole.received_pps), (None, 1000.0));
        assert_eq!(whole.dropped_pps, Some(7.0));
        assert_eq!(
            (first.interrupt, first.cpu, first.is_far),
            (Some(40), Some(0), false)
        );
        assert_eq!((first.share, first.is_uneven), (Some(0.1), false));
        assert_eq!(
            (second.interrupt, second.cpu, second.is_far),
            (Some(41), Some(1), true)
        );
        assert_eq!((second.share, second.is_uneven), (Some(0.9), true));
        assert_eq!(second.interrupts_ps, Some(50.0));
        assert_eq!(page.cpus.len(), 2);
        assert_eq!(
            (page.cpus[1].packets_pps, page.cpus[1].node),
            (1000.0, Some(1))
        );
        assert_eq!(page.cpus[1].application, None, "no tick passed");
        let socket = &page.sockets[0];
        assert_eq!((socket.dropped, socket.dropped_pps), (10, 5.0));
        assert_eq!(
            (socket.process.as_deref(), socket.pid),
            (Some("unbound"), Some(812))
        );
        assert_eq!(
            (socket.ran, socket.cpu, socket.node),
            (Some(0.5), Some(1), Some(1))
        );
        let Busy { waited, .. } = seen.sockets[0].busy.expect("its threads ran");
        assert_eq!(socket.waited, Some(waited));
    }

    #[test]
    fn what_came_between_two_readings_is_not_unaccounted() {
        let udp = |came: u64, read: u64| {
            let text = format!("Ip: InReceives\nIp: {came}\nUdp: InDatagrams\nUdp: {read}\n");
            let mut facts = facts(came / 1000);
            facts.snapshot.snmp = crate::Snmp::parse_pairs(&text).expect("counters");
            facts.read_ns = SECOND_NS / 1000;
            facts
        };
        // 1000 a second, twice a millisecond; what waits at both moments explains nothing.
        for (read, waiting, bound, unaccounted) in [
            (2000, 4096, 2, 0),
            (1998, 4096, 2, 0),
            (2002, 4096, 2, 0),
            (1997, 4096, 2, 3),
            (2003, 4096, 2, -3),
            (1990, 4096 + 512 * 8, 10, 0),
            (1989, 0, 10, 11),
        ] {
            let (before, mut after) = (udp(1000, 1000), udp(2000, read));
            after.sockets[0].queued_bytes = waiting;
            let seen = Observed::new(&before, &after, None, crate::DoctorRequest::default());
            let page = Overview::of(&seen);
            assert_eq!(
                (page.between_reads, page.unaccounted()),
                (bound, unaccounted),
                "{read}"
            );
            assert_eq!(
                page.ledger.unaccounted,
                2000 - read as i64,
                "the ledger is as it is"
            );
        }
    }

    #[test]
    fn one_interrupt_of_a_driver_that_counts_no_queues_is_the_interfaces() {
        let (mut before, mut after) = (facts(1), facts(2));
        for facts in [&mut before, &mut after] {
            let link = facts.snapshot.links.get_mut("eth0").expect("it is there");
            link.driver.clear();
            facts
                .cards
                .get_mut("eth0")
                .expect("it is there")
                .interrupts
                .truncate(1);
        }
        let seen = Observed::new(&before, &after, None, crate::DoctorRequest::default());
        let queues = Overview::of(&seen).queues;
        assert_eq!(queues.len(), 1, "{queues:?}");
        assert_eq!((queues[0].queue, queues[0].cpu), (None, Some(0)));
        assert_eq!(queues[0].interrupts_ps, Some(50.0));
    }
}
