//! Who has a socket, and what its threads did.

use crate::root::Root;
use mpps_os::clock;
use std::collections::{BTreeMap, BTreeSet};

/// A process with sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, as `ps` knows it (15 characters at most).
    pub name: String,
    /// True if a signal has stopped it. One that is traced is not: it goes on by itself.
    pub stopped: bool,
    /// Its threads.
    pub threads: BTreeMap<u32, ThreadTime>,
    /// When these were read (`CLOCK_MONOTONIC`, nanoseconds).
    pub read_ns: u64,
    /// What the CPU quota of its cgroup, or of one above it, did; none without a quota.
    pub quota: Option<Quota>,
}

/// What `cpu.stat` says of a quota (cgroup v2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Periods in which the group had work (`nr_periods`).
    pub periods: u64,
    /// Those in which it was held back (`nr_throttled`).
    pub throttled: u64,
}

/// Who has sockets.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// The processes of each inode number that was looked for, in their order.
    pub(super) pids: BTreeMap<u32, Vec<u32>>,
    /// Each of them once.
    pub(super) processes: BTreeMap<u32, Process>,
}

/// What `schedstat` and `stat` of `/proc/PID/task/TID` say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// Time on a CPU, in nanoseconds.
    pub run_ns: u64,
    /// Time in which it was ready and had no CPU, in nanoseconds.
    pub wait_ns: u64,
    /// The CPU on which it ran last (field 39 of its `stat`).
    pub cpu: Option<usize>,
}

/// From this share of the time on a thread is one of those that do the work.
const RUNS: f64 = 0.2;

/// What the threads of a process did between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Busy {
    /// The share of the time in which the one that ran most did.
    pub ran: f64,
    /// That one.
    pub runner: u32,
    /// The CPU on which it ran last.
    pub cpu: Option<usize>,
    /// The largest share of the time in which one of them waited for a CPU.
    pub waited: f64,
    /// That one.
    pub waiter: u32,
    /// How many of them ran a fifth of the time or more.
    pub threads: usize,
}

impl Owners {
    /// The processes that have sockets of these inode numbers. A process of another user shows its
    /// descriptors to root alone.
    pub(super) fn find(root: &Root, inodes: &BTreeSet<u32>) -> Self {
        let mut owners = Self {
            pids: inodes.iter().map(|&inode| (inode, Vec::new())).collect(),
            ..Self::default()
        };
        if inodes.is_empty() {
            return owners;
        }
        let names = root.names("proc");
        let mut pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        pids.sort_unstable();
        for pid in pids {
            let folder = format!("proc/{pid}/fd");
            let links = root.names(&folder).into_iter();
            let links = links.filter_map(|name| root.link(&format!("{folder}/{name}")));
            let own: BTreeSet<u32> = links
                .filter_map(|link| socket(&link))
                .filter(|inode| inodes.contains(inode))
                .collect();
            if !own.is_empty() {
                owners.processes.insert(pid, Process::read_from(root, pid));
            }
            for inode in own {
                owners.pids.entry(inode).or_default().push(pid);
            }
        }
        owners
    }

    /// The same owners once more, as far as they are still there.
    pub(super) fn again(root: &Root, pids: BTreeMap<u32, Vec<u32>>) -> Self {
        let numbers: BTreeSet<u32> = pids.values().flatten().copied().collect();
        let processes = numbers
            .into_iter()
            .map(|pid| (pid, Process::read_from(root, pid)));
        let processes = processes
            .filter(|(_, process)| !process.threads.is_empty())
            .collect();
        Self { pids, processes }
    }
}

/// The inode number in `socket:[4711]`.
fn socket(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

impl Process {
    /// What can be read; a process that has just ended has no threads.
    fn read_from(root: &Root, pid: u32) -> Self {
        let read = |file: &str| root.read_if_possible(&format!("proc/{pid}/{file}"));
        let tasks = root.names(&format!("proc/{pid}/task")).into_iter();
        let tasks = tasks.filter_map(|name| name.parse().ok());
        let threads = tasks.filter_map(|tid: u32| {
            let time = parse_schedstat(&read(&format!("task/{tid}/schedstat"))?)?;
            let stat = read(&format!("task/{tid}/stat"));
            let cpu = stat.as_deref().and_then(parse_cpu);
            Some((tid, ThreadTime { cpu, ..time }))
        });
        let stat = read("stat").unwrap_or_default();
        let cgroup = read("cgroup").unwrap_or_default();
        let group = cgroup.lines().find_map(|line| line.strip_prefix("0::/"));
        Self {
            pid,
            name: read("comm").unwrap_or_default(),
            // The name before it may hold anything.
            stopped: stat
                .rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('T')),
            threads: threads.collect(),
            read_ns: clock::monotonic_ns(),
            quota: group.and_then(|group| quota(root, group)),
        }
    }

    /// What its threads did since an earlier look; none if nothing is known of them. A thread that is
    /// new counts from its beginning.
    pub fn busy_since(&self, earlier: &Self) -> Option<Busy> {
        let time_ns = self.read_ns.saturating_sub(earlier.read_ns).max(1);
        let mut busy = Busy::default();
        for (&tid, now) in &self.threads {
            let before = earlier.threads.get(&tid).copied().unwrap_or_default();
            let share =
                |now: u64, before| (now.saturating_sub(before) as f64 / time_ns as f64).min(1.0);
            let ran = share(now.run_ns, before.run_ns);
            busy.threads += usize::from(ran >= RUNS);
            if ran >= busy.ran {
                (busy.ran, busy.runner, busy.cpu) = (ran, tid, now.cpu);
            }
            let waited = share(now.wait_ns, before.wait_ns);
            if waited >= busy.waited {
                (busy.waited, busy.waiter) = (waited, tid);
            }
        }
        // A kernel without CONFIG_SCHED_INFO writes zeros.
        let is_known = self.threads.values().any(|time| time.run_ns > 0);
        is_known.then_some(busy)
    }
}

/// Time on a CPU, time ready without one, and turns.
fn parse_schedstat(text: &str) -> Option<ThreadTime> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some(ThreadTime {
        run_ns: numbers.next()?.ok()?,
        wait_ns: numbers.next()?.ok()?,
        cpu: None,
    })
}

/// The CPU in a thread's `stat`: the 37th word behind the name, which may hold anything.
fn parse_cpu(stat: &str) -> Option<usize> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// The quota of a group, or else of the nearest one above it that has one.
fn quota(root: &Root, group: &str) -> Option<Quota> {
    let mut groups = std::iter::successors(Some(group), |group| {
        let above = group.rsplit_once('/').map_or("", |(above, _)| above);
        (!group.is_empty()).then_some(above)
    });
    groups.find_map(|group| {
        parse_quota(&root.read_if_possible(&format!("sys/fs/cgroup/{group}/cpu.stat"))?)
    })
}

fn parse_quota(text: &str) -> Option<Quota> {
    let number = |name: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse::<u64>().ok()
    };
    let quota = Quota {
        periods: number("nr_periods")?,
        throttled: number("nr_throttled")?,
    };
    (quota.periods > 0).then_some(quota)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use proptest::prelude::*;

    const TREE: &str = "proc/812/comm = unbound\n\
        proc/812/stat = 812 (un) bound) T 1 0 0\n\
        proc/812/cgroup = 0::/system.slice/unbound.service\n\
        proc/812/task/812/schedstat = 500 20 3\n\
        proc/812/task/813/schedstat = 900 40 3\n\
        proc/812/task/813/stat = 813 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 3 0\n\
        sys/fs/cgroup/system.slice/unbound.service/cpu.stat = usage_usec 5\\nnr_periods 0\\nnr_throttled 0\n\
        sys/fs/cgroup/system.slice/cpu.stat = nr_periods 90\\nnr_throttled 77\n\
        proc/9/comm = other\n\
        proc/self/comm = none";

    #[test]
    fn a_process_is_read() {
        let tree = fixture::tree(TREE);
        let process = Process::read_from(&tree.root, 812);
        assert_eq!((process.pid, &*process.name), (812, "unbound"));
        assert!(process.stopped, "the state is behind the last bracket");
        let quota = process.quota.map(|quota| (quota.periods, quota.throttled));
        assert_eq!(quota, Some((90, 77)), "that of the group above");
        let earlier = Process {
            threads: [(
                813,
                ThreadTime {
                    run_ns: 100,
                    wait_ns: 40,
                    cpu: None,
                },
            )]
            .into(),
            read_ns: process.read_ns - 1000,
            ..Process::default()
        };
        let busy = process.busy_since(&earlier).expect("it ran");
        assert_eq!((busy.ran, busy.runner, busy.cpu), (0.8, 813, Some(3)));
        assert_eq!((busy.waited, busy.waiter), (0.02, 812));
        let gone = Process::read_from(&tree.root, 7);
        assert_eq!((gone.threads.len(), gone.stopped), (0, false));
        assert_eq!((gone.quota, gone.busy_since(&earlier)), (None, None));
    }

    #[test]
    fn sockets_are_found_by_their_descriptors() {
        let tree = fixture::tree(TREE);
        for (pid, name, target) in [
            (812, "3", "socket:[4711]"),
            (812, "4", "/dev/null"),
            (9, "5", "socket:[4711]"),
            (9, "6", "socket:[9]"),
        ] {
            tree.root.set_link(&format!("proc/{pid}/fd/{name}"), target);
        }
        let found = Owners::find(&tree.root, &[4711, 8].into());
        assert_eq!(found.pids, [(8, vec![]), (4711, vec![9, 812])].into());
        assert_eq!(found.processes.len(), 2, "{found:?}");
        let again = Owners::again(&tree.root, found.pids.clone());
        assert_eq!(again.pids, found.pids);
        assert_eq!(
            again.processes.keys().collect::<Vec<_>>(),
            [&812],
            "9 has no threads"
        );
        for odd in ["socket:[", "socket:[x]", "socket:[4711", "pipe:[4711]"] {
            assert_eq!(socket(odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text in "\\PC{0,60}", numbers in "[0-9 \n)(]{0,200}") {
            for text in [&text, &numbers] {
                let _ = (parse_schedstat(text), parse_cpu(text), parse_quota(text), socket(text));
            }
        }
    }

    #[test]
    fn odd_files_have_no_times() {
        for odd in ["", "1", "x 2 3", "1 x"] {
            assert_eq!(parse_schedstat(odd), None, "{odd}");
        }
        for odd in [
            "",
            "nr_throttled 3",
            "nr_periods 0\nnr_throttled 0",
            "nr_periods x",
        ] {
            assert_eq!(parse_quota(odd), None, "{odd}");
        }
        for odd in ["", "1 (a) S", "1 S 2 3"] {
            assert_eq!(parse_cpu(odd), None, "{odd}");
        }
    }
}
