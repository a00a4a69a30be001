//! Packets that IP discards, each kind with a counter of its own.

use super::{Check, Finding, Observed};
use crate::ledger::loss::{CUT_SHORT, DISCARDED, LossKind, NO_ROUTE};

pub(super) const CHECK: Check = Check {
    name: "ip_discards",
    reads: "`IpExt.InTruncatedPkts`, `IpExt.InNoRoutes`, `Ip.InDiscards`, and `Ip6.InTruncatedPkts`, \
            `Ip6.InNoRoutes`, `Ip6.InDiscards`",
    speaks: "IP discarded packets: cut short, without a route, or without memory for them",
    run,
};

/// The losses, what they mean, and what to do.
const KINDS: [(&LossKind, &str, &str); 3] = [
    (
        &CUT_SHORT,
        "packets came cut short: their IP header says that they are longer",
        "tcpdump -vni IF shows `bad-len` or `truncated-ip`; correct the sender, or the device on the way",
    ),
    (
        &NO_ROUTE,
        "packets came for an address that this host has no route to",
        "ip route get ADDRESS: add the route, or correct the sender's route that leads here",
    ),
    (
        &DISCARDED,
        "IP discarded packets: it had no memory for them, or IPv6 is off at the interface that they came by",
        "sysctl net.ipv6.conf.IF.disable_ipv6; dmesg shows whether allocations failed",
    ),
];

fn run(seen: &Observed) -> Vec<Finding> {
    let found = KINDS.iter().filter_map(|&(kind, what, remedy)| {
        let found = Finding::counted(seen, &CHECK, kind)?;
        Some(found.says(what, remedy))
    });
    found.collect()
}
