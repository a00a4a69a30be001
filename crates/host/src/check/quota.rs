//! A program that its cgroup's CPU quota holds back.

use super::overrun::{Cause, overruns};
use super::reader::said;
use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "quota",
    reads: "`nr_throttled` and `nr_periods` of the program's cgroup and those above it (cgroup v2 or v1); \
            its sockets' drops",
    speaks: "a quota throttled a program in at least 10 % of periods; its sockets lost datagrams",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let found = overruns(seen).into_iter().filter_map(|overrun| {
        let (Cause::Quota(grown), socket) = (overrun.cause, overrun.socket) else {
            return None;
        };
        let drops = vec![socket.drops.clone()];
        let mut found = Finding::lost(seen, &CHECK, Station::Socket, drops)?.of(overrun.lost, seen);
        let owner = socket.owner?;
        let now = owner.quotas.iter().find(|one| one.group == grown.group)?;
        found.evidence.push(Evidence::new(
            format!(
                "nr_throttled of cgroup {}, of {} (pid {})",
                grown.group, owner.name, owner.pid
            ),
            now.throttled - grown.throttled,
            now.throttled,
        ));
        let what = format!(
            "the buffer of {} was full while the CPU quota of its cgroup {}{} held the program back in \
             {:.0} % of the quota's periods",
            socket.name(),
            grown.group,
            now.limit(),
            grown.share() * 100.0
        );
        let remedy = format!(
            "a larger quota: systemctl set-property UNIT CPUQuota=, for a container its CPU limit, or by hand \
             {}",
            now.command()
        );
        let found = found.says(what, remedy).because(&[said(socket)]);
        Some(found.with(Confidence::Likely))
    });
    found.collect()
}
