//! Waiting until a descriptor is readable: `poll(2)`, and `epoll_wait(2)` for whoever asks.

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Waits on behalf of one receiver, which hands in its descriptor each time.
///
/// The two ways differ in what a wake-up costs: `poll(2)` adds itself to the descriptor's wait
/// queue and leaves it again in every call, `epoll_wait(2)` stays in the queue between calls.
#[derive(Debug, Default)]
pub struct Waiter {
    epoll: Option<OwnedFd>,
    /// System calls made so far.
    calls: u64,
}

impl Waiter {
    /// A waiter that has opened nothing yet: the epoll instance comes with its first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits with `poll(2)` until `fd` is readable, for `timeout` at most. True if it is.
    ///
    /// # Errors
    /// `EINTR` for a signal.
    pub fn poll(&mut self, fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
        self.calls += 1;
        // A time that the kernel cannot hold is longer than any wait.
        let timeout = Timespec::try_from(timeout).ok();
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref())?;
        Ok(ready > 0)
    }

    /// Waits with `epoll_wait(2)` until `fd` is readable, for `timeout` at most. True if it is.
    ///
    /// The first call opens the epoll instance and adds `fd` to it; later ones must pass the same
    /// descriptor. A time with a part of a millisecond needs `epoll_pwait2(2)`, Linux 5.11.
    ///
    /// # Errors
    /// `EINTR` for a signal, `EMFILE` if descriptors ran out, `EPERM` if `fd` is of a kind that
    /// cannot be watched, such as a file.
    pub fn epoll(&mut self, fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
        self.calls += 1;
        let epoll = match &self.epoll {
            Some(epoll) => epoll,
            None => {
                // epoll_create1(2) and epoll_ctl(2).
                self.calls += 2;
                self.epoll.insert(watch(fd)?)
            }
        };
        let timeout = Timespec::try_from(timeout).ok();
        let mut events = [MaybeUninit::uninit(); 1];
        let (ready, _) = epoll::wait(epoll, &mut events, timeout.as_ref())?;
        Ok(!ready.is_empty())
    }

    /// System calls made so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }
}

/// A new epoll instance that watches `fd` alone.
fn watch(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // Level-triggered: a receiver that left packets behind must be woken again at once.
    let data = epoll::EventData::new_u64(0);
    epoll::add(&epoll, fd, data, epoll::EventFlags::IN)?;
    Ok(epoll)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    const SHORT: Duration = Duration::from_micros(500);
    const LONG: Duration = Duration::from_secs(60);

    type Way = fn(&mut Waiter, BorrowedFd<'_>, Duration) -> io::Result<bool>;

    #[test]
    fn both_ways_tell_readable_from_not_again_and_again() {
        for way in [Waiter::poll as Way, Waiter::epoll] {
            let (reader, mut writer) = io::pipe().unwrap();
            let mut waiter = Waiter::new();
            assert!(!way(&mut waiter, reader.as_fd(), SHORT).unwrap());
            assert!(!way(&mut waiter, reader.as_fd(), Duration::ZERO).unwrap());
            writer.write_all(b"x").unwrap();
            for _ in 0..3 {
                assert!(way(&mut waiter, reader.as_fd(), LONG).unwrap());
                // Longer than the kernel can hold is no error either.
                assert!(way(&mut waiter, reader.as_fd(), Duration::MAX).unwrap());
            }
        }
    }

    #[test]
    fn every_system_call_is_counted() {
        let (reader, _writer) = io::pipe().unwrap();
        let mut waiter = Waiter::new();
        waiter.poll(reader.as_fd(), SHORT).unwrap();
        assert_eq!(waiter.calls(), 1);
        waiter.epoll(reader.as_fd(), SHORT).unwrap();
        assert_eq!(waiter.calls(), 4);
        waiter.epoll(reader.as_fd(), SHORT).unwrap();
        assert_eq!(waiter.calls(), 5);
    }
}
