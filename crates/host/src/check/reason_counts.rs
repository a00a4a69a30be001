//! Packets that both counters and drop reasons count.

use super::Observed;
use super::drop_reasons::{Fate, fate};
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

/// How many of this loss's packets a drop reason explains better.
pub(super) fn told_by_reason(seen: &Observed, kind: &LossKind) -> u64 {
    let drops = seen.drops.iter().flatten();
    let is_better = |reason: &str| matches!(fate(reason), Fate::Explains(this) if *this == kind);
    let better = drops.filter(|drop| is_better(&drop.reason));
    better.fold(0, |sum, drop| sum.saturating_add(drop.datagrams))
}
