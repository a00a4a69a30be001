//! Packets that IP received and whose fate no IP counter shows.

use super::{Observed, conntrack};

/// Received packets, and packets whose fate is known. The difference has vanished.
type Fates = (&'static [&'static str], &'static [&'static str]);

const V4: Fates = (
    &["Ip.InReceives", "Ip.ReasmOKs"],
    &[
        "Ip.InDelivers",
        "Ip.ForwDatagrams",
        "Ip.ReasmReqds",
        "Ip.InHdrErrors",
        "Ip.InAddrErrors",
        "Ip.InDiscards",
        "Ip.InUnknownProtos",
        "IpExt.InNoRoutes",
        "IpExt.InTruncatedPkts",
        "TcpExt.IPReversePathFilter",
    ],
);
const V6: Fates = (
    &["Ip6.InReceives", "Ip6.ReasmOKs"],
    &[
        "Ip6.InDelivers",
        "Ip6.OutForwDatagrams",
        "Ip6.ReasmReqds",
        "Ip6.InHdrErrors",
        "Ip6.InAddrErrors",
        "Ip6.InDiscards",
        "Ip6.InUnknownProtos",
        "Ip6.InNoRoutes",
        "Ip6.InTruncatedPkts",
    ],
);

/// The packets that both versions received and delivered.
pub(super) const SHOWN: [&str; 4] = [
    "Ip.InReceives",
    "Ip.InDelivers",
    "Ip6.InReceives",
    "Ip6.InDelivers",
];

/// Packets that IP neither delivered nor counted as lost, without those to IPv6 groups that nothing here
/// has joined.
pub(super) fn gap(seen: &Observed) -> u64 {
    let gap = not_delivered(seen, &V4).saturating_add(not_delivered(seen, &V6));
    gap.saturating_sub(packets_to_strange_groups(seen))
}

/// Packets that IP received and that no counter of it has: to groups that this host has not joined, or
/// dropped by a firewall.
fn not_delivered(seen: &Observed, (received, counted): &Fates) -> u64 {
    seen.grown(received).saturating_sub(seen.grown(counted))
}

/// The drops of `ip6_mc_input`, which names no reason.
pub(super) const GROUPS_V6: &str = "NOT_SPECIFIED@ip6_mc_input";

/// Packets to IPv6 groups that no program here has joined. IP counts them as multicast and drops
/// them (`ip6_mc_input` in net/ipv6/ip6_input.c). A packet dropped by a firewall may have been to a
/// joined group.
///
/// Zero if the firewall's drops are not seen. With a port those that the kernel dropped there.
pub(super) fn to_strange_groups(seen: &Observed) -> u64 {
    let all = packets_to_strange_groups(seen);
    match (seen.drops.is_some(), seen.asked.port) {
        (false, _) => 0,
        (true, None) => all,
        (true, Some(_)) => all.min(seen.others(GROUPS_V6)),
    }
}

/// The UDP packets among them; only those of the port, if one was asked for. `others` are packets
/// of other protocols that the kernel dropped without a reason. They are listener reports, unless
/// they were of IPv4.
pub(super) fn datagrams_to_strange_groups(seen: &Observed, others: u64) -> u64 {
    packets_to_strange_groups(seen).saturating_sub(others.saturating_sub(vanished(seen)))
}

pub(super) fn packets_to_strange_groups(seen: &Observed) -> u64 {
    let multicast = seen.grown(&["Ip6.InMcastPkts"]);
    // As many of them as IPv4 does not miss were of IPv6.
    let filtered = filtered(seen).saturating_sub(not_delivered(seen, &V4));
    not_delivered(seen, &V6)
        .saturating_sub(filtered)
        .min(multicast)
}

/// The UDP packets that a firewall dropped. With a port it is packets of all protocols.
fn filtered(seen: &Observed) -> u64 {
    let filtered = seen.reason(conntrack::REASON);
    let filtered = filtered.map_or(0, |filtered| filtered.grown());
    let others = seen
        .asked
        .port
        .map_or(0, |_| seen.others(conntrack::REASON));
    filtered.saturating_add(others)
}

/// Packets that IPv4 received and no counter has, without UDP packets that a firewall dropped.
pub(super) fn vanished(seen: &Observed) -> u64 {
    not_delivered(seen, &V4).saturating_sub(filtered(seen))
}

/// All that becomes of a datagram that IP delivers.
pub(super) const UDP: [&str; 8] = [
    "Udp.InDatagrams",
    "Udp.NoPorts",
    "Udp.InErrors",
    "Udp.IgnoredMulti",
    "Udp6.InDatagrams",
    "Udp6.NoPorts",
    "Udp6.InErrors",
    "Udp6.IgnoredMulti",
];

/// True if UDP neither gave any datagram to a reader nor refused one.
pub(super) fn is_udp_silent(seen: &Observed) -> bool {
    seen.grown(&UDP) == 0
}

/// Packets that IP delivered and no counter has. Each was in a socket that closed, or is of a
/// protocol other than UDP, TCP and ICMP. UDP counts a datagram only when it is read.
pub(super) fn unread(seen: &Observed) -> u64 {
    let delivered = seen.grown(&["Ip.InDelivers", "Ip6.InDelivers"]);
    let others = seen.grown(&["Tcp.InSegs", "Icmp.InMsgs", "Icmp6.InMsgs"]);
    delivered
        .saturating_sub(others)
        .saturating_sub(seen.grown(&UDP))
        .saturating_sub(seen.waiting_max())
}
