//! `epoll`: the rings join the program's own set, with the flags of the program's socket.
//!
//! The data of a ring's event says which registration it is for. The library takes these events out
//! again and adds the socket's, so that a program sees one event for a socket.

use crate::kernel;
use crate::poll::slice;
use crate::session::{ProgramSession, session};
use crate::socket;
use libc::{c_int, epoll_event};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The upper half of the data of a ring's event.
const MARK: u64 = 0x6d70_7073_0000_0000;
const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const KEPT: u32 = (libc::EPOLLET | libc::EPOLLEXCLUSIVE | libc::EPOLLWAKEUP) as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EDGE: u32 = libc::EPOLLET as u32;
/// With something in a ring, the kernel is asked for other events once in this number of calls.
const SKIPS: u32 = 16;

/// A socket of the port in a set.
struct Registration {
    set: c_int,
    fd: c_int,
    place: usize,
    events: u32,
    data: u64,
    mark: u64,
    /// Copies of the queues' descriptors, which only this registration uses.
    rings: Vec<c_int>,
    /// A ring said that something arrived.
    has_fired: bool,
    /// `EPOLLONESHOT`, and it was reported.
    is_spent: bool,
}

static REGISTRATIONS: Mutex<Vec<Registration>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT_MARK: AtomicU32 = AtomicU32::new(0);
static SKIPPED: AtomicU32 = AtomicU32::new(0);

fn with<T>(work: impl FnOnce(&mut Vec<Registration>) -> T) -> T {
    let mut all = REGISTRATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let result = work(&mut all);
    COUNT.store(all.len(), Relaxed);
    result
}

/// `epoll_ctl(2)`.
///
/// # Safety
/// The event must be null or readable.
pub(crate) unsafe fn control(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> isize {
    let words = [
        set as usize,
        operation as usize,
        fd as usize,
        event as usize,
        0,
        0,
    ];
    // SAFETY: by the contract of this function.
    let result = unsafe { kernel::call(libc::SYS_epoll_ctl, words) };
    let Some(session) = session().filter(|_| result == 0) else {
        return result;
    };
    if operation != libc::EPOLL_CTL_ADD {
        forget(|one| one.set == set && one.fd == fd);
    }
    if operation != libc::EPOLL_CTL_DEL {
        // SAFETY: the kernel has read it.
        let event = unsafe { event.read_unaligned() };
        if event.events & READABLE != 0
            && let Some(place) = socket::place(session, fd)
        {
            kernel::keeping_errno(|| register(session, set, fd, place, event));
        }
    }
    result
}

fn register(session: &ProgramSession, set: c_int, fd: c_int, place: usize, event: epoll_event) {
    let mark = MARK | u64::from(NEXT_MARK.fetch_add(1, Relaxed));
    let ring = |queue: &c_int| {
        let copy = kernel::fcntl(*queue, libc::F_DUPFD_CLOEXEC, *queue as usize);
        let events = libc::EPOLLIN as u32 | event.events & KEPT;
        let mut event = epoll_event { events, u64: mark };
        tell(set, libc::EPOLL_CTL_ADD, copy, &mut event);
        copy
    };
    let rings = session.queue_fds.iter().map(ring).collect();
    let (events, data) = (event.events, event.u64);
    let has_fired = true;
    let registration = Registration {
        set,
        fd,
        place,
        events,
        data,
        mark,
        rings,
        has_fired,
        is_spent: false,
    };
    with(|all| all.push(registration));
}

fn tell(set: c_int, operation: c_int, fd: c_int, event: &mut epoll_event) {
    let at = (&raw mut *event) as usize;
    // SAFETY: the event can be read.
    unsafe {
        kernel::call(
            libc::SYS_epoll_ctl,
            [set as usize, operation as usize, fd as usize, at, 0, 0],
        )
    };
}

/// Takes the rings of some registrations out of their sets.
fn forget(is_gone: impl Fn(&Registration) -> bool) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    kernel::keeping_errno(|| {
        let gone: Vec<_> = with(|all| all.extract_if(.., |one| is_gone(one)).collect());
        for registration in gone {
            for ring in registration.rings {
                let mut event = epoll_event { events: 0, u64: 0 };
                tell(registration.set, libc::EPOLL_CTL_DEL, ring, &mut event);
                kernel::close(ring);
            }
        }
    });
}

/// A descriptor is about to be closed.
pub(crate) fn closing(fd: c_int) {
    forget(|one| one.set == fd || one.fd == fd);
}

/// `epoll_pwait(2)`; without a time it waits until something comes.
///
/// # Safety
/// There is room for `most` events; the mask as for `kernel::ppoll`.
pub(crate) unsafe fn wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    time: Option<Duration>,
    mask: *const libc::sigset_t,
) -> isize {
    let own = session().filter(|_| most > 0 && COUNT.load(Relaxed) > 0);
    // Whether the set has a socket of the port, and sockets that it has are only read.
    let state = own.map(|session| {
        with(|all| {
            let own = all.iter().filter(|one| one.set == set);
            let only_reads = |one: &Registration| one.events & !(READABLE | ONCE) == 0;
            let may_skip = mask.is_null() && own.clone().all(only_reads);
            let mut count = 0;
            if may_skip && SKIPPED.load(Relaxed) < SKIPS {
                // SAFETY: there is room for them.
                let events = unsafe { std::slice::from_raw_parts_mut(events, most as usize) };
                count = merge(session, set, all, events, 0);
            }
            (session, all.iter().any(|one| one.set == set), count)
        })
    });
    let Some((session, true, count)) = state else {
        // SAFETY: by the contract of this function.
        return unsafe { kernel_wait(set, events, most, time, mask) };
    };
    if count > 0 {
        SKIPPED.fetch_add(1, Relaxed);
        return count as isize;
    }
    SKIPPED.store(0, Relaxed);
    let ends = time.map(|time| Instant::now() + time);
    loop {
        let is_ready = with(|all| {
            let mut own = all.iter().filter(|one| one.set == set);
            own.any(|one| one.is_due() && session.next_bytes(one.place).is_some())
        });
        let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        let left = match is_ready {
            true => Some(Duration::ZERO),
            false => {
                session.flush();
                slice(session.control(), left)
            }
        };
        // SAFETY: by the contract of this function.
        let count = unsafe { kernel_wait(set, events, most, left, mask) };
        if count < 0 {
            return count;
        }
        // SAFETY: there is room, and the kernel filled `count`.
        let events = unsafe { std::slice::from_raw_parts_mut(events, most as usize) };
        let count = with(|all| merge(session, set, all, events, count as usize));
        if count > 0 || ends.is_some_and(|ends| ends <= Instant::now()) {
            return count as isize;
        }
    }
}

impl Registration {
    /// Whether it is to be reported if something is there.
    fn is_due(&self) -> bool {
        !self.is_spent && (self.events & EDGE == 0 || self.has_fired)
    }

    /// `EPOLLONESHOT`: neither the socket nor a ring says more until the program asks again.
    fn spend(&mut self) {
        self.is_spent = true;
        let mut nothing = epoll_event {
            events: 0,
            u64: self.mark,
        };
        for ring in &self.rings {
            tell(self.set, libc::EPOLL_CTL_MOD, *ring, &mut nothing);
        }
        let mut socket = epoll_event {
            events: self.events & ONCE,
            u64: self.data,
        };
        tell(self.set, libc::EPOLL_CTL_MOD, self.fd, &mut socket);
    }
}

/// Takes the rings' events out, and adds those of sockets whose datagrams wait in a ring.
fn merge(
    session: &ProgramSession,
    set: c_int,
    all: &mut [Registration],
    events: &mut [epoll_event],
    count: usize,
) -> usize {
    let mut kept = 0;
    for at in 0..count {
        let event = events[at];
        match all
            .iter_mut()
            .find(|one| one.set == set && one.mark == { event.u64 })
        {
            Some(own) => own.has_fired = true,
            None => {
                events[kept] = event;
                kept += 1;
            }
        }
    }
    for own in all.iter_mut().filter(|one| one.set == set) {
        let reported = (0..kept).find(|at| { events[*at].u64 } == own.data);
        let is_ready = own.is_due() && session.next_bytes(own.place).is_some();
        let readable = own.events & READABLE;
        match reported {
            Some(at) if is_ready => events[at].events |= readable,
            None if is_ready && kept < events.len() => {
                events[kept] = epoll_event {
                    events: readable,
                    u64: own.data,
                };
                kept += 1;
            }
            None => {
                // An edge that found nothing waits for the next one.
                own.has_fired &= is_ready;
                continue;
            }
            Some(_) => {}
        }
        own.has_fired = false;
        if own.events & ONCE != 0 {
            own.spend();
        }
    }
    kept
}

unsafe fn kernel_wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    time: Option<Duration>,
    mask: *const libc::sigset_t,
) -> isize {
    // Rounded up, as poll(2) waits at least that long.
    let ms = time.map_or(-1, |time| {
        time.as_micros().div_ceil(1000).min(i32::MAX as u128) as isize
    });
    let [set, most] = [set, most].map(|number| number as usize);
    let words = [
        set,
        events as usize,
        most,
        ms as usize,
        mask as usize,
        kernel::MASK_BYTES,
    ];
    // SAFETY: by the contract of the caller.
    unsafe { kernel::call(libc::SYS_epoll_pwait, words) }
}
