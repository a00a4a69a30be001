//! Datagrams for a port without a listener.

use super::seen::takes_all;
use super::{
    Check, Confidence, Finding, Observed, conntrack, firewall, port_owner, refused_sends,
    unspecified, virtual_device,
};
use crate::Station;
use crate::ledger::loss::{NO_MEMBER, NO_SOCKET};
use mpps_os::netlink::netfilter_rule::{NetfilterAction, NetfilterRule};
use mpps_os::netlink::sock_diag::UdpEntry;
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "no_listener",
    reads: "`Udp.NoPorts`, `Udp6.NoPorts`, `Udp.IgnoredMulti`, `Udp6.IgnoredMulti`; with `--port` the drop \
            reason `NO_SOCKET`, if it can be read, rules and tracked flows that translate the port, and sockets connected to it",
    speaks: "no socket took datagrams, with `--port` those to it or possibly answers from it; broadcast and multicast may be remarks",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let own = match elsewhere(seen).is_empty() {
        true => finding(seen, &CHECK),
        false => None,
    };
    let own = own.or_else(|| redirected(seen)).or_else(|| answers(seen));
    own.into_iter().chain(ignored(seen)).collect()
}

/// Datagrams to all hosts or a group, which the kernel ignores without a socket: nothing is wrong,
/// unless they came to the port in question.
fn ignored(seen: &Observed) -> Option<Finding> {
    let mut found = Finding::counted(seen, &CHECK, &NO_MEMBER)?;
    let ours = seen
        .reason(unspecified::REASON)
        .map_or(0, |one| one.grown());
    let ours = seen.asked.port.map(|port| (port, ours.min(found.count)));
    let ours = ours.filter(|&(_, ours)| ours > 0);
    let whose = match ours {
        Some((port, ours)) => {
            found = found.of(ours, seen);
            format!(" for UDP port {port}")
        }
        None => {
            found.is_remark = true;
            String::new()
        }
    };
    let what = format!(
        "datagrams came to all hosts or to a group{whose}, and no socket takes them{}{}",
        some(seen),
        joined(seen)
    );
    let shows = "tcpdump -ni any 'udp and multicast' shows them";
    let remedy = match ours.is_some() && !seen.sockets.is_empty() {
        true => remedies(
            seen,
            &format!(
                "a socket that is bound to an address of this host gets none of them: bind it to 0.0.0.0, to \
                 [::] or to the group's address, and join the group with that socket (with IP_MULTICAST_ALL at 0 \
                 those of other sockets do not count), at the interface that they come by, for their source: {shows}"
            ),
        ),
        false => format!(
            "none, if no program here wants them; otherwise bind it to 0.0.0.0, or join the group: {shows}{}",
            broadcasts_pass(seen)
        ),
    };
    Some(found.says(what, remedy).with(Confidence::Likely))
}

/// The settings that have a router pass broadcasts on to the network they are for; empty if they are none.
fn broadcasts_pass(seen: &Observed) -> &'static str {
    let is = |name: &str, value| seen.after.settings.get(name) == Some(&value);
    let routes = is("net.ipv4.ip_forward", 1) && is("net.ipv4.conf.all.bc_forwarding", 0);
    match routes && seen.grown(&["IpExt.InBcastPkts"]) > 0 {
        true => {
            "; or, if they are for a network behind this host (wake-on-LAN): sysctl -w \
             net.ipv4.conf.all.bc_forwarding=1, and the same of the interface that they come by: \
             net.ipv4.conf.IF.bc_forwarding=1"
        }
        false => "",
    }
}

/// The sockets in question that take only some of what comes to their port, as a half sentence.
fn some(seen: &Observed) -> String {
    let entries = seen.sockets.iter().map(|socket| socket.entry);
    match places(seen, entries.filter(|entry| !takes_all(entry))).join(", ") {
        none if none.is_empty() => String::new(),
        some => format!("; these sockets take only some: {some}"),
    }
}

/// The partner of several of these sockets, or of a single connected socket: its answers may come from another of
/// its addresses. Empty for none.
fn other_source<'e>(entries: impl Iterator<Item = &'e UdpEntry>) -> String {
    let mut partners: Vec<_> = entries.filter_map(|one| one.remote).collect();
    partners.sort();
    let twice = partners.windows(2).find(|two| two[0] == two[1]);
    let only = (partners.len() == 1).then_some(&partners[..]);
    twice.or(only).map_or_else(String::new, |same| {
        let (partner, port) = (same[0], same[0].port());
        let count = if partners.len() == 1 { "a socket here waits" } else { "several sockets wait" };
        format!(
            "{count} for answers of {partner} only: if its answers come from an address that was not asked \
             (tcpdump -ni any udp src port {port}), it has to answer from the one that was"
        )
    })
}

/// The groups that sockets joined, as a half sentence: `; joined here: 239.1.1.1 at eth1`.
pub(super) fn joined(seen: &Observed) -> String {
    let groups = seen.after.groups.iter().map(|one| {
        let sources: Vec<String> = one.only_from.iter().map(ToString::to_string).collect();
        let only = match sources.is_empty() {
            true => String::new(),
            false => format!(" (only from {})", sources.join(" and ")),
        };
        format!("{} at {}{only}", one.group, one.interface)
    });
    match short(groups.collect()).join(", ") {
        none if none.is_empty() => String::new(),
        groups => format!("; joined here: {groups}"),
    }
}

/// How many sockets are listed.
const PLACES: usize = 4;

/// The sockets with the port in question, if none of them takes all datagrams of an address family.
/// Only a family with datagrams that found no socket counts. Empty without a port.
pub(super) fn elsewhere(seen: &Observed) -> Vec<String> {
    if seen.asked.port.is_none() || seen.sockets.is_empty() || is_reopened(seen) {
        return Vec::new();
    }
    let all_taken = |is_v6: bool| {
        let mut entries = seen.sockets.iter().map(|socket| socket.entry);
        entries.any(|entry| {
            let is_of = match entry.local.is_ipv6() {
                true => is_v6 || !entry.only_v6,
                false => !is_v6,
            };
            is_of && takes_all(entry)
        })
    };
    let missed = |name: &str, is_v6| seen.grown(&[name]) > 0 && !all_taken(is_v6);
    if !missed("Udp.NoPorts", false) && !missed("Udp6.NoPorts", true) {
        return Vec::new();
    }
    places(seen, seen.sockets.iter().map(|socket| socket.entry))
}

fn places<'e>(seen: &Observed, entries: impl Iterator<Item = &'e UdpEntry>) -> Vec<String> {
    let mut places: Vec<String> = entries
        .map(|entry| match entry.remote {
            Some(remote) => format!("{} (only from {remote})", entry.local),
            None if entry.interface > 0 => {
                let name = match seen.interface_name(entry.interface) {
                    Some(name) => name.to_owned(),
                    None => format!("interface number {}, which is gone", entry.interface),
                };
                format!("{} (only at {name})", entry.local)
            }
            None => entry.local.to_string(),
        })
        .collect();
    places.dedup();
    short(places)
}

/// The remedies where sockets of the port take only some of its datagrams.
pub(super) fn remedies(seen: &Observed, bind: &str) -> String {
    let entries = || seen.sockets.iter().map(|one| one.entry);
    let is_gone = |entry: &UdpEntry| is_gone(seen, entry);
    let connected = entries().find(|entry| entry.remote.is_some());
    let is_bound = |entry: &UdpEntry| entry.remote.is_none() && !is_gone(entry);
    let gone = entries().any(is_gone).then(|| GONE.to_owned());
    let connected = connected.map(|entry| {
        format!(
            "a connected socket takes only what its partner sends, from that address and that port: {} shows the \
             true source of these; answer from the address and port that was asked, or use a socket that is not \
             connected (sendto, recvfrom)",
            format_args!("tcpdump -ni any udp dst port {}", entry.local.port())
        )
    });
    let bind = entries().any(is_bound).then(|| bind.to_owned());
    let all = [gone, connected, by_chance(seen), bind];
    let all: Vec<String> = all.into_iter().flatten().collect();
    all.join("; or ")
}

/// The remedy where a client may have got the port of a server that then could not start.
fn by_chance(seen: &Observed) -> Option<String> {
    let port = seen.asked.port?;
    let is_client = seen.sockets.iter().all(|one| one.entry.remote.is_some());
    let range = seen.after.client_ports.as_ref()?;
    (is_client && range.contains(&port)).then(|| {
        format!(
            "if a client got port {port} by chance (net.ipv4.ip_local_port_range), and its server could not start \
             (EADDRINUSE): end the client, start the server, and keep the port for it: sysctl -w \
             net.ipv4.ip_local_reserved_ports={port}, beside those that are there"
        )
    })
}

const GONE: &str = "restart the program: its socket is bound to the number of an interface (SO_BINDTODEVICE), and \
                    that interface was deleted, made anew or moved to another namespace; a program that follows \
                    its interface binds again";

/// True if a socket is bound to an interface that is not here any more.
pub(super) fn is_gone(seen: &Observed, entry: &UdpEntry) -> bool {
    let is_missing = seen.interface_name(entry.interface).is_none();
    entry.interface > 0 && is_missing && !seen.after.links.is_empty()
}

/// The first few, and how many more there are.
fn short(mut all: Vec<String>) -> Vec<String> {
    let more = all.len().saturating_sub(PLACES);
    all.truncate(PLACES);
    all.extend((more > 0).then(|| format!("{more} more")));
    all
}

/// Datagrams that NAT translates to another port of this host, which no socket has.
fn redirected(seen: &Observed) -> Option<Finding> {
    let port = seen.asked.port?;
    let to = seen.after.packet_filter.translated_here(port)?;
    let is_of_others = seen.reason(NO_SOCKET.reasons[0])?.grown() == 0;
    let mut sockets = seen.after.sockets.iter();
    let is_there = sockets.any(|one| one.local.port() == to);
    let found = Finding::counted(seen, &CHECK, &NO_SOCKET).filter(|_| is_of_others && !is_there)?;
    let what = format!(
        "datagrams came for UDP port {port}, NAT translates it to port {to} of this host, and no socket has that"
    );
    let remedy = format!(
        "start the program that serves port {to}, or delete the rule: {}",
        firewall::rules(seen)
    );
    Some(found.says(what, remedy).with(Confidence::Likely))
}

/// Datagrams for other ports that found no socket, while sockets here wait for answers from this port of others.
fn answers(seen: &Observed) -> Option<Finding> {
    let port = seen.asked.port?;
    let is_of_others = seen.reason(NO_SOCKET.reasons[0])?.grown() == 0;
    let asked = |one: &&UdpEntry| one.remote.is_some_and(|remote| remote.port() == port);
    let why = other_source(seen.after.sockets.iter().filter(asked));
    let found =
        Finding::counted(seen, &CHECK, &NO_SOCKET).filter(|_| is_of_others && !why.is_empty())?;
    let what = format!(
        "datagrams came to UDP, and no socket took them: none is known to be for port {port}, and they may be answers \
         from it: {why}"
    );
    let remedy = "tcpdump -ni any 'icmp[0] == 3' shows the refusals, and in them both ports and addresses; or they are \
                  answers that came too late";
    Some(found.says(what, remedy).with(Confidence::Possible))
}

/// The finding about datagrams that found no socket.
pub(super) fn finding(seen: &Observed, check: &Check) -> Option<Finding> {
    let Some(port) = seen.asked.port else {
        let found = Finding::counted(seen, check, &NO_SOCKET)?;
        let (tunnel, shows) = virtual_device::tunnels(seen, Station::Udp);
        if let Some(said) = refused_sends::dead_end(seen) {
            let what = format!("datagrams came to UDP, and no socket took them: {said}");
            return Some(
                found
                    .says(what, refused_sends::DEAD_END)
                    .with(Confidence::Likely),
            );
        }
        let (forgotten, keep) = conntrack::forgotten(seen).unwrap_or_default();
        let waiting = other_source(seen.sockets.iter().map(|one| one.entry));
        return Some(found.because(&[forgotten, waiting]).says(
            format!("datagrams came to UDP, and no socket took them{}{tunnel}", some(seen)),
            format!(
                "mpps doctor --port PORT shows whether it is yours; tcpdump -ni any 'icmp[0] == 3' shows the \
                 refusals, and in them the port{shows}{keep}"
            ),
        ));
    };
    let (evidence, confidence) = match seen.reason("NO_SOCKET") {
        Some(ours) => (vec![ours], Confidence::Certain),
        // The counter is of all ports, and this one has its socket.
        None if !seen.sockets.is_empty() => return None,
        None => (seen.counters(NO_SOCKET.counters), Confidence::Possible),
    };
    let found = Finding::lost(seen, check, Station::Udp, evidence)?;
    let came = format!("datagrams came for UDP port {port}, and no socket");
    let start = match seen.asked.elsewhere {
        Some(_) => format!(
            "lead the datagrams there: publish port {port} of the container, route to the address of that namespace, or \
             start the program in this one"
        ),
        None => {
            format!("start the program that serves port {port}, or have senders stop: ss -ulpn")
        }
    };
    if is_reopened(seen) {
        let what = format!(
            "{came} had it at that moment: {}",
            reopened(seen).unwrap_or_default()
        );
        return Some(found.says(what, REOPENED).with(Confidence::Likely));
    }
    if seen.sockets.is_empty() {
        let holders = port_owner::holders(seen, port);
        if let Some((why, remedy, confidence)) = unpublished(seen, port) {
            let what = format!("{came} has it here{holders}{why}");
            return Some(found.says(what, remedy).with(confidence));
        }
        return Some(
            found
                .says(format!("{came} has it{holders}"), start)
                .with(confidence),
        );
    }
    if are_new(seen) {
        let what = format!("{came} took them, though one has it now");
        return Some(found.says(what, start).with(Confidence::Likely));
    }
    let takers = places(seen, seen.sockets.iter().map(|socket| socket.entry)).join(", ");
    let Some((why, remedy)) = vrf(seen).or_else(|| lookup(seen)) else {
        let what = format!("{came} took them; {takers} was there, and the cause is not known");
        let remedy = "a BPF program may choose sockets (SO_ATTACH_REUSEPORT_EBPF, or sk_lookup): bpftool link; \
                      or the socket was bound, connected or closed meanwhile: ss -ulpn";
        return Some(found.says(what, remedy).with(Confidence::Possible));
    };
    let what = format!("{came} took them; {takers} was there{why}");
    Some(found.says(what, remedy).with(Confidence::Likely))
}

/// The programs that may have refused the datagrams a socket, as a half sentence; the remedy.
fn lookup(seen: &Observed) -> Option<(String, String)> {
    let programs = &seen.after.lookup_programs;
    let why = format!(
        ", and a BPF program chooses sockets in this namespace (sk_lookup): {}",
        programs.join(", ")
    );
    let remedy = "bpftool link list shows what holds it, and bpftool map dump its sockets: end that program, or update its \
                  map; bpftool link detach id LINK takes it away";
    (!programs.is_empty()).then(|| (why, remedy.to_owned()))
}

/// Why datagrams do not reach a program in another namespace, as a half sentence; its remedy.
fn unpublished(seen: &Observed, port: u16) -> Option<(String, String, Confidence)> {
    let filter = &seen.after.packet_filter;
    let rules = firewall::rules(seen);
    let publish = format!(
        "publish the port for UDP too: docker run -p {port}:{port}/udp, or `protocol: UDP` in a Kubernetes Service"
    );
    let delete = format!("conntrack -D -p udp --dport {port}");
    let is_elsewhere = seen.asked.elsewhere.is_some();
    let forwards = conntrack::forwards(seen);
    let [udp, tcp] = [17, 6].map(|protocol| filter.translations(protocol, port));
    let flows = filter.flows.iter();
    let mut flows = flows.filter(|flow| flow.to.port() == port && !flow.is_translated());
    let is_own = |rule: &&NetfilterRule| match rule.action {
        NetfilterAction::Translate { address, .. } => {
            flows.clone().any(|flow| address == Some(flow.from.ip()))
        }
        NetfilterAction::Queue { .. } => false,
    };
    let own = udp.iter().any(is_own);
    let is_tracked = flows.next().is_some();
    Some(match (udp.first(), is_tracked) {
        (Some(_), true) if own => (
            "; their sender is the container that the rule leads to: a rule that leaves out its interface, as Docker's \
             do (`! -i docker0`), does not translate what comes from there; or their flow is older than the rule"
                .to_owned(),
            format!(
                "have the client in it ask the container's own address or name; or a rule for that interface too, with \
                 MASQUERADE of what returns to it: {rules}; or {delete}"
            ),
            Confidence::Possible,
        ),
        (Some(_), true) => (
            "; their flow was tracked before the rule was there, and keeps its way, or the rule is for another \
             address or interface, or in a chain that they do not pass"
                .to_owned(),
            format!("{delete}; or {rules} shows the conditions of the rule"),
            Confidence::Possible,
        ),
        (Some(_), false) => (
            "; the rule seems to be for another address or interface".to_owned(),
            format!("{rules} shows the conditions of the rule"),
            Confidence::Possible,
        ),
        (None, _) if !tcp.is_empty() => (
            format!("; a rule translates TCP port {port}, and none UDP port {port}"),
            publish,
            Confidence::Likely,
        ),
        (None, _) if is_elsewhere && filter.translates() => (
            "; either no rule translates this UDP port, or their flow was tracked before the rule was there"
                .to_owned(),
            format!("{publish}; or {delete}"),
            Confidence::Possible,
        ),
        // A container publishes nothing for others.
        (None, _) if is_elsewhere && forwards != Some(false) => (
            String::new(),
            format!("{publish}; or have senders use the address of that namespace"),
            Confidence::Likely,
        ),
        (None, _) => return None,
    })
}

/// True if no socket of the port was there at the first moment.
fn are_new(seen: &Observed) -> bool {
    let is_new = |inode| !seen.before.sockets.iter().any(|one| one.inode == inode);
    seen.sockets.iter().all(|one| is_new(one.entry.inode))
}

/// From this number of new sockets on a program opens them again and again.
const NEW_SOCKETS: usize = 3;

/// The remedy.
pub(super) const REOPENED: &str = "open one socket, keep it, and read it in a loop; or, if the program ends and is \
                                   started again, see its log: journalctl -u UNIT";

/// True if sockets of the port come and go, and none stays.
fn is_reopened(seen: &Observed) -> bool {
    seen.asked.port.is_some() && seen.after.new_sockets >= NEW_SOCKETS && are_new(seen)
}

/// The same in words.
pub(super) fn reopened(seen: &Observed) -> Option<String> {
    is_reopened(seen).then(|| {
        format!(
            "{} or more sockets of the port came and went meanwhile, as where a program opens one for each receive, \
             or is started again and again",
            seen.after.new_sockets
        )
    })
}

/// A VRF whose packets sockets outside of it do not get (Documentation/networking/vrf.rst), as a half
/// sentence, and its remedy.
pub(super) fn vrf(seen: &Observed) -> Option<(String, String)> {
    let mut cards = seen.after.cards.iter();
    let (name, _) = cards.find(|(_, card)| card.driver == "vrf")?;
    let is_shared = seen.after.settings.get(L3MDEV) != Some(&0);
    let may = seen.sockets.iter().any(|one| one.entry.interface == 0);
    (may && !is_shared).then(|| {
        let what = format!(
            ", but packets that come by interfaces of the VRF {name} reach only sockets that are bound to it \
             ({L3MDEV} is 0)"
        );
        let remedy = format!(
            "sysctl -w {L3MDEV}=1, or start the program in the VRF: ip vrf exec {} PROGRAM",
            ShellWord::new(name)
        );
        (what, remedy)
    })
}

/// Whether sockets that are bound to no interface get the packets of VRFs.
const L3MDEV: &str = "net.ipv4.udp_l3mdev_accept";
