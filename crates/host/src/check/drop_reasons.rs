//! The table of the kernel's drop reasons: fates, causes and remedies.

use crate::ReasonCount;
use crate::Station;
use crate::counters::drop_probe::{
    MARK_EGRESS, MARK_GROUP, MARK_ICMP_ERROR, MARK_IGMP, MARK_OPTIONS, MARK_OWN_ADDRESS,
    MARK_ZERO_CHECKSUM,
};
use crate::ledger::loss::{LOSSES, LossKind};
use std::sync::LazyLock;

/// A reason a line. Its head says what the columns are.
const FILE: &str = include_str!("drop_reasons.tsv");
/// Stands between causes, and between their remedies.
const OR: &str = " || ";

/// Where the packets of a drop reason also appear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// These losses have them, and their checks report them.
    Counted(Vec<&'static LossKind>),
    /// This loss has them, and the reason explains more.
    Explains(&'static LossKind),
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
    /// Another reason says the same.
    Same(&'static str),
}

/// A reason, or all reasons with one beginning.
#[derive(Debug)]
pub(super) struct DropReasonRow {
    /// Its name. A `*` at the end stands for any rest.
    pub(super) reason: &'static str,
    pub(super) fate: Fate,
    pub(super) station: Station,
    /// In the order of likelihood; empty if no finding names it.
    pub(super) causes: Vec<&'static str>,
    /// One for each cause.
    pub(super) remedies: Vec<&'static str>,
}

/// The kernel's name for no reason (`SKB_DROP_REASON_NOT_SPECIFIED`).
pub(super) const NOT_SPECIFIED: &str = "NOT_SPECIFIED";

/// Reasons of packets that a virtual device may have counted.
pub(super) const VIRTUAL: [&str; 2] = ["IP_TUNNEL_ECN", "VXLAN_INVALID_HDR"];

static ROWS: LazyLock<Vec<DropReasonRow>> =
    LazyLock::new(|| FILE.lines().filter_map(parse).collect());

/// None for a line of the head.
fn parse(line: &'static str) -> Option<DropReasonRow> {
    let columns: [&str; 6] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
    let [reason, fate, station, causes, remedies, _] = columns;
    let words = |column: &'static str| match column {
        "-" => Vec::new(),
        _ => column.split(OR).collect(),
    };
    Some(DropReasonRow {
        reason,
        fate: fate_of(fate)?,
        station: match station {
            "wire" => Station::Wire,
            "ip" => Station::Ip,
            "udp" => Station::Udp,
            "socket" => Station::Socket,
            _ => return None,
        },
        causes: words(causes),
        remedies: words(remedies),
    })
}

fn fate_of(column: &'static str) -> Option<Fate> {
    let mut words = column.split(' ');
    let fate = words.next()?;
    let kind = |name: &str| LOSSES.iter().copied().find(|kind| kind.name == name);
    Some(match fate {
        "counted" => Fate::Counted(words.map(kind).collect::<Option<_>>()?),
        "explains" => Fate::Explains(kind(words.next()?)?),
        "checked" => Fate::Checked,
        "harmless" => Fate::Harmless,
        "delivered" => Fate::Delivered,
        "outward" => Fate::Outward,
        "uncounted" => Fate::Uncounted,
        "same" => Fate::Same(words.next()?),
        _ => return None,
    })
}

/// Stands in front of the kernel function that dropped packets without a reason.
const PLACE: char = '@';
/// Stands in front of what the packets have in common.
pub(super) const MARK: char = '+';
/// The marks of the probe, in the order of search.
pub(super) const MARKS: [(u32, &str); 7] = [
    (MARK_EGRESS, "egress"),
    (MARK_GROUP, "group"),
    (MARK_OPTIONS, "options"),
    (MARK_IGMP, "igmp"),
    (MARK_ICMP_ERROR, "icmp"),
    (MARK_ZERO_CHECKSUM, "zero"),
    (MARK_OWN_ADDRESS, "own"),
];

/// A name as people read it: `NOT_SPECIFIED in nf_queue`.
pub(super) fn words(reason: &str) -> String {
    let reason = reason.split(MARK).next().unwrap_or(reason);
    reason.replace(PLACE, " in ")
}

/// True if a reason is that of a function.
pub(super) fn has_place(reason: &str) -> bool {
    reason.contains(PLACE)
}

/// Gives drops the name of the row that knows most of them, and adds up those of one name. Drops of an
/// unknown function keep it.
pub(super) fn refine(drops: &mut Vec<ReasonCount>) {
    let mut refined: Vec<ReasonCount> = Vec::new();
    for mut drop in std::mem::take(drops) {
        if let Some(name) = refined_name(&drop).filter(|name| *name != drop.reason) {
            drop.reason = name;
            drop.place.clear();
        }
        let mut known = refined.iter_mut();
        let known = known.find(|one| (&one.reason, &one.place) == (&drop.reason, &drop.place));
        match known {
            Some(known) => {
                known.buffers = known.buffers.saturating_add(drop.buffers);
                known.datagrams = known.datagrams.saturating_add(drop.datagrams);
            }
            None => refined.push(drop),
        }
    }
    *drops = refined;
}

/// The name of the row for the function or the marks of a drop; none if there is no such row.
fn refined_name(drop: &ReasonCount) -> Option<String> {
    let of_place = format!("{}{PLACE}{}", drop.reason, drop.place);
    let reasons = [of_place, drop.reason.clone()].into_iter();
    let reasons = reasons.skip(usize::from(drop.place.is_empty()));
    let marks = MARKS.iter().filter(|(mark, _)| drop.marks & mark != 0);
    let marks = marks.map(|(_, name)| format!("{MARK}{name}"));
    let marks: Vec<String> = marks.chain([String::new()]).collect();
    let mut names = reasons.flat_map(|reason| marks.iter().map(move |mark| reason.clone() + mark));
    let row = names.find_map(|name| ROWS.iter().find(|row| row.reason == name))?;
    Some(
        match row.fate {
            Fate::Same(other) => other,
            _ => row.reason,
        }
        .to_owned(),
    )
}

/// The row of a reason; none for a reason of a newer kernel.
pub(super) fn row(reason: &str) -> Option<&'static DropReasonRow> {
    ROWS.iter().find(|row| match row.reason.strip_suffix('*') {
        Some(start) => reason.starts_with(start),
        None => reason == row.reason,
    })
}

/// The fate of a reason. For a reason that is not in the table, only the reason is known.
pub(super) fn fate(reason: &str) -> &'static Fate {
    row(reason).map_or(&Fate::Uncounted, |row| &row.fate)
}

/// The reasons that the table names in full.
#[cfg(test)]
pub(super) fn named() -> impl Iterator<Item = (&'static str, &'static Fate)> {
    // A counter has the packets of IP_OUTNOROUTES.
    let is_by_reason = |row: &&DropReasonRow| row.reason != "IP_OUTNOROUTES";
    let named = ROWS.iter().filter(|row| !row.reason.ends_with('*'));
    let named = named.filter(is_by_reason);
    let named = named.filter(|row| !row.reason.contains([PLACE, MARK]));
    let others = ["NEIGH_FAILED", "TCP_RESET"].map(|name| (name, fate(name)));
    named.map(|row| (row.reason, &row.fate)).chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::drop_reason::DropReasons;
    use crate::ledger::loss::OTHER_STATIONS;
    use mpps_os::bpf::btf::Btf;

    #[test]
    fn each_reason_of_this_kernel_has_its_row() {
        let Ok(btf) = Btf::kernel() else { return };
        let Ok(reasons) = DropReasons::read(&btf) else {
            return;
        };
        let no_reasons = ["MAX", "CONSUMED", "NOT_DROPPED_YET"];
        let is_missing = |name: &&str| {
            row(name).is_none() && !name.starts_with("SUBSYS_") && !no_reasons.contains(name)
        };
        let missing: Vec<&str> = reasons.names().filter(is_missing).collect();
        assert!(missing.is_empty(), "add a row for {missing:?}");
    }

    #[test]
    fn each_line_is_a_row_that_can_be_reached() {
        let lines = FILE.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(ROWS.len(), lines.count());
        for one in ROWS.iter() {
            let name = one.reason.replace('*', "X");
            assert!(
                row(&name).is_some_and(|found| std::ptr::eq(found, one)),
                "{name}"
            );
            let is_reported = !matches!(
                one.fate,
                Fate::Checked | Fate::Harmless | Fate::Outward | Fate::Same(_)
            );
            assert_eq!(is_reported, !one.causes.is_empty(), "{name}");
            assert_eq!(one.causes.len(), one.remedies.len(), "{name}");
            let has_row = !is_reported || OTHER_STATIONS.contains(&one.station);
            assert!(has_row, "{name}: the ledger has no row there");
            for words in one.causes.iter().chain(&one.remedies) {
                assert!(!words.ends_with('.') && words.trim() == *words, "{words}");
            }
        }
    }

    #[test]
    fn reasons_of_losses_are_those_of_the_table() {
        for kind in LOSSES {
            for reason in kind.reasons.iter().filter(|name| **name != NOT_SPECIFIED) {
                let is_fitting = match fate(reason) {
                    Fate::Counted(kinds) => kinds.contains(kind),
                    Fate::Explains(this) => this == kind,
                    fate => *fate == Fate::Checked || VIRTUAL.contains(reason),
                };
                assert!(is_fitting, "{reason}");
            }
        }
    }
}
