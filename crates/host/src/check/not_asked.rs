//! Losses of other ports and other programs, where one was asked for.

use super::{Check, Confidence, Evidence, Finding, Observed, ledger, virtual_device};
use crate::Station;
use mpps_os::netlink::sock_diag::UdpEntry;

pub(super) const CHECK: Check = Check {
    name: "not_asked",
    reads: "with `--port` or `--pid`: the losses of the ledger that no other check reports; the sockets and owners of \
            the same port (sock_diag)",
    speaks: "with `--port` or `--pid`: losses of other ports or programs. A remark, unless UDP delivered nothing, or \
             the socket that lost them shares the process's port",
    // It has to know what all others found.
    run: |_| Vec::new(),
};

/// The finding beside those of all other checks.
pub(super) fn beside(seen: &Observed, others: &[Finding]) -> Vec<Finding> {
    let asked = match (seen.asked.port, seen.asked.pid) {
        (Some(port), _) => format!("port {port}"),
        (None, Some(pid)) => format!("process {pid}"),
        (None, None) => return Vec::new(),
    };
    let ledger = ledger(seen);
    let others = others.iter().filter(|one| one.station != Station::Sender);
    let known = others.fold(0, |sum: u64, one| sum.saturating_add(one.count));
    let rest = ledger.lost().saturating_sub(known);
    // Where other findings have most of the loss, the port or process in question has it.
    let Some(row) = ledger.losses.iter().max_by_key(|row| row.count) else {
        return Vec::new();
    };
    if rest <= known.saturating_mul(9) {
        return Vec::new();
    }
    let rest = rest.min(row.count);
    let evidence = vec![Evidence::new(row.source.clone(), 0, rest)];
    let Some(found) = Finding::lost(seen, &CHECK, row.station, evidence) else {
        return Vec::new();
    };
    let sharer = sharer(seen).filter(|_| row.station == Station::Socket);
    if let Some(sharer) = sharer {
        let what = format!(
            "{sharer}, which another process has, lost datagrams ({}): sockets of one address share its flows \
             (SO_REUSEPORT), and {asked} gets none of these",
            row.reason
        );
        let remedy = "ss -ulpn shows who has it: end that process, or close the socket in it if it was inherited \
                      (SOCK_CLOEXEC); mpps doctor --port PORT shows why it does not read";
        return vec![found.says(what, remedy).with(Confidence::Likely)];
    }
    let mut found = found;
    found.is_remark = ledger.delivered > 0;
    let (tunnel, shows) = virtual_device::tunnels(seen, row.station);
    let what = format!(
        "datagrams were lost ({}), and none of them is known to be for {asked}{tunnel}",
        row.reason
    );
    let remedy = format!("mpps doctor without --port and --pid shows the loss{shows}");
    let confidence = match seen.drops.is_some() {
        true => Confidence::Likely,
        false => Confidence::Possible,
    };
    vec![found.says(what, remedy).with(confidence)]
}

/// A socket that lost datagrams and has the address of a socket of the process in question.
fn sharer(seen: &Observed) -> Option<String> {
    let pid = seen.asked.pid?;
    let is_shared = |one: &&UdpEntry| {
        let mut own = seen.sockets.iter().map(|socket| socket.entry);
        own.any(|own| own.local == one.local && own.inode != one.inode)
    };
    let is_own = |one: &UdpEntry| seen.sockets.iter().any(|own| own.entry.inode == one.inode);
    let before = |one: &UdpEntry| {
        let mut before = seen.before.sockets.iter();
        before
            .find(|then| then.inode == one.inode)
            .map_or(0, |then| then.drops)
    };
    let mut all = seen.after.sockets.iter().filter(is_shared);
    let other = all.find(|one| !is_own(one) && one.drops != before(one))?;
    let owners = seen.after.owners.get(&other.inode).into_iter().flatten();
    let mut owners = owners.filter(|owner| **owner != pid);
    let name = owners
        .next()
        .map_or_else(String::new, |owner| format!(" of process {owner}"));
    Some(format!("the socket {}{name}", other.local))
}
