//! Which descriptors are sockets of the port, and their options.

use crate::kernel::{self, option};
use crate::session::ProgramSession;
use libc::{c_int, sockaddr_storage, socklen_t};
use mpps_os::xdp::shared::PortSocket;
use std::mem::zeroed;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Knowledge of each descriptor: 0 nothing, 1 that it is another one, from 2 a place in
/// `Control::sockets`.
static KNOWN: [AtomicU8; 65_536] = [const { AtomicU8::new(0) }; 65_536];
const OTHER: u8 = 1;
const FIRST: u8 = 2;

/// Control messages that the program asked for, and how it sends.
pub(crate) mod options {
    pub(crate) const PACKET_INFO: u64 = 1;
    pub(crate) const TTL: u64 = 1 << 1;
    pub(crate) const TOS: u64 = 1 << 2;
    pub(crate) const PACKET_INFO_V6: u64 = 1 << 3;
    pub(crate) const HOP_LIMIT: u64 = 1 << 4;
    pub(crate) const TRAFFIC_CLASS: u64 = 1 << 5;
    /// Only the kernel can send as this socket wants to.
    pub(crate) const BY_KERNEL: u64 = 1 << 6;
    pub(crate) const MAY_FRAGMENT: u64 = 1 << 7;
    pub(crate) const IS_V6: u64 = 1 << 8;
    /// Where the numbers are: hop limit and traffic class, of IPv4 and of IPv6.
    pub(crate) const NUMBERS: [u32; 4] = [16, 24, 32, 40];
    pub(crate) const KNOWN: u64 = 1 << 63;
}

/// Options that answer in control messages which this library does not make, or that choose
/// datagrams: a socket with one receives from the kernel.
const FOREIGN: [(c_int, c_int); 24] = [
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
    (libc::SOL_SOCKET, 75), // SO_RCVMARK
    (libc::IPPROTO_IP, libc::IP_RECVOPTS),
    (libc::IPPROTO_IP, libc::IP_RETOPTS),
    (libc::IPPROTO_IP, libc::IP_PASSSEC),
    (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR),
    (libc::IPPROTO_IP, 23), // IP_CHECKSUM
    (libc::IPPROTO_IP, 25), // IP_RECVFRAGSIZE
    (libc::IPPROTO_IP, libc::IP_MINTTL),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_UDP, 100), // UDP_ENCAP
    (libc::IPPROTO_IPV6, libc::IPV6_RECVRTHDR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVDSTOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVORIGDSTADDR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPATHMTU),
    (libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_2292PKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_2292HOPLIMIT),
    (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVFRAGSIZE),
];

/// Options of sending that a frame of this library would not honour.
const KERNEL_SENDS: [(c_int, c_int); 11] = [
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_NO_CHECK),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_TXTIME),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_UNICAST_IF),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF),
    (libc::IPPROTO_UDP, libc::UDP_CORK),
    (libc::IPPROTO_UDP, libc::UDP_SEGMENT),
];

/// Options with a bit each.
const ASKED: [(c_int, c_int, u64); 6] = [
    (libc::IPPROTO_IP, libc::IP_PKTINFO, options::PACKET_INFO),
    (libc::IPPROTO_IP, libc::IP_RECVTTL, options::TTL),
    (libc::IPPROTO_IP, libc::IP_RECVTOS, options::TOS),
    (
        libc::IPPROTO_IPV6,
        libc::IPV6_RECVPKTINFO,
        options::PACKET_INFO_V6,
    ),
    (
        libc::IPPROTO_IPV6,
        libc::IPV6_RECVHOPLIMIT,
        options::HOP_LIMIT,
    ),
    (
        libc::IPPROTO_IPV6,
        libc::IPV6_RECVTCLASS,
        options::TRAFFIC_CLASS,
    ),
];

/// Options with a number each, in the order of [`options::NUMBERS`].
const NUMBERED: [(c_int, c_int); 4] = [
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
];

const UDP_GRO: c_int = 104;
/// `SO_GET_FILTER` of include/uapi/asm-generic/socket.h.
const SO_GET_FILTER: c_int = libc::SO_ATTACH_FILTER;

/// Forgets what was known: the number may stand for another file now.
#[inline]
pub(crate) fn forget(fd: c_int) {
    if let Some(known) = KNOWN.get(fd as usize) {
        known.store(0, Relaxed);
    }
}

/// The place of a socket that was found to be one of the port.
pub(crate) fn known(fd: c_int) -> Option<usize> {
    let known = KNOWN.get(fd as usize)?.load(Relaxed);
    (known >= FIRST).then(|| usize::from(known - FIRST))
}

/// The place of a socket of the port; none for all other descriptors.
#[inline]
pub(crate) fn place(session: &ProgramSession, fd: c_int) -> Option<usize> {
    let known = KNOWN.get(usize::try_from(fd).ok()?)?;
    match known.load(Relaxed) {
        OTHER => None,
        0 => {
            let found = kernel::keeping_errno(|| look(session, fd));
            if let Some(found) = found {
                known.store(found, Relaxed);
            }
            found
                .filter(|found| *found >= FIRST)
                .map(|found| usize::from(found - FIRST))
        }
        found => Some(usize::from(found - FIRST)),
    }
}

/// The kind of a descriptor; none if that may still change.
#[cold]
fn look(session: &ProgramSession, fd: c_int) -> Option<u8> {
    let number = |level, name| option::<c_int>(fd, level, name).map(|(value, _)| value);
    let family = match number(libc::SOL_SOCKET, libc::SO_DOMAIN) {
        Some(family @ (libc::AF_INET | libc::AF_INET6)) => family,
        // A number without a file may get one.
        None if kernel::errno() == libc::EBADF => return None,
        _ => return Some(OTHER),
    };
    if number(libc::SOL_SOCKET, libc::SO_PROTOCOL) != Some(libc::IPPROTO_UDP) {
        return Some(OTHER);
    }
    let (address, port) = name(fd, libc::SYS_getsockname)?;
    if port == 0 {
        return None;
    }
    let control = session.control();
    let (port, none) = (u32::from(port), 0);
    let wanted = control.port.compare_exchange(none, port, Relaxed, Relaxed);
    if !matches!(wanted, Ok(_) | Err(_) if control.port.load(Relaxed) == port) {
        return Some(OTHER);
    }
    let is_foreign = |(level, name)| number(level, name).is_some_and(|value| value > 0);
    let filter = option::<[u64; 0]>(fd, libc::SOL_SOCKET, SO_GET_FILTER);
    let has_filter = filter.is_some_and(|(_, count)| count > 0);
    // A connected socket takes one peer's datagrams. The launcher sees it, and switches nothing.
    let is_connected = name(fd, libc::SYS_getpeername).is_some();
    if is_connected || has_filter || FOREIGN.into_iter().any(is_foreign) {
        return Some(OTHER);
    }
    let (cookie, _) = option::<u64>(fd, libc::SOL_SOCKET, libc::SO_COOKIE)?;
    let only_v6 = number(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1);
    let families = match (family, address) {
        (libc::AF_INET, _) => 1,
        (_, 0) if !only_v6 => 3,
        (_, address) if mpps_os::xdp::shared::is_v4(address) => 1,
        _ => 2,
    };
    let is_former = |socket: &PortSocket| {
        let of = socket.cookie.load(Relaxed);
        let same = (socket.address.load(), socket.families.load(Relaxed)) == (address, families);
        of != 0 && of != cookie && same
    };
    if control.sockets.iter().any(is_former) {
        session.tell(true);
    }
    let _lock = session.lock()?;
    let places = || control.sockets.iter().zip(FIRST..);
    let known = places().find(|(socket, _)| socket.cookie.load(Relaxed) == cookie);
    let free = || places().find(|(socket, _)| socket.cookie.load(Relaxed) == 0);
    let Some((socket, at)) = known.or_else(free) else {
        return Some(OTHER);
    };
    socket.address.store(address);
    socket.families.store(families, Relaxed);
    socket.options.store(0, Relaxed);
    if socket.cookie.swap(cookie, Relaxed) != cookie {
        session.tell(false);
    }
    Some(at)
}

/// The options of a socket, read again after a change.
#[inline]
pub(crate) fn options_of(socket: &PortSocket, fd: c_int) -> u64 {
    match socket.options.load(Relaxed) {
        0 => kernel::keeping_errno(|| {
            let read = read(fd);
            socket.options.store(read, Relaxed);
            read
        }),
        known => known,
    }
}

#[cold]
fn read(fd: c_int) -> u64 {
    let number = |level, name| option::<c_int>(fd, level, name).map_or(0, |(value, _)| value);
    let mut read = options::KNOWN;
    for (level, name, bit) in ASKED {
        read |= if number(level, name) != 0 { bit } else { 0 };
    }
    for ((level, name), shift) in NUMBERED.into_iter().zip(options::NUMBERS) {
        read |= (number(level, name) as u64 & 0xff) << shift;
    }
    if KERNEL_SENDS
        .into_iter()
        .any(|(level, name)| number(level, name) > 0)
    {
        read |= options::BY_KERNEL;
    }
    let discover = number(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
    if [
        libc::IP_PMTUDISC_DONT,
        libc::IP_PMTUDISC_INTERFACE,
        libc::IP_PMTUDISC_OMIT,
    ]
    .contains(&discover)
    {
        read |= options::MAY_FRAGMENT;
    }
    if number(libc::SOL_SOCKET, libc::SO_DOMAIN) == libc::AF_INET6 {
        read |= options::IS_V6;
    }
    read
}

/// An option was set: it is read again, and a foreign one gives the datagrams back.
pub(crate) fn option_set(session: &ProgramSession, fd: c_int, level: c_int, name: c_int) {
    let known = KNOWN
        .get(fd as usize)
        .map_or(0, |known| known.load(Relaxed));
    if known == OTHER && (level != libc::IPPROTO_UDP || name != UDP_GRO) {
        return;
    }
    let Some(place) = place(session, fd) else {
        return;
    };
    session.control().sockets[place].options.store(0, Relaxed);
    if FOREIGN.contains(&(level, name)) || name == libc::SO_ATTACH_FILTER {
        leave(session, fd);
    }
}

/// The socket's datagrams are the kernel's again: the launcher switches nothing while a socket of the
/// port is not registered.
pub(crate) fn leave(session: &ProgramSession, fd: c_int) {
    if let Some(place) = place(session, fd) {
        session.control().sockets[place].cookie.store(0, Relaxed);
        KNOWN[fd as usize].store(OTHER, Relaxed);
        session.tell(true);
    }
}

/// An address and port, by `getsockname(2)` or `getpeername(2)`.
pub(crate) fn name(fd: c_int, call: libc::c_long) -> Option<(u128, u16)> {
    // SAFETY: zeros are an address without a family.
    let mut address: sockaddr_storage = unsafe { zeroed() };
    let mut bytes = size_of::<sockaddr_storage>() as socklen_t;
    let words = [
        fd as usize,
        (&raw mut address) as usize,
        (&raw mut bytes) as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most `bytes`.
    if unsafe { kernel::call(call, words) } != 0 {
        return None;
    }
    // SAFETY: the storage is as long as any address.
    unsafe { address_of((&raw const address).cast(), bytes) }
        .map(|(address, port, _)| (address, port))
}

/// The address, port and scope of a socket address; none for other families.
///
/// # Safety
/// That number of bytes can be read.
pub(crate) unsafe fn address_of(
    at: *const libc::sockaddr,
    bytes: socklen_t,
) -> Option<(u128, u16, u32)> {
    if at.is_null() || (bytes as usize) < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: the family is in every address that is long enough.
    match c_int::from(unsafe { (*at).sa_family }) {
        libc::AF_INET => {
            // SAFETY: it is long enough for this family.
            let v4 = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            let address = u32::from_be(v4.sin_addr.s_addr);
            let mapped = if address == 0 {
                0
            } else {
                0xffff << 32 | u128::from(address)
            };
            Some((mapped, u16::from_be(v4.sin_port), 0))
        }
        libc::AF_INET6 if bytes as usize >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: it is long enough for this family.
            let v6 = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = u128::from_be_bytes(v6.sin6_addr.s6_addr);
            Some((address, u16::from_be(v6.sin6_port), v6.sin6_scope_id))
        }
        _ => None,
    }
}
