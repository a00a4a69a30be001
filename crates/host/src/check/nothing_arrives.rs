//! No packet at all: where they stop.

use super::drop_reasons;
use super::vanished::{gap, is_udp_silent, packets_to_strange_groups, unread};
use super::{
    Check, Confidence, Evidence, Finding, Observed, address, drop_reason, far_end, firewall,
    fragments, link_fault, no_listener, port_owner,
};
use crate::Station;
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::netlink::sock_diag::UdpEntry;
use mpps_os::text::ShellWord;
use std::net::IpAddr;

pub(super) const CHECK: Check = Check {
    name: "nothing_arrives",
    reads: "each interface's carrier, `rx_packets` and `tx_packets`, `Ip.InReceives`, `Ip.ForwDatagrams`, fragments, all UDP \
            counters, drop reasons of other packets, the port's sockets, its other holders, \
            `arp_ignore`, `rp_filter`, and rules and tracked flows that translate it",
    speaks: "with `--port`: the namespace received and lost no UDP datagram; names the first silent station. A \
             remark if a program got the packets before IP or by TCP, they were forwarded or bridged, or, without `--port`, \
             a group is joined and no interface received anything",
    run,
};

/// The packets that reached each station, without IPv6's neighbour discovery and listener reports, which come
/// unasked.
struct Arrivals<'s, 'a> {
    seen: &'s Observed<'a>,
    port: u16,
    links: Vec<Evidence>,
    /// Packets at the interfaces.
    wire: u64,
    ip: Vec<Evidence>,
    /// Packets at IP.
    at_ip: u64,
}

/// From 1 on an interface answers ARP for its own addresses only (Documentation/networking/ip-sysctl.rst).
const ARP_IGNORE: &str = "net.ipv4.conf.all.arp_ignore";

/// Where packets stop.
struct LastStation {
    station: Station,
    evidence: Vec<Evidence>,
    /// How the sentence begins.
    lead: &'static str,
    what: String,
    remedy: String,
    is_remark: bool,
}

/// The places where packets can stop, in their order. The first that knows something speaks.
const STOPS: [fn(&Arrivals) -> Option<LastStation>; 9] = [
    no_interface,
    no_packet,
    taken_before_ip,
    bridged,
    other_frames,
    forwarded,
    unfinished,
    dropped,
    other_protocol,
];

/// Reasons for dropping packets that do not have the port when they are dropped.
const OTHERWISE: [&str; 4] = [
    firewall::REASON,
    "IP_LOCALNET",
    "NOT_SPECIFIED@ip_forward",
    drop_reason::BRIDGE,
];

/// The cause of such a reason of this many packets, and its remedy.
fn otherwise(seen: &Observed, reason: &str, count: u64) -> (String, String) {
    if let Some(fault) = link_fault::of_isolated(seen).filter(|_| reason == drop_reason::BRIDGE) {
        return (fault.what, fault.remedy);
    }
    let row = drop_reasons::row(reason).filter(|_| reason != firewall::REASON);
    let known = row.and_then(|row| {
        Some((
            (*row.causes.first()?).to_owned(),
            (*row.remedies.first()?).to_owned(),
        ))
    });
    let rule = || {
        let (what, rules) = (
            "the firewall of this host dropped them",
            firewall::rules(seen),
        );
        // Requests of other hosts come to groups, and none was delivered.
        let is_discovery =
            seen.grown(&["Ip6.InMcastPkts"]) >= count && seen.grown(&["Icmp6.InMsgs"]) == 0;
        match is_discovery {
            true => (
                format!(
                    "{what}, as neighbour discovery of IPv6 may be, and without that other hosts cannot send here"
                ),
                format!(
                    "nft insert rule TABLE CHAIN icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert, \
                     nd-router-advert, packet-too-big }} accept, or ip6tables -I INPUT -p ipv6-icmp -j ACCEPT; {rules}"
                ),
            ),
            false => (what.to_owned(), rules),
        }
    };
    known.unwrap_or_else(rule)
}

fn run(seen: &Observed) -> Vec<Finding> {
    let groups = groups(seen);
    let (port, stops) = match seen.asked.port {
        Some(port) => (port, &STOPS[..]),
        // A host may be idle, but a member of a group waits.
        None if !groups.is_empty() => (0, &STOPS[1..2]),
        None => return Vec::new(),
    };
    let arrivals = Arrivals::of(seen, port);
    let stops = stops.iter().filter(|_| is_silent(seen));
    let Some(stop) = stops.map(|stop| stop(&arrivals)).find_map(|stop| stop) else {
        return Vec::new();
    };
    let listens = match seen.sockets.len() {
        _ if port == 0 => String::new(),
        0 => match &seen.asked.elsewhere {
            Some(elsewhere) => format!("no socket has UDP port {port} here ({elsewhere}), and "),
            None => format!("no socket has UDP port {port}, and "),
        },
        // Of an engine's proxy, where a rule passes it by.
        _ => seen
            .asked
            .elsewhere
            .as_ref()
            .map_or_else(String::new, |elsewhere| format!("{elsewhere}; ")),
    };
    let evidence = stop.evidence.into_iter();
    let evidence = evidence.chain(seen.counter("Udp.InDatagrams"));
    let mut found = Finding::noticed(seen, &CHECK, stop.station, evidence.collect());
    found.is_remark = stop.is_remark || port == 0;
    let (groups, querier) = match stop.is_remark || groups.is_empty() {
        true => ("", String::new()),
        false => (&*groups, format!("; or {QUERIER}")),
    };
    let what = format!("{}: {listens}{}{groups}", stop.lead, stop.what);
    let remedy = stop.remedy + &querier;
    vec![found.says(what, remedy).with(Confidence::Likely)]
}

/// The groups that sockets joined, if the way to any of them may depend on a switch, as a half sentence.
fn groups(seen: &Observed) -> String {
    let is_local = |group: IpAddr| match group {
        IpAddr::V4(group) => group.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(group) => group.segments()[0] == 0xff02,
    };
    let is_any = seen.after.groups.iter().any(|one| !is_local(one.group));
    match is_any && !seen.sockets.is_empty() {
        true => no_listener::joined(seen),
        false => String::new(),
    }
}

/// Why datagrams to a joined group may not come.
const QUERIER: &str = "for a joined group: a switch or bridge that snoops IGMP or MLD, with no querier, forgets members \
                       after minutes: switch a querier on there (of Linux: ip link set dev BRIDGE type bridge \
                       mcast_querier 1, or mcast_snooping 0); and does the sender send by this network, with a TTL for \
                       the routers in between, or, if it is on this host, with IP_MULTICAST_LOOP?";

impl<'s, 'a> Arrivals<'s, 'a> {
    fn of(seen: &'s Observed<'a>, port: u16) -> Self {
        let links = seen.interfaces();
        let links = links.filter_map(|name| seen.link(name, "rx_packets"));
        let links: Vec<_> = links.collect();
        // Packets from a host to itself are no traffic, unless loopback was asked for.
        let is_asked = links.len() == 1 && seen.after.links.len() > 1;
        let links: Vec<_> = links
            .into_iter()
            .filter(|one| is_asked || !one.source.starts_with("lo "))
            .collect();
        let ip = seen.counters(&["Ip.InReceives", "Ip6.InReceives"]);
        let delivered = seen.grown(&["Ip6.InDelivers"]);
        let chatter = seen.grown(&["Icmp6.InMsgs"]).min(delivered);
        let chatter = chatter.saturating_add(packets_to_strange_groups(seen));
        Self {
            seen,
            port,
            wire: Evidence::sum(&links).saturating_sub(chatter),
            at_ip: Evidence::sum(&ip).saturating_sub(chatter),
            links,
            ip,
        }
    }

    fn stop(
        &self,
        station: Station,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> LastStation {
        let evidence = match station {
            Station::Wire => &self.links,
            _ => &self.ip,
        };
        LastStation {
            station,
            evidence: evidence.clone(),
            lead: match station {
                Station::Wire => "nothing arrived",
                _ => "nothing reached UDP",
            },
            what: what.into(),
            remedy: remedy.into(),
            is_remark: false,
        }
    }
}

fn no_interface(came: &Arrivals) -> Option<LastStation> {
    let stop = LastStation {
        evidence: came.ip.clone(),
        ..came.stop(
            Station::Wire,
            "there is no interface here but loopback",
            "ip link show; for a container: mpps doctor --netns PID",
        )
    };
    came.links.is_empty().then_some(stop)
}

fn no_packet(came: &Arrivals) -> Option<LastStation> {
    let carrier = without_carrier(came.seen);
    let besides = match Evidence::sum(&came.links) {
        0 => "",
        _ => " except neighbour discovery and listener reports of IPv6",
    };
    let beyond = far_end::beyond(came.seen).filter(|_| carrier.is_empty());
    let deaf = || link_fault::deaf_to_host(came.seen);
    let (way, look) = beyond.or_else(deaf).unwrap_or_else(|| {
        let look = match down(came.seen) {
            Some(name) => format!("ip link set dev {} up", ShellWord::new(name)),
            None => "ip link show: is it up, with a carrier? Does the sender reach this host: the switch, the \
                     route, its table of neighbours? A macvlan or ipvlan on a card here does not"
                .to_owned(),
        };
        (String::new(), look)
    });
    let unused = came.seen.after.unused_addresses.join(", ");
    let (unused, look) = match unused.is_empty() {
        true => (unused, look),
        false => (
            format!("; the kernel does not use {unused}"),
            format!("{}; otherwise {look}", address::UNUSED),
        ),
    };
    let what = format!("no interface received any packet{besides}{carrier}{unused}{way}");
    let stop = came.stop(Station::Wire, what, look);
    (came.wire == 0).then_some(stop)
}

/// A program at the interface receives or sends on: that is its job.
fn taken_before_ip(came: &Arrivals) -> Option<LastStation> {
    let taker = port_owner::by_xdp(came.seen);
    let taken = came.wire.saturating_sub(came.at_ip);
    (taken > came.at_ip && !taker.is_empty()).then(|| LastStation {
        is_remark: true,
        ..came.stop(
            Station::Wire,
            format!("{taken} packets reached the interfaces and not IP{taker}"),
            "none, if that program is to have them: its own counters show what it received; ip link show and \
             bpftool net list show XDP programs",
        )
    })
}

/// A bridge sends on what comes by its ports: that is its job.
fn bridged(came: &Arrivals) -> Option<LastStation> {
    let seen = came.seen;
    let all = &seen.after.links;
    let bridges = all
        .iter()
        .filter(|link| ["bridge", "openvswitch"].contains(&&*link.kind));
    let passed = bridges.map(|bridge| {
        let ports = all
            .iter()
            .filter(|link| link.controller == Some(bridge.index));
        // Packets of an isolated port leave by others only.
        let [mut isolated, mut open] = [const { [0_u64; 2] }; 2];
        let mut evidence = Vec::new();
        for port in ports {
            let received = seen.link(&port.name, "rx_packets");
            let sent = seen.link(&port.name, "tx_packets");
            let sums = if port.isolated {
                &mut isolated
            } else {
                &mut open
            };
            for (sum, one) in sums.iter_mut().zip([received, sent]) {
                *sum = sum.saturating_add(one.as_ref().map_or(0, Evidence::grown));
                evidence.extend(one.filter(|one| one.grown() > 0));
            }
        }
        let all = open[0].min(open[1].saturating_add(isolated[1]));
        let passed = all.saturating_add(isolated[0].min(open[1]));
        (passed, &bridge.name, evidence)
    });
    let (passed, bridge, mut evidence) = passed.max_by_key(|(passed, ..)| *passed)?;
    evidence.sort_by_key(|one| std::cmp::Reverse(one.grown()));
    evidence.truncate(4);
    (passed > came.at_ip).then(|| LastStation {
        evidence,
        lead: "nothing came for IP of this namespace",
        is_remark: seen.sockets.is_empty(),
        ..came.stop(
            Station::Ip,
            format!("{passed} packets came by ports of the bridge {bridge} and left by others of them"),
            format!(
                "for a container or virtual machine behind it look there: mpps doctor --netns PID; bridge fdb show \
                 br {} shows the port of each address",
                ShellWord::new(bridge)
            ),
        )
    })
}

fn other_frames(came: &Arrivals) -> Option<LastStation> {
    if came.at_ip > 0 {
        return None;
    }
    let isolated = link_fault::of_isolated(came.seen).filter(|_| came.seen.sockets.is_empty());
    if let Some(fault) = isolated {
        let what = format!(
            "{} packets reached the interfaces and none reached IP: {}",
            came.wire, fault.what
        );
        return Some(came.stop(Station::Wire, what, fault.remedy));
    }
    let (way, look) = far_end::beyond(came.seen)
        .map(|(way, look)| (way, format!("; or {look}")))
        .unwrap_or_default();
    let ignores = match came.seen.after.settings.get(ARP_IGNORE) {
        None | Some(0) => String::new(),
        Some(mode) => format!(
            "; or ARP for an address of another interface, which {ARP_IGNORE} ({mode}) leaves without an answer"
        ),
    };
    let (deaf, loose) = other_way_for_arp(came.seen).unwrap_or_default();
    let stop = LastStation {
        evidence: came.links.clone(),
        ..came.stop(
            Station::Ip,
            format!(
                "{} packets reached the interfaces and none reached IP: they are of another protocol, another \
                 VLAN or another host's Ethernet address{deaf}{ignores}{way}",
                came.wire
            ),
            format!(
                "tcpdump -eni IF shows what they are; for ARP that stays without an answer: {loose}ip address show, sysctl \
                 {ARP_IGNORE}{look}"
            ),
        )
    };
    dropped(came).or(Some(stop))
}

/// An interface may drop ARP of senders whose route leaves by another one (`arp_process` in net/ipv4/arp.c asks for the
/// route), as the second of two in one network. The cause and the remedy.
fn other_way_for_arp(seen: &Observed) -> Option<(String, String)> {
    let hears = |name: &str| {
        seen.link(name, "rx_packets")
            .is_some_and(|one| one.grown() > 0)
    };
    let modes = seen.after.reverse_path.iter();
    let modes = modes.filter(|(name, _)| *name != "lo" && hears(name));
    let names: Vec<(&String, &u8)> = modes.collect();
    let strict = names.iter().filter(|(_, mode)| **mode == 1);
    let strict: Vec<&str> = strict.map(|(name, _)| name.as_str()).collect();
    (names.len() > 1 && !strict.is_empty()).then(|| {
        (
            format!(
                "; or ARP, which rp_filter (1) of {} drops if the route to its sender leaves by another interface, as \
                 where two are in one network",
                strict.join(", ")
            ),
            "ip route get SENDER, and sysctl -w net.ipv4.conf.IF.rp_filter=2 (the higher of IF and all counts); "
                .to_owned(),
        )
    })
}

fn forwarded(came: &Arrivals) -> Option<LastStation> {
    let (seen, port) = (came.seen, came.port);
    let mut evidence = seen.counters(&firewall::FORWARDED);
    let count = Evidence::sum(&evidence);
    let filtered = seen.others(firewall::REASON);
    let translated = port_owner::translated(seen, port);
    // Before the hook forward they are missing at IP.
    let of_these = filtered.saturating_sub(gap(seen));
    let is_refused = of_these >= count.div_ceil(2);
    // Older kernels count none that the rules of this hook drop.
    if count == 0 || !is_refused && filtered > count {
        return None;
    }
    if is_refused {
        let source = format!("drop reason {} of other packets", firewall::REASON);
        evidence.push(Evidence::new(source, 0, of_these));
        return Some(LastStation {
            evidence,
            ..came.stop(
                Station::Ip,
                format!(
                    "{count} packets were to be forwarded to another network namespace or host, and the packet filter \
                     dropped {of_these}{translated}"
                ),
                format!(
                    "accept them in the chain FORWARD (with Docker in DOCKER-USER), or of nft's hook forward: {}",
                    firewall::rules(seen)
                ),
            )
        });
    }
    if let Some(old) = seen.after.packet_filter.outdated(port) {
        return Some(LastStation {
            evidence,
            ..came.stop(
                Station::Ip,
                format!(
                    "{count} packets were forwarded; tracked flows of port {port} still go to {old}, and no rule sends \
                     them there"
                ),
                format!("conntrack -D -p udp --dport {port}"),
            )
        });
    }
    let unseen = match seen.other_drops.is_some() {
        true => "",
        false => "; root sees whether the packet filter dropped them",
    };
    let is_remark = seen.sockets.is_empty() || !translated.is_empty();
    let look = match seen.asked.elsewhere {
        Some(_) => "look there with that command",
        None => {
            "for a published port of a container look in its network namespace: mpps doctor --netns PID"
        }
    };
    Some(LastStation {
        is_remark,
        lead: match is_remark {
            true => "no datagram was for this namespace",
            false => "nothing arrived",
        },
        evidence,
        ..came.stop(
            Station::Ip,
            format!("{count} packets were forwarded to another network namespace or host{translated}{unseen}"),
            format!(
                "{look}; {} shows whereto a rule translates the port (DNAT)",
                firewall::rules(seen)
            ),
        )
    })
}

fn unfinished(came: &Arrivals) -> Option<LastStation> {
    let pieces = came.seen.grown(fragments::CAME);
    let (filtered, rule) = match fragments::filtered(came.seen) {
        Some((_, filtered)) => (filtered, format!("{}; ", fragments::RULE)),
        None => Default::default(),
    };
    let stop = LastStation {
        evidence: came.seen.counters(fragments::CAME),
        ..came.stop(
            Station::Ip,
            format!("{pieces} fragments reached IP and no datagram became whole{filtered}"),
            format!(
                "{rule}{} which fragments do not come; datagrams that fit into one packet have none",
                fragments::TCPDUMP
            ),
        )
    };
    (pieces > 0 && came.seen.grown(fragments::WHOLE) == 0).then_some(stop)
}

fn dropped(came: &Arrivals) -> Option<LastStation> {
    // Without a rule, those of IP_LOCALNET came with an address of 127.0.0.0/8, and had their own port.
    let is_possible = |reason: &str| reason != "IP_LOCALNET" || may_translate(came.seen);
    let lost = OTHERWISE.into_iter().filter(|reason| is_possible(reason));
    // Error messages have a finding of their own.
    let told = |reason| match reason == firewall::REASON {
        true => came.seen.others(firewall::ICMP),
        false => 0,
    };
    let lost = lost.map(|reason| {
        let left = came.seen.others(reason).saturating_sub(told(reason));
        (left, reason)
    });
    let port = came.port;
    let (count, reason) = lost.max_by_key(|(count, _)| *count)?;
    let (why, remedy) = otherwise(came.seen, reason, count);
    let is_rule = reason == firewall::REASON;
    let (reason, tcp) = (
        drop_reasons::words(reason),
        port_owner::by_tcp(came.seen, port),
    );
    let (what, remedy) = match is_rule && came.seen.sockets.is_empty() && !tcp.is_empty() {
        true => (
            format!(
                "{count} packets that are no datagrams to port {port} were dropped for the reason {reason}: {why}, as \
                 requests of connections (SYN) may be{tcp}"
            ),
            format!("{remedy}; tcpdump -ni any tcp dst port {port} shows those"),
        ),
        false => (
            format!(
                "{count} packets were dropped for the reason {reason}, but not as datagrams to port {port}: {why}; they \
                 may be of another port, translated from or to another one (DNAT), fragments, or of another \
                 protocol{tcp}{}",
                port_owner::translated(came.seen, port)
            ),
            remedy,
        ),
    };
    (count > 0).then(|| came.stop(Station::Ip, what, remedy))
}

/// True if a rule may translate destinations: one does, or the rules are not known.
fn may_translate(seen: &Observed) -> bool {
    let filter = &seen.after.packet_filter;
    seen.after.conntrack.is_some() && (filter.rules.is_none() || filter.translates())
}

fn other_protocol(came: &Arrivals) -> Option<LastStation> {
    let (seen, count, port) = (came.seen, came.at_ip, came.port);
    let tcp = port_owner::by_tcp(seen, port);
    let is_tcp = !tcp.is_empty() && seen.sockets.is_empty();
    let mut listeners = seen.after.listeners.iter();
    let is_outside = listeners.any(|one| one.local.port() == port && !one.local.ip().is_loopback());
    // It refuses connections, and no program here gets any.
    let refuses = seen.grown(&["Tcp.OutRsts"]) > 0 && seen.grown(&["Tcp.PassiveOpens"]) == 0;
    let family = untaken_family(seen, port).filter(|_| refuses);
    let (only, remedy) = match (is_tcp, family) {
        (true, _) if refuses && !is_outside => (
            ", which other hosts do not reach: they are refused".to_owned(),
            "have the TCP service listen at 0.0.0.0, [::] or the address that its clients use"
                .to_owned(),
        ),
        (true, Some((family, remedy))) => (
            format!(
                "; that listener takes no {family}, and requests of connections by it are refused"
            ),
            remedy.to_owned(),
        ),
        (true, None) => (
            String::new(),
            format!(
                "for the TCP service: mpps doctor without --port shows full accept queues; ss -tlnp sport = :{port}"
            ),
        ),
        (false, _) => (
            String::new(),
            format!(
                "tcpdump -ni IF udp port {port} shows whether the sender sends here; a firewall before this host, or \
                 the sender's own, may drop them"
            ),
        ),
    };
    let what = format!("{count} packets reached IP and no UDP datagram was among them{tcp}{only}");
    Some(LastStation {
        is_remark: is_tcp && only.is_empty() && seen.grown(&["Tcp.InSegs"]) > 0,
        ..came.stop(Station::Udp, what, remedy)
    })
}

/// The version of IP that came and that no listener at the port takes, and the remedy.
fn untaken_family(seen: &Observed, port: u16) -> Option<(&'static str, &'static str)> {
    let listeners = seen.after.listeners.iter();
    let listeners = listeners.filter(|one| one.local.port() == port);
    let [v4, v6] = ["Ip.InReceives", "Ip6.InReceives"].map(|name| seen.grown(&[name]));
    let is_both = |ip: IpAddr| ip.is_ipv6() && ip.is_unspecified();
    let [mut takes_v4, mut takes_v6] = [false; 2];
    for one in listeners {
        let ip = one.local.ip();
        takes_v4 |= ip.is_ipv4() || is_both(ip) && !one.only_v6;
        takes_v6 |= ip.is_ipv6();
    }
    match v4 > v6 {
        true => (!takes_v4).then_some((
            "IPv4",
            "have the TCP service listen at 0.0.0.0 too (nginx: listen PORT; beside listen [::]:PORT;), or without \
             IPV6_V6ONLY at [::] (setsockopt, sysctl net.ipv6.bindv6only; ipv6only=off of nginx)",
        )),
        false => (!takes_v6).then_some((
            "IPv6",
            "have the TCP service listen at [::] too, or give its clients no AAAA record",
        )),
    }
}

/// The only interface here, if it is down.
fn down<'a>(seen: &Observed<'a>) -> Option<&'a str> {
    let links: &'a [NetlinkLink] = &seen.after.links;
    let mut links = links.iter().filter(|link| link.name != "lo");
    let link = links
        .next()
        .filter(|link| !link.up && links.next().is_none());
    link.map(|link| &*link.name)
}

/// Which of the interfaces that were looked at cannot receive.
fn without_carrier(seen: &Observed) -> String {
    let asked = |name: &str| name != "lo" && seen.after.snapshot.links.contains_key(name);
    let links = seen.after.links.iter().filter(|link| asked(&link.name));
    let states = links.filter_map(|link| match (link.up, link.carrier) {
        (false, _) => Some(format!("; {} is down", link.name)),
        (true, false) => Some(format!("; {} has no carrier", link.name)),
        (true, true) => None,
    });
    states.collect()
}

/// True if nothing of UDP was received, read or not, and nothing of it was lost on the way, as far as is known.
fn is_silent(seen: &Observed) -> bool {
    // Whose socket was closed is not seen: another namespace's, if all of this one stayed.
    let closed = seen.drops_closed.iter().filter(|_| !stays_open(seen));
    let mut drops = seen.drops.iter().flatten().chain(closed);
    let dropped = drops.any(|drop| drop.datagrams > 0);
    let lost = seen
        .sockets
        .iter()
        .any(|socket| socket.drops.grown() > 0 || socket.entry.queued_bytes > 0);
    // Packets that only `Ip.InDelivers` has are of IGMP, VRRP, GRE and others, or were in a socket that closed.
    // The drop reasons show the latter.
    let is_read = seen.drops.is_some()
        || stays_open(seen)
        || unread(seen) <= seen.grown(&["IpExt.InMcastPkts"]);
    // These have findings of their own.
    let lost = lost || fragments::too_far(seen) > 0 || far_end::loses(seen);
    is_udp_silent(seen) && is_read && !dropped && !lost
}

/// True if every socket of the port is still there, and there was one.
fn stays_open(seen: &Observed) -> bool {
    let before = seen.before.sockets.iter();
    let mut before = before.filter(|one| Some(one.local.port()) == seen.asked.port);
    let is_there = |one: &UdpEntry| {
        let mut after = seen.after.sockets.iter();
        after.any(|later| later.inode == one.inode)
    };
    before.clone().next().is_some() && before.all(is_there)
}
