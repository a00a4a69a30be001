//! Datagrams that the kernel dropped for a reason that no other check explains.

use super::drop_reasons::{self, Fate, VIRTUAL};
use super::reason_counts::beyond as beyond_counters;
use super::refusal::{RefusalCause, at_sockets, by_ipsec};
use super::unspecified::{self, Unspecified};
use super::virtual_device;
use super::{Check, Confidence, Evidence, Finding, Observed, filter_queue};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "drop_reason",
    reads: "all other drop reasons of UDP (tracepoint skb:kfree_skb, \
            crates/host/src/check/drop_reasons.tsv), IPsec's counters (xfrm_stat), and BPF programs of cgroups",
    speaks: "the kernel dropped UDP datagrams for a reason without a check of its own",
    run,
};

/// The reasons that this check reports, each with what it lost.
fn reported<'s>(seen: &'s Observed) -> Vec<(&'s str, Evidence, &'static Fate)> {
    let drops = seen.drops.iter().flatten();
    let mut names: Vec<&str> = drops.map(|drop| &*drop.reason).collect();
    names.sort_unstable();
    names.dedup();
    let beyond = |name: &str, what: &str, count| {
        Evidence::new(format!("drop reason {name}, {what}"), 0, count)
    };
    let reported = names.into_iter().filter_map(|name| {
        let fate = drop_reasons::fate(name);
        let lost = match fate {
            Fate::Checked | Fate::Harmless | Fate::Outward | Fate::Same(_) => return None,
            _ if name == unspecified::REASON => {
                let rest = Unspecified::of(seen).rest;
                beyond(name, "without another explanation", rest)
            }
            _ if VIRTUAL.contains(&name) => {
                let rest = virtual_device::beyond(seen, name);
                beyond(name, "beyond the counters of virtual devices", rest)
            }
            Fate::Counted(kinds) => {
                let rest = beyond_counters(seen, name, kinds);
                beyond(name, "beyond the counters that go with it", rest)
            }
            Fate::Explains(_) | Fate::Delivered | Fate::Uncounted => seen.reason(name)?,
        };
        (lost.grown() > 0).then_some((name, lost, fate))
    });
    reported.collect()
}

fn station(name: &str) -> Station {
    drop_reasons::row(name).map_or(Station::Ip, |row| row.station)
}

/// Losses that no counter has: the station, the count, and whether UDP counted them as delivered.
pub(super) fn losses(seen: &Observed) -> Vec<(Station, Evidence, bool)> {
    let losses = reported(seen).into_iter().map(|(name, lost, fate)| {
        let lost = match fate {
            Fate::Explains(kind) => {
                let rest = beyond_counters(seen, name, &[kind]);
                Evidence::new(lost.source, 0, rest)
            }
            _ => lost,
        };
        (station(name), lost, *fate == Fate::Delivered)
    });
    losses.collect()
}

fn run(seen: &Observed) -> Vec<Finding> {
    let reported = reported(seen).into_iter();
    let found = reported.filter_map(|(name, lost, _)| finding(seen, name, lost));
    found.collect()
}

fn finding(seen: &Observed, name: &str, lost: Evidence) -> Option<Finding> {
    let count = lost.grown();
    let mut found = Finding::lost(seen, &CHECK, station(name), vec![lost])?;
    let shown = match name {
        "XFRM_POLICY" => by_ipsec(seen, count),
        "SOCKET_FILTER" => at_sockets(seen, count, None),
        unspecified::REASON => filter_queue::cause(seen),
        _ => None,
    };
    let RefusalCause {
        what,
        remedy,
        evidence,
        confidence,
    } = shown.unwrap_or_else(|| by_table(name));
    found.evidence.extend(evidence);
    let mut owners = seen.sockets.iter().filter_map(|one| one.owner);
    let is_hidden = name == "SOCKET_FILTER" && owners.all(|owner| owner.ingress.is_none());
    let hidden = match is_hidden {
        true => {
            "BPF programs of cgroups are not seen: that takes CAP_NET_ADMIN and a mount of cgroup v2 \
                 (/proc/mounts) in sight"
        }
        false => "",
    };
    let what = format!("the kernel dropped UDP datagrams for the reason {name}: {what}");
    let found = found.says(what, remedy).because(&[hidden.to_owned()]);
    Some(found.with(confidence))
}

/// The causes of a reason, with nothing that shows which it is.
fn by_table(name: &str) -> RefusalCause {
    let (what, remedy, causes) = match drop_reasons::row(name) {
        Some(row) => (
            row.causes.join("; or "),
            row.remedies.join("; or "),
            row.causes.len(),
        ),
        None => (
            "include/net/dropreason-core.h of the kernel says what that is".to_owned(),
            "perf record -e skb:kfree_skb -g shows the function that dropped them".to_owned(),
            0,
        ),
    };
    let confidence = match causes {
        1 => Confidence::Likely,
        _ => Confidence::Possible,
    };
    RefusalCause {
        what,
        remedy,
        evidence: Vec::new(),
        confidence,
    }
}
