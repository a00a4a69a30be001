//! The owners of sockets, and the activity of their threads.

use super::cgroup::IngressProgram;
use super::cgroup_mounts::CgroupMounts;
use super::quota::Quota;
use super::stat::{CPU, GROUP, PARENT, PRIORITY, THREADS, field, fields};
use crate::root::Root;
use mpps_os::borrowed::BorrowedSocket;
use mpps_os::clock;
use mpps_os::netlink::sock_diag::UdpEntry;
use mpps_os::{CallResult, CpuList};
use std::collections::{BTreeMap, BTreeSet};

/// A process with sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, as `ps` knows it (15 characters at most).
    pub name: String,
    /// Its process group: all processes of one server, as a rule.
    pub group: u32,
    /// The process that started it, or took it over.
    pub parent: u32,
    /// True if a signal has stopped it. A traced process does not count: it goes on by itself.
    pub stopped: bool,
    /// Its threads.
    pub threads: BTreeMap<u32, ThreadTime>,
    /// When these were read (`CLOCK_MONOTONIC`, nanoseconds).
    pub read_ns: u64,
    /// The CPU quotas of its cgroup and of the groups above it, the nearest first.
    pub quotas: Vec<Quota>,
    /// The programs that decide what its sockets receive. None if this user may not ask.
    pub ingress: Option<Vec<IngressProgram>>,
    /// If its cgroup is frozen, the command that thaws it; empty if that is not seen. This and the rest
    /// only of a process whose sockets lost datagrams.
    pub frozen: Option<String>,
    /// The function of the kernel that each thread sleeps in (`wchan`), as far as this user may see.
    pub waits: BTreeMap<u32, String>,
    /// The CPUs that each thread may use (`Cpus_allowed_list`).
    pub allowed: BTreeMap<u32, CpuList>,
    /// Its open descriptors, and the most that it may have (`RLIMIT_NOFILE`).
    pub descriptors: Option<(u64, u64)>,
}

/// The processes of each inode number that was looked for, in their order.
pub(super) type Owners = BTreeMap<u32, Vec<u32>>;

/// A search that has to end still looks at this many descriptors and processes. Most hosts have no
/// more, and it takes some ten milliseconds.
pub(super) const LAST: usize = if cfg!(test) { 64 } else { 8192 };
/// Programs that hold sockets for services that they start.
const ACTIVATORS: [&str; 4] = ["systemd", "systemd-socket-", "inetd", "xinetd"];
/// Of sockets at one address, this many are asked whether they share it.
const SHARING_MAX: usize = 16;
/// Descriptors to look at before asking again whether to go on.
const DESCRIPTORS: usize = 16;

/// Controllers of cgroup version 1 that give sockets a traffic class.
const CLASSES: [&str; 2] = ["net_cls", "net_prio"];

/// The times of a thread, from `schedstat` and `stat` of `/proc/PID/task/TID`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// Time on a CPU, in nanoseconds.
    pub run_ns: u64,
    /// Time that it was ready and had no CPU, in nanoseconds.
    pub wait_ns: u64,
    /// How often it got a CPU.
    pub turns: u64,
    /// The CPU that it last ran on (field 39 of its `stat`).
    pub cpu: Option<usize>,
    /// 20 more than its nice value; below 0 with a real-time policy (field 18 of its `stat`).
    pub priority: Option<i32>,
}

/// Where threads of a frozen cgroup wait, of version 2 and of version 1.
const FREEZERS: [&str; 2] = ["do_freezer_trap", "__refrigerator"];
/// From this share of the time on a thread is one of those that do the work.
const RUNS: f64 = 0.2;

/// The activity of a process's threads between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Busy {
    /// The share of the time that the busiest thread ran: the thread that most often had work.
    pub ran: f64,
    /// The number of that thread.
    pub runner: u32,
    /// The CPU that it last ran on.
    pub cpu: Option<usize>,
    /// Its priority ([`ThreadTime::priority`]).
    pub priority: Option<i32>,
    /// The share of the time that it had work and waited for a CPU.
    pub waited: f64,
    /// The mean of these waits, in milliseconds; of a thread that got no turn, all of them.
    pub wait_ms: f64,
    /// How many threads ran a fifth of the time or more.
    pub threads: usize,
    /// The shares that its threads ran and waited, added up, if all of them ran on one CPU; otherwise those of the
    /// busiest thread.
    pub together: (f64, f64),
    /// How often its threads began to run.
    pub turns: u64,
}

impl Busy {
    /// The share of the time that the thread had work.
    pub fn ready(&self) -> f64 {
        (self.ran + self.waited).min(1.0)
    }

    /// The shares of its time, in words.
    pub fn said(&self) -> String {
        let [ran, waited, slept] =
            [self.ran, self.waited, 1.0 - self.ready()].map(|share| share * 100.0);
        let few = |share: f64| match share > 0.0 && share < 1.0 {
            true => "below 1 %".to_owned(),
            false => format!("{share:.0} %"),
        };
        format!(
            "its busiest thread ran {}, waited for a CPU {} and slept {} of the time",
            few(ran),
            few(waited),
            few(slept)
        )
    }
}

/// Searches all processes for sockets with these inode numbers. Returns false if it had to end
/// early. Only root sees the descriptors of another user's process.
pub(crate) fn find_owners(
    root: &Root,
    inodes: &BTreeSet<u32>,
    goes_on: &dyn Fn() -> bool,
) -> (Owners, bool) {
    let mut owners: Owners = inodes.iter().map(|&inode| (inode, Vec::new())).collect();
    if inodes.is_empty() {
        return (owners, true);
    }
    let names = root.names("proc");
    let mut pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    let mut left = LAST;
    let mut may_read = |count: usize| {
        left = match goes_on() {
            true => left,
            false => left.saturating_sub(count),
        };
        left > 0
    };
    for pid in pids {
        let folder = format!("proc/{pid}/fd");
        let mut own = BTreeSet::new();
        let names = match may_read(1) {
            true => root.names(&folder),
            false => return (owners, false),
        };
        for names in names.chunks(DESCRIPTORS) {
            if !may_read(names.len()) {
                return (owners, false);
            }
            let links = names.iter();
            let links = links.filter_map(|name| root.link(&format!("{folder}/{name}")));
            own.extend(links.filter_map(|link| socket(&link)));
        }
        for inode in own {
            if let Some(pids) = owners.get_mut(&inode) {
                pids.push(pid);
            }
        }
    }
    (owners, true)
}

/// True if a process has one of these sockets.
pub(super) fn has_socket(root: &Root, pid: u32, inodes: &BTreeSet<u32>) -> bool {
    let folder = format!("proc/{pid}/fd");
    let names = root.names(&folder).into_iter();
    let mut links = names.filter_map(|name| root.link(&format!("{folder}/{name}")));
    links.any(|link| socket(&link).is_some_and(|inode| inodes.contains(&inode)))
}

/// Reads these processes as far as they are still there: the first ones in any case, and the others
/// until it has to end.
pub(super) fn read_all(
    root: &Root,
    mounts: &CgroupMounts,
    first: &BTreeSet<u32>,
    others: &BTreeSet<u32>,
    goes_on: &dyn Fn() -> bool,
) -> BTreeMap<u32, Process> {
    let mut groups = Groups::new();
    let others = others.difference(first).take_while(|_| goes_on());
    let processes = first.iter().chain(others).map(|&pid| {
        let mut process = Process::read_from(root, mounts, pid, &mut groups);
        if first.contains(&pid) {
            process.read_details(root, mounts);
        }
        (pid, process)
    });
    let is_there = |process: &Process| !process.name.is_empty() || !process.threads.is_empty();
    processes.filter(|(_, process)| is_there(process)).collect()
}

/// Whether sockets share their port (`SO_REUSEPORT`), of the first places that have several sockets.
pub(super) fn port_sharing(
    root: &Root,
    sockets: &[UdpEntry],
    owners: &Owners,
) -> BTreeMap<u32, bool> {
    let neighbours = sockets.chunk_by(|a, b| a.local == b.local);
    let several = neighbours.filter(|place| place.len() > 1).flatten();
    let inodes = several.take(SHARING_MAX).map(|one| one.inode);
    ask(root, owners, inodes, BorrowedSocket::shares_port)
}

/// The processes that have the socket with this inode number, as far as this user may see them.
pub(crate) fn holders_of_socket(root: &Root, inode: u32) -> Vec<u32> {
    let (mut owners, _) = find_owners(root, &[inode].into(), &|| true);
    owners.remove(&inode).unwrap_or_default()
}

/// The inode number of a descriptor, if it is a socket.
pub(crate) fn socket_at(root: &Root, pid: u32, descriptor: i32) -> Option<u32> {
    let link = root.link(&format!("proc/{pid}/fd/{descriptor}"));
    link.and_then(|link| socket(&link))
}

/// The sockets of a process by their inode numbers, with a descriptor of each.
pub(crate) fn socket_descriptors(root: &Root, pid: u32) -> BTreeMap<u32, i32> {
    let names = root.names(&format!("proc/{pid}/fd")).into_iter();
    let descriptors = names.filter_map(|name| name.parse().ok());
    descriptors
        .filter_map(|one| Some((socket_at(root, pid, one)?, one)))
        .collect()
}

/// True if a copy of a descriptor gives its socket another traffic class, that of mpps (`__receive_sock` in
/// net/core/sock.c): net_cls or net_prio of cgroup version 1 are in use, with several groups.
pub(crate) fn relabels_sockets(root: &Root) -> bool {
    let table = root.read_if_possible("proc/cgroups").unwrap_or_default();
    table.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let is_class = words.next().is_some_and(|name| CLASSES.contains(&name));
        let mut numbers = words.map(|word| word.parse().unwrap_or(0));
        let hierarchy: u32 = numbers.next().unwrap_or(0);
        is_class && hierarchy > 0 && numbers.next().unwrap_or(0) > 1
    })
}

/// The answers of these sockets to a question, by inode number, as far as this user may borrow them. Each
/// process is searched once. None where that would change their traffic class.
pub(crate) fn ask<T>(
    root: &Root,
    owners: &Owners,
    inodes: impl IntoIterator<Item = u32>,
    question: fn(&BorrowedSocket) -> CallResult<T>,
) -> BTreeMap<u32, T> {
    let mut sought: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let may_borrow = !relabels_sockets(root);
    for inode in inodes.into_iter().filter(|_| may_borrow) {
        if let Some(&pid) = owners.get(&inode).and_then(|pids| pids.first()) {
            sought.entry(pid).or_default().insert(inode);
        }
    }
    let (mut found, mut places) = (Vec::new(), Vec::new());
    for (pid, mut inodes) in sought {
        let folder = format!("proc/{pid}/fd");
        let mut names = root.names(&folder).into_iter();
        while !inodes.is_empty()
            && let Some(name) = names.next()
        {
            let link = root.link(&format!("{folder}/{name}"));
            let inode = link.and_then(|link| socket(&link));
            if let Some(inode) = inode.filter(|inode| inodes.remove(inode))
                && let Ok(descriptor) = name.parse()
            {
                found.push(inode);
                places.push((pid, descriptor));
            }
        }
    }
    let copies = BorrowedSocket::borrow_each(&places).into_iter();
    let answers = found.into_iter().zip(copies);
    let answers = answers.filter_map(|(inode, copy)| Some((inode, question(&copy.ok()?).ok()?)));
    answers.collect()
}

/// The inode number in `socket:[4711]`.
pub(super) fn socket(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

impl Process {
    /// Reads what is readable. A process that has just ended has no threads.
    fn read_from(root: &Root, mounts: &CgroupMounts, pid: u32, groups: &mut Groups) -> Self {
        let read = |file: &str| root.read_if_possible(&format!("proc/{pid}/{file}"));
        let stat = read("stat").unwrap_or_default();
        let thread = |tid: u32, schedstat: &str, stat: &str| {
            let time = ThreadTime {
                cpu: field(stat, CPU),
                priority: field(stat, PRIORITY),
                ..parse_schedstat(schedstat)?
            };
            Some((tid, time))
        };
        let threads = match field(&stat, THREADS) {
            Some(1_usize) => read("schedstat").and_then(|schedstat| thread(pid, &schedstat, &stat)),
            _ => None,
        };
        let mut threads: BTreeMap<u32, ThreadTime> = threads.into_iter().collect();
        if threads.is_empty() {
            let tasks = root.names(&format!("proc/{pid}/task")).into_iter();
            let tasks = tasks.filter_map(|name| name.parse().ok());
            threads.extend(tasks.filter_map(|tid: u32| {
                let stat = read(&format!("task/{tid}/stat")).unwrap_or_default();
                thread(tid, &read(&format!("task/{tid}/schedstat"))?, &stat)
            }));
        }
        let cgroup = read("cgroup").unwrap_or_default();
        let group = groups.entry(cgroup).or_insert_with_key(|cgroup| {
            let programs = IngressProgram::above(root, mounts, cgroup);
            (Quota::above(root, mounts, cgroup), programs)
        });
        let (quotas, ingress) = group.clone();
        Self {
            pid,
            name: read("comm").unwrap_or_default(),
            group: field(&stat, GROUP).unwrap_or(0),
            parent: field(&stat, PARENT).unwrap_or(0),
            stopped: fields(&stat).is_some_and(|fields| fields.starts_with('T')),
            threads,
            read_ns: clock::monotonic_ns(),
            quotas,
            ingress,
            ..Self::default()
        }
    }

    /// Reads what explains why it does not run.
    fn read_details(&mut self, root: &Root, mounts: &CgroupMounts) {
        let pid = self.pid;
        for &tid in self.threads.keys() {
            let read = |file| root.read_if_possible(&format!("proc/{pid}/task/{tid}/{file}"));
            let wait = read("wchan").filter(|name| name != "0");
            self.waits.extend(wait.map(|name| (tid, name)));
            let status = read("status").unwrap_or_default();
            let mut lines = status.lines();
            let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let list = list.and_then(|list| CpuList::from_kernel(list.trim()).ok());
            self.allowed.extend(list.map(|list| (tid, list)));
        }
        let limits = root.read_if_possible(&format!("proc/{pid}/limits"));
        let limit = limits.unwrap_or_default();
        let mut limit = limit
            .lines()
            .filter_map(|line| line.strip_prefix("Max open files"));
        let limit = limit.find_map(|words| words.split_ascii_whitespace().next()?.parse().ok());
        let open = root.names(&format!("proc/{pid}/fd")).len() as u64;
        self.descriptors = limit.map(|limit| (open, limit));
        let cgroup = root.read_if_possible(&format!("proc/{pid}/cgroup"));
        let thaw = mounts.thaw(root, &cgroup.unwrap_or_default());
        let mut waits = self.waits.values();
        let all_wait = !self.waits.is_empty() && self.waits.len() == self.threads.len();
        let is_frozen = all_wait && waits.all(|name| FREEZERS.contains(&&**name));
        self.frozen = thaw.or_else(|| is_frozen.then(String::new));
    }

    /// True if it holds sockets for services that it starts, and reads none (socket activation).
    pub(crate) fn is_activator(&self) -> bool {
        ACTIVATORS.contains(&&*self.name)
    }

    /// True if a signal stopped it, or its cgroup is frozen.
    pub fn is_halted(&self) -> bool {
        self.stopped || self.frozen.is_some()
    }

    /// The activity of its threads since an earlier look; none if nothing is known of them. A new
    /// thread counts from its beginning.
    pub fn busy_since(&self, earlier: &Self) -> Option<Busy> {
        let time_ns = self.read_ns.saturating_sub(earlier.read_ns).max(1);
        let mut busy = Busy::default();
        let (mut together, mut cpus) = ((0.0, 0.0), BTreeSet::new());
        for (&tid, now) in &self.threads {
            let before = earlier.threads.get(&tid).copied().unwrap_or_default();
            let share =
                |now: u64, before| (now.saturating_sub(before) as f64 / time_ns as f64).min(1.0);
            let ran = share(now.run_ns, before.run_ns);
            busy.threads += usize::from(ran >= RUNS);
            let waited = share(now.wait_ns, before.wait_ns);
            let turns = now.turns.saturating_sub(before.turns);
            busy.turns = busy.turns.saturating_add(turns);
            together = (together.0 + ran, together.1 + waited);
            cpus.extend((ran + waited > 0.0).then_some(now.cpu));
            if ran + waited >= busy.ran + busy.waited {
                let wait_ns = now.wait_ns.saturating_sub(before.wait_ns);
                busy = Busy {
                    ran,
                    runner: tid,
                    cpu: now.cpu,
                    priority: now.priority,
                    waited,
                    wait_ms: wait_ns as f64 / turns.max(1) as f64 / 1e6,
                    ..busy
                };
            }
        }
        busy.together = match cpus.len() {
            1 => together,
            _ => (busy.ran, busy.waited),
        };
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
        turns: numbers.next()?.ok()?,
        ..ThreadTime::default()
    })
}

/// The quotas and programs of groups that have been read, by the text of `/proc/PID/cgroup`: many
/// processes have the same.
type Groups = BTreeMap<String, (Vec<Quota>, Option<Vec<IngressProgram>>)>;

/// How many processes and threads began since the machine did (`processes` of `/proc/stat`, proc_stat(5)); 0 if that is not
/// seen.
pub(super) fn begun(root: &Root) -> u64 {
    let stat = root.read_if_possible("proc/stat").unwrap_or_default();
    let begun = stat
        .lines()
        .find_map(|line| line.strip_prefix("processes "));
    begun
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
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
        sys/fs/cgroup/cpu.stat = nr_periods 300\\nnr_throttled 9\n\
        proc/self/mountinfo = 1 2 0:3 / /sys/fs/cgroup rw - cgroup2 x rw\n\
        proc/9/comm = other\n\
        proc/10/stat = 10 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 3 0\n\
        proc/10/schedstat = 500 20 3\n\
        proc/self/comm = none";

    #[test]
    fn a_copy_changes_the_class_where_there_are_several() {
        for (line, relabels) in [
            ("net_cls 5 2 1", true),
            ("net_prio 5 9 1", true),
            // One group, version 2, and another controller.
            ("net_cls 5 1 1", false),
            ("net_cls 0 80 1", false),
            ("memory 5 9 1", false),
        ] {
            let table =
                format!("proc/cgroups = #subsys_name hierarchy num_cgroups enabled\\n{line}");
            let tree = fixture::tree(&table);
            assert_eq!(relabels_sockets(&tree.root), relabels, "{line}");
        }
    }

    #[test]
    fn a_process_is_read() {
        let tree = fixture::tree(TREE);
        let read = |mounts: &CgroupMounts, pid| {
            Process::read_from(&tree.root, mounts, pid, &mut Groups::new())
        };
        let process = read(&CgroupMounts::find(&tree.root), 812);
        assert_eq!((process.pid, &*process.name), (812, "unbound"));
        assert!(process.stopped, "the state is behind the last bracket");
        let quotas = process.quotas.iter();
        let quotas: Vec<_> = quotas.map(|one| (one.periods, one.throttled)).collect();
        assert_eq!(quotas, [(90, 77), (300, 9)], "those of the groups above");
        let earlier = Process {
            threads: [(
                813,
                ThreadTime {
                    run_ns: 100,
                    wait_ns: 30,
                    ..ThreadTime::default()
                },
            )]
            .into(),
            read_ns: process.read_ns - 1000,
            ..Process::default()
        };
        let busy = process.busy_since(&earlier).expect("it ran");
        assert_eq!((busy.ran, busy.runner, busy.cpu), (0.8, 813, Some(3)));
        assert_eq!((busy.waited, (busy.wait_ms * 3e6).round()), (0.01, 10.0));
        let single = read(&CgroupMounts::default(), 10);
        let time = ThreadTime {
            run_ns: 500,
            wait_ns: 20,
            turns: 3,
            cpu: Some(3),
            priority: Some(15),
        };
        assert_eq!(
            single.threads,
            [(10, time)].into(),
            "its task is not listed"
        );
        let gone = read(&CgroupMounts::default(), 7);
        assert_eq!((gone.threads.len(), gone.stopped), (0, false));
        assert_eq!((gone.busy_since(&earlier), gone.quotas), (None, vec![]));
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
        let found = find_owners(&tree.root, &[4711, 8].into(), &|| true);
        let owners: Owners = [(8, vec![]), (4711, vec![9, 812])].into();
        assert_eq!(found, (owners, true));
        let pids = [7, 9, 812].into();
        let read = |needed: &[u32], goes_on| {
            let (mounts, needed) = (CgroupMounts::default(), needed.iter().copied().collect());
            let found = read_all(&tree.root, &mounts, &needed, &pids, &|| goes_on);
            found.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(read(&[], true), [9, 812], "7 has ended");
        assert_eq!(read(&[9], false), [9], "what has to be read is");
        for odd in ["socket:[", "socket:[x]", "socket:[4711", "pipe:[4711]"] {
            assert_eq!(socket(odd), None, "{odd}");
        }
    }

    /// It has to end at the second process, and looks at some more.
    #[test]
    fn a_search_ends_soon_after_it_has_to() {
        let tree = fixture::tree("");
        let link = |pid: usize, at: usize| {
            let path = format!("proc/{pid}/fd/{at}");
            tree.root.set_link(&path, &format!("socket:[{pid}]"));
        };
        for at in 0..LAST {
            link(3, at);
        }
        (1..5).for_each(|pid| link(pid, LAST));
        let calls = std::cell::Cell::new(0);
        for (more, expected) in [(usize::MAX, &[1, 2, 3, 4][..]), (2, &[1, 2])] {
            calls.set(0);
            let goes_on = || calls.replace(calls.get() + 1) < more;
            let (owners, is_whole) = find_owners(&tree.root, &[1, 2, 3, 4].into(), &goes_on);
            let found: Vec<u32> = owners.into_values().flatten().collect();
            assert_eq!((&*found, is_whole), (expected, more > 2));
        }
        // A process takes at least two calls. Each further call is for `DESCRIPTORS` descriptors.
        assert!(calls.get() <= 8 + LAST / DESCRIPTORS, "{}", calls.get());
    }

    #[test]
    fn the_quota_of_a_group_is_read_once() {
        let tree = fixture::tree(TREE);
        let mut groups = Groups::new();
        let mounts = CgroupMounts::find(&tree.root);
        let read =
            |groups: &mut Groups| Process::read_from(&tree.root, &mounts, 812, groups).quotas;
        let first = read(&mut groups);
        assert_eq!(first.len(), 2);
        let folder = tree.root.path().join("sys/fs/cgroup/system.slice");
        std::fs::remove_dir_all(folder).expect("it is there");
        assert_eq!(read(&mut groups), first);
        let again = read(&mut Groups::new());
        assert_eq!(again, first[1..], "in the next look it is read again");
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text in "\\PC{0,60}", numbers in "[0-9 \n)(]{0,200}") {
            for text in [&text, &numbers] {
                let _ = (parse_schedstat(text), field::<i32>(text, CPU), socket(text));
            }
        }
    }

    #[test]
    fn odd_files_have_no_times() {
        for odd in ["", "1", "x 2 3", "1 x", "1 2"] {
            assert_eq!(parse_schedstat(odd), None, "{odd}");
        }
        for odd in ["", "1 (a) S", "1 S 2 3"] {
            assert_eq!(field::<usize>(odd, CPU), None, "{odd}");
        }
    }

    #[test]
    fn processes_that_began_are_counted_beyond_the_largest_number() {
        for (stat, expected) in [
            ("cpu 1 2\\nprocesses 7235930\\nx 1", 7_235_930),
            ("processes x", 0),
            ("", 0),
        ] {
            let tree = fixture::tree(&format!("proc/stat = {stat}"));
            assert_eq!(begun(&tree.root), expected, "{stat}");
        }
    }
}
