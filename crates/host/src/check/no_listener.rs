//! Datagrams for a port without a listener.

use super::unspecified;
use super::{Check, Confidence, Finding, Observed};
use crate::Station;
use crate::ledger::loss::{NO_MEMBER, NO_SOCKET};
use mpps_os::netlink::sock_diag::UdpEntry;

pub(super) const CHECK: Check = Check {
    name: "no_listener",
    reads: "`Udp.NoPorts`, `Udp6.NoPorts`, `Udp.IgnoredMulti`, `Udp6.IgnoredMulti`; with `--port` the drop \
            reason `NO_SOCKET`, if it can be read",
    speaks: "no socket took datagrams, with `--port` those to it; broadcast and multicast may be remarks",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let own = match elsewhere(seen).is_empty() {
        true => finding(seen, &CHECK),
        false => None,
    };
    own.into_iter().chain(ignored(seen)).collect()
}

/// Datagrams to all hosts or a group, which the kernel ignores without a socket: nothing is wrong,
/// unless they came to the port in question.
fn ignored(seen: &Observed) -> Option<Finding> {
    let mut found = Finding::counted(seen, &CHECK, &NO_MEMBER)?;
    let ours = seen
        .reason(unspecified::REASON)
        .map_or(0, |one| one.grown());
    let ours = seen.asked.port.map(|port| (port, ours.min(found.count)));
    let whose = match ours.filter(|&(_, ours)| ours > 0) {
        Some((port, ours)) => {
            found = found.of(ours, seen);
            format!(" for UDP port {port}")
        }
        None => {
            found.is_remark = true;
            String::new()
        }
    };
    let what = format!(
        "datagrams came to all hosts or to a group{whose}, and no socket takes them{}",
        some(seen)
    );
    let remedy = "none, if no program here wants them; otherwise bind it to 0.0.0.0, or join the group: tcpdump \
                  -ni any 'udp and multicast' shows them";
    Some(found.says(what, remedy).with(Confidence::Likely))
}

/// The sockets in question that take only some of what comes to their port, as a half sentence.
fn some(seen: &Observed) -> String {
    let entries = seen.sockets.iter().map(|socket| socket.entry);
    let takes_all = |entry: &&UdpEntry| {
        entry.local.ip().is_unspecified() && entry.remote.is_none() && entry.interface == 0
    };
    match places(entries.filter(|entry| !takes_all(entry))).join(", ") {
        none if none.is_empty() => String::new(),
        some => format!("; these sockets take only some: {some}"),
    }
}

/// How many sockets are listed.
const PLACES: usize = 4;

/// The sockets with the port in question, if none of them takes all datagrams of an address family.
/// Only a family with datagrams that found no socket counts. Empty without a port.
pub(super) fn elsewhere(seen: &Observed) -> Vec<String> {
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
    places(seen.sockets.iter().map(|socket| socket.entry))
}

fn places<'e>(entries: impl Iterator<Item = &'e UdpEntry>) -> Vec<String> {
    let mut places: Vec<String> = entries
        .map(|entry| match entry.remote {
            Some(remote) => format!("{} (only from {remote})", entry.local),
            None if entry.interface > 0 => format!("{} (only at one interface)", entry.local),
            None => entry.local.to_string(),
        })
        .collect();
    places.dedup();
    let more = places.len().saturating_sub(PLACES);
    places.truncate(PLACES);
    places.extend((more > 0).then(|| format!("{more} more")));
    places
}

/// The finding about datagrams that found no socket.
pub(super) fn finding(seen: &Observed, check: &Check) -> Option<Finding> {
    let Some(port) = seen.asked.port else {
        let found = Finding::counted(seen, check, &NO_SOCKET)?;
        return Some(found.says(
            format!("datagrams came to UDP, and no socket took them{}", some(seen)),
            "mpps doctor --port PORT shows whether it is yours; tcpdump -ni any 'icmp[0] == 3' shows the \
             refusals, and in them the port",
        ));
    };
    let (evidence, confidence) = match seen.reason("NO_SOCKET") {
        Some(ours) => (vec![ours], Confidence::Certain),
        // The counter is of all ports, and this one has its socket.
        None if !seen.sockets.is_empty() => return None,
        None => (seen.counters(NO_SOCKET.counters), Confidence::Possible),
    };
    let found = Finding::lost(seen, check, Station::Udp, evidence)?;
    let what = match seen.sockets.len() {
        0 => match &seen.asked.elsewhere {
            Some(elsewhere) => {
                format!(
                    "datagrams came for UDP port {port}, and no socket has it here; {elsewhere}"
                )
            }
            None => format!("datagrams came for UDP port {port}, and no socket has it"),
        },
        _ => format!(
            "datagrams came for UDP port {port}, and no socket took them, though one has it now"
        ),
    };
    let remedy =
        format!("start the program that serves port {port}, or have senders stop: ss -ulpn");
    Some(found.says(what, remedy).with(confidence))
}
