//! Packets that cross from one NUMA node to another on their way to the program.

use super::overrun::overruns;
use super::{Check, Confidence, Evidence, Finding, Observed, lacks_time};
use crate::{Interface, Interrupt, Station};
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "far_node",
    reads: "NUMA nodes of each card, its interrupts' CPUs, its `rps_cpus`, and the CPU of an overrun \
            socket's busiest thread",
    speaks: "lost packets lacked CPU time; interrupts, RPS or the reader are off the card's node",
    run,
};

/// Fewer interrupts than this are no load.
const MIN: u64 = 100;

fn run(seen: &Observed) -> Vec<Finding> {
    if seen.after.topology.nodes().len() < 2 || !lacks_time(seen) {
        return Vec::new();
    }
    let cards = seen.after.cards.iter();
    let cards = cards.filter_map(|(interface, card)| Some((interface, card, card.node?)));
    let first = cards.clone().next().into_iter();
    let readers = first.flat_map(|(interface, _, home)| far_readers(seen, interface, home));
    let found = cards.flat_map(|(interface, card, home)| {
        let interrupts = far_interrupts(seen, interface, card, home);
        interrupts
            .into_iter()
            .chain(far_steering(seen, interface, home))
    });
    found.chain(readers).collect()
}

fn node(seen: &Observed, cpu: usize) -> Option<usize> {
    seen.after.topology.cpu(cpu).map(|cpu| cpu.node)
}

/// The CPUs of a node, as `taskset` takes them.
fn cpus_of(seen: &Observed, node: usize) -> String {
    let cpus = seen.after.topology.cpus.iter();
    let cpus = cpus.filter(|cpu| cpu.node == node);
    let cpus: Vec<String> = cpus.map(|cpu| cpu.id.to_string()).collect();
    cpus.join(",")
}

fn finding(seen: &Observed, what: String, remedy: String, evidence: Vec<Evidence>) -> Finding {
    let found = Finding::noticed(seen, &CHECK, Station::Wire, evidence);
    found.says(what, remedy).with(Confidence::Possible)
}

fn far_interrupts(
    seen: &Observed,
    interface: &str,
    card: &Interface,
    home: usize,
) -> Option<Finding> {
    let far = card.interrupts.iter().filter_map(|interrupt| {
        let (cpu, taken) = busiest(seen, interface, interrupt)?;
        (taken.grown() >= MIN && node(seen, cpu)? != home).then_some((interrupt.number, taken))
    });
    let (numbers, taken): (Vec<u32>, Vec<Evidence>) = far.unzip();
    let first = numbers.first()?;
    let all: Vec<String> = numbers.iter().map(u32::to_string).collect();
    let what = format!(
        "of {interface}, which is at node {home}, CPUs of another node took interrupts: {}",
        all.join(", ")
    );
    let remedy = format!(
        "CPUs of that node for each: echo {} > /proc/irq/{first}/smp_affinity_list (irqbalance may move it \
         again)",
        cpus_of(seen, home)
    );
    Some(finding(seen, what, remedy, taken))
}

fn far_steering(seen: &Observed, interface: &str, home: usize) -> Option<Finding> {
    let steered = seen.after.steering.get(interface)?.iter();
    let mut cpus = steered.flat_map(|list| &list.0);
    let cpu = cpus.find(|&&cpu| node(seen, cpu).is_some_and(|at| at != home))?;
    let what =
        format!("RPS hands packets of {interface} to CPU {cpu}, and the card is at node {home}");
    let remedy = format!(
        "a mask of only that node's CPUs ({}) in /sys/class/net/{}/queues/rx-*/rps_cpus",
        cpus_of(seen, home),
        ShellWord::new(interface)
    );
    let evidence = seen.link(interface, "rx_packets");
    Some(finding(seen, what, remedy, evidence.into_iter().collect()))
}

fn far_readers(seen: &Observed, interface: &str, home: usize) -> Vec<Finding> {
    // With cards at several nodes, the card that a socket's packets come by is unknown.
    let mut homes = seen.after.cards.values().filter_map(|card| card.node);
    if homes.any(|other| other != home) {
        return Vec::new();
    }
    let readers = overruns(seen).into_iter().filter_map(|overrun| {
        let busy = overrun.socket.busy?;
        if node(seen, busy.cpu?)? == home {
            return None;
        }
        let what = format!(
            "the busiest thread of {} ran at another node than that of {interface}, node {home}",
            overrun.socket.name()
        );
        let remedy = format!(
            "taskset -pc {} {}, or numactl --cpunodebind={home} when it starts",
            cpus_of(seen, home),
            busy.runner
        );
        Some(finding(
            seen,
            what,
            remedy,
            vec![overrun.socket.drops.clone()],
        ))
    });
    readers.collect()
}

/// The CPU that took most of an interrupt meanwhile, and how many.
fn busiest(seen: &Observed, interface: &str, now: &Interrupt) -> Option<(usize, Evidence)> {
    let earlier = &seen.before.cards.get(interface)?.interrupts;
    let earlier = earlier.iter().find(|one| one.number == now.number)?;
    let counts = now.counts.iter().filter_map(|(&cpu, &count)| {
        let source = format!("interrupt {} at CPU {cpu} (/proc/interrupts)", now.number);
        Some((
            cpu,
            Evidence::new(source, *earlier.counts.get(&cpu)?, count),
        ))
    });
    counts.max_by_key(|(_, taken)| taken.grown())
}
