//! A socket whose buffer was full, and why nobody emptied it.

use super::{Check, Confidence, Finding, Seen, SeenSocket, quota, reuseport_uneven, shared_cpu};
use crate::Station;
use crate::facts::Busy;

pub(super) const CHECK: Check = Check {
    name: "socket_buffer",
    reads: "`sk_drops` of each UDP socket (sock_diag), run and wait times of its owner's threads (schedstat)",
    speaks: "a socket dropped datagrams. Its owner's busiest thread tells why: it ran 90 % of the time or \
             more (too slow), it waited for a CPU a quarter of the time or more, it hardly ran or is \
             stopped (nobody reads), or it slept in between (the buffer is too small for bursts)",
    made_by: "`kill -STOP` a receiver (gallery: `a_stopped_program` and four more)",
    run,
};

/// From this share on a thread has no time left.
const FULL: f64 = 0.9;
/// From this share on a thread lacks a CPU.
const WAITS: f64 = 0.25;
/// Below this share nobody reads.
const IDLE: f64 = 0.005;

fn run(seen: &Seen) -> Vec<Finding> {
    let uneven = reuseport_uneven::inodes(seen);
    let sockets = seen.sockets();
    let sockets = sockets
        .iter()
        .filter(|socket| !uneven.contains(&socket.entry.inode))
        .filter(|socket| quota::finding(seen, socket).is_none())
        .filter(|socket| shared_cpu::finding(seen, socket).is_none())
        .filter(|socket| !is_filtered(seen, socket));
    sockets.filter_map(|socket| finding(seen, socket)).collect()
}

/// True if a filter of the socket itself explains its drops, which `sk_drops` counts like the others
/// (sk_filter_trim_cap, net/core/filter.c).
fn is_filtered(seen: &Seen, socket: &SeenSocket) -> bool {
    let filtered = seen.reason("SOCKET_FILTER").map_or(0, |one| one.grown());
    filtered > 0 && filtered >= socket.drops.grown()
}

fn finding(seen: &Seen, socket: &SeenSocket) -> Option<Finding> {
    let evidence = vec![socket.drops.clone()];
    let found = Finding::lost(seen, &CHECK, Station::Socket, evidence)?;
    let name = socket.name();
    let buffer = socket.entry.buffer_bytes;
    let full = |why: &str| format!("the buffer of {name} was full ({buffer} bytes): {why}");
    let larger = format!(
        "a larger SO_RCVBUF in the program (up to {} bytes), and: sysctl -w net.core.rmem_max={}; a program \
         that asks for none gets net.core.rmem_default when it starts",
        buffer.saturating_mul(4),
        buffer.saturating_mul(4).max(4 << 20),
    );
    let pid = socket.owner.map_or(0, |owner| owner.pid);
    let is_stopped = socket.owner.is_some_and(|owner| owner.stopped);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    Some(match socket.busy {
        _ if is_stopped => found.says(
            full("the program is stopped"),
            format!("kill -CONT {pid}"),
        ),
        Some(Busy { ran, .. }) if ran >= FULL => found
            .says(
                full(&format!(
                    "its busiest thread ran {} of the time, so that the program is too slow",
                    percent(ran)
                )),
                "more sockets at the same port (SO_REUSEPORT), each with a thread on a CPU of its own; \
                 or a cheaper way to receive: mpps bench tells what each is worth here",
            )
            .with(Confidence::Likely),
        Some(Busy { ran, waited, .. }) if waited >= WAITS => found
            .says(
                full(&format!(
                    "a thread of it waited for a CPU {} of the time, and ran {}",
                    percent(waited),
                    percent(ran)
                )),
                format!(
                    "a CPU for it alone: taskset -pc CPU {pid}, and other programs and interrupts away \
                     from that CPU"
                ),
            )
            .with(Confidence::Likely),
        Some(Busy { ran, .. }) if ran < IDLE => found
            .says(
                full("its threads hardly ran, so that nobody reads it"),
                format!("see what it waits for: cat /proc/{pid}/task/*/wchan /proc/{pid}/task/*/status"),
            )
            .with(Confidence::Likely),
        Some(Busy { ran, .. }) => found
            .says(
                full(&format!(
                    "its busiest thread slept in between (it ran {} of the time), so that the buffer is \
                     too small for the bursts",
                    percent(ran)
                )),
                larger,
            )
            .with(Confidence::Likely),
        None => found
            .says(
                full("who reads it is not seen"),
                format!("as root, mpps doctor tells a slow program from a small buffer; {larger}"),
            )
            .with(Confidence::Possible),
    })
}
