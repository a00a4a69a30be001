//! Copies that a capturing program lost.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use crate::facts::{CaptureSocket, Process};
use std::collections::BTreeSet;

pub(super) const CHECK: Check = Check {
    name: "packet_socket",
    reads: "drop reason `PACKET_SOCK_ERROR`, and the sockets of `/proc/net/packet` with their owners",
    speaks: "an AF_PACKET socket was full, as that of a capture; a remark, unless `--pid` has it",
    run,
};

const REASON: &str = "PACKET_SOCK_ERROR";
/// Of programs with such sockets, this many are named.
const NAMED: usize = 3;

fn run(seen: &Observed) -> Vec<Finding> {
    let lost = seen.reason(REASON).map_or(0, |one| one.grown());
    let lost = lost.saturating_add(seen.others(REASON));
    if lost == 0 {
        return Vec::new();
    }
    let evidence = Evidence::new(format!("drop reason {REASON}"), 0, lost);
    let mut found = Finding::noticed(seen, &CHECK, Station::Socket, vec![evidence]);
    let owners = owners(seen);
    let has = |pid| owners.iter().any(|owner| owner.pid == pid);
    found.is_remark = !seen.asked.pid.is_some_and(has);
    let named: Vec<String> = owners
        .iter()
        .take(NAMED)
        .map(|owner| format!("{} (pid {})", owner.name, owner.pid))
        .collect();
    let (of, confidence) = match named.len() {
        0 => (String::new(), Confidence::Likely),
        1 => (format!(" of {}", named[0]), Confidence::Likely),
        _ => (
            format!(" of one of {}", named.join(", ")),
            Confidence::Possible,
        ),
    };
    let what = format!(
        "{lost} copies of packets were lost, because an AF_PACKET socket{of} was full: what captures is too slow; \
         UDP sockets lost nothing by that"
    );
    let remedy = format!(
        "a larger SO_RCVBUF in that program, and before that {}; or, if it has a ring, a larger one: tcpdump -B 65536 \
         (KiB), PACKET_RX_RING of other programs; or a narrower filter, or more CPU time for that program: ss -0 -pm \
         shows its drops (d) and its queue (r)",
        seen.raise("net.core.rmem_max", BUFFER)
    );
    vec![found.says(what, remedy).with(confidence)]
}

/// A buffer for bursts, in bytes.
const BUFFER: u64 = 64 << 20;

/// The processes with such sockets: those of sockets with a queue, if any has one.
fn owners<'a>(seen: &Observed<'a>) -> Vec<&'a Process> {
    let all = &seen.after.packet_sockets;
    let earlier = &seen.before.packet_sockets;
    let was_queued = |one: &CaptureSocket| {
        let before = earlier.iter().find(|before| before.inode == one.inode);
        one.queued_bytes > 0 || before.is_some_and(|before| before.queued_bytes > 0)
    };
    let is_any = all.iter().any(was_queued);
    let full = all.iter().filter(|one| !is_any || was_queued(one));
    let pids = full.filter_map(|one| seen.after.owners.get(&one.inode));
    let pids: BTreeSet<u32> = pids.flatten().copied().collect();
    let processes = pids.iter().filter_map(|pid| seen.after.processes.get(pid));
    processes.collect()
}
