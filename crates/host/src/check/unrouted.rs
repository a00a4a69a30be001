//! Packets that IP delivers nowhere, such as packets for a group without members here.

use super::unspecified::{REASON, Unspecified};
use super::{Check, Confidence, Evidence, Finding, Observed, filter_queue, no_listener};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "unrouted",
    reads: "drop reason `NOT_SPECIFIED` of UDP; IPv4: the gap between received and counted; IPv6: \
            `Ip6.InMcastPkts` not delivered, a remark; rules and programs of NFQUEUE (nfnetlink_queue)",
    speaks: "IP delivered datagrams nowhere, without a reason or a counter",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let Unspecified {
        unrouted,
        unrouted_v6,
        ..
    } = Unspecified::of(seen);
    v4(seen, unrouted)
        .into_iter()
        .chain(v6(seen, unrouted_v6))
        .collect()
}

/// By IPv6's counter they were to groups, and so for others: that is nothing wrong, however many, unless
/// they were for the port in question.
fn v6(seen: &Observed, count: u64) -> Option<Finding> {
    let evidence = vec![Evidence::new(format!("drop reason {REASON}"), 0, count)];
    let mut found = Finding::lost(seen, &CHECK, Station::Ip, evidence)?;
    found.evidence.extend(seen.counter("Ip6.InMcastPkts"));
    let joined = no_listener::joined(seen);
    // A port that was asked for has a socket, and what came for it missed the groups that are joined.
    found.is_remark = joined.is_empty() || seen.asked.port.is_none() || seen.sockets.is_empty();
    let found = found.says(
        format!(
            "datagrams came to IPv6 groups that no socket has joined, for their source, at the interface that \
             they come by, as mDNS of other hosts does{joined}"
        ),
        "none, if no program here wants them: ip maddress show lists what is joined where; a program joins \
         with IPV6_JOIN_GROUP, which takes the interface",
    );
    Some(found.with(Confidence::Likely))
}

fn v4(seen: &Observed, count: u64) -> Option<Finding> {
    let queue = filter_queue::cause(seen);
    let evidence = vec![Evidence::new(format!("drop reason {REASON}"), 0, count)];
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
                     counts none of them and the kernel names no reason{program}{}",
                    no_listener::joined(seen)
                ),
                format!("{log}three causes look alike: a group has to be joined at the interface that it comes by, for its \
                 source: ip maddress show, /proc/net/mcfilter; ip route get ADDRESS from SOURCE iif IF shows a blackhole or a prohibition; \
                 tcpdump -vni IF 'ip[0] & 15 > 5' shows IP options. sysctl -w \
                 net.ipv4.conf.all.log_martians=1 logs sources that cannot be one"),
            )
            .with(Confidence::Possible)
    })
}
