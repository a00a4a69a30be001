//! A program on the CPU that also takes its packets in.

use super::{Check, Confidence, Evidence, Finding, Seen, SeenSocket, quota, reuseport_uneven};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "shared_cpu",
    reads: "the CPU on which the busiest thread of a socket's owner ran last, and what that CPU did (/proc/stat)",
    speaks: "a socket dropped datagrams while that CPU was full and soft interrupts took a fifth of it or more",
    made_by: "`taskset -c` the receiver to the CPU of its receive queue (`mpps lab`, rung 4a)",
    run,
};

/// From this share on a CPU is full.
const FULL: f64 = 0.9;
/// Below this share soft interrupts leave a program enough.
const SOFT_MIN: f64 = 0.2;
/// Fewer ticks than a second has say little of shares.
const TICKS_MIN: u64 = 100;

fn run(seen: &Seen) -> Vec<Finding> {
    let uneven = reuseport_uneven::inodes(seen);
    let sockets = seen.sockets();
    let sockets = sockets
        .iter()
        .filter(|socket| !uneven.contains(&socket.entry.inode))
        .filter(|socket| quota::finding(seen, socket).is_none());
    sockets.filter_map(|socket| finding(seen, socket)).collect()
}

/// The socket's losses, if its CPU explains them.
pub(super) fn finding(seen: &Seen, socket: &SeenSocket) -> Option<Finding> {
    let (owner, cpu) = (socket.owner?, socket.busy?.cpu?);
    let shares = seen.cpus().into_iter().find(|one| one.cpu == cpu)?;
    if shares.ticks < TICKS_MIN || shares.busy < FULL || shares.softirq < SOFT_MIN || owner.stopped
    {
        return None;
    }
    let mut found = Finding::lost(seen, &CHECK, Station::Socket, vec![socket.drops.clone()])?;
    let ticks = |facts: &crate::Facts| facts.cpus.cpus.get(&cpu).map_or(0, |ticks| ticks.softirq);
    let source = format!("soft interrupts of CPU {cpu} (/proc/stat, ticks)");
    found
        .evidence
        .push(Evidence::new(source, ticks(seen.before), ticks(seen.after)));
    let what = format!(
        "the buffer of {} was full: its busiest thread ran on CPU {cpu}, of which soft interrupts took \
         {:.0} %, so that program and receive queue share it",
        socket.name(),
        shares.softirq * 100.0
    );
    let remedy = format!(
        "another CPU for the program: taskset -pc CPU {}; or for the queue's interrupt: \
         /proc/interrupts, /proc/irq/N/smp_affinity_list. mpps placement --interface IF --port PORT \
         measures what each CPU is worth",
        owner.pid
    );
    Some(found.says(what, remedy).with(Confidence::Likely))
}
