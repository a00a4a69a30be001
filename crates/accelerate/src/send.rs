//! Sending: by a ring to a host that sent something, otherwise by the kernel.

use crate::frame::{self, Answer};
use crate::kernel;
use crate::receive::is_link_local;
use crate::session::{ProgramSession, session};
use crate::socket::{self, address_of, options, options_of};
use libc::{c_int, msghdr};
use mpps_os::xdp::shared::{Control, Counts, RingPeer, is_v4};
use std::mem::{size_of, zeroed};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long the kernel's choice of a source address is believed.
const CHECK_MS: u64 = 1000;
const ETHERNET_BYTES: usize = 14;

/// Why the kernel sends a datagram: the counter of the reason.
type ByKernel = fn(&Counts) -> &AtomicU64;

/// `sendmsg(2)`; `is_last` unless the same call sends more.
///
/// # Safety
/// The kernel can read the message.
pub(crate) unsafe fn send(fd: c_int, message: *const msghdr, flags: c_int, is_last: bool) -> isize {
    if let Some(session) = session()
        && let Some(place) = socket::place(session, fd)
    {
        // SAFETY: by the contract of this function.
        match unsafe { by_ring(session, place, fd, &*message, flags) } {
            Ok((bytes, is_more_waiting)) => {
                session.control().counts.sent_by_ring.fetch_add(1, Relaxed);
                session.sent(1, is_more_waiting || !is_last);
                return bytes as isize;
            }
            Err(reason) => {
                let counts = &session.control().counts;
                reason.map(|reason| reason(counts).fetch_add(1, Relaxed));
                session.flush();
            }
        }
    }
    let words = [fd as usize, message as usize, flags as usize, 0, 0, 0];
    // SAFETY: by the contract of this function.
    unsafe { kernel::call(libc::SYS_sendmsg, words) }
}

/// Puts a datagram into a ring; answers its bytes, and whether more wait to be received.
///
/// # Safety
/// As for [`send`].
unsafe fn by_ring(
    session: &ProgramSession,
    place: usize,
    fd: c_int,
    message: &msghdr,
    flags: c_int,
) -> Result<(usize, bool), Option<ByKernel>> {
    let control = session.control();
    let now_ms = mpps_os::clock::monotonic_coarse_ns() / 1_000_000;
    if !control.is_switched() || control.alive_until_ms.load(Relaxed) < now_ms {
        return Err(None);
    }
    let socket = &control.sockets[place];
    let asked = options_of(socket, fd);
    // SAFETY: by the contract of this function.
    let addressed = unsafe { addressed(control, asked, message, flags) };
    let (target, port, info) = addressed.ok_or(Some((|counts| &counts.options) as ByKernel))?;
    // SAFETY: the message has that number of buffers.
    let parts = unsafe { parts(message) };
    let lengths = parts.iter().map(|part| part.iov_len);
    let bytes = lengths.fold(0, usize::saturating_add);
    let longest = (control.mtu.load(Relaxed) as usize + ETHERNET_BYTES)
        .min(control.frame_bytes.load(Relaxed) as usize);
    if bytes > longest || frame::headers(target) + bytes > longest {
        return Err(Some(|counts| &counts.too_long));
    }
    let mut locked = session.lock().ok_or(None)?;
    let peer = control.peer(target);
    if peer.address.load() != target {
        return Err(Some(|counts| &counts.no_neighbour));
    }
    let bound = Some(socket.address.load()).filter(|bound| *bound != 0);
    let source = source(control, peer, target, info.or(bound), now_ms);
    let source = source.ok_or(Some((|counts| &counts.other_way) as ByKernel))?;
    let hardware = peer.hardware.load(Relaxed);
    let [hops, class] = if is_v4(target) { [0, 1] } else { [2, 3] };
    let number = |at: usize| (asked >> options::NUMBERS[at]) as u8;
    let answer = Answer {
        own_hardware: control.hardware.load(Relaxed),
        hardware: hardware & 0xffff_ffff_ffff,
        source,
        target,
        ports: [control.port.load(Relaxed) as u16, port],
        traffic_class: number(class),
        hop_limit: number(hops),
        may_fragment: asked & options::MAY_FRAGMENT != 0,
        identification: control.identification.fetch_add(1, Relaxed) as u16,
    };
    let at = (hardware >> 48) as usize % session.queue_fds.len();
    let queue = &mut locked.queues()[at];
    let mut send = || {
        queue.send(&control.fresh[at], |frame| {
            let mut from = frame::headers(target);
            for part in parts {
                // SAFETY: the caller's buffer has that length.
                unsafe {
                    let to = frame[from..from + part.iov_len].as_mut_ptr();
                    to.copy_from(part.iov_base.cast(), part.iov_len);
                }
                from += part.iov_len;
            }
            frame::write(frame, &answer, bytes)
        })
    };
    if !send() {
        kernel::keeping_errno(|| session.flush());
        if !send() {
            return Err(Some(|counts| &counts.no_frame));
        }
    }
    Ok((bytes, queue.next().is_some()))
}

/// The target, its port, and the source that a control message asks for; none if only the kernel can
/// send the datagram.
///
/// # Safety
/// As for [`send`].
unsafe fn addressed(
    control: &Control,
    asked: u64,
    message: &msghdr,
    flags: c_int,
) -> Option<(u128, u16, Option<u128>)> {
    let known = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CONFIRM;
    if asked & options::BY_KERNEL != 0 || flags & !known != 0 {
        return None;
    }
    // SAFETY: the caller's name and control messages have those lengths.
    let (name, info) = unsafe {
        let name = address_of(message.msg_name.cast(), message.msg_namelen);
        (name?, packet_info(message, control)?)
    };
    let (target, port, scope) = name;
    let is_long = message.msg_namelen as usize >= size_of::<libc::sockaddr_in6>();
    let is_v6 = asked & options::IS_V6 != 0;
    let index = control.interface_index.load(Relaxed);
    let is_known = target != 0 && port != 0 && [0, index].contains(&scope) && is_long == is_v6;
    is_known.then_some((target, port, info))
}

/// The source address of an answer: the `wanted` one, or the kernel's choice. None if the route to the
/// peer leads out of another interface, or the address is not this interface's.
fn source(
    control: &Control,
    peer: &RingPeer,
    target: u128,
    wanted: Option<u128>,
    now_ms: u64,
) -> Option<u128> {
    if peer.checked_ms.load(Relaxed) + CHECK_MS < now_ms {
        let chosen = kernel::keeping_errno(|| route(control, target));
        peer.source.store(chosen.unwrap_or(0));
        peer.checked_ms.store(now_ms, Relaxed);
    }
    let chosen = peer.source.load();
    let source = wanted.unwrap_or(chosen);
    let is_own = |address| address != 0 && control.has_address(address);
    (is_own(chosen) && is_own(source)).then_some(source)
}

/// # Safety
/// The message has the right number of buffers.
unsafe fn parts(message: &msghdr) -> &[libc::iovec] {
    match message.msg_iovlen {
        0 => &[],
        // SAFETY: by the contract of this function.
        count => unsafe { std::slice::from_raw_parts(message.msg_iov, count) },
    }
}

/// The source address of `IP_PKTINFO` or `IPV6_PKTINFO`, if there is one; nothing if the control
/// messages ask for something different.
///
/// # Safety
/// The control buffer has that length.
unsafe fn packet_info(message: &msghdr, control: &Control) -> Option<Option<u128>> {
    let mut source = None;
    if message.msg_controllen == 0 || message.msg_control.is_null() {
        return Some(None);
    }
    let own = control.interface_index.load(Relaxed);
    // SAFETY: by the contract of this function; the macros of the C library stay inside of it.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            let bytes = (*at).cmsg_len - size_of::<libc::cmsghdr>();
            let (address, index) = match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if bytes == size_of::<libc::in_pktinfo>() => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let address = u32::from_be(info.ipi_spec_dst.s_addr);
                    let mapped = if address == 0 {
                        0
                    } else {
                        0xffff << 32 | u128::from(address)
                    };
                    (mapped, info.ipi_ifindex as u32)
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
                    if bytes == size_of::<libc::in6_pktinfo>() =>
                {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    let address = u128::from_be_bytes(info.ipi6_addr.s6_addr);
                    (address, info.ipi6_ifindex)
                }
                _ => return None,
            };
            if index != 0 && index != own {
                return None;
            }
            source = Some(address).filter(|address| *address != 0);
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
    Some(source)
}

/// The source address that the kernel would choose: a socket is connected, and asked.
#[cold]
fn route(control: &Control, target: u128) -> Option<u128> {
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: zeros are addresses; the kernel reads as many bytes as it is given.
    unsafe {
        let mut v4: libc::sockaddr_in = zeroed();
        v4.sin_family = libc::AF_INET as u16;
        v4.sin_port = 9_u16.to_be();
        v4.sin_addr.s_addr = (target as u32).to_be();
        let mut v6: libc::sockaddr_in6 = zeroed();
        v6.sin6_family = libc::AF_INET6 as u16;
        v6.sin6_port = 9_u16.to_be();
        v6.sin6_addr.s6_addr = target.to_be_bytes();
        if is_link_local(target) {
            v6.sin6_scope_id = control.interface_index.load(Relaxed);
        }
        let (family, at, bytes) = match is_v4(target) {
            true => (
                libc::AF_INET,
                (&raw const v4) as usize,
                size_of::<libc::sockaddr_in>(),
            ),
            false => (
                libc::AF_INET6,
                (&raw const v6) as usize,
                size_of::<libc::sockaddr_in6>(),
            ),
        };
        let fd = kernel::call(libc::SYS_socket, [family as usize, kind, 0, 0, 0, 0]) as c_int;
        if fd < 0 {
            return None;
        }
        let words = [fd as usize, at, bytes, 0, 0, 0];
        let is_connected = kernel::call(libc::SYS_connect, words) == 0;
        let name = socket::name(fd, libc::SYS_getsockname).filter(|_| is_connected);
        kernel::close(fd);
        name.map(|(address, _)| address)
    }
}
