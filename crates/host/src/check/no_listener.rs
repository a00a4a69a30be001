//! Datagrams for a port at which nobody listens.

use super::{Check, Confidence, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "no_listener",
    reads: "`Udp.NoPorts`, `Udp6.NoPorts`; with `--port` the drop reason `NO_SOCKET`, if it can be watched",
    speaks: "datagrams came for a port without a socket; with `--port`, for that one",
    made_by: "send to a port without a program (gallery: `nobody_listens`)",
    run,
};

pub(super) const NAMES: &[&str] = &["Udp.NoPorts", "Udp6.NoPorts"];

fn run(seen: &Seen) -> Vec<Finding> {
    if elsewhere(seen).is_empty() {
        return finding(seen, &CHECK).into_iter().collect();
    }
    Vec::new()
}

/// The sockets with the port in question, of which none takes all that comes; none without a port.
pub(super) fn elsewhere(seen: &Seen) -> Vec<String> {
    let sockets = seen.sockets();
    let sockets: Vec<_> = sockets.iter().map(|socket| socket.entry).collect();
    // One of both families: what found nobody came before it was there.
    let takes_all = sockets.iter().any(|entry| {
        let is_any = entry.local.ip().is_unspecified() && entry.remote.is_none();
        is_any && entry.interface == 0 && entry.local.is_ipv6() && !entry.only_v6
    });
    if seen.port.is_none() || takes_all {
        return Vec::new();
    }
    let places = sockets.iter().map(|entry| match entry.remote {
        Some(remote) => format!("{} (from {remote} alone)", entry.local),
        None if entry.interface > 0 => format!("{} (of one interface alone)", entry.local),
        None => entry.local.to_string(),
    });
    let mut places: Vec<_> = places.collect();
    places.dedup();
    places
}

/// What came for nobody, with the words for a port without any socket.
pub(super) fn finding(seen: &Seen, check: &Check) -> Option<Finding> {
    let ours = seen.port.and_then(|_| seen.reason("NO_SOCKET"));
    let is_ours = ours.is_some();
    let evidence = ours.map_or_else(|| seen.counters(NAMES), |one| vec![one]);
    let found = Finding::lost(seen, check, Station::Udp, evidence)?;
    let (what, remedy) = match seen.port {
        Some(port) => (
            format!("datagrams came for UDP port {port}, and no socket has it"),
            format!("start the program that serves port {port}, or have senders stop: ss -ulpn"),
        ),
        None => (
            "datagrams came for a UDP port that no socket has".to_owned(),
            "mpps doctor --port PORT tells whether it is yours; tcpdump -ni any 'icmp[0] == 3' shows \
             the refusals, and in them the port"
                .to_owned(),
        ),
    };
    let confidence = match is_ours || seen.port.is_none() {
        true => Confidence::Certain,
        // The counter is of all ports.
        false => Confidence::Possible,
    };
    Some(found.says(what, remedy).with(confidence))
}
