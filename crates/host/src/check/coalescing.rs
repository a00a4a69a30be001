//! A card that waits so long before it interrupts that its ring overflows.

use super::{Check, Confidence, Finding, Observed, nic_no_room};
use crate::Station;
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "coalescing",
    reads: "`rx-usecs` (ethtool -c), receive ring size (ethtool -g), packets of the busiest queue",
    speaks: "an interface had no room, and half a ring or more comes before each interrupt",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let cards = seen.after.cards.iter();
    let found = cards.filter_map(|(interface, card)| {
        let (ring, wait_us) = (card.ring?.size, card.fixed_wait_us()?);
        let lost = nic_no_room::losses_of(seen, interface);
        let queues = seen.delta.queue_packets(interface);
        let most = queues.iter().map(|queue| queue.packets).max();
        // A driver that does not count by queue.
        let all = || seen.delta.link(interface).map_or(0, |link| link.rx_packets);
        let packets = most.unwrap_or_else(all).max(0) as f64;
        let in_wait = packets / seen.seconds() * f64::from(wait_us) / 1e6;
        if ring == 0 || in_wait < f64::from(ring) / 2.0 || lost.iter().all(|one| one.grown() == 0) {
            return None;
        }
        let what = format!(
            "{interface} waits {wait_us} us before it interrupts; meanwhile some {in_wait:.0} packets come to \
             one queue, and its ring has {ring} places"
        );
        let (name, shorter_us) = (ShellWord::new(interface), (wait_us / 4).max(10));
        let remedy = format!("ethtool -C {name} rx-usecs {shorter_us}");
        let found = Finding::noticed(seen, &CHECK, Station::Wire, lost);
        Some(found.says(what, remedy).with(Confidence::Likely))
    });
    found.collect()
}
