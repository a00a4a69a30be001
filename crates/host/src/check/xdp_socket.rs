//! Sockets of AF_XDP that had no place for packets.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use mpps_os::netlink::sock_diag::XdpEntry;

pub(super) const CHECK: Check = Check {
    name: "xdp_socket",
    reads: "`rx_dropped` and `rx_ring_full` of each AF_XDP socket (xdp_diag, CONFIG_XDP_SOCKETS_DIAG), \
            copy mode, memory against cache size",
    speaks: "an AF_XDP socket dropped packets: fill ring empty, receive ring full, or packets too long",
    run,
};

/// The drops of one socket: for want of a place in its memory, and in its ring.
fn losses(seen: &Observed, now: &XdpEntry) -> Option<[Evidence; 2]> {
    let mut earlier = seen.before.xdp_sockets.iter();
    let before = earlier.find(|before| before.inode == now.inode)?;
    let counter = |name: &str, value: fn(&XdpEntry) -> u64| {
        let source = format!("{}: {name} of AF_XDP", at(seen, now));
        Evidence::new(source, value(before), value(now))
    };
    Some([
        counter("rx_dropped", |one| one.dropped),
        counter("rx_ring_full", |one| one.ring_full),
    ])
}

fn at(seen: &Observed, now: &XdpEntry) -> String {
    let name = seen.interface_name(now.interface).unwrap_or("?");
    format!("{name} queue {}", now.queue)
}

/// `the AF_XDP socket at eth0 queue 0 of suricata (pid 812)`.
pub(super) fn name(seen: &Observed, now: &XdpEntry) -> String {
    let pids = seen.after.owners.get(&now.inode).into_iter().flatten();
    let owner = pids.filter_map(|pid| seen.after.processes.get(pid)).next();
    let owner = owner.map_or(String::new(), |owner| {
        format!(" of {} (pid {})", owner.name, owner.pid)
    });
    format!("the AF_XDP socket at {}{owner}", at(seen, now))
}

/// The drops of AF_XDP sockets at an interface. Some drivers count them too, as their own or as the
/// XDP program's.
pub(super) fn lost_at(seen: &Observed, interface: &str) -> u64 {
    let own = bound_to(seen, interface);
    let lost = own.filter_map(|one| losses(seen, one));
    lost.fold(0, |sum, lost| sum.saturating_add(Evidence::sum(&lost)))
}

/// The sockets of AF_XDP at an interface.
pub(super) fn bound_to<'s>(
    seen: &'s Observed,
    interface: &'s str,
) -> impl Iterator<Item = &'s XdpEntry> {
    let all = seen.after.xdp_sockets.iter();
    all.filter(move |one| seen.interface_name(one.interface) == Some(interface))
}

fn run(seen: &Observed) -> Vec<Finding> {
    let found = seen.after.xdp_sockets.iter().filter_map(|now| {
        let lost = losses(seen, now)?;
        let why = match [lost[0].grown(), lost[1].grown()] {
            [_, 0] => "for want of a frame in its fill ring, or because they were too long for one",
            [0, _] => "because its receive ring was full",
            _ => "because its receive ring was full, and for want of frames in its fill ring",
        };
        let found = Finding::lost(seen, &CHECK, Station::Socket, lost.into())?;
        let copies = match now.is_zero_copy {
            true => "",
            false => {
                "; it works in copy mode, which costs a copy of each packet: XDP_ZEROCOPY needs a driver with \
                 it (mpps backends IF)"
            }
        };
        let cache = seen.after.cache_bytes.filter(|&cache| now.memory_bytes > cache);
        let large = cache.map_or(String::new(), |cache| {
            let mib = |bytes: u64| bytes >> 20;
            format!(
                "; its memory of {} MiB does not fit into the cache of {} MiB",
                mib(now.memory_bytes),
                mib(cache)
            )
        });
        let what = format!(
            "{} dropped packets {why}{copies}{large}",
            name(seen, now)
        );
        let remedy = "fill the ring before traffic begins and after each batch; larger rings \
                      (XDP_UMEM_FILL_RING, XDP_RX_RING) for bursts; more queues, each with a thread, for load";
        Some(found.says(what, remedy).with(Confidence::Likely))
    });
    found.collect()
}
