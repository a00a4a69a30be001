//! Packets for an address that this host does not have.

use super::{Check, Confidence, Finding, Observed};
use crate::ledger::loss::ADDRESS;
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "address",
    reads: "`Ip.InAddrErrors`, `Ip6.InAddrErrors`; `forwarding` of each interface with a route; IPv6 addresses that are \
            tentative or dadfailed",
    speaks: "packets came for addresses that this host does not have or does not use, and it does not forward",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let cause = || unused(seen).or_else(|| not_forwarded(seen));
    let found = Finding::counted(seen, &CHECK, &ADDRESS).map(|found| match cause() {
        Some((what, remedy, confidence)) => found
            .says(what, format!("{remedy}; or {ADD}"))
            .with(confidence),
        None => found.says(
            "packets came for an IP address that this host does not have",
            ADD,
        ),
    });
    found.into_iter().collect()
}

/// The remedy for an IPv6 address that is not used.
pub(super) const UNUSED: &str = "another address for one of the hosts, or end the other and add the address anew (ip -6 address del, \
                                 add): ip -6 address show tentative; ip -6 address show dadfailed";

/// The words for an IPv6 address that this host has, and that duplicate address detection holds back.
fn unused(seen: &Observed) -> Option<(String, String, Confidence)> {
    let unused = seen.after.unused_addresses.join(", ");
    let is_v6 = seen.grown(&["Ip6.InAddrErrors"]) > seen.grown(&["Ip.InAddrErrors"]);
    let what =
        format!("packets came for an IP address that this host has and does not use: {unused}");
    (is_v6 && !unused.is_empty()).then(|| (what, UNUSED.to_owned(), Confidence::Likely))
}

const ADD: &str = "ip address show: add the address that the senders use, or correct the route that leads here; or, if \
                    it is a broadcast address, give this host the senders' netmask; or, if another host has it now (a \
                    virtual IP that moved), senders keep this one in their table of neighbours: there, arping -U -I IF \
                    ADDRESS; or, if two hosts have the same Ethernet address (ip neigh on the sender; bridge fdb show), \
                    give one of them another";

/// The words for packets that may have been to be forwarded. The kernel counts them only if the interface that they
/// came by does not forward (`ip_error`, net/ipv4/route.c), after rules of NAT have changed them.
fn not_forwarded(seen: &Observed) -> Option<(String, String, Confidence)> {
    let all = &seen.after.forwarding;
    let off: Vec<&String> = all
        .iter()
        .filter(|(_, on)| !**on)
        .map(|(name, _)| name)
        .collect();
    if seen.grown(&["Ip.InAddrErrors"]) == 0 || all.len() < 2 || off.is_empty() {
        return None;
    }
    if off.len() < all.len() {
        let names: Vec<&str> = off.iter().map(|name| &***name).collect();
        let sets = off
            .iter()
            .map(|name| format!("net.ipv4.conf.{}.forwarding=1", ShellWord::new(name)));
        let sets: Vec<String> = sets.collect();
        let what = format!(
            "packets came that this host did not forward: forwarding is off at {}, and on at its other interfaces",
            names.join(", ")
        );
        return Some((
            what,
            format!("sysctl -w {}", sets.join(" ")),
            Confidence::Likely,
        ));
    }
    let what = "packets came that this host would have to forward, and net.ipv4.ip_forward is 0: a route or a rule \
                (DNAT) leads them to another host or container, or they came for an address that this host does not \
                have";
    let remedy = "sysctl -w net.ipv4.ip_forward=1, if this host routes or publishes ports of containers: nft list \
                  ruleset, iptables-save -t nat and ip route show where they go";
    let confidence = match seen.asked.elsewhere.is_some() || seen.after.links.iter().any(is_bridge)
    {
        true => Confidence::Likely,
        false => Confidence::Possible,
    };
    Some((what.to_owned(), remedy.to_owned(), confidence))
}

fn is_bridge(link: &NetlinkLink) -> bool {
    link.kind == "bridge"
}
