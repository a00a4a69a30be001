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

/// Two nodes of four cores of two hyper-threads, which are neighbours.
pub(crate) fn two_by_four_by_two() -> Topology {
    machine((0..16).map(|id| (id, id / 8, vec![id / 2 * 2, id / 2 * 2 + 1])))
}

/// The article's: two nodes of six cores; CPU n and n + 12 are of one core.
pub(crate) fn article() -> Topology {
    machine((0..24).map(|id| (id, id / 6 % 2, vec![id % 12, id % 12 + 12])))
}

/// Six performance cores of two hyper-threads, and eight efficient cores.
pub(crate) fn hybrid() -> Topology {
    let siblings = |id| {
        if id < 12 {
            vec![id / 2 * 2, id / 2 * 2 + 1]
        } else {
            vec![id]
        }
    };
    let mut topology = machine((0..20).map(|id| (id, 0, siblings(id))));
    for cpu in &mut topology.cpus[12..] {
        cpu.capacity = Some(512);
    }
    topology
}

/// The smallest machine that has a CPU for each host.
pub(crate) fn two_cpus() -> CpuLayout {
    CpuLayout::new(flat(2), None)
}

/// The same with queues that are tied to a CPU, which is the application's.
pub(crate) fn two_cpus_tied() -> CpuLayout {
    CpuLayout::new(flat(2), Some(Delivery::ThreadedNapi))
}

/// The CPUs of senders, queues and applications.
pub(crate) fn roles(topology: Topology) -> [Vec<usize>; 3] {
    let layout = CpuLayout::new(topology, None);
    [layout.senders, layout.queues, layout.applications]
}

/// The same machine, with this process confined to these CPUs.
fn confined(topology: Topology, allowed: &[usize]) -> Topology {
    let mut topology = topology;
    for cpu in &mut topology.cpus {
        cpu.allowed = allowed.contains(&cpu.id);
    }
    topology
}

/// The same machine without these CPUs, which are offline.
fn without(topology: Topology, offline: &[usize]) -> Topology {
    let mut topology = topology;
    topology.cpus.retain(|cpu| !offline.contains(&cpu.id));
    topology.offline = offline.to_vec();
    topology
}

#[test]
fn each_role_has_cores_of_its_own_and_every_cpu_of_a_small_machine_a_role() {
    let sparse = machine((0..8).map(|id| (id, id / 4 * 3, vec![id])));
    let table = [
        // machine, senders, queues, application
        ("1", flat(1), "0", "0", "0"),
        ("2", flat(2), "0", "0", "1"),
        ("3", flat(3), "0", "1", "2"),
        ("4", flat(4), "0", "1", "2-3"),
        ("5", flat(5), "0", "1-2", "3-4"),
        ("8", flat(8), "0-1", "2-3", "4-7"),
        ("12", flat(12), "0-3", "4-7", "8-11"),
        ("2x2x2", two_by_two_by_two(), "4-7", "0-1", "2-3"),
        ("2x4x2", two_by_four_by_two(), "8,10,12,14", "0-3", "4-7"),
        // Queues take the hyper-threads of their own cores: on that node there is no core left.
        ("the article's", article(), "6-9", "0-1,12-13", "2-5"),
        // The application has performance cores, and the first queues, too.
        ("6P+8E", hybrid(), "14-17", "8,10,12-13", "0,2,4,6"),
        ("5 without CPU 1", without(flat(5), &[1]), "0", "2", "3-4"),
        ("cpuset of 3", confined(flat(8), &[2, 5, 7]), "2", "5", "7"),
        (
            "cpuset of second threads",
            confined(article(), &[12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]),
            "18-21",
            "12-13",
            "14-17",
        ),
        (
            "nodes 0 and 3, 1 and 2 without CPUs",
            sparse,
            "4-7",
            "0-1",
            "2-3",
        ),
    ];
    for (name, topology, senders, queues, application) in table {
        let said = roles(topology).map(|cpus| CpuList(distinct(cpus)).to_string());
        assert_eq!(said, [senders, queues, application], "{name}");
    }
}

#[test]
fn hyper_threads_in_use_are_noted() {
    let notes = |topology| CpuLayout::new(topology, None).notes(true).join("\n");
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

/// Senders, queues and applications of a layout with a CPU for each of these queues and threads.
fn own(topology: Topology, queues: usize, threads: usize) -> Result<[Vec<usize>; 3], String> {
    let layout = CpuLayout::new(topology, None).with_cpus(queues, threads)?;
    Ok([layout.senders, layout.queues, layout.applications])
}

#[test]
fn senders_serve_the_queues_where_three_roles_have_too_few_cpus() {
    let needs = |wanted: usize, here: usize| Err(format!("needs {wanted} CPUs; here {here}"));
    // One queue and one thread are on every machine, shared if need be.
    assert_eq!(own(flat(1), 1, 1), Ok([vec![0], vec![0; 4], vec![0]]));
    assert_eq!(own(flat(1), 2, 1), needs(3, 1));
    assert_eq!(own(flat(2), 2, 1), needs(3, 2));
    assert_eq!(
        own(flat(3), 2, 1),
        Ok([vec![0, 1], vec![0, 1, 0, 1], vec![2]])
    );
    assert_eq!(own(flat(3), 4, 1), needs(5, 3));
    let five = [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![4]];
    assert_eq!(own(flat(5), 4, 1), Ok(five));
    assert_eq!(own(flat(5), 4, 4), needs(8, 5));
    let eight = [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![4, 5, 6, 7]];
    assert_eq!(own(flat(8), 4, 4), Ok(eight));
    // With a CPU for each of three roles the layout is the usual one.
    assert_eq!(own(flat(12), 4, 4), Ok(roles(flat(12))));
    assert_eq!(own(article(), 4, 4), Ok(roles(article())));
    let sixteen = [vec![8, 10, 12, 14], vec![0, 2, 1, 3], vec![4, 6, 5, 7]];
    assert_eq!(own(two_by_four_by_two(), 4, 4), Ok(sixteen));
    // Queues and application are on one node.
    let near = Err("needs 8 CPUs on one node; here 4".to_owned());
    assert_eq!(own(two_by_two_by_two(), 4, 4), near);
}

#[test]
fn a_queue_is_served_by_the_cpu_from_which_frames_reach_it() {
    let some = confined(flat(10), &[1, 2, 3, 5, 6, 7, 8, 9]);
    let [senders, queues, applications] = own(some, 4, 4).unwrap();
    assert_eq!(senders, [8, 1, 2, 3]);
    assert_eq!((queues, applications), (senders, vec![5, 6, 7, 9]));
}

#[test]
fn the_other_node_has_as_many_cores_as_this_one() {
    let layout = CpuLayout::new(two_by_four_by_two(), None);
    let other = layout.on_another_node(4).unwrap();
    assert_eq!(other.applications, [8, 10, 9, 11]);
    assert_eq!(other.senders, [4, 6, 5, 7]);
    let none = CpuLayout::new(flat(8), None).on_another_node(4);
    let why = "needs 4 CPUs on another NUMA node than CPU 2; here 0";
    assert_eq!(none, Err(why.to_owned()));
}

#[test]
fn senders_that_serve_the_queues_are_on_the_applications_node() {
    for (topology, senders, application) in [
        (flat(1), "0", "0"),
        (flat(2), "0", "1"),
        (flat(3), "0", "1"),
        (flat(4), "0-1", "2-3"),
        (flat(8), "0-3", "4-7"),
        (two_by_two_by_two(), "0-1", "2-3"),
        (two_by_four_by_two(), "0-3", "4-7"),
        (article(), "0-3", "4-5,12-13"),
    ] {
        let asked = CpuLayout::new(topology.clone(), Some(Delivery::SoftInterrupt));
        let usual = CpuLayout::new(topology, None).without_threads();
        for layout in [asked, usual] {
            let said = |cpus: &[usize]| CpuList(distinct(cpus.to_vec())).to_string();
            let all = [&layout.senders, &layout.queues, &layout.applications];
            assert_eq!(all.map(|cpus| said(cpus)), [senders, senders, application]);
            // A frame that is generated there takes the queue that is written down there.
            let reached = (0..4).filter_map(|queue| Some((queue, layout.sender_for(queue, &[])?)));
            for (queue, cpu) in reached {
                assert_eq!(layout.queues[usize::from(queue)], cpu, "{senders}");
            }
        }
    }
}
