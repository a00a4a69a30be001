//! Datagrams of connected sockets that other hosts refused.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use mpps_os::netlink::sock_diag::UdpEntry;
use std::collections::BTreeSet;

pub(super) const CHECK: Check = Check {
    name: "refused_sends",
    reads: "`Icmp.InDestUnreachs`, `Icmp6.InDestUnreachs`, `Udp.OutDatagrams`, `Udp6.OutDatagrams`, and connected UDP \
            sockets (sock_diag)",
    speaks: "other hosts refused datagrams, and a connected socket here loses one more for each refusal (ECONNREFUSED); \
             a remark if other sockets may have sent them",
    run,
};

/// Fewer refusals are a remark.
const FEW: u64 = 2;

fn run(seen: &Observed) -> Vec<Finding> {
    let evidence = seen.counters(&["Icmp.InDestUnreachs", "Icmp6.InDestUnreachs"]);
    let evidence: Vec<Evidence> = evidence.into_iter().filter(|one| one.grown() > 0).collect();
    let refused = Evidence::sum(&evidence);
    let sent = seen.counters(&["Udp.OutDatagrams", "Udp6.OutDatagrams"]);
    let asked = || seen.sockets.iter().map(|socket| socket.entry);
    let remotes = remotes(asked());
    if refused == 0 || Evidence::sum(&sent) == 0 || remotes.is_empty() {
        return Vec::new();
    }
    let has_others = asked().any(|entry| entry.remote.is_none());
    let mut found = Finding::noticed(seen, &CHECK, Station::Sender, evidence);
    found
        .evidence
        .extend(sent.into_iter().filter(|one| one.grown() > 0));
    found.is_remark = has_others || refused < FEW;
    let whose = match has_others {
        true => ", or of a socket that is not connected",
        false => "",
    };
    let what = format!(
        "other hosts refused datagrams of this one (ICMP destination unreachable), of a socket that is connected to \
         {}{whose}: no program has that port, or the way there is closed or takes only shorter packets; after a \
         refusal of the port the next send fails (ECONNREFUSED) and its datagram is lost too",
        remotes.join(", ")
    );
    let remedy = "tcpdump -ni any 'icmp[0] == 3' shows which and why: start the program there, or correct the \
                  address, the route or the size; after ECONNREFUSED the sender has to send again";
    let confidence = match found.is_remark {
        true => Confidence::Possible,
        false => Confidence::Likely,
    };
    vec![found.says(what, remedy).with(confidence)]
}

/// Where connected sockets send: the first few.
pub(super) fn remotes<'e>(entries: impl Iterator<Item = &'e UdpEntry>) -> Vec<String> {
    let all = entries.filter_map(|entry| entry.remote);
    let all: BTreeSet<_> = all.filter(|remote| !remote.ip().is_loopback()).collect();
    all.iter().take(4).map(ToString::to_string).collect()
}
