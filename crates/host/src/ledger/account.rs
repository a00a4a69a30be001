//! Makes the ledger of one run from the counters of its two ends.
//!
//! A drop shows in several counters. A packet lost behind a veth ring is in the sender's
//! `tx_dropped`, `SndbufErrors` and `OutDiscards`. The account knows the route of the packets. It
//! enters each loss once, from the nearest counter, and keeps the other counters as witnesses.
//! `docs/counters.md` describes each counter.

mod cards;
mod others;
mod socket;
#[cfg(test)]
mod tests;
mod witness;

pub use socket::full_buffers;

use super::loss::{
    ADDRESS, BACKLOG_FULL, BAD_HEADER, BEHIND_SENDER, CHECKSUM, CUT_SHORT, DAMAGED, DISCARDED,
    FIREWALL, LossKind, NIC_NO_ROOM, NO_MEMBER, NO_MEMORY, NO_ROUTE, NO_SOCKET, REFUSED_BY_SENDER,
    REVERSE_PATH, SENDER_INTERFACE, VETH_RING_FULL,
};
use crate::{Delta, Ledger, Loss, ReasonCount, Scope, Station};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The route of packets from the sender's socket to the receiver's IP layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketRoute<'a> {
    /// Through a veth ring polled by NAPI: a full ring drops on the sender's side. Where RPS comes
    /// after it, the backlog of the target CPU may drop as well, unseen by the sender.
    VethRing {
        /// The sender's interface.
        sender: &'a str,
        /// The receiver's interface.
        receiver: &'a str,
    },
    /// Through a veth without NAPI into the backlog of a CPU (`netif_rx`): a full backlog drops,
    /// and the sender counts that, too.
    VethBacklog {
        /// The sender's interface.
        sender: &'a str,
        /// The receiver's interface.
        receiver: &'a str,
    },
    /// Between two hosts, or by loopback: what lies between has no counter here.
    Hosts,
    /// The same, where the interfaces of both ends are known and have counters.
    Cards {
        /// The sender's interface.
        sender: &'a str,
        /// The receiver's interface.
        receiver: &'a str,
    },
}

impl<'a> PacketRoute<'a> {
    /// By the veth pair of these interfaces, with receive rings or without.
    pub fn veth(sender: &'a str, receiver: &'a str, has_rings: bool) -> Self {
        match has_rings {
            true => Self::VethRing { sender, receiver },
            false => Self::VethBacklog { sender, receiver },
        }
    }
}

/// How the sending program hands packets to its interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// Through a socket and the IP stack, whose counters know them.
    #[default]
    Socket,
    /// As frames through the driver's transmit function: only the interface's counters know them.
    Frames,
    /// As frames redirected by XDP: only the driver's own counters of that know them.
    Redirect,
}

/// How the receiving program gets its packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Arrival {
    /// From a socket, after IP and UDP.
    #[default]
    Socket,
    /// From a tap, which copies each packet before IP. The kernel's own copy goes on. Losses of
    /// that copy are no losses of this run.
    Tap,
    /// From a ring that an XDP program fills. A packet that the XDP program passes goes on to IP.
    /// It is lost to the receiving program, wherever the kernel leaves it.
    Xdp {
        /// The XDP program runs in the driver. The driver's counters then include packets that the
        /// ring refused.
        in_driver: bool,
    },
    /// Nowhere. A rule drops the packets and counts them; that count is "delivered".
    Rule,
}

/// The packets that a socket or a ring dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RingDrop {
    /// Why: `receive ring full`.
    pub reason: String,
    /// The counter: `XDP_STATISTICS rx_ring_full`.
    pub source: String,
    /// Packets.
    pub count: u64,
}

/// Everything known about one run.
#[derive(Debug, Clone)]
pub struct Account<'a> {
    /// Datagrams handed to the sending kernel, refused ones included.
    pub offered: u64,
    /// Of these, the refused ones by the kernel's answer.
    pub refused: BTreeMap<String, u64>,
    /// Send calls that gave up for want of room; the kernel counts each in `SndbufErrors` (it finds
    /// `SOCK_NOSPACE` set, `udp_sendmsg`), though nothing was offered.
    pub blocked: u64,
    /// Both ends are on one machine: its per-CPU counters are the sender's as well.
    pub one_machine: bool,
    /// Trains were sent (`UDP_SEGMENT`): the sender's UDP counters count trains.
    pub gso: bool,
    /// Datagrams that the receiving program got before it was asked to stop.
    pub delivered: u64,
    /// Datagrams that it found in its buffers after that.
    pub queued: u64,
    /// Deliveries beyond the first of one datagram, by multicast.
    pub copies: u64,
    /// Drops of the receiving sockets by `SO_MEMINFO`; none where only another program has those:
    /// their namespace's `RcvbufErrors` are entered then.
    pub socket_drops: Option<u64>,
    /// Trains were received (`UDP_GRO`): the socket's drops count trains.
    pub gro: bool,
    /// The counters of the sending host.
    pub sender: Option<&'a Delta>,
    /// The counters of the receiving host.
    pub receiver: Option<&'a Delta>,
    /// The route of the packets.
    pub route: PacketRoute<'a>,
    /// How packets leave the sending program.
    pub departure: Departure,
    /// Threads that sent.
    pub senders: usize,
    /// How they reach the receiving program.
    pub arrival: Arrival,
    /// The drops of the receiving program's rings. The drops of sockets are in `socket_drops`.
    pub ring_drops: Vec<RingDrop>,
    /// The drop probe's counts, if it was on.
    pub reasons: Option<Vec<ReasonCount>>,
    /// Datagrams that never came by their sequence numbers, if they were stamped.
    pub sequence_lost: Option<u64>,
    /// The receiving sockets or rings got datagrams that are not known to be of this run, each once:
    /// they may have dropped such ones, too.
    pub has_strangers: bool,
}

/// Losses of the receiving IP layer that its own counters count, once for each packet
/// (`net/ipv4/ip_input.c`, `net/ipv6/ip6_input.c`).
const AT_IP: [&LossKind; 6] = [
    &BAD_HEADER,
    &ADDRESS,
    &DISCARDED,
    &NO_ROUTE,
    &CUT_SHORT,
    &REVERSE_PATH,
];
/// Losses of the receiving UDP layer that its own counters count.
const AT_UDP: [&LossKind; 4] = [&NO_SOCKET, &CHECKSUM, &NO_MEMORY, &NO_MEMBER];

/// Packets of a protocol that this host has not.
const UNKNOWN_PROTOCOL: &str = "Ip.InUnknownProtos";

/// The source of the witness that the stamps are.
pub const SEQUENCE_NUMBERS: &str = "sequence numbers";

impl<'a> Account<'a> {
    /// Makes the account of `offered` datagrams between sockets of any programs, from kernel
    /// counters only. No other program may send or receive in the two network namespaces.
    ///
    /// Delivered datagrams are those that a program has read (`Udp.InDatagrams`, `udp_recvmsg` in
    /// net/ipv4/udp.c). Datagrams that wait in a buffer are unaccounted for until then. Trains
    /// would not balance, because the kernel counts each as one datagram (`UDP_SEGMENT`,
    /// `UDP_GRO`).
    pub fn by_counters(
        offered: u64,
        route: PacketRoute<'a>,
        sender: &'a Delta,
        receiver: &'a Delta,
    ) -> Self {
        Self {
            offered,
            refused: BTreeMap::new(),
            blocked: 0,
            one_machine: matches!(
                route,
                PacketRoute::VethRing { .. } | PacketRoute::VethBacklog { .. }
            ),
            gso: false,
            delivered: udp(Some(receiver), "InDatagrams"),
            queued: 0,
            copies: 0,
            socket_drops: None,
            gro: false,
            sender: Some(sender),
            receiver: Some(receiver),
            route,
            departure: Departure::Socket,
            senders: 1,
            arrival: Arrival::Socket,
            ring_drops: Vec::new(),
            reasons: None,
            sequence_lost: None,
            has_strangers: false,
        }
    }
}

impl Account<'_> {
    /// Enters everything and strikes the balance.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::new(self.offered, self.delivered, self.queued);
        ledger.copy(self.copies);
        self.enter_sender(&mut ledger);
        self.enter_wire(&mut ledger);
        if self.arrival == Arrival::Tap {
            ledger.note(
                "a tap copies packets in front of IP: rows of IP, UDP and sockets would be of the \
                 kernel's own copies and are left out",
            );
            self.note_fragments(&mut ledger);
        } else {
            self.enter_ip(&mut ledger);
            self.enter_udp(&mut ledger);
            self.enter_socket(&mut ledger);
        }
        self.enter_rings(&mut ledger);
        self.doubt_rows(&mut ledger);
        self.hear_witnesses(&mut ledger);
        for delta in self.sender.iter().chain(&self.receiver) {
            for anomaly in &delta.anomalies {
                ledger.note(anomaly.clone());
            }
        }
        ledger
    }

    fn enter_sender(&self, ledger: &mut Ledger) {
        for (answer, count) in &self.refused {
            ledger.lose(Loss {
                reason: format!("{}: {answer}", REFUSED_BY_SENDER.words),
                ..REFUSED_BY_SENDER.row(*count, "answer of the send call")
            });
        }
        if self.is_lab() {
            return;
        }
        self.enter_queue(ledger);
        if self.departure == Departure::Socket {
            let dropped = self.sndbuf_errors();
            ledger.lose(Loss {
                exact: !self.gso,
                ..BEHIND_SENDER.row(dropped, "sender Udp.SndbufErrors")
            });
            return;
        }
        // Frames pass no socket: what the interface had no room for is its own count. Which interface
        // it was is not known of all senders, and others' packets are dropped as well.
        let is_senders = |name: &str| match self.route {
            PacketRoute::Cards { sender, .. } => name == sender,
            _ => true,
        };
        let links = || self.sender.iter().flat_map(|sender| &sender.links);
        let dropped = links()
            .filter(|(name, _)| is_senders(name))
            .map(|(name, link)| {
                (
                    name,
                    self.beyond_refused(unsigned(link.counters.tx_dropped)),
                )
            })
            .filter(|(_, dropped)| *dropped > 0);
        let dropped: Vec<_> = dropped.collect();
        for (name, count) in &dropped {
            ledger.lose(Loss {
                by_difference: !self.refused.is_empty(),
                exact: dropped.len() == 1,
                ..SENDER_INTERFACE.row(*count, format!("{name} tx_dropped"))
            });
        }
    }

    /// Losses between the sending stack and the receiving IP layer.
    fn enter_wire(&self, ledger: &mut Ledger) {
        match self.route {
            PacketRoute::VethRing { sender, receiver } => {
                let (source, scope, count) = self.sender_drops(sender);
                let by_difference = self.departure == Departure::Frames && !self.refused.is_empty();
                let mut full = Loss {
                    scope,
                    by_difference,
                    ..VETH_RING_FULL.row(count, source)
                };
                let uncounted = self.uncounted(count, receiver);
                if uncounted > 0 {
                    ledger.note(format!(
                        "{uncounted} of the frames that found the receive ring full are missing in \
                         {}: several CPUs sent to one queue, and add to its counter without a lock",
                        full.source
                    ));
                    full.source = "offered less receiver rx_queue_N_xdp_packets".to_owned();
                    full.count = count.saturating_add(uncounted);
                    full.by_difference = true;
                }
                ledger.lose(full);
                self.enter_backlog(ledger, receiver);
            }
            PacketRoute::VethBacklog { receiver, .. } => self.enter_backlog(ledger, receiver),
            PacketRoute::Hosts => self.enter_nic(ledger),
            PacketRoute::Cards { .. } => {
                self.enter_gap(ledger);
                self.enter_nic(ledger);
            }
        }
    }

    /// Enters the drops of a CPU's backlog. A veth's `rx_dropped` also includes frames redirected
    /// by XDP that its rings refused. It also includes packets that a program could not redirect
    /// (`veth_get_stats64` in drivers/net/veth.c). Both have rows of their own.
    fn enter_backlog(&self, ledger: &mut Ledger, receiver: &str) {
        let dropped = link(self.receiver, receiver, |link| link.rx_dropped);
        let elsewhere = total([
            self.redirect_refused(),
            queue_counters(self.receiver, receiver, "rx_queue_", "_drops"),
        ]);
        let source = if elsewhere == 0 {
            "receiver rx_dropped"
        } else {
            "receiver rx_dropped less drops of its queues"
        };
        ledger.lose(Loss {
            scope: Scope::Interface,
            by_difference: elsewhere > 0,
            ..BACKLOG_FULL.row(dropped.saturating_sub(elsewhere), source)
        });
    }

    /// Frames redirected by XDP that the ring behind a veth had no room for.
    fn redirect_refused(&self) -> u64 {
        match (self.departure, self.route) {
            (Departure::Redirect, PacketRoute::VethRing { sender, .. }) => {
                queue_counters(self.sender, sender, "tx_queue_", "_xdp_xmit_errors")
            }
            _ => 0,
        }
    }

    /// Returns the redirected frames that a full ring refused and the driver did not count. CPUs
    /// that redirect to one queue share its counter. They add to it after releasing the ring's lock
    /// (`veth_xdp_xmit` in drivers/net/veth.c), so one CPU overwrites another's update. The count
    /// of frames taken from the ring is right, because one thread counts them.
    fn uncounted(&self, counted: u64, receiver: &str) -> u64 {
        let queues = self.polled(receiver);
        let is_shared = !queues.is_empty() && self.senders > queues.len();
        if self.departure != Departure::Redirect || !is_shared {
            return 0;
        }
        self.offered.saturating_sub(total([counted, total(queues)]))
    }

    /// The packets that NAPI took from each of the receiver's rings that had any.
    fn polled(&self, receiver: &str) -> Vec<u64> {
        let queues = self.receiver.map(|delta| delta.queue_packets(receiver));
        let queues = queues.unwrap_or_default();
        let packets = queues.iter().map(|queue| unsigned(queue.packets));
        packets.filter(|packets| *packets > 0).collect()
    }

    fn enter_rings(&self, ledger: &mut Ledger) {
        for drop in &self.ring_drops {
            let row = Loss::new(Station::Ring, &*drop.reason, drop.count, &*drop.source);
            let scope = Scope::Socket;
            ledger.lose(Loss { scope, ..row });
        }
    }

    /// The sender's drops from a full veth ring. The UDP layer counts them one datagram at a time.
    /// For trains, the packet counter of the interface is used.
    fn sender_drops(&self, interface: &str) -> (String, Scope, u64) {
        if self.departure == Departure::Redirect {
            let source = "sender tx_queue_N_xdp_xmit_errors".to_owned();
            return (source, Scope::Interface, self.redirect_refused());
        }
        if self.departure == Departure::Frames {
            let dropped = link(self.sender, interface, |link| link.tx_dropped);
            let dropped = self.beyond_refused(dropped);
            return ("sender tx_dropped".to_owned(), Scope::Interface, dropped);
        }
        if self.gso {
            let dropped = link(self.sender, interface, |link| link.tx_dropped);
            return ("sender tx_dropped".to_owned(), Scope::Interface, dropped);
        }
        let dropped = self.sndbuf_errors();
        (
            "sender Udp.SndbufErrors".to_owned(),
            Scope::Namespace,
            dropped,
        )
    }

    /// Drops of the sending interface that were not reported to the program. An AF_XDP socket
    /// answers `EBUSY` for each frame that the driver drops (`xsk_generic_xmit` in net/xdp/xsk.c).
    /// The driver counts that frame too.
    fn beyond_refused(&self, dropped: u64) -> u64 {
        dropped.saturating_sub(total(self.refused.values().copied()))
    }

    /// Datagrams that the sending kernel took.
    fn accepted(&self) -> u64 {
        self.offered
            .saturating_sub(total(self.refused.values().copied()))
    }

    /// Datagrams (or trains) that the sending kernel took and dropped.
    fn sndbuf_errors(&self) -> u64 {
        udp(self.sender, "SndbufErrors").saturating_sub(self.blocked)
    }

    /// Enters the counters of the receiving host's NICs and CPUs. They also count traffic of other
    /// runs.
    fn enter_nic(&self, ledger: &mut Ledger) {
        let Some(receiver) = self.receiver else {
            return;
        };
        for (name, link) in &receiver.links {
            let counters = &link.counters;
            let no_room = link.no_room().into_iter();
            let no_room = no_room.map(|(counter, count)| (&NIC_NO_ROOM, counter, count));
            let damaged = (&DAMAGED, "rx_crc_errors", counters.rx_crc_errors);
            for (kind, counter, count) in no_room.chain([damaged]) {
                ledger.lose(kind.row(unsigned(count), format!("{name} {counter}")));
            }
        }
        let backlog = unsigned(receiver.softnet_dropped());
        // A veth without NAPI reports drops of the backlog behind it to the sender.
        let told = match self.one_machine {
            true => self.sndbuf_errors().min(backlog),
            false => 0,
        };
        if told > 0 {
            ledger.note(format!(
                "{told} drops of per-CPU backlogs are taken to be among the sender's: both ends \
                 are on one machine"
            ));
        }
        ledger.lose(Loss {
            exact: !self.may_be_trains(),
            by_difference: told > 0,
            ..BACKLOG_FULL.row(backlog - told, "receiver softnet_stat dropped")
        });
    }

    /// Between two hosts a sender's trains may be cut late or never, and a receiver's merged early:
    /// then the counters between count trains. The lab cuts before its link and merges behind it.
    fn may_be_trains(&self) -> bool {
        !self.is_lab() && (self.gso || self.gro)
    }

    /// Returns true if both ends are hosts of a lab. No foreign packets come there, and the route
    /// is known.
    fn is_lab(&self) -> bool {
        matches!(
            self.route,
            PacketRoute::VethRing { .. } | PacketRoute::VethBacklog { .. }
        )
    }

    fn enter_ip(&self, ledger: &mut Ledger) {
        self.enter_counted(ledger, &AT_IP);
        let unknown = snmp(self.receiver, UNKNOWN_PROTOCOL);
        ledger.lose(Loss {
            exact: !self.may_be_trains(),
            ..DISCARDED.row(unknown, format!("receiver {UNKNOWN_PROTOCOL}"))
        });
        let netfilter = |count, source: &str, by_difference| Loss {
            by_difference,
            ..FIREWALL.row(count, source)
        };
        match &self.reasons {
            Some(_) => {
                let dropped = self.reason("NETFILTER_DROP").datagrams;
                ledger.lose(netfilter(dropped, "drop reason NETFILTER_DROP", false));
            }
            // The filter has no counter of its own. In the lab no foreign packets come. So the
            // filter dropped what IP took in but did not discard, forward or hand on.
            None if self.is_lab() && !self.gro && self.arrival != Arrival::Rule => {
                let dropped = self.undelivered_by_ip();
                let unasked = self.unasked().min(dropped);
                if unasked > 0 {
                    ledger.note(format!(
                        "{unasked} packets that the sending host sent unasked (Icmp6.Out: neighbour \
                         discovery, listener reports) came to groups that the receiver has not joined: \
                         they are no loss"
                    ));
                }
                ledger.lose(netfilter(
                    dropped - unasked,
                    "receiver Ip.InReceives less Ip.InDelivers",
                    true,
                ));
            }
            None => {
                let dropped = self.undelivered_by_ip();
                if dropped > 0 {
                    ledger.note(format!(
                        "the receiver's IP layer handed on {dropped} packets less than it took in: such \
                         as for a packet filter, a refused source address or source route, or because they are \
                         neighbour discovery or IGMP"
                    ));
                }
            }
        }
        self.note_fragments(ledger);
    }

    /// Packets that the sending host sent by itself, to groups that the receiver has not joined.
    /// The receiver's IP takes them in and does not hand them on. Each kind is the difference
    /// between ICMPv6 messages sent and received.
    fn unasked(&self) -> u64 {
        let kinds = [
            "MLDv2Reports",
            "GroupMembResponses",
            "GroupMembReductions",
            "RouterSolicits",
            "NeighborSolicits",
            "NeighborAdvertisements",
        ];
        let missing = kinds.map(|kind| {
            let sent = snmp(self.sender, &format!("Icmp6.Out{kind}"));
            sent.saturating_sub(snmp(self.receiver, &format!("Icmp6.In{kind}")))
        });
        // Packets lost earlier never reached the receiver's IP.
        total(missing).min(snmp(self.receiver, "Ip6.InMcastPkts"))
    }

    /// Fragments have no exact row: a datagram that misses one is in no counter for 30 seconds.
    fn note_fragments(&self, ledger: &mut Ledger) {
        let fragments = ["Ip.ReasmReqds", "Ip6.ReasmReqds"].map(|name| snmp(self.receiver, name));
        let fragments = total(fragments);
        if fragments > 0 {
            let whole = self.receiver.map_or(0, reassembled);
            ledger.note(format!(
                "{fragments} fragments came and made {whole} datagrams; one that misses a fragment is \
                 in no row, and rows below IP count fragments"
            ));
            if whole > 0 && matches!(self.arrival, Arrival::Tap | Arrival::Xdp { .. }) {
                ledger.note(format!(
                    "a ring takes no fragments: up to {whole} datagrams may have been for this port, and \
                     came past it"
                ));
            }
        }
    }

    /// Packets that IP received and that show in no other counter of IP.
    fn undelivered_by_ip(&self) -> u64 {
        let sum =
            |names: &[&str]| -> u64 { total(names.iter().map(|name| snmp(self.receiver, name))) };
        let received = sum(&["Ip.InReceives", "Ip6.InReceives"]);
        let names = AT_IP.iter().flat_map(|kind| kind.counters).copied();
        let discarded = total(
            names
                .chain([UNKNOWN_PROTOCOL])
                .map(|name| snmp(self.receiver, name)),
        );
        // A packet of several fragments is received several times and delivered once.
        let merged = sum(&["Ip.ReasmReqds", "Ip6.ReasmReqds"])
            .saturating_sub(sum(&["Ip.ReasmOKs", "Ip6.ReasmOKs"]));
        let onward = sum(&[
            "Ip.InDelivers",
            "Ip6.InDelivers",
            "Ip.ForwDatagrams",
            "Ip6.OutForwDatagrams",
        ]);
        received.saturating_sub(total([discarded, merged, onward]))
    }

    /// Enters what the receiving host counted of these losses.
    fn enter_counted(&self, ledger: &mut Ledger, kinds: &[&LossKind]) {
        for kind in kinds {
            let counted = |name: &&&str| snmp(self.receiver, name) > 0;
            let grown: Vec<&str> = kind.counters.iter().filter(counted).copied().collect();
            let count = total(grown.iter().map(|name| snmp(self.receiver, name)));
            ledger.lose(Loss {
                exact: !self.may_be_trains(),
                ..kind.row(count, format!("receiver {}", grown.join(" + ")))
            });
        }
    }

    fn enter_udp(&self, ledger: &mut Ledger) {
        self.enter_counted(ledger, &AT_UDP);
    }

    fn reason(&self, name: &str) -> ReasonCount {
        let of_this = |one: &&ReasonCount| one.reason == name;
        sum(self.reasons.iter().flatten().filter(of_this))
    }
}

/// Several counts of the probe in one.
fn sum<'a>(counts: impl Iterator<Item = &'a ReasonCount>) -> ReasonCount {
    counts.fold(ReasonCount::default(), |sum, one| ReasonCount {
        buffers: sum.buffers.saturating_add(one.buffers),
        datagrams: sum.datagrams.saturating_add(one.datagrams),
        ..sum
    })
}

/// Datagrams that a host made of fragments, for whichever port.
pub fn reassembled(host: &Delta) -> u64 {
    total(["Ip.ReasmOKs", "Ip6.ReasmOKs"].map(|name| snmp(Some(host), name)))
}

/// Packets that the kernel lost for this reason; a program's own rings may have reasons of the same name.
fn lost_for(ledger: &Ledger, reason: &str) -> u64 {
    let kernel = ledger
        .losses
        .iter()
        .filter(|loss| loss.station != Station::Ring);
    let rows = kernel.filter(|loss| loss.reason == reason);
    total(rows.map(|loss| loss.count))
}

/// A sum of counts that may come from a file, where any counts are possible.
fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

fn snmp(delta: Option<&Delta>, name: &str) -> u64 {
    unsigned(delta.and_then(|delta| delta.snmp(name)).unwrap_or(0))
}

fn udp(delta: Option<&Delta>, name: &str) -> u64 {
    unsigned(delta.and_then(|delta| delta.udp(name)).unwrap_or(0))
}

fn link(
    delta: Option<&Delta>,
    interface: &str,
    counter: impl Fn(&crate::LinkCounters<i64>) -> i64,
) -> u64 {
    unsigned(
        delta
            .and_then(|delta| delta.link(interface))
            .map_or(0, counter),
    )
}

/// One driver counter, summed over the queues of an interface: `rx_queue_` N `_drops`.
fn queue_counters(delta: Option<&Delta>, interface: &str, before: &str, after: &str) -> u64 {
    let Some(link) = delta.and_then(|delta| delta.links.get(interface)) else {
        return 0;
    };
    let is_counter = |name: &str| {
        let number = name
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let counters = link.driver.iter().filter(|(name, _)| is_counter(name));
    total(counters.map(|(_, count)| unsigned(*count)))
}

/// A counter that went back is named among the delta's anomalies, which become notes; it adds
/// nothing here, so that the hole shows as unaccounted.
fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
