//! Which CPU does what.

use mpps_host::{CpuList, Relation, Topology};

/// Receive queues of the lab; the article's NIC had eleven and its experiments used four.
pub(crate) const QUEUES: u16 = 4;
/// Senders and receiving threads at the most: one per queue.
const ROLE_CPUS_MAX: usize = QUEUES as usize;

/// Which CPUs send, serve receive queues, and run the receiving program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layout {
    /// CPUs of the sending threads, taken in turn.
    pub(crate) senders: Vec<usize>,
    /// The CPU of each receive queue.
    pub(crate) queues: Vec<usize>,
    /// CPUs of the receiving threads, taken in turn.
    pub(crate) applications: Vec<usize>,
    /// False where the queues have no CPU of their own, because this user may not place them.
    pub(crate) is_placed: bool,
    topology: Topology,
}

impl Layout {
    /// Deals out the CPUs that this process may use: receive queues and application share a NUMA
    /// node, senders take what is farthest from them, and where there are fewer than three CPUs
    /// somebody shares.
    pub(crate) fn new(topology: Topology) -> Self {
        let cpus = by_distance(&topology);
        let third = (cpus.len() / 3).clamp(1, ROLE_CPUS_MAX);
        let (queue_cpus, applications, senders): (&[usize], &[usize], &[usize]) = match cpus.len() {
            0 => (&[0], &[0], &[0]),
            1 => (&cpus, &cpus, &cpus),
            2 => (&cpus[1..], &cpus[1..], &cpus[..1]),
            n => (&cpus[..third], &cpus[third..2 * third], &cpus[n - third..]),
        };
        Self {
            senders: senders.to_vec(),
            queues: queue_cpus
                .iter()
                .copied()
                .cycle()
                .take(usize::from(QUEUES))
                .collect(),
            applications: applications.to_vec(),
            is_placed: true,
            topology,
        }
    }

    /// The CPU nearest to being free that stands in this relation to the first receive queue's.
    pub(crate) fn related(&self, relation: Relation) -> Option<usize> {
        let queue = *self.queues.first()?;
        let mut candidates: Vec<usize> = self
            .topology
            .usable()
            .into_iter()
            .filter(|cpu| self.topology.relation(queue, *cpu) == Some(relation))
            .collect();
        candidates.sort_by_key(|cpu| self.senders.contains(cpu));
        candidates.first().copied()
    }

    /// What runs on a CPU when the receiving threads are on `applications`.
    pub(crate) fn roles(&self, cpu: usize, applications: &[usize]) -> Vec<String> {
        let mut roles = Vec::new();
        if self.senders.contains(&cpu) {
            roles.push("sender".to_owned());
        }
        let queues: Vec<usize> = (0..self.queues.len())
            .filter(|queue| self.queues[*queue] == cpu)
            .collect();
        if self.is_placed && !queues.is_empty() {
            roles.push(format!("queues {}", CpuList(queues)));
        }
        if applications.contains(&cpu) {
            roles.push("application".to_owned());
        }
        roles
    }

    /// How the two hosts lie over the CPUs, in one line.
    pub(crate) fn sentence(&self, kernel: &str) -> String {
        let nodes = self.topology.nodes().len().max(1);
        let cpus = self.topology.usable().len();
        format!(
            "sender: {}   receiver: queues on {}, application on {}   Linux {kernel}, {cpus} \
             CPU{}, {nodes} NUMA node{}",
            on(&self.senders),
            if self.is_placed {
                on(&self.queues)
            } else {
                "no CPU of their own".to_owned()
            },
            on(&self.applications),
            if cpus == 1 { "" } else { "s" },
            if nodes == 1 { "" } else { "s" },
        )
    }

    /// NUMA nodes of this machine.
    pub(crate) fn nodes(&self) -> usize {
        self.topology.nodes().len().max(1)
    }
}

/// `CPU 1` or `CPUs 0-3`.
fn on(cpus: &[usize]) -> String {
    let mut distinct = cpus.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let plural = if distinct.len() == 1 { "" } else { "s" };
    format!("CPU{plural} {}", CpuList(distinct))
}

/// The usable CPUs, those of the first one's node first, and within a node one thread of each core
/// before the others.
fn by_distance(topology: &Topology) -> Vec<usize> {
    let mut cpus = topology.usable();
    let home = cpus
        .first()
        .and_then(|cpu| topology.cpu(*cpu))
        .map(|cpu| cpu.node);
    cpus.sort_by_key(|id| {
        let cpu = topology.cpu(*id);
        let away = cpu.map(|cpu| Some(cpu.node) != home);
        // How many siblings of its core come before it.
        let thread = cpu.map(|cpu| cpu.siblings.iter().filter(|other| *other < id).count());
        (away, cpu.map(|cpu| cpu.node), thread, *id)
    });
    cpus
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use mpps_host::Cpu;

    /// CPUs as (id, node, siblings).
    fn machine(cpus: &[(usize, usize, &[usize])]) -> Topology {
        let cpu = |(id, node, siblings): &(usize, usize, &[usize])| Cpu {
            id: *id,
            package: Some(*node),
            siblings: siblings.to_vec(),
            node: *node,
            capacity: None,
            allowed: true,
        };
        Topology {
            cpus: cpus.iter().map(cpu).collect(),
            offline: Vec::new(),
        }
    }

    /// The smallest machine that has a CPU for each host.
    pub(in crate::ladder) fn two_cpus() -> Layout {
        Layout::new(machine(&[(0, 0, &[0]), (1, 0, &[1])]))
    }

    #[test]
    fn two_cpus_send_on_one_and_receive_on_the_other() {
        let layout = two_cpus();
        assert_eq!(
            (layout.senders.as_slice(), layout.applications.as_slice()),
            (&[0][..], &[1][..])
        );
        assert_eq!(layout.queues, [1; 4]);
        assert_eq!(layout.related(Relation::SameCpu), Some(1));
        assert_eq!(layout.related(Relation::SameNode), Some(0));
        assert_eq!(layout.related(Relation::Sibling), None);
        assert_eq!(layout.roles(1, &[1]), ["queues 0-3", "application"]);
    }

    #[test]
    fn one_cpu_does_everything() {
        let layout = Layout::new(machine(&[(0, 0, &[0])]));
        assert_eq!(
            layout.roles(0, &[0]),
            ["sender", "queues 0-3", "application"]
        );
    }

    #[test]
    fn the_articles_host_keeps_queues_and_application_on_one_node() {
        let list: Vec<(usize, usize, Vec<usize>)> = (0..24)
            .map(|id| (id, id / 6 % 2, vec![id % 12, id % 12 + 12]))
            .collect();
        let cpus: Vec<_> = list
            .iter()
            .map(|(id, node, s)| (*id, *node, s.as_slice()))
            .collect();
        let layout = Layout::new(machine(&cpus));
        let node = |cpu: &usize| cpu / 6 % 2;
        assert!(
            layout
                .queues
                .iter()
                .chain(&layout.applications)
                .all(|cpu| node(cpu) == 0)
        );
        assert!(layout.senders.iter().all(|cpu| node(cpu) == 1));
        assert!(
            layout
                .related(Relation::OtherNode)
                .is_some_and(|cpu| node(&cpu) == 1)
        );
        let all = [&layout.senders, &layout.queues, &layout.applications].map(Vec::len);
        assert_eq!(all, [4, 4, 4]);
    }
}
