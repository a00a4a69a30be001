//! Datagrams that UDP refused, and counts only as errors.

use super::reason_counts::told_by_reason;
use super::{Check, Confidence, Finding, Observed};
use crate::ledger::loss::REFUSED_BY_UDP;

pub(super) const CHECK: Check = Check {
    name: "udp_errors",
    reads: "`Udp.InErrors` and `Udp6.InErrors`, less `RcvbufErrors`, `MemErrors`, `InCsumErrors`, and drop \
            reasons of socket filters and policies",
    speaks: "UDP refused datagrams, and no counter shows why",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::counted(seen, &CHECK, &REFUSED_BY_UDP).map(|found| {
        let left = found.count.saturating_sub(told_by_reason(seen, &REFUSED_BY_UDP));
        let short = seen.reason("PKT_TOO_SMALL").map_or(0, |one| one.grown());
        let (why, confidence) = match short >= left {
            true => (
                "their UDP header says that they are longer",
                Confidence::Likely,
            ),
            false => (
                "the cause is not known; a wrong length in the UDP header, a BPF filter of the socket or its \
                 cgroup, and an IPsec policy look alike here",
                Confidence::Possible,
            ),
        };
        let remedy = "as root, mpps doctor reads the kernel's drop reasons; tcpdump -vni IF udp shows \
                      `bad length`; ip xfrm policy lists policies; ss -ulpne lists sockets";
        let what = format!("UDP refused datagrams: {why}");
        found.of(left, seen).says(what, remedy).with(confidence)
    });
    found.into_iter().filter(|found| found.count > 0).collect()
}
