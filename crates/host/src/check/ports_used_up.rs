//! A range of client ports that is almost used up.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use crate::facts::CrowdedPartner;
use crate::facts::client_ports::SHARE;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

pub(super) const CHECK: Check = Check {
    name: "ports_used_up",
    reads: "the ports of all UDP sockets and, if there are enough of them, of TCP connections (sock_diag), and \
            `net.ipv4.ip_local_port_range`",
    speaks: "UDP sockets, or TCP connections to one partner, use 95 % or more of the ports for automatic choice",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let Some(range) = seen.after.client_ports.clone() else {
        return Vec::new();
    };
    let found = [of_udp(seen, &range), of_tcp(seen, &range)];
    found.into_iter().flatten().collect()
}

/// A client gets a port that no other connection to the same partner has (`__inet_hash_connect`,
/// net/ipv4/inet_hashtables.c).
fn of_tcp(seen: &Observed, range: &RangeInclusive<u16>) -> Option<Finding> {
    let CrowdedPartner {
        from,
        to,
        ports,
        in_time_wait,
    } = seen.after.crowded_partner.clone()?;
    if (ports as f64) < SHARE * range.len() as f64 {
        return None;
    }
    let before = seen.before.crowded_partner.as_ref();
    let before = before.filter(|one| (one.from, one.to) == (from, to));
    let evidence = Evidence::new(
        format!("TCP ports from {from} to {to} in net.ipv4.ip_local_port_range"),
        before.map_or(0, |one| one.ports as u64),
        ports as u64,
    );
    let what = format!(
        "TCP connections from {from} to {to} have {ports} of the {} ports for clients, {in_time_wait} of them in \
         TIME_WAIT: a program that connects there may get none (EADDRNOTAVAIL)",
        range.len()
    );
    let remedy = format!(
        "use connections again (keep-alive of the proxy or client to its server); or sysctl -w net.ipv4.tcp_tw_reuse=1, \
         for those in TIME_WAIT; or more addresses here or there: each pair of them has all ports; or {}",
        wider(range)
    );
    let found = Finding::noticed(seen, &CHECK, Station::Socket, vec![evidence]);
    Some(found.says(what, remedy).with(Confidence::Likely))
}

fn of_udp(seen: &Observed, range: &RangeInclusive<u16>) -> Option<Finding> {
    let used = |facts: &crate::Observation| {
        let ports = facts.sockets.iter().map(|socket| socket.local.port());
        let ports: BTreeSet<u16> = ports.filter(|port| range.contains(port)).collect();
        ports.len()
    };
    let (before, after, all) = (used(seen.before), used(seen.after), range.len());
    if all == 0 || (after as f64) < SHARE * all as f64 {
        return None;
    }
    let what = format!(
        "UDP sockets have {after} of the {all} ports for clients: a program that asks for any port may get \
         none (EADDRINUSE, EAGAIN)"
    );
    let remedy = format!("find who has them: ss -uanp; {}", wider(range));
    let source = "UDP ports in net.ipv4.ip_local_port_range";
    let evidence = vec![Evidence::new(source, before as u64, after as u64)];
    let found = Finding::noticed(seen, &CHECK, Station::Socket, evidence);
    Some(found.says(what, remedy).with(Confidence::Likely))
}

fn wider(range: &RangeInclusive<u16>) -> String {
    let (first, last) = (*range.start(), *range.end());
    match (first, last) {
        (..=1024, u16::MAX) => {
            "the range is as wide as it can be, so close sockets, or bind(2) clients to further addresses of \
             this host: each address has all ports"
                .to_owned()
        }
        _ => format!(
            "a wider range, which other ports must not be in: sysctl -w net.ipv4.ip_local_port_range='1024 65535' \
             (it is '{first} {last}')"
        ),
    }
}
