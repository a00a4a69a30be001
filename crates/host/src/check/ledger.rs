//! The ledger of UDP on one host, whichever program receives.

use super::unspecified::{IGNORED, Unspecified};
use super::vanished::{to_strange_groups, vanished};
use super::{
    Evidence, Seen, address, backlog, bad_header, checksum, firewall, nic_no_room, no_listener,
    overrun, reverse_path, udp_memory,
};
use crate::driver_counters::Meaning;
use crate::{Ledger, Loss, Scope, Station};

/// What comes to IP and is no UDP of this host.
const OTHERS: [&str; 5] = [
    "Tcp.InSegs",
    "Icmp.InMsgs",
    "Icmp6.InMsgs",
    "Ip.ForwDatagrams",
    "Ip6.OutForwDatagrams",
];

pub mod losses {
    //! Where and why a host's ledger can have losses.

    use super::{EARLY, FIREWALL, LOSSES};
    use crate::Station;

    /// The reason of what sockets' full buffers cost.
    pub const BUFFER_FULL: &str = "socket buffer full";

    /// All that there can be.
    pub fn all() -> impl Iterator<Item = (Station, &'static str)> {
        let behind = LOSSES.map(|(station, reason, _)| (station, reason));
        EARLY
            .into_iter()
            .chain(behind)
            .chain([(Station::Ip, FIREWALL)])
    }
}

/// Where packets are lost before IP.
const EARLY: [(Station, &str); 2] = [
    (Station::Wire, "no room in the NIC"),
    (Station::Backlog, "backlog full"),
];
/// The reason of what a firewall drops, which the kernel's drop reasons alone tell.
const FIREWALL: &str = "firewall";

/// Where this namespace loses datagrams from IP on, by counters that are disjoint.
const LOSSES: [(Station, &str, &[&str]); 8] = [
    (Station::Ip, "reverse path filter", reverse_path::NAMES),
    (Station::Ip, "not an address of this host", address::NAMES),
    (Station::Ip, "bad IP header", bad_header::NAMES),
    (Station::Udp, "no listener", no_listener::NAMES),
    (
        Station::Udp,
        "for all hosts or a group, and no listener",
        IGNORED,
    ),
    (Station::Udp, "wrong checksum", checksum::NAMES),
    (Station::Udp, "no memory for UDP", udp_memory::NAMES),
    (Station::Socket, losses::BUFFER_FULL, overrun::NAMES),
];

/// UDP of the namespace, from the interfaces on: offered is what IP received and was neither TCP nor
/// ICMP nor forwarded, and what was lost before it. Other protocols over IP are in UNACCOUNTED. With a
/// port the firewall's drops are of that port alone, and are left out.
///
/// The counters of a busy host are read one after the other, so that what comes meanwhile is in
/// UNACCOUNTED; on one that has come to rest it is zero.
pub fn ledger(seen: &Seen) -> Ledger {
    let [wire, queue] = EARLY;
    let mut no_room = nic_no_room::losses(seen);
    no_room.extend(seen.losses(Meaning::NoMemory));
    let early = [
        (wire, Scope::Interface, no_room),
        (queue, Scope::Host, backlog::losses(seen)),
    ];
    let early =
        early.map(|((station, reason), scope, counters)| (station, scope, reason, counters));
    let to_groups = to_strange_groups(seen);
    let came = seen.grown(&["Ip.InReceives", "Ip6.InReceives"]);
    let before_ip = early.iter().map(|(.., counters)| Evidence::sum(counters));
    let before_ip = before_ip.fold(0, u64::saturating_add);
    let known = came
        .saturating_sub(seen.grown(&OTHERS))
        .saturating_sub(to_groups)
        .saturating_add(before_ip);
    let delivered = seen.grown(&["Udp.InDatagrams", "Udp6.InDatagrams"]);
    let behind = LOSSES
        .map(|(station, reason, names)| (station, Scope::Namespace, reason, seen.counters(names)));
    let filtered = seen
        .reason(firewall::REASON)
        .filter(|_| seen.asked.port.is_none());
    // A rule may stand before IP, or in the way out: IP did not receive what such a one drops.
    let counted = behind.iter().map(|(.., counters)| Evidence::sum(counters));
    let counted = counted.fold(delivered.saturating_add(before_ip), u64::saturating_add);
    let left = known.saturating_sub(counted);
    let beside = filtered
        .as_ref()
        .map_or(0, |one| one.grown().saturating_sub(left));
    let mut ledger = Ledger::new(known.saturating_add(beside), delivered, 0);
    if beside > 0 {
        ledger.note(format!(
            "the firewall dropped {beside} packets more than IP received and nothing else has: before it, or \
             on their way out"
        ));
    }
    let filtered = (
        Station::Ip,
        Scope::Namespace,
        FIREWALL,
        filtered.into_iter().collect(),
    );
    for (station, scope, reason, counters) in early.into_iter().chain(behind).chain([filtered]) {
        let grown = counters.iter().filter(|counter| counter.grown() > 0);
        let sources: Vec<&str> = grown.map(|counter| &*counter.source).collect();
        ledger.lose(Loss {
            station,
            reason: reason.to_owned(),
            count: Evidence::sum(&counters),
            source: sources.join(" + "),
            scope,
            by_difference: false,
            // A NIC and a backlog count packets of all kinds, the probe those that go out, too.
            exact: scope == Scope::Namespace && reason != FIREWALL,
        });
    }
    note(&mut ledger, seen, to_groups);
    ledger
}

/// Says what is not in its rows; `to_groups` is of [`to_strange_groups`].
fn note(ledger: &mut Ledger, seen: &Seen, to_groups: u64) {
    if to_groups > 0 {
        ledger.note(format!(
            "{to_groups} packets came to IPv6 groups that no program here has joined (Ip6.InMcastPkts), as \
             listener reports and neighbour discovery of other hosts do: they are left out"
        ));
    }
    if ledger.unaccounted > 0 {
        let notes = [joined(seen), unseen(seen)];
        notes
            .into_iter()
            .flatten()
            .for_each(|said| ledger.note(said));
    }
    let waiting = seen.queued_bytes();
    if waiting > 0 {
        ledger.note(format!(
            "{waiting} bytes wait in socket buffers: how many datagrams that are no counter tells"
        ));
    }
    if seen.grown(&["Ip.ReasmReqds", "Ip6.ReasmReqds"]) > 0 {
        ledger.note("fragments came: IP counts each of them, and UDP the whole");
    }
    if seen.drops.is_none() || seen.asked.port.is_some() {
        ledger.note("no counter has what a firewall dropped: that is unaccounted for here");
    }
    for anomaly in &seen.delta.anomalies {
        ledger.note(anomaly.clone());
    }
}

/// What UNACCOUNTED may have of IGMP that was delivered.
fn joined(seen: &Seen) -> Option<String> {
    let multicast = seen.grown(&["IpExt.InMcastPkts"]);
    let said = format!(
        "IGMP may be in UNACCOUNTED, because the kernel does not count it: IPv4 got {multicast} packets to \
         joined groups (IpExt.InMcastPkts)"
    );
    (multicast > 0).then_some(said)
}

/// What it has of packets that IPv4 received and no counter has: who dropped them, as far as drops are
/// seen. What `unrouted` tells is told.
fn unseen(seen: &Seen) -> Option<String> {
    let unseen = vanished(seen).saturating_sub(Unspecified::of(seen).unrouted);
    if unseen == 0 {
        return None;
    }
    // With a port they are not among what vanished.
    let firewall = match seen.asked.port {
        None => seen.others(firewall::REASON),
        Some(_) => 0,
    };
    // A packet to a group that nobody joined is not in IpExt.InMcastPkts either.
    let groups = "to groups that nothing here has joined, as IGMP of other hosts is";
    let why = match (seen.drops.is_some(), firewall) {
        (false, _) => format!("a firewall may have dropped them, or they were {groups}"),
        (true, 0) => format!("they may have been {groups}"),
        (true, _) if firewall >= unseen => {
            format!("the firewall dropped {firewall} that were no UDP (NETFILTER_DROP)")
        }
        (true, _) => format!(
            "the firewall dropped {firewall} that were no UDP (NETFILTER_DROP), and others may have been \
             {groups}"
        ),
    };
    Some(format!(
        "{unseen} packets are in UNACCOUNTED that IPv4 neither delivered nor counted as lost: {why}"
    ))
}
