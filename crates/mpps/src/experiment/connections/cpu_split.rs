//! Which CPUs are the server's and which the load's.

use crate::udp::roles::{is_one_core, near_first, on};
use mpps_host::Topology;

/// Threads of the load at the least, whose rates are summed: the paper's load was eight programs.
const THREADS_MIN: usize = 4;
/// CPUs of the server at the most: there is an address of the load for the queue of each.
const CPUS_MAX: usize = 64;

/// The CPUs of both sides: for each one's threads and queues, a core each first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deal {
    /// The server's: a worker and a receive queue on each.
    pub(crate) servers: Vec<usize>,
    /// The load's.
    pub(crate) loads: Vec<usize>,
}

impl Deal {
    /// Half of the usable cores for each side, neighbours together, and an odd one for the load,
    /// which is to outrun the server. None with a single CPU.
    pub(crate) fn of(topology: &Topology) -> Option<Self> {
        let mut cores: Vec<Vec<usize>> = Vec::new();
        let cpus = near_first(topology);
        for cpu in &cpus {
            let same = |core: &&mut Vec<usize>| is_one_core(topology, *cpu, core[0]);
            match cores.iter_mut().find(same) {
                Some(core) => core.push(*cpu),
                None => cores.push(vec![*cpu]),
            }
        }
        // The two hyper-threads of the only core are better than nothing.
        if cores.len() < 2 {
            cores = cpus.into_iter().map(|cpu| vec![cpu]).collect();
        }
        let (loads, servers) = cores.split_at(cores.len().div_ceil(2));
        let [loads, servers] = [loads, servers].map(a_core_each_first);
        (!servers.is_empty()).then_some(Self { servers, loads })
    }

    /// Threads of the load: as many for each queue, and no more than connections.
    pub(super) fn threads(&self, connections: u64) -> usize {
        let queues = self.servers.len();
        let threads = queues * THREADS_MIN.div_ceil(queues);
        threads.min(usize::try_from(connections).unwrap_or(threads))
    }

    /// The CPU that serves the load's end of each queue.
    pub(super) fn load_queues(&self) -> Vec<usize> {
        let cpus = self.loads.iter().copied().cycle();
        cpus.take(self.servers.len()).collect()
    }

    /// The CPU of the load's thread whose connections take this queue. It is the CPU of the load's
    /// end of the queue, or a CPU without a queue.
    pub(super) fn thread_cpu(&self, thread: usize, queue: usize) -> usize {
        let queues = self.servers.len();
        self.loads[(queue + thread / queues * queues) % self.loads.len()]
    }

    /// In one line.
    pub(super) fn sentence(&self) -> String {
        format!(
            "server and its queues: {}   load: {}",
            on(&self.servers),
            on(&self.loads)
        )
    }

    /// Notes on a host with few CPUs, and on CPUs that share a core.
    pub(super) fn notes(&self, topology: &Topology) -> Vec<String> {
        let mut notes = Vec::new();
        if self.servers.len() == 1 {
            notes.push(format!(
                "{}; what the paper's affinity did, all of a connection on the CPU of its queue, is \
                 so from the start",
                one_cpu()
            ));
        }
        for (whose, cpus) in [("server", &self.servers), ("load", &self.loads)] {
            let is_sibling = |(nth, cpu): (usize, &usize)| {
                let mut earlier = cpus[..nth].iter();
                earlier.any(|other| is_one_core(topology, *cpu, *other))
            };
            let siblings = cpus.iter().enumerate().filter(|one| is_sibling(*one));
            match siblings.count() {
                0 => {}
                siblings => notes.push(format!(
                    "of the {whose}'s {} CPUs {siblings} are hyper-threads of cores that it has already",
                    cpus.len()
                )),
            }
        }
        notes
    }
}

/// Why the first technique is skipped where the server has one CPU.
pub(crate) fn one_cpu() -> &'static str {
    "technique 1 needs at least 2 server CPUs; here 1"
}

fn a_core_each_first(cores: &[Vec<usize>]) -> Vec<usize> {
    let deepest = cores.iter().map(Vec::len).max().unwrap_or(0);
    let threads = (0..deepest).flat_map(|nth| cores.iter().filter_map(move |core| core.get(nth)));
    threads.copied().take(CPUS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::{article, flat, machine, two_by_two_by_two};

    /// The CPUs of the load, and of the server.
    fn dealt(topology: &Topology) -> Option<[Vec<usize>; 2]> {
        Deal::of(topology).map(|deal| [deal.loads, deal.servers])
    }

    #[test]
    fn each_side_has_half_of_the_cores_and_hyper_threads_come_last() {
        assert_eq!(dealt(&flat(1)), None);
        assert_eq!(dealt(&flat(2)), Some([vec![0], vec![1]]));
        assert_eq!(dealt(&flat(3)), Some([vec![0, 1], vec![2]]));
        assert_eq!(dealt(&flat(4)), Some([vec![0, 1], vec![2, 3]]));
        let halves = |cpus: usize| Some([(0..cpus / 2).collect(), (cpus / 2..cpus).collect()]);
        for cpus in [8, 12, 24] {
            assert_eq!(dealt(&flat(cpus)), halves(cpus));
        }
        let nodes = [vec![0, 2, 1, 3], vec![4, 6, 5, 7]];
        assert_eq!(dealt(&two_by_two_by_two()), Some(nodes));
        let nodes = [0, 6].map(|first| (first..first + 6).chain(first + 12..first + 18).collect());
        assert_eq!(dealt(&article()), Some(nodes));
        let one_core = machine((0..2).map(|id| (id, 0, vec![0, 1])));
        assert_eq!(dealt(&one_core), Some([vec![0], vec![1]]));
    }

    #[test]
    fn every_queue_has_as_many_threads_on_the_cpu_of_its_other_end() {
        for topology in [2, 3, 4, 5, 8, 12, 24]
            .map(flat)
            .into_iter()
            .chain([article()])
        {
            let deal = Deal::of(&topology).unwrap();
            let (queues, threads) = (deal.servers.len(), deal.threads(10_000));
            assert!(threads >= THREADS_MIN && threads.is_multiple_of(queues));
            let ends = deal.load_queues();
            assert_eq!(ends.len(), queues);
            let cpus: Vec<usize> = (0..threads)
                .map(|thread| deal.thread_cpu(thread, thread % queues))
                .collect();
            // Where the load has more CPUs than there are queues, the others have threads, too.
            assert!(deal.loads.iter().all(|cpu| cpus.contains(cpu)));
            if deal.loads.len() == queues {
                let own = cpus.iter().enumerate();
                assert!(
                    own.into_iter()
                        .all(|(thread, cpu)| *cpu == ends[thread % queues])
                );
            }
        }
        assert_eq!(Deal::of(&flat(2)).unwrap().threads(3), 3);
    }

    #[test]
    fn what_few_cpus_cannot_show_is_noted_and_so_are_hyper_threads() {
        let notes = |topology: &Topology| Deal::of(topology).unwrap().notes(topology);
        assert!(notes(&flat(2))[0].starts_with("technique 1 needs at least 2 server CPUs; here 1"));
        assert!(notes(&flat(4)).is_empty());
        assert!(notes(&article())[0].starts_with("of the server's 12 CPUs 6 are hyper-threads"));
    }
}
