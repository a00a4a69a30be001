//! Datagrams of connected sockets that other hosts refused.

use super::reader::named;
use super::{Check, Confidence, Evidence, Finding, Observed, SeenSocket, WayOut};
use crate::Station;
use crate::ledger::loss::NO_SOCKET;
use mpps_os::netlink::sock_diag::UdpEntry;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

pub(super) const CHECK: Check = Check {
    name: "refused_sends",
    reads: "`Icmp.InDestUnreachs`, `Icmp6.InDestUnreachs`, `Icmp.InTimeExcds`, `Icmp6.InTimeExcds`, `Udp.OutDatagrams`, \
            `Udp6.OutDatagrams`, and connected UDP sockets (sock_diag); with `--port` or `--pid` their hop limits \
            (pidfd_getfd)",
    speaks: "other hosts refused datagrams, and a connected socket here loses one more for each refusal (ECONNREFUSED); \
             a remark if other sockets may have sent them; the program sends to a port of this host \
             that no socket has; or routers dropped datagrams whose hop limit was used up, a \
             remark unless a socket in question has a low one",
    run,
};

/// Fewer refusals are a remark.
const FEW: u64 = 2;

fn run(seen: &Observed) -> Vec<Finding> {
    let all = [refused(seen), within(seen), expired(seen)];
    all.into_iter().flatten().collect()
}

/// Where messages come that a hop limit was used up.
pub(super) const EXPIRED: [&str; 2] = ["Icmp.InTimeExcds", "Icmp6.InTimeExcds"];
/// A way has fewer routers as a rule. Programs that send beyond their network have 64 or more.
const LOW: u32 = 32;

/// Routers send about one such message a second to a host, however many they drop (`icmp_ratelimit`),
/// and `mtr` asks each of them for one a second. So their number says nothing: a low limit of a socket in
/// question does.
fn expired(seen: &Observed) -> Option<Finding> {
    let mut evidence = seen.counters(&EXPIRED);
    evidence.retain(|one| one.grown() > 0);
    if evidence.is_empty() || seen.grown(&["Udp.OutDatagrams", "Udp6.OutDatagrams"]) == 0 {
        return None;
    }
    let limit = |one: &SeenSocket| seen.after.hop_limits.get(&one.entry.inode).copied();
    let low = seen
        .sockets
        .iter()
        .filter_map(|one| Some((limit(one)?, one)));
    let low = low
        .min_by_key(|(limit, _)| *limit)
        .filter(|(limit, _)| *limit < LOW);
    let mut found = Finding::noticed(seen, &CHECK, Station::Sender, evidence);
    found.is_remark = low.is_none();
    let (whose, confidence) = match low {
        Some((limit, one)) => (format!("{} sends with a limit of {limit}", one.name()), Confidence::Likely),
        None => (
            "traceroute and mtr do so on purpose; or a program sets it too low, routes lead in a circle, or fragments \
             without the rest send the same message"
                .to_owned(),
            Confidence::Possible,
        ),
    };
    let what = format!(
        "routers on the way dropped packets of this host because their hop limit (TTL) was used up (ICMP time \
         exceeded): {whose}"
    );
    let remedy = "tcpdump -vni any 'icmp[0] == 11 or icmp6[0] == 3' shows the router and the packet: a higher limit \
                  (IP_TTL, IPV6_UNICAST_HOPS, sysctl net.ipv4.ip_default_ttl); for a circle, traceroute ADDRESS shows \
                  routers twice";
    Some(found.says(what, remedy).with(confidence))
}

fn refused(seen: &Observed) -> Option<Finding> {
    let evidence = seen.counters(&["Icmp.InDestUnreachs", "Icmp6.InDestUnreachs"]);
    let evidence: Vec<Evidence> = evidence.into_iter().filter(|one| one.grown() > 0).collect();
    let refused = Evidence::sum(&evidence);
    let sent = seen.counters(&["Udp.OutDatagrams", "Udp6.OutDatagrams"]);
    let asked = || seen.sockets.iter().map(|socket| socket.entry);
    let remotes = remotes(asked());
    let is_known = !remotes.is_empty();
    // With a port the check `port_owner` reports the others.
    // For what it loses itself, as for a neighbour that is silent, this host sends such messages to itself.
    let is_lost_here = || WayOut::of(seen).lost() > 0;
    // A host refuses to itself what finds no socket by its loopback.
    let own = ["Icmp.OutDestUnreachs", "Icmp6.OutDestUnreachs"];
    let own = seen.grown(&own).min(seen.grown(NO_SOCKET.counters));
    let is_own = refused.saturating_sub(own) < FEW.min(refused);
    let is_told =
        is_known || seen.asked.port.is_none() && is_one_way(seen) && !is_own && !is_lost_here();
    if refused == 0 || Evidence::sum(&sent) == 0 || !is_told {
        return None;
    }
    let has_others = !is_known || asked().any(|entry| entry.remote.is_none());
    let mut found = Finding::noticed(seen, &CHECK, Station::Sender, evidence);
    found
        .evidence
        .extend(sent.into_iter().filter(|one| one.grown() > 0));
    found.is_remark = has_others || is_own || refused < FEW;
    let whose = match (is_known, has_others) {
        (false, _) => String::new(),
        (true, false) => format!(", of a socket that is connected to {}", remotes.join(", ")),
        (true, true) => format!(
            ", of a socket that is connected to {}, or of a socket that is not connected",
            remotes.join(", ")
        ),
    };
    let who = match is_own {
        true => "other hosts, or this one itself by its loopback,",
        false => "other hosts",
    };
    let what = format!(
        "{who} refused datagrams of this one (ICMP destination unreachable){whose}: no program has that port, \
         or the way there is closed or takes only shorter packets; after a refusal of the port the next send of a \
         connected socket fails (ECONNREFUSED) and its datagram is lost too"
    );
    let remedy = "tcpdump -ni any 'icmp[0] == 3' shows which and why: start the program there, or correct the \
                  address, the route or the size; after ECONNREFUSED the sender has to send again";
    let confidence = match found.is_remark {
        true => Confidence::Possible,
        false => Confidence::Likely,
    };
    Some(found.says(what, remedy).with(confidence))
}

/// A program sends, as a proxy does, to a port of this host that no socket has. Without `--port`
/// [`super::no_listener`] has these datagrams.
fn within(seen: &Observed) -> Option<Finding> {
    let said = dead_end(seen).filter(|_| seen.asked.port.is_some())?;
    let evidence = seen.counters(&[
        "Icmp.InDestUnreachs",
        "Icmp6.InDestUnreachs",
        "Udp.NoPorts",
        "Udp6.NoPorts",
    ]);
    let evidence = evidence.into_iter().filter(|one| one.grown() > 0).collect();
    let found = Finding::noticed(seen, &CHECK, Station::Sender, evidence);
    let what = format!("datagrams that the program sends are refused (ECONNREFUSED): {said}");
    Some(found.says(what, DEAD_END).with(Confidence::Likely))
}

/// The remedy.
pub(super) const DEAD_END: &str =
    "start the program that has that port, or correct the address that it sends to: ss -uanp";

/// A connected socket whose partner would be on this host, and no socket has its port; with `--port` of the
/// same program. The kernel refuses what it sends, and refused most of what found no socket.
pub(super) fn dead_end(seen: &Observed) -> Option<String> {
    let refused = seen.grown(&["Icmp.InDestUnreachs", "Icmp6.InDestUnreachs"]);
    let missed = seen.grown(&["Udp.NoPorts", "Udp6.NoPorts"]);
    if refused < FEW || refused.saturating_mul(2) < missed {
        return None;
    }
    let owners = |one: &UdpEntry| seen.after.owners.get(&one.inode).into_iter().flatten();
    let own: BTreeSet<u32> = seen
        .sockets
        .iter()
        .flat_map(|one| owners(one.entry))
        .copied()
        .collect();
    let at = |port| {
        let sockets = seen.after.sockets.iter().map(|one| one.local);
        sockets.filter(move |local| local.port() == port)
    };
    let takes =
        |local: SocketAddr, to: SocketAddr| local.ip().is_unspecified() || local.ip() == to.ip();
    let has = |to: SocketAddr| at(to.port()).any(|local| takes(local, to));
    let is_for_all = seen.asked.port.is_none() && seen.asked.pid.is_none();
    seen.after.sockets.iter().find_map(|one| {
        let to = one
            .remote
            .filter(|to| is_here(seen, to.ip()) && !has(*to))?;
        let pid = owners(one).find(|pid| own.contains(pid));
        // The last look reads only programs that lost datagrams.
        let process = pid.and_then(|pid| seen.before.processes.get(pid));
        let whose = process.map(|one| format!(" of {} (pid {})", one.name, one.pid));
        let whose = whose.or_else(|| is_for_all.then(String::new))?;
        let elsewhere = at(to.port()).map(|local| local.to_string());
        let who = match named(elsewhere.collect()) {
            none if none.is_empty() => "no program has that port".to_owned(),
            names => format!("the sockets of that port are at {names}"),
        };
        Some(format!("{}{whose} sends to {to}, and {who}", one.local))
    })
}

/// True for an address of this host.
fn is_here(seen: &Observed, ip: IpAddr) -> bool {
    ip.is_loopback() || matches!(ip, IpAddr::V4(ip) if seen.after.addresses.contains(&ip))
}

/// True if this host sends more than twice as many datagrams as its programs get: those are no answers. Clients that
/// went refuse some answers.
pub(super) fn is_one_way(seen: &Observed) -> bool {
    let got = seen.grown(&["Udp.InDatagrams", "Udp6.InDatagrams"]);
    seen.grown(&["Udp.OutDatagrams", "Udp6.OutDatagrams"]) > got.saturating_mul(2)
}

/// Where connected sockets send: the first few.
pub(super) fn remotes<'e>(entries: impl Iterator<Item = &'e UdpEntry>) -> Vec<String> {
    let all = entries.filter_map(|entry| entry.remote);
    let all: BTreeSet<_> = all.filter(|remote| !remote.ip().is_loopback()).collect();
    all.iter().take(4).map(ToString::to_string).collect()
}
