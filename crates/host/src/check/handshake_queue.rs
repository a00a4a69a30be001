//! Connections that found the SYN queue of a listener full.

use super::listen_queue::longer;
use super::{Check, Finding, Observed};
use crate::Station;
use crate::facts::Observation;

pub(super) const CHECK: Check = Check {
    name: "handshake_queue",
    reads: "`TcpExt.TCPReqQFullDrop`; `TcpExt.TCPReqQFullDoCookies`, unless `net.ipv4.tcp_syncookies` is 2",
    speaks: "a listening TCP socket's SYN queue was full: it sent SYN cookies or nothing",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let names = ["TcpExt.TCPReqQFullDoCookies", "TcpExt.TCPReqQFullDrop"];
    let dropped = seen.grown(&names[1..]);
    // With 2 each handshake has a cookie, and is counted so, however short the queue is.
    let setting = |facts: &Observation| facts.settings.get("net.ipv4.tcp_syncookies").copied();
    let is_always = [seen.before, seen.after].map(setting).contains(&Some(2));
    let told = &names[usize::from(is_always)..];
    let found = Finding::lost(seen, &CHECK, Station::Socket, seen.counters(told)).map(|mut found| {
        let remedy = format!(
            "ss -tn state syn-recv shows the senders: a flood, or many clients; a longer queue: {}, {}",
            seen.raise("net.ipv4.tcp_max_syn_backlog", 8192),
            longer(seen)
        );
        // A connection that was answered with a cookie is not lost.
        found.is_remark = dropped == 0;
        found.of(dropped, seen).says(
            "the SYN queue of a listening TCP socket was full: an answer with a SYN cookie loses options of TCP, \
             and without one the connection is lost",
            remedy,
        )
    });
    found.into_iter().collect()
}
