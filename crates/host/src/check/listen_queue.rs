//! Connections that found the accept queue of a listener full, or that no program accepts.

use super::reader::named;
use super::socket_buffer::halted;
use super::{Check, Confidence, Evidence, Finding, Observed, program_settings};
use crate::Station;
use crate::facts::Process;
use crate::ledger::loss::NO_ROUTE_OUT;
use mpps_os::netlink::sock_diag::ListeningSocket;
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "listen_queue",
    reads: "`TcpExt.ListenOverflows`, `TcpExt.ListenDrops`, `OutNoRoutes` (IP, IPv6), `Tcp.PassiveOpens`, and which listener drops or has connections that wait \
            (sock_diag); its processes, their state, descriptors and `Max open files`",
    speaks: "the accept queue of a listening TCP socket was full, no program accepted from it for a second or longer, or there is \
             no route for its answers",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let stuck = seen.after.listeners.iter();
    let stuck = stuck.filter_map(|one| unaccepted(seen, one));
    let found = overflows(seen).into_iter().chain(stuck);
    found.chain(no_way_back(seen)).collect()
}

/// How many connection requests a listener dropped for want of a route to their sender (`tcp_conn_request`,
/// net/ipv4/tcp_input.c). IP counts them where it counts what UDP cannot send.
pub(super) fn unrouted(seen: &Observed) -> u64 {
    let dropped = seen.grown(&["TcpExt.ListenDrops"]);
    let others = ["TcpExt.ListenOverflows", "TcpExt.TCPReqQFullDrop"];
    let dropped = dropped.saturating_sub(seen.grown(&others));
    dropped.min(seen.grown(NO_ROUTE_OUT.counters))
}

/// Why a default route of IPv6 may have gone, as half a sentence, and the remedy.
pub(super) fn advertisements(seen: &Observed) -> Option<(String, String)> {
    let came = |name: &&String| {
        seen.link(name, "rx_packets")
            .is_some_and(|one| one.grown() > 0)
    };
    let deaf: Vec<&String> = seen.after.deaf_to_routers.iter().filter(came).collect();
    let first = deaf
        .first()
        .filter(|_| seen.grown(&["Ip6.OutNoRoutes"]) > 0)?;
    Some((
        format!(
            "; {first} forwards IPv6 and its accept_ra is 1, so that the kernel takes no advertisement of a router, \
             and a default route from one is gone"
        ),
        format!(
            "sysctl -w net.ipv6.conf.{}.accept_ra=2 takes advertisements on a router too; or ",
            // sysctl(8) takes a slash for the dot in a name.
            ShellWord::new(&first.replace('.', "/"))
        ),
    ))
}

fn no_way_back(seen: &Observed) -> Option<Finding> {
    let mut evidence = seen.counters(&["TcpExt.ListenDrops"]);
    evidence.extend(seen.counters(NO_ROUTE_OUT.counters));
    evidence.retain(|one| one.grown() > 0);
    let found = Finding::lost(seen, &CHECK, Station::Socket, evidence)?;
    let (why, first) = advertisements(seen).unwrap_or_default();
    let what = format!(
        "connection requests of TCP came, and this host has no route to answer them: the clients get nothing{why}"
    );
    let remedy = format!(
        "{first}ip route get CLIENT shows what the kernel would do: add the route back, or a default route"
    );
    let found = found.of(unrouted(seen), seen).says(what, remedy);
    (found.count > 0).then(|| found.with(Confidence::Likely))
}

fn overflows(seen: &Observed) -> Option<Finding> {
    let overflows = seen.counters(&["TcpExt.ListenOverflows"]);
    let found = Finding::lost(seen, &CHECK, Station::Socket, overflows)?;
    let what = format!(
        "{} dropped connection requests, because its accept queue was full",
        full_ones(seen)
    );
    let full = full(seen);
    let cause = full.iter().find_map(|one| cause(seen, one));
    let (why, remedy) = cause.unwrap_or_else(|| {
        let count = accepted(seen).unwrap_or(0);
        (
            format!("programs of this namespace accepted {count} connections meanwhile"),
            format!(
                "accept faster{}, or a longer queue: {}",
                own_limit(seen, &full),
                longer(seen)
            ),
        )
    });
    Some(found.says(what, remedy).because(&[why]))
}

/// The setting of a program that accepts no connections beyond it.
fn own_limit(seen: &Observed, full: &[&ListeningSocket]) -> String {
    let mut all = full.iter().flat_map(|one| holders(seen, one));
    let limit = all.find_map(|one| program_settings::connection_limit(&one.name));
    limit.map_or_else(String::new, |limit| {
        format!("; or, if its own limit of connections is reached, {limit}")
    })
}

/// A listener whose connections wait from the first moment to the last, for a known reason.
fn unaccepted(seen: &Observed, one: &ListeningSocket) -> Option<Finding> {
    let waits = at_first(seen, one)?.waiting;
    if waits == 0 || one.waiting < waits || seen.seconds() < 1.0 || full(seen).contains(&one) {
        return None;
    }
    let (why, remedy) = cause(seen, one)?;
    let source = format!(
        "connections that wait at {} (sock_diag, inode {})",
        one.local, one.inode
    );
    let evidence = Evidence::new(source, waits.into(), one.waiting.into());
    let what = format!(
        "no program accepts from the listening TCP socket {}",
        name(seen, one)
    );
    let found = Finding::noticed(seen, &CHECK, Station::Socket, vec![evidence]);
    let found = found.says(what, remedy).because(&[why]);
    Some(found.with(Confidence::Likely))
}

/// The remedy for a program that holds back connections.
const OWN_LIMIT: &str = "a higher limit of connections in the program itself (memcached -c, maxconn of HAProxy, \
                         worker_connections of nginx)";

/// Why no program accepts, and the remedy; none if connections may be accepted.
pub(super) fn cause(seen: &Observed, one: &ListeningSocket) -> Option<(String, String)> {
    let all = holders(seen, one);
    if let Some(first) = all
        .first()
        .filter(|_| all.iter().all(|one| one.is_halted()))
    {
        return Some(halted(&all, first.pid));
    }
    let held = match one.waiting_max {
        0 => ", and its backlog of listen(2) is 0, as where memcached holds back connections",
        _ => "",
    };
    let is_full = |one: &&&Process| one.descriptors.is_some_and(|(open, limit)| open >= limit);
    if let Some(Process {
        name,
        pid,
        descriptors: Some((open, limit)),
        ..
    }) = all.iter().find(is_full)
    {
        let why = format!(
            "{name} (pid {pid}) has {open} open descriptors and may have {limit} (Max open files): accept fails with \
             EMFILE{held}"
        );
        let wanted = limit.saturating_mul(4);
        let remedy = format!(
            "prlimit --pid {pid} --nofile={wanted}:{wanted} at once, and LimitNOFILE= of its unit or ulimit -n; or have it \
             close what it no longer needs: ls -l /proc/{pid}/fd; or {OWN_LIMIT}"
        );
        return Some((why, remedy));
    }
    let slept = |now: &&Process| {
        let before = seen.before.processes.get(&now.pid);
        before
            .and_then(|before| now.busy_since(before))
            .is_some_and(|busy| busy.turns == 0)
    };
    let is_asleep = !all.is_empty() && all.iter().all(slept);
    let what = match accepted(seen) {
        Some(0) => "no connection was accepted meanwhile",
        _ if is_asleep => "its program did nothing meanwhile",
        Some(_) if is_starved(seen, one) => {
            "others at its address are accepted (SO_REUSEPORT), and its own wait"
        }
        _ => return None,
    };
    let waits = all.iter().find_map(|one| one.waits.get(&one.pid));
    let waits = waits.map_or_else(String::new, |name| {
        format!("; at the end it slept in {name} (wchan)")
    });
    let pid = all
        .first()
        .map_or_else(|| "PID".to_owned(), |one| one.pid.to_string());
    let remedy = format!("see what it waits for: cat /proc/{pid}/task/*/wchan; or {OWN_LIMIT}");
    Some((format!("{what}{held}{waits}"), remedy))
}

/// How many connections the programs of the namespace accepted; none if the kernel does not count them.
fn accepted(seen: &Observed) -> Option<u64> {
    let waiting = |all: &[ListeningSocket]| all.iter().map(|one| u64::from(one.waiting)).sum();
    let made = seen.counter("Tcp.PassiveOpens")?.grown();
    let made = made.saturating_add(waiting(&seen.before.listeners));
    Some(made.saturating_sub(waiting(&seen.after.listeners)))
}

/// Another listener at its address is emptied (`SO_REUSEPORT`).
fn is_starved(seen: &Observed, one: &ListeningSocket) -> bool {
    let mut all = seen.after.listeners.iter();
    all.any(|mate| mate.local == one.local && mate.waiting.saturating_mul(16) < one.waiting)
}

pub(super) fn holders<'a>(seen: &Observed<'a>, one: &ListeningSocket) -> Vec<&'a Process> {
    let pids = seen.after.owners.get(&one.inode).into_iter().flatten();
    pids.filter_map(|pid| seen.after.processes.get(pid))
        .collect()
}

fn at_first<'a>(seen: &Observed<'a>, one: &ListeningSocket) -> Option<&'a ListeningSocket> {
    let mut earlier = seen.before.listeners.iter();
    earlier.find(|before| before.inode == one.inode)
}

/// `0.0.0.0:80 of nginx (pid 9) (129 of 128 wait)`.
fn name(seen: &Observed, one: &ListeningSocket) -> String {
    let holders = holders(seen, one).into_iter();
    let holders = holders.map(|one| format!("{} (pid {})", one.name, one.pid));
    let of = match named(holders.collect()) {
        none if none.is_empty() => String::new(),
        names => format!(" of {names}"),
    };
    format!(
        "{}{of} ({} of {} wait)",
        one.local, one.waiting, one.waiting_max
    )
}

/// The listeners that dropped requests, in words.
pub(super) fn full_ones(seen: &Observed) -> String {
    let full: Vec<String> = full(seen).into_iter().map(|one| name(seen, one)).collect();
    match full.len() {
        0 => "a listening TCP socket".to_owned(),
        _ => format!("the listening TCP socket {}", full.join(", ")),
    }
}

/// The listeners that dropped requests.
pub(super) fn full<'a>(seen: &Observed<'a>) -> Vec<&'a ListeningSocket> {
    let full = seen.after.listeners.iter();
    full.filter(|now| now.drops != at_first(seen, now).map_or(0, |before| before.drops))
        .collect()
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
