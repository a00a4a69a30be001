//! Datagrams with a wrong checksum.

use super::{Check, Finding, Observed};
use crate::ledger::loss::CHECKSUM;

pub(super) const CHECK: Check = Check {
    name: "checksum",
    reads: "`Udp.InCsumErrors`, `Udp6.InCsumErrors`",
    speaks: "UDP datagrams had a wrong checksum",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::counted(seen, &CHECK, &CHECKSUM).map(|found| {
        found.says(
            "datagrams came with a wrong checksum: a sender that makes packets itself, a device on the way, \
             or a card whose checksum offload is broken",
            "ethtool -K IF rx off: if the errors stay, the packets are wrong; at the sender ethtool -K IF \
             tx off",
        )
    });
    found.into_iter().collect()
}
