//! Packets that IP delivers nowhere, such as packets for a group without members here.

use super::unspecified::{self, GROUPS_V4, REASON, Unspecified};
use super::vanished::GROUPS_V6;
use super::{
    Check, Confidence, Evidence, Finding, Observed, drop_reasons, filter_queue, no_listener,
};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "unrouted",
    reads: "drop reason `NOT_SPECIFIED` of UDP and the function that dropped; IPv4: the gap between received and \
            counted; IPv6: `Ip6.InMcastPkts` not delivered, a remark; rules and programs of NFQUEUE (nfnetlink_queue)",
    speaks: "IP delivered datagrams nowhere, without a reason or a counter",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let all = Unspecified::of(seen);
    let found = [
        v4(seen, all.unrouted),
        groups(seen, GROUPS_V4, all.groups_v4),
        groups(seen, GROUPS_V6, all.unrouted_v6),
    ];
    found.into_iter().flatten().collect()
}

/// True if packets to groups that nothing here has joined are nothing wrong, however many: they are for
/// others, unless they were for the port in question. That has a socket, and missed the groups that are joined.
fn are_for_others(seen: &Observed) -> bool {
    let joined = no_listener::joined(seen);
    joined.is_empty() || seen.asked.port.is_none() || seen.sockets.is_empty()
}

/// How many packets were for others, of IPv4 and IPv6: they are no loss. With a port, those of others too.
pub(super) fn for_others(seen: &Observed) -> u64 {
    let all = Unspecified::of(seen);
    let ours = match are_for_others(seen) {
        true => all.groups_v4.saturating_add(all.unrouted_v6),
        false => 0,
    };
    ours.saturating_add(seen.others(GROUPS_V4))
}

/// The limit of groups for one socket.
const MEMBERSHIPS: &str = "net.ipv4.igmp_max_memberships";

/// The setting that may have kept a program from joining, as a half sentence, and how to raise it.
fn too_many(seen: &Observed) -> Option<(String, String)> {
    let limit = *seen.after.settings.get(MEMBERSHIPS)?;
    let joined = seen.after.groups.iter().filter(|one| one.group.is_ipv4());
    let joined = joined.count() as u64;
    let what = format!(
        "; {joined} IPv4 groups are joined, and one socket may join {limit} ({MEMBERSHIPS}): further joins fail \
         with ENOBUFS"
    );
    let wanted = joined.saturating_mul(4);
    (limit > 0 && joined >= limit).then(|| (what, seen.raise(MEMBERSHIPS, wanted)))
}

fn groups(seen: &Observed, reason: &str, count: u64) -> Option<Finding> {
    let (version, counter, join) = match reason == GROUPS_V4 {
        true => ("IPv4", "Ip.InReceives", "IP_ADD_MEMBERSHIP"),
        false => ("IPv6", "Ip6.InMcastPkts", "IPV6_JOIN_GROUP"),
    };
    let source = match seen.reason(reason).is_some_and(|one| one.grown() > 0) {
        true => reason,
        false => REASON,
    };
    let evidence = vec![Evidence::new(
        format!("drop reason {}", drop_reasons::words(source)),
        0,
        count,
    )];
    let mut found = Finding::lost(seen, &CHECK, Station::Ip, evidence)?;
    found.evidence.extend(seen.counter(counter));
    found.is_remark = are_for_others(seen);
    let limit = too_many(seen).filter(|_| version == "IPv4" && !found.is_remark);
    let (limit, raise) = limit.unwrap_or_default();
    let sources = match seen
        .after
        .groups
        .iter()
        .any(|one| !one.only_from.is_empty())
    {
        true => {
            "; a group that is joined for one source takes no other: compare it with the sender's address"
        }
        false => "",
    };
    let raise = match raise.is_empty() {
        true => raise,
        false => format!("{raise}, and start the program again; or "),
    };
    // A program that names no interface gets that of the route.
    let elsewhere = match seen.asked.port.is_some() && !seen.after.groups.is_empty() {
        true => format!(
            "join at the interface that they come by: {join} takes it, and without it the route to the group decides (ip \
             route add GROUP dev IF, and start the program again); or "
        ),
        false => String::new(),
    };
    let found = found.says(
        format!(
            "datagrams came to {version} groups that no socket has joined, for their source, at the interface \
             that they come by, as mDNS of other hosts does{}{limit}",
            no_listener::joined(seen)
        ),
        format!(
            "{raise}{elsewhere}none, if no program here wants them: ip maddress show lists what is joined where, \
             /proc/net/mcfilter for which sources{sources}; a program joins with {join}, which takes the interface"
        ),
    );
    Some(found.with(Confidence::Likely))
}

fn v4(seen: &Observed, count: u64) -> Option<Finding> {
    let evidence = vec![Evidence::new(format!("drop reason {REASON}"), 0, count)];
    let functions = unspecified::functions(seen);
    let queue = filter_queue::cause(seen).filter(|_| functions.is_empty());
    // The function and the packets exclude groups and options.
    let (at, others) = match functions.is_empty() {
        true => (
            no_listener::joined(seen),
            "; a group has to be joined at the interface that it comes by, for its source: ip maddress show, \
             /proc/net/mcfilter; tcpdump -vni IF 'ip[0] & 15 > 5' shows IP options",
        ),
        false => (format!("; it dropped them in {}", functions.join(", ")), ""),
    };
    Finding::lost(seen, &CHECK, Station::Ip, evidence).map(|mut found| {
        found.evidence.extend(seen.counter("Ip.InReceives"));
        let (program, log) = match queue {
            Some(queue) if queue.confidence == Confidence::Likely => {
                found.evidence.extend(queue.evidence);
                return found.says(queue.what, queue.remedy).with(queue.confidence);
            }
            Some(queue) => (format!("; {}", queue.what), format!("{}; or ", queue.remedy)),
            None => Default::default(),
        };
        found
            .says(
                format!(
                    "IP received datagrams and delivered them nowhere; the cause is not known, because IPv4 \
                     counts none of them and the kernel names no reason{program}{at}"
                ),
                format!(
                    "{log}ip route get ADDRESS from SOURCE iif IF shows a blackhole or a prohibition; sysctl -w \
                     net.ipv4.conf.all.log_martians=1 logs sources that cannot be one{others}"
                ),
            )
            .with(Confidence::Possible)
    })
}
