//! The ports for clients, and the partner of TCP with most of them.

use crate::root::Root;
use mpps_os::netlink::sock_diag::{self, TcpConnection};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// From this share of the ports on a program may find none.
pub(crate) const SHARE: f64 = 0.95;

/// How many of these ports TCP connections from one address to one partner have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrowdedPartner {
    /// The address here.
    pub from: IpAddr,
    /// The partner.
    pub to: SocketAddr,
    /// The ports, each once.
    pub ports: usize,
    /// Those of connections that are closed, and kept for a minute (TIME_WAIT).
    pub in_time_wait: usize,
}

/// The partner with most of the ports. None if the sockets of TCP are too few to have used them up.
pub(super) fn crowded(root: &Root, ports: &RangeInclusive<u16>) -> Option<CrowdedPartner> {
    let many = SHARE * ports.len() as f64;
    if ports.is_empty() || (sockets(root) as f64) < many {
        return None;
    }
    most(&sock_diag::connections(ports).unwrap_or_default())
}

/// `TCP: inuse 3 orphan 0 tw 200` and `TCP6: inuse 2` (`sockstat_seq_show`, net/ipv4/proc.c).
fn sockets(root: &Root) -> u64 {
    let counts = ["sockstat", "sockstat6"].map(|file| {
        let text = root.read_if_possible(&format!("proc/thread-self/net/{file}"));
        let text = text.unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("TCP"));
        let words: Vec<&str> = line.unwrap_or_default().split_ascii_whitespace().collect();
        let pairs = words
            .windows(2)
            .filter(|pair| ["inuse", "tw"].contains(&pair[0]));
        let counts = pairs.filter_map(|pair| pair[1].parse::<u64>().ok());
        counts.fold(0, u64::saturating_add)
    });
    counts.into_iter().fold(0, u64::saturating_add)
}

fn most(all: &[TcpConnection]) -> Option<CrowdedPartner> {
    let mut partners: BTreeMap<(IpAddr, SocketAddr), (BTreeSet<u16>, usize)> = BTreeMap::new();
    for one in all {
        let partner = (one.local.ip(), one.remote);
        let (ports, in_time_wait) = partners.entry(partner).or_default();
        if ports.insert(one.local.port()) {
            *in_time_wait += usize::from(one.is_in_time_wait);
        }
    }
    let most = partners
        .into_iter()
        .max_by_key(|(_, (ports, _))| ports.len());
    most.map(|((from, to), (ports, in_time_wait))| CrowdedPartner {
        from,
        to,
        ports: ports.len(),
        in_time_wait,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn sockets_of_both_versions_are_counted() {
        let tree = fixture::tree(
            "proc/thread-self/net/sockstat = sockets: used 9\\nTCP: inuse 3 orphan 1 tw 200 alloc 5 mem 7\n\
             proc/thread-self/net/sockstat6 = TCP6: inuse 4\\nUDP6: inuse 9",
        );
        assert_eq!(sockets(&tree.root), 207);
        assert_eq!(sockets(&fixture::tree("x = y").root), 0);
    }

    #[test]
    fn the_partner_with_most_ports_is_found() {
        let one = |port: u16, to: &str, is_in_time_wait| TcpConnection {
            local: ([10, 0, 0, 1], port).into(),
            remote: to.parse().expect("an address"),
            is_in_time_wait,
        };
        let (few, many) = ("10.0.0.9:80", "10.0.0.9:81");
        let all = [
            one(1, few, true),
            one(2, many, true),
            one(3, many, false),
            one(3, many, false),
        ];
        let found = most(&all).expect("one");
        assert_eq!(
            (found.to, found.ports, found.in_time_wait),
            (all[1].remote, 2, 1)
        );
        assert_eq!(most(&[]), None);
    }
}
