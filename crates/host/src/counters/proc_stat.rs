//! Where the CPUs spent their time, by the kernel's own accounting.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::root::Root;
use crate::{HostError, HostResult};

/// `/proc/stat`: ticks per CPU since the machine started (`proc_stat(5)`). Host-wide.
///
/// A tick is 1/100 s, and on most kernels the whole tick is charged to whatever ran when it
/// ended: shares mean something over seconds, not milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcStat {
    /// The ticks of each online CPU.
    pub cpus: BTreeMap<usize, CpuTicks>,
}

/// The ticks of one CPU. The time of guests is inside `user` and `nice`, not beside them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTicks {
    /// Programs.
    pub user: u64,
    /// Programs of low priority.
    pub nice: u64,
    /// The kernel on behalf of programs, and its threads.
    pub system: u64,
    /// Nothing to do.
    pub idle: u64,
    /// Nothing to do but to wait for a disk. Unreliable: the kernel may even take it back.
    pub iowait: u64,
    /// Interrupt handlers.
    pub irq: u64,
    /// Soft interrupts, among them the receive path outside of threaded NAPI.
    pub softirq: u64,
    /// Time that the hypervisor gave to others.
    pub steal: u64,
}

/// How one CPU spent the time between two readings, in shares of 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuBusy {
    /// The CPU.
    pub cpu: usize,
    /// The share of everything but idleness and steal.
    pub busy: f64,
    /// The share of programs.
    pub user: f64,
    /// The share of the kernel on behalf of programs, and its threads.
    pub system: f64,
    /// The share of interrupts and soft interrupts.
    pub softirq: f64,
    /// The share that the hypervisor took away.
    pub steal: f64,
    /// The ticks that these shares were taken from: a share cannot be finer than one of them.
    pub ticks: u64,
}

impl ProcStat {
    /// Reads the ticks of this machine.
    ///
    /// # Errors
    /// [`HostError::Kernel`] where `/proc` is missing, [`HostError::Malformed`] where the file has an
    /// unknown form.
    pub fn read() -> HostResult<Self> {
        Self::read_from(&Root::machine())
    }

    pub(crate) fn read_from(root: &Root) -> HostResult<Self> {
        let path = "proc/stat";
        Self::parse_lines(&root.read(path)?)
            .map_err(|what| HostError::malformed(root.name(path), what))
    }

    /// Reads the text of `/proc/stat`; lines that are not about a CPU are left aside.
    ///
    /// # Errors
    /// [`HostError::Malformed`] with the line that does not fit.
    pub fn parse(text: &str) -> HostResult<Self> {
        Self::parse_lines(text).map_err(|what| HostError::malformed("/proc/stat", what))
    }

    /// The shares of each CPU since an earlier reading.
    ///
    /// A CPU that was offline at either end, or that no tick passed for, has no shares and is left
    /// out.
    pub fn busy_since(&self, earlier: &Self) -> Vec<CpuBusy> {
        let both = self
            .cpus
            .iter()
            .filter_map(|(cpu, later)| Some((*cpu, later, earlier.cpus.get(cpu)?)));
        both.filter_map(|(cpu, later, earlier)| later.busy_since(earlier, cpu))
            .collect()
    }

    fn parse_lines(text: &str) -> HostResult<Self, String> {
        let mut stat = Self::default();
        for (number, line) in text.lines().enumerate() {
            let fault = |what: &str| format!("line {}: {what}", number + 1);
            let mut words = line.split_ascii_whitespace();
            // The line `cpu` without a number is the sum of the others.
            let Some(Ok(cpu)) = words
                .next()
                .and_then(|word| word.strip_prefix("cpu"))
                .filter(|id| !id.is_empty())
                .map(str::parse::<usize>)
            else {
                continue;
            };
            let ticks = words
                .map(|word| word.parse().map_err(|_| fault("a value is not a number")))
                .collect::<HostResult<Vec<u64>, String>>()?;
            if ticks.len() < 4 {
                return Err(fault("fewer than 4 values"));
            }
            if stat
                .cpus
                .insert(cpu, CpuTicks::from_values(&ticks))
                .is_some()
            {
                return Err(fault("a CPU is there twice"));
            }
        }
        if stat.cpus.is_empty() {
            return Err("no line of a CPU".to_owned());
        }
        Ok(stat)
    }
}

impl CpuTicks {
    /// The columns in their order; old kernels have fewer of them.
    fn from_values(values: &[u64]) -> Self {
        let value = |at: usize| values.get(at).copied().unwrap_or(0);
        Self {
            user: value(0),
            nice: value(1),
            system: value(2),
            idle: value(3),
            iowait: value(4),
            irq: value(5),
            softirq: value(6),
            steal: value(7),
        }
    }

    fn busy_since(&self, earlier: &Self, cpu: usize) -> Option<CpuBusy> {
        // Saturating, because idle and iowait are known to step back now and then.
        let ticks = |column: fn(&Self) -> u64| column(self).saturating_sub(column(earlier));
        let user = ticks(|t| t.user).saturating_add(ticks(|t| t.nice));
        let system = ticks(|t| t.system);
        let softirq = ticks(|t| t.irq).saturating_add(ticks(|t| t.softirq));
        let steal = ticks(|t| t.steal);
        let busy = user.saturating_add(system).saturating_add(softirq);
        let idle = ticks(|t| t.idle).saturating_add(ticks(|t| t.iowait));
        let all = busy.saturating_add(idle).saturating_add(steal);
        let share = |part: u64| part as f64 / all as f64;
        (all > 0).then(|| CpuBusy {
            cpu,
            busy: share(busy),
            user: share(user),
            system: share(system),
            softirq: share(softirq),
            steal: share(steal),
            ticks: all,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use proptest::prelude::*;

    #[test]
    fn reads_a_recorded_host() {
        let tree = fixture::tree(include_str!("../../tests/fixtures/net.tree"));
        let stat = ProcStat::read_from(&tree.root).expect("a recorded host");
        assert_eq!(stat.cpus.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert!(stat.cpus[&0].idle > 0);
    }

    #[test]
    fn shares_leave_idleness_and_steal_out_of_busy() {
        let earlier = ProcStat::parse("cpu 0 0 0 0\ncpu0 10 0 10 100 5 0 0 0 0 0\nintr 7").unwrap();
        let later = ProcStat::parse("cpu0 40 10 20 120 5 4 16 10 30 0\ncpu1 1 1 1 1").unwrap();
        let busy = later.busy_since(&earlier);
        let expected = CpuBusy {
            cpu: 0,
            busy: 0.7,
            user: 0.4,
            system: 0.1,
            softirq: 0.2,
            steal: 0.1,
            ticks: 100,
        };
        assert_eq!(busy, [expected], "CPU 1 came online in between");
        assert_eq!(later.busy_since(&later), [], "no tick has passed");
    }

    #[test]
    fn names_what_is_wrong() {
        let fault = |text: &str| ProcStat::parse(text).unwrap_err().to_string();
        assert_eq!(fault("cpu0 1 2"), "/proc/stat: line 1: fewer than 4 values");
        assert!(fault("cpu0 1 2 3 x").ends_with("a value is not a number"));
        assert!(fault("cpu0 1 2 3 4\ncpu0 1 2 3 4").ends_with("a CPU is there twice"));
        assert!(fault("cpu 1 2 3 4\nintr 1").ends_with("no line of a CPU"));
    }

    proptest! {
        #[test]
        fn never_panics(a in "\\PC*", b in "(cpu[0-9]{0,2}( [0-9]{0,20}){0,11}\n){0,4}") {
            let _ = ProcStat::parse(&a);
            let _ = ProcStat::parse(&b);
        }

        #[test]
        fn shares_add_up(a: [u64; 10], b: [u64; 10]) {
            let text = |ticks: [u64; 10]| format!("cpu3 {}", ticks.map(|t| t.to_string()).join(" "));
            let (a, b) = (ProcStat::parse(&text(a)).unwrap(), ProcStat::parse(&text(b)).unwrap());
            for cpu in b.busy_since(&a) {
                prop_assert!((0.0..=1.0).contains(&cpu.busy));
            }
        }

        #[test]
        fn round_trip(ticks: [u64; 8]) {
            let text = format!("cpu5 {} 0 0", ticks.map(|t| t.to_string()).join(" "));
            let back = ProcStat::parse(&text).unwrap().cpus[&5];
            let back = [back.user, back.nice, back.system, back.idle, back.iowait, back.irq,
                back.softirq, back.steal];
            prop_assert_eq!(back, ticks);
        }
    }
}
