//! Waiting for packets: the loop that all receivers share.

mod adaptive;

use self::adaptive::{Adaptive, REST, TELLING, WINDOW};
use crate::{RxCounters, RxPolls, Wait};
use mpps_os::clock;
use mpps_os::poll::Waiter;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How a receiver sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// In `poll(2)`.
    Poll,
    /// In `epoll_wait(2)`.
    Epoll,
}

/// A receiver, as far as it is waited for.
pub(crate) trait Awaited {
    /// The state of its waits, the counters after the waits before this one, and how many packets, or
    /// trains, one look takes at most.
    fn state(&mut self) -> (&mut ReceiverWait, &RxCounters, usize);

    /// Takes what is there, without waiting for more; true if that is something.
    fn look(&mut self) -> io::Result<bool>;

    /// Takes what is there, or sleeps in the same system call until something comes, for so long at
    /// most; none if there is no such call, or not for this time.
    fn look_for(&mut self, time: Duration) -> Option<io::Result<bool>> {
        let _ = time;
        None
    }

    /// Sleeps until something may be there, for so long at most; true if something woke it.
    fn sleep(&mut self, waiter: &mut Waiter, how: Sleep, time: Duration) -> io::Result<bool>;

    /// Something woke it, and nothing was there.
    fn woken_for_nothing(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Passes a moment until the next look of a receiver that does not sleep.
    fn pause(&mut self) {
        std::hint::spin_loop();
    }

    /// Nothing came in time.
    fn give_up(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The time in nanoseconds, from any beginning on.
    fn now_ns(&self) -> u64 {
        clock::monotonic_ns()
    }
}

/// Waits on behalf of one receiver.
#[derive(Debug, Default)]
pub(crate) struct ReceiverWait {
    waiter: Waiter,
    adaptive: Adaptive,
}

/// Looks until something is there or the time is over; true if something was taken. A signal ends it
/// as the time does.
pub(crate) fn until(awaited: &mut impl Awaited, wait: Wait) -> io::Result<bool> {
    // Both are needed at the same time.
    let mut waiting = mem::take(awaited.state().0);
    let looked = waiting.look(wait, awaited);
    *awaited.state().0 = waiting;
    match looked {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        looked => looked,
    }
}

impl ReceiverWait {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// In epoll_wait(2) it polls the device queue for this time in microseconds, if given.
    pub(crate) fn polling(busy_poll_us: Option<u32>) -> Self {
        Self {
            waiter: busy_poll_us.map_or_else(Waiter::new, Waiter::busy_polling),
            ..Self::default()
        }
    }

    /// System calls made so far to sleep.
    pub(crate) fn calls(&self) -> u64 {
        self.waiter.calls()
    }

    /// How it polled by [`Wait::Auto`].
    pub(crate) fn polls(&self) -> RxPolls {
        self.adaptive.polls()
    }

    fn look(&mut self, wait: Wait, awaited: &mut impl Awaited) -> io::Result<bool> {
        let (sleep, time) = match wait {
            Wait::Poll => return awaited.look(),
            Wait::Spin(time) => (None, time),
            Wait::Epoll(time) => (Some(Sleep::Epoll), time),
            Wait::Block(time) => match awaited.look_for(time) {
                Some(looked) => return looked,
                None => (Some(Sleep::Poll), time),
            },
            Wait::Auto(time) => match self.poll(time, awaited)? {
                None => return Ok(true),
                Some(left) => match awaited.look_for(left) {
                    Some(looked) => return looked,
                    None => (Some(Sleep::Poll), left),
                },
            },
        };
        if awaited.look()? {
            return Ok(true);
        }
        let deadline = after(awaited.now_ns(), time);
        let mut is_woken = false;
        loop {
            if mem::take(&mut is_woken) {
                awaited.woken_for_nothing()?;
            }
            let left = Duration::from_nanos(deadline.saturating_sub(awaited.now_ns()));
            if left.is_zero() {
                return awaited.give_up().map(|()| false);
            }
            match sleep {
                Some(how) => is_woken = awaited.sleep(&mut self.waiter, how, left)?,
                None => awaited.pause(),
            }
            if awaited.look()? {
                return Ok(true);
            }
        }
    }

    /// Looks for as long as that is worth it; answers with what is left of the time, none if something
    /// was taken.
    #[inline]
    fn poll(&mut self, time: Duration, awaited: &mut impl Awaited) -> io::Result<Option<Duration>> {
        let (_, counters, batch) = awaited.state();
        let (datagrams, buffers) = (counters.datagrams, counters.buffers);
        if !self.adaptive.begin(datagrams, || awaited.now_ns()) {
            return Ok(Some(time));
        }
        let rests_first = self.adaptive.rests_after(buffers, batch);
        if !rests_first && awaited.look()? {
            return Ok(None);
        }
        let mut now = awaited.now_ns();
        let window = WINDOW.min(time);
        let deadline = after(now, window);
        while now < deadline {
            let rested = after(now, REST).min(deadline);
            while now < rested {
                std::hint::spin_loop();
                now = awaited.now_ns();
            }
            if awaited.look()? {
                self.adaptive.found();
                return Ok(None);
            }
            now = awaited.now_ns();
        }
        if window >= TELLING {
            self.adaptive.missed(now);
        }
        Ok(Some(time - window))
    }
}

/// A time that the clock cannot hold is longer than any wait.
fn after(now_ns: u64, time: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl Sleep {
    /// Sleeps until the descriptor is readable, for so long at most; true if it is.
    pub(crate) fn on(
        self,
        waiter: &mut Waiter,
        fd: BorrowedFd<'_>,
        time: Duration,
    ) -> io::Result<bool> {
        match self {
            Self::Poll => waiter.poll(fd, time),
            Self::Epoll => waiter.epoll(fd, time),
        }
    }
}

#[cfg(test)]
mod tests;
