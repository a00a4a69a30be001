//! Frames that arrived damaged.

use super::{Check, Finding, Observed};
use crate::Station;
use crate::counters::driver_counters::Meaning;

pub(super) const CHECK: Check = Check {
    name: "frame_errors",
    reads: "driver counters (crates/host/src/counters/driver_counters.tsv), or `rx_crc_errors` and \
            `rx_frame_errors` of each interface",
    speaks: "an interface received damaged frames",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let evidence = seen.counting_interfaces().flat_map(|name| {
        let own = seen.losses_of(name, Meaning::Damaged);
        if !own.is_empty() || seen.is_virtual(name) {
            return own;
        }
        let crc = seen.link(name, "rx_crc_errors");
        let frame = seen.link(name, "rx_frame_errors");
        crc.into_iter().chain(frame).collect()
    });
    let evidence = evidence.collect();
    let found = Finding::lost(seen, &CHECK, Station::Wire, evidence).map(|found| {
        found.says(
            "frames arrived damaged: a cable, a transceiver or the port at the other end",
            "ethtool -m IF shows the light's power, ethtool -S IF which kind of error; change the cable \
             or the transceiver",
        )
    });
    found.into_iter().collect()
}
