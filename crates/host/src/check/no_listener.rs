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

/// How many places are told.
const PLACES: usize = 4;

/// The sockets with the port in question, of which none takes all that comes of a family of which
/// something found no socket; none without a port.
pub(super) fn elsewhere(seen: &Seen) -> Vec<String> {
    if seen.asked.port.is_none() || seen.sockets.is_empty() {
        return Vec::new();
    }
    let takes_all = |is_v6: bool| {
        let mut entries = seen.sockets.iter().map(|socket| socket.entry);
        entries.any(|entry| {
            let is_any = entry.local.ip().is_unspecified() && entry.remote.is_none();
            let is_of = match entry.local.is_ipv6() {
                true => is_v6 || !entry.only_v6,
                false => !is_v6,
            };
            is_any && is_of && entry.interface == 0
        })
    };
    let missed = |name: &str, is_v6| seen.grown(&[name]) > 0 && !takes_all(is_v6);
    if !missed("Udp.NoPorts", false) && !missed("Udp6.NoPorts", true) {
        return Vec::new();
    }
    let entries = seen.sockets.iter().map(|socket| socket.entry);
    let mut places: Vec<String> = entries
        .map(|entry| match entry.remote {
            Some(remote) => format!("{} (from {remote} alone)", entry.local),
            None if entry.interface > 0 => format!("{} (of one interface alone)", entry.local),
            None => entry.local.to_string(),
        })
        .collect();
    places.dedup();
    let more = places.len().saturating_sub(PLACES);
    places.truncate(PLACES);
    places.extend((more > 0).then(|| format!("{more} more")));
    places
}

/// What came for nobody, with the words for a port without any socket.
pub(super) fn finding(seen: &Seen, check: &Check) -> Option<Finding> {
    let Some(port) = seen.asked.port else {
        let found = Finding::lost(seen, check, Station::Udp, seen.counters(NAMES))?;
        return Some(found.says(
            "datagrams came for a UDP port that no socket has",
            "mpps doctor --port PORT tells whether it is yours; tcpdump -ni any 'icmp[0] == 3' shows the \
             refusals, and in them the port",
        ));
    };
    let (evidence, confidence) = match seen.reason("NO_SOCKET") {
        Some(ours) => (vec![ours], Confidence::Certain),
        // The counter is of all ports, and this one has its socket.
        None if !seen.sockets.is_empty() => return None,
        None => (seen.counters(NAMES), Confidence::Possible),
    };
    let found = Finding::lost(seen, check, Station::Udp, evidence)?;
    let what = match seen.sockets.len() {
        0 => format!("datagrams came for UDP port {port}, and no socket has it"),
        _ => format!("datagrams came for UDP port {port} while no socket had it; now there is one"),
    };
    let remedy =
        format!("start the program that serves port {port}, or have senders stop: ss -ulpn");
    Some(found.says(what, remedy).with(confidence))
}
