//! CPU time that the hypervisor gave to others while packets were lost.

use super::{CHECKS, Check, Confidence, Evidence, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "steal",
    reads: "steal of each CPU (/proc/stat)",
    speaks: "packets were lost for want of CPU time, and the hypervisor took a tenth of a CPU's time or more",
    made_by: "not in a lab: a busy neighbour on the hypervisor",
    run,
};

/// Below this share the guest lacks no time to speak of.
const SHARE_MIN: f64 = 0.1;
/// The checks whose loss more CPU time would mend.
const FOR_WANT_OF_TIME: [&str; 3] = ["nic_no_room", "backlog", "socket_buffer"];

fn run(seen: &Seen) -> Vec<Finding> {
    let most = seen.cpus.iter().max_by(|a, b| a.steal.total_cmp(&b.steal));
    let Some(most) = most.filter(|cpu| cpu.steal >= SHARE_MIN) else {
        return Vec::new();
    };
    let mut checks = CHECKS
        .iter()
        .filter(|check| FOR_WANT_OF_TIME.contains(&check.name));
    if !checks.any(|check| !(check.run)(seen).is_empty()) {
        return Vec::new();
    }
    let ticks = |cpus: &crate::ProcStat| cpus.cpus.get(&most.cpu).map_or(0, |ticks| ticks.steal);
    let source = format!("steal of CPU {} (/proc/stat, ticks)", most.cpu);
    vec![Finding {
        check: CHECK.name.to_owned(),
        station: Station::Application,
        what: format!(
            "the hypervisor took {:.0} % of CPU {}'s time while packets were lost",
            most.steal * 100.0,
            most.cpu
        ),
        count: 0,
        rate_pps: 0.0,
        evidence: vec![Evidence::new(
            source,
            ticks(&seen.before.cpus),
            ticks(&seen.after.cpus),
        )],
        remedy: "CPUs of its own for this machine (pinned, not overcommitted), or another host"
            .to_owned(),
        verify: seen.asked.again.clone(),
        is_remark: false,
        confidence: Confidence::Possible,
    }]
}
