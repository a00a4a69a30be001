//! Datagrams with a wrong checksum.

use super::{Check, Confidence, Finding, Observed, drop_reasons, reading_times};
use crate::ledger::loss::CHECKSUM;

pub(super) const CHECK: Check = Check {
    name: "checksum",
    reads: "`Udp.InCsumErrors`, `Udp6.InCsumErrors`",
    speaks: "UDP datagrams had a wrong checksum",
    run,
};

/// Packets of IPv6 without a checksum, which the kernel counts as wrong ones (`udp6_csum_zero_error`).
const ZERO: &str = "UDP_CSUM+zero";
const WRONG: &str = "datagrams came with a wrong checksum: a sender that makes packets itself, a device on the way, \
                     or a card whose checksum offload is broken";
const CARD: &str = "ethtool -K IF rx off: if the errors stay, the packets are wrong; at the sender ethtool -K IF \
                    tx off";

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::counted(seen, &CHECK, &CHECKSUM).map(|mut found| {
        let zero = seen.buffers(ZERO).saturating_add(seen.others(ZERO));
        let is_v6 = seen.grown(&CHECKSUM.counters[1..]) > 0;
        if let Some(row) = drop_reasons::row(ZERO)
            && (zero > 0 || is_v6 && seen.drops.is_none())
        {
            let (cause, remedy) = (row.causes.join("; or "), row.remedies.join("; or "));
            if zero > 0
                && zero.saturating_add(reading_times::skew(seen, found.count)) >= found.count
            {
                found
                    .evidence
                    .extend(seen.reason(ZERO).filter(|one| one.grown() > 0));
                return found.says(format!("datagrams were refused: {cause}"), remedy);
            }
            return found
                .says(
                    format!("{WRONG}; or {cause}"),
                    format!("{CARD}; or {remedy}"),
                )
                .with(Confidence::Likely);
        }
        found.says(WRONG, CARD)
    });
    found.into_iter().collect()
}
