//! Packets for an address that this host does not have.

use super::{Check, Finding, Observed};
use crate::ledger::loss::ADDRESS;

pub(super) const CHECK: Check = Check {
    name: "address",
    reads: "`Ip.InAddrErrors`, `Ip6.InAddrErrors`",
    speaks: "packets came for addresses that this host does not have, and it does not forward",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::counted(seen, &CHECK, &ADDRESS).map(|found| {
        found.says(
            "packets came for an IP address that this host does not have",
            "ip address show: add the address that the senders use, or correct the route or the table of \
             neighbours that leads here",
        )
    });
    found.into_iter().collect()
}
