//! Packets that the card or its driver dropped for other causes than want of room.

use super::{Check, Confidence, Evidence, Finding, Observed, xdp_socket};
use crate::Station;
use crate::counters::driver_counters::Meaning;
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "nic_refused",
    reads: "driver counters (crates/host/src/counters/driver_counters.tsv), less what XDP and AF_XDP sockets dropped",
    speaks: "a card or driver dropped packets: too long, no rule, ring error, or no memory",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let found = seen.counting_interfaces().filter_map(|interface| {
        let refused = seen.losses_of(interface, Meaning::Refused);
        // virtio_net counts what an XDP program dropped in both (virtnet_receive_xdp); of other drivers
        // this is too few, and not too many.
        let xdp = Evidence::sum(&seen.losses_of(interface, Meaning::Xdp));
        let left = Evidence::sum(&refused)
            .saturating_sub(xdp)
            .saturating_sub(xdp_socket::lost_at(seen, interface));
        let found = Finding::lost(seen, &CHECK, Station::Wire, refused)?;
        let what = format!(
            "the card or the driver of {interface} dropped packets for other causes than want of room"
        );
        let remedy = format!(
            "dmesg names errors of a ring; an MTU below that of the senders: ip link show dev {name}; rules \
             of the card: ethtool -n {name}; the driver's documentation of the counter",
            name = ShellWord::new(interface)
        );
        Some(found.of(left, seen).says(what, remedy).with(Confidence::Possible))
    });
    found.filter(|found| found.count > 0).collect()
}
