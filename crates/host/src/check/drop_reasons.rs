//! Where the packets of each kernel drop reason also appear: in a counter, in a check, or nowhere.

use super::seen::{COPIES, is_outward};
use super::{Evidence, Observed, firewall};
use crate::ledger::loss::{
    ADDRESS, BAD_HEADER, CHECKSUM, CUT_SHORT, DISCARDED, NO_ROUTE, REFUSED_BY_UDP, REVERSE_PATH,
};

/// Where the packets of a drop reason also appear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// These counters have them, and the counters' checks report them.
    Counted(&'static [&'static [&'static str]]),
    /// These counters have them, and the reason explains more.
    Explains(&'static [&'static str]),
    /// A check of its own reads the reason, or the sockets that dropped them.
    Checked,
    /// No loss: a copy, or what a program left in its socket.
    Harmless,
    /// UDP counted them as delivered to a tunnel in the kernel, which dropped them.
    Delivered,
    /// They were on their way out, from any sender.
    Outward,
    /// Only the reason shows them.
    Uncounted,
}

use Fate::{Checked, Counted, Delivered, Explains, Harmless, Outward, Uncounted};

/// The kernel's name for no reason (`SKB_DROP_REASON_NOT_SPECIFIED`).
pub(super) const NOT_SPECIFIED: &str = "NOT_SPECIFIED";

/// The reasons of include/net/dropreason-core.h with their fates, except [`COPIES`] and outward
/// ones. A name that ends with `*` stands for all names with that beginning. A test compares the
/// table with the reasons of the running kernel.
const FATES: &[(&str, Fate)] = &[
    (firewall::REASON, Checked),
    ("NO_SOCKET", Checked),
    ("SOCKET_RCVBUFF", Checked),
    ("PROTO_MEM", Checked),
    ("CPU_BACKLOG", Checked),
    ("XDP", Checked),
    ("FRAG_REASM_TIMEOUT", Checked),
    ("FRAG_TOO_FAR", Checked),
    ("DUP_FRAG", Checked),
    ("UDP_CSUM", Counted(&[CHECKSUM.counters])),
    ("IP_CSUM", Counted(&[BAD_HEADER.counters])),
    ("IP_INHDR", Counted(&[BAD_HEADER.counters])),
    ("IPV6_BAD_EXTHDR", Counted(&[BAD_HEADER.counters])),
    (
        "PKT_TOO_SMALL",
        Counted(&[CUT_SHORT.counters, BAD_HEADER.counters]),
    ),
    (
        "HDR_TRUNC",
        Counted(&[CUT_SHORT.counters, BAD_HEADER.counters]),
    ),
    ("IP_INNOROUTES", Counted(&[NO_ROUTE.counters])),
    ("NOMEM", Counted(&[DISCARDED.counters])),
    ("IPV6DISABLED", Counted(&[DISCARDED.counters])),
    ("IP_INADDRERRORS", Counted(&[ADDRESS.counters])),
    ("IP_INVALID_DEST", Counted(&[ADDRESS.counters])),
    ("IP_RPFILTER", Counted(&[REVERSE_PATH.counters])),
    ("SOCKET_FILTER", Explains(REFUSED_BY_UDP.counters)),
    ("SECURITY_HOOK", Explains(REFUSED_BY_UDP.counters)),
    ("XFRM_POLICY", Explains(REFUSED_BY_UDP.counters)),
    ("VXLAN_*", Delivered),
    (NOT_SPECIFIED, Uncounted),
    ("ARP_*", Uncounted),
    ("BRIDGE_*", Uncounted),
    ("CA*", Uncounted),
    ("DEV_*", Uncounted),
    ("DUALPI2_*", Uncounted),
    ("FQ_*", Uncounted),
    ("FULL_RING", Uncounted),
    ("ICMP_CSUM", Uncounted),
    ("INVALID_PROTO", Uncounted),
    ("IPV6_NDISC_*", Uncounted),
    ("IP_INVALID_SOURCE", Uncounted),
    ("IP_LOCALNET", Uncounted),
    ("IP_LOCAL_SOURCE", Uncounted),
    ("IP_NOPROTO", Uncounted),
    ("IP_TUNNEL_ECN", Uncounted),
    ("LOCAL_MAC", Uncounted),
    ("MAC_*", Uncounted),
    ("NO_TX_TARGET", Uncounted),
    ("OTHERHOST", Uncounted),
    ("PFMEMALLOC", Uncounted),
    ("PKT_TOO_BIG", Uncounted),
    ("PSP_*", Uncounted),
    ("QDISC_*", Uncounted),
    ("RECURSION_LIMIT", Uncounted),
    ("SKB_*", Uncounted),
    ("SOCKET_BACKLOG", Uncounted),
    ("TAP_*", Uncounted),
    ("TCP_*", Uncounted),
    ("TC_*", Uncounted),
    ("TUNNEL_TXINFO", Uncounted),
    ("UN*", Uncounted),
];

/// The fate of a reason. For a reason that is not in the table, only the reason is known.
pub(super) fn fate(reason: &str) -> Fate {
    known(reason).unwrap_or(Uncounted)
}

fn known(reason: &str) -> Option<Fate> {
    if is_outward(reason) {
        return Some(Outward);
    }
    if COPIES.contains(&reason) {
        return Some(Harmless);
    }
    let is = |name: &str| match name.strip_suffix('*') {
        Some(start) => reason.starts_with(start),
        None => reason == name,
    };
    FATES
        .iter()
        .find(|(name, _)| is(name))
        .map(|&(_, fate)| fate)
}

/// How many of a reason's packets these counters do not have. A train is one for some counters and
/// several for others: the lower count decides.
pub(super) fn beyond(seen: &Observed, reason: &str, names: &[&[&str]]) -> u64 {
    let counted = names.iter().map(|names| seen.grown(names));
    let counted = counted.fold(0, u64::saturating_add);
    seen.buffers(reason).saturating_sub(counted)
}

/// How many of these counters' packets have no reason of their own, whichever port they were to.
pub(super) fn nameless(seen: &Observed, names: &'static [&'static str]) -> u64 {
    let has = |fate: Fate| match fate {
        Counted(all) => all.contains(&names),
        Explains(these) => these == names,
        _ => false,
    };
    let all = seen.drops.iter().chain(&seen.other_drops).flatten();
    let named = all.filter(|drop| has(fate(&drop.reason)));
    named.fold(seen.grown(names), |left, drop| {
        left.saturating_sub(drop.buffers)
    })
}

/// How many of these counters' packets a drop reason explains better.
pub(super) fn told_by_reason(seen: &Observed, names: &'static [&'static str]) -> u64 {
    let better = FATES.iter().filter(|(_, fate)| *fate == Explains(names));
    let told = better.filter_map(|(reason, _)| seen.reason(reason));
    Evidence::sum(&told.collect::<Vec<_>>())
}

/// The reasons that the table names in full.
#[cfg(test)]
pub(super) fn named() -> impl Iterator<Item = (&'static str, Fate)> {
    let all = FATES.iter().filter(|(name, _)| !name.ends_with('*'));
    let copies = COPIES.iter().map(|name| (*name, Harmless));
    let others = copies.chain([("NEIGH_FAILED", Outward), ("TC_EGRESS", Outward)]);
    all.copied().chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::drop_reason::DropReasons;
    use mpps_os::bpf::btf::Btf;

    #[test]
    fn each_reason_of_this_kernel_has_its_fate() {
        let Ok(btf) = Btf::kernel() else { return };
        let Ok(reasons) = DropReasons::read(&btf) else {
            return;
        };
        let no_reasons = ["MAX", "CONSUMED", "NOT_DROPPED_YET"];
        let is_missing = |name: &&str| {
            known(name).is_none() && !name.starts_with("SUBSYS_") && !no_reasons.contains(name)
        };
        let missing: Vec<&str> = reasons.names().filter(is_missing).collect();
        assert!(missing.is_empty(), "add a row for {missing:?}");
    }
}
