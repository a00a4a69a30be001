//! Sockets of AF_XDP that had no place for packets.

use super::{Check, Confidence, Evidence, Finding, Seen};
use crate::Station;
use mpps_os::netlink::sock_diag::XdpEntry;

pub(super) const CHECK: Check = Check {
    name: "xdp_socket",
    reads: "`rx_dropped`, `rx_ring_full` and `rx_fill_ring_empty_descs` of each socket of AF_XDP (xdp_diag; a \
            kernel with CONFIG_XDP_SOCKETS_DIAG), and whether it copies",
    speaks: "a socket of AF_XDP dropped packets: its fill ring was empty, or its receive ring full",
    made_by: "`kill -STOP` a program that receives by AF_XDP, and a flood (gallery: `an_empty_fill_ring`)",
    run,
};

fn run(seen: &Seen) -> Vec<Finding> {
    let found = seen.after.xdp_sockets.iter().filter_map(|now| {
        let mut earlier = seen.before.xdp_sockets.iter();
        let before = earlier.find(|before| before.inode == now.inode).cloned().unwrap_or_default();
        let interface = seen.after.links.iter().find(|link| link.index == now.interface);
        let at = format!("{} queue {}", interface.map_or("?", |link| &*link.name), now.queue);
        let counter = |name: &str, value: fn(&XdpEntry) -> u64| {
            Evidence::new(format!("{at}: {name} of AF_XDP"), value(&before), value(now))
        };
        let empty = counter("rx_fill_ring_empty_descs", |one| one.fill_ring_empty);
        let lost = vec![
            counter("rx_dropped", |one| one.dropped),
            counter("rx_ring_full", |one| one.ring_full),
        ];
        let mut found = Finding::lost(seen, &CHECK, Station::Socket, lost)?;
        let pids = seen.after.owners.get(&now.inode).into_iter().flatten();
        let owner = pids.filter_map(|pid| seen.after.processes.get(pid)).next();
        let owner = owner.map_or(String::new(), |owner| format!(" of {} (pid {})", owner.name, owner.pid));
        let why = match empty.grown() {
            0 => "its receive ring was full",
            _ => "its fill ring was empty: the program gave no frames back",
        };
        found.evidence.extend(Some(empty).filter(|empty| empty.grown() > 0));
        let copies = match now.is_zero_copy {
            true => "",
            false => "; it works in copy mode, which costs a copy of each packet: XDP_ZEROCOPY needs a driver \
                      with it (mpps backends IF)",
        };
        let what = format!("the AF_XDP socket at {at}{owner} dropped packets: {why}{copies}");
        let remedy = "fill the ring before traffic begins and after each batch; larger rings \
                      (XDP_UMEM_FILL_RING, XDP_RX_RING) for bursts; more queues, each with a thread, for load";
        Some(found.says(what, remedy).with(Confidence::Likely))
    });
    found.collect()
}
