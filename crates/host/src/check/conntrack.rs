//! Packets that connection tracking dropped.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use crate::facts::Conntrack;
use crate::setting::{Setting, Value};

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

/// Whether this host forwards IPv4 packets, if the kernel says so (`net/ipv4/proc.c`: 1 for yes, 2 for no).
pub(super) fn forwards(seen: &Observed) -> Option<bool> {
    seen.counter("Ip.Forwarding").map(|state| state.after == 1)
}

/// Another cause of datagrams for no socket on a host that tracks and forwards, as a half sentence, and its remedy.
pub(super) fn forgotten(seen: &Observed) -> Option<(String, String)> {
    seen.after
        .conntrack
        .filter(|_| forwards(seen) == Some(true))?;
    let [new, answered] = TIMEOUTS.map(|name| seen.after.settings.get(name));
    let what = format!(
        "if this host translates addresses (NAT), they may be for a client whose flow it has forgotten, {} s after \
         its last packet ({} s if both sides sent)",
        new?, answered?
    );
    let [new, answered] = TIMEOUTS;
    let remedy = format!(
        "; of such a client: a keepalive within that time, or sysctl -w {new}=120 {answered}=300"
    );
    Some((what, remedy))
}

/// How late an answer is no part of a flow, as half a sentence, and the remedy.
pub(super) fn too_late(seen: &Observed) -> (String, String) {
    let [name, _] = TIMEOUTS;
    let seconds = seen.after.settings.get(name);
    seconds.map_or_else(Default::default, |seconds| {
        (
            format!(", or after {seconds} s ({name}),"),
            format!("; for late ones: sysctl -w {name}=120"),
        )
    })
}

/// How long a UDP flow is tracked after its last packet, in seconds, before and after an answer.
const TIMEOUTS: [&str; 2] = [
    "net.netfilter.nf_conntrack_udp_timeout",
    "net.netfilter.nf_conntrack_udp_timeout_stream",
];

/// How the flows of the port in question are not tracked.
fn spared(seen: &Observed) -> String {
    let protocol = "udp".to_owned();
    let of_port = seen
        .asked
        .port
        .map(|port| Setting::Untracked { protocol, port });
    match of_port {
        Some(port) => port.command("", &Value::Word("on".to_owned())),
        None => "track no flow of a busy port: mpps doctor --port PORT gives the rules".to_owned(),
    }
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
                "{} (rules by state no longer match its flows; not for those of a NAT rule); or a larger table: \
                 sysctl -w net.netfilter.nf_conntrack_max={}, which only the machine's first network namespace can set",
                spared(seen),
                table.entries_max.saturating_mul(4)
            ),
        )
    });
    found.into_iter().filter(|found| found.count > 0).collect()
}
