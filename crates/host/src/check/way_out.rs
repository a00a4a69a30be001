//! Datagrams that this host dropped on their way out.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "way_out",
    reads: "UDP drop reasons of this namespace's sockets, and outgoing ones such as `NEIGH_FAILED` \
            (tracepoint skb:kfree_skb)",
    speaks: "this host dropped UDP datagrams on their way out (with `--port`, to that port)",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let out = seen.drops_out.iter().map(|drop| {
        let source = format!("drop reason {}, on the way out", drop.reason);
        Evidence::new(source, 0, drop.datagrams)
    });
    let found = Finding::lost(seen, &CHECK, Station::Sender, out.collect()).map(|found| {
        let what = "this host dropped UDP datagrams on their way out; that is no loss of what came";
        let remedy = "by the reason: NETFILTER_DROP: nft list ruleset (chains of output and postrouting); NEIGH_*: ip \
                      neigh show nud failed, the address does not answer; QDISC_* and FQ_*: tc -s qdisc; \
                      BPF_CGROUP_EGRESS: bpftool cgroup tree; otherwise perf record -e skb:kfree_skb -g";
        found.says(what, remedy).with(Confidence::Certain)
    });
    found.into_iter().collect()
}
