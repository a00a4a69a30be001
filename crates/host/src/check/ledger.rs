//! The ledger of UDP on one host, whichever program receives.

use super::drop_reasons::{self, NOT_SPECIFIED};
use super::unspecified::{GROUPS_V4, Unspecified};
use super::vanished::{gap, to_strange_groups, vanished};
use super::way_out::WayOut;
use super::{
    CHECKS, Evidence, Observed, conntrack, drop_reason, far_end, firewall, fragments,
    reading_times, reason_counts, udp_memory, unhandled, unrouted, virtual_device,
};
use crate::ledger::loss::{
    FRAGMENTS, LOSSES, LossKind, NO_MEMORY, OTHER_REASON, OTHER_STATIONS, UNROUTED,
};
use crate::{Ledger, Loss, Scope, Station};
use mpps_os::netlink::link::NetlinkLink;

/// Packets that tunnels took out of datagrams.
fn tunnelled(seen: &Observed) -> u64 {
    let tunnels = seen
        .after
        .links
        .iter()
        .filter(|link| virtual_device::TUNNELS.contains(&&*link.kind));
    let counts = tunnels.filter_map(|link| seen.link(&link.name, "rx_packets"));
    counts.fold(0, |sum: u64, one| sum.saturating_add(one.grown()))
}

/// Packets of any kind that this namespace forwarded, or that its bridges sent on. The ledger has none of them.
pub fn passed(seen: &Observed) -> u64 {
    let tx = |name: &str| seen.link(name, "tx_packets").map_or(0, |one| one.grown());
    let links = &seen.after.links;
    let bridged = links
        .iter()
        .filter(|link| link.kind == "bridge")
        .map(|bridge| {
            let ports = links
                .iter()
                .filter(|port| port.controller == Some(bridge.index));
            let sent: u64 = ports.map(|port| tx(&port.name)).sum();
            sent.saturating_sub(tx(&bridge.name))
        });
    let forwarded = seen.grown(&["Ip.ForwDatagrams", "Ip6.OutForwDatagrams"]);
    // Of those that were dropped later none left.
    let is_way = |link: &&NetlinkLink| link.kind != "bridge" && link.name != "lo";
    let left = links.iter().filter(is_way).map(|link| tx(&link.name));
    let forwarded = forwarded.min(left.fold(0, u64::saturating_add));
    bridged.fold(forwarded, u64::saturating_add)
}

/// Packets that come to IP and are not UDP for this host.
const OTHERS: [&str; 7] = [
    "Tcp.InSegs",
    "Icmp.InMsgs",
    "Icmp6.InMsgs",
    "Ip.ForwDatagrams",
    "Ip6.OutForwDatagrams",
    "Ip.InUnknownProtos",
    "Ip6.InUnknownProtos",
];

/// A row of what these counters grew by.
fn row(kind: &LossKind, evidence: &[Evidence]) -> Loss {
    let grown = evidence.iter().filter(|one| one.grown() > 0);
    let sources: Vec<&str> = grown.map(|one| &*one.source).collect();
    Loss {
        exact: kind.scope == Scope::Namespace,
        ..kind.row(Evidence::sum(evidence), sources.join(" + "))
    }
}

/// The losses that the checks of a kind find: one count for their findings and for the ledger.
fn found(seen: &Observed, kind: &LossKind) -> Loss {
    let checks = CHECKS.iter();
    let checks = checks.filter(|check| kind.checks.contains(&check.name));
    let found = checks.flat_map(|check| (check.run)(seen));
    // Packets for other hosts are no loss.
    let found = found.filter(|finding| kind != &UNROUTED || !finding.is_remark);
    let (mut count, mut evidence) = (0_u64, Vec::new());
    for finding in found {
        count = count.saturating_add(finding.count);
        evidence.extend(finding.evidence);
    }
    Loss {
        count,
        // They count packets of all kinds.
        exact: false,
        ..row(kind, &evidence)
    }
}

/// The row of a kind by the namespace's counters.
fn counted(seen: &Observed, kind: &LossKind) -> Loss {
    let mut evidence = seen.counters(kind.counters);
    if kind == &NO_MEMORY {
        evidence.extend(udp_memory::uncounted(seen));
    }
    let row = row(kind, &evidence);
    let of_others = reason_counts::of_others(seen, kind).grown();
    let count = match kind == &FRAGMENTS {
        true => fragments::lost(seen),
        false => row.count.saturating_sub(of_others),
    };
    Loss {
        count,
        // Without memory each fragment counts.
        exact: row.exact && kind != &FRAGMENTS,
        ..row
    }
}

/// Losses that no counter of IP or UDP has: by checks, and by drop reasons. Also returns how many
/// of the latter UDP counted as delivered.
fn reasoned(seen: &Observed) -> (Vec<Loss>, u64) {
    let kinds = LOSSES.iter().filter(|kind| !kind.checks.is_empty());
    let kinds = kinds.filter(|kind| kind.scope == Scope::Namespace);
    let rows = kinds.map(|kind| Loss {
        // The kernel counts those of all namespaces; what IP delivered to this one bounds them.
        by_difference: kind.station == Station::Socket,
        exact: kind.station == Station::Application,
        ..found(seen, kind)
    });
    let mut rows: Vec<Loss> = rows.collect();
    let others = drop_reason::losses(seen);
    rows.extend(OTHER_STATIONS.map(|station| {
        let here = others.iter().filter(|(at, ..)| *at == station);
        let here: Vec<Evidence> = here.map(|(_, lost, _)| lost.clone()).collect();
        let sources: Vec<&str> = here.iter().map(|one| &*one.source).collect();
        let row = Loss::new(
            station,
            OTHER_REASON,
            Evidence::sum(&here),
            sources.join(" + "),
        );
        Loss {
            exact: false,
            ..row
        }
    }));
    let delivered = others.iter().filter(|(.., delivered)| *delivered);
    let delivered = delivered.fold(0, |sum: u64, (_, lost, _)| sum.saturating_add(lost.grown()));
    let cut = rows
        .iter()
        .filter(|row| row.station == Station::Application);
    let cut = cut.fold(0, |sum: u64, row| sum.saturating_add(row.count));
    (rows, delivered.saturating_add(cut))
}

fn sum(rows: &[Loss]) -> u64 {
    rows.iter()
        .fold(0, |sum, row| sum.saturating_add(row.count))
}

/// The ledger of UDP in the namespace, from the interfaces on. Offered is what IP received, without
/// TCP, ICMP and forwarded packets. It includes losses before IP. Other protocols over IP are in
/// UNACCOUNTED. With a port, drops that only reasons show are those of that port.
///
/// The counters of a busy host are read one after the other. Packets that come meanwhile are in
/// UNACCOUNTED, at most [`between_reads`]. On an idle host it is zero.
pub fn ledger(seen: &Observed) -> Ledger {
    let beyond = LOSSES.iter().filter(|kind| kind.scope != Scope::Namespace);
    let beyond = beyond.filter(|kind| !kind.checks.is_empty());
    let early: Vec<Loss> = beyond.map(|kind| found(seen, kind)).collect();
    let by_counter = LOSSES.iter().filter(|kind| !kind.counters.is_empty());
    let counted: Vec<Loss> = by_counter.clone().map(|kind| counted(seen, kind)).collect();
    let of_others = by_counter.map(|kind| reason_counts::of_others(seen, kind));
    let of_others = of_others.fold(0, |sum: u64, one| sum.saturating_add(one.grown()));
    let (reasoned, taken_back) = reasoned(seen);
    // Datagrams to groups are no listener reports. The kernel's drop reason distinguishes them.
    let unspecified = Unspecified::of(seen);
    let to_groups = to_strange_groups(seen)
        .saturating_sub(unspecified.unrouted_v6)
        .saturating_add(unrouted::for_others(seen));
    let came = seen.grown(&["Ip.InReceives", "Ip6.InReceives"]);
    let errors = not_udp(seen);
    let known = came
        .saturating_sub(seen.grown(&OTHERS))
        .saturating_sub(errors)
        .saturating_sub(fragments::beyond_datagrams(seen))
        .saturating_sub(to_groups)
        .saturating_sub(unspecified.bridged)
        .saturating_sub(of_others)
        .saturating_add(sum(&early));
    let delivered = seen.grown(&["Udp.InDatagrams", "Udp6.InDatagrams"]);
    let delivered = delivered.saturating_sub(taken_back);
    // A datagram around another one is not read by a program.
    let around = tunnelled(seen).min(delivered);
    let (known, delivered) = (known.saturating_sub(around), delivered - around);
    // A rule may stand before IP, which then did not receive what it drops.
    let counted_sum = delivered
        .saturating_add(sum(&early))
        .saturating_add(sum(&counted));
    let left = known.saturating_sub(counted_sum);
    let beside = sum(&reasoned).saturating_sub(left);
    let mut ledger = Ledger::new(known.saturating_add(beside), delivered, 0);
    if beside > 0 {
        let place = match seen.grown(&firewall::FORWARDED) >= beside {
            true => "when it had counted them as forwarded, or before IP",
            false => "before IP",
        };
        ledger.note(format!(
            "the kernel dropped {beside} packets more than are missing at IP: it dropped them {place}"
        ));
    }
    for loss in early.into_iter().chain(counted).chain(reasoned) {
        ledger.lose(loss);
    }
    note(&mut ledger, seen, to_groups);
    if of_others > 0 {
        ledger.note(format!(
            "{of_others} packets of other protocols or ports are left out, which IP lost and counts too (drop reasons)"
        ));
    }
    if errors > 0 {
        ledger.note(format!(
            "{errors} packets that were no UDP are left out, which the packet filter dropped ({})",
            firewall::REASON
        ));
    }
    if around > 0 {
        ledger.note(format!(
            "{around} datagrams around packets of tunnels are left out: those inside are counted"
        ));
    }
    if unspecified.bridged > 0 {
        ledger.note(format!(
            "{} multicast packets that bridges pass on came to this host too, which has not joined their groups: \
             they are left out",
            unspecified.bridged
        ));
    }
    ledger
}

/// Packets that the packet filter dropped and that are known to be no datagrams; with a port error messages only.
fn not_udp(seen: &Observed) -> u64 {
    let all = match seen.asked.port {
        Some(_) => 0,
        // Connection tracking drops any packets for the same reason.
        None => seen
            .others(firewall::REASON)
            .saturating_sub(conntrack::came(seen)),
    };
    all.max(seen.others(firewall::ICMP)).min(gap(seen))
}

/// How many packets UNACCOUNTED may have, on either side of zero, only because counters are not read
/// at one instant: those that came during both readings, and those that wait in a socket at only one of them.
pub fn between_reads(seen: &Observed) -> u64 {
    reading_times::during_reads(seen).saturating_add(seen.waiting_change())
}

/// The part of UNACCOUNTED that is neither another protocol nor waiting in a socket. IP received
/// it, and neither delivered nor counted it. Kernel drops of other packets are not part of it.
pub(super) fn adrift(seen: &Observed) -> u64 {
    let unaccounted = u64::try_from(ledger(seen).unaccounted).unwrap_or(0);
    let (mut rows, _) = reasoned(seen);
    // A packet dropped by a socket, or cut by a program, was delivered.
    rows.retain(|row| row.station < Station::Socket);
    let known = sum(&rows).saturating_add(seen.all_others());
    let known = match known {
        0 => 0,
        _ => known.saturating_add(reading_times::skew(seen, known)),
    };
    unaccounted.min(gap(seen).saturating_sub(known))
}

/// Says what is not in its rows; `to_groups` is of [`to_strange_groups`].
fn note(ledger: &mut Ledger, seen: &Observed, to_groups: u64) {
    if to_groups > 0 {
        ledger.note(format!(
            "{to_groups} packets came to groups that no program here has joined (Ip6.InMcastPkts, drop reasons), \
             as mDNS and listener reports of other hosts do: they are left out"
        ));
    }
    far_end::ways(seen)
        .into_iter()
        .for_each(|said| ledger.note(said));
    if let (Some(port), Some(to)) = (seen.asked.port, seen.translated()) {
        ledger.note(format!(
            "NAT translates datagrams for port {port}: tracked flows lead to {to} (nf_conntrack); mpps doctor --port {}, \
             where that is",
            to.port()
        ));
    }
    unhandled::note(seen)
        .into_iter()
        .for_each(|said| ledger.note(said));
    let out = WayOut::of(seen);
    if out.lost() > 0 {
        ledger.note(format!("the way out is none of this: {out}"));
    }
    if ledger.unaccounted > 0 {
        let unaccounted = u64::try_from(ledger.unaccounted).unwrap_or(0);
        let notes = [joined(seen), unseen(seen, unaccounted)];
        notes
            .into_iter()
            .flatten()
            .for_each(|said| ledger.note(said));
    }
    let waiting = seen.queued_bytes();
    if waiting > 0 {
        ledger.note(format!(
            "{waiting} bytes wait in socket buffers: no counter shows how many datagrams, and \"still queued\" has none"
        ));
    }
    if seen.grown(&["Ip.ReasmReqds", "Ip6.ReasmReqds"]) > 0 {
        ledger.note("fragments came: IP counts each of them, and the ledger each datagram once");
    }
    match (seen.drops.is_some(), seen.asked.port) {
        (true, None) => {}
        (true, Some(port)) => ledger.note(format!(
            "no counter has what a firewall dropped: for ports other than {port} that is unaccounted for here"
        )),
        (false, _) => {
            ledger.note("no counter has what a firewall dropped: that is unaccounted for here");
        }
    }
    for anomaly in &seen.delta.anomalies {
        ledger.note(anomaly.clone());
    }
}

/// The part of UNACCOUNTED that may be delivered IGMP.
fn joined(seen: &Observed) -> Option<String> {
    let multicast = seen.grown(&["IpExt.InMcastPkts"]);
    let said = format!(
        "IGMP may be in UNACCOUNTED, because the kernel does not count it: IPv4 got {multicast} packets to \
         joined groups (IpExt.InMcastPkts)"
    );
    (multicast > 0).then_some(said)
}

/// The part of UNACCOUNTED that IPv4 received and no counter has, with the dropper if drops are
/// visible. The check `unrouted` already reports its own part, and so does `drop_reason`.
fn unseen(seen: &Observed, unaccounted: u64) -> Option<String> {
    let others = drop_reason::losses(seen).into_iter();
    let others = others.filter(|(station, ..)| *station == Station::Ip);
    let others = others.fold(0, |sum: u64, (_, lost, _)| sum.saturating_add(lost.grown()));
    let told = Unspecified::of(seen);
    let unseen = vanished(seen)
        .saturating_sub(told.unrouted)
        .saturating_sub(told.bridged)
        .saturating_sub(others.max(told.placed))
        .saturating_sub(seen.others(GROUPS_V4))
        .min(unaccounted);
    if unseen == 0 {
        return None;
    }
    // A packet to a group without members here is not in IpExt.InMcastPkts either.
    let groups = "to groups that nothing here has joined, as IGMP of other hosts is";
    let why = match (seen.drops.is_some(), dropped_at_ip(seen)) {
        _ if unseen <= between_reads(seen) => {
            "they may have come while counters were read".to_owned()
        }
        (false, _) => format!("a firewall may have dropped them, or they were {groups}"),
        (true, None) => format!("they may have been {groups}"),
        (true, Some((dropped, who))) if dropped >= unseen => who,
        (true, Some((_, who))) => format!("{who}, and others may have been {groups}"),
    };
    Some(format!(
        "{unseen} packets are in UNACCOUNTED that IPv4 neither delivered nor counted as lost: {why}"
    ))
}

/// The packets of another protocol or port that the kernel dropped at IP for one reason, and the words.
fn dropped_at_ip(seen: &Observed) -> Option<(u64, String)> {
    let drops = seen.other_drops.iter().flatten();
    let is_at_ip = |reason: &str| match reason {
        // These are not among what vanished.
        firewall::REASON | NOT_SPECIFIED => false,
        _ => drop_reasons::row(reason).is_some_and(|row| row.station == Station::Ip),
    };
    let most = drops.filter(|drop| drop.datagrams > 0 && is_at_ip(&drop.reason));
    let most = most.max_by_key(|drop| drop.datagrams)?;
    let (count, reason) = (most.datagrams, &most.reason);
    let who = format!(
        "the kernel dropped {count} of other ports or protocols ({})",
        drop_reasons::words(reason)
    );
    Some((count, who))
}
