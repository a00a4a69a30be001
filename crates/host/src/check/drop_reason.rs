//! Datagrams that the kernel dropped for a reason that no other check explains.

use super::drop_reasons::{self, Fate, VIRTUAL};
use super::reason_counts::beyond as beyond_counters;
use super::refusal::{RefusalCause, at_sockets, by_ipsec};
use super::unspecified::{self, Unspecified};
use super::vanished::is_udp_silent;
use super::virtual_device;
use super::{Check, Confidence, Evidence, Finding, Observed, filter_queue, link_fault};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "drop_reason",
    reads: "all other drop reasons of UDP (tracepoint skb:kfree_skb, \
            crates/host/src/check/drop_reasons.tsv), IPsec's counters (xfrm_stat), and BPF programs of cgroups",
    speaks: "the kernel dropped UDP datagrams for a reason without a check of its own",
    run,
};

/// Drops in front of a queue of NFQUEUE.
const QUEUE: &str = "NOT_SPECIFIED@nf_queue";
/// Drops of a bridge that may not send by the port that they are for.
pub(super) const BRIDGE: &str = "NOT_SPECIFIED@br_handle_frame_finish";
/// Packets with an address of this host as their source.
const LOCAL_SOURCE: &str = "IP_LOCAL_SOURCE";
/// Frames with another host's Ethernet address.
const OTHERHOST: &str = "OTHERHOST";

/// The reasons that this check reports, each with what it lost.
fn reported<'s>(seen: &'s Observed) -> Vec<(&'s str, Evidence, &'static Fate)> {
    // A tunnel's packets have its port, and carry others of any port.
    let tunnels = seen.other_drops.iter().flatten();
    let tunnels = tunnels.filter(|drop| *drop_reasons::fate(&drop.reason) == Fate::Delivered);
    let drops = seen.drops.iter().flatten().chain(tunnels);
    let mut names: Vec<&str> = drops.map(|drop| &*drop.reason).collect();
    names.sort_unstable();
    names.dedup();
    let beyond = |name: &str, what: &str, count| {
        Evidence::new(
            format!("drop reason {}, {what}", drop_reasons::words(name)),
            0,
            count,
        )
    };
    let reported = names.into_iter().filter_map(|name| {
        let fate = drop_reasons::fate(name);
        let lost = match fate {
            Fate::Checked | Fate::Harmless | Fate::Outward | Fate::Same(_) => return None,
            _ if name == unspecified::REASON => {
                let rest = Unspecified::of(seen).rest;
                beyond(name, "without another explanation", rest)
            }
            // Frames for others are no loss, unless they are all that came.
            _ if name == OTHERHOST && !is_udp_silent(seen) => return None,
            _ if VIRTUAL.contains(&name) => {
                let rest = virtual_device::beyond(seen, name);
                beyond(name, "beyond the counters of virtual devices", rest)
            }
            Fate::Counted(kinds) => {
                let rest = beyond_counters(seen, name, kinds);
                beyond(name, "beyond the counters that go with it", rest)
            }
            Fate::Delivered => {
                let lost = seen.exact(name)?;
                Evidence::new(
                    lost.source.clone(),
                    0,
                    lost.grown().saturating_add(seen.others(name)),
                )
            }
            Fate::Explains(_) | Fate::Uncounted => seen.exact(name)?,
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
    found.chain(for_others(seen)).collect()
}

/// Frames with another host's Ethernet address, beside datagrams that were delivered.
fn for_others(seen: &Observed) -> Option<Finding> {
    let frames = seen.exact(OTHERHOST).filter(|one| one.grown() > 0)?;
    if is_udp_silent(seen) {
        return None;
    }
    let count = frames.grown();
    let mut found = Finding::noticed(seen, &CHECK, station(OTHERHOST), vec![frames]);
    found.is_remark = true;
    let what = format!(
        "{count} datagrams came with another host's Ethernet address: they are not counted as lost, because the \
         interface is promiscuous or a switch floods what is for others; or a sender's table of neighbours is \
         wrong"
    );
    let remedy = "none, if their IP address is another host's too: tcpdump -eni IF shows addresses; otherwise ip \
                  neigh on the sender";
    Some(found.says(what, remedy).with(Confidence::Likely))
}

fn finding(seen: &Observed, name: &str, lost: Evidence) -> Option<Finding> {
    let count = lost.grown();
    let mut found = Finding::lost(seen, &CHECK, station(name), vec![lost])?;
    let tunnel = match seen.asked.port.filter(|_| seen.others(name) > 0) {
        Some(port) if *drop_reasons::fate(name) == Fate::Delivered => {
            // Others may be healthy beside it.
            found.is_remark = seen.grown(&["Udp.InDatagrams", "Udp6.InDatagrams"]) / 2 > count;
            format!("; packets for port {port} may be in them")
        }
        _ => String::new(),
    };
    let shown = match name {
        "XFRM_POLICY" => by_ipsec(seen, count),
        "TC_INGRESS" => at_redirect(seen),
        "SOCKET_FILTER" => at_sockets(seen, count, None),
        QUEUE => at_queue(seen),
        LOCAL_SOURCE => hairpin(seen, count),
        unspecified::REASON => by_place(seen),
        BRIDGE => at_bridge(seen),
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
    let what = format!(
        "the kernel dropped UDP datagrams for the reason {}: {what}{tunnel}",
        drop_reasons::words(name)
    );
    let found = found.says(what, remedy).because(&[hidden.to_owned()]);
    Some(found.with(confidence))
}

/// A filter's redirection as the first of the causes of its drops.
fn at_redirect(seen: &Observed) -> Option<RefusalCause> {
    let fault = link_fault::of_redirect(seen)?;
    let row = drop_reasons::row("TC_INGRESS")?;
    // The last cause is the same without a name.
    let with = |first: &str, all: &[&str]| [&[first], &all[..all.len() - 1]].concat().join("; or ");
    Some(RefusalCause {
        what: with(&fault.what, &row.causes),
        remedy: with(&fault.remedy, &row.remedies),
        ..by_table("TC_INGRESS")
    })
}

/// Isolated ports as the first of the causes of a bridge's drops.
fn at_bridge(seen: &Observed) -> Option<RefusalCause> {
    let fault = link_fault::of_isolated(seen)?;
    let table = by_table(BRIDGE);
    Some(RefusalCause {
        what: format!("{}; or {}", fault.what, table.what),
        remedy: format!("{}; or {}", fault.remedy, table.remedy),
        confidence: Confidence::Likely,
        ..table
    })
}

/// The cause of drops in front of a queue of the packet filter.
fn at_queue(seen: &Observed) -> Option<RefusalCause> {
    let cause = filter_queue::cause(seen).filter(|cause| cause.confidence == Confidence::Likely);
    let row = drop_reasons::row(QUEUE)?;
    let queues = seen.after.packet_filter.queues.as_ref();
    let no_program = || RefusalCause {
        what: row.causes.first().copied().unwrap_or_default().to_owned(),
        remedy: row.remedies.first().copied().unwrap_or_default().to_owned(),
        confidence: Confidence::Certain,
        ..by_table(QUEUE)
    };
    cause.or_else(|| queues?.is_empty().then(no_program))
}

/// The cause if this host sent at least as many datagrams as came with its own address.
fn hairpin(seen: &Observed, count: u64) -> Option<RefusalCause> {
    let sent = seen.counter("Udp.OutDatagrams")?;
    let row = drop_reasons::row(LOCAL_SOURCE)?;
    (sent.grown() >= count).then(|| RefusalCause {
        what: row.causes.last().copied().unwrap_or_default().to_owned(),
        remedy: row.remedies.last().copied().unwrap_or_default().to_owned(),
        evidence: vec![sent],
        confidence: Confidence::Likely,
    })
}

/// The cause of drops without a reason, by the function that dropped if it is known.
fn by_place(seen: &Observed) -> Option<RefusalCause> {
    let of_bridge = || {
        link_fault::of_bridge(seen).map(|fault| RefusalCause {
            what: fault.what,
            remedy: fault.remedy,
            ..by_table("")
        })
    };
    let functions = unspecified::functions(seen);
    if functions.is_empty() {
        return filter_queue::cause(seen).or_else(of_bridge);
    }
    let is_bridge = functions.iter().any(|name| name.starts_with("br_"));
    let bridge = is_bridge.then(of_bridge).flatten();
    bridge.or_else(|| by_function(seen))
}

/// The functions that dropped without a reason; none if they are not known, or one of them may be a veth's.
fn by_function(seen: &Observed) -> Option<RefusalCause> {
    let functions = unspecified::functions(seen);
    let is_veth = |name: &&str| name.contains("veth") || name.starts_with("dev_kfree_skb");
    if functions.is_empty() || functions.iter().any(is_veth) {
        return None;
    }
    Some(RefusalCause {
        what: format!(
            "it dropped them in {}, and the cause is not known",
            functions.join(", ")
        ),
        ..by_table("")
    })
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
