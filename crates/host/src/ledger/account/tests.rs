//! Scenarios as data: the counters of both ends in, the ledger out, all of it. And runs made up by
//! a property test.

use super::*;
use crate::Witness;
use proptest::prelude::*;
use serde::Deserialize;

/// One run of a file under `scenarios/`. A field that an entry leaves out is zero, empty or
/// unknown.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Scenario {
    name: String,
    offered: u64,
    refused: BTreeMap<String, u64>,
    blocked: u64,
    one_machine: bool,
    gso: bool,
    delivered: u64,
    queued: u64,
    copies: u64,
    socket_drops: u64,
    gro: bool,
    sender: Option<Counters>,
    receiver: Option<Counters>,
    /// When each end read its counters; if not given, the receiver's reading encloses the sender's.
    sender_taken: Option<[u64; 2]>,
    receiver_taken: Option<[u64; 2]>,
    anomalies: Vec<String>,
    departure: String,
    /// Threads that sent; if not given, one.
    senders: Option<usize>,
    arrival: String,
    /// Reason, source, count.
    ring_drops: Vec<(String, String, u64)>,
    /// Reason, buffers, datagrams.
    reasons: Option<Vec<(String, u64, u64)>>,
    sequence_lost: Option<u64>,
    has_strangers: bool,
    /// The ledger: a line for each loss, `unaccounted`, a line for each witness (`=` if it agrees,
    /// `#` if it does not), each note.
    ledger: String,
}

/// `Udp.NoPorts`, `softnet dropped`, `tx tx_dropped` (interface and counter), `tx qdisc`, or
/// `tx driver tx_queue_0_xdp_xmit` (one of the driver's own).
type Counters = BTreeMap<String, i64>;

fn delta(counters: &Counters, taken_unix_ns: [u64; 2]) -> Delta {
    let mut delta = Delta {
        taken_unix_ns,
        ..Delta::default()
    };
    for (name, &count) in counters {
        let words: Vec<&str> = name.split(' ').collect();
        if let ["softnet", "dropped"] = *words {
            delta.softnet.push(crate::SoftnetDelta {
                dropped: count,
                ..Default::default()
            });
            continue;
        }
        let [interface, kind, ..] = *words else {
            delta.snmp.insert(name.clone(), count);
            continue;
        };
        let link = delta.links.entry(interface.to_owned()).or_default();
        let counters = &mut link.counters;
        match (kind, words.get(2)) {
            ("driver", Some(counter)) => {
                link.driver.insert((*counter).to_owned(), count);
            }
            ("qdisc", None) => link.qdisc_drops = Some(count),
            ("rx_packets", None) => counters.rx_packets = count,
            ("tx_packets", None) => counters.tx_packets = count,
            ("rx_dropped", None) => counters.rx_dropped = count,
            ("tx_dropped", None) => counters.tx_dropped = count,
            ("rx_missed_errors", None) => counters.rx_missed_errors = count,
            ("rx_fifo_errors", None) => counters.rx_fifo_errors = count,
            ("rx_crc_errors", None) => counters.rx_crc_errors = count,
            _ => panic!("no such counter: {name}"),
        }
    }
    delta
}

impl Scenario {
    fn run(&self, route: PacketRoute<'_>) -> Ledger {
        let end = |counters: &Option<Counters>, taken: Option<_>, usual| {
            let counters = counters.as_ref();
            counters.map(|counters| delta(counters, taken.unwrap_or(usual)))
        };
        let sender = end(&self.sender, self.sender_taken, [20, 80]);
        let mut receiver = end(&self.receiver, self.receiver_taken, [10, 90]);
        if let Some(receiver) = &mut receiver {
            receiver.anomalies.clone_from(&self.anomalies);
        }
        let ring_drops = self.ring_drops.iter().cloned();
        let reason = |(reason, buffers, datagrams): &(String, u64, u64)| ReasonCount {
            reason: reason.clone(),
            buffers: *buffers,
            datagrams: *datagrams,
            ..ReasonCount::default()
        };
        let reasons = self.reasons.as_ref();
        Account {
            offered: self.offered,
            refused: self.refused.clone(),
            blocked: self.blocked,
            one_machine: self.one_machine,
            gso: self.gso,
            delivered: self.delivered,
            queued: self.queued,
            copies: self.copies,
            socket_drops: Some(self.socket_drops),
            gro: self.gro,
            sender: sender.as_ref(),
            receiver: receiver.as_ref(),
            route,
            departure: match &*self.departure {
                "" => Departure::Socket,
                "frames" => Departure::Frames,
                "redirect" => Departure::Redirect,
                other => panic!("no such departure: {other}"),
            },
            senders: self.senders.unwrap_or(1),
            arrival: match &*self.arrival {
                "" => Arrival::Socket,
                "tap" => Arrival::Tap,
                "xdp in driver" => Arrival::Xdp { in_driver: true },
                "xdp generic" => Arrival::Xdp { in_driver: false },
                "rule" => Arrival::Rule,
                other => panic!("no such arrival: {other}"),
            },
            ring_drops: ring_drops
                .map(|(reason, source, count)| RingDrop {
                    reason,
                    source,
                    count,
                })
                .collect(),
            reasons: reasons.map(|reasons| reasons.iter().map(reason).collect()),
            sequence_lost: self.sequence_lost,
            has_strangers: self.has_strangers,
        }
        .ledger()
    }
}

/// The ledger as the scenarios have it.
fn shown(ledger: &Ledger) -> String {
    let mut lines = Vec::new();
    for loss in &ledger.losses {
        let scope = format!("{:?}", loss.scope).to_lowercase();
        let difference = if loss.by_difference {
            ", by difference"
        } else {
            ""
        };
        let inexact = if loss.exact { "" } else { ", inexact" };
        lines.push(format!(
            "{}: {} {} | {}, {scope}{difference}{inexact}",
            loss.station, loss.reason, loss.count, loss.source
        ));
    }
    lines.push(match ledger.unaccounted_range() {
        [least, most] if least == most => format!("unaccounted {least}"),
        [least, most] => format!("unaccounted {least} to {most}"),
    });
    for one in &ledger.witnesses {
        let Witness { about, source, .. } = one;
        lines.push(match one.agrees() {
            true => format!("= {} {about} | {source}", one.ledger),
            false => format!("# {}, not {} {about} | {source}", one.witness, one.ledger),
        });
    }
    lines.extend(ledger.notes.iter().cloned());
    lines.join("\n")
}

fn check(file: &str, route: PacketRoute<'_>) {
    #[derive(Deserialize)]
    struct File {
        scenario: Vec<Scenario>,
    }
    let file: File = toml::from_str(file).expect("a file of scenarios");
    let mut wrong = String::new();
    for scenario in &file.scenario {
        let ledger = scenario.run(route);
        assert!(ledger.adds_up(), "{}", scenario.name);
        let found = shown(&ledger);
        if found != scenario.ledger.trim_end() {
            wrong += &format!("\n## {}: this came out:\n{found}\n", scenario.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn through_a_ring() {
    let (sender, receiver) = ("tx", "rx");
    let route = PacketRoute::VethRing { sender, receiver };
    check(include_str!("scenarios/ring.toml"), route);
}

#[test]
fn through_a_backlog() {
    let (sender, receiver) = ("tx", "rx");
    let route = PacketRoute::VethBacklog { sender, receiver };
    check(include_str!("scenarios/backlog.toml"), route);
}

#[test]
fn between_hosts() {
    check(include_str!("scenarios/hosts.toml"), PacketRoute::Hosts);
}

#[test]
fn between_cards() {
    let (sender, receiver) = ("eth0", "eth1");
    let route = PacketRoute::Cards { sender, receiver };
    check(include_str!("scenarios/cards.toml"), route);
}

/// Another program's socket: only the kernel counts it. `RcvbufErrors` are the row and no witness
/// of it. Datagrams that wait unread are unaccounted for.
#[test]
fn of_any_program() {
    let counters = |counters: &[(&str, i64)]| {
        let named = counters
            .iter()
            .map(|&(name, count)| (name.to_owned(), count));
        delta(&named.collect(), [0; 2])
    };
    let sender = counters(&[("Udp.OutDatagrams", 90), ("Udp.SndbufErrors", 10)]);
    let receiver = counters(&[
        ("Ip.InReceives", 90),
        ("Ip.InDelivers", 90),
        ("Udp.InDatagrams", 60),
        ("Udp.RcvbufErrors", 20),
        ("Udp.MemErrors", 1),
        ("Udp.NoPorts", 2),
    ]);
    let route = PacketRoute::VethRing {
        sender: "tx",
        receiver: "rx",
    };
    let ledger = Account::by_counters(100, route, &sender, &receiver).ledger();
    assert_eq!(
        shown(&ledger),
        "wire: receive ring full 10 | sender Udp.SndbufErrors, namespace\n\
         UDP: no socket on the port 2 | receiver Udp.NoPorts, namespace\n\
         UDP: no memory for UDP 1 | receiver Udp.MemErrors, namespace\n\
         socket: socket buffer full 20 | receiver Udp.RcvbufErrors, namespace\n\
         unaccounted 7\n\
         = 100 accepted by the sending kernel | sender Udp.OutDatagrams and Udp.SndbufErrors\n\
         # 0, not 10 receive ring full | sender tx_dropped\n\
         # 0, not 90 taken from the ring by NAPI | receiver rx_queue_N_xdp_packets\n\
         = 0 per-CPU backlog full | softnet_stat dropped (host-wide)"
    );
}

proptest! {
    /// A packet is put into exactly one place, and each place has its kernel counters; the
    /// account must find every one of them again.
    #[test]
    fn balances_whatever_the_losses(
        ring in 0_u64..1 << 40, header in 0_u64..1000, filter in 0_u64..1 << 40,
        no_port in 0_u64..1 << 40, full in 0_u64..1 << 40, queued in 0_u64..1000,
        delivered in 0_u64..1 << 40, refused in 0_u64..1000, hidden in 0_u64..100,
    ) {
        let into_ip = header + filter + no_port + full + queued + delivered;
        let counters = |counters: &[(&str, u64)]| {
            let counters = counters.iter().map(|&(name, count)| (name.to_owned(), count as i64));
            Some(counters.collect())
        };
        let scenario = Scenario {
            // Packets that were taken and are in no counter must come out as unaccounted.
            offered: into_ip + ring + refused + hidden,
            refused: [("refused".to_owned(), refused)].into(),
            delivered,
            queued,
            socket_drops: full,
            sender: counters(&[("Udp.OutDatagrams", into_ip), ("Udp.SndbufErrors", ring)]),
            receiver: counters(&[
                ("Ip.InReceives", into_ip), ("Ip.InHdrErrors", header),
                ("Ip.InDelivers", into_ip - header - filter),
                ("Udp.NoPorts", no_port), ("Udp.RcvbufErrors", full),
            ]),
            ..Scenario::default()
        };
        let route = PacketRoute::VethRing { sender: "tx", receiver: "rx" };
        prop_assert_eq!(scenario.run(route).unaccounted, hidden as i64);
    }
}
