//! A way to wake a thread that waits for descriptors: `eventfd(2)`.

use crate::CallResult;
use crate::error::On;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;

/// A descriptor that is readable from the first [`Wake::wake`] until [`Wake::clear`].
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
}

impl Wake {
    /// A descriptor that is not readable yet.
    ///
    /// # Errors
    /// `EMFILE` if descriptors ran out.
    pub fn new() -> CallResult<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Self { fd })
            .on("eventfd", "wake")
    }

    /// Makes it readable, from any thread.
    pub fn wake(&self) {
        // The only refusal is EAGAIN, at 2^64 - 1 unread wakes: it is readable.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable again. True if it was readable.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.fd, &mut [0_u8; 8]).is_ok()
    }
}

lends_descriptor!(Wake, fd);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_wakes_are_one() {
        let wake = Wake::new().unwrap();
        assert!(!wake.clear());
        wake.wake();
        wake.wake();
        assert!(wake.clear());
        assert!(!wake.clear());
    }
}
