//! Packets whose IP header is damaged.

use super::{Check, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "bad_header",
    reads: "`Ip.InHdrErrors`, `Ip6.InHdrErrors`",
    speaks: "packets had a damaged IP header, or ended a hop too early",
    made_by: "a sender that writes its packets itself",
    run,
};

pub(super) const NAMES: &[&str] = &["Ip.InHdrErrors", "Ip6.InHdrErrors"];

fn run(seen: &Seen) -> Vec<Finding> {
    let found = Finding::lost(seen, &CHECK, Station::Ip, seen.counters(NAMES)).map(|found| {
        found.says(
            "packets came with a damaged IP header, or this host should have forwarded them and their hop \
             limit was used up",
            "tcpdump -vni IF shows `bad cksum`, `bad-len` or a ttl of 1; correct the sender or the route",
        )
    });
    found.into_iter().collect()
}
