//! Packets for which the NIC had no room.

use super::{Check, Confidence, Evidence, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "nic_no_room",
    reads: "`rx_missed_errors` and `rx_fifo_errors` of each interface, and `pkts rx OOB` of vmxnet3; its \
            queues' packets and `time_squeeze` (softnet_stat)",
    speaks: "an interface had no descriptor or no memory for packets",
    made_by: "not on a veth: `ethtool -G IF rx 64` and a flood",
    run,
};

/// One queue of several that gets this share of all packets is called the busiest.
const ONE_QUEUE: f64 = 0.8;

/// What found no descriptor, and what found no room in the card.
pub(super) fn losses(seen: &Seen) -> Vec<Evidence> {
    let mut losses = seen.links("rx_missed_errors", |link| link.rx_missed_errors);
    let full = seen.links("rx_fifo_errors", |link| link.rx_fifo_errors);
    // Some drivers write one count into both (amd8111e, alx).
    let both = losses.iter().map(Evidence::grown).zip(full);
    let full: Vec<Evidence> = both
        .filter(|(missed, full)| *missed != full.grown())
        .map(|(_, full)| full)
        .collect();
    losses.extend(full);
    // vmxnet3 has it for each queue, and in no counter that all interfaces have
    // (drivers/net/vmxnet3/vmxnet3_ethtool.c, `pktsRxOutOfBuf`).
    losses.extend(seen.driver(|name| name.trim_start().starts_with("pkts rx OOB")));
    losses
}

fn run(seen: &Seen) -> Vec<Finding> {
    let found = Finding::lost(seen, &CHECK, Station::Wire, losses(seen));
    let found = found.map(|found| {
        let most = found.evidence.iter().max_by_key(|one| one.grown());
        let source = most.map_or("", |most| &*most.source);
        let interface = source.split(' ').next().unwrap_or_default();
        let (one, more) = busiest(seen, interface);
        let squeezed = seen.delta.softnet.iter().map(|row| row.time_squeeze.max(0));
        let squeezed = match squeezed.fold(0, i64::saturating_add) {
            0 => String::new(),
            times => format!("; soft interrupts ended {times} times with work left (time_squeeze)"),
        };
        let what = format!(
            "{interface} had no room for packets: its queues were not emptied in time{one}{squeezed}"
        );
        let remedy = format!(
            "{more}a larger ring: ethtool -g {interface} shows the most, ethtool -G {interface} rx N sets \
             it; shorter coalescing: ethtool -C {interface} rx-usecs 20; see which CPU is full in mpps \
             recv -v"
        );
        found.says(what, remedy).with(Confidence::Likely)
    });
    found.into_iter().collect()
}

/// Whether one queue of several gets nearly all, and what helps then.
fn busiest(seen: &Seen, interface: &str) -> (String, String) {
    let queues = seen.delta.queue_packets(interface);
    let all: i64 = queues
        .iter()
        .map(|queue| queue.packets)
        .fold(0, i64::saturating_add);
    let most = queues.iter().max_by_key(|queue| queue.packets);
    let one = most.filter(|most| queues.len() > 1 && most.packets as f64 >= ONE_QUEUE * all as f64);
    one.filter(|_| all > 0).map_or_else(Default::default, |one| {
        (
            format!(
                "; queue {} of {} got {:.0} % of its packets",
                one.queue,
                queues.len(),
                100.0 * one.packets as f64 / all as f64
            ),
            format!(
                "spread the flows: mpps backends {interface} shows which fields the hash uses and what \
                 changes them; "
            ),
        )
    })
}
