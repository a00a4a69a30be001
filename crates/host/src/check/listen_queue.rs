//! Connections that found the accept queue of a listener full.

use super::{Check, Confidence, Finding, Observed};
use crate::Station;
use crate::ledger::loss::NO_ROUTE_OUT;
use mpps_os::netlink::sock_diag::ListeningSocket;

pub(super) const CHECK: Check = Check {
    name: "listen_queue",
    reads: "`TcpExt.ListenOverflows`, `TcpExt.ListenDrops`, `OutNoRoutes` (IP, IPv6), and which listener drops (sock_diag)",
    speaks: "the accept queue of a listening TCP socket was full, or there is no route for its answers",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let overflows = seen.counters(&["TcpExt.ListenOverflows"]);
    let found = Finding::lost(seen, &CHECK, Station::Socket, overflows).map(|found| {
        let remedy = format!(
            "ss -ltn shows the full one (Recv-Q above Send-Q); accept faster, or a longer queue: {}",
            longer(seen)
        );
        let what = format!(
            "{} dropped connection requests, because its accept queue was full",
            full_ones(seen)
        );
        found.says(what, remedy)
    });
    found.into_iter().chain(no_way_back(seen)).collect()
}

/// How many connection requests a listener dropped for want of a route to their sender (`tcp_conn_request`,
/// net/ipv4/tcp_input.c). IP counts them where it counts what UDP cannot send.
pub(super) fn unrouted(seen: &Observed) -> u64 {
    let dropped = seen.grown(&["TcpExt.ListenDrops"]);
    let others = ["TcpExt.ListenOverflows", "TcpExt.TCPReqQFullDrop"];
    let dropped = dropped.saturating_sub(seen.grown(&others));
    dropped.min(seen.grown(NO_ROUTE_OUT.counters))
}

fn no_way_back(seen: &Observed) -> Option<Finding> {
    let mut evidence = seen.counters(&["TcpExt.ListenDrops"]);
    evidence.extend(seen.counters(NO_ROUTE_OUT.counters));
    evidence.retain(|one| one.grown() > 0);
    let found = Finding::lost(seen, &CHECK, Station::Socket, evidence)?;
    let found = found.of(unrouted(seen), seen).says(
        "connection requests of TCP came, and this host has no route to answer them: the clients get nothing",
        "ip route get CLIENT shows what the kernel would do: add the route back, or a default route",
    );
    (found.count > 0).then(|| found.with(Confidence::Likely))
}

/// These listeners, in words.
pub(super) fn full_ones(seen: &Observed) -> String {
    let full = full(seen).into_iter();
    let full: Vec<String> = full
        .map(|one| {
            format!(
                "{} ({} of {} wait)",
                one.local, one.waiting, one.waiting_max
            )
        })
        .collect();
    match full.len() {
        0 => "a listening TCP socket".to_owned(),
        _ => format!("the listening TCP socket {}", full.join(", ")),
    }
}

/// The listeners that dropped requests.
fn full<'a>(seen: &Observed<'a>) -> Vec<&'a ListeningSocket> {
    let full = seen.after.listeners.iter().filter(|now| {
        let mut earlier = seen.before.listeners.iter();
        let before = earlier.find(|before| before.inode == now.inode);
        now.drops != before.map_or(0, |before| before.drops)
    });
    full.collect()
}

/// How the full listeners get longer queues. listen(2) takes the lower of the program's own limit and the
/// setting, and reads the setting only then.
pub(super) fn longer(seen: &Observed) -> String {
    let again = "then restart the program, or let it call listen(2) again";
    let Some(&limit) = seen.after.settings.get("net.core.somaxconn") else {
        return format!("net.core.somaxconn and the program's own backlog of listen(2), {again}");
    };
    let is_own = |one: &&ListeningSocket| u64::from(one.waiting_max) < limit;
    let wanted = limit.saturating_mul(2).max(4096);
    let full = full(seen);
    match full.is_empty() {
        false if full.iter().all(is_own) => format!(
            "a larger backlog of listen(2) in the program, which asked for less than net.core.somaxconn \
             ({limit}) allows, {again}"
        ),
        _ => format!(
            "sysctl -w net.core.somaxconn={wanted} (it is {limit}), and the program's own backlog of listen(2) \
             as large, {again}"
        ),
    }
}
