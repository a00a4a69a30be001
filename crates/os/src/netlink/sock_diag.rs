//! The sockets of a network namespace, as the kernel itself tells them (`sock_diag(7)`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket as RawSocket, SocketAddr as NetlinkAddress};

use super::generic::{attributes, exchange, message};
use crate::Result;
use crate::error::On;

/// `SOCK_DIAG_BY_FAMILY` (include/uapi/linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// Attributes of include/uapi/linux/inet_diag.h.
const MEMORY: u16 = 7;
const ONLY_V6: u16 = 11;
/// `struct inet_diag_msg`, behind which the attributes begin.
const MESSAGE_LENGTH: usize = 72;
/// Where the drops are in `INET_DIAG_SKMEMINFO`, numbers of 32 bits each.
const QUEUED: usize = 0;
const BUFFER: usize = 1;
const DROPS: usize = 8;

/// A UDP socket that has a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpEntry {
    /// Where it receives.
    pub local: SocketAddr,
    /// Whom it is connected to.
    pub remote: Option<SocketAddr>,
    /// An IPv6 socket of all addresses that takes no IPv4 (`IPV6_V6ONLY`).
    pub only_v6: bool,
    /// The interface that it is bound to (`SO_BINDTODEVICE`); 0 for all.
    pub interface: u32,
    /// By this number `/proc/PID/fd` knows it.
    pub inode: u32,
    /// The user who made it.
    pub user: u32,
    /// What waits in its receive queue, with the kernel's own overhead, in bytes.
    pub queued_bytes: u32,
    /// The most that may wait there, in bytes: twice what was granted.
    pub buffer_bytes: u32,
    /// Packets dropped since it was made (`sk_drops`), by a full buffer or a wrong checksum.
    pub drops: u32,
}

/// All UDP sockets of the calling thread's network namespace, in the order of port and address.
///
/// # Errors
///
/// `ENOENT` in a kernel without `CONFIG_INET_UDP_DIAG`, or whose module `udp_diag` cannot be loaded.
pub fn udp() -> Result<Vec<UdpEntry>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let on = |result: std::io::Result<Vec<Vec<u8>>>| {
            result.on("netlink SOCK_DIAG_BY_FAMILY", "UDP sockets")
        };
        let answers = on(dump(family as u8))?;
        all.extend(answers.iter().filter_map(|answer| entry(answer)));
    }
    all.sort_by_key(|entry| (entry.local.port(), entry.local.ip(), entry.inode));
    Ok(all)
}

fn dump(family: u8) -> std::io::Result<Vec<Vec<u8>>> {
    let socket = RawSocket::new(NETLINK_SOCK_DIAG)?;
    socket.connect(&NetlinkAddress::new(0, 0))?;
    // struct inet_diag_req_v2: all states, no address.
    let mut request = vec![family, libc::IPPROTO_UDP as u8, 1 << (MEMORY - 1), 0];
    request.extend(u32::MAX.to_ne_bytes());
    request.resize(56, 0);
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    exchange(&socket, &message(BY_FAMILY, flags, &request))
}

/// One socket; none if the answer is damaged or has no port.
fn entry(body: &[u8]) -> Option<UdpEntry> {
    let found = attributes(body.get(MESSAGE_LENGTH..)?);
    let value = |kind| found.iter().find(|(found, _)| *found == kind);
    let memory = value(MEMORY).map(|(_, value)| value.as_slice());
    let memory = |at: usize| word(memory?, at * 4).map(u32::from_ne_bytes);
    let number = |at: usize| word(body, at).map(u32::from_ne_bytes);
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let is_v6 = i32::from(*body.first()?) == libc::AF_INET6;
    let address = |at: usize| {
        Some(match is_v6 {
            true => IpAddr::from(Ipv6Addr::from(
                <[u8; 16]>::try_from(body.get(at..at + 16)?).ok()?,
            )),
            false => IpAddr::from(Ipv4Addr::from(word(body, at)?)),
        })
    };
    let local = SocketAddr::new(address(8)?, port(4)?);
    let remote = SocketAddr::new(address(24)?, port(6)?);
    Some(UdpEntry {
        local,
        remote: (remote.port() > 0).then_some(remote),
        only_v6: value(ONLY_V6).is_some_and(|(_, value)| value.first() == Some(&1)),
        interface: number(40)?,
        inode: number(68)?,
        user: number(64)?,
        queued_bytes: memory(QUEUED)?,
        buffer_bytes: memory(BUFFER)?,
        drops: memory(DROPS)?,
    })
    .filter(|entry| entry.local.port() > 0)
}

fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd;

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = entry(&bytes);
        }
    }

    #[test]
    fn a_socket_of_this_process_is_found() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        let local = socket.local_addr().expect("it is bound");
        let inode = rustix::fs::fstat(socket.as_fd())
            .expect("it is open")
            .st_ino;
        let all = match udp() {
            Ok(all) => all,
            // A kernel without `CONFIG_INET_UDP_DIAG`.
            Err(error) if error.errno() == Some(libc::ENOENT) => return,
            Err(error) => panic!("{error}"),
        };
        let found = all.iter().find(|entry| u64::from(entry.inode) == inode);
        let found = found.expect("the kernel lists it");
        assert_eq!((found.local, found.remote, found.drops), (local, None, 0));
        assert!(found.buffer_bytes > 0, "{found:?}");
        let other = std::net::UdpSocket::bind("[::]:0");
        if let Ok(other) = other {
            let port = other.local_addr().expect("it is bound").port();
            let all = udp().expect("it was there before");
            let found = all.iter().find(|entry| entry.local.port() == port);
            assert!(!found.expect("the kernel lists it").only_v6);
        }
    }
}
