//! Roles of CPUs on machines that are written down.

use super::*;
use mpps_host::Cpu;

/// CPUs as (id, node, siblings).
pub(crate) fn machine(cpus: impl IntoIterator<Item = (usize, usize, Vec<usize>)>) -> Topology {
    let cpu = |(id, node, siblings)| Cpu {
        id,
        package: Some(node),
        siblings,
        node,
        capacity: None,
        allowed: true,
    };
    Topology {
        cpus: cpus.into_iter().map(cpu).collect(),
        offline: Vec::new(),
    }
}

/// So many CPUs, a core each, on one node.
pub(crate) fn flat(cpus: usize) -> Topology {
    machine((0..cpus).map(|id| (id, 0, vec![id])))
}

/// Two nodes of two cores of two hyper-threads, which are neighbours.
pub(crate) fn two_by_two_by_two() -> Topology {
    machine((0..8).map(|id| (id, id / 4, vec![id / 2 * 2, id / 2 * 2 + 1])))
}

/// The article's: two nodes of six cores; CPU n and n + 12 are of one core.
pub(crate) fn article() -> Topology {
    machine((0..24).map(|id| (id, id / 6 % 2, vec![id % 12, id % 12 + 12])))
}

/// The smallest machine that has a CPU for each host.
pub(crate) fn two_cpus() -> Layout {
    Layout::new(flat(2), None)
}

/// The same with queues that are tied to a CPU, which is the application's.
pub(crate) fn two_cpus_tied() -> Layout {
    Layout::new(flat(2), Some(Delivery::ThreadedNapi))
}

/// The CPUs of senders, queues and applications.
pub(crate) fn roles(topology: Topology) -> [Vec<usize>; 3] {
    let layout = Layout::new(topology, None);
    [layout.senders, layout.queues, layout.applications]
}

#[test]
fn each_role_has_cores_of_its_own_and_every_cpu_of_a_small_machine_a_role() {
    assert_eq!(roles(flat(1)), [vec![0], vec![0; 4], vec![0]]);
    assert_eq!(roles(flat(2)), [vec![0], vec![0; 4], vec![1]]);
    assert_eq!(roles(flat(3)), [vec![0], vec![1; 4], vec![2]]);
    assert_eq!(roles(flat(4)), [vec![0], vec![1; 4], vec![2, 3]]);
    let eight = [vec![0, 1], vec![2, 3, 2, 3], vec![4, 5, 6, 7]];
    assert_eq!(roles(flat(8)), eight);
    let twelve = [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 10, 11]];
    assert_eq!(roles(flat(12)), twelve);
    let nodes = [vec![4, 6, 5, 7], vec![0, 1, 0, 1], vec![2, 3]];
    assert_eq!(roles(two_by_two_by_two()), nodes);
    // Queues take the hyper-threads of their own cores: on that node there is no core left.
    let article = roles(self::article());
    assert_eq!(
        article,
        [vec![6, 7, 8, 9], vec![0, 1, 12, 13], vec![2, 3, 4, 5]]
    );
}

#[test]
fn hyper_threads_in_use_are_noted() {
    let notes = |topology| Layout::new(topology, None).notes().join("\n");
    assert_eq!(
        notes(two_by_two_by_two()),
        "hyper-threads of one core: CPUs 0-1 (queues); CPUs 2-3 (application); CPUs 4-5 (sender); \
         CPUs 6-7 (sender)"
    );
    assert_eq!(
        notes(article()),
        "hyper-threads of one core: CPUs 0,12 (queues); CPUs 1,13 (queues)"
    );
    assert_eq!(notes(flat(12)), "");
}

#[test]
fn a_sibling_that_this_process_may_not_use_is_nobodys() {
    let mut topology = article();
    for cpu in &mut topology.cpus {
        cpu.allowed = cpu.id >= 12;
    }
    let usable = roles(topology);
    assert_eq!(
        usable,
        [
            vec![18, 19, 20, 21],
            vec![12, 13, 12, 13],
            vec![14, 15, 16, 17]
        ]
    );
}
