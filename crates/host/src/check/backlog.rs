//! Packets that a CPU's backlog had no room for.

use super::{Check, Evidence, Finding, Observed};
use crate::ledger::loss::BACKLOG_FULL;
use crate::{CpuBusy, Station};

pub(super) const CHECK: Check = Check {
    name: "backlog",
    reads: "`dropped` of each CPU (softnet_stat), without the drops of other namespaces where they are watched",
    speaks: "the queue between two CPUs (RPS, a veth, a tunnel, loopback) was full",
    run,
};

/// From this many on, rules that a packet passes take longer than all the rest.
const MANY_RULES: usize = 1000;

fn losses(seen: &Observed) -> Vec<Evidence> {
    let rows = seen.after.snapshot.softnet.rows.iter();
    let both = rows.filter_map(|now| {
        let before = seen.before.snapshot.softnet.row(now.cpu)?;
        let name = format!("softnet_stat dropped of CPU {}", now.cpu);
        // The counter has 32 bits and may have wrapped.
        let grown = now.dropped.wrapping_sub(before.dropped);
        let before = u64::from(before.dropped);
        Some(Evidence::new(name, before, before + u64::from(grown)))
    });
    both.collect()
}

/// The drops in this network namespace; those in all if drops are not watched.
pub(super) fn lost(seen: &Observed) -> u64 {
    Evidence::sum(&losses(seen)).saturating_sub(seen.elsewhere(BACKLOG_FULL.reasons[0]))
}

fn run(seen: &Observed) -> Vec<Finding> {
    let lost = lost(seen);
    let found = Finding::lost(seen, &CHECK, Station::Backlog, losses(seen)).filter(|_| lost > 0);
    let found = found.map(|found| {
        let numbers = found.evidence.iter();
        let numbers: Vec<&str> = numbers.filter_map(|one| one.source.rsplit(' ').next()).collect();
        let is_full = |cpu: &CpuBusy| {
            cpu.busy >= 0.9 && numbers.iter().any(|number| *number == cpu.cpu.to_string())
        };
        let why = match seen.cpus.iter().any(is_full) {
            true => ", which was busy all the time,",
            false => "",
        };
        let what = format!(
            "the backlog of CPU {}{why} was full (netdev_max_backlog packets); it is of the whole machine",
            numbers.join(", ")
        );
        let remedy = format!(
            "for bursts a longer queue: {}; if the CPU is full, more CPUs in rps_cpus, or more receive \
             queues: mpps backends IF",
            seen.raise("net.core.netdev_max_backlog", 10_000)
        );
        let rules = match seen.after.packet_filter.rule_count {
            count if count >= MANY_RULES => format!(
                "the packet filter has {count} rules, and each packet may pass all of them before it comes to a socket: \
                 a set or a verdict map (nft), or ipset, is one rule for all addresses"
            ),
            _ => String::new(),
        };
        found.of(lost, seen).says(what, remedy).because(&[rules])
    });
    found.into_iter().collect()
}
