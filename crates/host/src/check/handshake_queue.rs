//! Connections that found the SYN queue of a listener full, or were refused before it.

use super::listen_queue::{full_ones, longer};
use super::{Check, Confidence, Finding, Observed};
use crate::Station;
use crate::facts::Observation;

pub(super) const CHECK: Check = Check {
    name: "handshake_queue",
    reads: "`TcpExt.TCPReqQFullDrop`; `TcpExt.TCPReqQFullDoCookies`, unless `net.ipv4.tcp_syncookies` is 2; \
            `TcpExt.ListenDrops` less `ListenOverflows`, `TCPReqQFullDrop` and `OutNoRoutes`; counters of TCP MD5 and \
            TCP-AO",
    speaks: "a listening TCP socket's SYN queue was full: it sent SYN cookies or nothing; or the kernel dropped \
             connection requests with no queue full, or segments for their signature",
    run,
};

/// The other parts of `ListenDrops`: full queues, and no route back (`tcp_conn_request`, net/ipv4/tcp_input.c).
const OTHERS: [&str; 4] = [
    "TcpExt.ListenOverflows",
    "TcpExt.TCPReqQFullDrop",
    "Ip.OutNoRoutes",
    "Ip6.OutNoRoutes",
];

fn run(seen: &Observed) -> Vec<Finding> {
    let found = full(seen).into_iter().chain(refused(seen));
    found.chain(signed(seen)).collect()
}

/// Segments with a wrong signature (`tcp_inbound_hash`, net/ipv4/tcp.c), each with the cause.
const SIGNATURES: [(&str, &str); 6] = [
    (
        "TcpExt.TCPMD5NotFound",
        "no MD5 signature, and the socket wants one of that sender",
    ),
    (
        "TcpExt.TCPMD5Unexpected",
        "an MD5 signature, and the socket has no key for that sender",
    ),
    ("TcpExt.TCPMD5Failure", "an MD5 signature of another key"),
    (
        "TcpExt.TCPAORequired",
        "no TCP-AO signature, and the socket wants one of that sender",
    ),
    (
        "TcpExt.TCPAOKeyNotFound",
        "a TCP-AO signature, and the socket has no key of its number",
    ),
    ("TcpExt.TCPAOBad", "a TCP-AO signature of another key"),
];

fn signed(seen: &Observed) -> Option<Finding> {
    let mut evidence = seen.counters(&SIGNATURES.map(|(name, _)| name));
    evidence.retain(|one| one.grown() > 0);
    let is_there = |name: &str| evidence.iter().any(|one| one.source == name);
    let causes = SIGNATURES.iter().filter(|(name, _)| is_there(name));
    let causes: Vec<&str> = causes.map(|(_, cause)| *cause).collect();
    let what = format!(
        "TCP dropped segments for their signature, as of BGP: they have {}",
        causes.join(", or ")
    );
    let found = Finding::lost(seen, &CHECK, Station::Socket, evidence)?;
    Some(found.says(
        what,
        "the same password at both ends, for the addresses that they use (BIRD password, FRR neighbor ADDRESS \
         password); tcpdump -nvi any tcp port 179 shows `md5` or none; dmesg may name the sender",
    ))
}

fn full(seen: &Observed) -> Option<Finding> {
    let names = ["TcpExt.TCPReqQFullDoCookies", "TcpExt.TCPReqQFullDrop"];
    let dropped = seen.grown(&names[1..]);
    // With 2 each handshake has a cookie, and is counted so, however short the queue is.
    let setting = |facts: &Observation| facts.settings.get("net.ipv4.tcp_syncookies").copied();
    let is_always = [seen.before, seen.after].map(setting).contains(&Some(2));
    let told = &names[usize::from(is_always)..];
    let mut found = Finding::lost(seen, &CHECK, Station::Socket, seen.counters(told))?;
    // The backlog of listen(2) is its length (`inet_csk_reqsk_queue_is_full`).
    let remedy = format!(
        "ss -tn state syn-recv shows the senders: a flood, or many clients; a longer queue: {}",
        longer(seen)
    );
    // A connection that was answered with a cookie is not lost.
    found.is_remark = dropped == 0;
    Some(found.of(dropped, seen).says(
        "the SYN queue of a listening TCP socket was full: an answer with a SYN cookie loses options of TCP, and \
         without one the connection is lost",
        remedy,
    ))
}

/// Requests that were dropped although no queue was full.
fn refused(seen: &Observed) -> Option<Finding> {
    let drops = seen.counters(&["TcpExt.ListenDrops"]);
    let mut found = Finding::lost(seen, &CHECK, Station::Socket, drops)?;
    let count = found.count.saturating_sub(seen.grown(&OTHERS));
    let others = seen.counters(&OTHERS).into_iter();
    found.evidence.extend(others.filter(|one| one.grown() > 0));
    let is_off = seen.after.settings.get("net.ipv4.tcp_syncookies") == Some(&0);
    let limit = "net.ipv4.tcp_max_syn_backlog";
    let wanted = seen
        .after
        .settings
        .get(limit)
        .map_or(8192, |now| now.saturating_mul(4));
    let (why, remedy, confidence) = match is_off {
        true => (
            "without SYN cookies the kernel keeps the last quarter of net.ipv4.tcp_max_syn_backlog for clients that \
             it knows, and drops the requests of all others, as in a SYN flood",
            format!(
                "sysctl -w net.ipv4.tcp_syncookies=1; ss -tn state syn-recv shows the senders; for more unfinished \
                 handshakes {}, and the program's own backlog of listen(2) as large",
                seen.raise(limit, wanted)
            ),
            Confidence::Likely,
        ),
        false => (
            "no memory, a security module, or a request to a broadcast address",
            "dmesg and ausearch -m avc show refusals; nstat -az TcpExtListenDrops counts on"
                .to_owned(),
            Confidence::Possible,
        ),
    };
    let what = format!(
        "{} dropped connection requests, though no queue was full: {why}",
        full_ones(seen)
    );
    (count > 0).then(|| found.of(count, seen).says(what, remedy).with(confidence))
}
