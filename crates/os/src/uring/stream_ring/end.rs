//! The end of a stream ring: nothing is freed that the kernel may still use.

use super::pending::{PendingKey, PendingRequest};
use super::requests::{NOBODY, STAGE_CLOSE};
use super::{StreamRing, register};
use io_uring::EnterFlags;
use std::collections::HashSet;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

/// How long the end of a ring waits for the kernel to let go of its memory.
const END_TIME: Duration = Duration::from_secs(1);
/// How long it sleeps when nothing moved, as when one of the kernel's threads has a request.
const PAUSE: Duration = Duration::from_micros(100);

// From include/uapi/linux/io_uring.h, for what the `io-uring` crate has no method for.
const REGISTER_SYNC_CANCEL: libc::c_uint = 24;
const CANCEL_ANY: u32 = 1 << 2;

impl StreamRing {
    /// Cancels everything, and returns true if the kernel has let go of all memory.
    fn quiesce(&mut self) -> bool {
        if !self.ring.enabled {
            // Nothing was ever passed on.
            return true;
        }
        let cancel = SyncCancel {
            address: 0,
            fd: -1,
            flags: CANCEL_ANY,
            seconds: 0,
            nanoseconds: END_TIME.as_nanos() as i64 / 4,
            ..SyncCancel::default()
        };
        let end = Instant::now() + END_TIME;
        loop {
            if self.work_off(end).is_err() {
                // The ring is another thread's.
                return false;
            }
            // It answers how many it found (`io_sync_cancel`, io_uring/cancel.c). Zero does not
            // mean that none is left: a request on its way to its completion is not found.
            let found = register(&self.ring, REGISTER_SYNC_CANCEL, &cancel, 1);
            if matches!(found, Ok(0)) && !self.has_work() {
                if !self.is_any_passed_on() {
                    return true;
                }
                thread::sleep(PAUSE);
            }
            if Instant::now() >= end {
                return false;
            }
        }
    }

    /// Lets the kernel do all its pending work, a little with each call, and looks at the results.
    /// Requests that were cancelled, or ended by themselves, complete only in such a call.
    fn work_off(&mut self, end: Instant) -> io::Result<()> {
        loop {
            // Requests that were never passed on are not passed on now: their sockets may have
            // been closed already.
            let flags = EnterFlags::GETEVENTS.bits();
            // SAFETY: no argument, and nothing is submitted.
            unsafe {
                let submitter = self.ring.uring.submitter();
                submitter.enter::<libc::sigset_t>(0, 0, flags, None)?;
            }
            // Sockets that came in the meantime are closed with their events.
            while self.next().is_some() {}
            if !self.has_work() || Instant::now() >= end {
                return Ok(());
            }
        }
    }

    fn has_work(&mut self) -> bool {
        let submission = self.ring.uring.submission();
        submission.taskrun() || submission.cq_overflow()
    }

    /// True if the kernel may have a request that uses our memory.
    fn is_any_passed_on(&self) -> bool {
        if self.is_broken {
            // It is not known which requests it has.
            return self.pending.count() > 0;
        }
        let held_back: HashSet<PendingKey> = self.held_back().map(|(key, _)| key).collect();
        self.pending.any(|key, held| {
            let uses_none = match held {
                PendingRequest::Close { .. } => true,
                // Its sending is over.
                PendingRequest::SendAndClose { failure, .. } => *failure != 0,
                _ => false,
            };
            !uses_none && !held_back.contains(&key)
        })
    }

    /// Requests that were made and never passed on.
    fn held_back(&self) -> impl Iterator<Item = (PendingKey, u32)> {
        let backlog = self.backlog.iter().flatten();
        let numbers = self.queued.iter().copied();
        numbers
            .chain(backlog.map(|entry| entry.get_user_data()))
            .filter(|number| *number != NOBODY)
            .map(PendingKey::parse)
    }

    /// Closes the descriptors that were given up to be closed by requests which the kernel never
    /// got.
    fn close_held_back(&mut self) {
        let held_back: Vec<(PendingKey, u32)> = self.held_back().collect();
        for (key, stage) in held_back {
            let number = match self.pending.find(key) {
                Some((_, PendingRequest::Close { socket, .. })) => *socket,
                Some((_, PendingRequest::SendAndClose { socket, .. })) if stage == STAGE_CLOSE => {
                    *socket
                }
                _ => continue,
            };
            // Slots are negative.
            if let Some(fd) = RawFd::try_from(number).ok().filter(|fd| *fd >= 0) {
                // SAFETY: the owner of the descriptor gave it up to this request. It is named here
                // once and will never be passed on.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
}

impl Drop for StreamRing {
    fn drop(&mut self) {
        self.is_ending = true;
        if self.quiesce() {
            if !self.is_broken {
                self.close_held_back();
            }
            // SAFETY: neither is used again, and the kernel uses no memory of theirs.
            unsafe {
                ManuallyDrop::drop(&mut self.pending);
                ManuallyDrop::drop(&mut self.buffers);
            }
        }
        // The kernel takes a ring apart some time after its descriptor was closed, and would hold
        // the sockets until then.
        let _ = self.ring.uring.submitter().unregister_files();
    }
}

/// `struct io_uring_sync_cancel_reg`.
#[repr(C)]
#[derive(Default)]
struct SyncCancel {
    address: u64,
    fd: i32,
    flags: u32,
    seconds: i64,
    nanoseconds: i64,
    opcode: u8,
    padding: [u8; 7],
    padding2: [u64; 3],
}
