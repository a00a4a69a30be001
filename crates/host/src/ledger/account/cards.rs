//! Losses between two hosts with known interfaces: in the sender's queue, and on the way between
//! the interfaces.

use super::{Account, Departure, PacketRoute, link, snmp, total, unsigned};
use crate::counters::delta::LinkDelta;
use crate::ledger::loss::{BETWEEN_NICS, SENDER_QDISC};
use crate::{Delta, Ledger, Loss, Station, Undecided};

impl Account<'_> {
    /// Enters the drops of the sender's queueing discipline. It reports some drops to the socket,
    /// which counts them too (`SndbufErrors`). fq_codel is an exception: it drops older packets of
    /// the flow instead of the new one. It reports nothing (`fq_codel_enqueue` in
    /// net/sched/sch_fq_codel.c).
    pub(super) fn enter_queue(&self, ledger: &mut Ledger) {
        let PacketRoute::Cards { sender, .. } = self.route else {
            return;
        };
        let link = self.sender.and_then(|delta| delta.links.get(sender));
        let dropped = unsigned(link.and_then(|link| link.qdisc_drops).unwrap_or(0));
        // A device without a queue reports its driver's drops to the socket (`__dev_queue_xmit` in
        // net/core/dev.c). Those packets were in no queue.
        let by_driver = unsigned(link.map_or(0, |link| link.counters.tx_dropped));
        let in_queue = self.sndbuf_errors().saturating_sub(by_driver);
        let (told, less) = match self.departure {
            Departure::Socket => (in_queue, " less Udp.SndbufErrors"),
            _ => (total(self.refused.values().copied()), " less the refused"),
        };
        ledger.lose(Loss {
            by_difference: told > 0,
            exact: !self.gso,
            ..SENDER_QDISC.row(
                dropped.saturating_sub(told),
                format!("{sender} qdisc dropped{}", if told > 0 { less } else { "" }),
            )
        });
    }

    /// Packets that the sender's card sent, packets that the receiver's got or missed, and which.
    fn crossed(&self) -> Option<(u64, u64, &'static str)> {
        let PacketRoute::Cards { sender, receiver } = self.route else {
            return None;
        };
        let out = self.sender?.links.get(sender)?;
        let into = self.receiver?.links.get(receiver)?;
        // Neighbour discovery and the like need not reach the other card.
        let (sent, received, only) = match (to_one_host(out, "tx"), to_one_host(into, "rx")) {
            (Some(sent), Some(received)) => (sent, received, " to one host"),
            _ => {
                let (sent, received) = (out.counters.tx_packets, into.counters.rx_packets);
                (unsigned(sent), unsigned(received), "")
            }
        };
        Some((sent, total([received, missed(into)]), only))
    }

    /// Returns true if both cards count the same: nothing was lost between them, nor came from elsewhere.
    pub(super) fn cards_agree(&self) -> bool {
        let is_same = |(sent, arrived, _)| sent == arrived;
        !self.has_strangers && self.crossed().is_some_and(is_same)
    }

    /// Enters the packets that left one card and did not reach the other, if both cards count. This
    /// is not a remainder. The run's own figures only decide whether the counters can be trusted.
    pub(super) fn enter_gap(&self, ledger: &mut Ledger) {
        let PacketRoute::Cards { sender, receiver } = self.route else {
            return;
        };
        let Some((sent, arrived, only)) = self.crossed() else {
            return;
        };
        let gap = sent.saturating_sub(arrived);
        if gap == 0 {
            return;
        }
        if let Some(doubt) = self.doubt(gap, arrived, [sender, receiver]) {
            ledger.note(doubt);
            return;
        }
        let ours = self.offered.saturating_sub(ledger.lost_at(Station::Sender));
        let foreign = sent.checked_sub(ours);
        match foreign {
            Some(0) => {}
            Some(foreign) => ledger.note(format!(
                "{sender} also sent {foreign} packets that are not of this run: as many of the {gap} \
                 that {receiver} did not receive may be of others"
            )),
            // Each datagram that was lost before may hide a packet of others.
            None => ledger.note(format!(
                "{sender} sent {} packets fewer than this run has: how many of the {gap} that {receiver} \
                 did not receive are of others is not known",
                ours - sent
            )),
        }
        let beside = self.came_beside(receiver, arrived);
        if beside > 0 {
            ledger.note(format!(
                "{beside} packets more reached the receiver's IP than {receiver} received: another interface \
                 had them, and as many of the {gap} that {receiver} did not receive may be such ones"
            ));
        }
        // They may have been for a third host, or have come after all.
        let doubtful = foreign.unwrap_or(0).saturating_add(beside);
        if gap <= doubtful {
            return;
        }
        // For `doubt_rows`: as many may be of others, and these are undecided. Packets that no program
        // sent are ARP and the like.
        let sent_beside = foreign.map_or(gap, |foreign| foreign.min(self.sent_beside()));
        ledger.undecided = Some(Undecided {
            arrivals: foreign.map_or(gap, |_| doubtful),
            drops: total([sent_beside, beside.saturating_sub(self.alive())]),
        });
        ledger.lose(Loss {
            by_difference: true,
            exact: !self.may_be_trains() && doubtful == 0,
            ..BETWEEN_NICS.row(
                gap,
                format!(
                    "packets{only}: {sender} sent {sent}, {receiver} received or missed {arrived}"
                ),
            )
        });
    }

    /// Packets that IP received and this interface did not, at least: a host takes its addresses on every
    /// interface. Where IP gets merged packets there may be more.
    fn came_beside(&self, receiver: &str, arrived: u64) -> u64 {
        let here = link(self.receiver, receiver, |link| link.rx_packets).max(arrived);
        let own = link(self.receiver, "lo", |link| link.rx_packets);
        let all = ["Ip.InReceives", "Ip6.InReceives"].map(|name| snmp(self.receiver, name));
        total(all).saturating_sub(total([here, own]))
    }

    /// Why the counters of the two cards do not say how many datagrams were lost between them.
    fn doubt(&self, gap: u64, arrived: u64, [sender, receiver]: [&str; 2]) -> Option<String> {
        let fragments = ["Ip.FragCreates", "Ip6.FragCreates"].map(|name| snmp(self.sender, name));
        if fragments != [0, 0] {
            return Some(format!(
                "{gap} packets were lost between the two NICs, and some are fragments: how many \
                 datagrams that are is not known"
            ));
        }
        if !self.receiver_saw_all() {
            return Some(format!(
                "{receiver} counts {gap} packets less than {sender}, but the receiver did not read its \
                 counters before the sender began and after it ended, by the clocks of both hosts: \
                 what was lost between the two NICs is not known"
            ));
        }
        let behind = total(self.ring_drops.iter().map(|drop| drop.count));
        let at_sockets = self.at_sockets().0;
        let behind = total([self.delivered, self.queued, at_sockets, behind]);
        (arrived < behind).then(|| {
            format!(
                "{receiver} counts fewer packets than came through it: its driver does not count them \
                 all, and what was lost between the two NICs is not known"
            )
        })
    }

    /// True if the receiver's counters were read before the sender's and again after them. The clocks
    /// of two hosts may differ by as much as their NTP allows.
    fn receiver_saw_all(&self) -> bool {
        let taken = |delta: Option<&Delta>| delta.map_or([0; 2], |delta| delta.taken_unix_ns);
        let ([began, ended], [from, to]) = (taken(self.sender), taken(self.receiver));
        to > 0 && from <= began && ended <= to
    }
}

/// Packets that came to a card and not to its host.
pub(super) fn missed(into: &LinkDelta) -> u64 {
    let no_room = into.no_room().into_iter().map(|(_, count)| count);
    total(no_room.chain([into.counters.rx_crc_errors]).map(unsigned))
}

/// Frames that are not for all hosts of the link or a group, as igb, igc, e1000 and e1000e count them.
/// The three counters are read by one call, so that they are of one moment.
fn to_one_host(link: &LinkDelta, way: &str) -> Option<u64> {
    let counter = |what: &str| link.driver.get(&format!("{way}_{what}")).copied();
    let to_many = counter("multicast")?.saturating_add(counter("broadcast")?);
    Some(unsigned(counter("packets")?.saturating_sub(to_many)))
}
