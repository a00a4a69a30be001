//! The threads of a server and all its children, and what they used.

use anyhow::{Context, Result};
use mpps_os::sched;
use std::collections::BTreeMap;
use std::fs;

/// The use of every thread of a process namespace so far.
#[derive(Debug, Default)]
pub(super) struct ProcessTree(BTreeMap<(u32, u32), Used>);

/// The use of one thread, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Time on a CPU, in nanoseconds.
    pub(super) run_ns: u64,
    /// Context switches, voluntary and not.
    pub(super) switches: u64,
}

impl ProcessTree {
    /// Reads the threads of all processes in the process namespace of `first`, whatever their
    /// parents. A daemon leaves its parent, but not its namespace.
    pub(super) fn read(first: u32) -> Result<Self> {
        let namespace = fs::read_link(format!("/proc/{first}/ns/pid"))
            .with_context(|| format!("cannot read /proc/{first}/ns/pid"))?;
        let mut tree = Self::default();
        for process in numbers("/proc") {
            // A process may end at any moment; it is then not there.
            let own = fs::read_link(format!("/proc/{process}/ns/pid"));
            if own.is_ok_and(|own| own == namespace) {
                tree.add(process);
            }
        }
        Ok(tree)
    }

    fn add(&mut self, process: u32) {
        for thread in numbers(&format!("/proc/{process}/task")) {
            let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status"));
            let (Ok(stat), Ok(status)) = (sched::schedstat(process, thread), status) else {
                continue;
            };
            let used = Used {
                run_ns: stat.run_ns,
                switches: context_switches(&status),
            };
            self.0.insert((process, thread), used);
        }
    }

    /// The use since an earlier reading, and the number of threads that are gone since. The last
    /// use of these threads is not included.
    pub(super) fn since(&self, earlier: &Self) -> (Used, usize) {
        let mut sum = Used::default();
        for (thread, now) in &self.0 {
            let then = earlier.0.get(thread).copied().unwrap_or_default();
            sum.run_ns += now.run_ns.saturating_sub(then.run_ns);
            sum.switches += now.switches.saturating_sub(then.switches);
        }
        let gone = earlier
            .0
            .keys()
            .filter(|thread| !self.0.contains_key(thread));
        (sum, gone.count())
    }
}

/// The names in a directory that are numbers.
pub(super) fn numbers(directory: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// `voluntary_ctxt_switches` and its counterpart of `proc_pid_status(5)`.
fn context_switches(status: &str) -> u64 {
    status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.ends_with("voluntary_ctxt_switches"))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_switches_count() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t5\n";
        assert_eq!(context_switches(status), 12);
        assert_eq!(context_switches("Name:\tx\n"), 0);
    }

    #[test]
    fn new_threads_count_and_gone_ones_are_told() {
        let used = |run_ns, switches| Used { run_ns, switches };
        let earlier = ProcessTree([((1, 1), used(10, 1)), ((1, 2), used(5, 5))].into());
        let later = ProcessTree([((1, 1), used(30, 2)), ((1, 3), used(7, 1))].into());
        assert_eq!(later.since(&earlier), (used(27, 2), 1));
    }

    #[test]
    fn this_process_is_in_its_own_namespace() {
        let id = std::process::id();
        let tree = ProcessTree::read(id).expect("/proc is there");
        assert!(tree.0.keys().any(|(process, _)| *process == id));
    }
}
