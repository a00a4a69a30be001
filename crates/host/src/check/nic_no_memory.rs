//! Packets lost because a NIC's driver found no memory.

use super::{Check, Confidence, Finding, Observed};
use crate::Station;
use crate::counters::driver_counters::Meaning;

pub(super) const CHECK: Check = Check {
    name: "nic_no_memory",
    reads: "driver counters (crates/host/src/counters/driver_counters.tsv)",
    speaks: "a driver found no memory for packets",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let lost = seen.losses(Meaning::NoMemory);
    let found = Finding::lost(seen, &CHECK, Station::Wire, lost).map(|found| {
        found
            .says(
                "the driver of an interface found no memory for packets, and dropped them",
                "free shows what has it, dmesg whether allocations failed; a larger reserve for what may not \
                 wait: sysctl vm.min_free_kbytes shows the present one; larger rings take more memory, not less",
            )
            .with(Confidence::Likely)
    });
    found.into_iter().collect()
}
