//! A program that its cgroup's CPU quota holds back.

use super::{Check, Confidence, Evidence, Finding, Seen, SeenSocket};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "quota",
    reads: "`throttled_usec` of the cgroup of each program with a UDP socket (cgroup v2), and the drops of \
            its sockets",
    speaks: "a program was held back by its CPU quota a twentieth of the time or more while its sockets lost \
             datagrams",
    made_by: "`systemd-run -p CPUQuota=5% PROGRAM` and a flood",
    run,
};

/// Below this share of the time a quota explains no loss.
const SHARE_MIN: f64 = 0.05;

fn run(seen: &Seen) -> Vec<Finding> {
    let sockets = seen.sockets();
    sockets
        .iter()
        .filter_map(|socket| finding(seen, socket))
        .collect()
}

/// The socket's losses, if a quota explains them.
pub(super) fn finding(seen: &Seen, socket: &SeenSocket) -> Option<Finding> {
    let (now, before) = (socket.owner?, socket.earlier?);
    let name = format!("throttled_usec of {} (pid {})", now.name, now.pid);
    let held = Evidence::new(name, before.throttled_us?, now.throttled_us?);
    let share = held.grown() as f64 / 1e6 / seen.seconds();
    if share < SHARE_MIN {
        return None;
    }
    let mut found = Finding::lost(seen, &CHECK, Station::Socket, vec![socket.drops.clone()])?;
    found.evidence.push(held);
    let what = format!(
        "the buffer of {} was full while the CPU quota of its cgroup held the program back {:.0} % of \
         the time",
        socket.name(),
        share * 100.0
    );
    let remedy =
        "a larger quota: systemctl set-property UNIT CPUQuota=, or for a container its CPU limit";
    Some(found.says(what, remedy).with(Confidence::Likely))
}
