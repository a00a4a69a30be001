//! Packets whose source address this host would answer by another interface.

use super::{Check, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "reverse_path",
    reads: "`TcpExt.IPReversePathFilter`",
    speaks: "the reverse path filter dropped packets",
    made_by: "`rp_filter=1` and a sender to which no route leads back (gallery: `an_asymmetric_route`)",
    run,
};

pub(super) const NAMES: &[&str] = &["TcpExt.IPReversePathFilter"];

fn run(seen: &Seen) -> Vec<Finding> {
    let found = Finding::lost(seen, &CHECK, Station::Ip, seen.counters(NAMES)).map(|found| {
        found.says(
            "packets came by an interface by which this host would not answer their sender, and the \
             reverse path filter dropped them",
            "a route back to the senders by that interface; or its loose mode: sysctl -w \
             net.ipv4.conf.IF.rp_filter=2",
        )
    });
    found.into_iter().collect()
}
