//! Receiving: from the rings, then from the kernel's socket.

use crate::frame::RingDatagram;
use crate::kernel::{self, refuse};
use crate::session::{ProgramSession, session};
use crate::socket::{self, options};
use crate::{poll, socket::options_of};
use libc::{c_int, c_void, msghdr, socklen_t};
use mpps_os::xdp::shared::is_v4;
use std::cell::Cell;
use std::mem::{size_of, zeroed};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The kernel's socket is looked at first once in this number of calls, so that full rings do not
/// keep its datagrams and errors back.
const TURNS: u32 = 64;

thread_local! {
    static TURN: Cell<u32> = const { Cell::new(0) };
}

/// `recvmsg(2)`.
///
/// # Safety
/// The kernel can fill the message.
pub(crate) unsafe fn receive(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    let own = session().and_then(|session| Some((session, socket::place(session, fd)?)));
    let Some((session, place)) = own.filter(|_| flags & (libc::MSG_ERRQUEUE | libc::MSG_OOB) == 0)
    else {
        // SAFETY: by the contract of this function.
        return unsafe { kernel::recvmsg(fd, message, flags) };
    };
    let mut deadline = None;
    loop {
        // SAFETY: by the contract of this function.
        if let Some(result) = unsafe { try_receive(session, place, fd, message, flags) } {
            return result;
        }
        let may_wait = flags & libc::MSG_DONTWAIT == 0
            && kernel::fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK == 0;
        if !may_wait {
            return refuse(libc::EAGAIN);
        }
        let timeout = kernel::option::<libc::timeval>(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        let timeout = timeout.map(|(time, _)| {
            Duration::new(
                time.tv_sec.unsigned_abs(),
                time.tv_usec.unsigned_abs() as u32 * 1000,
            )
        });
        let limit = timeout.filter(|time| !time.is_zero());
        let ends = *deadline.get_or_insert_with(|| limit.map(|limit| Instant::now() + limit));
        let mut polled = [libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }];
        let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        // SAFETY: without a mask.
        match unsafe { poll::ppoll(&mut polled, left, std::ptr::null()) } {
            0 => return refuse(libc::EAGAIN),
            -1 if kernel::errno() == libc::EINTR && limit.is_none() && restarts() => {}
            -1 => return -1,
            _ => {}
        }
    }
}

/// Whether every handler of this process has `SA_RESTART`: the kernel restarts a receive call, and
/// never a `poll(2)`. It does not say which handler ran.
fn restarts() -> bool {
    (1..64).all(|signal| {
        // SAFETY: zeros are a valid action, and the call only reads the present one.
        let action = unsafe {
            let mut action: libc::sigaction = zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            action
        };
        let is_handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// One look at both; none if there is nothing.
///
/// # Safety
/// As for [`receive`].
unsafe fn try_receive(
    session: &ProgramSession,
    place: usize,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> Option<isize> {
    let control = session.control();
    let socket = &control.sockets[place];
    let switches = control.switches.load(Relaxed);
    let turn = TURN.replace(TURN.get().wrapping_add(1));
    // Datagrams from before the switch are older than those in the rings.
    let is_switching = control.is_switching.load(Relaxed) != 0;
    let is_kernel_first = is_switching
        || (control.is_switched() && socket.emptied.load(Relaxed) != switches)
        || turn.is_multiple_of(TURNS);
    // SAFETY: as for this function.
    let ring = || unsafe { from_ring(session, place, fd, message, flags) };
    if !is_kernel_first && let Some(bytes) = ring() {
        return Some(bytes);
    }
    if !is_kernel_first {
        session.flush();
    }
    // SAFETY: as for this function.
    let bytes = unsafe { kernel::recvmsg(fd, message, flags | libc::MSG_DONTWAIT) };
    if bytes >= 0 {
        let count = u64::from(flags & libc::MSG_PEEK == 0);
        control.counts.by_kernel.fetch_add(count, Relaxed);
        return Some(bytes);
    }
    if kernel::errno() != libc::EAGAIN {
        return Some(-1);
    }
    if is_kernel_first {
        if !is_switching {
            socket.emptied.store(switches, Relaxed);
        }
        if let Some(bytes) = ring() {
            return Some(bytes);
        }
        session.flush();
    }
    None
}

/// # Safety
/// As for [`receive`].
unsafe fn from_ring(
    session: &ProgramSession,
    place: usize,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> Option<isize> {
    let control = session.control();
    let asked = options_of(&control.sockets[place], fd);
    let mut locked = session.lock()?;
    let found = locked.next(place)?;
    let datagram = locked.datagram(found)?;
    // SAFETY: as for this function.
    let message = unsafe { &mut *message };
    // SAFETY: the caller's buffers can be written.
    let copied = unsafe { scatter(message, datagram.payload) };
    let index = control.interface_index.load(Relaxed);
    message.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
    if copied < datagram.payload.len() {
        message.msg_flags |= libc::MSG_TRUNC;
    }
    if !message.msg_name.is_null() {
        let is_v6 = asked & options::IS_V6 != 0;
        // SAFETY: the caller's name has that length.
        unsafe { write_name(message, is_v6, datagram.source, datagram.port, index) };
    }
    // SAFETY: the caller's control buffer has that length.
    unsafe { write_control(message, asked, &datagram, index) };
    let result = match flags & libc::MSG_TRUNC {
        0 => copied,
        _ => datagram.payload.len(),
    };
    if flags & libc::MSG_PEEK == 0 {
        let peer = control.peer(datagram.source);
        if peer.address.load() != datagram.source {
            peer.address.store(datagram.source);
            peer.checked_ms.store(0, Relaxed);
        }
        let hardware = datagram.hardware | (found.queue as u64) << 48;
        peer.hardware.store(hardware, Relaxed);
        locked.finish(place, found);
    }
    Some(result as isize)
}

/// # Safety
/// The buffers of the message can be written.
unsafe fn scatter(message: &msghdr, payload: &[u8]) -> usize {
    let mut rest = payload;
    for at in 0..message.msg_iovlen {
        // SAFETY: the message has that number of them.
        let part = unsafe { *message.msg_iov.add(at) };
        let (now, later) = rest.split_at(part.iov_len.min(rest.len()));
        // SAFETY: the caller's buffer has that length.
        unsafe {
            part.iov_base
                .cast::<u8>()
                .copy_from(now.as_ptr(), now.len())
        };
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    payload.len() - rest.len()
}

/// # Safety
/// The name has the length that the message has for it.
unsafe fn write_name(message: &mut msghdr, is_v6: bool, source: u128, port: u16, index: u32) {
    // SAFETY: zeros are an address.
    let (v4, v6) = unsafe {
        let mut v4: libc::sockaddr_in = zeroed();
        v4.sin_family = libc::AF_INET as u16;
        v4.sin_port = port.to_be();
        v4.sin_addr.s_addr = (source as u32).to_be();
        let mut v6: libc::sockaddr_in6 = zeroed();
        v6.sin6_family = libc::AF_INET6 as u16;
        v6.sin6_port = port.to_be();
        v6.sin6_addr.s6_addr = source.to_be_bytes();
        v6.sin6_scope_id = if is_link_local(source) { index } else { 0 };
        (v4, v6)
    };
    let (from, bytes): (*const u8, usize) = match is_v6 {
        true => ((&raw const v6).cast(), size_of::<libc::sockaddr_in6>()),
        false => ((&raw const v4).cast(), size_of::<libc::sockaddr_in>()),
    };
    let room = bytes.min(message.msg_namelen as usize);
    // SAFETY: by the contract of this function.
    unsafe { message.msg_name.cast::<u8>().copy_from(from, room) };
    message.msg_namelen = bytes as socklen_t;
}

/// `fe80::/10`.
pub(crate) fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

/// The control messages, in the order of `ip_cmsg_recv_offset` (net/ipv4/ip_sockglue.c) and
/// `ip6_datagram_recv_ctl` (net/ipv6/datagram.c).
///
/// # Safety
/// The control buffer has the length that the message has for it.
unsafe fn write_control(message: &mut msghdr, asked: u64, datagram: &RingDatagram<'_>, index: u32) {
    let (room, mut used, mut is_cut) = (message.msg_controllen, 0, false);
    let control = message.msg_control;
    let mut put = |bit: u64, level: c_int, kind: c_int, data: &[u8]| {
        if asked & bit == 0 {
            return;
        }
        let header = size_of::<libc::cmsghdr>();
        if control.is_null() || room - used < header {
            is_cut = true;
            return;
        }
        let bytes = (header + data.len()).min(room - used);
        is_cut |= bytes < header + data.len();
        // SAFETY: there is room for it.
        unsafe {
            let at = control.cast::<u8>().add(used);
            // SAFETY: zeros are a header.
            let mut head: libc::cmsghdr = zeroed();
            (head.cmsg_len, head.cmsg_level, head.cmsg_type) = (bytes, level, kind);
            at.cast::<libc::cmsghdr>().write_unaligned(head);
            at.add(header).copy_from(data.as_ptr(), bytes - header);
        }
        used += (header + data.len())
            .next_multiple_of(size_of::<usize>())
            .min(room - used);
    };
    let destination = datagram.destination;
    let (class, hops) = (
        datagram.traffic_class,
        c_int::from(datagram.hop_limit).to_ne_bytes(),
    );
    let index = index.to_ne_bytes();
    let info = [&destination.to_be_bytes()[..], &index].concat();
    put(
        options::PACKET_INFO_V6,
        libc::IPPROTO_IPV6,
        libc::IPV6_PKTINFO,
        &info,
    );
    if is_v4(destination) {
        let v4 = (destination as u32).to_be_bytes();
        let info = [index, v4, v4].concat();
        put(
            options::PACKET_INFO,
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            &info,
        );
        put(options::TTL, libc::IPPROTO_IP, libc::IP_TTL, &hops);
        put(options::TOS, libc::IPPROTO_IP, libc::IP_TOS, &[class]);
    } else {
        let class = c_int::from(class).to_ne_bytes();
        put(
            options::HOP_LIMIT,
            libc::IPPROTO_IPV6,
            libc::IPV6_HOPLIMIT,
            &hops,
        );
        put(
            options::TRAFFIC_CLASS,
            libc::IPPROTO_IPV6,
            libc::IPV6_TCLASS,
            &class,
        );
    }
    message.msg_controllen = used;
    if is_cut {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
}

/// A message of one buffer.
pub(crate) fn message_of(part: &mut libc::iovec) -> msghdr {
    // SAFETY: zeros are a message without anything.
    let mut message: msghdr = unsafe { zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message
}

/// A buffer of the caller.
pub(crate) fn part_of(at: *const c_void, bytes: usize) -> libc::iovec {
    libc::iovec {
        iov_base: at.cast_mut(),
        iov_len: bytes,
    }
}
