//! A range of client ports that is almost used up.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use std::collections::BTreeSet;

pub(super) const CHECK: Check = Check {
    name: "ports_used_up",
    reads: "the ports of all UDP sockets (sock_diag), and `net.ipv4.ip_local_port_range`",
    speaks: "UDP sockets use 95 % or more of the ports for automatic choice",
    run,
};

/// From this share on a program may find none.
const SHARE: f64 = 0.95;

fn run(seen: &Observed) -> Vec<Finding> {
    let Some(range) = seen.after.client_ports.clone() else {
        return Vec::new();
    };
    let used = |facts: &crate::Observation| {
        let ports = facts.sockets.iter().map(|socket| socket.local.port());
        let ports: BTreeSet<u16> = ports.filter(|port| range.contains(port)).collect();
        ports.len()
    };
    let (before, after, all) = (used(seen.before), used(seen.after), range.len());
    if all == 0 || (after as f64) < SHARE * all as f64 {
        return Vec::new();
    }
    let what = format!(
        "UDP sockets have {after} of the {all} ports for clients: a program that asks for any port may get \
         none (EADDRINUSE, EAGAIN)"
    );
    let (first, last) = (*range.start(), *range.end());
    let wider = match (first, last) {
        (..=1024, u16::MAX) => {
            "the range is as wide as it can be, so close sockets, or bind(2) clients to further addresses of \
             this host: each address has all ports"
                .to_owned()
        }
        _ => format!(
            "a wider range, which other ports must not be in: sysctl -w net.ipv4.ip_local_port_range='1024 65535' \
             (it is '{first} {last}')"
        ),
    };
    let remedy = format!("find who has them: ss -uanp; {wider}");
    let source = "UDP ports in net.ipv4.ip_local_port_range";
    let evidence = vec![Evidence::new(source, before as u64, after as u64)];
    let found = Finding::noticed(seen, &CHECK, Station::Socket, evidence);
    vec![found.says(what, remedy).with(Confidence::Likely)]
}
