//! CPU quotas of cgroups, and how often they held a group back.

use super::cgroup_mounts::{CgroupFolder, CgroupMounts};
use crate::root::Root;
use mpps_os::text::ShellWord;

/// The counters of a CPU quota in `cpu.stat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota {
    /// The group, as `/proc/PID/cgroup` names it: `/system.slice/unbound.service`.
    pub group: String,
    /// Periods with work for the group (`nr_periods`).
    pub periods: u64,
    /// Periods that held the group back (`nr_throttled`).
    pub throttled: u64,
    /// For how long, in nanoseconds of all CPUs together (`throttled_usec`, `throttled_time`).
    pub throttled_ns: u64,
    /// The CPU time of a period and its length, in microseconds (`cpu.max`, or `cpu.cfs_quota_us` and
    /// `cpu.cfs_period_us` of version 1).
    pub limit_us: Option<[u64; 2]>,
    /// The file that sets it.
    pub file: String,
}

/// From this share of the periods on a quota holds a program back.
const HELD_BACK: f64 = 0.1;

impl Quota {
    /// The quotas that this process is under, the nearest group first.
    pub fn own() -> Vec<Self> {
        let root = Root::machine();
        let text = root.read_if_possible("proc/self/cgroup");
        Self::above(&root, &CgroupMounts::find(&root), &text.unwrap_or_default())
    }

    /// The quotas of the groups in this text of `/proc/PID/cgroup` and above them, the nearest
    /// first (cgroups(7)). Version 1 has a line for its `cpu` controller. In a container the path
    /// may be the host's. The container then sees only its own root, at the end of the way up.
    pub(super) fn above(root: &Root, mounts: &CgroupMounts, text: &str) -> Vec<Self> {
        let folders = ["cpu", ""].map(|controller| mounts.groups(text, controller));
        let quotas = folders.into_iter().flatten().filter_map(|folder| {
            let stat = root.read_if_possible(&format!("{}/cpu.stat", folder.path))?;
            Some(parse(&folder.group, &stat)?.with_limit(root, &folder))
        });
        quotas.collect()
    }

    /// The same with its limit, from the files in this folder.
    fn with_limit(mut self, root: &Root, folder: &CgroupFolder) -> Self {
        let read = |name: &str| root.read_if_possible(&format!("{}/{name}", folder.path));
        let (file, text) = match read("cpu.max") {
            Some(text) => ("cpu.max", Some(text)),
            None => {
                let both = read("cpu.cfs_quota_us").zip(read("cpu.cfs_period_us"));
                (
                    "cpu.cfs_quota_us",
                    both.map(|(quota, period)| format!("{quota} {period}")),
                )
            }
        };
        self.limit_us = text.as_deref().and_then(limit);
        self.file = format!("{}/{file}", folder.shown);
        self
    }

    /// Its limit, as words in brackets.
    pub fn limit(&self) -> String {
        let Some([quota, period]) = self.limit_us else {
            return String::new();
        };
        let [quota, period] = [quota, period].map(|us| us as f64 / 1000.0);
        format!(" ({quota} ms of CPU time in each {period} ms)")
    }

    /// The command that removes its limit.
    pub fn command(&self) -> String {
        let none = if self.file.ends_with("cpu.max") {
            "max"
        } else {
            "-1"
        };
        format!("echo {none} > {}", ShellWord::new(&self.file))
    }

    /// The growth since an earlier look; none if the counters began anew.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            periods: self.periods.checked_sub(earlier.periods)?,
            throttled: self.throttled.checked_sub(earlier.throttled)?,
            throttled_ns: self.throttled_ns.saturating_sub(earlier.throttled_ns),
            ..self.clone()
        })
    }

    /// The share of its periods that held the group back.
    pub fn share(&self) -> f64 {
        self.throttled as f64 / self.periods.max(1) as f64
    }

    /// How often it held the group back, in words.
    pub fn said(&self) -> String {
        format!(
            "the CPU quota of cgroup {} held its threads back in {} of {} periods, for {} ms of all CPUs \
             (cpu.stat)",
            self.group,
            self.throttled,
            self.periods,
            self.throttled_ns / 1_000_000
        )
    }

    /// True if it held the group back often enough to limit what it does.
    pub fn is_limit(&self) -> bool {
        self.share() >= HELD_BACK
    }

    /// The quota that held back in the largest share of its periods between two looks; none if none
    /// did.
    pub fn worst_between(earlier: &[Self], later: &[Self]) -> Option<Self> {
        let grown = later.iter().filter_map(|now| {
            let before = earlier.iter().find(|one| one.group == now.group);
            now.since(before.unwrap_or(&Self::default()))
        });
        grown.filter(|grown| grown.throttled > 0).max_by(|a, b| {
            let time = a.throttled_ns.cmp(&b.throttled_ns);
            a.share().total_cmp(&b.share()).then(time)
        })
    }
}

/// A quota and its period; none if there is no limit.
fn limit(text: &str) -> Option<[u64; 2]> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

fn parse(group: &str, text: &str) -> Option<Quota> {
    let number = |name: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse::<u64>().ok()
    };
    let micro = number("throttled_usec").map(|time| time.saturating_mul(1000));
    let quota = Quota {
        group: format!("/{group}"),
        periods: number("nr_periods")?,
        throttled: number("nr_throttled")?,
        throttled_ns: micro.or_else(|| number("throttled_time")).unwrap_or(0),
        ..Quota::default()
    };
    (quota.periods > 0).then_some(quota)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use proptest::prelude::*;

    fn groups(quotas: &[Quota]) -> Vec<(&str, u64, u64)> {
        let told = |quota: &Quota| (quota.throttled, quota.throttled_ns);
        let told = quotas.iter().map(|one| (&*one.group, told(one)));
        told.map(|(group, (times, ns))| (group, times, ns))
            .collect()
    }

    #[test]
    fn quotas_of_both_versions_are_found_up_to_the_root() {
        let tree = fixture::tree(
            "proc/self/mountinfo = 1 2 0:3 / /sys/fs/cgroup rw - cgroup2 x rw\\n4 5 0:6 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup x rw,cpu,cpuacct\n\
             sys/fs/cgroup/a/b/cpu.stat = nr_periods 9\\nnr_throttled 2\\nthrottled_usec 7\n\
             sys/fs/cgroup/a/cpu.stat = usage_usec 5\\nnr_periods 0\\nnr_throttled 0\n\
             sys/fs/cgroup/cpu.stat = nr_periods 4\\nnr_throttled 3\\nthrottled_usec 1\n\
             sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.stat = nr_periods 9\\nnr_throttled 5\\nthrottled_time 7000\n\
             sys/fs/cgroup/cpu,cpuacct/cpu.stat = nr_periods 8\\nnr_throttled 6\\nthrottled_time 9",
        );
        let mounts = CgroupMounts::find(&tree.root);
        let found = |text: &str| Quota::above(&tree.root, &mounts, text);
        assert_eq!(
            groups(&found("0::/a/b\n")),
            [("/a/b", 2, 7000), ("/", 3, 1000)]
        );
        let first = "12:pids:/a/b\n4:cpu,cpuacct:/docker/7\n";
        assert_eq!(groups(&found(first)), [("/docker/7", 5, 7000), ("/", 6, 9)]);
        // If a container does not see the path, it sees its root's quota.
        assert_eq!(groups(&found("4:cpu:/host/only\n")), [("/", 6, 9)]);
        for none in ["", "7:cpuset:/a/b", "0:/", "nonsense"] {
            assert_eq!(found(none), [], "{none}");
        }
    }

    #[test]
    fn the_worst_of_several_is_the_limit() {
        let quota = |group: &str, periods, throttled| Quota {
            group: group.to_owned(),
            periods,
            throttled,
            throttled_ns: throttled * 1_000_000,
            ..Quota::default()
        };
        let before = [quota("/a", 10, 4), quota("/", 10, 9)];
        let after = [quota("/a", 20, 9), quota("/", 20, 10)];
        let worst = Quota::worst_between(&before, &after).unwrap();
        assert_eq!(worst, quota("/a", 10, 5));
        assert!(worst.is_limit() && !quota("/a", 100, 9).is_limit());
        // Of short periods there are many.
        let after = [quota("/a", 410, 24), quota("/", 50, 27)];
        let worst = Quota::worst_between(&before, &after).unwrap();
        assert_eq!(worst, quota("/", 40, 18));
        assert_eq!(Quota::worst_between(&before, &before), None);
        assert_eq!(Quota::worst_between(&after, &before), None, "begun anew");
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text in "\\PC{0,60}", numbers in "(nr_[a-z]* ?[0-9 \n]){0,9}") {
            for text in [&text, &numbers] {
                let _ = parse("x", text);
            }
        }
    }

    #[test]
    fn limits_of_both_versions_are_read() {
        let tree = fixture::tree(
            "proc/self/mountinfo = 1 2 0:3 / /sys/fs/cgroup rw - cgroup2 x rw\\n4 5 0:6 / /sys/fs/cgroup/cpu rw - cgroup x rw,cpu\n\
             sys/fs/cgroup/a/cpu.stat = nr_periods 9\\nnr_throttled 2\n\
             sys/fs/cgroup/a/cpu.max = 20000 100000\n\
             sys/fs/cgroup/cpu/b c/cpu.stat = nr_periods 9\\nnr_throttled 2\n\
             sys/fs/cgroup/cpu/b c/cpu.cfs_quota_us = 5500\n\
             sys/fs/cgroup/cpu/b c/cpu.cfs_period_us = 10000\n\
             sys/fs/cgroup/cpu/cpu.stat = nr_periods 9\\nnr_throttled 2\n\
             sys/fs/cgroup/cpu/cpu.cfs_quota_us = -1\n\
             sys/fs/cgroup/cpu/cpu.cfs_period_us = 10000",
        );
        let said = |text: &str| {
            let mounts = CgroupMounts::find(&tree.root);
            let quotas = Quota::above(&tree.root, &mounts, text).into_iter();
            let said = quotas.map(|one| one.limit() + ": " + &one.command());
            said.collect::<Vec<_>>()
        };
        let [v2, v1, root] = [
            " (20 ms of CPU time in each 100 ms): echo max > /sys/fs/cgroup/a/cpu.max",
            " (5.5 ms of CPU time in each 10 ms): echo -1 > '/sys/fs/cgroup/cpu/b c/cpu.cfs_quota_us'",
            ": echo -1 > /sys/fs/cgroup/cpu/cpu.cfs_quota_us",
        ];
        assert_eq!(said("0::/a"), [v2]);
        assert_eq!(said("3:cpu:/b c"), [v1, root]);
    }

    #[test]
    fn odd_files_have_no_quota() {
        for odd in [
            "",
            "nr_throttled 3",
            "nr_periods 0\nnr_throttled 0",
            "nr_periods x",
        ] {
            assert_eq!(parse("", odd), None, "{odd}");
        }
    }
}
