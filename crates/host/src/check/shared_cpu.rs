//! A program on the CPU that also takes its packets in.

use super::overrun::{Cause, overruns, soft_interrupts};
use super::reader::{own_cpu, said};
use super::{Check, Confidence, Finding, Observed};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "shared_cpu",
    reads: "the last CPU of the busiest thread of a socket's owner, and its load (/proc/stat)",
    speaks: "a socket dropped datagrams; its reader's CPU was full, 20 % or more soft interrupts",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let found = overruns(seen).into_iter().filter_map(|overrun| {
        let (Cause::SharedCpu(shares), socket) = (overrun.cause, overrun.socket) else {
            return None;
        };
        let drops = vec![socket.drops.clone()];
        let mut found = Finding::lost(seen, &CHECK, Station::Socket, drops)?.of(overrun.lost, seen);
        found.evidence.push(soft_interrupts(seen, shares.cpu));
        let what = format!(
            "the buffer of {} was full: its busiest thread ran on CPU {}. Soft interrupts took {:.0} % of \
             that CPU: program and receive queue share it",
            socket.name(),
            shares.cpu,
            shares.softirq * 100.0
        );
        let remedy = format!(
            "{}; or another CPU for the queue's interrupt: \
             /proc/interrupts, /proc/irq/N/smp_affinity_list. mpps placement --interface IF --port PORT \
             measures what each CPU is worth",
            own_cpu(seen, socket, &socket.busy?, &[shares.cpu])
        );
        let found = found.says(what, remedy).because(&[said(socket)]);
        Some(found.with(Confidence::Likely))
    });
    found.collect()
}
