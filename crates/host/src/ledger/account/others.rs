//! Rows of a host, a namespace or an interface that may have other programs' packets.

use super::{Account, Departure, snmp, total, udp, unsigned};
use crate::{Ledger, Loss, Scope, Station, Undecided};

impl Account<'_> {
    /// Datagrams that other programs of the sending host sent, as far as its counters show that: each
    /// datagram counts as sent or dropped (`udp_send_skb` in net/ipv4/udp.c).
    pub fn sent_by_others(&self) -> u64 {
        let all = total([udp(self.sender, "OutDatagrams"), self.sndbuf_errors()]);
        match self.departure {
            // A train counts as one, and frames pass UDP uncounted.
            Departure::Socket if self.gso => 0,
            Departure::Socket => all.saturating_sub(self.accepted()),
            Departure::Frames | Departure::Redirect => all,
        }
    }

    /// Packets of others that the receiving host got, as far as its counters show that: more came by one
    /// interface, or to IP, than the run sent. Messages of ICMP that came were not lost.
    fn came_for_others(&self) -> u64 {
        let links = self.receiver.iter().flat_map(|host| host.links.values());
        let links = links.map(|link| unsigned(link.counters.rx_packets));
        let all = |names: [&str; 2]| total(names.map(|name| snmp(self.receiver, name)));
        let ip = all(["Ip.InReceives", "Ip6.InReceives"]);
        let ours = total([self.accepted(), all(["Icmp.InMsgs", "Icmp6.InMsgs"])]);
        links.fold(ip, u64::max).saturating_sub(ours)
    }

    /// Takes out of the rows what sequence numbers show to be others', and says how much more may be.
    pub(super) fn doubt_rows(&self, ledger: &mut Ledger) {
        if self.is_lab() {
            return;
        }
        let (sent, came) = (self.sent_by_others(), self.came_for_others());
        let others = |row: &Loss| match (row.scope, row.station) {
            (Scope::Program | Scope::Socket, _) => (0, ""),
            (_, Station::Sender) => (sent, "sender sent"),
            // Differences have their own doubts.
            (_, Station::Wire | Station::Backlog | Station::Ip | Station::Udp)
                if !row.by_difference =>
            {
                (came, "receiver got")
            }
            _ => (0, ""),
        };
        let most = self.sequence_lost.unwrap_or(u64::MAX);
        let (mut notes, mut drops) = (Vec::new(), [0, 0]);
        for row in &mut ledger.losses {
            let (others, end) = others(row);
            let (count, sure) = (row.count, row.count.saturating_sub(others));
            row.count = sure.max(count.min(most));
            if row.count < count {
                notes.push(format!(
                    "{} of the {count} in {} are other programs' and left out: sequence numbers show \
                     that this run lost fewer",
                    count - row.count,
                    row.source
                ));
            }
            let doubtful = row.count - sure;
            if doubtful > 0 {
                row.exact = false;
                let sum = &mut drops[usize::from(row.station != Station::Sender)];
                *sum = total([*sum, doubtful]).min(others);
                notes.push(format!(
                    "undecided: {doubtful} of the {count} in {} may be other programs': the {end} \
                     {others} packets or more that are not of this run",
                    row.source
                ));
            }
        }
        ledger.losses.retain(|row| row.count > 0);
        ledger.unaccounted = ledger.remainder();
        ledger.notes.append(&mut notes);
        let drops = total(drops);
        ledger.undecided = (drops > 0).then_some(Undecided { arrivals: 0, drops });
    }
}
