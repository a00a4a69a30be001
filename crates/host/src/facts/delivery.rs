//! Where datagrams of a port can go: the groups that sockets joined, and the addresses of the host.

use crate::root::Root;
use mpps_os::netlink::link::NetlinkLink;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A multicast group that a socket of the namespace joined at an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedGroup {
    /// The interface's name.
    pub interface: String,
    /// The group.
    pub group: IpAddr,
    /// The only sources that are accepted (`IP_ADD_SOURCE_MEMBERSHIP`); empty for all.
    pub only_from: Vec<IpAddr>,
}

/// At most this many groups are kept.
const GROUPS_MAX: usize = 1024;

/// The groups of the calling thread's namespace, without those that the kernel joins itself
/// (`/proc/net/igmp`, `igmp6`, `mcfilter`, `mcfilter6`).
pub(super) fn joined_groups(root: &Root) -> Vec<JoinedGroup> {
    let read = |file: &str| root.read_if_possible(&format!("proc/thread-self/net/{file}"));
    let v4 = groups_v4(&read("igmp").unwrap_or_default());
    let v6 = groups_v6(&read("igmp6").unwrap_or_default());
    let all = v4.into_iter().chain(v6);
    let all = all.filter(|(_, joined)| !is_kernels(joined.group));
    let mut groups: Vec<(u32, JoinedGroup)> = all.take(GROUPS_MAX).collect();
    if groups.is_empty() {
        return Vec::new();
    }
    for file in ["mcfilter", "mcfilter6"] {
        let text = read(file).unwrap_or_default();
        for (index, group, source) in text.lines().filter_map(accepted) {
            let mut groups = groups.iter_mut();
            if let Some((_, joined)) = groups.find(|(at, one)| (*at, one.group) == (index, group)) {
                joined.only_from.push(source);
            }
        }
    }
    groups.into_iter().map(|(_, joined)| joined).collect()
}

/// The interfaces that forward and have 1 for `accept_ra`, which is 0 then (`ipv6_accept_ra`, include/net/ipv6.h).
pub(super) fn deaf_to_routers(root: &Root, links: &[NetlinkLink]) -> Vec<String> {
    let is_one = |name: &str, what: &str| {
        let value = root.read_if_possible(&format!("proc/sys/net/ipv6/conf/{name}/{what}"));
        value.is_some_and(|value| value.trim() == "1")
    };
    let names = links.iter().map(|link| link.name.to_string());
    names
        .filter(|name| name != "lo" && is_one(name, "accept_ra") && is_one(name, "forwarding"))
        .collect()
}

/// ICMP, TCP, UDP and ICMPv6, which raw sockets read besides the kernel, and that of sockets that only send.
const COPIED: [u8; 5] = [1, 6, 17, 58, 255];

/// The protocols of raw sockets, which `/proc/net/raw` and `raw6` show as ports (`raw_sock_seq_show`).
pub(super) fn raw_protocols(root: &Root) -> BTreeSet<u8> {
    let texts = ["raw", "raw6"].map(|file| {
        let text = root.read_if_possible(&format!("proc/thread-self/net/{file}"));
        text.unwrap_or_default()
    });
    let lines = texts.iter().flat_map(|text| text.lines().skip(1));
    let protocols = lines.filter_map(|line| {
        let (_, port) = line.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
        u8::from_str_radix(port.get(2..)?, 16).ok()
    });
    protocols.filter(|one| !COPIED.contains(one)).collect()
}

/// Groups of every host, of its addresses (RFC 4291, 2.7.1) and of one interface only.
fn is_kernels(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group == Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(group) => {
            let [first, .., five, six, seven] = group.segments();
            let is_all = matches!(first, 0xff01 | 0xff02 | 0xff05) && (five, six) == (0, 0);
            is_all && seven <= 2 || (first, five, six >> 8) == (0xff02, 1, 0xff)
        }
    }
}

/// A line of an interface, and then one for each of its groups (`igmp_mc_seq_show`). Each with the number
/// of its interface.
fn groups_v4(text: &str) -> Vec<(u32, JoinedGroup)> {
    let (mut groups, mut interface) = (Vec::new(), None);
    for line in text.lines().skip(1) {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        match (line.starts_with('\t'), interface) {
            (true, Some((index, name))) => {
                groups.extend(number_v4(first).map(|group| at(index, name, group)))
            }
            (true, None) => {}
            (false, _) => interface = first.parse().ok().zip(words.next()),
        }
    }
    groups
}

fn at(index: u32, interface: &str, group: IpAddr) -> (u32, JoinedGroup) {
    let joined = JoinedGroup {
        interface: interface.to_owned(),
        group,
        only_from: Vec::new(),
    };
    (index, joined)
}

/// The number as this machine stores it, which is in the order of the network.
fn number_v4(word: &str) -> Option<IpAddr> {
    let number = u32::from_str_radix(word, 16).ok()?;
    Some(Ipv4Addr::from(number.to_ne_bytes()).into())
}

/// A line for each group (`igmp6_mc_seq_show`).
fn groups_v6(text: &str) -> Vec<(u32, JoinedGroup)> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let index = words.next()?.parse().ok()?;
        Some(at(index, words.next()?, address(words.next()?)?))
    });
    lines.collect()
}

/// The interface's number, the group and the source of a line with a wanted source
/// (`igmp_mcf_seq_show`, `igmp6_mcf_seq_show`, which cut names short).
fn accepted(line: &str) -> Option<(u32, IpAddr, IpAddr)> {
    let mut words = line.split_ascii_whitespace();
    let index = words.next()?.parse().ok()?;
    let (_, group, source) = (words.next()?, words.next()?, words.next()?);
    let wanted = words.next()?.parse::<u64>().ok()?;
    (wanted > 0).then_some((index, address(group)?, address(source)?))
}

/// `0xefff0001` of IPv4, or the 32 digits of IPv6.
fn address(word: &str) -> Option<IpAddr> {
    match word.strip_prefix("0x") {
        Some(digits) => {
            let number = u32::from_str_radix(digits, 16).ok()?;
            Some(Ipv4Addr::from(number).into())
        }
        None if word.len() == 32 => {
            let number = u128::from_str_radix(word, 16).ok()?;
            Some(Ipv6Addr::from(number).into())
        }
        None => None,
    }
}

/// The IPv4 addresses of the calling thread's namespace, without those of loopback, and the networks that a route
/// refuses, as `blackhole 10.0.0.0/8` (`fib_trie_seq_show`).
pub(super) fn addresses(root: &Root) -> (Vec<Ipv4Addr>, Vec<String>) {
    let routes = root.read_if_possible("proc/thread-self/net/fib_trie");
    let (mut addresses, mut refused) = (BTreeSet::new(), BTreeSet::new());
    let mut node = None::<Ipv4Addr>;
    for line in routes.unwrap_or_default().lines().map(str::trim_start) {
        match (line.strip_prefix("|-- "), node) {
            (Some(address), _) => node = address.parse().ok(),
            (None, Some(node)) if line.starts_with("/32 host LOCAL") => {
                addresses.insert(node);
            }
            (None, Some(node)) => {
                let words: Vec<&str> = line.split_ascii_whitespace().collect();
                if let [
                    length,
                    _,
                    kind @ ("BLACKHOLE" | "UNREACHABLE" | "PROHIBIT"),
                    ..,
                ] = words[..]
                {
                    refused.insert(format!("{} {node}{length}", kind.to_ascii_lowercase()));
                }
            }
            (None, None) => {}
        }
    }
    addresses.retain(|address| !address.is_loopback());
    let addresses = addresses.into_iter().take(GROUPS_MAX).collect();
    (addresses, refused.into_iter().take(REFUSED_MAX).collect())
}

/// Of routes that refuse, this many are named.
const REFUSED_MAX: usize = 4;
/// `IFA_F_DADFAILED`, `IFA_F_OPTIMISTIC` and `IFA_F_TENTATIVE` of include/uapi/linux/if_addr.h.
const DAD_FAILED: u8 = 8;
const OPTIMISTIC: u8 = 4;
const TENTATIVE: u8 = 64;

/// The IPv6 addresses that the kernel does not use, as `fd00::5 at eth0 (dadfailed: another host has it too)`
/// (`if6_seq_show`, net/ipv6/addrconf.c).
pub(super) fn unused_addresses(root: &Root) -> Vec<String> {
    let text = root.read_if_possible("proc/thread-self/net/if_inet6");
    let text = text.unwrap_or_default();
    let all = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [address, _, _, _, flags, name] = words[..] else {
            return None;
        };
        let address = Ipv6Addr::from_bits(u128::from_str_radix(address, 16).ok()?);
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let is_tentative = flags & (TENTATIVE | OPTIMISTIC) == TENTATIVE;
        let why = match flags & DAD_FAILED {
            // A new interface has such an address of its own for a second.
            0 if !is_tentative || address.is_unicast_link_local() => return None,
            0 => "tentative: the search for another host that has it goes on",
            _ => "dadfailed: another host has it too",
        };
        Some(format!("{address} at {name} ({why})"))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use proptest::prelude::*;

    /// As kernel 6.18 writes them.
    const TREE: &str = "proc/thread-self/net/igmp = Idx\tDevice    : Count Querier\\tGroup    Users Timer\\tReporter\\n\
        2\\tdlb       :     2      V3\\n\\t\\t\\t\\t010101EF     1 0:00000000\\t\\t0\\n\\t\\t\\t\\t010000E0     1 0:00000000\\t\\t0\n\
        proc/thread-self/net/mcfilter = Idx Device        MCA        SRC    INC    EXC\\n  \
        2 mpps-r 0xef010101 0x0a09004d      1      0\n\
        proc/thread-self/net/igmp6 = 2    dlb             ff0200000000000000000001ff000001     1 00000004 0\\n\
        2    dlb             ff020000000000000000000000000001     1 0000000C 0\\n\
        2    dlb             ff020000000000000000000000000002     1 0000000C 0\\n\
        2    dlb             ff0200000000000000000000000000fb     1 00000004 0";

    #[test]
    fn joined_groups_are_read_with_their_sources() {
        let tree = fixture::tree(TREE);
        let found = joined_groups(&tree.root);
        let said: Vec<_> = found
            .iter()
            .map(|one| format!("{} {} {:?}", one.interface, one.group, one.only_from))
            .collect();
        assert_eq!(said, ["dlb 239.1.1.1 [10.9.0.77]", "dlb ff02::fb []"]);
    }

    #[test]
    fn raw_sockets_have_their_protocol() {
        let tree = fixture::tree(
            "proc/thread-self/net/raw = sl  local_address rem_address   st\\n  \
             112: 120000E0:0070 00000000:0000 07 00000000:00000000\\n    1: 00000000:0001 00000000:0000 07\n\
             proc/thread-self/net/raw6 = sl\\n   89: 00000000000000000000000000000000:0059 00 07\\nx",
        );
        let found: Vec<u8> = raw_protocols(&tree.root).into_iter().collect();
        assert_eq!(found, [89, 112]);
    }

    #[test]
    fn addresses_are_those_of_this_host() {
        let tree = fixture::tree(
            "proc/thread-self/net/fib_trie = Main:\\n  +-- 10.9.0.0/24 2 0 2\\n     |-- 10.9.0.0\\n        \
            /24 link UNICAST\\n     |-- 10.8.0.0\\n        /16 universe BLACKHOLE\\nLocal:\\n     |-- 10.9.0.1\\n        \
            /32 host LOCAL\\n     |-- 127.0.0.1\\n        /32 host LOCAL\\n     |-- 10.9.0.255\\n        \
            /32 link BROADCAST\n\
            proc/thread-self/net/if_inet6 = fd000000000000000000000000000005 02 40 00 c8   eth0\\n\
            fd000000000000000000000000000006 02 40 00 80     eth0\\n\
            fd000000000000000000000000000007 02 40 00 c0     eth0\\n\
            fd000000000000000000000000000008 02 40 00 c4     eth0\\n\
            fe800000000000000000000000000009 02 40 20 c0     eth0\\nx",
        );
        let (own, refused) = addresses(&tree.root);
        assert_eq!(own, [Ipv4Addr::new(10, 9, 0, 1)]);
        assert_eq!(refused, ["blackhole 10.8.0.0/16"]);
        let unused = unused_addresses(&tree.root);
        let [five, seven] = &unused[..] else {
            panic!("{unused:?}");
        };
        assert!(five.starts_with("fd00::5 at eth0 (dadfailed"), "{five}");
        assert!(seven.starts_with("fd00::7 at eth0 (tentative"), "{seven}");
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text in "[0-9a-fx \t\n:]{0,200}") {
            let _ = (groups_v4(&text), groups_v6(&text), accepted(&text));
        }
    }
}
