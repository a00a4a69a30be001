//! Waiting until a descriptor is readable: `poll(2)`, and `epoll_wait(2)` on request.

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Packets of one poll of a device queue: what the kernel allows without `CAP_NET_ADMIN`
/// (`NAPI_POLL_WEIGHT`).
const POLL_PACKETS: u16 = 64;
/// `EPIOCSPARAMS` of include/uapi/linux/eventpoll.h: `_IOW(0x8A, 0x01, struct epoll_params)`.
const EPIOCSPARAMS: libc::Ioctl = 0x4008_8a01;

/// `struct epoll_params` (ioctl_eventpoll(2)).
#[repr(C)]
struct Params {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    padding: u8,
}

/// Waits on behalf of one receiver, which hands in its descriptor each time.
///
/// The two ways differ in what a wake-up costs: `poll(2)` adds itself to the descriptor's wait
/// queue and leaves it again in every call, `epoll_wait(2)` stays in the queue between calls.
#[derive(Debug, Default)]
pub struct Waiter {
    epoll: Option<OwnedFd>,
    /// How long `epoll_wait(2)` polls the device queue itself, in microseconds.
    busy_poll_us: Option<u32>,
    /// System calls made so far.
    calls: u64,
}

impl Waiter {
    /// A waiter that has opened nothing yet: the epoll instance comes with its first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// A waiter whose [`Waiter::epoll`] polls the descriptor's device queue for this time before it
    /// sleeps. With 0 it polls once (`EPIOCSPARAMS`, Linux 6.9, ioctl_eventpoll(2)).
    ///
    /// It sets the kernel to prefer polling to interrupts. If the queue has an
    /// `irq-suspend-timeout`, interrupts then stay off while packets are found (Linux 6.13). Older
    /// kernels poll as `net.core.busy_poll` says.
    pub fn busy_polling(microseconds: u32) -> Self {
        Self {
            busy_poll_us: Some(microseconds),
            ..Self::default()
        }
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
                let epoll = watch(fd)?;
                if let Some(microseconds) = self.busy_poll_us {
                    self.calls += 1;
                    poll_device(&epoll, microseconds)?;
                }
                self.epoll.insert(epoll)
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

/// A new epoll instance that watches only `fd`.
fn watch(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // Level-triggered: a receiver that left packets behind must be woken again at once.
    let data = epoll::EventData::new_u64(0);
    epoll::add(&epoll, fd, data, epoll::EventFlags::IN)?;
    Ok(epoll)
}

/// Lets waiting on this instance poll the device queue; a kernel that has no such call is no error.
fn poll_device(epoll: &OwnedFd, microseconds: u32) -> io::Result<()> {
    let params = Params {
        busy_poll_usecs: microseconds.min(i32::MAX.cast_unsigned()),
        busy_poll_budget: POLL_PACKETS,
        prefer_busy_poll: 1,
        padding: 0,
    };
    // SAFETY: the kernel reads a `struct epoll_params`, which lives until it answers.
    let answer = unsafe { libc::ioctl(epoll.as_raw_fd(), EPIOCSPARAMS, &raw const params) };
    match answer {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // Before Linux 6.9: ENOTTY, or EINVAL, as of every file without ioctl(2).
            error if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => Ok(()),
            error => Err(error),
        },
    }
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
    fn each_way_tells_readable_from_not_again_and_again() {
        let waiters = [Waiter::new, Waiter::new, || Waiter::busy_polling(0)];
        for (way, waiter) in [Waiter::poll as Way, Waiter::epoll, Waiter::epoll]
            .into_iter()
            .zip(waiters)
        {
            let (reader, mut writer) = io::pipe().unwrap();
            let mut waiter = waiter();
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
