//! Sockets that are not where a user looks for them: in another network namespace, or of a child.

use super::process::has_socket;
use super::stat::{PARENT, field};
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// A process with UDP sockets: its number, and name and number in words.
pub(crate) type UdpHolder = (u32, String);

/// The processes that have what a rule translates a UDP port to, in a network namespace with that address.
pub(crate) fn holders_of(root: &Root, to: SocketAddr) -> Vec<UdpHolder> {
    let mut all = holders_elsewhere(root, to.port());
    all.retain(|one| has_address(root, one.0, to.ip()));
    all
}

/// The processes in other network namespaces than the calling thread's that have this UDP port, as far
/// as this user may see them.
pub(crate) fn holders_elsewhere(root: &Root, port: u16) -> Vec<UdpHolder> {
    let Some(own) = root.link("proc/thread-self/ns/net") else {
        return Vec::new();
    };
    let mut tables: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    let all = pids(root).into_iter().filter_map(|pid| {
        let namespace = root.link(&format!("proc/{pid}/ns/net"));
        let namespace = namespace.filter(|namespace| *namespace != own)?;
        let table = tables.entry(namespace);
        let table = table.or_insert_with(|| udp_inodes(root, &pid.to_string(), Some(port)));
        holder(root, pid, table)
    });
    all.collect()
}

/// True if the network namespace of this process has the address (`fib_trie` and `if_inet6` in `/proc/PID/net`).
fn has_address(root: &Root, pid: u32, address: IpAddr) -> bool {
    let read = |file| root.read_if_possible(&format!("proc/{pid}/net/{file}"));
    match address {
        IpAddr::V4(address) => {
            let row = format!("|-- {address}");
            let text = read("fib_trie").unwrap_or_default();
            let lines = text.lines().map(str::trim_start);
            let mut pairs = lines.clone().zip(lines.skip(1));
            pairs.any(|(at, route)| at == row && route == "/32 host LOCAL")
        }
        IpAddr::V6(address) => {
            let digits = format!("{:032x}", address.to_bits());
            read("if_inet6").is_some_and(|text| text.lines().any(|line| line.starts_with(&digits)))
        }
    }
}

/// The file of the network namespace that has the UDP sockets of this process, with this port if one is given; none if
/// its own has one. A thread may enter another by setns(2), and a socket stays where it was opened.
pub fn namespace_of_sockets(pid: u32, port: Option<u16>) -> Option<String> {
    find_namespace(&Root::machine(), pid, port)
}

fn find_namespace(root: &Root, pid: u32, port: Option<u16>) -> Option<String> {
    let file = |at: &String| format!("proc/{at}/ns/net");
    let has = |at: &String| {
        let inodes = udp_inodes(root, at, port);
        !inodes.is_empty() && has_socket(root, pid, &inodes)
    };
    let own = pid.to_string();
    let mut known = BTreeSet::from([root.link(&file(&own))?]);
    let threads = root.names(&format!("proc/{pid}/task")).into_iter();
    let threads = threads.map(|thread| format!("{pid}/task/{thread}"));
    let others = pids(root).into_iter().map(|other| other.to_string());
    let mut all = threads.chain(others);
    let found = all.find(|at| {
        let namespace = root.link(&file(at));
        namespace.is_some_and(|namespace| known.insert(namespace)) && has(at)
    });
    found
        .filter(|_| !has(&own))
        .map(|at| format!("/{}", file(&at)))
}

/// The process of this number or thread, and its descendants with UDP sockets in any network namespace.
pub(crate) fn family(root: &Root, pid: u32) -> (u32, Vec<UdpHolder>) {
    let main = status(root, pid, "Tgid").and_then(|ids| ids.parse().ok());
    let main = main.unwrap_or(pid);
    let parents = pids(root).into_iter().filter_map(|pid| {
        let stat = root.read_if_possible(&format!("proc/{pid}/stat"))?;
        Some((pid, field(&stat, PARENT)?))
    });
    let parents: BTreeMap<u32, u32> = parents.collect();
    let descends = |mut pid: u32| {
        // Numbers that are used again could form a circle.
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(&parent) if parent == main => return true,
                Some(&parent) => pid = parent,
                None => return false,
            }
        }
        false
    };
    let children = parents.keys().copied().filter(|&pid| descends(pid));
    let holders =
        children.filter_map(|pid| holder(root, pid, &udp_inodes(root, &pid.to_string(), None)));
    (main, holders.collect())
}

/// The processes that have this number in a PID namespace of their own (`NSpid` of proc_pid_status(5)).
pub fn numbered_elsewhere(pid: u32) -> Vec<String> {
    let root = Root::machine();
    let number = pid.to_string();
    let all = pids(&root).into_iter().filter_map(|pid| {
        let ids = status(&root, pid, "NSpid")?;
        let is_it = ids.split_ascii_whitespace().skip(1).any(|id| id == number);
        is_it.then(|| words(&root, pid))
    });
    all.collect()
}

fn pids(root: &Root) -> Vec<u32> {
    let names = root.names("proc").into_iter();
    let mut pids: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

fn status(root: &Root, pid: u32, name: &str) -> Option<String> {
    let text = root.read_if_possible(&format!("proc/{pid}/status"))?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// The process, if it has one of these sockets.
fn holder(root: &Root, pid: u32, inodes: &BTreeSet<u32>) -> Option<UdpHolder> {
    let is_holder = !inodes.is_empty() && has_socket(root, pid, inodes);
    is_holder.then(|| (pid, words(root, pid)))
}

fn words(root: &Root, pid: u32) -> String {
    let name = root.read_if_possible(&format!("proc/{pid}/comm"));
    format!("{} (pid {pid})", name.unwrap_or_default())
}

/// The UDP sockets with this port, or with any, of the network namespace of `PID` or `PID/task/THREAD`.
fn udp_inodes(root: &Root, at: &str, port: Option<u16>) -> BTreeSet<u32> {
    let files = ["udp", "udp6"].map(|file| root.read_if_possible(&format!("proc/{at}/net/{file}")));
    let rows = files.iter().flatten().flat_map(|text| text.lines());
    let rows = rows.filter_map(row);
    let own = rows.filter(|(local, _)| port.is_none_or(|port| port == *local));
    own.map(|(_, inode)| inode).collect()
}

/// Port and inode number of a line of `/proc/net/udp` (proc_pid_net(5)).
fn row(line: &str) -> Option<(u16, u32)> {
    let mut words = line.split_ascii_whitespace();
    let (_, port) = words.nth(1)?.rsplit_once(':')?;
    Some((
        u16::from_str_radix(port, 16).ok()?,
        words.nth(7)?.parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    /// 100 is a wrapper whose grandchild 102 has port 53. 7 has it in another namespace.
    fn tree() -> fixture::Tree {
        let row = |port: u16, inode: u32| {
            format!("  1: 00000000:{port:04X} 00000000:0000 07 0:0 00:0 0 0 0 {inode} 2 0 0")
        };
        let tree = fixture::tree(&format!(
            "proc/6/task/9/net/udp = sl local\\n{0}\nproc/100/stat = 100 (sh) S 1 0\nproc/101/stat = 101 (sh) S 100 0\n\
             proc/102/stat = 102 (nsd) S 101 0\nproc/102/comm = nsd\nproc/102/net/udp = sl local\\n{0}\n\
             proc/103/status = Name: nsd\\nTgid:\t102\n\
             proc/7/stat = 7 (unbound) S 8 0\nproc/8/stat = 8 (a) S 7 0\nproc/7/comm = unbound\n\
             proc/7/net/udp6 = sl local\\n{1}\\n{2}",
            row(53, 4711),
            row(54, 9),
            row(53, 10)
        ));
        for (path, target) in [
            ("thread-self/ns/net", "net:[1]"),
            ("102/ns/net", "net:[1]"),
            ("7/ns/net", "net:[2]"),
            ("8/ns/net", "net:[2]"),
            ("102/fd/3", "socket:[4711]"),
            ("7/fd/3", "socket:[10]"),
            ("8/fd/3", "socket:[9]"),
            ("7/task/7/ns/net", "net:[2]"),
            ("7/task/9/ns/net", "net:[1]"),
        ] {
            tree.root.set_link(&format!("proc/{path}"), target);
        }
        tree
    }

    #[test]
    fn a_port_is_found_in_another_namespace() {
        let tree = tree();
        let unbound = (7, "unbound (pid 7)".to_owned());
        assert_eq!(holders_elsewhere(&tree.root, 53), [unbound]);
        assert_eq!(holders_elsewhere(&tree.root, 54).len(), 1);
        assert_eq!(holders_elsewhere(&tree.root, 55), []);
    }

    #[test]
    fn sockets_in_another_namespace_are_found() {
        let tree = tree();
        let find = |pid, port| find_namespace(&tree.root, pid, port);
        let links = [
            ("6/ns/net", "net:[3]"),
            ("6/task/9/ns/net", "net:[1]"),
            ("6/fd/3", "socket:[4711]"),
            ("5/ns/net", "net:[3]"),
            ("5/fd/3", "socket:[10]"),
        ];
        for (path, target) in links {
            tree.root.set_link(&format!("proc/{path}"), target);
        }
        for (pid, port, expected) in [
            (7, None, None),
            (6, None, Some("/proc/6/task/9/ns/net")),
            (6, Some(54), None),
            // No thread of it is there any more.
            (5, Some(53), Some("/proc/7/ns/net")),
        ] {
            assert_eq!(find(pid, port).as_deref(), expected, "{pid} {port:?}");
        }
    }

    #[test]
    fn descendants_with_sockets_are_found() {
        let tree = tree();
        let nsd = || vec![(102, "nsd (pid 102)".to_owned())];
        for (pid, expected) in [
            (100, (100, nsd())),
            (101, (101, nsd())),
            (103, (102, vec![])),
            (9, (9, vec![])),
        ] {
            assert_eq!(family(&tree.root, pid), expected, "7 and 8 form a circle");
        }
    }

    #[test]
    fn odd_lines_have_no_socket() {
        for odd in [
            "",
            "sl local",
            "1: x",
            "1: 0:35 2 3 4 5 6 7 8",
            "1: 0:x 2 3 4 5 6 7 8 9",
        ] {
            assert_eq!(row(odd), None, "{odd}");
        }
    }
}
