//! The sockets of a network namespace, as reported by the kernel (`sock_diag(7)`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket as RawSocket, SocketAddr as NetlinkAddress};

use super::generic::{attributes, exchange, message};
use crate::CallResult;
use crate::error::On;
use crate::native::{double_word, word};

/// `SOCK_DIAG_BY_FAMILY` (include/uapi/linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// Attributes of include/uapi/linux/inet_diag.h.
const MEMORY: u16 = 7;
const ONLY_V6: u16 = 11;
/// `struct inet_diag_msg`, behind which the attributes begin.
const MESSAGE_LENGTH: usize = 72;
/// The attribute of a request that has a filter, and its conditions: a local port of at least, and of at most, one.
const FILTER: u16 = 1;
const AT_LEAST: u8 = 2;
const AT_MOST: u8 = 3;
/// `TCP_TIME_WAIT`, and `TCP_CLOSE`, `TCP_LISTEN` and `TCP_NEW_SYN_RECV` of include/net/tcp_states.h as bits.
const TIME_WAIT: u8 = 6;
const LISTENING: u32 = 1 << 10;
const UNCONNECTED: u32 = LISTENING | 1 << 7 | 1 << 12;
/// The requested parts of an AF_XDP socket, its attributes, and where they begin
/// (include/uapi/linux/xdp_diag.h).
const XDP_SHOW: u32 = 0b1_0101;
const XDP_INFO: u16 = 1;
const XDP_UMEM: u16 = 5;
const XDP_STATISTICS: u16 = 9;
const XDP_MESSAGE_LENGTH: usize = 16;
/// Where the drops are in `INET_DIAG_SKMEMINFO`, numbers of 32 bits each.
const QUEUED: usize = 0;
const BUFFER: usize = 1;
const UNSENT: usize = 2;
const SEND_BUFFER: usize = 3;
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
    /// By this number BPF programs know it (`bpf_get_socket_cookie`).
    pub cookie: u64,
    /// The user who made it.
    pub user: u32,
    /// Bytes that wait in its receive queue, with the kernel's own overhead.
    pub queued_bytes: u32,
    /// The most that may wait there, in bytes: twice what was granted.
    pub buffer_bytes: u32,
    /// Bytes that it sent and that have not left this host.
    pub unsent_bytes: u32,
    /// The most of these, in bytes: twice what was granted.
    pub send_buffer_bytes: u32,
    /// Packets dropped since it was made (`sk_drops`), by a full buffer or a wrong checksum.
    pub drops: u32,
}

/// A TCP socket that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListeningSocket {
    /// Where it listens.
    pub local: SocketAddr,
    /// An IPv6 socket of all addresses that takes no IPv4 (`IPV6_V6ONLY`).
    pub only_v6: bool,
    /// By this number `/proc/PID/fd` knows it.
    pub inode: u32,
    /// By this number BPF programs know it (`bpf_get_socket_cookie`).
    pub cookie: u64,
    /// Connections that wait to be accepted.
    pub waiting: u32,
    /// The most that may wait, less one (`listen(2)`, `net.core.somaxconn`).
    pub waiting_max: u32,
    /// Connection requests dropped since it was made (`sk_drops`).
    pub drops: u32,
}

/// A TCP socket with a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpConnection {
    /// Its own end.
    pub local: SocketAddr,
    /// Its partner.
    pub remote: SocketAddr,
    /// This host closed it first, and the kernel keeps it for a minute.
    pub is_in_time_wait: bool,
}

/// A socket of AF_XDP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XdpEntry {
    /// The interface that it is bound to, and the queue of that.
    pub interface: u32,
    /// That queue.
    pub queue: u32,
    /// By this number `/proc/PID/fd` knows it.
    pub inode: u32,
    /// True if the driver writes into its memory itself (`XDP_ZEROCOPY`).
    pub is_zero_copy: bool,
    /// The size of its memory (UMEM), in bytes.
    pub memory_bytes: u64,
    /// Packets dropped for want of a place in its memory, or because they were too long for one.
    pub dropped: u64,
    /// Packets dropped because its receive ring was full.
    pub ring_full: u64,
}

/// All UDP sockets of the calling thread's network namespace, in the order of port and address. Of
/// those at one address the last bound comes first (`sk_add_node_rcu` in net/ipv4/udp.c).
///
/// # Errors
///
/// `ENOENT` in a kernel without `CONFIG_INET_UDP_DIAG`, or whose module `udp_diag` cannot be loaded.
pub fn udp() -> CallResult<Vec<UdpEntry>> {
    let answers = internet(libc::IPPROTO_UDP, u32::MAX, &[], "UDP sockets")?;
    Ok(sorted(&answers, UdpEntry::parse, |entry| {
        (entry.local.port(), entry.local.ip())
    }))
}

/// All TCP sockets that listen in the calling thread's network namespace, in the order of port and
/// address.
///
/// # Errors
///
/// `ENOENT` in a kernel without `CONFIG_INET_TCP_DIAG`, or whose module `tcp_diag` cannot be loaded.
pub fn listeners() -> CallResult<Vec<ListeningSocket>> {
    let answers = internet(libc::IPPROTO_TCP, LISTENING, &[], "TCP listeners")?;
    Ok(sorted(&answers, ListeningSocket::parse, |entry| {
        (entry.local.port(), entry.local.ip(), entry.inode)
    }))
}

/// The TCP sockets of the calling thread's network namespace that have a partner and one of these ports.
///
/// # Errors
///
/// As [`listeners`].
pub fn connections(ports: &RangeInclusive<u16>) -> CallResult<Vec<TcpConnection>> {
    // struct inet_diag_bc_op: code, step if it holds, step if not, which ends the filter; then its operand.
    let operation = |code, port: u16, end: u16| {
        let [first, second] = [[code, 8], [0, 0]];
        let halves = [first, end.to_ne_bytes(), second, port.to_ne_bytes()];
        halves.concat()
    };
    let filter = [
        operation(AT_LEAST, *ports.start(), 20),
        operation(AT_MOST, *ports.end(), 12),
    ];
    let filter = filter.concat();
    let answers = internet(libc::IPPROTO_TCP, !UNCONNECTED, &filter, "TCP connections")?;
    let all = answers
        .iter()
        .filter_map(|answer| TcpConnection::parse(answer));
    Ok(all.collect())
}

/// All sockets of AF_XDP of the calling thread's network namespace, in the order of interface and queue.
///
/// # Errors
///
/// `ENOENT` in a kernel without `CONFIG_XDP_SOCKETS_DIAG`, or whose module `xsk_diag` cannot be loaded.
pub fn xdp() -> CallResult<Vec<XdpEntry>> {
    // struct xdp_diag_req: family, protocol, padding, inode number, what to show, cookie.
    let mut request = vec![libc::AF_XDP as u8, 0, 0, 0];
    request.extend(0_u32.to_ne_bytes());
    request.extend(XDP_SHOW.to_ne_bytes());
    request.resize(20, 0);
    let answers = dump(&request).on(CALL, "AF_XDP sockets")?;
    Ok(sorted(&answers, XdpEntry::parse, |entry| {
        (entry.interface, entry.queue, entry.inode)
    }))
}

const CALL: &str = "netlink SOCK_DIAG_BY_FAMILY";

/// The values in the answers, sorted by this key.
fn sorted<T, K: Ord>(
    answers: &[Vec<u8>],
    parse: fn(&[u8]) -> Option<T>,
    key: impl FnMut(&T) -> K,
) -> Vec<T> {
    let mut all: Vec<T> = answers.iter().filter_map(|answer| parse(answer)).collect();
    all.sort_by_key(key);
    all
}

/// The sockets of both families that speak this protocol, are in one of these states and pass this filter.
fn internet(protocol: i32, states: u32, filter: &[u8], what: &str) -> CallResult<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        // struct inet_diag_req_v2: no address.
        let mut request = vec![family as u8, protocol as u8, 1 << (MEMORY - 1), 0];
        request.extend(states.to_ne_bytes());
        request.resize(56, 0);
        if !filter.is_empty() {
            request.extend((4 + filter.len() as u16).to_ne_bytes());
            request.extend(FILTER.to_ne_bytes());
            request.extend(filter);
        }
        all.extend(dump(&request).on(CALL, what)?);
    }
    Ok(all)
}

fn dump(request: &[u8]) -> std::io::Result<Vec<Vec<u8>>> {
    let socket = RawSocket::new(NETLINK_SOCK_DIAG)?;
    socket.connect(&NetlinkAddress::new(0, 0))?;
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    Ok(exchange(&socket, &message(BY_FAMILY, flags, request))?)
}

impl XdpEntry {
    /// One answer of the kernel; none if it is damaged, or of a socket that is bound to nothing.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let found = attributes(body.get(XDP_MESSAGE_LENGTH..)?);
        let value = |kind| found.iter().find(|(found, _)| *found == kind);
        let number = |kind, at: usize| {
            let (_, value) = value(kind)?;
            word(value, at)
        };
        let count = |kind, at: usize| {
            let (_, value) = value(kind)?;
            double_word(value, at)
        };
        Some(Self {
            interface: number(XDP_INFO, 0).filter(|&interface| interface > 0)?,
            queue: number(XDP_INFO, 4)?,
            inode: word(body, 4)?,
            is_zero_copy: number(XDP_UMEM, 32)? & 1 == 1,
            memory_bytes: count(XDP_UMEM, 0)?,
            dropped: count(XDP_STATISTICS, 0)?,
            ring_full: count(XDP_STATISTICS, 16)?,
        })
    }
}

impl ListeningSocket {
    /// One answer of the kernel; none if it is damaged.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let common = UdpEntry::parse(body)?;
        let number = |at: usize| word(body, at);
        Some(Self {
            local: common.local,
            only_v6: common.only_v6,
            inode: common.inode,
            cookie: common.cookie,
            waiting: number(56)?,
            waiting_max: number(60)?,
            drops: common.drops,
        })
    }
}

impl TcpConnection {
    /// One answer of the kernel; none if it is damaged.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let [local, remote] = ends(body)?;
        Some(Self {
            local,
            remote,
            is_in_time_wait: *body.get(1)? == TIME_WAIT,
        })
    }
}

/// Both ends of a socket in an answer.
fn ends(body: &[u8]) -> Option<[SocketAddr; 2]> {
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let is_v6 = i32::from(*body.first()?) == libc::AF_INET6;
    let address = |at: usize| {
        Some(match is_v6 {
            true => IpAddr::from(Ipv6Addr::from(
                <[u8; 16]>::try_from(body.get(at..at + 16)?).ok()?,
            )),
            false => IpAddr::from(Ipv4Addr::from(word(body, at)?.to_ne_bytes())),
        })
    };
    Some([
        SocketAddr::new(address(8)?, port(4)?),
        SocketAddr::new(address(24)?, port(6)?),
    ])
}

impl UdpEntry {
    /// One answer of the kernel (`struct inet_diag_msg` and its attributes); none if it is damaged, or of a
    /// socket without a port.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let found = attributes(body.get(MESSAGE_LENGTH..)?);
        let value = |kind| found.iter().find(|(found, _)| *found == kind);
        let memory = value(MEMORY).map(|(_, value)| value.as_slice());
        let memory = |at: usize| word(memory?, at * 4);
        let number = |at: usize| word(body, at);
        let [local, remote] = ends(body)?;
        Some(Self {
            local,
            remote: (remote.port() > 0).then_some(remote),
            only_v6: value(ONLY_V6).is_some_and(|(_, value)| value.first() == Some(&1)),
            interface: number(40)?,
            inode: number(68)?,
            cookie: u64::from(number(44)?) | u64::from(number(48)?) << 32,
            user: number(64)?,
            queued_bytes: memory(QUEUED)?,
            buffer_bytes: memory(BUFFER)?,
            unsent_bytes: memory(UNSENT)?,
            send_buffer_bytes: memory(SEND_BUFFER)?,
            drops: memory(DROPS)?,
        })
        .filter(|entry| entry.local.port() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd;

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = (UdpEntry::parse(&bytes), ListeningSocket::parse(&bytes), XdpEntry::parse(&bytes));
            let _ = TcpConnection::parse(&bytes);
        }
    }

    #[test]
    fn a_listener_of_this_process_is_found_with_its_queue() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let local = listener.local_addr().expect("it is bound");
        let clients: Vec<_> = (0..3)
            .map(|_| std::net::TcpStream::connect(local).expect("it has room"))
            .collect();
        let all = match listeners() {
            Ok(all) => all,
            // A kernel without `CONFIG_INET_TCP_DIAG`.
            Err(error) if error.errno() == Some(libc::ENOENT) => return,
            Err(error) => panic!("{error}"),
        };
        let found = all.iter().find(|entry| entry.local == local);
        let found = found.expect("the kernel lists it");
        assert_eq!(found.waiting as usize, clients.len(), "{found:?}");
        assert!(found.waiting_max > 0 && found.drops == 0, "{found:?}");
    }

    #[test]
    fn connections_are_found_by_their_ports() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let remote = listener.local_addr().expect("it is bound");
        let client = std::net::TcpStream::connect(remote).expect("it has room");
        let local = client.local_addr().expect("it is connected");
        let found = |ports: RangeInclusive<u16>| match connections(&ports) {
            Ok(all) => all
                .iter()
                .any(|one| (one.local, one.remote) == (local, remote)),
            // A kernel without `CONFIG_INET_TCP_DIAG`.
            Err(error) if error.errno() == Some(libc::ENOENT) => ports.contains(&local.port()),
            Err(error) => panic!("{error}"),
        };
        let port = local.port();
        assert_eq!(
            [
                found(port..=port),
                found(1..=port - 1),
                found(port + 1..=u16::MAX)
            ],
            [true, false, false]
        );
    }

    /// The layout of include/uapi/linux/xdp_diag.h, written as the kernel does.
    #[test]
    fn a_socket_of_af_xdp_is_read() {
        let mut body = vec![44, 3, 0, 0];
        body.extend(4711_u32.to_ne_bytes());
        body.resize(XDP_MESSAGE_LENGTH, 0);
        let mut add = |kind: u16, value: &[u8]| {
            body.extend((4 + value.len() as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(value);
        };
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let info: Vec<u8> = words(&[7, 2]);
        add(XDP_INFO, &info);
        // Size of 64 bits, id, pages, chunk size, headroom, interface, queue, flags, users.
        let size = 1_u64.to_ne_bytes();
        let umem: Vec<u8> = words(&[1, 2, 4096, 0, 7, 2, 1, 1]);
        let umem = [&size[..], &umem].concat();
        add(XDP_UMEM, &umem);
        let counts: Vec<u8> = [11_u64, 22, 33, 44, 55, 66]
            .iter()
            .flat_map(|count| count.to_ne_bytes())
            .collect();
        add(XDP_STATISTICS, &counts);
        let expected = XdpEntry {
            interface: 7,
            queue: 2,
            inode: 4711,
            is_zero_copy: true,
            memory_bytes: 1,
            dropped: 11,
            ring_full: 33,
        };
        assert_eq!(XdpEntry::parse(&body), Some(expected));
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
