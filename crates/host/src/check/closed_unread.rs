//! Datagrams that a closed socket took along.

use super::no_listener::{self, REOPENED};
use super::reading_times::during_reads;
use super::vanished::unread;
use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "closed_unread",
    reads: "drop reasons `NOT_SPECIFIED`, `QUEUE_PURGE` and `SOCKET_CLOSE` of datagrams in UDP sockets; at \
            most `Ip.InDelivers` less what UDP counted",
    speaks: "a UDP socket was closed with datagrams that no program had read",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    // The kernel no longer knows the namespace of these; what IP delivered here bounds them.
    let closed = seen.drops_closed.iter().map(|drop| {
        let source = format!("drop reason {}, in a socket", drop.reason);
        Evidence::new(source, 0, drop.datagrams)
    });
    let found = Finding::lost(seen, &CHECK, Station::Socket, closed.collect()).map(|mut found| {
        found
            .evidence
            .extend(seen.counters(&["Ip.InDelivers", "Ip6.InDelivers"]));
        found.evidence.retain(|one| one.grown() > 0);
        let count = found.count.min(unread(seen));
        let what = "a UDP socket was closed and took along datagrams that no program had read";
        if let Some(reopened) = no_listener::reopened(seen) {
            let found = found.of(count, seen).says(format!("{what}: {reopened}"), REOPENED);
            return found.with(Confidence::Likely);
        }
        let remedy = "have the program read its socket until it is empty before it ends; at a restart, open the \
                      new socket first, or keep one open (socket activation of systemd)";
        let found = found.of(count, seen).says(what, remedy);
        found.with(Confidence::Likely)
    });
    // On a busy host those that come between two readings have been neither read nor lost. Raw sockets count
    // none of what they take.
    let is_sure = unread(seen) > during_reads(seen) && seen.after.raw_protocols.is_empty();
    found
        .into_iter()
        .filter(|found| is_sure && found.count > 0)
        .collect()
}
