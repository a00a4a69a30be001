//! Datagrams that the kernel dropped for a reason that no other check explains.

use super::unspecified::{self, Unspecified};
use super::{Check, Confidence, Evidence, Finding, Seen, firewall};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "drop_reason",
    reads: "all other drop reasons of UDP (tracepoint skb:kfree_skb)",
    speaks: "the kernel dropped UDP datagrams for a reason that has no check of its own",
    made_by: "a filter on the socket, a martian source (gallery: `a_socket_filter`, `a_martian_source`)",
    run,
};

/// Reasons with a check of their own (include/net/dropreason-core.h).
const EXPLAINED: [&str; 15] = [
    firewall::REASON,
    "NO_SOCKET",
    "SOCKET_RCVBUFF",
    "UDP_CSUM",
    "PROTO_MEM",
    "CPU_BACKLOG",
    "XDP",
    "IP_RPFILTER",
    "IP_INADDRERRORS",
    "IP_INVALID_DEST",
    // Of one datagram the fragments that came.
    "FRAG_REASM_TIMEOUT",
    "FRAG_TOO_FAR",
    "DUP_FRAG",
    // A copy for who looks on, as tcpdump does; the packet itself went on.
    "PACKET_SOCK_ERROR",
    // What waited when a socket was closed: the program's own doing.
    "QUEUE_PURGE",
];

/// What is known of some reasons: where, what, and what mends it.
const KNOWN: [(&str, Station, &str, &str); 7] = [
    (
        "SOCKET_FILTER",
        Station::Socket,
        "a BPF filter of the socket itself (SO_ATTACH_FILTER) dropped them",
        "it is the program's own: its source, or strace at its start, shows which",
    ),
    (
        "TC_INGRESS",
        Station::Ip,
        "a filter or BPF program of tc at the interface's ingress dropped them",
        "tc filter show dev IF ingress; bpftool net list",
    ),
    (
        "IP_INVALID_SOURCE",
        Station::Ip,
        "their source address cannot be one (martian)",
        "sysctl -w net.ipv4.conf.all.log_martians=1 logs them; correct the sender",
    ),
    (
        "IP_LOCAL_SOURCE",
        Station::Ip,
        "their source is an address of this host",
        "two hosts have one address, or a switch sends a packet back",
    ),
    (
        "OTHERHOST",
        Station::Ip,
        "their Ethernet address is another host's",
        "the table of neighbours of the sender is wrong, or the interface is promiscuous",
    ),
    (
        "UNICAST_IN_L2_MULTICAST",
        Station::Ip,
        "they came to a group's Ethernet address with an address of one host",
        "correct the sender",
    ),
    (
        unspecified::REASON,
        Station::Wire,
        "the kernel names no reason; a full ring of a veth is one such, counted as tx_dropped at its other end",
        "perf record -e skb:kfree_skb -g tells the function that dropped them",
    ),
];

fn run(seen: &Seen) -> Vec<Finding> {
    let drops = seen.drops.iter().flatten();
    let others = drops.filter(|drop| !EXPLAINED.contains(&&*drop.reason));
    let mut names: Vec<&str> = others.map(|drop| &*drop.reason).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter_map(|name| finding(seen, name))
        .collect()
}

fn finding(seen: &Seen, name: &str) -> Option<Finding> {
    let known = KNOWN.iter().find(|(known, ..)| *known == name);
    let unknown = (
        name,
        Station::Ip,
        "include/net/dropreason-core.h of the kernel says what that is",
        "perf record -e skb:kfree_skb -g tells the function that dropped them",
    );
    let &(_, station, why, remedy) = known.unwrap_or(&unknown);
    let mut evidence: Vec<Evidence> = seen.reason(name).into_iter().collect();
    if name == unspecified::REASON {
        let rest = Unspecified::of(seen).rest;
        evidence = vec![Evidence::new(
            format!("drop reason {name}, where nothing else explains it"),
            0,
            rest,
        )];
    }
    let found = Finding::lost(seen, &CHECK, station, evidence)?;
    let what = format!("the kernel dropped UDP datagrams for the reason {name}: {why}");
    let confidence = if known.is_some() {
        Confidence::Likely
    } else {
        Confidence::Possible
    };
    Some(found.says(what, remedy).with(confidence))
}
