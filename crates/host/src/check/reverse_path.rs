//! Packets whose source address this host would answer by another interface.

use super::{Check, Finding, Observed};
use crate::ledger::loss::REVERSE_PATH;

pub(super) const CHECK: Check = Check {
    name: "reverse_path",
    reads: "`TcpExt.IPReversePathFilter`",
    speaks: "the reverse path filter dropped packets",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::counted(seen, &CHECK, &REVERSE_PATH).map(|found| {
        found.says(
            "the reverse path filter dropped packets: this host would not answer their sender by the \
             interface that they came by",
            "a route back to the senders by that interface; or its loose mode: sysctl -w \
             net.ipv4.conf.IF.rp_filter=2",
        )
    });
    found.into_iter().collect()
}
