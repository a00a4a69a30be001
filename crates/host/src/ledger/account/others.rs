//! Rows whose counters may have other packets than the run's.
//!
//! Sequence numbers show how many datagrams of the run are missing. A counter of a scope wider than
//! the run bounds its part from above: all such rows together have no more than the missing. They are
//! sure only as far as other packets cannot explain them.

use super::cards::missed;
use super::{Account, Departure, snmp, total, udp, unsigned};
use crate::counters::delta::LinkDelta;
use crate::{Ledger, Loss, Scope, Station, Undecided};

/// No counter bounds how many packets of others there were.
const UNKNOWN: u64 = u64::MAX;

/// Whether this is the difference of two cards. `enter_gap` has its doubts, and says them.
fn is_gap(row: &Loss) -> bool {
    row.station == Station::Wire && row.by_difference
}

/// Whether the receiving sockets or rings dropped these.
fn is_of_sockets(row: &Loss) -> bool {
    row.station >= Station::Socket || (row.station == Station::Udp && row.by_difference)
}

impl Account<'_> {
    /// Datagrams that other programs of the sending host sent, as far as its counters show that: each
    /// datagram counts as sent or dropped (`udp_send_skb` in net/ipv4/udp.c).
    pub fn sent_by_others(&self) -> u64 {
        let all = total([udp(self.sender, "OutDatagrams"), self.sndbuf_errors()]);
        match self.departure {
            // A train counts as one.
            Departure::Socket if self.gso => UNKNOWN,
            Departure::Socket => all.saturating_sub(self.accepted()),
            // Frames pass UDP uncounted.
            Departure::Frames | Departure::Redirect => all,
        }
    }

    fn links(&self) -> impl Iterator<Item = &LinkDelta> {
        self.receiver.iter().flat_map(|host| host.links.values())
    }

    /// Packets that the sending host sent beside the run, its own and forwarded ones.
    pub(super) fn sent_beside(&self) -> u64 {
        let count = |names: [&str; 2]| total(names.map(|name| snmp(self.sender, name)));
        let own = match self.departure {
            Departure::Socket => total([snmp(self.sender, "Tcp.OutSegs"), self.sent_by_others()]),
            // Also neighbour discovery and listener reports that are dropped: Icmp6.OutMsgs lacks these
            // (`ndisc_send_skb` in net/ipv6/ndisc.c).
            Departure::Frames | Departure::Redirect => {
                count(["Ip.OutRequests", "Ip6.OutRequests"]).max(self.sent_by_others())
            }
        };
        total([own, count(["Ip.ForwDatagrams", "Ip6.OutForwDatagrams"])])
    }

    /// Drops at the sender that may be of packets that it sent beside the run.
    fn dropped_beside(&self, ledger: &Ledger) -> u64 {
        let rows = ledger.losses.iter();
        let of_sender = rows.filter(|row| row.station == Station::Sender);
        let others = |row| self.others(row, ledger, false).unwrap_or(0);
        total(of_sender.map(|row| others(row).min(row.count)))
    }

    /// The remainder, as far as drops of packets beside the run do not explain what the rows have too many.
    fn unexplained(&self, ledger: &Ledger) -> i64 {
        let remainder = self.remainder(ledger);
        let explained = remainder.saturating_add_unsigned(self.dropped_beside(ledger));
        explained.min(remainder.max(0))
    }

    /// Messages of ICMP and segments of TCP that the receiving host got: these were not lost.
    pub(super) fn alive(&self) -> u64 {
        let names = ["Icmp.InMsgs", "Icmp6.InMsgs", "Tcp.InSegs"];
        total(names.map(|name| snmp(self.receiver, name)))
    }

    /// Packets of others that the receiving host got at this station, if all of the run came that the
    /// sender did not drop.
    fn came_for_others(&self, station: Station, ledger: &Ledger) -> u64 {
        let links = self
            .links()
            .map(|link| total([unsigned(link.counters.rx_packets), missed(link)]));
        let ip = ["Ip.InReceives", "Ip6.InReceives"].map(|name| snmp(self.receiver, name));
        let ip = total(ip);
        // Only ARP and the like came by the run's card beside it.
        let is_pure = self.cards_agree() && self.sent_beside() == 0;
        let came = match station {
            Station::Ip | Station::Udp | Station::Socket if is_pure => ip,
            _ => links.fold(ip, u64::max),
        };
        let left = self.offered.saturating_sub(ledger.lost_at(Station::Sender));
        // A driver need not count all packets, and may count trains.
        match came < total([self.delivered, self.queued]) {
            true => UNKNOWN,
            false => came.saturating_sub(total([left, self.alive()])),
        }
    }

    /// Datagrams that no row has, or fewer than none if the rows have others' packets. Drops of other
    /// network namespaces are left out: the interfaces of this one count their drops, too
    /// (`enqueue_to_backlog`).
    fn remainder(&self, ledger: &Ledger) -> i64 {
        let rows = ledger.losses.iter();
        let of_host = rows.filter(|row| row.scope == Scope::Host);
        let elsewhere = total(of_host.map(|row| self.elsewhere(row)));
        ledger.unaccounted.saturating_add_unsigned(elsewhere)
    }

    fn elsewhere(&self, row: &Loss) -> u64 {
        let here = self.links().map(|link| unsigned(link.counters.rx_dropped));
        row.count.saturating_sub(total(here))
    }

    /// Packets of others that this row may have; none for the run's own counters. If the run `is_open`, some
    /// of it may be lost without a counter, and others' packets may have come in its place.
    fn others(&self, row: &Loss, ledger: &Ledger, is_open: bool) -> Option<u64> {
        let came = || match is_open {
            true => UNKNOWN,
            false => self.came_for_others(row.station, ledger),
        };
        Some(match (row.scope, row.station) {
            (Scope::Program, _) => return None,
            _ if is_of_sockets(row) && !self.is_shared(ledger) => return None,
            (Scope::Interface, Station::Sender) => self.sent_beside(),
            (_, Station::Sender) => self.sent_by_others(),
            (_, Station::Wire) if row.by_difference => {
                ledger.undecided.unwrap_or_default().arrivals
            }
            (Scope::Host, _) => total([came(), self.elsewhere(row)]),
            _ => came(),
        })
    }

    /// Whether the receiving sockets or rings dropped others' packets for all that is known: they got such
    /// packets, or dropped more than the run has.
    fn is_shared(&self, ledger: &Ledger) -> bool {
        self.has_strangers || self.socket_drops.is_none() || self.unexplained(ledger) < 0
    }

    /// Notes that a full socket or ring may have dropped others' packets in place of packets of the run that
    /// were lost before.
    fn doubt_own(ledger: &mut Ledger) {
        let own = |row: &&Loss| row.scope == Scope::Socket && is_of_sockets(row);
        let dropped = total(ledger.losses.iter().filter(own).map(|row| row.count));
        if dropped == 0 {
            return;
        }
        for row in &mut ledger.losses {
            row.exact &= !is_gap(row) && !own(&&*row);
        }
        ledger.note(format!(
            "other programs may have sent some of the {dropped} that the receiver's sockets or rings dropped \
             unread: as many more of this run were lost before"
        ));
    }

    /// Limits the rows of wider scopes to what sequence numbers show to be missing, and says how much
    /// of that may be others'.
    pub(super) fn doubt_rows(&self, ledger: &mut Ledger) {
        if self.is_lab() {
            return;
        }
        let too_many = self.remainder(ledger).min(0).unsigned_abs();
        let is_lost_between =
            self.dropped_beside(ledger) > too_many || ledger.losses.iter().any(is_gap);
        let is_open = self.unexplained(ledger) != 0 || (is_lost_between && !self.cards_agree());
        if is_open && !self.is_shared(ledger) {
            Self::doubt_own(ledger);
        }
        let others = |row| self.others(row, ledger, is_open);
        let mut others: Vec<_> = ledger.losses.iter().map(others).collect();
        let sure = |row: &Loss, others: Option<u64>| row.count.saturating_sub(others.unwrap_or(0));
        let all_sure = |others: &[Option<u64>]| {
            let rows = ledger.losses.iter().zip(others);
            total(rows.map(|(row, others)| sure(row, *others)))
        };
        let missing = self.sequence_lost.unwrap_or(u64::MAX);
        let mut between = ledger.undecided.unwrap_or_default().drops;
        if all_sure(&others) > missing {
            // The counters that bound the others miss some.
            let unbound = |others: &Option<u64>| others.map(|_| UNKNOWN);
            (others, between) = (others.iter().map(unbound).collect(), UNKNOWN);
        }
        let mut room = missing.saturating_sub(all_sure(&others));
        let (mut notes, mut drops) = (Vec::new(), 0);
        // Later rows are nearer to the run.
        for (row, others) in ledger.losses.iter_mut().zip(others).rev() {
            let (count, sure) = (row.count, sure(row, others));
            let doubtful = (count - sure).min(room);
            row.count = sure + doubtful;
            row.exact &= doubtful == 0;
            room -= doubtful;
            let most = if is_gap(row) { between } else { UNKNOWN };
            drops = total([drops, doubtful.min(most)]);
            let said = self.said(row, count, doubtful, others.unwrap_or(0));
            notes.extend(said.into_iter().flatten());
        }
        ledger.losses.retain(|row| row.count > 0);
        ledger.unaccounted = ledger.remainder();
        ledger.notes.extend(notes.into_iter().rev());
        ledger.undecided = (drops > 0).then_some(Undecided { arrivals: 0, drops });
    }

    /// Says what was left out of a row that had this `count`, and what is doubtful.
    fn said(&self, row: &Loss, count: u64, doubtful: u64, others: u64) -> [Option<String>; 2] {
        let (out, source) = (count - row.count, &row.source);
        let whose = match self.has_strangers {
            true => "other programs' or duplicates",
            false => "other programs'",
        };
        let why = match (row.scope, others, row.station) {
            (Scope::Host, ..) => "it counts all network namespaces".to_owned(),
            (_, UNKNOWN, _) => "no counter shows how many packets were not of this run".to_owned(),
            (_, _, Station::Sender) => {
                format!("the sender sent {others} packets or more that are not of this run")
            }
            _ => format!("the receiver got {others} packets or more that are not of this run"),
        };
        [
            (doubtful > 0 && !is_gap(row)).then(|| {
                format!("undecided: {doubtful} of the {count} in {source} may be {whose}: {why}")
            }),
            (out > 0).then(|| {
                format!(
                    "{out} of the {count} in {source} are {whose} and left out: sequence numbers show \
                     that this run lost fewer"
                )
            }),
        ]
    }
}
