//! Datagrams that a rule of the packet filter dropped.

use super::{Check, Confidence, Evidence, Finding, Observed, conntrack};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "firewall",
    reads: "the drop reason `NETFILTER_DROP` of UDP (tracepoint skb:kfree_skb; no counter has it), `invalid` \
            (/proc/net/stat/nf_conntrack), tracked flows, tables of the older iptables",
    speaks: "nftables or iptables dropped UDP datagrams, with `--port` those to it; without it a remark, unless they \
             seem to be answers or were found invalid",
    run,
};

pub(super) const REASON: &str = conntrack::REASON;

/// The commands that list all rules, and a rule's counter.
pub(super) fn rules(seen: &Observed) -> String {
    let commands = ["nft -a list ruleset", "iptables-save -c"];
    let legacy = seen.after.packet_filter.legacy.iter().copied();
    let commands: Vec<&str> = commands.into_iter().chain(legacy).collect();
    commands.join("; ")
}

/// What made a rule drop them, if that is seen: why, what fixes it, and the counter that shows it.
struct RuleCause {
    what: String,
    remedy: String,
    evidence: Evidence,
    confidence: Confidence,
}

fn run(seen: &Observed) -> Vec<Finding> {
    let Some(dropped) = seen.reason(REASON) else {
        return Vec::new();
    };
    let left = dropped.grown().saturating_sub(conntrack::came(seen));
    if left == 0 {
        return Vec::new();
    }
    let found = Finding::lost(seen, &CHECK, Station::Ip, vec![dropped]).map(|found| {
        let mut found = found.of(left, seen);
        let rules = rules(seen);
        let cause = invalid(seen, left).or_else(|| answers(seen, left));
        let what = "a rule of the packet filter dropped UDP datagrams";
        let Some(cause) = cause else {
            // Which port they were for is not known, and a firewall is there to drop.
            found.is_remark = seen.asked.port.is_none();
            let one = match found.is_remark {
                true => "; mpps doctor --port PORT shows whether a port of yours is among them",
                false => "",
            };
            let remedy = format!(
                "if that is meant, nothing is wrong. {rules}: a rule's counter shows which one it is{one}"
            );
            return found.because(&[forwarded(seen, left)]).says(what, remedy);
        };
        found.evidence.push(cause.evidence);
        let remedy = format!("{}; or {rules}: a rule's counter shows which one it is", cause.remedy);
        let what = format!("{what}{}", cause.what);
        found.says(what, remedy).with(cause.confidence)
    });
    found.into_iter().collect()
}

/// Newer kernels count a packet as forwarded before the rules see it (`ip_forward`, net/ipv4/ip_forward.c).
pub(super) const FORWARDED: [&str; 2] = ["Ip.ForwDatagrams", "Ip6.OutForwDatagrams"];

fn forwarded(seen: &Observed, count: u64) -> String {
    let forwarded = seen.grown(&FORWARDED);
    match forwarded >= count {
        true => {
            format!("{forwarded} packets were to be forwarded: see the chains of the hook forward")
        }
        false => String::new(),
    }
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
    is_like_sent.then(|| RuleCause {
        what: format!(
            ", possibly answers: {} has not answered {}, and answers from another address or port are no part of \
             that flow",
            flow.to, flow.from
        ),
        remedy: format!(
            "tcpdump -ni any udp port {} shows where answers come from: the server has to answer from the address \
             that was asked (IP_PKTINFO, or a socket for each address)",
            flow.from.port()
        ),
        evidence,
        confidence: Confidence::Possible,
    })
}
