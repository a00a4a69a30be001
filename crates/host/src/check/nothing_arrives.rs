//! No packet at all: where they stop.

use super::vanished::{is_udp_silent, unread};
use super::{Check, Confidence, Evidence, Finding, Observed, fragments};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "nothing_arrives",
    reads: "each interface's carrier and `rx_packets`, `Ip.InReceives`, fragments, all UDP counters, the \
            port's sockets",
    speaks: "with `--port`: the namespace received and lost no UDP datagram; names the first silent station",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let Some(port) = seen.asked.port.filter(|_| is_silent(seen)) else {
        return Vec::new();
    };
    let links = seen.interfaces();
    let links = links.filter_map(|name| seen.link(name, "rx_packets", |link| link.rx_packets));
    let links: Vec<_> = links.collect();
    // Packets from a host to itself are no traffic, unless loopback was asked for.
    let is_asked = links.len() == 1 && seen.after.links.len() > 1;
    let links: Vec<_> = links
        .into_iter()
        .filter(|one| is_asked || !one.source.starts_with("lo "))
        .collect();
    let came = Evidence::sum(&links);
    let ip = seen.counters(&["Ip.InReceives", "Ip6.InReceives"]);
    let ip_came = Evidence::sum(&ip);
    let pieces = seen.grown(fragments::CAME);
    let listens = match seen.sockets.len() {
        0 => match &seen.asked.elsewhere {
            Some(elsewhere) => format!("no socket has UDP port {port} here ({elsewhere}), and "),
            None => format!("no socket has UDP port {port}, and "),
        },
        _ => String::new(),
    };
    let (station, evidence, what, remedy) = if links.is_empty() {
        (
            Station::Wire,
            ip,
            "there is no interface here but loopback".to_owned(),
            "ip link show; for a container: mpps doctor --netns PID".to_owned(),
        )
    } else if came == 0 {
        (
            Station::Wire,
            links,
            format!("no interface received any packet{}", without_carrier(seen)),
            "ip link show: is it up, with a carrier? Does the sender reach this host: the switch, the route, \
             its table of neighbours?"
                .to_owned(),
        )
    } else if ip_came == 0 {
        (
            Station::Ip,
            links,
            format!(
                "{came} packets reached the interfaces and none reached IP: they are of \
         another protocol, another VLAN or another host's Ethernet address"
            ),
            "tcpdump -eni IF shows what they are".to_owned(),
        )
    } else if pieces > 0 && seen.grown(fragments::WHOLE) == 0 {
        (
            Station::Ip,
            seen.counters(fragments::CAME),
            format!("{pieces} fragments reached IP and no datagram became whole"),
            format!(
                "{} which fragments do not come; datagrams that fit into one packet have none",
                fragments::TCPDUMP
            ),
        )
    } else {
        (
            Station::Udp,
            ip,
            format!("{ip_came} packets reached IP and no UDP datagram was among them"),
            format!(
                "tcpdump -ni IF udp port {port} shows whether the sender sends here; a firewall before this \
         host, or the sender's own, may drop them"
            ),
        )
    };
    let evidence = evidence.into_iter().chain(seen.counter("Udp.InDatagrams"));
    let found = Finding::noticed(seen, &CHECK, station, evidence.collect());
    let found = found.says(format!("nothing arrived: {listens}{what}"), remedy);
    vec![found.with(Confidence::Likely)]
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
    let drops = seen.drops.iter().flatten().chain(&seen.drops_closed);
    let dropped = drops.into_iter().any(|drop| drop.datagrams > 0);
    let lost = seen
        .sockets
        .iter()
        .any(|socket| socket.drops.grown() > 0 || socket.entry.queued_bytes > 0);
    is_udp_silent(seen) && unread(seen) == 0 && !dropped && !lost
}
