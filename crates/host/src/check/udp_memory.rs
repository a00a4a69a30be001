//! Datagrams dropped because all UDP sockets together have too much memory.

use super::{Check, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "udp_memory",
    reads: "`Udp.MemErrors`, `Udp6.MemErrors`",
    speaks: "all UDP sockets together reached `net.ipv4.udp_mem`",
    made_by: "`sysctl -w net.ipv4.udp_mem='1 1 1'`, which is of the whole machine",
    run,
};

pub(super) const NAMES: &[&str] = &["Udp.MemErrors", "Udp6.MemErrors"];

fn run(seen: &Seen) -> Vec<Finding> {
    let found = Finding::lost(seen, &CHECK, Station::Udp, seen.counters(NAMES)).map(|found| {
        found.says(
            "the buffers of all UDP sockets together reached the limit of net.ipv4.udp_mem (in pages)",
            "find who does not read: ss -uamn; or a higher limit: sysctl -w net.ipv4.udp_mem='LOW PRESSURE HIGH'",
        )
    });
    found.into_iter().collect()
}
