//! A program on the other hyper-thread of the core that takes its packets in.

use super::overrun::{overruns, soft_interrupts};
use super::reader::own_cpu;
use super::{Check, Confidence, Finding, Observed};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "shared_core",
    reads: "the last CPU of an overrun socket's busiest thread, its siblings, and their soft interrupts \
            (/proc/stat)",
    speaks: "an overrun socket's reader was busy; soft interrupts took half its CPU's sibling or more",
    run,
};

/// From this share on a thread has little time left.
const BUSY: f64 = 0.8;
/// From this share on soft interrupts have most of a CPU.
const MOST: f64 = 0.5;

fn run(seen: &Observed) -> Vec<Finding> {
    let found = overruns(seen).into_iter().filter_map(|overrun| {
        let busy = overrun.socket.busy.filter(|busy| busy.ran >= BUSY)?;
        let own = seen.after.topology.cpu(busy.cpu?)?;
        let sibling = seen.cpus.iter().find(|other| {
            other.cpu != own.id && own.siblings.contains(&other.cpu) && other.softirq >= MOST
        })?;
        let what = format!(
            "the busiest thread of {} ran on CPU {}. CPU {} shares its core, and soft interrupts \
             took {:.0} % of that one: the two slow each other down",
            overrun.socket.name(),
            own.id,
            sibling.cpu,
            sibling.softirq * 100.0
        );
        let remedy = format!(
            "{}; mpps placement --interface IF --port PORT measures what \
             each is worth",
            own_cpu(seen, overrun.socket, &busy, &own.siblings)
        );
        let evidence = vec![soft_interrupts(seen, sibling.cpu)];
        let found = Finding::noticed(seen, &CHECK, Station::Application, evidence);
        Some(found.says(what, remedy).with(Confidence::Possible))
    });
    found.collect()
}
