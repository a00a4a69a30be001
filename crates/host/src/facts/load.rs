//! The CPU time of all processes: who has a CPU that another waits for.

use super::stat::{CPU, PRIORITY, THREADS, field, fields};
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};

/// Fields of a `stat` (proc_pid_stat(5)): time in user mode and in the kernel.
const TIMES: [usize; 2] = [14, 15];
/// Threads of a process are looked at one by one if it had this many ticks.
const TICKS: u64 = 10;

/// The CPU time of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessLoad {
    /// Its name.
    pub name: String,
    /// Its time on all CPUs since it began, in ticks of 10 ms.
    pub ticks: u64,
    /// Its first thread's priority ([`super::ThreadTime::priority`]).
    pub priority: i32,
    /// The CPUs that its threads last ran on. Of an idle process only its first thread's.
    pub cpus: BTreeSet<usize>,
}

/// Reads those of all processes, or of none once it has to end. With those of an earlier look, the
/// threads of processes that were busy since.
pub(super) fn read_all(
    root: &Root,
    earlier: Option<&BTreeMap<u32, ProcessLoad>>,
    goes_on: &dyn Fn() -> bool,
) -> BTreeMap<u32, ProcessLoad> {
    let pids = root.names("proc").into_iter();
    let pids = pids.filter_map(|name| name.parse().ok());
    let loads = pids.take_while(|_| goes_on()).filter_map(|pid: u32| {
        let stat = root.read_if_possible(&format!("proc/{pid}/stat"))?;
        let mut load = parse(&stat)?;
        let before = earlier.map(|earlier| earlier.get(&pid).map_or(0, |one| one.ticks));
        let is_busy = before.is_some_and(|before| load.ticks.saturating_sub(before) >= TICKS);
        if is_busy && field(&stat, THREADS) != Some(1_usize) {
            let threads = root.names(&format!("proc/{pid}/task")).into_iter();
            load.cpus.extend(threads.filter_map(|tid| {
                let stat = root.read_if_possible(&format!("proc/{pid}/task/{tid}/stat"))?;
                field::<usize>(&stat, CPU)
            }));
        }
        Some((pid, load))
    });
    loads.collect()
}

fn parse(stat: &str) -> Option<ProcessLoad> {
    let name = stat.split_once(" (")?.1;
    let name = name.strip_suffix(fields(stat)?)?.strip_suffix(") ")?;
    let [user, system] = TIMES.map(|number| field::<u64>(stat, number));
    Some(ProcessLoad {
        name: name.to_owned(),
        ticks: user?.saturating_add(system?),
        priority: field(stat, PRIORITY).unwrap_or_default(),
        cpus: field(stat, CPU).into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    fn stat(name: &str, ticks: u64, threads: u32, cpu: usize) -> String {
        format!(
            "7 ({name}) S 4 5 6 7 8 9 10 11 12 13 {ticks} 1 16 17 18 19 {threads} 21 22 23 24 25 26 27 \
             28 29 30 31 32 33 34 35 36 37 38 {cpu} 0"
        )
    }

    #[test]
    fn threads_of_busy_processes_are_read() {
        let tree = fixture::tree(&format!(
            "proc/7/stat = {}\nproc/7/task/7/stat = {}\nproc/7/task/8/stat = {}\nproc/9/stat = x\n\
             proc/self/stat = {}",
            stat("a) b", 30, 2, 1),
            stat("a", 30, 2, 1),
            stat("a", 30, 2, 3),
            stat("self", 1, 1, 1),
        ));
        let load = |cpus: &[usize]| ProcessLoad {
            name: "a) b".to_owned(),
            ticks: 31,
            priority: 18,
            cpus: cpus.iter().copied().collect(),
        };
        let first = read_all(&tree.root, None, &|| true);
        assert_eq!(first, [(7, load(&[1]))].into());
        assert_eq!(read_all(&tree.root, Some(&first), &|| true), first, "idle");
        let began = BTreeMap::new();
        let later = read_all(&tree.root, Some(&began), &|| true);
        assert_eq!(later, [(7, load(&[1, 3]))].into());
        assert_eq!(read_all(&tree.root, None, &|| false), began);
    }

    #[test]
    fn odd_files_have_no_load() {
        for odd in ["", "1", "1 (a", "1 (a) ", "1 (a) S 1", ") S 1 (2"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
