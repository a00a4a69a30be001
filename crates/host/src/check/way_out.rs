//! Datagrams that this host sent, and lost on their way out.

use super::reading_times::skew_out;
use super::virtual_device::TUNNELS;
use super::{
    Check, Confidence, Evidence, Finding, Observed, conntrack, drop_reasons, firewall, link_fault,
    listen_queue,
};
use crate::counters::driver_counters::Meaning;
use crate::ledger::Grouped;
use crate::ledger::loss::{
    ALLOWANCE_OUT, BEHIND_OUT, BLOCKED_OUT, CGROUP_OUT, EGRESS_OUT, FILTER_OUT, FIREWALL_OUT,
    INTERFACE_OUT, LOSSES_OUT, LossKind, NO_NEIGHBOUR, NO_ROUTE_OUT, NO_STATE_OUT, OTHER_OUT,
    QDISC_OUT, SEND_BUFFER, TOO_LONG_OUT,
};
use crate::{Loss, ReasonCount, Scope};
use Confidence::{Certain, Likely, Possible};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

pub(super) const CHECK: Check = Check {
    name: "way_out",
    reads: "`OutNoRoutes`, `XfrmOutNoStates`, `XfrmOutPolBlock`, `OutDiscards`, `OutRequests`, `FragFails` (IP, IPv6), `SndbufErrors` (UDP); `tc -s qdisc` and \
            `tx_dropped` of each interface, its kind, MTU and other end; the neighbour table; drop reasons of what is sent",
    speaks: "this host dropped datagrams on their way out, or refused to send them",
    run,
};

/// A loss, its description and its remedy.
type Words = (&'static LossKind, &'static str, &'static str);

const TOLD: [Words; 14] = [
    (
        &NO_ROUTE_OUT,
        "this host has no route to where a program sends, or connects by TCP (ENETUNREACH)",
        "ip route get ADDRESS shows what the kernel would do; add the route, or a default route",
    ),
    (
        &NO_STATE_OUT,
        "a policy of IPsec asks for encryption of what a program sends, and there is no state (key) for it",
        "ip xfrm policy list dir out shows the policy, ip xfrm state the keys: let the key daemon make them (swanctl \
         --list-sas, ipsec status), or delete the policy",
    ),
    (
        &BLOCKED_OUT,
        "a policy of IPsec blocks what a program sends (EPERM), or what this host forwards",
        "ip xfrm policy list dir out shows `action block`; ip xfrm policy getdefault: narrow or delete that policy",
    ),
    (
        &SEND_BUFFER,
        "a program found its send buffer full (EAGAIN), and the datagram is lost unless it sends it again",
        "poll(2) for POLLOUT before the next send, or a larger SO_SNDBUF in the program",
    ),
    (
        &FIREWALL_OUT,
        "a rule of the firewall dropped what a program sends (EPERM)",
        "nft list ruleset (chains of output and postrouting), iptables-save -c: the rule's counter grows",
    ),
    (
        &TOO_LONG_OUT,
        "datagrams are longer than the path takes, and may not be fragmented (EMSGSIZE)",
        "smaller datagrams (ip route get ADDRESS shows the path's mtu), or let them be fragmented: \
         IP_MTU_DISCOVER at IP_PMTUDISC_DONT",
    ),
    (
        &CGROUP_OUT,
        "a BPF program of the sender's cgroup dropped what it sends (EPERM), as IPAddressDeny= of systemd does",
        "bpftool cgroup tree lists these programs (cgroup_inet_egress)",
    ),
    (
        &NO_NEIGHBOUR,
        "the next host on the way does not answer ARP or neighbour discovery",
        "ip neigh show nud failed nud incomplete: correct the address or the route, or wake that host (no macvlan or \
         ipvlan answers the host whose card it is on)",
    ),
    (
        &QDISC_OUT,
        "the queueing discipline of an interface dropped what this host sends",
        "tc -s qdisc shows which: a higher rate or a longer queue there; or send at a lower rate",
    ),
    (
        &FILTER_OUT,
        "a filter or BPF program of tc at an interface's egress dropped what this host sends (ENOBUFS)",
        "tc -s filter show dev IF egress, and bpftool net list, show which; narrow or delete it",
    ),
    (
        &EGRESS_OUT,
        "a rule of the firewall at an interface (nft's family netdev, hook egress; or that of a bridge) dropped what \
         this host sends (ENOBUFS)",
        "nft list ruleset (tables of netdev and bridge): the rule's counter grows; narrow or delete it",
    ),
    (
        &BEHIND_OUT,
        "IP took datagrams, and a queue, a filter or a rule at the interface refused them (ENOBUFS)",
        "tc -s qdisc, tc -s filter show dev IF egress and nft list ruleset (hook egress) show which",
    ),
    (
        &ALLOWANCE_OUT,
        "the cloud or the hypervisor held back or dropped what this machine sends beyond what it may",
        "a larger machine, more machines, or fewer packets",
    ),
    (
        &OTHER_OUT,
        "the kernel dropped what this host sends for another reason",
        "perf record -e skb:kfree_skb -g shows the function that dropped them",
    ),
];

/// The packet filter drops a packet whose mark has no route (`ip_route_me_harder`, net/ipv4/netfilter.c), for the reason of
/// its rules.
const MARKED: &str = ", or marks it, and a policy route refuses that mark (EACCES, ENETUNREACH)";

/// The counter of `tc -s qdisc`, behind the name of an interface.
const QDISC_DROPPED: &str = " qdisc dropped";

/// The datagrams of a network namespace on their way out: sent + forwarded = left + all losses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WayOut {
    /// Datagrams that programs handed to UDP; a train (`UDP_SEGMENT`) is one.
    pub sent: u64,
    /// Of the lost ones those that no socket here sent: forwarded, or from an ifb.
    #[serde(default)]
    pub forwarded: u64,
    /// Those that no counter and no drop reason shows as lost.
    pub left: u64,
    /// The lost ones. Losses that UDP does not count are of all packets that were sent.
    pub losses: Vec<Loss>,
}

impl WayOut {
    /// By the counters and the drop reasons of both moments.
    pub fn of(seen: &Observed) -> Self {
        let lost = losses(seen);
        let sum = |of: fn(&LossOut) -> u64| lost.iter().map(of).fold(0, u64::saturating_add);
        let counted = seen.grown(&["Udp.OutDatagrams", "Udp6.OutDatagrams"]);
        let behind = sum(|loss| loss.behind);
        // Without a counter of UDP, as in tests, what was lost was sent.
        let counted = counted.max(behind);
        let rows = lost.iter().map(|loss| Loss {
            exact: loss.behind == 0,
            ..loss.kind.row(loss.count, sources(&loss.evidence))
        });
        Self {
            sent: counted.saturating_add(sum(|loss| loss.count - loss.behind - loss.forwarded)),
            forwarded: sum(|loss| loss.forwarded),
            left: counted - behind,
            losses: rows.collect(),
        }
    }

    /// All losses together.
    pub fn lost(&self) -> u64 {
        let counts = self.losses.iter().map(|loss| loss.count);
        counts.fold(0, u64::saturating_add)
    }
}

impl fmt::Display for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sent {}", Grouped(self.sent))?;
        if self.forwarded > 0 {
            write!(f, " + forwarded {}", Grouped(self.forwarded))?;
        }
        write!(f, " = left {}", Grouped(self.left))?;
        for loss in &self.losses {
            write!(f, " + {} {}", loss.reason, Grouped(loss.count))?;
        }
        Ok(())
    }
}

/// A loss on the way out.
struct LossOut {
    kind: &'static LossKind,
    count: u64,
    /// How many of them UDP counted as sent (`OutDatagrams`).
    behind: u64,
    /// How many of them no socket here sent.
    forwarded: u64,
    evidence: Vec<Evidence>,
}

fn sources(evidence: &[Evidence]) -> String {
    let sources: Vec<&str> = evidence.iter().map(|one| &*one.source).collect();
    sources.join(" + ")
}

/// The drop reasons of a kind, of packets on their way out. [`OTHER_OUT`] has the reasons of no other kind.
fn reasons(seen: &Observed, kind: &LossKind) -> Vec<Evidence> {
    let sent = reasons_of(&seen.drops_out, kind, "on the way out").into_iter();
    sent.chain(forwarded(seen, kind)).collect()
}

/// The same of packets that no socket here sent. UDP counts none of them.
fn forwarded(seen: &Observed, kind: &LossKind) -> Vec<Evidence> {
    reasons_of(&seen.drops_forwarded, kind, "forwarded")
}

/// How many of a loss no socket here sent. An interface counts packets of any sender.
fn not_ours(seen: &Observed, kind: &LossKind, count: u64) -> u64 {
    if ways_by(seen).is_none() {
        return 0;
    }
    let others = match kind == &INTERFACE_OUT {
        true => count.saturating_sub(seen.grown(&[OWN, SEND_BUFFER.counters].concat())),
        false => 0,
    };
    let told = Evidence::sum(&forwarded(seen, kind));
    let own = reasons_of(&seen.drops_out, kind, "");
    // The rest was dropped between two readings.
    let is_all = told > 0 && own.is_empty() && count <= told.saturating_add(skew_out(seen, told));
    let told = if is_all { count } else { told };
    told.max(others)
}

/// Devices that send what no socket here sent.
const BETWEEN: [&str; 3] = ["ifb", "bridge", "openvswitch"];

/// How packets may come that no socket here sent; none if there is no way.
fn ways_by(seen: &Observed) -> Option<String> {
    let is_router = conntrack::forwards(seen) != Some(false)
        || seen.grown(&firewall::FORWARDED) > 0
        || seen.grown(&["Ip6.InTooBigErrors"]) > 0;
    let is_between = |kind: &str| BETWEEN.contains(&kind) || TUNNELS.contains(&kind);
    let links = seen.after.links.iter();
    let links = links.filter(|link| is_between(&link.kind));
    let links: Vec<&str> = links.map(|link| &*link.name).take(4).collect();
    match (is_router, links.is_empty()) {
        (true, true) => Some("they were forwarded".to_owned()),
        (true, false) => Some(format!(
            "they were forwarded, or came by {}",
            links.join(", ")
        )),
        (false, false) => Some(format!("they came by {}", links.join(", "))),
        (false, true) => None,
    }
}

/// Datagrams that sockets here sent.
const OWN: &[&str] = &["Udp.OutDatagrams", "Udp6.OutDatagrams"];

fn reasons_of(drops: &[ReasonCount], kind: &LossKind, way: &str) -> Vec<Evidence> {
    let is_of = |kind: &LossKind, reason: &str| {
        kind.reasons
            .iter()
            .any(|name| match name.strip_suffix('*') {
                Some(start) => reason.starts_with(start),
                None => *name == reason,
            })
    };
    let is_asked = |reason: &str| match kind == &OTHER_OUT {
        true => !LOSSES_OUT.iter().any(|kind| is_of(kind, reason)),
        false => is_of(kind, reason),
    };
    let drops = drops.iter().filter(|drop| is_asked(&drop.reason));
    let drops = drops.map(|drop| {
        let source = format!("drop reason {}, {way}", drop_reasons::words(&drop.reason));
        Evidence::new(source, 0, drop.datagrams)
    });
    drops.collect()
}

/// All losses, each packet once.
///
impl LossOut {
    fn new(
        seen: &Observed,
        kind: &'static LossKind,
        count: u64,
        behind: u64,
        evidence: Vec<Evidence>,
    ) -> Self {
        let forwarded = not_ours(seen, kind, count).min(count);
        Self {
            kind,
            count,
            behind: behind.min(count - forwarded),
            forwarded,
            evidence,
        }
    }
}

/// `OutDiscards` of IP has all that it refused to send or that was refused behind it, except what has no
/// route; so it has what `SndbufErrors` and `FragFails` count (`ip_send_skb` and `__ip_append_data` in
/// net/ipv4/ip_output.c, `ip6_send_skb`). `SndbufErrors` has the answers of a queueing discipline or a
/// driver, and full send buffers (`udp_sendmsg`). Packets dropped without an answer are in `OutDatagrams`.
fn losses(seen: &Observed) -> Vec<LossOut> {
    let both = |kind: &'static LossKind| counted(seen.counters(kind.counters));
    let by_reason = |kind: &'static LossKind| counted(reasons(seen, kind));
    let (unrouted, unrouted_by) = both(&NO_ROUTE_OUT);
    let unrouted = unrouted.saturating_sub(listen_queue::unrouted(seen));
    let (full, full_by) = both(&SEND_BUFFER);
    let (discards, discards_by) = both(&FIREWALL_OUT);
    let (too_long, too_long_by) = both(&TOO_LONG_OUT);
    let (long, long_by) = by_reason(&TOO_LONG_OUT);
    let (ruled, ruled_by) = by_reason(&FIREWALL_OUT);
    let (grouped, grouped_by) = by_reason(&CGROUP_OUT);
    let (silent, silent_by) = by_reason(&NO_NEIGHBOUR);
    let (other, other_by) = by_reason(&OTHER_OUT);
    let (queued, queued_by) = in_queues(seen, full);
    let refused = discards.saturating_sub(full);
    // Forwarded packets are in FragFails only.
    let too_long = too_long.min(refused);
    // Where drop reasons are seen, they have all drops of datagrams by rules. The rest is of other packets.
    let unnamed = match seen.drops {
        Some(_) => 0,
        None => (refused - too_long).saturating_sub(ruled.saturating_add(grouped)),
    };
    let too_long = too_long.max(long);
    let (filtered, filtered_by) = by_reason(&FILTER_OUT);
    let behind_filter = filtered.saturating_sub(full.saturating_sub(queued));
    let answered = queued.saturating_add(filtered);
    let (ruled_there, ruled_there_by) = by_reason(&EGRESS_OUT);
    let behind_rule = ruled_there.saturating_sub(full.saturating_sub(answered));
    let answered = answered.saturating_add(ruled_there);
    let rest = full.saturating_sub(answered);
    // These were dropped between two readings.
    let is_between = answered > 0 && rest <= skew_out(seen, answered);
    let rest = if is_between { 0 } else { rest };
    let most = full.saturating_add(seen.grown(&[OWN, &firewall::FORWARDED].concat()));
    let (ring, ring_by) = in_rings(seen);
    // A tun drops packets of any sender, and forgets their sender (`skb_orphan` in tun_net_xmit).
    let (ringed, ringed_by) = by_reason(&INTERFACE_OUT);
    let (held, held_by) = counted(seen.losses(Meaning::AllowanceOut));
    let (unringed, held) = (ring.min(most).saturating_sub(ringed), held.min(most));
    let others_ring = match ringed > 0 && seen.asked.port.is_some() {
        true => 0,
        false => unringed,
    };
    let ring = ringed.saturating_add(others_ring);
    // Neither the driver nor IP name a reason for packets that they count.
    let named = too_long.saturating_add(unnamed).saturating_add(unringed);
    let other = other.saturating_sub(named);
    // IPv6 drops packets that wait in vain without a reason (`ndisc_error_report` in net/ipv6/ndisc.c).
    let is_v6 = other > 0 && seen.after.unanswered.iter().any(|host| host.contains(':'));
    let (in_vain, other) = if is_v6 { (other, 0) } else { (0, other) };
    let silent = silent.saturating_add(in_vain);
    let in_vain_by = other_by.iter().filter(|_| is_v6).cloned();
    let silent_by = silent_by.into_iter().chain(in_vain_by).collect();
    let row = |kind, count, behind, evidence| LossOut::new(seen, kind, count, behind, evidence);
    let refused_kind = refused_where(seen, rest).0;
    let unnamed_by = discards_by.into_iter().filter(|_| unnamed > 0);
    let ruled_by = unnamed_by.chain(ruled_by).collect();
    let ring_by = ringed_by.into_iter().chain(ring_by).collect();
    let too_long_by = too_long_by.into_iter().chain(long_by).collect();
    let rows = [
        row(&NO_ROUTE_OUT, unrouted, 0, unrouted_by),
        row(refused_kind, rest.saturating_sub(ring), 0, full_by),
        row(&FIREWALL_OUT, ruled.saturating_add(unnamed), 0, ruled_by),
        row(&TOO_LONG_OUT, too_long, 0, too_long_by),
        row(&CGROUP_OUT, grouped, 0, grouped_by),
        row(&NO_NEIGHBOUR, silent, silent, silent_by),
        row(&QDISC_OUT, queued, queued.saturating_sub(full), queued_by),
        row(&FILTER_OUT, filtered, behind_filter, filtered_by),
        row(&EGRESS_OUT, ruled_there, behind_rule, ruled_there_by),
        row(&INTERFACE_OUT, ring, ring.saturating_sub(rest), ring_by),
        row(&ALLOWANCE_OUT, held, held, held_by),
        row(&OTHER_OUT, other, other, other_by),
    ];
    let rows = rows.into_iter().chain(by_ipsec(seen));
    rows.filter(|row| row.count > 0).collect()
}

/// How many datagrams a program could not send because its send buffer was full.
pub(super) fn full_send_buffers(seen: &Observed) -> u64 {
    let full = losses(seen).into_iter();
    full.filter(|loss| loss.kind == &SEND_BUFFER)
        .map(|loss| loss.count)
        .sum()
}

/// The kind of datagrams that only `SndbufErrors` has, and whether it is open. IP counts what it took
/// (`OutRequests`), and `OutDiscards` both what it took and what found a send buffer full.
fn refused_where(seen: &Observed, count: u64) -> (&'static LossKind, bool) {
    let requests = seen.grown(&["Ip.OutRequests", "Ip6.OutRequests"]);
    let most = requests.saturating_sub(seen.grown(OWN));
    let others = ["Tcp.OutSegs", "Icmp.OutMsgs", "Icmp6.OutMsgs"];
    let refused = seen.grown(FIREWALL_OUT.counters);
    let least = most
        .saturating_sub(seen.grown(&others))
        .saturating_sub(refused.saturating_sub(seen.grown(SEND_BUFFER.counters)));
    match count {
        _ if least.saturating_add(skew_out(seen, count)) >= count => (&BEHIND_OUT, false),
        _ => (&SEND_BUFFER, most > count / 2),
    }
}

/// The drops by policies of IPsec. The counter of missing states has packets of any kind, and of a connected socket only
/// the first (`xfrm_lookup_with_ifid`, net/xfrm/xfrm_policy.c).
fn by_ipsec(seen: &Observed) -> [LossOut; 2] {
    let (told, mut evidence) = counted(reasons(seen, &NO_STATE_OUT));
    let (all, all_by) = counted(seen.counters(NO_STATE_OUT.counters));
    let (blocked, blocked_by) = counted(seen.counters(BLOCKED_OUT.counters));
    evidence.extend(all_by);
    let count = match seen.drops.is_some() {
        true => told,
        false => all.min(seen.grown(&["Udp.OutDatagrams", "Udp6.OutDatagrams"])),
    };
    let forwarded = Evidence::sum(&forwarded(seen, &NO_STATE_OUT)).min(count);
    let row = |kind, count, behind, forwarded, evidence| LossOut {
        kind,
        count,
        behind,
        forwarded,
        evidence,
    };
    [
        row(&NO_STATE_OUT, count, count - forwarded, forwarded, evidence),
        row(&BLOCKED_OUT, blocked, 0, 0, blocked_by),
    ]
}

fn counted(evidence: Vec<Evidence>) -> (u64, Vec<Evidence>) {
    (Evidence::sum(&evidence), evidence)
}

/// Datagrams that queueing disciplines dropped; `full` is `SndbufErrors`. Their own counters have packets
/// of any kind. Without drop reasons, or with those of one port, UDP's counter bounds them.
fn in_queues(seen: &Observed, full: u64) -> (u64, Vec<Evidence>) {
    let drops = seen.delta.links.iter().filter_map(|(name, link)| {
        let dropped = u64::try_from(link.qdisc_drops?).ok()?;
        Some(Evidence::new(format!("{name}{QDISC_DROPPED}"), 0, dropped))
    });
    let (dropped, dropped_by) = counted(drops.filter(|one| one.grown() > 0).collect());
    let (told, told_by) = counted(reasons(seen, &QDISC_OUT));
    let bound = match seen.drops.is_some() && seen.asked.port.is_none() {
        true => 0,
        false => dropped.min(full),
    };
    (
        told.max(bound),
        told_by.into_iter().chain(dropped_by).collect(),
    )
}

/// Packets that this interface could not send.
fn refused_by(seen: &Observed, name: &str) -> Vec<Evidence> {
    let dropped = seen.link(name, "tx_dropped");
    let errors = seen.link(name, "tx_errors");
    dropped.into_iter().chain(errors).collect()
}

/// Packets that interfaces could not send. Those of an interface that is down have a reason of queues, too.
fn in_rings(seen: &Observed) -> (u64, Vec<Evidence>) {
    let is_told = |name: &&str| seen.drops.is_some() && link_fault::of_down(seen, name).is_some();
    let all = seen
        .counting_interfaces()
        .filter(|name| !is_told(name))
        .flat_map(|name| refused_by(seen, name));
    counted(all.filter(|one| one.grown() > 0).collect())
}

fn run(seen: &Observed) -> Vec<Finding> {
    let found = losses(seen).into_iter();
    let found = found.filter_map(|loss| finding(seen, loss));
    found
        .chain(unanswered(seen))
        .chain(refused_networks(seen))
        .collect()
}

/// Routes that refuse, where no datagram was sent, without those of a router, which has them on purpose: the kernel counts no datagram that they refuse (`EINVAL`,
/// `EHOSTUNREACH`, `EACCES`).
fn refused_networks(seen: &Observed) -> Option<Finding> {
    let networks = &seen.after.refused_networks;
    let sent = seen.counters(&["Udp.OutDatagrams"]);
    let is_router = conntrack::forwards(seen) == Some(true);
    if networks.is_empty() || is_router || sent.is_empty() || Evidence::sum(&sent) > 0 {
        return None;
    }
    let mut found = Finding::noticed(seen, &CHECK, NO_ROUTE_OUT.station, sent);
    found.is_remark = true;
    let what = format!(
        "no datagram left this host, and nothing counts what routes here refuse: {}; a program that sends there gets \
         EINVAL, EHOSTUNREACH or EACCES",
        networks.join(", ")
    );
    let remedy = "ip route get ADDRESS shows the route: delete it, or add a longer one; none, if no program sends there";
    Some(found.says(what, remedy).with(Possible))
}

fn finding(seen: &Observed, loss: LossOut) -> Option<Finding> {
    let (kind, count) = (loss.kind, loss.count);
    let is_reason = |one: &Evidence| one.source.starts_with("drop reason");
    let confidence = match kind {
        // The same counter has the answers of BPF programs and of policies.
        _ if kind == &FIREWALL_OUT && !loss.evidence.iter().all(is_reason) => Possible,
        _ if kind == &INTERFACE_OUT => Likely,
        // A route that went drops so too.
        _ if kind == &NO_STATE_OUT && seen.grown(kind.counters) == 0 => Possible,
        _ if kind == &NO_NEIGHBOUR && loss.evidence != reasons(seen, kind) => Likely,
        _ if kind == &TOO_LONG_OUT => Certain,
        _ if loss.evidence.iter().any(is_reason) => Certain,
        _ => Likely,
    };
    let is_of_port = match [&INTERFACE_OUT, &NO_STATE_OUT].contains(&kind) {
        true => loss.evidence.iter().any(is_reason),
        false => loss.evidence.iter().all(is_reason),
    };
    let interfaces = loss.evidence.iter().filter(|one| !is_reason(one));
    let mut interfaces: Vec<&str> = interfaces
        .filter_map(|one| {
            let of_queue = one.source.strip_suffix(QDISC_DROPPED);
            of_queue.or_else(|| Some(one.source.rsplit_once(' ')?.0))
        })
        .collect();
    interfaces.dedup();
    let named = match kind {
        _ if kind == &NO_NEIGHBOUR => seen.after.unanswered.join(", "),
        _ if kind.scope == Scope::Interface => interfaces.join(", "),
        _ => String::new(),
    };
    let (mut what, remedy, is_open) = words(seen, kind, &loss.evidence)?;
    let confidence = match (is_open, confidence) {
        (true, Certain) => Likely,
        _ => confidence,
    };
    let found = Finding::lost(seen, &CHECK, kind.station, loss.evidence)?;
    if !named.is_empty() {
        what = format!("{what}: {named}");
    }
    if let (1.., Some(ways)) = (loss.forwarded, ways_by(seen)) {
        what = format!(
            "{what}; no socket here sent {} of them: {ways}",
            loss.forwarded
        );
    }
    let confidence = match kind == &SEND_BUFFER && refused_where(seen, count).1 {
        true => {
            what.push_str("; or a queue, a filter or a rule at an interface refused it (ENOBUFS)");
            Possible
        }
        false => confidence,
    };
    if seen.asked.port.is_some() && !is_of_port {
        what.push_str("; that is of all ports");
    }
    Some(found.of(count, seen).says(what, remedy).with(confidence))
}

/// The words for a loss, its remedy, and whether its cause is inferred.
fn words(
    seen: &Observed,
    kind: &LossKind,
    evidence: &[Evidence],
) -> Option<(String, String, bool)> {
    if kind == &INTERFACE_OUT {
        let refused = |name: &&str| Evidence::sum(&refused_by(seen, name));
        let most = seen.counting_interfaces().max_by_key(refused);
        // Only a tun or tap has these reasons.
        let tap = seen.interfaces().find(|name| seen.driver_of(name) == "tun");
        let name = most.filter(|name| refused(name) > 0);
        let name = name.or(tap).unwrap_or("tun");
        let fault = link_fault::of_sender(seen, name);
        return Some((fault.what, fault.remedy, !fault.is_seen));
    }
    let &(_, what, remedy) = TOLD.iter().find(|(of, ..)| *of == kind)?;
    if kind == &FIREWALL_OUT && seen.after.has_policies {
        return Some((
            format!("{what}{MARKED}"),
            format!("{remedy}; ip rule"),
            true,
        ));
    }
    if kind != &NO_NEIGHBOUR {
        let is_named = evidence
            .iter()
            .any(|one| one.source.ends_with(QDISC_DROPPED));
        let is_unnamed = kind == &QDISC_OUT && !is_named;
        if kind == &QDISC_OUT && is_named && queues_of(evidence).all(|name| is_ifb(seen, name)) {
            return Some((QUEUE_IN.to_owned(), remedy.to_owned(), false));
        }
        let fault = match kind == &FILTER_OUT {
            true => link_fault::of_redirect(seen),
            false => is_unnamed.then(|| link_fault::of_queue(seen)).flatten(),
        };
        if let Some((why, first)) =
            listen_queue::advertisements(seen).filter(|_| kind == &NO_ROUTE_OUT)
        {
            return Some((format!("{what}{why}"), format!("{first}{remedy}"), true));
        }
        return Some(match fault {
            Some(fault) => (format!("{what}: {}", fault.what), fault.remedy, true),
            None => (what.to_owned(), remedy.to_owned(), false),
        });
    }
    let is_full = evidence
        .iter()
        .all(|one| one.source.contains("NEIGH_QUEUEFULL"));
    let silent = &seen.after.unanswered;
    if is_full && silent.is_empty() {
        return Some((FULL_QUEUE.0.to_owned(), FULL_QUEUE.1.to_owned(), true));
    }
    let ways = silent.iter().filter_map(|host| host.rsplit_once(" on "));
    let addresses = ways.clone().filter_map(|(address, _)| address.parse().ok());
    let filter = &seen.after.packet_filter;
    if let Some(flow) = filter.translated_among(&addresses.collect::<Vec<_>>()) {
        let (port, to) = (flow.to.port(), flow.answers);
        let delete = format!("conntrack -D -p udp --dport {port}");
        let (rule, remedy) = match filter.outdated(port) == Some(to) {
            true => (", and no rule does any more", delete),
            false => (
                "",
                format!(
                    "{remedy}; if no rule of NAT leads there any more (nft list ruleset): {delete}"
                ),
            ),
        };
        let what = format!("tracked flows lead port {port} to {to} (DNAT){rule}: {what}");
        return Some((what, remedy, true));
    }
    let mut faults = ways.filter_map(|(_, name)| link_fault::of_way(seen, name));
    Some(match faults.next() {
        Some(fault) => (format!("{what}, and {}", fault.what), fault.remedy, is_full),
        None => (what.to_owned(), remedy.to_owned(), is_full),
    })
}

/// Said where all queues are those of ifb interfaces.
const QUEUE_IN: &str = "the queueing discipline of an ifb dropped packets that tc redirects to it (mirred), as it may \
                        with all that comes in";

fn is_ifb(seen: &Observed, name: &str) -> bool {
    let mut links = seen.after.links.iter();
    links.any(|link| link.name == name && link.kind == "ifb")
}

/// The interfaces whose queueing disciplines dropped.
fn queues_of(evidence: &[Evidence]) -> impl Iterator<Item = &str> {
    let queues = evidence.iter();
    queues.filter_map(|one| one.source.strip_suffix(QDISC_DROPPED))
}

/// Said where no neighbour is silent, and only the queue of packets that wait for its answer was full
/// (`__neigh_event_send`, net/core/neighbour.c).
const FULL_QUEUE: (&str, &str) = (
    "datagrams waited for the answer of ARP or neighbour discovery, and the queue for them was full; the next host \
     answered, but later than the burst",
    "a longer queue: sysctl -w net.ipv4.neigh.IF.unres_qlen_bytes=8000000 (of IPv6 net.ipv6.neigh.IF); or an entry \
     that stays: ip neigh replace ADDRESS lladdr MAC dev IF nud permanent; or a first datagram before the burst",
);

/// Without drop reasons nothing counts the datagrams that wait for an answer in vain. The kernel informs the
/// sender, but not for each datagram (`arp_error_report` in net/ipv4/arp.c).
fn unanswered(seen: &Observed) -> Option<Finding> {
    let told = seen.counters(&["Icmp.OutDestUnreachs", "Icmp6.OutDestUnreachs"]);
    let hosts = &seen.after.unanswered;
    if seen.drops.is_some() || hosts.is_empty() || Evidence::sum(&told) == 0 {
        return None;
    }
    let &(_, what, remedy) = TOLD.iter().find(|(kind, ..)| *kind == &NO_NEIGHBOUR)?;
    let what = format!("{what}: {}", hosts.join(", "));
    let mut found = Finding::noticed(seen, &CHECK, NO_NEIGHBOUR.station, told);
    found.is_remark = true;
    Some(
        found
            .says(what, seen.reasons_hint() + remedy)
            .with(Possible),
    )
}
