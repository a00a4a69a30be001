//! Frames of protocols that nothing here takes, such as LLDP and STP of a switch: no loss of UDP.

use super::{Evidence, Observed, loses_early};
use std::collections::BTreeMap;

const REASON: &str = "UNHANDLED_PROTO";

/// Packets that each interface dropped on the way in (`rx_dropped`), if there are any. Bonds are left out: they count
/// the drops of their ports again.
fn dropped<'a>(seen: &'a Observed) -> BTreeMap<&'a str, u64> {
    let all = seen.counting_interfaces().filter_map(|name| {
        let lost = seen.link(name, "rx_dropped")?;
        (lost.grown() > 0).then_some((name, lost.grown()))
    });
    all.collect()
}

/// The frames that no protocol took, without those of an inactive port of a bond (`rx_nohandler`):
/// `__netif_receive_skb_core` in net/core/dev.c. None if drop reasons are not seen.
fn unhandled(seen: &Observed) -> Option<u64> {
    let all = seen.reason(REASON)?.grown();
    let all = all.saturating_add(seen.others(REASON));
    let links = seen.counting_interfaces();
    let inactive = links.filter_map(|name| seen.link(name, "rx_nohandler"));
    let inactive: Vec<Evidence> = inactive.collect();
    Some(all.saturating_sub(Evidence::sum(&inactive)))
}

/// True if each packet that any interface dropped was a frame that no protocol took. The kernel does not
/// count the reason by interface.
pub(super) fn explains_all(seen: &Observed) -> bool {
    let dropped = dropped(seen).into_values().fold(0, u64::saturating_add);
    dropped > 0 && unhandled(seen).is_some_and(|unhandled| unhandled >= dropped)
}

/// Names the drops of interfaces that are such frames.
pub(super) fn note(seen: &Observed) -> Option<String> {
    let dropped = dropped(seen);
    let at: Vec<String> = dropped
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let at = at.join(", ");
    let frames = "frames that no protocol here takes, as LLDP and STP of a switch are";
    match unhandled(seen) {
        _ if dropped.is_empty() => None,
        Some(0) => None,
        Some(_) if explains_all(seen) => Some(format!(
            "rx_dropped of {at} are {frames} (drop reason {REASON}): no datagram was lost by that"
        )),
        Some(count) => Some(format!(
            "{count} of rx_dropped of {at} are {frames} (drop reason {REASON})"
        )),
        None if loses_early(seen) => None,
        None => Some(format!(
            "rx_dropped of {at} may be {frames}: root sees the drop reasons"
        )),
    }
}
