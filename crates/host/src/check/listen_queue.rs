//! Connections that found the accept queue of a listener full.

use super::{Check, Finding, Observed};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "listen_queue",
    reads: "`TcpExt.ListenOverflows`, and which listener drops (sock_diag)",
    speaks: "the accept queue of a listening TCP socket was full",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let overflows = seen.counters(&["TcpExt.ListenOverflows"]);
    let found = Finding::lost(seen, &CHECK, Station::Socket, overflows).map(|found| {
        let remedy = format!(
            "ss -ltn shows the full one (Recv-Q above Send-Q); accept faster, or a longer queue: the \
             program's own backlog of listen(2), and room for it: {}",
            seen.raise("net.core.somaxconn", 4096)
        );
        let full = seen.after.listeners.iter().filter(|now| {
            let mut earlier = seen.before.listeners.iter();
            let before = earlier.find(|before| before.inode == now.inode);
            now.drops != before.map_or(0, |before| before.drops)
        });
        let full: Vec<String> = full
            .map(|one| format!("{} ({} of {} wait)", one.local, one.waiting, one.waiting_max))
            .collect();
        let what = match full.len() {
            0 => "a listening TCP socket".to_owned(),
            _ => format!("the listening TCP socket {}", full.join(", ")),
        };
        let what = format!("{what} dropped connection requests, because its accept queue was full");
        found.says(what, remedy)
    });
    found.into_iter().collect()
}
