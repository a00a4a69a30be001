//! Packets that IP received, and that no counter and no drop reason has.

use super::{Check, Confidence, Finding, Observed, is_little, ledger, reading_times, vanished};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "unaccounted",
    reads: "UNACCOUNTED of the ledger, up to `Ip.InReceives` less `Ip.InDelivers` and all errors, also for \
            IPv6",
    speaks: "IP neither delivered nor counted packets: over 0.1 % of them and one a second",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let count = ledger::adrift(seen);
    if count <= reading_times::during_reads(seen)
        || is_little(seen, count)
        || seen.counter("Ip.InDelivers").is_none()
    {
        return Vec::new();
    }
    let evidence = seen.counters(&vanished::SHOWN);
    let evidence = evidence.into_iter().filter(|one| one.grown() > 0).collect();
    let what = format!(
        "{count} packets are unaccounted for: IP received them, and neither delivered them nor counted them as \
         lost; the cause is not known"
    );
    let remedy = match seen.drops.is_some() {
        true => {
            "nft list ruleset; ip route; ip maddress show; perf record -e skb:kfree_skb -g shows who drops"
                .to_owned()
        }
        false => {
            seen.reasons_hint()
                + "a packet filter, a route or a group that no socket joined may have dropped them"
        }
    };
    let found = Finding::noticed(seen, &CHECK, Station::Ip, evidence);
    vec![found.says(what, remedy).with(Confidence::Possible)]
}
