//! Packets that a cloud's allowance of the machine's size dropped.

use super::{Check, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "allowance",
    reads: "counters of drivers that end in `_allowance_exceeded` (ena: \
            drivers/net/ethernet/amazon/ena/ena_ethtool.c)",
    speaks: "the cloud dropped or queued packets beyond what the machine's size may have",
    made_by: "not in a lab: a cloud's network does it",
    run,
};

fn run(seen: &Seen) -> Vec<Finding> {
    let evidence = seen.driver(|name| name.ends_with("_allowance_exceeded"));
    let found = Finding::lost(seen, &CHECK, Station::Wire, evidence).map(|found| {
        found.says(
            "the cloud held back or dropped packets beyond the allowance of this machine's size: no \
             setting of the host changes that",
            "a larger machine, more machines, or fewer packets: for conntrack_allowance security groups \
             that track no connections",
        )
    });
    found.into_iter().collect()
}
