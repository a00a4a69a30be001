//! Second counts of what the ledger says: each is kept, agreeing or not.

use super::{
    Account, Arrival, Departure, PacketRoute, SEQUENCE_NUMBERS, link, lost_for, queue_counters,
    total, udp, unsigned,
};
use crate::counters::drop_probe::SOCKET_REASONS;
use crate::ledger::loss::{
    BACKLOG_FULL, BUFFER_FULL, FIREWALL, LossKind, NO_SOCKET, VETH_RING_FULL,
};
use crate::{Delta, Ledger};

/// Losses whose kernel drop reason is heard as a witness.
const BY_REASON: [&LossKind; 4] = [&VETH_RING_FULL, &BACKLOG_FULL, &NO_SOCKET, &FIREWALL];

impl Account<'_> {
    pub(super) fn hear_witnesses(&self, ledger: &mut Ledger) {
        let refused = total(self.refused.values().copied());
        // Trains are counted as one by the sending UDP layer.
        if !self.gso && self.is_lab() && self.departure == Departure::Socket {
            let out = total([udp(self.sender, "OutDatagrams"), self.sndbuf_errors()]);
            let source = "sender Udp.OutDatagrams and Udp.SndbufErrors";
            ledger.witness(
                "accepted by the sending kernel",
                source,
                self.accepted(),
                out,
            );
        }
        self.hear_wire(ledger, refused);
        // Where the socket's own count is not known, that of the namespace is the row itself.
        let has_own = self.socket_drops.is_some();
        if self.is_lab() && !self.gro && self.arrival == Arrival::Socket && has_own {
            let full = lost_for(ledger, BUFFER_FULL.words);
            let source = "receiver Udp.RcvbufErrors";
            ledger.witness(
                BUFFER_FULL.words,
                source,
                full,
                udp(self.receiver, "RcvbufErrors"),
            );
        }
        if let Some(lost) = self.sequence_lost {
            ledger.witness("all losses", SEQUENCE_NUMBERS, ledger.lost(), lost);
        }
        self.hear_reasons(ledger);
    }

    fn hear_wire(&self, ledger: &mut Ledger, refused: u64) {
        match self.route {
            PacketRoute::VethRing { sender, receiver } => {
                let lost = lost_for(ledger, VETH_RING_FULL.words);
                // Of redirected frames it is the same counter.
                if !self.gso && self.departure == Departure::Socket {
                    let dropped = link(self.sender, sender, |link| link.tx_dropped);
                    ledger.witness(VETH_RING_FULL.words, "sender tx_dropped", lost, dropped);
                }
                let passed = self.offered.saturating_sub(refused.saturating_add(lost));
                let polled = total(self.polled(receiver));
                let source = "receiver rx_queue_N_xdp_packets";
                ledger.witness("taken from the ring by NAPI", source, passed, polled);
                if self.arrival == (Arrival::Xdp { in_driver: true }) {
                    let rings = total(self.ring_drops.iter().map(|drop| drop.count));
                    let dropped = queue_counters(self.receiver, receiver, "rx_queue_", "_drops");
                    let source = "receiver rx_queue_N_drops";
                    ledger.witness("dropped by rings", source, rings, dropped);
                }
            }
            PacketRoute::VethBacklog { sender, .. } => {
                let lost = lost_for(ledger, BACKLOG_FULL.words);
                let dropped = link(self.sender, sender, |link| link.tx_dropped);
                ledger.witness(BACKLOG_FULL.words, "sender tx_dropped", lost, dropped);
            }
            PacketRoute::Hosts | PacketRoute::Cards { .. } => return,
        }
        let lost = lost_for(ledger, BACKLOG_FULL.words);
        let softnet = self.receiver.map(Delta::softnet_dropped);
        let source = "softnet_stat dropped (host-wide)";
        ledger.witness(
            BACKLOG_FULL.words,
            source,
            lost,
            unsigned(softnet.unwrap_or(0)),
        );
    }

    /// The kernel's own drop reasons: each must be explained by a row, and each row by a reason.
    fn hear_reasons(&self, ledger: &mut Ledger) {
        let Some(reasons) = &self.reasons else { return };
        let socket = self.dropped_by_sockets();
        if self.gro {
            let source = "drop reason SOCKET_RCVBUFF, trains";
            ledger.witness(
                "drops at the socket",
                source,
                self.at_sockets().0,
                socket.buffers,
            );
        } else {
            let full = lost_for(ledger, BUFFER_FULL.words);
            let source = "drop reason SOCKET_RCVBUFF";
            ledger.witness(BUFFER_FULL.words, source, full, socket.datagrams);
        }
        for kind in BY_REASON {
            let reason = kind.reasons[0];
            let (lost, seen) = (lost_for(ledger, kind.words), self.reason(reason).datagrams);
            // A packet redirected by XDP is no socket buffer yet, so its loss is no `kfree_skb`.
            let is_frame = self.departure == Departure::Redirect;
            if (lost > 0 || seen > 0) && !(is_frame && kind == &VETH_RING_FULL) {
                ledger.witness(kind.words, &format!("drop reason {reason}"), lost, seen);
            }
        }
        let known = |name| BY_REASON.iter().any(|kind| kind.reasons[0] == name);
        for other in reasons {
            let name = other.reason.as_str();
            if !known(name) && !SOCKET_REASONS.contains(&name) && other.datagrams > 0 {
                let source = format!("drop reason {name}");
                ledger.witness("no row of this ledger", &source, 0, other.datagrams);
            }
        }
    }
}
