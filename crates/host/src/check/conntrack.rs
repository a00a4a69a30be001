//! A full table of connections.

use super::{Check, Evidence, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "conntrack",
    reads: "`drop` and `insert_failed` (/proc/net/stat/nf_conntrack), `nf_conntrack_count` and `_max`",
    speaks: "connection tracking dropped packets because its table had no room or two packets of one flow \
             entered it at once",
    made_by: "`sysctl -w net.netfilter.nf_conntrack_max=10`, a rule that tracks, and many flows",
    run,
};

fn run(seen: &Seen) -> Vec<Finding> {
    let (Some(before), Some(after)) = (seen.before.conntrack, seen.after.conntrack) else {
        return Vec::new();
    };
    let name = "nf_conntrack drop + insert_failed";
    let evidence = vec![Evidence::new(name, before.dropped, after.dropped)];
    let found = Finding::lost(seen, &CHECK, Station::Ip, evidence).map(|found| {
        found.says(
            format!(
                "connection tracking dropped packets; {} of at most {} entries are in its table",
                after.entries, after.entries_max
            ),
            format!(
                "spare the flow: nft add rule inet raw prerouting udp dport PORT notrack (in a chain of \
                 priority raw); or a larger table: sysctl -w net.netfilter.nf_conntrack_max={}",
                after.entries_max.saturating_mul(4)
            ),
        )
    });
    found.into_iter().collect()
}
