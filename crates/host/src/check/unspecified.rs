//! Drops without a reason from the kernel, and their causes by other counters.

use super::drop_reasons::{self, NOT_SPECIFIED, VIRTUAL};
use super::reason_counts::nameless;
use super::vanished::{GROUPS_V6, datagrams_to_strange_groups, vanished};
use super::{Evidence, Observed, far_end, firewall, virtual_device};
use crate::Station;
use crate::counters::driver_counters::Meaning;
use crate::ledger::loss::{
    ADDRESS, BAD_HEADER, CHECKSUM, CUT_SHORT, DISCARDED, FRAGMENTS, LossKind, NO_MEMBER, NO_ROUTE,
    REFUSED_BY_UDP, REVERSE_PATH,
};
use std::cmp::Reverse;

pub(super) const REASON: &str = NOT_SPECIFIED;

/// Packets to groups that nothing here has joined, by the function that drops them.
pub(super) const GROUPS_V4: &str = "NOT_SPECIFIED@ip_rcv_finish_core+group";

fn count(seen: &Observed, reason: &str) -> u64 {
    seen.reason(reason).map_or(0, |one| one.grown())
}

/// The functions that dropped without a reason, and that the table does not know, most packets first.
pub(super) fn functions<'s>(seen: &'s Observed) -> Vec<&'s str> {
    let drops = seen.drops.iter().flatten();
    let mut drops: Vec<_> = drops
        .filter(|drop| drop.reason == REASON && !drop.place.is_empty())
        .map(|drop| (Reverse(drop.datagrams), &*drop.place))
        .collect();
    drops.sort_unstable();
    drops.into_iter().map(|(_, place)| place).collect()
}

/// Packets that IPv4 received and that a known function dropped without a reason.
fn placed(seen: &Observed) -> u64 {
    let drops = seen.drops.iter().flatten();
    let placed = drops.filter(|drop| {
        let row = drop_reasons::row(&drop.reason);
        let is_ip = row.is_some_and(|row| row.station == Station::Ip);
        is_ip && drop_reasons::has_place(&drop.reason) && drop.reason != GROUPS_V6
    });
    placed.fold(0, |sum, drop| sum.saturating_add(drop.datagrams))
}

/// The counters with the fate of a packet that IP received. A packet for a group without members is
/// in none of them.
const IP: [&str; 9] = [
    "Ip.InDelivers",
    "Ip.ForwDatagrams",
    "Ip.InHdrErrors",
    "Ip.InAddrErrors",
    "Ip.InDiscards",
    "Ip.InUnknownProtos",
    "IpExt.InNoRoutes",
    "IpExt.InTruncatedPkts",
    "TcpExt.IPReversePathFilter",
];

/// Losses with counters of their own. For some of them kernels name no reason: a policy of IPsec is
/// an example (`__udp4_lib_rcv`).
const COUNTED: [&LossKind; 8] = [
    &ADDRESS,
    &BAD_HEADER,
    &CHECKSUM,
    &DISCARDED,
    &NO_ROUTE,
    &CUT_SHORT,
    &REVERSE_PATH,
    &REFUSED_BY_UDP,
];

/// How many packets IP received and delivered nowhere, and how many are not explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unspecified {
    pub(super) unrouted: u64,
    /// Packets to IPv4 groups, by the function that dropped them.
    pub(super) groups_v4: u64,
    /// All packets of IPv4 with a cause by their function.
    pub(super) placed: u64,
    /// The same of IPv6, which counts what comes to groups.
    pub(super) unrouted_v6: u64,
    /// Copies for this host of multicast that a bridge of it passes on: no loss.
    pub(super) bridged: u64,
    pub(super) rest: u64,
}

impl Unspecified {
    /// Computes the counts; all are zero if drops cannot be watched.
    pub(super) fn of(seen: &Observed) -> Self {
        let all = seen.reason(REASON).map_or(0, |all| all.grown());
        // A veth's XDP program drops the packets of sockets without a reason (veth_xdp_rcv_skb), the
        // first fragment of a datagram goes so (ip_frag_queue), and so does what is for all hosts or
        // a group and has no listener (__udp4_lib_mcast_deliver), which is nothing wrong.
        let counted = COUNTED.map(|kind| nameless(seen, kind));
        let known = Evidence::sum(&seen.losses(Meaning::Xdp))
            .saturating_add(far_end::without_reason(seen))
            .saturating_add(
                counted
                    .iter()
                    .fold(0, |sum: u64, &one| sum.saturating_add(one)),
            )
            .saturating_add(seen.grown(FRAGMENTS.counters))
            .saturating_add(seen.grown(NO_MEMBER.counters))
            .saturating_add(virtual_device::nameless(seen, &VIRTUAL));
        let left = all.saturating_sub(known);
        let placed_v6 = count(seen, GROUPS_V6);
        let placed = placed(seen);
        // A counter shows the packets of IPv6, and only a difference those of IPv4. So IPv6 goes
        // first.
        let others = seen.others(REASON).saturating_add(seen.others(GROUPS_V6));
        let unrouted_v6 = datagrams_to_strange_groups(seen, others);
        let unrouted_v6 = unrouted_v6.saturating_sub(placed_v6).min(left);
        // Unless IPv4 misses just as many: then IPv6's are listener reports.
        let missing = vanished(seen).saturating_sub(placed);
        let unrouted_v6 = match missing.abs_diff(left) < unrouted_v6.abs_diff(left) {
            true => unrouted_v6.min(left.saturating_sub(missing)),
            false => unrouted_v6,
        };
        let left = left - unrouted_v6;
        // Of fragments all are received, and one is delivered for those of a datagram.
        let whole = seen.grown(&["Ip.ReasmOKs"]);
        let absorbed = seen.grown(&["Ip.ReasmReqds"]).saturating_sub(whole);
        let filtered = seen.reason(firewall::REASON).map_or(0, |one| one.grown());
        let given = seen
            .grown(&IP)
            .saturating_add(absorbed)
            .saturating_add(placed)
            .saturating_add(filtered);
        let unrouted = seen.grown(&["Ip.InReceives"]).saturating_sub(given);
        let unrouted = unrouted.min(left);
        let bridged = bridged(seen).min(unrouted);
        Self {
            bridged,
            unrouted: unrouted - bridged,
            groups_v4: count(seen, GROUPS_V4),
            placed,
            unrouted_v6: unrouted_v6.saturating_add(placed_v6),
            rest: left - unrouted,
        }
    }
}

/// Multicast packets that bridges gave to their own host too, as a multicast router gets them (`br_handle_frame_finish`,
/// net/bridge/br_input.c). A port that has a socket here and was asked for may miss them.
fn bridged(seen: &Observed) -> u64 {
    if seen.asked.port.is_some() && !seen.sockets.is_empty() {
        return 0;
    }
    let bridges = seen.after.links.iter().filter(|link| link.kind == "bridge");
    let counts = bridges.filter_map(|link| seen.link(&link.name, "multicast"));
    counts.fold(0, |sum: u64, one| sum.saturating_add(one.grown()))
}
