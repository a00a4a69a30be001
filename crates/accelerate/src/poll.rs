//! `poll`, `select` and their kin.

use crate::kernel;
use crate::session::{ProgramSession, session};
use crate::socket;
use libc::{c_int, c_short, fd_set, pollfd};
use mpps_os::xdp::shared::Control;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Readable, in both ways of saying it.
pub(crate) const READABLE: c_short = libc::POLLIN | libc::POLLRDNORM;
/// With several sockets of the port, one thread may put aside what another one waits for.
const SLICE: Duration = Duration::from_millis(10);

/// The longest time to wait at once.
pub(crate) fn slice(control: &Control, left: Option<Duration>) -> Option<Duration> {
    let sockets = control.sockets.iter();
    match sockets
        .filter(|socket| socket.cookie.load(Relaxed) != 0)
        .count()
    {
        0 | 1 => left,
        _ => Some(left.map_or(SLICE, |left| left.min(SLICE))),
    }
}

/// `ppoll(2)`.
///
/// # Safety
/// As for [`kernel::ppoll`].
pub(crate) unsafe fn ppoll(
    fds: &mut [pollfd],
    time: Option<Duration>,
    mask: *const libc::sigset_t,
) -> isize {
    let places = |session: &ProgramSession| -> Vec<(usize, usize)> {
        let readers = fds
            .iter()
            .enumerate()
            .filter(|(_, fd)| fd.events & READABLE != 0);
        readers
            .filter_map(|(at, polled)| Some((at, socket::place(session, polled.fd)?)))
            .collect()
    };
    let own = session().map(|session| (session, places(session)));
    let Some((session, places)) = own.filter(|(_, places)| !places.is_empty()) else {
        // SAFETY: by the contract of this function.
        return unsafe { kernel::ppoll(fds, time, mask) };
    };
    let control = session.control();
    let ends = time.map(|time| Instant::now() + time);
    let rings = session.queue_fds.iter();
    let mut all = fds.to_vec();
    all.extend(rings.map(|fd| pollfd {
        fd: *fd,
        events: libc::POLLIN,
        revents: 0,
    }));
    loop {
        let ready: Vec<usize> = places
            .iter()
            .filter(|(_, place)| session.next_bytes(*place).is_some())
            .map(|(at, _)| *at)
            .collect();
        let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        let left = match ready.is_empty() {
            true => {
                session.flush();
                slice(control, left)
            }
            false => Some(Duration::ZERO),
        };
        // SAFETY: by the contract of this function.
        if unsafe { kernel::ppoll(&mut all, left, mask) } < 0 {
            return -1;
        }
        for (polled, seen) in fds.iter_mut().zip(&all) {
            polled.revents = seen.revents;
        }
        let now_ready = places.iter().filter(|(at, place)| {
            ready.contains(at) || (ready.is_empty() && session.next_bytes(*place).is_some())
        });
        for (at, _) in now_ready {
            fds[*at].revents |= fds[*at].events & READABLE;
        }
        let count = fds.iter().filter(|fd| fd.revents != 0).count();
        if count > 0 || ends.is_some_and(|ends| ends <= Instant::now()) {
            return count as isize;
        }
    }
}

/// `pselect(2)`, by [`ppoll`] if a socket of the port is in the first set; none otherwise.
///
/// # Safety
/// The sets must be null, or have room for `count` descriptors; the mask as for [`ppoll`].
pub(crate) unsafe fn select(
    count: c_int,
    sets: [*mut fd_set; 3],
    time: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Option<isize> {
    let session = session()?;
    let has = |set: usize, fd: c_int| {
        let words = sets[set].cast::<u64>();
        // SAFETY: by the contract of this function.
        !words.is_null() && unsafe { *words.add(fd as usize / 64) } >> (fd % 64) & 1 == 1
    };
    if !(0..count).any(|fd| has(0, fd) && socket::place(session, fd).is_some()) {
        return None;
    }
    let events = [READABLE, libc::POLLOUT | libc::POLLWRNORM, libc::POLLPRI];
    let chosen = |fd| {
        let events = (0..3).filter(|set| has(*set, fd)).map(|set| events[set]);
        pollfd {
            fd,
            events: events.fold(0, |all, one| all | one),
            revents: 0,
        }
    };
    let mut fds: Vec<pollfd> = (0..count).map(chosen).filter(|fd| fd.events != 0).collect();
    // SAFETY: by the contract of this function.
    let polled = unsafe { ppoll(&mut fds, time, mask) };
    if polled < 0 {
        return Some(polled);
    }
    if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
        return Some(kernel::refuse(libc::EBADF));
    }
    let answers = [
        READABLE | libc::POLLHUP | libc::POLLERR,
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
        libc::POLLPRI,
    ];
    let mut found = 0;
    for (set, answer) in answers
        .into_iter()
        .enumerate()
        .filter(|(set, _)| !sets[*set].is_null())
    {
        for polled in &fds {
            let was_chosen = polled.events & events[set] != 0;
            let is_set = was_chosen && polled.revents & answer != 0;
            found += isize::from(is_set);
            // SAFETY: by the contract of this function.
            let word = unsafe { &mut *sets[set].cast::<u64>().add(polled.fd as usize / 64) };
            let bit = 1 << (polled.fd % 64);
            if was_chosen && !is_set {
                *word &= !bit;
            }
        }
    }
    Some(found)
}
