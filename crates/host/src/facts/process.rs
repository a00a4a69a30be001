//! Who has a socket, and what its threads did.

use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};

/// A process with sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, as `ps` knows it (15 characters at most).
    pub name: String,
    /// True if a signal or a debugger has stopped it.
    pub stopped: bool,
    /// Its threads.
    pub threads: BTreeMap<u32, ThreadTime>,
    /// How long its cgroup was held back by its CPU quota so far, in microseconds
    /// (`throttled_usec`, cgroup v2); none where it has no such count.
    pub throttled_us: Option<u64>,
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

/// What the threads of a process did between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Busy {
    /// The share of the time in which the one that ran most did.
    pub ran: f64,
    /// The CPU on which that one ran last.
    pub cpu: Option<usize>,
    /// The largest share of the time in which one of them waited for a CPU.
    pub waited: f64,
}

/// The processes that have sockets of these inode numbers, those with the lowest numbers first. A
/// process of another user shows its descriptors to root alone.
pub(super) fn owners(root: &Root, inodes: &BTreeSet<u32>) -> BTreeMap<u32, Vec<Process>> {
    let mut owners: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
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
            let process = Process::read_from(root, pid);
            for inode in own {
                owners.entry(inode).or_default().push(process.clone());
            }
        }
    }
    owners
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
        let limits = group
            .and_then(|group| root.read_if_possible(&format!("sys/fs/cgroup/{group}/cpu.stat")));
        Self {
            pid,
            name: read("comm").unwrap_or_default(),
            // The name before it may hold anything.
            stopped: stat
                .rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with(['T', 't'])),
            threads: threads.collect(),
            throttled_us: limits.as_deref().and_then(throttled),
        }
    }

    /// What its threads did since an earlier look. A thread that is new counts from its beginning.
    pub fn busy_since(&self, earlier: &Self, time_ns: u64) -> Busy {
        let mut busy = Busy::default();
        for (tid, now) in &self.threads {
            let before = earlier.threads.get(tid).copied().unwrap_or_default();
            let share = |now: u64, before| {
                (now.saturating_sub(before) as f64 / time_ns.max(1) as f64).min(1.0)
            };
            let ran = share(now.run_ns, before.run_ns);
            if ran >= busy.ran {
                (busy.ran, busy.cpu) = (ran, now.cpu);
            }
            busy.waited = busy.waited.max(share(now.wait_ns, before.wait_ns));
        }
        busy
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

fn throttled(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("throttled_usec "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    const TREE: &str = "proc/812/comm = unbound\n\
        proc/812/stat = 812 (un) bound) T 1 0 0\n\
        proc/812/cgroup = 0::/system.slice/unbound.service\n\
        proc/812/task/812/schedstat = 500 20 3\n\
        proc/812/task/813/schedstat = 900 40 3\n\
        proc/812/task/813/stat = 813 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 3 0\n\
        sys/fs/cgroup/system.slice/unbound.service/cpu.stat = usage_usec 5\\nthrottled_usec 77\n\
        proc/9/comm = other\n\
        proc/self/comm = none";

    #[test]
    fn a_process_is_read() {
        let tree = fixture::tree(TREE);
        let process = Process::read_from(&tree.root, 812);
        assert_eq!((process.pid, &*process.name), (812, "unbound"));
        assert!(process.stopped, "the state is behind the last bracket");
        assert_eq!(process.throttled_us, Some(77));
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
            ..Process::default()
        };
        let busy = process.busy_since(&earlier, 1000);
        assert_eq!((busy.ran, busy.waited, busy.cpu), (0.8, 0.02, Some(3)));
        let gone = Process::read_from(&tree.root, 7);
        assert_eq!((gone.threads.len(), gone.stopped), (0, false));
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
        let found = owners(&tree.root, &[4711, 8].into());
        assert_eq!(found.len(), 1, "{found:?}");
        let pids: Vec<u32> = found[&4711].iter().map(|process| process.pid).collect();
        assert_eq!(pids, [9, 812]);
        for odd in ["socket:[", "socket:[x]", "socket:[4711", "pipe:[4711]"] {
            assert_eq!(socket(odd), None, "{odd}");
        }
    }

    #[test]
    fn odd_files_have_no_times() {
        for odd in ["", "1", "x 2 3", "1 x"] {
            assert_eq!(parse_schedstat(odd), None, "{odd}");
        }
        assert_eq!(throttled("nr_throttled 3"), None);
    }
}
