//! Datagrams dropped because all UDP sockets together have too much memory.

use super::{Check, Confidence, Finding, Observed};
use crate::ledger::loss::NO_MEMORY;

pub(super) const CHECK: Check = Check {
    name: "udp_memory",
    reads: "`Udp.MemErrors`, `Udp6.MemErrors`",
    speaks: "all UDP sockets together reached `net.ipv4.udp_mem`, or a container its memory limit",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::counted(seen, &CHECK, &NO_MEMORY).map(|found| {
        found
            .says(
                "there was no memory for datagrams: the buffers of all UDP sockets together reached \
                 net.ipv4.udp_mem (in pages), or those of a container its memory limit",
                "find who does not read: ss -uamn; or a higher limit: sysctl -w \
                 net.ipv4.udp_mem='LOW PRESSURE HIGH'",
            )
            .with(Confidence::Likely)
    });
    found.into_iter().collect()
}
