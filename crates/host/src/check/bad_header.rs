//! Packets whose IP header is damaged.

use super::{Check, Confidence, Finding, Observed};
use crate::ledger::loss::BAD_HEADER;

pub(super) const CHECK: Check = Check {
    name: "bad_header",
    reads: "`Ip.InHdrErrors`, `Ip6.InHdrErrors`",
    speaks: "IP refused a header: damage, hop limit used up, bad IPv6 address or routing header",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::counted(seen, &CHECK, &BAD_HEADER).map(|found| {
        let is_v6 = seen.grown(&BAD_HEADER.counters[1..]) > 0;
        // Of IPv6 whole headers are among them (ip6_rcv_core, ipv6_rthdr_rcv).
        let (intact, shown, confidence) = match is_v6 {
            true => (
                "; or IPv6 did not take a routing header, or an address that may not come from outside, such as \
                 ::1 or a group as the source",
                ", such an address or a routing header",
                Confidence::Possible,
            ),
            false => ("", "", Confidence::Certain),
        };
        let what = format!(
            "packets came with a damaged IP header, or this host should have forwarded them and their hop \
             limit was used up{intact}"
        );
        let remedy = format!(
            "tcpdump -vni IF shows `bad cksum`, `bad-len`, a ttl or hlim of 1{shown}; correct the sender or the \
             route"
        );
        found.says(what, remedy).with(confidence)
    });
    found.into_iter().collect()
}
