//! Datagrams that a rule of the packet filter dropped.

use super::{Check, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "firewall",
    reads: "the drop reason `NETFILTER_DROP` of UDP (tracepoint skb:kfree_skb); no counter has it",
    speaks: "nftables or iptables dropped UDP datagrams; with `--port`, those to it",
    made_by: "`nft add rule inet t c udp dport 53 drop` (gallery: `a_rule_before_tracking`)",
    run,
};

pub(super) const REASON: &str = "NETFILTER_DROP";

fn run(seen: &Seen) -> Vec<Finding> {
    let evidence = seen.reason(REASON).into_iter().collect();
    let found = Finding::lost(seen, &CHECK, Station::Ip, evidence).map(|found| {
        found.says(
            "a rule of the packet filter dropped UDP datagrams",
            "nft -a list ruleset, or iptables-save -c: a rule with a counter tells by it which one; allow \
             the port before it",
        )
    });
    found.into_iter().collect()
}
