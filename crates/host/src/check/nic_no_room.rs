//! Packets lost because the NIC had no room.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use crate::counters::driver_counters::Meaning;
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "nic_no_room",
    reads: "driver counters (crates/host/src/counters/driver_counters.tsv), the kernel's own, or `rx_missed_errors` \
            and `rx_fifo_errors`; ring size; `time_squeeze` (softnet_stat)",
    speaks: "an interface had no descriptor or no room for packets",
    run,
};

/// Packets lost because no descriptor was free, or the card had no room.
pub(super) fn losses(seen: &Observed) -> Vec<Evidence> {
    let names = seen.counting_interfaces();
    names.flat_map(|name| losses_of(seen, name)).collect()
}

/// The same of one interface.
pub(crate) fn losses_of(seen: &Observed, interface: &str) -> Vec<Evidence> {
    let mut losses = seen.losses_of(interface, Meaning::NoRoom);
    if losses.is_empty() && !seen.is_virtual(interface) {
        let missed = seen.link(interface, "rx_missed_errors");
        let full = seen.link(interface, "rx_fifo_errors");
        // Some drivers write one count into both (amd8111e, alx).
        let full = full.filter(|full| missed.as_ref().map(Evidence::grown) != Some(full.grown()));
        losses.extend(missed.into_iter().chain(full));
    }
    losses
}

/// True if packets found no room.
pub(super) fn loses(seen: &Observed) -> bool {
    Evidence::sum(&losses(seen)) > 0
}

fn run(seen: &Observed) -> Vec<Finding> {
    let found = Finding::lost(seen, &CHECK, Station::Wire, losses(seen));
    let found = found.map(|found| {
        let most = |name: &&str| losses_of(seen, name).iter().map(Evidence::grown).max();
        let interface = seen.counting_interfaces().max_by_key(most).unwrap_or_default();
        let squeezed = seen.delta.softnet.iter().map(|row| row.time_squeeze.max(0));
        let squeezed = match squeezed.fold(0, i64::saturating_add) {
            0 => String::new(),
            times => format!("; soft interrupts ended {times} times with work left (time_squeeze)"),
        };
        let what = format!(
            "{interface} had no room for packets: its queues were not emptied in time{squeezed}"
        );
        let (name, operand) = (ShellWord::new(interface), ShellWord::operand(interface));
        let ring = seen.after.cards.get(interface).and_then(|card| card.ring);
        let larger = match ring {
            Some(ring) if ring.size < ring.size_max => format!(
                "ethtool -G {name} rx {} (it is {}) for bursts: many drivers take the link down for a \
                 second or more; ",
                ring.size_max, ring.size
            ),
            Some(ring) => format!("its rings are as large as can be ({}); ", ring.size),
            None => format!("ethtool -g {name} shows how large its rings may be; "),
        };
        let remedy = format!(
            "{larger}for load, more queues and CPUs: mpps backends {operand}, and mpps top {operand} \
             shows which queue and CPU has the work"
        );
        found.says(what, remedy).with(Confidence::Likely)
    });
    found.into_iter().collect()
}
