//! Dealing out CPUs to roles: a core for each role first, hyper-threads of a core last.

use super::{QUEUES, THREADS_MAX};
use mpps_host::{Relation, Topology};
use std::cmp::Reverse;

/// The CPUs of each role.
pub(super) struct Roles {
    pub(super) senders: Vec<usize>,
    pub(super) queues: Vec<usize>,
    pub(super) applications: Vec<usize>,
}

/// Deals out the CPUs that this process may use. Receive queues and application share the first
/// NUMA node, and the senders have the others; where there is one node, they share it.
pub(super) fn roles(topology: &Topology) -> Roles {
    let cpus = by_distance(topology);
    let node = |cpu: &usize| topology.cpu(*cpu).map(|cpu| cpu.node);
    let home = cpus.first().and_then(node);
    let (near, far): (Vec<usize>, Vec<usize>) = cpus.iter().partition(|cpu| node(cpu) == home);
    let [applications, queues, senders] = match cpus.as_slice() {
        [] => [vec![0], vec![0], vec![0]],
        [only] => [vec![*only], vec![*only], vec![*only]],
        [first, second] => [vec![*second], vec![*second], vec![*first]],
        // Two roles need two CPUs.
        _ if far.is_empty() || near.len() < 2 => share_out(topology, cpus),
        _ => {
            let [applications, queues] = share_out(topology, near);
            let [senders] = share_out(topology, far);
            [applications, queues, senders]
        }
    };
    Roles {
        senders,
        queues,
        applications,
    }
}

/// Shares CPUs out to `ROLES` roles, the most important first. Each role gets a core, and then two
/// or four. Four queues and four threads spread evenly over these. At last each role gets the other
/// hyper-threads of its cores. With fewer cores than roles, the least important roles share a core.
/// Among unlike cores the most important roles have the fastest.
fn share_out<const ROLES: usize>(topology: &Topology, mut cpus: Vec<usize>) -> [Vec<usize>; ROLES] {
    let cores = cores(topology, &cpus);
    if cores < ROLES {
        cpus.sort_by_key(|cpu| topology.cpu(*cpu).map(|cpu| cpu.siblings.first().copied()));
    }
    let units = cores.max(ROLES).min(cpus.len());
    let mut shares = [1; ROLES];
    // Twice: from one to two, and to four.
    for role in (0..ROLES).chain(0..ROLES) {
        let dealt: usize = shares.iter().sum();
        if shares[role] < THREADS_MAX && dealt + shares[role] <= units {
            shares[role] *= 2;
        }
    }
    let is_unlike = cpus
        .iter()
        .any(|cpu| slowness(topology, *cpu) != slowness(topology, cpus[0]));
    let mut rest = cpus.into_iter();
    let mut roles = shares.map(|_| Vec::new());
    let mut order: Vec<_> = roles.iter_mut().zip(shares).collect();
    if !is_unlike {
        order.reverse();
    }
    for (role, share) in order {
        role.extend(rest.by_ref().take(share));
    }
    for cpu in rest {
        let is_its_core = |other: &usize| is_one_core(topology, cpu, *other);
        let fits =
            |role: &&mut Vec<usize>| role.len() < THREADS_MAX && role.iter().any(is_its_core);
        if let Some(role) = roles.iter_mut().find(fits) {
            role.push(cpu);
        }
    }
    roles
}

/// Of these CPUs, the nearest first, those that send and serve a queue each, and those of the
/// receiving threads. The CPU of a queue has the queue's number, modulo the queues, if there is such a
/// one: a frame that is generated there takes that queue.
pub(super) fn serving(
    mut cpus: Vec<usize>,
    queues: usize,
    threads: usize,
) -> (Vec<usize>, Vec<usize>) {
    let mut take = |queue: usize| {
        let reaches = |cpu: &usize| cpu % usize::from(QUEUES) == queue;
        cpus.remove(cpus.iter().position(reaches).unwrap_or(0))
    };
    let senders = (0..queues).map(&mut take).collect();
    cpus.truncate(threads);
    (senders, cpus)
}

/// CPUs of senders that serve the queues in their soft interrupts, and of the application: four each
/// on the first node, or two, or one. Two CPUs of different nodes have a role each, and one has both.
pub(super) fn soft(topology: &Topology) -> (Vec<usize>, Vec<usize>) {
    let near = first_node(topology);
    let each = [THREADS_MAX, 2, 1].into_iter();
    match each.into_iter().find(|each| each * 2 <= near.len()) {
        Some(each) => serving(near, each, each),
        None => {
            let roles = roles(topology);
            (roles.senders, roles.applications)
        }
    }
}

/// The usable CPUs of the first one's node, one of each core first.
pub(super) fn first_node(topology: &Topology) -> Vec<usize> {
    let mut cpus = by_distance(topology);
    let node = |cpu: &usize| topology.cpu(*cpu).map(|cpu| cpu.node);
    let home = cpus.first().and_then(node);
    cpus.retain(|cpu| node(cpu) == home);
    cpus
}

/// The usable CPUs, those of the first one's node first, and within a node one of each core before
/// the others, the fastest cores first.
pub(crate) fn by_distance(topology: &Topology) -> Vec<usize> {
    let usable = topology.usable();
    let home = usable
        .first()
        .and_then(|cpu| topology.cpu(*cpu))
        .map(|cpu| cpu.node);
    let mut cpus = usable.clone();
    cpus.sort_by_key(|id| {
        let node = topology.cpu(*id).map(|cpu| cpu.node);
        let earlier = usable.iter().take_while(|other| *other < id);
        let thread = earlier.filter(|other| is_one_core(topology, *id, **other));
        let slowness = slowness(topology, *id);
        (node != home, node, thread.count(), slowness, *id)
    });
    cpus
}

/// The order of a CPU's speed class, the fastest first.
fn slowness(topology: &Topology, cpu: usize) -> Reverse<u32> {
    let capacity = topology.cpu(cpu).and_then(|cpu| cpu.capacity);
    Reverse(capacity.unwrap_or(1024))
}

/// How many cores these CPUs are of.
pub(super) fn cores(topology: &Topology, cpus: &[usize]) -> usize {
    let is_first = |(nth, cpu): &(usize, &usize)| {
        let mut earlier = cpus[..*nth].iter();
        !earlier.any(|other| is_one_core(topology, **cpu, *other))
    };
    cpus.iter().enumerate().filter(is_first).count()
}

/// True if two CPUs are one, or hyper-threads of one core.
pub(crate) fn is_one_core(topology: &Topology, a: usize, b: usize) -> bool {
    let relation = topology.relation(a, b);
    matches!(relation, Some(Relation::SameCpu | Relation::Sibling))
}
