//! Readiness of many descriptors at a time: `epoll(7)`.

use crate::CallResult;
use crate::error::On;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A set of watched descriptors; closed when dropped.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

/// The events to watch for, and how often to report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest(epoll::EventFlags);

/// Room for the events of one wait.
pub struct Events {
    events: Vec<epoll::Event>,
    room: usize,
}

/// One descriptor that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyDescriptor {
    /// The key given when the descriptor was added.
    pub key: u64,
    flags: epoll::EventFlags,
}

impl Epoll {
    /// An empty set (`epoll_create1(2)`).
    ///
    /// # Errors
    /// `EMFILE` if descriptors ran out.
    pub fn new() -> CallResult<Self> {
        epoll::create(epoll::CreateFlags::CLOEXEC)
            .map(|fd| Self { fd })
            .on("epoll_create1", "set")
    }

    /// Watches one more (`EPOLL_CTL_ADD`). It leaves by itself when its last descriptor is closed.
    ///
    /// # Errors
    /// `EEXIST` if it is watched already, `EPERM` if it is of a kind that cannot be watched, such
    /// as a file, `ENOSPC` at `fs.epoll.max_user_watches`.
    #[inline]
    pub fn add(&self, fd: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::add(&self.fd, fd, data, interest.0)?)
    }

    /// Changes the events to watch for (`EPOLL_CTL_MOD`), and checks for them at once.
    ///
    /// # Errors
    /// `ENOENT` if it is not watched; `EINVAL` if it was added as [`Interest::exclusive`].
    #[inline]
    pub fn modify(&self, fd: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::modify(&self.fd, fd, data, interest.0)?)
    }

    /// Watches it no more (`EPOLL_CTL_DEL`).
    ///
    /// # Errors
    /// `ENOENT` if it is not watched.
    #[inline]
    pub fn delete(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, fd)?)
    }

    /// Waits until something is ready, for `timeout` at most, in steps of a millisecond upwards. No
    /// timeout waits without limit (`epoll_wait(2)`). The events of the last wait are replaced.
    ///
    /// # Errors
    /// `EINTR` for a signal.
    #[inline]
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.events.clear();
        events.events.reserve_exact(events.room);
        // A time that the kernel cannot hold is longer than any wait.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        epoll::wait(
            &self.fd,
            spare_capacity(&mut events.events),
            timeout.as_ref(),
        )?;
        Ok(())
    }

    /// As [`Epoll::wait`], for a time that may be a fraction of a millisecond, at the price of a
    /// second system call (`ppoll(2)`): `epoll_pwait2(2)` is younger, Linux 5.11.
    ///
    /// # Errors
    /// `EINTR` for a signal.
    pub fn wait_exactly(&self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        events.events.clear();
        let time = Timespec::try_from(timeout).ok();
        let mut set = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut set, time.as_ref())?;
        self.wait(events, Some(Duration::ZERO))
    }
}

lends_descriptor!(Epoll, fd);

impl Interest {
    /// Reports only errors and hang-ups, which cannot be switched off.
    pub const NONE: Self = Self(epoll::EventFlags::empty());
    /// There is something to read, or the peer has ended its side.
    pub const READ: Self = Self(epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP));
    /// There is room to write.
    pub const WRITE: Self = Self(epoll::EventFlags::OUT);

    /// Either of the two.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0.union(other.0))
    }

    /// Reports an event when it comes, and not again while it lasts (`EPOLLET`).
    #[must_use]
    pub const fn edge(self) -> Self {
        Self(self.0.union(epoll::EventFlags::ET))
    }

    /// Wakes one of the sets that watch the same object, and not all (`EPOLLEXCLUSIVE`, Linux 4.5).
    /// Such a watch can be deleted, but not modified. It does not report the peer's end separately.
    #[must_use]
    pub const fn exclusive(self) -> Self {
        // The kernel takes no EPOLLRDHUP beside it (EPOLLEXCLUSIVE_OK_BITS in fs/eventpoll.c).
        let flags = self.0.difference(epoll::EventFlags::RDHUP);
        Self(flags.union(epoll::EventFlags::EXCLUSIVE))
    }
}

impl Events {
    /// Room for `room` events, at least one. Events that do not fit are returned by the next wait.
    pub fn new(room: usize) -> Self {
        let room = room.max(1);
        Self {
            events: Vec::with_capacity(room),
            room,
        }
    }

    /// The number of events of the last wait.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True if the last wait ended with its time, or with an error.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The event at this index of the last wait; none from [`Events::len`] on.
    #[inline]
    pub fn at(&self, index: usize) -> Option<ReadyDescriptor> {
        self.events.get(index).map(|event| ReadyDescriptor {
            // The kernel's record is packed, and so copied.
            key: { event.data }.u64(),
            flags: event.flags,
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries((0..self.len()).filter_map(|index| self.at(index)))
            .finish()
    }
}

impl ReadyDescriptor {
    /// A read will not return `EAGAIN`: there are bytes, or an end, or an error.
    #[inline]
    pub fn is_readable(self) -> bool {
        self.flags
            .intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP)
            || self.is_broken()
    }

    /// A write will not say `EAGAIN`.
    #[inline]
    pub fn is_writable(self) -> bool {
        self.flags.intersects(epoll::EventFlags::OUT) || self.is_broken()
    }

    /// The peer has ended its side; there may be bytes before that end.
    #[inline]
    pub fn is_ended(self) -> bool {
        self.flags.intersects(epoll::EventFlags::RDHUP) || self.is_broken()
    }

    /// Both sides have ended, or there is an error.
    #[inline]
    pub fn is_broken(self) -> bool {
        self.flags
            .intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const SHORT: Option<Duration> = Some(Duration::from_millis(1));

    fn told(epoll: &Epoll) -> Vec<ReadyDescriptor> {
        let mut events = Events::new(8);
        epoll.wait(&mut events, SHORT).unwrap();
        (0..events.len())
            .filter_map(|index| events.at(index))
            .collect()
    }

    #[test]
    fn a_level_is_told_again_and_an_edge_once() {
        for (interest, again) in [(Interest::READ, true), (Interest::READ.edge(), false)] {
            let (near, mut far) = UnixStream::pair().unwrap();
            let epoll = Epoll::new().unwrap();
            epoll.add(&near, 7, interest).unwrap();
            assert!(told(&epoll).is_empty());
            far.write_all(b"x").unwrap();
            let first = told(&epoll);
            assert_eq!(first.len(), 1);
            assert!(first[0].key == 7 && first[0].is_readable() && !first[0].is_ended());
            assert_eq!(told(&epoll).len(), usize::from(again));
        }
    }

    #[test]
    fn an_end_is_told_apart_from_bytes() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let epoll = Epoll::new().unwrap();
        let both = Interest::READ.and(Interest::WRITE).edge();
        epoll.add(&near, 1, both).unwrap();
        assert!(told(&epoll)[0].is_writable());
        drop(far);
        let end = told(&epoll)[0];
        assert!(end.is_ended() && end.is_readable());
        assert_eq!(near.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn a_watch_can_be_changed_and_ended() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let epoll = Epoll::new().unwrap();
        far.write_all(b"x").unwrap();
        epoll.add(&near, 1, Interest::NONE).unwrap();
        assert!(told(&epoll).is_empty());
        epoll.modify(&near, 2, Interest::READ).unwrap();
        assert_eq!(told(&epoll)[0].key, 2);
        epoll.delete(&near).unwrap();
        assert!(told(&epoll).is_empty());
        epoll.add(&near, 3, Interest::READ.exclusive()).unwrap();
        assert_eq!(told(&epoll)[0].key, 3);
        drop(near);
        assert!(told(&epoll).is_empty());
    }

    #[test]
    fn a_wait_for_a_fraction_of_a_millisecond_tells_the_same() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(&near, 7, Interest::READ.edge()).unwrap();
        let mut events = Events::new(8);
        let time = Duration::from_micros(100);
        epoll.wait_exactly(&mut events, time).unwrap();
        assert!(events.is_empty());
        far.write_all(b"x").unwrap();
        epoll.wait_exactly(&mut events, time).unwrap();
        assert_eq!(events.at(0).map(|event| event.key), Some(7));
    }

    #[test]
    fn what_does_not_fit_is_told_next() {
        let epoll = Epoll::new().unwrap();
        let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        for (index, (near, far)) in pairs.iter().enumerate() {
            epoll
                .add(near, index as u64, Interest::READ.edge())
                .unwrap();
            (&mut &*far).write_all(b"x").unwrap();
        }
        let mut keys = Vec::new();
        let mut events = Events::new(2);
        for _ in 0..2 {
            epoll.wait(&mut events, SHORT).unwrap();
            keys.extend(
                (0..events.len())
                    .filter_map(|i| events.at(i))
                    .map(|e| e.key),
            );
        }
        keys.sort_unstable();
        assert_eq!(keys, [0, 1, 2]);
    }
}
