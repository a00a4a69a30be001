//! The ways that packets take through the host, and what is in them.

use super::{HostPart, Observation, delivery, parent_interfaces};
use crate::root::Root;
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::netlink::{neighbour, route};
use std::collections::BTreeMap;

/// Of neighbours that do not answer, this many are named.
const UNANSWERED_MAX: usize = 4;

impl Observation {
    /// Reads what its counters ask for.
    pub(super) fn read_ways(&mut self, root: &Root, part: &HostPart<'_>, is_first: bool) {
        self.reassembling = reassembling(root);
        self.unanswered = unanswered(&self.links);
        let is_filtered = self.snapshot.snmp.value("TcpExt.IPReversePathFilter") > Some(0);
        if is_filtered || part.port.is_some() {
            self.reverse_path = reverse_path(root, &self.links);
        }
        if is_filtered {
            self.default_routes = parent_interfaces::of_default_routes(root);
        }
        if self.snapshot.snmp.value("Ip6.OutNoRoutes") > Some(0) {
            self.deaf_to_routers = delivery::deaf_to_routers(root, &self.links);
        }
        let discards = ["Ip.OutDiscards", "Ip6.OutDiscards"];
        if discards
            .iter()
            .any(|name| self.snapshot.snmp.value(name) > Some(0))
        {
            self.has_policies = route::has_policies().unwrap_or(false);
        }
        self.packet_filter = self.read_packet_filter(root, part, is_first);
        if self.snapshot.snmp.value("Ip.InAddrErrors") > Some(0) {
            self.forwarding = forwarding(root);
        }
    }
}

/// The `inuse` counts of both versions of IP (`net/ipv4/proc.c`, `net/ipv6/proc.c`).
fn reassembling(root: &Root) -> BTreeMap<&'static str, u64> {
    let counts = [("sockstat", "FRAG"), ("sockstat6", "FRAG6")].map(|(file, name)| {
        let text = root.read_if_possible(&format!("proc/thread-self/net/{file}"))?;
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": inuse "))?;
        Some((name, line.split_ascii_whitespace().next()?.parse().ok()?))
    });
    counts.into_iter().flatten().collect()
}

/// The mode of each interface, which is the higher of its own and that of all (`IN_DEV_RPFILTER`,
/// include/linux/inetdevice.h).
fn reverse_path(root: &Root, links: &[NetlinkLink]) -> BTreeMap<String, u8> {
    let mode = |name: &str| -> Option<u8> {
        let path = format!("proc/sys/net/ipv4/conf/{name}/rp_filter");
        root.read_if_possible(&path)?.trim().parse().ok()
    };
    let all = mode("all").unwrap_or(0);
    let modes = links.iter().filter_map(|link| {
        let own = mode(&link.name)?;
        Some((link.name.to_string(), own.max(all)))
    });
    modes.collect()
}

/// Whether each interface with a route of IPv4 forwards what comes by it (`conf/IF/forwarding`).
fn forwarding(root: &Root) -> BTreeMap<String, bool> {
    let routes = root.read_if_possible("proc/thread-self/net/route");
    let routes = routes.unwrap_or_default();
    let names = routes
        .lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().next());
    let all = names.filter_map(|name| {
        let path = format!("proc/sys/net/ipv4/conf/{name}/forwarding");
        Some((name.to_owned(), root.read_if_possible(&path)?.trim() != "0"))
    });
    all.collect()
}

/// Neighbours that do not answer, by the names of their interfaces: the first few.
fn unanswered(links: &[NetlinkLink]) -> Vec<String> {
    let silent = neighbour::unanswered().unwrap_or_default().into_iter();
    let named = silent.filter_map(|((index, address), _)| {
        let link = links.iter().find(|link| link.index == index)?;
        Some(format!("{address} on {}", link.name))
    });
    named.take(UNANSWERED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn datagrams_that_wait_for_fragments_are_counted() {
        let tree = "proc/thread-self/net/sockstat = sockets: used 9\\nFRAG: inuse 7 memory 4096\n\
            proc/thread-self/net/sockstat6 = RAW6: inuse 1\\nFRAG6: inuse 2 memory 0";
        let found = reassembling(&fixture::tree(tree).root);
        assert_eq!(found, [("FRAG", 7), ("FRAG6", 2)].into());
        for odd in ["", "FRAG: inuse", "FRAG: inuse x", "FRAG6: inuse 1"] {
            let tree = format!("proc/thread-self/net/sockstat = {odd}");
            assert_eq!(
                reassembling(&fixture::tree(&tree).root),
                BTreeMap::new(),
                "{odd}"
            );
        }
    }
}
