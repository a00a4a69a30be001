//! Connections that found the queue of a listener full.

use super::{Check, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "listen_queue",
    reads: "`TcpExt.ListenDrops`, `TcpExt.ListenOverflows`",
    speaks: "a listening TCP socket dropped connections",
    made_by: "`sysctl -w net.core.somaxconn=1` and a server that does not accept (gallery: `a_full_queue_of_connections`)",
    run,
};

fn run(seen: &Seen) -> Vec<Finding> {
    // Each overflow is one of the drops (tcp_v4_syn_recv_sock, net/ipv4/tcp_ipv4.c).
    let drops = seen.counters(&["TcpExt.ListenDrops"]);
    let found = Finding::lost(seen, &CHECK, Station::Socket, drops).map(|mut found| {
        found.evidence.extend(seen.counter("TcpExt.ListenOverflows"));
        found.says(
            "a listening TCP socket dropped packets of connections that were to begin: its queue of \
             connections that nobody has accepted was full",
            "ss -ltn shows the full one (Recv-Q above Send-Q); accept faster, or a longer queue: sysctl -w \
             net.core.somaxconn=4096, and the program's own backlog of listen(2)",
        )
    });
    found.into_iter().collect()
}
