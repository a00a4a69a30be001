//! Datagrams dropped because UDP sockets together, or those of a cgroup, have too much memory.

use super::full_buffers::FullBuffers;
use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::ledger::loss::NO_MEMORY;

pub(super) const CHECK: Check = Check {
    name: "udp_memory",
    reads: "`Udp.MemErrors`, `Udp6.MemErrors`, and drops of UDP sockets that no counter has (Linux 6.18)",
    speaks: "all UDP sockets together reached `net.ipv4.udp_mem`, or a container its memory limit",
    run,
};

/// The drops of sockets that no counter of UDP has: since Linux 6.18 those that found no memory
/// (`__udp_enqueue_schedule_skb`, net/ipv4/udp.c).
pub(super) fn uncounted(seen: &Observed) -> Option<Evidence> {
    let count = FullBuffers::of(seen).uncounted;
    let source = "drops of UDP sockets that no counter has";
    (count > 0).then(|| Evidence::new(source, 0, count))
}

fn run(seen: &Observed) -> Vec<Finding> {
    let mut evidence = seen.counters(NO_MEMORY.counters);
    let uncounted = uncounted(seen);
    let named = seen.buffers("PROTO_MEM");
    let is_named = uncounted
        .as_ref()
        .is_none_or(|uncounted| named >= uncounted.grown());
    evidence.extend(uncounted);
    let found = Finding::lost(seen, &CHECK, NO_MEMORY.station, evidence).map(|mut found| {
        if named > 0 {
            found.evidence.extend(seen.reason("PROTO_MEM"));
        }
        found
            .says(
                "there was no memory for datagrams: the buffers of all UDP sockets together reached \
                 net.ipv4.udp_mem (in pages), or those of a container or cgroup its memory limit",
                "find who does not read: ss -uamn; or a higher limit: sysctl -w \
                 net.ipv4.udp_mem='LOW PRESSURE HIGH', or memory.max of the cgroup (cat /proc/PID/cgroup)",
            )
            .with(if is_named { Confidence::Likely } else { Confidence::Possible })
    });
    found.into_iter().collect()
}
