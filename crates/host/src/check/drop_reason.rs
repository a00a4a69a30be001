//! Datagrams that the kernel dropped for a reason that no other check explains.

use super::drop_reasons::{self, Fate};
use super::unspecified::{self, Unspecified};
use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "drop_reason",
    reads: "all other drop reasons of UDP (tracepoint skb:kfree_skb)",
    speaks: "the kernel dropped UDP datagrams for a reason without a check of its own",
    run,
};

/// Another host's frame, or one of a VLAN that has no interface (`vlan_do_receive` and `__netif_receive_skb_core`
/// in net/core/dev.c).
const OTHERHOST: &str = "OTHERHOST";

/// What is known of some reasons: where, what, and what mends it.
const KNOWN: [(&str, Station, &str, &str); 9] = [
    (
        "VXLAN_VNI_NOT_FOUND",
        Station::Udp,
        "the VXLAN interface that took them has no network of that number (VNI)",
        "ip -d link show type vxlan lists the numbers; correct one side",
    ),
    (
        "SOCKET_FILTER",
        Station::Socket,
        "a BPF filter of the socket itself (SO_ATTACH_FILTER) or a BPF program of its cgroup (IPAddressDeny= of \
         systemd) dropped them",
        "bpftool cgroup tree lists programs of cgroups (cgroup_inet_ingress); a filter of the socket is the \
         program's own: its source, or strace at its start, shows it",
    ),
    (
        "XFRM_POLICY",
        Station::Udp,
        "a policy of IPsec refused them",
        "ip xfrm policy lists policies",
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
        OTHERHOST,
        Station::Ip,
        "their Ethernet address is another host's, or they have a VLAN tag that no interface has",
        "tcpdump -eni IF vlan shows tags; ip link add makes an interface for one. Without tags, the sender's \
         table of neighbours is wrong, or the interface is promiscuous",
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
        "perf record -e skb:kfree_skb -g shows the function that dropped them",
    ),
];

/// The reasons that this check reports, each with what it lost.
fn reported<'s>(seen: &'s Observed) -> Vec<(&'s str, Evidence, Fate)> {
    let drops = seen.drops.iter().flatten();
    let mut names: Vec<&str> = drops.map(|drop| &*drop.reason).collect();
    names.sort_unstable();
    names.dedup();
    let beyond = |name: &str, what: &str, count| {
        Evidence::new(format!("drop reason {name}, {what}"), 0, count)
    };
    let reported = names.into_iter().filter_map(|name| {
        let fate = drop_reasons::fate(name);
        let lost = match fate {
            Fate::Checked | Fate::Harmless | Fate::Outward => return None,
            _ if name == unspecified::REASON => {
                let rest = Unspecified::of(seen).rest;
                beyond(name, "without another explanation", rest)
            }
            Fate::Counted(names) => {
                let rest = drop_reasons::beyond(seen, name, names);
                beyond(name, "beyond the counters that go with it", rest)
            }
            Fate::Explains(_) | Fate::Delivered | Fate::Uncounted => seen.reason(name)?,
        };
        (lost.grown() > 0).then_some((name, lost, fate))
    });
    reported.collect()
}

fn known(name: &str) -> Option<&'static (&'static str, Station, &'static str, &'static str)> {
    KNOWN.iter().find(|(known, ..)| *known == name)
}

/// Losses that no counter has: the station, the count, and whether UDP counted them as delivered.
pub(super) fn losses(seen: &Observed) -> Vec<(Station, Evidence, bool)> {
    let losses = reported(seen).into_iter().map(|(name, lost, fate)| {
        let station = known(name).map_or(Station::Ip, |&(_, station, ..)| station);
        let lost = match fate {
            Fate::Explains(names) => {
                let rest = drop_reasons::beyond(seen, name, &[names]);
                Evidence::new(lost.source, 0, rest)
            }
            _ => lost,
        };
        (station, lost, fate == Fate::Delivered)
    });
    losses.collect()
}

fn run(seen: &Observed) -> Vec<Finding> {
    let reported = reported(seen).into_iter();
    let found = reported.filter_map(|(name, lost, _)| finding(seen, name, lost));
    found.collect()
}

fn finding(seen: &Observed, name: &str, lost: Evidence) -> Option<Finding> {
    let unknown = (
        name,
        Station::Ip,
        "include/net/dropreason-core.h of the kernel says what that is",
        "perf record -e skb:kfree_skb -g shows the function that dropped them",
    );
    let known = known(name);
    let &(_, station, why, remedy) = known.unwrap_or(&unknown);
    let found = Finding::lost(seen, &CHECK, station, vec![lost])?;
    let what = format!("the kernel dropped UDP datagrams for the reason {name}: {why}");
    let confidence = match known {
        // Two causes have this reason, and one remedy does not mend the other.
        Some((OTHERHOST, ..)) | None => Confidence::Possible,
        Some(_) => Confidence::Likely,
    };
    Some(found.says(what, remedy).with(confidence))
}
