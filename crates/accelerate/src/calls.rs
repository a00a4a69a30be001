//! The replaced functions of the C library.
//!
//! Each hands on what its system call would get. `__recv_chk` and its kin are what a program calls
//! that was compiled with `_FORTIFY_SOURCE`.
#![allow(
    clippy::missing_safety_doc,
    reason = "the contracts are those of the C library"
)]

use crate::epoll;
use crate::kernel::{self, refuse};
use crate::poll;
use crate::receive::{message_of, part_of, receive};
use crate::send::send;
use crate::session::session;
use crate::socket;
use libc::{c_int, c_long, c_ulong, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr};
use libc::{nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// Defines functions with the names of the C library.
macro_rules! replaced {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty $body:block)+) => {
        $(
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $answer {
                // SAFETY: the caller keeps the contract of the function of the C library.
                #[allow(unused_unsafe, reason = "some need none")]
                unsafe { $body }
            }
        )+
    };
}

/// True if the kernel is to do it: no session, or another descriptor.
fn is_other(fd: c_int) -> bool {
    session().is_none_or(|session| socket::place(session, fd).is_none())
}

replaced! {
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        receive(fd, message, flags)
    }

    recvfrom(fd: c_int, at: *mut c_void, bytes: size_t, flags: c_int, name: *mut sockaddr,
             name_bytes: *mut socklen_t) -> ssize_t {
        if is_other(fd) {
            let words = [fd as usize, at as usize, bytes, flags as usize, name as usize, name_bytes as usize];
            return kernel::call(libc::SYS_recvfrom, words);
        }
        let mut part = part_of(at, bytes);
        let mut message = message_of(&mut part);
        if !name.is_null() {
            message.msg_name = name.cast();
            message.msg_namelen = *name_bytes;
        }
        let received = receive(fd, &raw mut message, flags);
        if received >= 0 && !name.is_null() {
            *name_bytes = message.msg_namelen;
        }
        received
    }

    recv(fd: c_int, at: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
        recvfrom(fd, at, bytes, flags, null_mut(), null_mut())
    }

    __recv_chk(fd: c_int, at: *mut c_void, bytes: size_t, _room: size_t, flags: c_int) -> ssize_t {
        recvfrom(fd, at, bytes, flags, null_mut(), null_mut())
    }

    __recvfrom_chk(fd: c_int, at: *mut c_void, bytes: size_t, _room: size_t, flags: c_int,
                   name: *mut sockaddr, name_bytes: *mut socklen_t) -> ssize_t {
        recvfrom(fd, at, bytes, flags, name, name_bytes)
    }

    read(fd: c_int, at: *mut c_void, bytes: size_t) -> ssize_t {
        // A socket reads nothing into nothing, and keeps its datagram.
        if bytes == 0 || is_other(fd) {
            return kernel::call(libc::SYS_read, [fd as usize, at as usize, bytes, 0, 0, 0]);
        }
        recvfrom(fd, at, bytes, 0, null_mut(), null_mut())
    }

    __read_chk(fd: c_int, at: *mut c_void, bytes: size_t, _room: size_t) -> ssize_t {
        read(fd, at, bytes)
    }

    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        if count <= 0 || is_other(fd) {
            return kernel::call(libc::SYS_readv, [fd as usize, parts as usize, count as usize, 0, 0, 0]);
        }
        let mut message = message_of(&mut *parts.cast_mut());
        message.msg_iovlen = count as usize;
        receive(fd, &raw mut message, 0)
    }

    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int, time: *mut timespec) -> c_int {
        if is_other(fd) {
            let words = [fd as usize, messages as usize, count as usize, flags as usize, time as usize, 0];
            return kernel::call(libc::SYS_recvmmsg, words) as c_int;
        }
        let limit = time.as_ref().map(duration);
        if limit.is_some_and(|limit| limit.is_none()) {
            return refuse(libc::EINVAL) as c_int;
        }
        let ends = limit.flatten().map(|limit| Instant::now() + limit);
        let mut now = flags & !libc::MSG_WAITFORONE;
        for at in 0..count {
            let message = messages.add(at as usize);
            let received = receive(fd, &raw mut (*message).msg_hdr, now);
            if received < 0 {
                return if at == 0 { -1 } else { at as c_int };
            }
            (*message).msg_len = received as u32;
            if flags & libc::MSG_WAITFORONE != 0 {
                now |= libc::MSG_DONTWAIT;
            }
            if let Some(ends) = ends {
                let left = ends.saturating_duration_since(Instant::now());
                time.write(kernel::timespec_of(left));
                if left.is_zero() {
                    return at as c_int + 1;
                }
            }
        }
        count as c_int
    }

    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        send(fd, message, flags, true)
    }

    sendto(fd: c_int, at: *const c_void, bytes: size_t, flags: c_int, name: *const sockaddr,
           name_bytes: socklen_t) -> ssize_t {
        if name.is_null() || is_other(fd) {
            if let Some(session) = session() && !is_other(fd) {
                session.flush();
            }
            let words = [fd as usize, at as usize, bytes, flags as usize, name as usize, name_bytes as usize];
            return kernel::call(libc::SYS_sendto, words);
        }
        let mut part = part_of(at, bytes);
        let mut message = message_of(&mut part);
        message.msg_name = name.cast_mut().cast();
        message.msg_namelen = name_bytes;
        send(fd, &raw const message, flags, true)
    }

    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int) -> c_int {
        if is_other(fd) {
            let words = [fd as usize, messages as usize, count as usize, flags as usize, 0, 0];
            return kernel::call(libc::SYS_sendmmsg, words) as c_int;
        }
        // `UIO_MAXIOV`, as in the kernel.
        let count = count.min(1024);
        for at in 0..count {
            let message = messages.add(at as usize);
            let sent = send(fd, &raw const (*message).msg_hdr, flags, at + 1 == count);
            if sent < 0 {
                if at > 0 && let Some(session) = session() {
                    session.flush();
                }
                return if at == 0 { -1 } else { at as c_int };
            }
            (*message).msg_len = sent as u32;
        }
        count as c_int
    }

    ppoll(fds: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int {
        let Some(limit) = time.as_ref().map(duration) else {
            return polled(fds, count, None, mask);
        };
        match limit {
            Some(limit) => polled(fds, count, Some(limit), mask),
            None => refuse(libc::EINVAL) as c_int,
        }
    }

    poll(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int {
        polled(fds, count, u64::try_from(ms).ok().map(Duration::from_millis), null())
    }

    __poll_chk(fds: *mut pollfd, count: nfds_t, ms: c_int, _room: size_t) -> c_int {
        poll(fds, count, ms)
    }

    __ppoll_chk(fds: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t,
                _room: size_t) -> c_int {
        ppoll(fds, count, time, mask)
    }

    pselect(count: c_int, first: *mut fd_set, second: *mut fd_set, third: *mut fd_set,
            time: *const timespec, mask: *const sigset_t) -> c_int {
        let limit = time.as_ref().map(duration);
        if limit != Some(None)
            && let Some(found) = poll::select(count, [first, second, third], limit.flatten(), mask)
        {
            return found as c_int;
        }
        let mut time = time.as_ref().copied();
        let time = time.as_mut().map_or(0, |time| (&raw mut *time) as usize);
        let mask = [mask as usize, kernel::MASK_BYTES];
        let words = [count as usize, first as usize, second as usize, third as usize, time, mask.as_ptr() as usize];
        kernel::call(libc::SYS_pselect6, words) as c_int
    }

    select(count: c_int, first: *mut fd_set, second: *mut fd_set, third: *mut fd_set,
           time: *mut timeval) -> c_int {
        let mut limit = None;
        if let Some(time) = time.as_ref() {
            if time.tv_sec < 0 || time.tv_usec < 0 {
                return refuse(libc::EINVAL) as c_int;
            }
            let (more, us) = (time.tv_usec / 1_000_000, time.tv_usec % 1_000_000);
            limit = Some(timespec { tv_sec: time.tv_sec + more, tv_nsec: us * 1000 });
        }
        let began = Instant::now();
        let at = limit.as_ref().map_or(null(), |limit| &raw const *limit);
        let found = pselect(count, first, second, third, at, null());
        if let (Some(time), Some(limit)) = (time.as_mut(), limit.as_ref().and_then(duration)) {
            let left = limit.saturating_sub(began.elapsed());
            (time.tv_sec, time.tv_usec) = (left.as_secs() as i64, left.subsec_micros().into());
        }
        found
    }

    epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        epoll::control(set, operation, fd, event) as c_int
    }

    epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, ms: c_int,
                mask: *const sigset_t) -> c_int {
        let limit = u64::try_from(ms).ok().map(Duration::from_millis);
        epoll::wait(set, events, most, limit, mask) as c_int
    }

    epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, ms: c_int) -> c_int {
        epoll_pwait(set, events, most, ms, null())
    }

    epoll_pwait2(set: c_int, events: *mut epoll_event, most: c_int, time: *const timespec,
                 mask: *const sigset_t) -> c_int {
        match time.as_ref().map(duration) {
            Some(None) => refuse(libc::EINVAL) as c_int,
            limit => epoll::wait(set, events, most, limit.flatten(), mask) as c_int,
        }
    }

    close(fd: c_int) -> c_int {
        if session().is_some_and(|session| session.is_own(fd)) {
            return refuse(libc::EBADF) as c_int;
        }
        closing(fd, || kernel::close(fd)) as c_int
    }

    close_range(first: u32, last: u32, flags: c_int) -> c_int {
        let Some(session) = session().filter(|_| flags == 0) else {
            return kernel::call(libc::SYS_close_range, [first as usize, last as usize, flags as usize, 0, 0, 0]) as c_int;
        };
        // No library's descriptor lies behind this number.
        let mut from = first;
        for fd in first..=last.min(65_535) {
            if session.is_own(fd as c_int) {
                if from < fd {
                    kernel::call(libc::SYS_close_range, [from as usize, fd as usize - 1, 0, 0, 0, 0]);
                }
                from = fd + 1;
            } else {
                closing(fd as c_int, || 0);
            }
        }
        kernel::call(libc::SYS_close_range, [from as usize, last as usize, 0, 0, 0, 0]) as c_int
    }

    closefrom(first: c_int) -> () {
        close_range(first.max(0) as u32, u32::MAX, 0);
    }

    dup2(from: c_int, to: c_int) -> c_int {
        if from == to {
            return if kernel::fcntl(from, libc::F_GETFD, 0) < 0 { -1 } else { to };
        }
        dup3(from, to, 0)
    }

    dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        let words = [from as usize, to as usize, flags as usize, 0, 0, 0];
        let copy = || kernel::call(libc::SYS_dup3, words);
        (if from == to { copy() } else { closing(to, copy) }) as c_int
    }

    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        let fd = kernel::call(libc::SYS_socket, [domain as usize, kind as usize, protocol as usize, 0, 0, 0]) as c_int;
        socket::forget(fd);
        fd
    }

    bind(fd: c_int, name: *const sockaddr, bytes: socklen_t) -> c_int {
        // It may get the wanted port now.
        socket::forget(fd);
        kernel::call(libc::SYS_bind, [fd as usize, name as usize, bytes as usize, 0, 0, 0]) as c_int
    }

    connect(fd: c_int, name: *const sockaddr, bytes: socklen_t) -> c_int {
        if let Some(session) = session() && !is_other(fd) {
            session.flush();
            socket::leave(session, fd);
        }
        kernel::call(libc::SYS_connect, [fd as usize, name as usize, bytes as usize, 0, 0, 0]) as c_int
    }

    shutdown(fd: c_int, how: c_int) -> c_int {
        if let Some(session) = session() && !is_other(fd) {
            session.flush();
            socket::leave(session, fd);
        }
        kernel::call(libc::SYS_shutdown, [fd as usize, how as usize, 0, 0, 0, 0]) as c_int
    }

    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, bytes: socklen_t) -> c_int {
        let words = [fd as usize, level as usize, name as usize, value as usize, bytes as usize, 0];
        let set = kernel::call(libc::SYS_setsockopt, words) as c_int;
        if let Some(session) = session() && set == 0 {
            socket::option_set(session, fd, level, name);
        }
        set
    }

    ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        if request == libc::FIONREAD && let Some(session) = session()
            && let Some(place) = socket::place(session, fd)
            && let Some(bytes) = session.next_bytes(place)
        {
            (argument as *mut c_int).write(bytes as c_int);
            return 0;
        }
        kernel::call(libc::SYS_ioctl, [fd as usize, request as usize, argument, 0, 0, 0]) as c_int
    }

    write(fd: c_int, at: *const c_void, bytes: size_t) -> ssize_t {
        // Without a name only the kernel sends; what was sent before goes out before it.
        if let Some(session) = session() && !is_other(fd) {
            session.flush();
        }
        kernel::call(libc::SYS_write, [fd as usize, at as usize, bytes, 0, 0, 0])
    }

    syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        let fd = a as c_int;
        (match number {
            libc::SYS_recvfrom => recvfrom(fd, b as *mut c_void, c, d as c_int, e as *mut sockaddr, f as *mut socklen_t),
            libc::SYS_recvmsg => recvmsg(fd, b as *mut msghdr, c as c_int),
            libc::SYS_recvmmsg => recvmmsg(fd, b as *mut mmsghdr, c as u32, d as c_int, e as *mut timespec) as isize,
            libc::SYS_sendto => sendto(fd, b as *const c_void, c, d as c_int, e as *const sockaddr, f as socklen_t),
            libc::SYS_sendmsg => sendmsg(fd, b as *const msghdr, c as c_int),
            libc::SYS_sendmmsg => sendmmsg(fd, b as *mut mmsghdr, c as u32, d as c_int) as isize,
            libc::SYS_close => close(fd) as isize,
            libc::SYS_epoll_ctl => epoll_ctl(fd, b as c_int, c as c_int, d as *mut epoll_event) as isize,
            libc::SYS_epoll_pwait => epoll_pwait(fd, b as *mut epoll_event, c as c_int, d as c_int, e as *const sigset_t) as isize,
            _ => kernel::call(number, [a, b, c, d, e, f]),
        }) as c_long
    }
}

/// A time that the kernel would take.
fn duration(time: &timespec) -> Option<Duration> {
    let nanoseconds = u32::try_from(time.tv_nsec)
        .ok()
        .filter(|ns| *ns < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, nanoseconds))
}

unsafe fn polled(
    fds: *mut pollfd,
    count: nfds_t,
    time: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    let fds = match count {
        0 => &mut [],
        // SAFETY: the caller has that number of them.
        count => unsafe { std::slice::from_raw_parts_mut(fds, count as usize) },
    };
    // SAFETY: the mask is the caller's.
    unsafe { poll::ppoll(fds, time, mask) as c_int }
}

/// Closes a descriptor, or puts another file in its place.
fn closing(fd: c_int, close: impl FnOnce() -> isize) -> isize {
    let Some(session) = session().filter(|_| fd >= 0) else {
        return close();
    };
    epoll::closing(fd);
    let known = socket::known(fd);
    if known.is_some() {
        session.flush();
    }
    socket::forget(fd);
    let closed = close();
    if let Some(place) = known {
        kernel::keeping_errno(|| {
            session.tell(true);
            session.lock().map(|mut locked| locked.purge(place))
        });
    }
    closed
}
