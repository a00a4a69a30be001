//! The CPUs of this host: which this process may use, and how near they are to each other.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::root::Root;
use crate::{CpuUnavailable, HostError, HostResult};
use mpps_os::CpuList;

/// The online CPUs of a host in the order of their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Every CPU that is online, allowed to this process or not.
    pub cpus: Vec<Cpu>,
    /// CPUs that are present but switched off.
    pub offline: Vec<usize>,
}

/// One online CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its number, as in `taskset` and `--pin`.
    pub id: usize,
    /// The socket that it sits in, where the kernel says.
    pub package: Option<usize>,
    /// All hyper-threads of its core, itself included.
    pub siblings: Vec<usize>,
    /// The NUMA node; 0 on a kernel without NUMA, where all memory is equally near.
    pub node: usize,
    /// The speed class of a host with unlike cores, 1024 for the fastest; absent where the kernel
    /// does not say (`Documentation/ABI/testing/sysfs-devices-system-cpu`, `cpu_capacity`). It does
    /// not for Intel's efficient cores if others have hyper-threads: these have 512.
    pub capacity: Option<u32>,
    /// The calling thread may run here (its affinity and its cpuset).
    pub allowed: bool,
}

/// How near two CPUs are, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// They are the same CPU.
    SameCpu,
    /// They are hyper-threads of one core.
    Sibling,
    /// They share a NUMA node.
    SameNode,
    /// They are on different NUMA nodes.
    OtherNode,
}

impl Relation {
    /// The relation as people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameCpu => "same CPU",
            Self::Sibling => "sibling hyper-thread",
            Self::SameNode => "same NUMA node",
            Self::OtherNode => "other NUMA node",
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Topology {
    /// Reads the CPUs of this machine and the affinity of the calling thread.
    ///
    /// # Errors
    /// [`HostError::Kernel`] where `/proc` or `/sys` is missing, [`HostError::Malformed`] where a file of
    /// theirs has an unknown form.
    pub fn read() -> HostResult<Self> {
        Self::read_from(&Root::machine())
    }

    pub(crate) fn read_from(root: &Root) -> HostResult<Self> {
        let status = root.read("proc/thread-self/status")?;
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .ok_or_else(|| {
                HostError::malformed(root.name("proc/thread-self/status"), "no Cpus_allowed_list")
            })?;
        let allowed = CpuList::from_kernel(allowed)?.0;
        let online = list(root, "sys/devices/system/cpu/online")?;
        let present = list(root, "sys/devices/system/cpu/present")?;
        let nodes = nodes(root)?;
        let cpus = online
            .iter()
            .map(|&id| cpu(root, id, &nodes, allowed.contains(&id)))
            .collect::<HostResult<_>>()?;
        Ok(Self {
            cpus,
            offline: present
                .into_iter()
                .filter(|id| !online.contains(id))
                .collect(),
        })
    }

    /// The CPU of that number, if it is online.
    pub fn cpu(&self, id: usize) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// The CPUs that this process may use, lowest number first.
    pub fn usable(&self) -> Vec<usize> {
        self.ids(|cpu| cpu.allowed)
    }

    /// How near two online CPUs are; none where one of them is not online.
    pub fn relation(&self, a: usize, b: usize) -> Option<Relation> {
        let (a, b) = (self.cpu(a)?, self.cpu(b)?);
        Some(if a.id == b.id {
            Relation::SameCpu
        } else if a.siblings.contains(&b.id) {
            Relation::Sibling
        } else if a.node == b.node {
            Relation::SameNode
        } else {
            Relation::OtherNode
        })
    }

    /// The NUMA nodes that have online CPUs.
    pub fn nodes(&self) -> Vec<usize> {
        distinct(self.cpus.iter().map(|cpu| cpu.node))
    }

    /// The number of cores that have an online CPU.
    pub fn cores(&self) -> usize {
        let first = |cpu: &Cpu| cpu.siblings.iter().copied().min().unwrap_or(cpu.id);
        distinct(self.cpus.iter().map(first)).len()
    }

    /// Whether a core shows itself as more than one CPU.
    pub fn has_hyper_threads(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.siblings.len() > 1)
    }

    /// Checks that this process may use every CPU of a list.
    ///
    /// # Errors
    /// The first CPU that it may not use, and why.
    pub fn check(&self, wanted: &CpuList) -> HostResult<(), CpuUnavailable> {
        for &id in &wanted.0 {
            match self.cpu(id) {
                Some(cpu) if cpu.allowed => {}
                Some(_) => {
                    return Err(CpuUnavailable::Forbidden {
                        cpu: id,
                        allowed: CpuList(self.usable()),
                    });
                }
                None if self.offline.contains(&id) => {
                    return Err(CpuUnavailable::Offline { cpu: id });
                }
                None => {
                    return Err(CpuUnavailable::Absent {
                        cpu: id,
                        online: CpuList(self.ids(|_| true)),
                    });
                }
            }
        }
        Ok(())
    }

    fn ids(&self, wanted: impl Fn(&Cpu) -> bool) -> Vec<usize> {
        let chosen = self.cpus.iter().filter(|cpu| wanted(cpu));
        chosen.map(|cpu| cpu.id).collect()
    }
}

/// The NUMA nodes and their CPUs; one node 0 without CPUs where the kernel knows no nodes.
fn nodes(root: &Root) -> HostResult<Vec<(usize, Vec<usize>)>> {
    let directory = "sys/devices/system/node";
    let mut nodes = Vec::new();
    for name in root.names(directory) {
        // The directory also holds `online`, `has_cpu`, `power` and the like.
        let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) else {
            continue;
        };
        nodes.push((id, list(root, &format!("{directory}/{name}/cpulist"))?));
    }
    Ok(nodes)
}

fn cpu(root: &Root, id: usize, nodes: &[(usize, Vec<usize>)], allowed: bool) -> HostResult<Cpu> {
    let directory = format!("sys/devices/system/cpu/cpu{id}");
    // `core_cpus_list` is the name since Linux 5.3, `thread_siblings_list` the one before.
    let mut siblings = vec![id];
    for name in ["core_cpus_list", "thread_siblings_list"] {
        let path = format!("{directory}/topology/{name}");
        if root.read_if_present(&path)?.is_some() {
            siblings = list(root, &path)?;
            break;
        }
    }
    let given = root.read_if_possible(&format!("{directory}/cpu_capacity"));
    let given = given.and_then(|text| text.parse().ok());
    Ok(Cpu {
        id,
        // A platform without package numbers says -1, which is none.
        package: root
            .read_if_possible(&format!("{directory}/topology/physical_package_id"))
            .and_then(|text| text.parse().ok()),
        siblings,
        node: nodes
            .iter()
            .find(|(_, cpus)| cpus.contains(&id))
            .map_or(0, |(node, _)| *node),
        capacity: match is_efficient(root, id) {
            true => given.filter(|capacity| *capacity < 1024).or(Some(512)),
            false => given,
        },
        allowed,
    })
}

/// True for an efficient core of Intel's: those have performance counters of their own.
fn is_efficient(root: &Root, id: usize) -> bool {
    let cpus = root.read_if_possible("sys/devices/cpu_atom/cpus");
    let cpus = cpus.and_then(|text| CpuList::from_kernel(&text).ok());
    cpus.is_some_and(|cpus| cpus.0.contains(&id))
}

/// A file that holds a list of CPUs.
fn list(root: &Root, path: &str) -> HostResult<Vec<usize>> {
    CpuList::from_kernel(&root.read(path)?)
        .map(|list| list.0)
        .map_err(|error| HostError::malformed(root.name(path), error.to_string()))
}

fn distinct(values: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut values: Vec<usize> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    fn topology(text: &str) -> Topology {
        Topology::read_from(&fixture::tree(text).root).expect("the fixture is a whole tree")
    }

    #[test]
    fn one_cpu() {
        let host = topology(include_str!("../../tests/fixtures/cpu-1.tree"));
        assert_eq!(host.usable(), [0]);
        assert_eq!(host.nodes(), [0], "no node directory means one node");
        assert_eq!(host.relation(0, 0), Some(Relation::SameCpu));
        assert_eq!(host.relation(0, 1), None);
        assert_eq!(host.relation(1, 0), None);
    }

    #[test]
    fn two_cpus_of_a_cloud_machine() {
        let host = topology(include_str!("../../tests/fixtures/cpu-2.tree"));
        assert_eq!(host.relation(0, 1), Some(Relation::SameNode));
        assert_eq!((host.cores(), host.has_hyper_threads()), (2, false));
        assert_eq!(host.cpu(0).and_then(|cpu| cpu.capacity), Some(1024));
    }

    #[test]
    fn efficient_cores_are_slower_also_if_the_kernel_does_not_say() {
        let hybrid = concat!(
            include_str!("../../tests/fixtures/cpu-2.tree"),
            "sys/devices/cpu_atom/cpus = 1\n"
        );
        let capacities = topology(hybrid).cpus.into_iter().map(|cpu| cpu.capacity);
        assert_eq!(capacities.collect::<Vec<_>>(), [Some(1024), Some(512)]);
    }

    #[test]
    fn two_sockets_with_hyper_threads() {
        let host = topology(include_str!("../../tests/fixtures/cpu-2x6-ht.tree"));
        assert_eq!(host.cpus.len(), 24);
        assert_eq!((host.cores(), host.has_hyper_threads()), (12, true));
        assert_eq!(host.nodes(), [0, 1]);
        let near = [2, 14, 0, 6].map(|other| host.relation(2, other));
        let all = [
            Relation::SameCpu,
            Relation::Sibling,
            Relation::SameNode,
            Relation::OtherNode,
        ];
        assert_eq!(near, all.map(Some));
        assert_eq!(host.relation(14, 2), Some(Relation::Sibling));
        assert_eq!(host.relation(17, 18), Some(Relation::OtherNode));
        assert_eq!(host.cpu(23).and_then(|cpu| cpu.package), Some(1));
    }

    #[test]
    fn unlike_cores_some_of_them_off() {
        let host = topology(include_str!("../../tests/fixtures/cpu-unlike-offline.tree"));
        assert_eq!(host.usable(), [0, 1, 4]);
        assert_eq!(host.offline, [3, 5]);
        let capacity = |id: usize| host.cpu(id).and_then(|cpu| cpu.capacity);
        assert_eq!((capacity(0), capacity(4)), (Some(446), Some(1024)));
        assert_eq!(host.cpu(0).and_then(|cpu| cpu.package), None);
        let check = |text: &str| host.check(&text.parse().expect("a list"));
        assert_eq!(check("0-1,4"), Ok(()));
        assert_eq!(
            check("2").unwrap_err().to_string(),
            "CPU 2 is not allowed to this process, which may use 0-1,4 \
             (taskset or a cgroup's cpuset says so)"
        );
        assert_eq!(check("0,3"), Err(CpuUnavailable::Offline { cpu: 3 }));
        assert_eq!(
            check("64").unwrap_err().to_string(),
            "CPU 64 does not exist: this host has 0-2,4"
        );
    }

    #[test]
    fn an_empty_tree_is_an_error_that_names_the_file() {
        let tree = fixture::tree("");
        let error = Topology::read_from(&tree.root).unwrap_err().to_string();
        assert!(error.contains("proc/thread-self/status"), "{error}");
    }

    #[test]
    fn this_machine_has_the_cpu_that_runs_this_test() {
        let host = Topology::read().expect("/proc and /sys are here");
        assert!(!host.usable().is_empty());
        assert_eq!(host.check(&CpuList(host.usable())), Ok(()));
    }
}
