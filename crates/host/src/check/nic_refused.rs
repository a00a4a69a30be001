//! Packets that the card or its driver dropped for other causes than want of room.

use super::{Check, Confidence, Evidence, Finding, Seen, xdp_socket};
use crate::Station;
use crate::driver_counters::Meaning;
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "nic_refused",
    reads: "the counters of its driver for that (crates/host/src/driver_counters.tsv), less what XDP and sockets of AF_XDP dropped",
    speaks: "an interface's card or driver dropped packets for other causes than want of room: too long for \
             its buffers, no rule that takes them, an error of the ring, no memory",
    made_by: "not in a lab: an error of the card",
    run,
};

fn run(seen: &Seen) -> Vec<Finding> {
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
