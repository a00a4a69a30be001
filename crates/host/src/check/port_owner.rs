//! The owner of the port in question, and the losses of other ports.

use super::overrun::may_share;
use super::reader::named;
use super::seen::takes_all;
use super::vanished::{UDP, is_udp_silent};
use super::{Check, Confidence, Evidence, Finding, Observed, refused_sends, xdp_socket};
use crate::Station;
use crate::facts::Process;
use mpps_os::netlink::sock_diag::UdpEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

pub(super) const CHECK: Check = Check {
    name: "port_owner",
    reads: "with `--port`: the UDP sockets and TCP listeners of the namespace (sock_diag), those of other \
            namespaces (`/proc/PID/net/udp`), AF_XDP sockets, process groups, SO_REUSEPORT (pidfd_getfd), UDP counters",
    speaks: "with `--port`: no socket has it, or, as remarks: several programs have it, sockets of other \
             ports lost datagrams; without it too: clients refused datagrams of a host with several addresses; with \
             `--pid`: another program's socket gets all",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let Some(port) = seen.asked.port else {
        let is_asked = seen.asked.pid.is_some();
        let found = [several(seen).filter(|_| is_asked), refused(seen)];
        return found.into_iter().flatten().collect();
    };
    let found = [
        nobody(seen, port),
        several(seen),
        others(seen, port),
        refused(seen),
    ];
    found.into_iter().flatten().collect()
}

/// The owner of the port if no UDP socket here has it, as half sentences; empty if none is seen.
pub(super) fn holders(seen: &Observed, port: u16) -> String {
    [
        translated(seen, port),
        outside(seen),
        by_xdp(seen),
        by_tcp(seen, port),
    ]
    .concat()
}

/// Where a rule or a tracked flow sends what comes for the port.
pub(super) fn translated(seen: &Observed, port: u16) -> String {
    let to = seen.after.packet_filter.destination(port);
    to.map_or_else(String::new, |to| {
        format!("; NAT translates port {port} to {to}")
    })
}

/// A process with the port in another network namespace.
fn outside(seen: &Observed) -> String {
    let elsewhere = seen.asked.elsewhere.as_ref();
    elsewhere.map_or_else(String::new, |elsewhere| format!("; {elsewhere}"))
}

/// The AF_XDP sockets and XDP programs that get packets before IP.
pub(super) fn by_xdp(seen: &Observed) -> String {
    let sockets = seen.after.xdp_sockets.iter();
    let sockets =
        sockets.map(|one| format!("; {} gets packets before IP", xdp_socket::name(seen, one)));
    let sockets: BTreeSet<String> = sockets.collect();
    if !sockets.is_empty() {
        return sockets.into_iter().take(2).collect();
    }
    let mut links = seen.after.links.iter();
    let link = links.find(|link| link.native_xdp.is_some());
    link.map_or(String::new(), |link| {
        format!("; an XDP program at {} gets packets before IP", link.name)
    })
}

/// A TCP socket that listens there.
pub(super) fn by_tcp(seen: &Observed, port: u16) -> String {
    let mut listeners = seen.after.listeners.iter();
    let listener = listeners.find(|one| one.local.port() == port);
    listener.map_or(String::new(), |one| {
        format!(
            "; TCP port {port} has a listener at {}, and --port is about UDP",
            one.local
        )
    })
}

/// No socket has the port, and no other check says so: nothing was dropped for want of one.
fn nobody(seen: &Observed, port: u16) -> Option<Finding> {
    let drops = seen.drops.iter().flatten().chain(&seen.drops_closed);
    let is_told = match seen.drops.is_some() {
        true => drops.into_iter().any(|drop| drop.datagrams > 0),
        false => seen.grown(&["Udp.NoPorts", "Udp6.NoPorts"]) > 0,
    };
    // A rule of NAT may translate it to a port that has a socket: a note of the ledger says so.
    let is_unknown =
        seen.translated().is_some() || seen.after.are_sockets_unknown || seen.asked.pid.is_some();
    if is_unknown || is_told || is_udp_silent(seen) || !seen.sockets.is_empty() {
        return None;
    }
    let evidence = seen.counters(&UDP).into_iter();
    let evidence = evidence.filter(|one| one.grown() > 0).collect();
    let mut before = seen.before.sockets.iter();
    let since = match before.any(|one| one.local.port() == port) {
        true => " any more: it was closed meanwhile",
        false => "",
    };
    let holders = holders(seen, port);
    let mut found = Finding::noticed(seen, &CHECK, Station::Udp, evidence);
    found.is_remark = !holders.is_empty();
    let what = format!("no socket of this namespace has UDP port {port}{since}{holders}");
    let remedy = format!(
        "ss -ulpn lists the ports that programs have; start the program that serves port {port}, or ask for \
         another port"
    );
    Some(found.says(what, remedy))
}

/// Several sockets with one address: each datagram to it reaches one of them.
fn several(seen: &Observed) -> Option<Finding> {
    let evidence = seen.counters(&["Udp.InDatagrams", "Udp6.InDatagrams"]);
    let evidence: Vec<Evidence> = evidence.into_iter().filter(|one| one.grown() > 0).collect();
    let mut at: BTreeMap<_, Vec<&UdpEntry>> = BTreeMap::new();
    for entry in seen.after.sockets.iter().filter(|one| one.remote.is_none()) {
        at.entry((entry.local, entry.interface))
            .or_default()
            .push(entry);
    }
    // Each place once, in the order of its sockets.
    let ours = seen.sockets.iter().filter(|one| may_share(one));
    let places = ours.filter_map(|one| at.remove(&(one.entry.local, one.entry.interface)));
    let mut places: Vec<Vec<&UdpEntry>> = places.collect();
    places.iter_mut().for_each(|place: &mut Vec<&UdpEntry>| {
        let mut inodes = BTreeSet::new();
        place.retain(|one| inodes.insert(one.inode));
    });
    places.retain(|place| place.len() > 1);
    if evidence.is_empty() {
        return None;
    }
    let mut found = Finding::noticed(seen, &CHECK, Station::Socket, evidence);
    found.is_remark = true;
    let starved = places.iter().find_map(|place| starved(seen, place));
    if let Some((what, is_all)) = starved {
        // Copies of groups reach all of them.
        found.is_remark = !is_all || seen.asked.pid.is_none() || !seen.after.groups.is_empty();
        let remedy = "end the program that should not have the port; or, if both should read, give each its own \
                      address or port, or set SO_REUSEPORT on both before bind, which shares the flows";
        return Some(found.says(what, remedy).with(Confidence::Likely));
    }
    let (local, programs) = places.iter().find_map(|place| {
        let programs: BTreeMap<u32, String> = place
            .iter()
            .filter_map(|one| {
                let process = owner(seen, one)?;
                // The processes of one server are one group.
                Some((process.group, holder(seen, one)))
            })
            .collect();
        (programs.len() > 1).then(|| (place[0].local, programs))
    })?;
    let count = programs.len();
    let names: Vec<String> = programs.into_values().take(4).collect();
    let what = format!(
        "{count} programs have UDP {local}: {}; a datagram to one address reaches only one of them: flows are \
         shared (SO_REUSEPORT), or the program that came last gets all (SO_REUSEADDR); copies of broadcasts and \
         groups reach all",
        names.join(", ")
    );
    let remedy = format!(
        "stop the program that should not have port {port}: ss -ulpn sport = :{port}",
        port = local.port()
    );
    Some(found.says(what, remedy).with(Confidence::Likely))
}

/// The address that a client asked, and the other address of the answers, where both are tracked.
fn answers_elsewhere(seen: &Observed) -> Option<(SocketAddr, SocketAddr)> {
    let flows = &seen.after.packet_filter.flows;
    let has = |port| seen.asked.port.is_none_or(|asked| asked == port);
    let unanswered = flows.iter().filter(|flow| !flow.is_answered);
    let mut asked = unanswered.filter(|flow| has(flow.to.port()) && !flow.is_translated());
    asked.find_map(|asked| {
        let mut answers = flows
            .iter()
            .filter(|flow| flow.from.port() == asked.to.port());
        let answers = answers.find(|flow| flow.to == asked.from && flow.from != asked.to)?;
        Some((asked.to, answers.from))
    })
}

/// The sockets at one place that get nothing, as the last bound gets all (`udp4_lib_lookup2` in
/// net/ipv4/udp.c), in words; and whether all sockets in question there are of them.
fn starved(seen: &Observed, place: &[&UdpEntry]) -> Option<(String, bool)> {
    let shares = |one: &UdpEntry| seen.after.port_sharing.get(&one.inode).copied();
    let (last, earlier) = place.split_first()?;
    let is_alone = !shares(last)?;
    let earlier = earlier
        .iter()
        .filter(|one| is_alone || shares(one) == Some(false));
    let earlier: Vec<&&UdpEntry> = earlier.collect();
    let names: Vec<String> = earlier.iter().map(|one| holder(seen, one)).collect();
    if names.is_empty() {
        return None;
    }
    let asked = seen.sockets.iter().map(|one| one.entry);
    let mut asked = asked.filter(|one| one.local == last.local);
    let is_all = asked.all(|one| earlier.iter().any(|other| other.inode == one.inode));
    let what = format!(
        "{} gets no datagram that comes to one address, because {} bound UDP {} later without sharing it \
         (SO_REUSEADDR on both, SO_REUSEPORT not); copies of broadcasts and groups reach all",
        named(names),
        holder(seen, last),
        last.local
    );
    Some((what, is_all))
}

/// A process that has the socket.
pub(super) fn owner<'a>(seen: &Observed<'a>, one: &UdpEntry) -> Option<&'a Process> {
    let pid = seen.after.owners.get(&one.inode)?.first()?;
    let known = [seen.after, seen.before].map(|facts| facts.processes.get(pid));
    known.into_iter().flatten().next()
}

fn holder(seen: &Observed, one: &UdpEntry) -> String {
    owner(seen, one).map_or_else(
        || "a process that is not seen".to_owned(),
        |process| format!("{} (pid {})", process.name, process.pid),
    )
}

/// Datagrams of this host that others refused, where a socket of all addresses may answer from another one
/// than a client asked. A client limits these messages to about one a second (`icmp_ratelimit`).
fn refused(seen: &Observed) -> Option<Finding> {
    if let Some((asked, answers)) = answers_elsewhere(seen) {
        let what = format!(
            "a client asked {asked}, and this host answered from {answers}: a client that expects the address it \
             asked, and its firewall, do not take that"
        );
        let remedy =
            "answer from the address that was asked: a socket for each address, or IP_PKTINFO";
        let evidence = seen.counters(&["Udp.OutDatagrams"]);
        let mut found = Finding::noticed(seen, &CHECK, Station::Application, evidence);
        found.is_remark = true;
        return Some(found.says(what, remedy).with(Confidence::Likely));
    }
    let evidence = seen.counters(&["Icmp.InDestUnreachs", "Udp.OutDatagrams"]);
    let addresses = &seen.after.addresses;
    let entries = seen.sockets.iter().map(|socket| socket.entry);
    let is_asked = seen.asked.port.is_some();
    // Without a port a client's socket is none that answers.
    let is_clients = |port: u16| {
        seen.after
            .client_ports
            .as_ref()
            .is_some_and(|all| all.contains(&port))
    };
    let mut entries = entries.filter(|one| is_asked || !is_clients(one.local.port()));
    // A program that passes on what it gets has a socket for that.
    let onward = match is_asked {
        true => refused_sends::remotes(seen.after.sockets.iter()),
        false => Vec::new(),
    };
    let is_told = addresses.len() > 1 || !onward.is_empty() || refused_sends::is_one_way(seen);
    if !is_told
        || !entries.any(takes_all)
        || evidence.len() < 2
        || evidence.iter().any(|one| one.grown() == 0)
        || refused_sends::dead_end(seen).is_some()
    {
        return None;
    }
    let onward = match onward.is_empty() {
        true => String::new(),
        false => format!(
            "no program has the port that a socket here sends to ({}); or ",
            onward.join(", ")
        ),
    };
    let all: Vec<String> = addresses.iter().take(4).map(ToString::to_string).collect();
    let (other, answer) = match all.len() {
        0 | 1 => Default::default(),
        _ => (
            format!(
                ", or it asked another address of this host than the answer has: {}",
                all.join(", ")
            ),
            ": if their source is not the address that the client asked, bind a socket to each address, or answer from \
             the one asked (IP_PKTINFO)",
        ),
    };
    let what = format!(
        "datagrams of this host were refused (ICMP destination unreachable): {onward}the client closed its port, or \
         a NAT on the way forgot its flow{other}"
    );
    let remedy = format!("tcpdump -ni any 'icmp[0] == 3' shows the refused ones{answer}");
    let mut found = Finding::noticed(seen, &CHECK, Station::Application, evidence);
    found.is_remark = true;
    Some(found.says(what, remedy).with(Confidence::Possible))
}

/// The drops of sockets with other ports, which no finding about this one has.
fn others(seen: &Observed, port: u16) -> Option<Finding> {
    let before = seen.before.sockets.iter();
    let before: BTreeMap<u32, u32> = before.map(|one| (one.inode, one.drops)).collect();
    let lost = |one: &UdpEntry| {
        let before = before.get(&one.inode).copied();
        let new = match seen.before.are_sockets_unknown {
            true => one.drops,
            false => 0,
        };
        let before = before.unwrap_or(new);
        let grown = one.drops.wrapping_sub(before);
        let source = format!(
            "drops of socket {} (sock_diag, inode {})",
            one.local, one.inode
        );
        Evidence::new(source, before.into(), u64::from(before) + u64::from(grown))
    };
    let others = seen.after.sockets.iter();
    let others = others.filter(|one| one.local.port() != port);
    let mut lossy: Vec<(&UdpEntry, Evidence)> = others.map(|one| (one, lost(one))).collect();
    lossy.retain(|(_, lost)| lost.grown() > 0);
    lossy.sort_by_key(|(_, lost)| std::cmp::Reverse(lost.grown()));
    lossy.dedup_by_key(|(one, _)| one.inode);
    let (most, _) = lossy.first()?;
    let what = format!(
        "sockets of other ports dropped datagrams, {} most of them; none of these was for port {port}",
        most.local
    );
    let remedy = format!("mpps doctor --port {} shows why", most.local.port());
    let evidence: Vec<Evidence> = lossy.into_iter().map(|(_, lost)| lost).collect();
    let mut found = Finding::lost(seen, &CHECK, Station::Socket, evidence)?;
    found.evidence.truncate(4);
    found.is_remark = true;
    Some(found.says(what, remedy))
}
