//! Waiting for packets: the loop that all receivers share.

use crate::Wait;
use mpps_os::poll::Waiter;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// A year is longer than any wait, and every clock can hold it.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

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
    /// Who waits for it.
    fn waiting(&mut self) -> &mut Waiting;

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

    /// Passes a moment until the next look of one that does not sleep.
    fn pause(&mut self) {
        std::hint::spin_loop();
    }

    /// Nothing came in time.
    fn give_up(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits on behalf of one receiver.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    waiter: Waiter,
}

/// Looks until something is there or the time is over; true if something was taken. A signal ends it
/// as the time does.
pub(crate) fn until(awaited: &mut impl Awaited, wait: Wait) -> io::Result<bool> {
    // Both are needed at the same time.
    let mut waiting = mem::take(awaited.waiting());
    let looked = waiting.look(wait, awaited);
    *awaited.waiting() = waiting;
    match looked {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        looked => looked,
    }
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Self::default()
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
        };
        let deadline = Instant::now() + time.min(WAIT_MAX);
        let mut is_woken = false;
        while !awaited.look()? {
            if mem::take(&mut is_woken) {
                awaited.woken_for_nothing()?;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return awaited.give_up().map(|()| false);
            }
            match sleep {
                Some(how) => is_woken = awaited.sleep(&mut self.waiter, how, left)?,
                None => awaited.pause(),
            }
        }
        Ok(true)
    }

    /// System calls made so far to sleep.
    pub(crate) fn calls(&self) -> u64 {
        self.waiter.calls()
    }
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
