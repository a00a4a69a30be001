//! The drops of sockets that a full buffer caused. Only the counter of full buffers shows them:
//! `sk_drops` also counts refusals by a policy, a filter or a cgroup, and lack of memory.

use super::{Evidence, Observed, SeenSocket};
use crate::ledger::loss::{BUFFER_FULL, CHECKSUM, NO_MEMORY, REFUSED_BY_UDP};
use mpps_os::netlink::sock_diag::UdpEntry;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// This part of a count may come between the reading of two counters.
const SLACK: u64 = 64;
/// So may as many as this in a burst.
const FEW: u64 = 99;
/// Reasons of sockets other than a full buffer, with the namespace of each packet.
const REFUSED: [&str; 2] = ["SOCKET_FILTER", "SECURITY_HOOK"];

/// The drops of all sockets of the namespace, divided.
#[derive(Debug, Default)]
pub(super) struct FullBuffers {
    /// The cost of a full buffer for each socket, by inode number.
    lost: BTreeMap<u32, u64>,
    /// True if full buffers caused all drops of sockets, and no other cause was possible.
    pub(super) is_sure: bool,
    /// The drops of sockets without a full buffer.
    pub(super) others: u64,
    /// The part of it that no counter of UDP has.
    pub(super) uncounted: u64,
}

/// The drops of a socket since the first moment.
struct UdpSocketDrops {
    inode: u32,
    count: u64,
    is_full: bool,
}

/// Sockets that dropped, whichever port was asked for.
fn dropped(seen: &Observed) -> Vec<UdpSocketDrops> {
    let before: BTreeMap<u32, &UdpEntry> = seen
        .before
        .sockets
        .iter()
        .map(|one| (one.inode, one))
        .collect();
    let is_full = |entry: &UdpEntry| entry.queued_bytes >= entry.buffer_bytes / 2;
    let all = seen.after.sockets.iter().map(|now| {
        let earlier = before.get(&now.inode);
        let new = if seen.before.are_sockets_unknown {
            now.drops
        } else {
            0
        };
        let drops = UdpSocketDrops {
            inode: now.inode,
            count: now
                .drops
                .wrapping_sub(earlier.map_or(new, |one| one.drops))
                .into(),
            is_full: is_full(now) || earlier.is_some_and(|one| is_full(one)),
        };
        (now.inode, drops)
    });
    // The kernel lists a socket twice where others come and go meanwhile.
    let all: BTreeMap<u32, UdpSocketDrops> = all.collect();
    all.into_values().filter(|one| one.count > 0).collect()
}

impl FullBuffers {
    pub(super) fn of(seen: &Observed) -> Self {
        let mut drops = dropped(seen);
        let sum = drops
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(one.count));
        if sum == 0 {
            return Self::default();
        }
        let counters = seen.counters(BUFFER_FULL.counters);
        let full = Evidence::sum(&counters);
        let refused = REFUSED
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(seen.buffers(one)));
        let counted =
            [&CHECKSUM, &NO_MEMORY, &REFUSED_BY_UDP].map(|kind| seen.grown(kind.counters));
        let counted = counted.into_iter().fold(0, u64::saturating_add);
        let is_pure = counted == 0 && refused == 0;
        let beyond = sum.saturating_sub(full);
        let slack = match seen.buffers("PROTO_MEM") {
            0 => FEW.max(full / SLACK),
            _ => full / SLACK,
        };
        let is_all = is_pure && (beyond <= slack || counters.is_empty());
        // The sockets that were still full come first, and then those with the counter's value.
        drops.sort_by_key(|one| (Reverse(one.is_full), one.count.abs_diff(full)));
        let mut left = if is_all { sum } else { full };
        let asked: BTreeMap<u32, u64> = seen
            .sockets
            .iter()
            .map(|socket| (socket.entry.inode, socket.drops.grown()))
            .collect();
        let mut left_of_asked = asked
            .values()
            .fold(0, |sum: u64, one| sum.saturating_add(*one));
        left_of_asked = left_of_asked.saturating_sub(refused);
        let mut lost = BTreeMap::new();
        for one in drops {
            let mut count = one.count.min(left);
            if asked.contains_key(&one.inode) {
                count = count.min(left_of_asked);
                left_of_asked -= count;
            }
            left -= count;
            lost.insert(one.inode, count);
        }
        let unknown = beyond.saturating_sub(counted.max(refused));
        Self {
            lost,
            is_sure: is_pure && beyond <= full / SLACK,
            others: if is_all { 0 } else { beyond },
            uncounted: if is_all || unknown <= slack {
                0
            } else {
                unknown
            },
        }
    }

    /// The cost of a full buffer for this socket.
    pub(super) fn lost(&self, socket: &SeenSocket) -> u64 {
        self.lost.get(&socket.entry.inode).copied().unwrap_or(0)
    }

    /// The sockets in question that dropped for another cause, most drops first, each with the count.
    pub(super) fn refused<'s, 'a>(&self, seen: &'s Observed<'a>) -> Vec<(&'s SeenSocket<'a>, u64)> {
        let beyond = |socket: &SeenSocket| socket.drops.grown().saturating_sub(self.lost(socket));
        let all = seen.sockets.iter().map(|socket| (socket, beyond(socket)));
        let mut refused: Vec<_> = all.filter(|(_, count)| *count > 0).collect();
        refused.sort_by_key(|(_, count)| Reverse(*count));
        refused
    }
}
