//! Packets that both counters and drop reasons count.

use super::drop_reasons::{Fate, fate};
use super::reading_times::skew;
use super::{Evidence, Observed};
use crate::ledger::loss::LossKind;

/// How many of a reason's packets the counters of these losses do not have. A train is one for some
/// counters and several for others: the lower count decides.
pub(super) fn beyond(seen: &Observed, reason: &str, kinds: &[&LossKind]) -> u64 {
    let counted = kinds.iter().map(|kind| seen.grown(kind.counters));
    let counted = counted.fold(0, u64::saturating_add);
    seen.buffers(reason).saturating_sub(counted)
}

/// How many of this loss's packets have no reason of their own, whichever port they were to.
pub(super) fn nameless(seen: &Observed, kind: &LossKind) -> u64 {
    let has = |fate: &Fate| match fate {
        Fate::Counted(all) => all.contains(&kind),
        Fate::Explains(this) => *this == kind,
        _ => false,
    };
    let all = seen.drops.iter().chain(&seen.other_drops).flatten();
    let named = all.filter(|drop| has(fate(&drop.reason)));
    named.fold(seen.grown(kind.counters), |left, drop| {
        left.saturating_sub(drop.buffers)
    })
}

/// How many of this loss's packets are known to be of another protocol or port. Its counters have them too.
pub(super) fn of_others(seen: &Observed, kind: &LossKind) -> Evidence {
    let is_its = |reason: &str| matches!(fate(reason), Fate::Counted(all) if **all == [kind]);
    let [ours, others] = [&seen.drops, &seen.other_drops].map(|drops| {
        let drops = drops.iter().flatten();
        let drops = drops.filter(|drop| is_its(&drop.reason));
        drops.fold(0, |sum: u64, drop| sum.saturating_add(drop.buffers))
    });
    let all = seen.grown(kind.counters);
    let unnamed = all.saturating_sub(ours).saturating_sub(others);
    let count = match others {
        0 => 0,
        // The counter was read earlier or later.
        _ if unnamed <= skew(seen, all) => all.saturating_sub(ours),
        _ => others,
    };
    let source = format!("drop reasons of other packets: {}", kind.words);
    Evidence::new(source, 0, count)
}

/// How many of this loss's packets a drop reason explains better.
pub(super) fn told_by_reason(seen: &Observed, kind: &LossKind) -> u64 {
    let drops = seen.drops.iter().flatten();
    let is_better = |reason: &str| matches!(fate(reason), Fate::Explains(this) if *this == kind);
    let better = drops.filter(|drop| is_better(&drop.reason));
    better.fold(0, |sum, drop| sum.saturating_add(drop.datagrams))
}
