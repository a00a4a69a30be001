//! Datagrams of which a fragment is missing.

use super::{Check, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "fragments",
    reads: "`Ip.ReasmFails`, `Ip6.ReasmFails`",
    speaks: "fragments could not be put together: one was lost, or there was no memory for them",
    made_by: "`sysctl -w net.ipv4.ipfrag_high_thresh=1` and datagrams above the MTU (gallery: `fragments_without_memory`)",
    run,
};

pub(super) const NAMES: &[&str] = &["Ip.ReasmFails", "Ip6.ReasmFails"];

fn run(seen: &Seen) -> Vec<Finding> {
    let found = Finding::lost(seen, &CHECK, Station::Ip, seen.counters(NAMES)).map(|found| {
        let remedy = format!(
            "datagrams that fit into one packet (for DNS: max-udp-size 1232); or more memory: {}; for IPv6 \
             net.ipv6.ip6frag_high_thresh",
            seen.raise("net.ipv4.ipfrag_high_thresh", 16 << 20)
        );
        found.says(
            "fragments of datagrams came and the rest did not, or they found no memory",
            remedy,
        )
    });
    found.into_iter().collect()
}
