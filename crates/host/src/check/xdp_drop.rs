//! Packets that an XDP program dropped.

use super::{Check, Evidence, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "xdp_drop",
    reads: "counters of drivers for packets that XDP dropped (`xdp_drop`, `xdp_drops`), added up over queues; \
            the drop reason `XDP` of a program in generic mode",
    speaks: "an XDP program dropped packets",
    made_by: "an XDP program that drops (gallery: `an_xdp_program`)",
    run,
};

/// What drivers counted, by queue.
pub(super) fn losses(seen: &Seen) -> Vec<Evidence> {
    // veth: rx_queue_0_xdp_drops; virtio_net and others: rx0_xdp_drops; mlx5: rx_xdp_drop, and by
    // queue rx0_xdp_drop, which would count twice; ena: queue_0_rx_xdp_drop.
    seen.driver(|name| {
        let is_drop = name.ends_with("xdp_drops") || name.ends_with("xdp_drop");
        let is_received = name.starts_with("rx") || name.starts_with("queue_");
        is_drop && is_received && name.contains(char::is_numeric)
    })
}

fn run(seen: &Seen) -> Vec<Finding> {
    let mut evidence = losses(seen);
    evidence.extend(seen.reason("XDP"));
    let found = Finding::lost(seen, &CHECK, Station::Wire, evidence).map(|found| {
        found.says(
            "an XDP program dropped packets before the network stack saw them",
            "bpftool net list, or ip link show, tells which program: if it is not meant to, detach it: \
             ip link set dev IF xdp off",
        )
    });
    found.into_iter().collect()
}
