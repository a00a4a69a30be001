//! Packets that an XDP program dropped.

use super::{Check, Finding, Seen};
use crate::Station;
use crate::driver_counters::Meaning;

pub(super) const CHECK: Check = Check {
    name: "xdp_drop",
    reads: "the counters of drivers for packets that XDP dropped (crates/host/src/driver_counters.tsv), added \
            up over queues; the drop reason `XDP` of a program in generic mode",
    speaks: "an XDP program dropped packets",
    made_by: "an XDP program that drops (gallery: `an_xdp_program`)",
    run,
};

fn run(seen: &Seen) -> Vec<Finding> {
    let mut evidence = seen.losses(Meaning::Xdp);
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
