//! One receive queue of several that gets nearly all packets.

use super::{Check, Confidence, Evidence, Finding, Observed, nic_no_room};
use crate::{QueuePackets, Station};
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "one_queue",
    reads: "packets of each receive queue (from the driver or the kernel), and the RSS table",
    speaks: "an interface had no room; one of several receive queues got 80 % or more",
    run,
};

/// One queue of several that gets this share of all packets has nearly all.
const NEARLY_ALL: f64 = 0.8;
/// Fewer packets than this say nothing of how they are spread.
const MIN: i64 = 1000;

fn run(seen: &Observed) -> Vec<Finding> {
    let lossy = seen.counting_interfaces().filter(|name| {
        let lost = nic_no_room::losses_of(seen, name);
        Evidence::sum(&lost) > 0
    });
    lossy.filter_map(|name| of(seen, name)).collect()
}

fn of(seen: &Observed, interface: &str) -> Option<Finding> {
    let queues = seen.delta.queue_packets(interface);
    let packets = queues.iter().map(|queue| queue.packets.max(0));
    let all = packets.fold(0, i64::saturating_add);
    let most = queues.iter().max_by_key(|queue| queue.packets)?;
    let share = most.packets as f64 / all.max(1) as f64;
    // mlx5 keeps reporting queues that it no longer has.
    let card = seen.after.cards.get(interface);
    let count = card.and_then(|card| card.rx_queues());
    let count = count.map_or(queues.len(), |count| queues.len().min(count as usize));
    if count < 2 || all < MIN || share < NEARLY_ALL {
        return None;
    }
    let QueuePackets { queue, counter, .. } = most;
    let evidence = seen.driver(interface, |name| name == counter);
    let what = format!(
        "receive queue {queue} of {count} of {interface} got {:.0} % of its packets: one CPU has the work of \
         all",
        share * 100.0
    );
    let table = card.and_then(|card| card.table_queues());
    let (name, operand) = (ShellWord::new(interface), ShellWord::operand(interface));
    let remedy = match table {
        Some(1) => {
            format!("its RSS table sends all packets to one queue: ethtool -X {name} equal {count}")
        }
        _ => format!(
            "the queue is chosen by a hash of addresses and perhaps ports. If one flow is all there is, RPS \
             does not help, and more flows do (more source ports at the sender); if there are many: ethtool \
             -N {name} rx-flow-hash udp4 sdfn has the ports hashed, too (mpps backends {operand})"
        ),
    };
    let found = Finding::noticed(seen, &CHECK, Station::Wire, evidence);
    Some(found.says(what, remedy).with(Confidence::Likely))
}
