//! CPU time that the hypervisor gave to others while packets were lost.

use super::{Check, Confidence, Evidence, Finding, Observed, lacks_time};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "steal",
    reads: "steal of each CPU (/proc/stat)",
    speaks: "lost packets lacked CPU time; the hypervisor took a tenth of a CPU or more",
    run,
};

/// Below this share the guest lacks no time to speak of.
const SHARE_MIN: f64 = 0.1;

fn run(seen: &Observed) -> Vec<Finding> {
    let most = seen.cpus.iter().max_by(|a, b| a.steal.total_cmp(&b.steal));
    let Some(most) = most.filter(|cpu| cpu.steal >= SHARE_MIN && lacks_time(seen)) else {
        return Vec::new();
    };
    let ticks = |cpus: &crate::ProcStat| cpus.cpus.get(&most.cpu).map_or(0, |ticks| ticks.steal);
    let source = format!("steal of CPU {} (/proc/stat, ticks)", most.cpu);
    let (before, after) = (ticks(&seen.before.cpus), ticks(&seen.after.cpus));
    let evidence = vec![Evidence::new(source, before, after)];
    let what = format!(
        "the hypervisor took {:.0} % of CPU {}'s time while packets were lost",
        most.steal * 100.0,
        most.cpu
    );
    let remedy = "CPUs of its own for this machine (pinned, not overcommitted), or another host";
    let found = Finding::noticed(seen, &CHECK, Station::Application, evidence);
    vec![found.says(what, remedy).with(Confidence::Possible)]
}
