//! Soft interrupts that end with work left, though their CPU has time.

use super::reader::FULL;
use super::{Check, Confidence, Evidence, Finding, Observed, nic_no_room};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "time_squeeze",
    reads: "`time_squeeze` of each CPU (softnet_stat), and each CPU's load",
    speaks: "a NIC had no room; CPUs not full ended soft interrupts early, 10/s or more",
    run,
};

/// Fewer a second come and go with the load.
const MIN_PER_SECOND: f64 = 10.0;

fn run(seen: &Observed) -> Vec<Finding> {
    let rows = seen.after.snapshot.softnet.rows.iter();
    let squeezes = rows.filter_map(|now| {
        let before = seen.before.snapshot.softnet.row(now.cpu)?;
        if seen
            .cpus
            .iter()
            .any(|cpu| cpu.cpu == now.cpu && cpu.busy >= FULL)
        {
            return None;
        }
        let name = format!("softnet_stat time_squeeze of CPU {}", now.cpu);
        let grown = now.time_squeeze.wrapping_sub(before.time_squeeze);
        let before = u64::from(before.time_squeeze);
        Some(Evidence::new(name, before, before + u64::from(grown)))
    });
    let squeezes: Vec<Evidence> = squeezes.filter(|one| one.grown() > 0).collect();
    let times = Evidence::sum(&squeezes);
    let is_often = times as f64 >= MIN_PER_SECOND * seen.seconds();
    if !is_often || !nic_no_room::loses(seen) {
        return Vec::new();
    }
    let what = format!(
        "soft interrupts ended {times} times with packets left in a receive queue, while a NIC had no room \
         for more, on CPUs that had time: their budget is short"
    );
    let twice = |setting: &str, least| {
        let now = seen.after.settings.get(setting).copied().unwrap_or(0);
        seen.raise(setting, now.saturating_mul(2).max(least))
    };
    let remedy = format!(
        "{}; {}; both are of the whole machine",
        twice("net.core.netdev_budget", 600),
        twice("net.core.netdev_budget_usecs", 4000)
    );
    let found = Finding::noticed(seen, &CHECK, Station::Wire, squeezes);
    vec![found.says(what, remedy).with(Confidence::Likely)]
}
