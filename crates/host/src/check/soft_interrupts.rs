//! A CPU that soft interrupts fill.

use super::overrun::soft_interrupts;
use super::reader::FULL;
use super::{Check, Confidence, Finding, Observed, loses_early};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "soft_interrupts",
    reads: "each CPU's load (/proc/stat), and losses of NICs and backlogs",
    speaks: "a NIC or backlog lost packets; a CPU was full, half or more soft interrupts",
    run,
};

/// From this share on soft interrupts have most of a CPU.
const MOST: f64 = 0.5;

fn run(seen: &Observed) -> Vec<Finding> {
    if !loses_early(seen) {
        return Vec::new();
    }
    let cpus = seen.cpus.iter();
    let full = cpus.filter(|cpu| cpu.busy >= FULL && cpu.softirq >= MOST);
    let found = full.map(|cpu| {
        let evidence = vec![soft_interrupts(seen, cpu.cpu)];
        let found = Finding::noticed(seen, &CHECK, Station::Backlog, evidence);
        let what = format!(
            "soft interrupts took {:.0} % of CPU {}, which was full, while packets were lost before it: one \
             CPU takes in what several could",
            cpu.softirq * 100.0,
            cpu.cpu
        );
        let remedy = "more receive queues, each with its interrupt at a CPU of its own: mpps backends IF; or \
                      RPS over more CPUs: /sys/class/net/IF/queues/rx-*/rps_cpus; and less work for each \
                      packet: firewall rules and conntrack cost most of it";
        found.says(what, remedy).with(Confidence::Likely)
    });
    found.collect()
}
