//! Packets that come between the readings of counters that are compared.

use super::Observed;

/// By how much a drop reason and a counter of the same `count` packets may differ, because one is read after
/// the other.
pub(super) fn skew(seen: &Observed, count: u64) -> u64 {
    let slack = during_reads(seen).saturating_add(passed(seen, count));
    slack.saturating_mul(2).max(count / 50)
}

/// The same of packets that do not come to IP.
pub(super) fn skew_out(seen: &Observed, count: u64) -> u64 {
    passed(seen, count).saturating_mul(2).max(count / 50)
}

/// How many packets came to IP while counters were read.
pub(super) fn during_reads(seen: &Observed) -> u64 {
    passed(seen, seen.grown(&["Ip.InReceives", "Ip6.InReceives"]))
}

/// How many of these packets passed while counters and drop reasons were read.
fn passed(seen: &Observed, count: u64) -> u64 {
    let read_ns = seen.before.read_ns.saturating_add(seen.after.read_ns);
    let passed = count as f64 * (read_ns as f64 / 1e9) / seen.seconds();
    passed.ceil() as u64
}
