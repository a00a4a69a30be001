//! Drops without a reason from the kernel, and their causes by other counters.

use super::drop_reasons::{NOT_SPECIFIED, VIRTUAL};
use super::reason_counts::nameless;
use super::vanished::{datagrams_to_strange_groups, vanished};
use super::{Evidence, Observed, far_end, firewall, virtual_device};
use crate::counters::driver_counters::Meaning;
use crate::ledger::loss::{
    ADDRESS, BAD_HEADER, CHECKSUM, CUT_SHORT, DISCARDED, FRAGMENTS, LossKind, NO_MEMBER, NO_ROUTE,
    REFUSED_BY_UDP, REVERSE_PATH,
};

pub(super) const REASON: &str = NOT_SPECIFIED;

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
    /// The same of IPv6, which counts what comes to groups.
    pub(super) unrouted_v6: u64,
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
        // A counter shows the packets of IPv6, and only a difference those of IPv4. So IPv6 goes
        // first.
        let unrouted_v6 = datagrams_to_strange_groups(seen, seen.others(REASON)).min(left);
        // Unless IPv4 misses just as many: then IPv6's are listener reports.
        let missing = vanished(seen);
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
            .saturating_add(filtered);
        let unrouted = seen.grown(&["Ip.InReceives"]).saturating_sub(given);
        let unrouted = unrouted.min(left);
        Self {
            unrouted,
            unrouted_v6,
            rest: left - unrouted,
        }
    }
}
