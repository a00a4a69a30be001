//! Packets that a cloud's allowance of the machine's size dropped.

use super::{Check, Finding, Observed};
use crate::Station;
use crate::counters::driver_counters::Meaning;

pub(super) const CHECK: Check = Check {
    name: "allowance",
    reads: "driver counters such as ena's `pps_allowance_exceeded` (crates/host/src/counters/driver_counters.tsv); \
            the kernel's `rx-hw-drop-ratelimits` of each receive queue",
    speaks: "the cloud or hypervisor dropped or queued packets beyond what the machine may have",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let evidence = seen.losses(Meaning::Allowance);
    let found = Finding::lost(seen, &CHECK, Station::Wire, evidence).map(|found| {
        found.says(
            "the cloud or the hypervisor held back or dropped packets beyond what this machine may have: no \
             setting of the host changes that",
            "a larger machine, more machines, or fewer packets: for conntrack_allowance security groups \
             that track no connections",
        )
    });
    found.into_iter().collect()
}
