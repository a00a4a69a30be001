//! Packets that connection tracking dropped.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use crate::facts::Conntrack;

pub(super) const CHECK: Check = Check {
    name: "conntrack",
    reads: "`drop` and `insert_failed` (/proc/net/stat/nf_conntrack), `nf_conntrack_count` and `_max`",
    speaks: "connection tracking dropped packets: table full, ports of a source NAT used up, or two packets of a flow at once",
    run,
};

/// The drop probe's name for it, and for what rules drop.
pub(super) const REASON: &str = "NETFILTER_DROP";

/// How much of what connection tracking dropped can have been on its way in: the drop probe calls it the
/// packet filter's, and knows the way.
pub(super) fn came(seen: &Observed) -> u64 {
    let all = dropped(seen).map_or(0, |one| one.grown());
    let filtered = seen.reason(REASON);
    filtered.map_or(all, |ours| {
        all.min(ours.grown().saturating_add(seen.others(REASON)))
    })
}

fn dropped(seen: &Observed) -> Option<Evidence> {
    grown(seen, "drop", |tracker| tracker.dropped)
}

/// The packets of all protocols that connection tracking found invalid.
pub(super) fn invalid(seen: &Observed) -> Option<Evidence> {
    grown(seen, "invalid", |tracker| tracker.invalid)
}

fn grown(seen: &Observed, name: &str, value: fn(&Conntrack) -> u64) -> Option<Evidence> {
    let (before, after) = (seen.before.conntrack?, seen.after.conntrack?);
    let source = format!("nf_conntrack {name}");
    Some(Evidence::new(source, value(&before), value(&after)))
}

fn run(seen: &Observed) -> Vec<Finding> {
    let (Some(evidence), Some(table)) = (dropped(seen), seen.after.conntrack) else {
        return Vec::new();
    };
    let before = seen
        .before
        .conntrack
        .map_or(0, |before| before.insert_failed);
    let failed = Evidence::new("nf_conntrack insert_failed", before, table.insert_failed);
    let has_room = table.entries < table.entries_max / 10 * 9;
    let found = Finding::lost(seen, &CHECK, Station::Ip, vec![evidence]).map(|mut found| {
        if has_room && failed.grown().saturating_mul(2) >= found.count {
            found.evidence.push(failed);
            return found.of(came(seen), seen).says(
                format!(
                    "connection tracking dropped packets, and its table has room ({} of {} entries): the ports of a \
                     source NAT rule are used up, or two packets began one flow at once",
                    table.entries, table.entries_max
                ),
                "iptables-save -t nat, nft list ruleset: a larger range of ports or more addresses in the rule \
                 (SNAT, MASQUERADE); or a shorter net.netfilter.nf_conntrack_udp_timeout; or, for lookups of names \
                 (A and AAAA at once), single-request in resolv.conf",
            ).with(Confidence::Likely);
        }
        found.of(came(seen), seen).says(
            format!(
                "connection tracking dropped packets; {} of at most {} entries are in its table",
                table.entries, table.entries_max
            ),
            format!(
                "spare the flow both ways, in chains of priority raw: nft add rule inet raw prerouting udp \
                 dport PORT notrack; nft add rule inet raw output udp sport PORT notrack (rules by state no \
                 longer match it; not for a flow of a NAT rule). Or a larger table: sysctl -w net.netfilter.nf_conntrack_max={}",
                table.entries_max.saturating_mul(4)
            ),
        )
    });
    found.into_iter().filter(|found| found.count > 0).collect()
}
