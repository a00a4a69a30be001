//! Datagrams that a rule of the packet filter dropped.

use super::reader::named;
use super::vanished::{gap, is_udp_silent};
use super::{Check, Confidence, Evidence, Finding, Observed, conntrack, is_little};
use crate::Station;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) const CHECK: Check = Check {
    name: "firewall",
    reads: "the drop reason `NETFILTER_DROP` of UDP, IGMP and ICMP (tracepoint skb:kfree_skb; no counter has it), \
            `invalid` (/proc/net/stat/nf_conntrack), tracked flows, tables of the older iptables, \
            `bridge-nf-call-iptables`, `nf_conntrack_udp_timeout`, joined groups, TCP listeners, raw sockets, \
            forwarded packets",
    speaks: "nftables or iptables dropped UDP datagrams, with `--port` those to it; without it a remark, unless they \
             seem to be answers or were found invalid; or IGMP while a group is joined; or error messages of ICMP; a \
             remark: packets of other protocols with a receiver here or behind this host",
    run,
};

pub(super) const REASON: &str = conntrack::REASON;
const IGMP: &str = "NETFILTER_DROP+igmp";
pub(super) const ICMP: &str = "NETFILTER_DROP+icmp";

/// The commands that list all rules, and a rule's counter.
pub(super) fn rules(seen: &Observed) -> String {
    let commands = ["nft -a list ruleset", "iptables-save -c"];
    let legacy = seen.after.packet_filter.legacy.iter().copied();
    let commands: Vec<&str> = commands.into_iter().chain(legacy).collect();
    commands.join("; ")
}

/// The reason why a rule dropped them, if that is seen: why, what fixes it, and the counter that shows it.
struct RuleCause {
    what: String,
    remedy: String,
    evidence: Evidence,
    confidence: Confidence,
}

fn run(seen: &Observed) -> Vec<Finding> {
    let rule = rule(seen).into_iter();
    let found = rule.chain(membership(seen)).chain(errors(seen));
    found.chain(connections(seen)).collect()
}

/// Packets of other protocols that were dropped, where they may have had a receiver.
fn connections(seen: &Observed) -> Option<Finding> {
    let exact = seen.other_drops.iter().flatten();
    let exact = exact.filter(|drop| drop.reason == REASON);
    let dropped = exact.fold(0, |sum: u64, drop| sum.saturating_add(drop.datagrams));
    let dropped = dropped.saturating_sub(conntrack::came(seen));
    let receivers = receivers(seen, dropped);
    if seen.asked.port.is_some() || receivers.is_empty() || is_little(seen, dropped) {
        return None;
    }
    let source = format!("drop reason {REASON}, of other protocols");
    let mut found = Finding::noticed(
        seen,
        &CHECK,
        Station::Ip,
        vec![Evidence::new(source, 0, dropped)],
    );
    found.is_remark = true;
    let invalid = conntrack::invalid(seen).filter(|one| one.grown().saturating_mul(2) >= dropped);
    let (one_sided, remedy, confidence) = match invalid {
        Some(invalid) => {
            found.evidence.push(invalid);
            (
                "; connection tracking found about as many invalid: it sees only one direction of their connections \
                 (an asymmetric route), or has forgotten them",
                "have both directions pass here, or track neither (nft: notrack; iptables -t raw -j CT --notrack); ",
                Confidence::Likely,
            )
        }
        None => ("", "", Confidence::Possible),
    };
    let what = format!(
        "the packet filter dropped {dropped} packets that were no UDP: {}{one_sided}",
        receivers.join("; ")
    );
    let remedy = format!(
        "if that is meant, nothing is wrong. {remedy}{}: a rule's counter shows which one it is; tcpdump -ni any \
         'tcp[13] == 2' shows the ports of requests (SYN), tcpdump -ni any ip proto N another protocol",
        rules(seen)
    );
    Some(found.says(what, remedy).with(confidence))
}

/// Protocols over IP that programs read themselves (IANA's Assigned Internet Protocol Numbers).
const PROTOCOLS: [(u8, &str); 7] = [
    (47, "GRE"),
    (50, "ESP"),
    (51, "AH"),
    (89, "OSPF"),
    (103, "PIM"),
    (112, "VRRP"),
    (132, "SCTP"),
];

/// The receivers that this many packets of other protocols may have had, in words.
fn receivers(seen: &Observed, count: u64) -> Vec<String> {
    let listeners = seen.after.listeners.iter().map(|one| one.local);
    let listeners = listeners.filter(|local| !local.ip().is_loopback());
    let listeners: Vec<String> = listeners.map(|local| local.to_string()).collect();
    let protocol = |number: &u8| {
        let known = PROTOCOLS.iter().find(|(known, _)| known == number);
        let name = known.map_or_else(String::new, |(_, name)| format!(" ({name})"));
        format!("{number}{name}")
    };
    let raw: Vec<String> = seen.after.raw_protocols.iter().map(protocol).collect();
    let forwarded = seen.grown(&FORWARDED);
    let all = [
        (!listeners.is_empty()).then(|| {
            format!(
                "requests of connections (SYN) may be among them, and TCP sockets listen here at {}",
                named(listeners)
            )
        }),
        (!raw.is_empty()).then(|| format!("raw sockets here take protocol {}", named(raw))),
        (forwarded > 0 && forwarded >= count)
            .then(|| format!("{forwarded} packets were to be forwarded")),
    ];
    all.into_iter().flatten().collect()
}

/// Error messages of ICMP that were dropped. A router sends one for each packet that is too long for the path, and about
/// one a second for others.
fn errors(seen: &Observed) -> Option<Finding> {
    let dropped = seen.others(ICMP);
    let evidence = vec![Evidence::new(
        format!("drop reason {REASON}, of ICMP errors"),
        0,
        dropped,
    )];
    if dropped < 2 {
        return None;
    }
    let mut found = Finding::noticed(seen, &CHECK, Station::Ip, evidence);
    found.is_remark = is_little(seen, dropped);
    let what = format!(
        "the packet filter of this host dropped {dropped} error messages (ICMP) about packets that this host, or one \
         behind it, sent: these did not arrive, and their sender does not learn that they are too long for the path \
         (its MTU), refused, or have no route"
    );
    let remedy = "accept them: nft insert rule TABLE CHAIN icmp type { destination-unreachable, time-exceeded } accept, \
                  of IPv6 icmpv6 type packet-too-big; iptables -I INPUT -m conntrack --ctstate RELATED -j ACCEPT; \
                  tcpdump -vni any 'icmp[0] == 3' shows `need to frag` and the MTU";
    Some(found.says(what, remedy).with(Confidence::Likely))
}

fn rule(seen: &Observed) -> Option<Finding> {
    let dropped = seen.reason(REASON)?;
    let left = dropped.grown().saturating_sub(conntrack::came(seen));
    if left == 0 {
        return None;
    }
    Finding::lost(seen, &CHECK, Station::Ip, vec![dropped]).map(|found| {
        let mut found = found.of(left, seen);
        let rules = rules(seen);
        let cause = invalid(seen, left).or_else(|| answers(seen, left));
        let what = "a rule of the packet filter dropped UDP datagrams";
        let Some(cause) = cause else {
            // Which port they were for is not known, and a firewall is there to drop.
            found.is_remark = seen.asked.port.is_none();
            let ports = seen.sockets.iter().filter(|_| seen.asked.pid.is_some());
            let ports: BTreeSet<u16> = ports.map(|one| one.entry.local.port()).collect();
            let ports = named(ports.iter().map(u16::to_string).collect());
            let one = match (found.is_remark, &*ports) {
                (true, "") => "; mpps doctor --port PORT shows whether a port of yours is among them".to_owned(),
                (true, ports) => format!("; mpps doctor --port PORT shows whether one of the program's is among them: {ports}"),
                (false, _) => String::new(),
            };
            let (forgotten, keep) = conntrack::forgotten(seen).unwrap_or_default();
            let remedy = format!(
                "if that is meant, nothing is wrong. {rules}: a rule's counter shows which one it is{one}{keep}"
            );
            return found
                .because(&[forwarded(seen, left), forgotten])
                .says(what, remedy);
        };
        found.evidence.push(cause.evidence);
        let remedy = format!("{}; or {rules}: a rule's counter shows which one it is", cause.remedy);
        let what = format!("{what}{}", cause.what);
        found.says(what, remedy).with(cause.confidence)
    })
}

/// A bridge or switch that snoops finds no port for a group.
const NO_PORT: &str = "NO_TX_TARGET";

/// IGMP that was dropped though a group is joined. Groups of the link (224.0.0.0/24) go everywhere.
fn membership(seen: &Observed) -> Option<Finding> {
    let dropped = seen.others(IGMP);
    let of_link =
        |group: &IpAddr| matches!(group, IpAddr::V4(one) if one.octets()[..3] != [224, 0, 0]);
    let mut groups = seen.after.groups.iter();
    let joined = groups.find(|one| of_link(&one.group))?;
    if dropped == 0 {
        return None;
    }
    let evidence = Evidence::new(format!("drop reason {REASON}, of IGMP"), 0, dropped);
    let mut found = Finding::noticed(seen, &CHECK, Station::Ip, vec![evidence]);
    let missed = seen.elsewhere(NO_PORT);
    let (bridge, confidence) = match missed {
        0 => (String::new(), Confidence::Possible),
        _ => {
            let source = format!("drop reason {NO_PORT} in other namespaces");
            found.evidence.push(Evidence::new(source, 0, missed));
            let bridge = format!(
                "; meanwhile a bridge in another namespace of this machine had no port for {missed} packets"
            );
            (bridge, Confidence::Likely)
        }
    };
    let is_silent = seen.asked.port.is_some() && is_udp_silent(seen);
    found.is_remark = missed == 0 && !is_silent;
    let what = format!(
        "the packet filter of this host dropped {dropped} packets of IGMP, and group {} is joined at {}: a switch \
         or bridge that snoops then takes this host for no member, and sends it the group no more{bridge}",
        joined.group, joined.interface
    );
    let remedy = "nft insert rule TABLE CHAIN meta l4proto igmp accept, or iptables -I INPUT -p igmp -j ACCEPT; on \
                  the bridge, bridge mdb show lists members";
    Some(found.says(what, remedy).with(confidence))
}

/// Newer kernels count a packet as forwarded before the rules see it (`ip_forward`, net/ipv4/ip_forward.c).
pub(super) const FORWARDED: [&str; 2] = ["Ip.ForwDatagrams", "Ip6.OutForwDatagrams"];

fn forwarded(seen: &Observed, count: u64) -> String {
    let forwarded = seen.grown(&FORWARDED);
    match forwarded >= count {
        true => {
            format!("{forwarded} packets were to be forwarded: see the chains of the hook forward")
        }
        false => bridged(seen, count),
    }
}

/// Rules of IP see what a bridge passes on, too (`br_netfilter`); the bridge has them before IP has.
fn bridged(seen: &Observed, count: u64) -> String {
    const CALL: &str = "net.bridge.bridge-nf-call-iptables";
    let mut links = seen.after.links.iter();
    let bridge = links.find(|link| link.kind == "bridge");
    let is_called = seen.after.settings.get(CALL) == Some(&1);
    let bridge = bridge.filter(|_| is_called && gap(seen) < count.div_ceil(2));
    bridge.map_or_else(String::new, |bridge| {
        format!(
            "{CALL} is 1: what ports of the bridge {} pass to each other goes through the chain FORWARD, too; sysctl -w \
             {CALL}=0 ends that",
            bridge.name
        )
    })
}

/// Connection tracking found about as many invalid, which only a rule drops.
fn invalid(seen: &Observed, count: u64) -> Option<RuleCause> {
    let evidence = conntrack::invalid(seen)?;
    (evidence.grown().saturating_mul(2) >= count).then(|| RuleCause {
        what: ", as it seems one for `ct state invalid`: connection tracking found about as many invalid".to_owned(),
        remedy: match seen.after.packet_filter.checks_checksums {
            true => "tcpdump -vni IF udp shows `bad udp cksum`: connection tracking finds a wrong checksum invalid \
                     (nf_conntrack_checksum is 1), and the sender or a device on the way has to be corrected"
                .to_owned(),
            false => "tcpdump -vni IF udp shows wrong lengths; correct the sender".to_owned(),
        },
        evidence,
        confidence: Confidence::Likely,
    })
}

/// The port of TFTP, whose server answers from a new port (RFC 1350).
const TFTP: u16 = 69;

/// Requests of this host stay without an answer, and about as many datagrams were dropped as it sent.
fn answers(seen: &Observed, count: u64) -> Option<RuleCause> {
    let evidence = seen.counter("Udp.OutDatagrams")?;
    let sent = evidence
        .grown()
        .saturating_add(seen.grown(&["Udp6.OutDatagrams"]));
    let is_like_sent = count >= sent / 2 && count <= sent.saturating_add(sent / 8);
    let is_ours = |port| {
        seen.sockets
            .iter()
            .any(|socket| socket.entry.local.port() == port)
    };
    let mut flows = seen.after.packet_filter.flows.iter();
    let flow = flows.find(|flow| !flow.is_answered && is_ours(flow.from.port()))?;
    let (late, longer) = conntrack::too_late(seen);
    is_like_sent.then(|| RuleCause {
        what: format!(
            ", possibly answers: {} has not answered {}, and answers from another address or port{late} are no part of \
             that flow",
            flow.to, flow.from
        ),
        remedy: match flow.to.port() {
            TFTP => "a server of TFTP answers from another port: modprobe nf_conntrack_tftp, and a rule that gives \
                     port 69 that helper (nft ct helper set, iptables -t raw -j CT --helper tftp) in front of `ct state \
                     related accept`"
                .to_owned(),
            _ => format!(
            "tcpdump -ni any udp port {} shows where answers come from, and when: the server has to answer from the address \
             that was asked (IP_PKTINFO, or a socket for each address){longer}",
            flow.from.port()
        )},
        evidence,
        confidence: Confidence::Possible,
    })
}
