//! Packets whose source address this host would answer by another interface.

use super::{Check, Finding, Observed};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "reverse_path",
    reads: "`TcpExt.IPReversePathFilter`",
    speaks: "the reverse path filter dropped packets",
    run,
};

pub(super) const NAMES: &[&str] = &["TcpExt.IPReversePathFilter"];

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::lost(seen, &CHECK, Station::Ip, seen.counters(NAMES)).map(|found| {
        found.says(
            "the reverse path filter dropped packets: this host would not answer their sender by the \
             interface that they came by",
            "a route back to the senders by that interface; or its loose mode: sysctl -w \
             net.ipv4.conf.IF.rp_filter=2",
        )
    });
    found.into_iter().collect()
}
