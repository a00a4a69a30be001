//! Datagrams that a rule of the packet filter dropped.

use super::{Check, Finding, Observed, conntrack};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "firewall",
    reads: "the drop reason `NETFILTER_DROP` of UDP (tracepoint skb:kfree_skb); no counter has it",
    speaks: "nftables or iptables dropped UDP datagrams; with `--port`, those to it",
    run,
};

pub(super) const REASON: &str = conntrack::REASON;

fn run(seen: &Observed) -> Vec<Finding> {
    let Some(dropped) = seen.reason(REASON) else {
        return Vec::new();
    };
    let left = dropped.grown().saturating_sub(conntrack::came(seen));
    if left == 0 {
        return Vec::new();
    }
    let found = Finding::lost(seen, &CHECK, Station::Ip, vec![dropped]).map(|found| {
        found.of(left, seen).says(
            "a rule of the packet filter dropped UDP datagrams",
            "if that is meant, nothing is wrong. nft -a list ruleset, or iptables-save -c: a rule with a \
             counter tells by it which one it is",
        )
    });
    found.into_iter().collect()
}
