//! Drops for which the kernel names no reason, and what they are by other counters.

use super::{Evidence, Seen, fragments, xdp_drop};

/// The kernel's name for none (`SKB_DROP_REASON_NOT_SPECIFIED`).
pub(super) const REASON: &str = "NOT_SPECIFIED";

/// What becomes of a packet that IP received; one for a group that nobody joined is in none of them.
const IP: [&str; 7] = [
    "Ip.InDelivers",
    "Ip.ForwDatagrams",
    "Ip.InHdrErrors",
    "Ip.InAddrErrors",
    "Ip.InDiscards",
    "IpExt.InNoRoutes",
    "TcpExt.IPReversePathFilter",
];

/// How many IP received and gave to nobody, and how many are not explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unspecified {
    pub(super) unrouted: u64,
    pub(super) rest: u64,
}

impl Unspecified {
    /// What is known; nothing where drops cannot be watched.
    pub(super) fn of(seen: &Seen) -> Self {
        let all = seen.reason(REASON).map_or(0, |all| all.grown());
        // A veth's XDP program drops the packets of sockets without a reason (veth_xdp_rcv_skb), and
        // the first fragment of a datagram goes so, too (ip_frag_queue).
        let known =
            Evidence::sum(&xdp_drop::losses(seen)).saturating_add(seen.grown(fragments::NAMES));
        let left = all.saturating_sub(known);
        let given = seen.grown(&IP).saturating_add(seen.grown(fragments::NAMES));
        let unrouted = seen.grown(&["Ip.InReceives"]).saturating_sub(given);
        let unrouted = unrouted.min(left);
        Self {
            unrouted,
            rest: left - unrouted,
        }
    }
}
