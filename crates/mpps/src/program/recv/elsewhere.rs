//! Where the packets are of a ring that receives none.

use mpps_io::{Property, RxCaps};
use mpps_os::netlink::link::{self, NetlinkLink};
use mpps_os::text::{Foreign, ShellWord};

/// Fewer packets than these mean nothing: neighbour discovery is some a minute.
const PACKETS_MIN: u64 = 10;
/// A tap does not count what goes past it. Another interface must have this multiple of its packets.
const TIMES: u64 = 10;

/// A ring, and the interfaces when it began.
#[derive(Debug)]
pub(super) struct Elsewhere {
    ring: u32,
    /// The interface with the ring's address.
    owner: Option<u32>,
    is_native: bool,
    is_tap: bool,
    before: Vec<NetlinkLink>,
}

impl Elsewhere {
    /// None for a receiver that is no ring, or where interfaces are not shown.
    pub(super) fn begin(interface: &str, owner: Option<u32>, caps: &RxCaps) -> Option<Self> {
        Some(Self {
            ring: link::index(interface).ok()?,
            owner,
            is_native: caps.mode.properties.contains(&Property::Native),
            is_tap: caps.mode.is_tap,
            before: link::list().ok()?,
        })
    }

    /// Where the packets are, if the ring has got none so far. `past` datagrams for its address and port
    /// came past it; a tap does not know.
    pub(super) fn look(&self, past: u64) -> Option<String> {
        self.advice(&link::list().ok()?, past)
    }

    fn advice(&self, now: &[NetlinkLink], past: u64) -> Option<String> {
        let packets = |link: &NetlinkLink| link.statistics.map_or(0, |all| all.rx_packets);
        let grown = |link: &NetlinkLink| {
            let before = self.before.iter().find(|before| before.index == link.index);
            packets(link).saturating_sub(before.map_or(0, packets))
        };
        let ring = now.iter().find(|link| link.index == self.ring)?;
        let (name, came) = (Foreign(&ring.name), grown(ring));
        if self.is_native && past == 0 && came >= PACKETS_MIN && is_bond(ring) {
            let ports = now
                .iter()
                .filter(|link| link.controller == Some(ring.index));
            let ports: Vec<String> = ports
                .map(|port| format!("--interface {}", ShellWord::new(&port.name)))
                .collect();
            return Some(format!(
                "nothing has come to the ring, and {name} received {came} packets: some kernels (seen on \
                 Linux 6.1) grant native XDP at a bond and deliver nothing; use --xdp generic, or a ring at \
                 each port ({})",
                ports.join(", ")
            ));
        }
        if past == 0 && !self.is_tap {
            return None;
        }
        let enough = if self.is_tap {
            PACKETS_MIN
        } else {
            past.div_ceil(2)
        };
        let known = match past {
            0 => String::new(),
            _ => format!("; {past} datagrams for this address and port came past it"),
        };
        let tagged = now
            .iter()
            .filter(|link| link.kind == "vlan" && link.lower == Some(ring.index));
        if let Some(vlan) = tagged
            .filter(|link| grown(link) >= enough)
            .max_by_key(|link| grown(link))
        {
            return Some(format!(
                "nothing has come to the ring{known}. {} above {name} received {} packets: a ring takes no \
                 frames with a VLAN tag; use --interface {}",
                Foreign(&vlan.name),
                grown(vlan),
                ShellWord::new(&vlan.name)
            ));
        }
        if came >= enough {
            return None;
        }
        let others = now.iter().filter(|link| link.index != ring.index);
        let most = others.max_by_key(|link| (grown(link), Some(link.index) == self.owner))?;
        let is_more = !self.is_tap || grown(most) >= came.saturating_add(1).saturating_mul(TIMES);
        let remedy = match &*most.name {
            "lo" => "this host sends them to itself, so that only a socket gets them: --backend recvmmsg".to_owned(),
            other => {
                let if_ours = if past == 0 { "if they are for this port, " } else { "" };
                format!("{if_ours}use --interface {}", ShellWord::new(other))
            }
        };
        (is_more && grown(most) >= enough).then(|| {
            format!(
                "nothing has come to the ring{known}. {name} received {came} packets meanwhile, and {} {}: {remedy}",
                Foreign(&most.name),
                grown(most)
            )
        })
    }
}

fn is_bond(link: &NetlinkLink) -> bool {
    ["bond", "team"].contains(&&*link.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_os::netlink::link::LinkStatistics;

    /// Index, name, kind, the interface below, and packets.
    fn link(index: u32, name: &str, kind: &str, lower: u32, rx_packets: u64) -> NetlinkLink {
        let mut statistics = LinkStatistics::default();
        statistics.rx_packets = rx_packets;
        NetlinkLink {
            index,
            name: name.to_owned(),
            kind: kind.to_owned(),
            lower: Some(lower).filter(|lower| *lower > 0),
            statistics: Some(statistics),
            ..NetlinkLink::default()
        }
    }

    fn ring(is_native: bool, is_tap: bool) -> Elsewhere {
        Elsewhere {
            ring: 2,
            owner: Some(4),
            is_native,
            is_tap,
            before: vec![link(2, "eth0", "", 0, 1000), link(3, "eth1", "", 0, 5000)],
        }
    }

    fn says(told: Option<String>, words: &[&str]) {
        let told = told.expect("it is said");
        for word in words {
            assert!(told.contains(word), "{word}: {told}");
        }
    }

    #[test]
    fn the_interface_that_has_them_is_named() {
        let now = |ring, other| [link(2, "eth0", "", 0, ring), link(3, "eth1", "", 0, other)];
        let xdp = ring(true, false);
        let told = xdp.advice(&now(1003, 5500), 480);
        says(
            told,
            &[
                "480 datagrams",
                "eth0 received 3 packets",
                "eth1 500",
                "--interface eth1",
            ],
        );
        // Nothing for this port came past it, or by another queue of its own interface.
        assert_eq!(xdp.advice(&now(1003, 9000), 0), None);
        assert_eq!(xdp.advice(&now(1500, 5500), 480), None);
        // A bridge has the address, and its port the same packets.
        let mut bridged = now(1000, 5500).to_vec();
        bridged.push(link(4, "br0", "bridge", 0, 500));
        says(xdp.advice(&bridged, 480), &["--interface br0"]);
        let local = [link(2, "eth0", "", 0, 1000), link(1, "lo", "", 0, 480)];
        says(xdp.advice(&local, 480), &["--backend recvmmsg"]);
    }

    #[test]
    fn a_tap_needs_a_clear_difference() {
        let now = |ring, other| [link(2, "eth0", "", 0, ring), link(3, "eth1", "", 0, other)];
        let tap = ring(false, true);
        says(
            tap.advice(&now(1004, 5500), 0),
            &["if they are for this port, use --interface eth1"],
        );
        for (own, other) in [(1000, 5009), (1009, 5099), (1400, 9000)] {
            assert_eq!(tap.advice(&now(own, other), 0), None, "{own} {other}");
        }
    }

    #[test]
    fn tags_and_bonds_are_told() {
        let vlan = [
            link(2, "eth0", "", 0, 1500),
            link(9, "eth0.7", "vlan", 2, 480),
        ];
        let told = ring(true, false).advice(&vlan, 480);
        says(
            told,
            &[
                "eth0.7 above eth0 received 480",
                "VLAN tag",
                "--interface eth0.7",
            ],
        );
        let mut port = link(3, "eth1", "", 0, 5500);
        port.controller = Some(2);
        let bond = [link(2, "bond0", "bond", 0, 1500), port];
        let told = ring(true, false).advice(&bond, 0);
        says(
            told,
            &["bond0 received 500", "--xdp generic", "(--interface eth1)"],
        );
        assert_eq!(ring(false, false).advice(&bond, 0), None, "not native");
    }
}
