//! Datagrams that UDP refused, and counts only as errors.

use super::full_buffers::FullBuffers;
use super::reason_counts::told_by_reason;
use super::refusal::{RefusalCause, at_sockets, by_ipsec};
use super::{Check, Confidence, Finding, Observed, reading_times};
use crate::ledger::loss::{CHECKSUM, REFUSED_BY_UDP};

pub(super) const CHECK: Check = Check {
    name: "udp_errors",
    reads: "`Udp.InErrors` and `Udp6.InErrors`, less `RcvbufErrors`, `MemErrors`, `InCsumErrors`, and drop \
            reasons of socket filters and policies; `sk_drops`, IPsec's counters (xfrm_stat)",
    speaks: "UDP refused datagrams, and no counter shows why",
    run,
};

const SHORT: &str = "PKT_TOO_SMALL";
const LENGTH: (&str, &str) = (
    "their UDP header says that they are longer",
    "tcpdump -vni IF udp shows `bad length`; correct the sender, or the device on the way",
);
/// Causes of a refusal by a socket, as far as its drops show.
const SOCKET: (&str, &str) = (
    "sockets refused them, and their buffers were not full; a BPF filter of the socket or its cgroup, an \
     IPsec policy and a security module look alike here",
    "cat /proc/PID/cgroup shows the unit of a program, \
     and systemctl show UNIT -p IPAddressAllow -p IPAddressDeny its rules; ip xfrm policy lists policies",
);
const ANY: (&str, &str) = (
    "the cause is not known; a wrong length in the UDP header, a BPF filter of the socket or its cgroup, and \
     an IPsec policy look alike here",
    "tcpdump -vni IF udp shows `bad length`; ip xfrm \
     policy lists policies; ss -ulpne lists sockets",
);

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::counted(seen, &CHECK, &REFUSED_BY_UDP).map(|mut found| {
        let left = found
            .count
            .saturating_sub(told_by_reason(seen, &REFUSED_BY_UDP));
        let RefusalCause {
            what,
            remedy,
            evidence,
            confidence,
        } = cause(seen, left);
        found.evidence.extend(evidence);
        let what = format!("UDP refused datagrams: {what}");
        let all = found.count;
        // The rest of what a reason explains is packets that came between two readings.
        let left = match left < all && left <= reading_times::skew(seen, all) {
            true => 0,
            false => left,
        };
        found.of(left, seen).says(what, remedy).with(confidence)
    });
    found.into_iter().filter(|found| found.count > 0).collect()
}

fn cause(seen: &Observed, left: u64) -> RefusalCause {
    // With a port, the counter has all others too.
    let short = seen.buffers(SHORT).saturating_add(seen.others(SHORT));
    let is_short = short > 0 && short.saturating_add(reading_times::skew(seen, left)) >= left;
    // A checksum that is found wrong in the end counts at the socket, too.
    let at = FullBuffers::of(seen)
        .others
        .saturating_sub(seen.grown(CHECKSUM.counters));
    let (words, confidence) = match is_short {
        true => (LENGTH, Confidence::Likely),
        false if at >= left => (SOCKET, Confidence::Possible),
        false => (ANY, Confidence::Possible),
    };
    let plain = || RefusalCause {
        what: words.0.to_owned(),
        remedy: seen.reasons_hint() + words.1,
        evidence: Vec::new(),
        confidence,
    };
    if is_short {
        return plain();
    }
    let security = "a security module (ausearch -m avc)";
    let by_socket = || at_sockets(seen, left.min(at), Some(security)).filter(|_| at >= left);
    by_ipsec(seen, left)
        .or_else(by_socket)
        .unwrap_or_else(plain)
}
