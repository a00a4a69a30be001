//! Packets that a CPU's backlog had no room for.

use super::{Check, Confidence, Evidence, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "backlog",
    reads: "`dropped` of each CPU (softnet_stat), which is of the whole machine",
    speaks: "the queue between two CPUs (RPS, a veth, a tunnel, loopback) was full",
    made_by: "RPS, or loopback, to a CPU that is busy, and a flood",
    run,
};

pub(super) fn losses(seen: &Seen) -> Vec<Evidence> {
    let rows = seen.after.snapshot.softnet.rows.iter();
    let both = rows.filter_map(|now| {
        let before = seen.before.snapshot.softnet.row(now.cpu)?;
        let name = format!("softnet_stat dropped of CPU {}", now.cpu);
        // 32 bits: one that wrapped went on.
        let grown = now.dropped.wrapping_sub(before.dropped);
        let before = u64::from(before.dropped);
        Some(Evidence::new(name, before, before + u64::from(grown)))
    });
    both.collect()
}

fn run(seen: &Seen) -> Vec<Finding> {
    let found = Finding::lost(seen, &CHECK, Station::Backlog, losses(seen)).map(|found| {
        let cpus: Vec<&str> = found
            .evidence
            .iter()
            .filter_map(|one| one.source.rsplit(' ').next())
            .collect();
        let cpus = cpus.join(", ");
        let full = seen.cpus();
        let is_full = full.iter().any(|cpu| cpu.busy >= 0.9 && cpus.split(", ").any(|one| one == cpu.cpu.to_string()));
        let why = match is_full {
            true => ", which was busy all the time",
            false => "",
        };
        found
            .says(
                format!("the backlog of CPU {cpus}{why} was full (netdev_max_backlog packets)"),
                "for bursts a longer queue: sysctl -w net.core.netdev_max_backlog=10000; if the CPU is \
                 full, more CPUs in rps_cpus, or more receive queues: mpps backends IF",
            )
            .with(Confidence::Certain)
    });
    found.into_iter().collect()
}
