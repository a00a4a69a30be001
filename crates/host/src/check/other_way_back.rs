//! Answers that leave by another interface than requests come by.

use super::{Check, Confidence, Evidence, Finding, Observed, firewall};
use crate::Station;
use std::collections::BTreeSet;

pub(super) const CHECK: Check = Check {
    name: "other_way_back",
    reads: "with `--port` or `--pid`: `rx_packets` and `tx_packets` of each interface, datagrams that UDP received and \
            sent, forwarded packets, and the UDP sockets of the port's program",
    speaks: "requests came by one interface, and about as many datagrams left by another, which received hardly \
             anything; always a remark, because routers may bring them together",
    run,
};

/// Fewer datagrams are no course.
const FEW: u64 = 20;

/// At most one of this many packets goes the other way.
const ONE_WAY: u64 = 20;

fn run(seen: &Observed) -> Vec<Finding> {
    finding(seen).into_iter().collect()
}

fn finding(seen: &Observed) -> Option<Finding> {
    let received = seen.grown(&["Udp.InDatagrams", "Udp6.InDatagrams"]);
    let sent = seen.grown(&["Udp.OutDatagrams", "Udp6.OutDatagrams"]);
    let is_answered = received >= FEW && sent >= received / 2 && sent <= received.saturating_mul(2);
    if seen.sockets.is_empty()
        || !is_answered
        || seen.grown(&firewall::FORWARDED) > 0
        || relays(seen)
    {
        return None;
    }
    let both = |name| {
        let received = seen.link(name, "rx_packets")?;
        let sent = seen.link(name, "tx_packets")?;
        (name != "lo").then_some((name, received, sent))
    };
    let ways: Vec<(&str, Evidence, Evidence)> = seen.interfaces().filter_map(both).collect();
    let is_one_way = |most: &Evidence, rest: &Evidence, all: u64| {
        most.grown() >= all - all / 5 && rest.grown() <= most.grown() / ONE_WAY
    };
    let (way_in, came, _) = ways
        .iter()
        .find(|(_, came, left)| is_one_way(came, left, received))?;
    let (way_out, _, left) = ways
        .iter()
        .find(|(_, came, left)| is_one_way(left, came, sent))?;
    let evidence = vec![came.clone(), left.clone()];
    let mut found = Finding::noticed(seen, &CHECK, Station::Sender, evidence);
    found.is_remark = true;
    let what = format!(
        "requests came by {way_in}, and what this host sends leaves by {way_out}, which received hardly anything: if \
         clients get no answers, a route or rule, as a VPN's default route, leads the answers away"
    );
    let remedy = "ip route get CLIENT from ADDRESS shows the way of an answer; have answers leave where requests come: ip \
                  route add default via GATEWAY dev IF table 100, and ip rule add from ADDRESS table 100 before the \
                  rules of the VPN (wg-quick, redirect-gateway of OpenVPN)";
    Some(found.says(what, remedy).with(Confidence::Possible))
}

/// True if a program with the sockets in question has others: it may pass datagrams on.
fn relays(seen: &Observed) -> bool {
    let asked: BTreeSet<u32> = seen.sockets.iter().map(|one| one.entry.inode).collect();
    let owners = |inode: &u32| seen.after.owners.get(inode).into_iter().flatten();
    let programs: BTreeSet<&u32> = asked.iter().flat_map(owners).collect();
    let others = seen.after.sockets.iter().map(|one| &one.inode);
    let mut others = others.filter(|inode| !asked.contains(inode));
    programs.is_empty() || others.any(|inode| owners(inode).any(|pid| programs.contains(pid)))
}
