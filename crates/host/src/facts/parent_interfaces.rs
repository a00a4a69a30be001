//! How interfaces are stacked: bridges, bonds, VLANs and others.

use crate::root::Root;

/// True if packets of the upper interface may go by the lower one: they are the same, or a bridge, a bond
/// or a VLAN lies between (`upper_*` of Documentation/ABI/testing/sysfs-class-net).
pub fn carries(lower: &str, upper: &str) -> bool {
    carries_in(&Root::machine(), lower, upper)
}

pub(crate) fn carries_in(root: &Root, lower: &str, upper: &str) -> bool {
    let mut reached = vec![lower.to_owned()];
    let mut at = 0;
    while let Some(name) = reached.get(at) {
        let names = root.names(&format!("sys/class/net/{name}"));
        let above = names.iter().filter_map(|name| name.strip_prefix("upper_"));
        let new = above.filter(|name| !reached.iter().any(|known| known == name));
        let new: Vec<String> = new.map(str::to_owned).collect();
        reached.extend(new);
        at += 1;
    }
    reached.iter().any(|name| name == upper)
}

/// The interfaces of the default routes, of either version of IP (proc_pid_net(5)).
pub(crate) fn of_default_routes(root: &Root) -> Vec<String> {
    let read = |file: &str| root.read_if_possible(&format!("proc/thread-self/net/{file}"));
    let (v4, v6) = (
        read("route").unwrap_or_default(),
        read("ipv6_route").unwrap_or_default(),
    );
    let v4 = v4.lines().filter_map(|line| {
        // Interface, destination, gateway, flags, references, use, metric, mask.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        match fields[..] {
            [interface, "00000000", _, _, _, _, _, "00000000", ..] => Some(interface),
            _ => None,
        }
    });
    let v6 = v6.lines().filter_map(|line| {
        // Destination, its prefix, source, its prefix, next hop, metric, references, use, flags, interface.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_any = |address: &str| address.bytes().all(|digit| digit == b'0');
        match fields[..] {
            // A host without a route has a route that refuses, by its loopback.
            [to, "00", _, _, _, _, _, _, _, interface] if is_any(to) && interface != "lo" => {
                Some(interface)
            }
            _ => None,
        }
    });
    v4.chain(v6).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn a_bridge_over_a_bond_goes_by_both_ends_of_the_bond() {
        let tree = fixture::tree(
            "sys/class/net/eth0/upper_bond0/x = 1\n\
             sys/class/net/eth1/upper_bond0/x = 1\n\
             sys/class/net/bond0/upper_br0/x = 1\n\
             sys/class/net/br0/upper_br0/x = 1\n\
             sys/class/net/eth2/x = 1\n",
        );
        let carries = |lower, upper| carries_in(&tree.root, lower, upper);
        assert!(carries("eth0", "br0") && carries("eth1", "br0") && carries("br0", "br0"));
        assert!(!carries("eth2", "br0") && !carries("br0", "eth0"));
    }

    #[test]
    fn default_routes_are_those_to_everywhere() {
        let zeros = "0".repeat(32);
        let v6 = |to: &str, prefix: &str, by: &str| {
            format!("{to} {prefix} {zeros} 00 {zeros} 00000400 00000001 00000000 00000003 {by}\\n")
        };
        let [lo, eth, local] = [
            v6(&zeros, "00", "lo"),
            v6(&zeros, "00", "eth6"),
            v6("fe800000000000000000000000000000", "40", "eth7"),
        ];
        let v6 = [lo, eth, local].concat();
        let v4 = "eth4 00000000 0101A8C0 0003 0 0 0 00000000 0 0 0\\n\
                  eth5 0001A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0";
        let net = "proc/thread-self/net";
        let tree = fixture::tree(&format!("{net}/ipv6_route = {v6}\n{net}/route = {v4}\n"));
        assert_eq!(of_default_routes(&tree.root), ["eth4", "eth6"]);
    }
}
