//! Frames that arrived damaged.

use super::{Check, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "frame_errors",
    reads: "`rx_crc_errors` and `rx_frame_errors` of each interface",
    speaks: "an interface received damaged frames",
    made_by: "not on a veth: a damaged cable",
    run,
};

fn run(seen: &Seen) -> Vec<Finding> {
    let mut evidence = seen.links("rx_crc_errors", |link| link.rx_crc_errors);
    evidence.extend(seen.links("rx_frame_errors", |link| link.rx_frame_errors));
    let found = Finding::lost(seen, &CHECK, Station::Wire, evidence).map(|found| {
        found.says(
            "frames arrived damaged: a cable, a transceiver or the port at the other end",
            "ethtool -m IF shows the light's power, ethtool -S IF which kind of error; change the cable \
             or the transceiver",
        )
    });
    found.into_iter().collect()
}
