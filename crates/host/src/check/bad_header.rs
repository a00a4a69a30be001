//! Packets whose IP header is damaged.

use super::{Check, Confidence, Finding, Observed};
use crate::ledger::loss::{BAD_HEADER, FRAGMENTS};

pub(super) const CHECK: Check = Check {
    name: "bad_header",
    reads: "`Ip.InHdrErrors`, `Ip6.InHdrErrors`, `Icmp.OutTimeExcds`, `Icmp6.OutTimeExcds`",
    speaks: "IP refused a header: damage, hop limit used up (a remark if these may be probes of traceroute or mtr), bad \
             IPv6 address or extension header",
    run,
};

/// Said where this host informed senders that their hop limit was used up (`ip_forward`, `ip6_forward`). It does so
/// about once a second for each (`icmp_ratelimit`).
const USED_UP: (&str, &str) = (
    "packets came that this host should have forwarded, and their hop limit (TTL) was used up: the sender set it too \
     low, or routes lead in a circle, or traceroute or mtr asks for the way by this host; damaged IP headers, if \
     any, are among them",
    "tcpdump -vni IF 'ip[8] < 2 or ip6[7] < 2' shows them: a higher limit at the sender (IP_TTL, IPV6_UNICAST_HOPS, \
     sysctl net.ipv4.ip_default_ttl); for a circle, traceroute ADDRESS shows routers twice",
);

/// `traceroute` uses up three packets at each router, and `mtr` one a second. Some of them at once are
/// no fault.
const PROBES: u64 = 10;

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::counted(seen, &CHECK, &BAD_HEADER).map(|mut found| {
        // A datagram that misses fragments sends the same message.
        let told = seen.counters(&["Icmp.OutTimeExcds", "Icmp6.OutTimeExcds"]);
        let told: Vec<_> = told.into_iter().filter(|one| one.grown() > 0).collect();
        if !told.is_empty() && seen.grown(FRAGMENTS.counters) == 0 {
            found.evidence.extend(told);
            found.is_remark = found.count <= PROBES || found.rate_pps < PROBES as f64;
            return found.says(USED_UP.0, USED_UP.1).with(Confidence::Likely);
        }
        let is_v6 = seen.grown(&BAD_HEADER.counters[1..]) > 0;
        // Of IPv6 whole headers are among them (ip6_rcv_core, ip6_parse_tlv, ipv6_rthdr_rcv).
        let (refused, shown, confidence) = match is_v6 {
            true => (
                "IPv6 did not take an extension header (an option that it does not know, or a routing header), or an \
                 address that may not come from outside, such as ::1 or a group as the source; or ",
                ", such an address or an extension header (DSTOPT, HBH, RH)",
                Confidence::Possible,
            ),
            false => ("", "", Confidence::Certain),
        };
        let what = format!(
            "{refused}packets came with a damaged IP header, or this host should have forwarded them and their hop \
             limit was used up"
        );
        let remedy = format!(
            "tcpdump -vni IF shows `bad cksum`, `bad-len`, a ttl or hlim of 1{shown}; correct the sender or the \
             route"
        );
        found.says(what, remedy).with(confidence)
    });
    found.into_iter().collect()
}
