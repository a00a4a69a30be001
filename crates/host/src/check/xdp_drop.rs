//! Packets that an XDP program dropped.

use super::{Check, Finding, Observed, xdp_socket};
use crate::Station;
use crate::counters::driver_counters::Meaning;

pub(super) const CHECK: Check = Check {
    name: "xdp_drop",
    reads: "driver counters of XDP drops (crates/host/src/counters/driver_counters.tsv), summed over queues; drop \
            reason `XDP` of generic mode",
    speaks: "an XDP program dropped packets",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let mut evidence = seen.losses(Meaning::Xdp);
    evidence.extend(seen.reason("XDP"));
    // A driver may count what a socket of AF_XDP did not take as the program's.
    let names = || seen.interfaces();
    let taken = names().map(|name| xdp_socket::lost_at(seen, name));
    let taken = taken.fold(0, u64::saturating_add);
    let has_socket = names().any(|name| xdp_socket::bound_to(seen, name).next().is_some());
    let found = Finding::lost(seen, &CHECK, Station::Wire, evidence).map(|found| {
        let left = found.count.saturating_sub(taken);
        let remedy = match has_socket {
            true => {
                "bpftool net list, or ip link show, shows which program: a program that receives by AF_XDP \
                 needs it"
                    .to_owned()
            }
            false => {
                let programs = &seen.after.xdp_programs;
                let is_generic = programs.iter().any(|one| one.ends_with("generic mode"));
                let off = if is_generic { "xdpgeneric" } else { "xdp" };
                format!(
                    "bpftool net list, or ip link show, shows which program: if it is not meant to, detach it: ip \
                     link set dev IF {off} off"
                )
            }
        };
        let mut what =
            "an XDP program dropped packets before the network stack saw them".to_owned();
        let programs = seen.after.xdp_programs.join(", ");
        if !programs.is_empty() {
            what = format!("{what}: {programs}");
        }
        found.of(left, seen).says(what, remedy)
    });
    found.into_iter().filter(|found| found.count > 0).collect()
}
