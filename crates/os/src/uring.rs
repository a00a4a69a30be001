//! io_uring for datagrams: a standing request that receives, and zero-copy sends. And io_uring for
//! many connections: each of their steps is a request.
//!
//! The `io-uring` crate provides the rings. This module decides what lies in them, and which memory
//! may be touched when. All rings are set up alike (io_uring_setup(2)):
//!
//! * `SINGLE_ISSUER` and `DEFER_TASKRUN` (Linux 6.1): the kernel does its part in the thread that
//!   asks, when it asks, and never interrupts it. It follows that the kernel writes received
//!   packets only *during* a call of that thread. That makes lending them safe.
//! * `TASKRUN_FLAG`: a word of shared memory shows whether the kernel has work to do. So looking at
//!   an empty ring costs no system call.
//! * `R_DISABLED`: the first thread that uses a ring owns it, not the thread that opened it.
//! * `NO_SQARRAY` (Linux 6.6), if the kernel has it.

/// The ring that a test needs; where io_uring is forbidden, the test ends.
#[cfg(test)]
macro_rules! granted {
    ($opened:expr) => {
        match $opened {
            Some(opened) => opened,
            None => return,
        }
    };
}

mod buffer_ring;
mod header;
mod receive_ring;
mod send_ring;
mod slots;
mod stream_ring;

pub use receive_ring::ReceiveRing;
pub use send_ring::{SendRing, Submission};
pub use slots::closes_slots;
pub use stream_ring::{
    Address, Buffer, CompletedCall, DescriptorKind, Dialling, RequestKey, RingEvent, RingSocket,
    SendRequest, StreamOptions, StreamRing,
};

use crate::capability::Rights;
use crate::{CallError, CallResult};
use io_uring::IoUring;
use io_uring::types::{SubmitArgs, Timespec};
use std::fmt;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A year is longer than any wait, and the kernel's signed seconds can hold it.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Whether this kernel, and this process, may use rings as they are set up here.
///
/// # Errors
/// As [`ReceiveRing::new`].
pub fn probe() -> CallResult<()> {
    apart(|| UringQueues::new(1, 1).map(drop))
}

/// Asks something of a ring in a thread of its own. A ring is taken apart later, by way of a signal
/// to the thread that opened it, which ends system calls that do not go on by themselves
/// (`io_ring_exit_work`, io_uring/io_uring.c): it had better be a thread that is gone by then.
fn apart<T: Send + 'static>(ask: fn() -> CallResult<T>) -> CallResult<T> {
    match thread::Builder::new().spawn(ask).map(JoinHandle::join) {
        Ok(Ok(answer)) => answer,
        // No thread to be had.
        _ => ask(),
    }
}

/// The remedy for a refusal by [`probe`] or [`closes_slots`].
pub fn remedy(error: &CallError) -> String {
    let limit = Rights::own().limit_remedy(error);
    limit.unwrap_or_else(|| {
        let text = match error.errno() {
            Some(libc::EPERM) => {
                "allow it: sysctl kernel.io_uring_disabled=0, and no seccomp filter against it"
            }
            Some(libc::ENOSYS) => "a kernel with CONFIG_IO_URING, and no seccomp filter against it",
            Some(libc::EINVAL) => "Linux 6.1 or later",
            _ => "see io_uring_setup(2)",
        };
        text.to_owned()
    })
}

/// An io_uring with the queues that both directions share.
struct UringQueues {
    uring: IoUring,
    /// True once a thread owns it.
    enabled: bool,
    indexed: bool,
    /// True once a call passed on some requests and not all: what was one chain may have become
    /// two.
    is_cut: bool,
    /// How long the next sleep lets completions gather before one of them ends it (Linux 6.12).
    gather: Option<Duration>,
    calls: u64,
}

impl UringQueues {
    /// `io_uring_setup(2)` for `requests` at a time and `completions` not yet looked at.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` where io_uring is forbidden or not built in, `EINVAL` before Linux 6.1,
    /// `ENOMEM`, `EMFILE`.
    fn new(requests: u32, completions: u32) -> CallResult<Self> {
        let setup = |indexed: bool| {
            let mut builder = IoUring::builder();
            builder
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag()
                .setup_submit_all()
                .setup_r_disabled()
                .setup_clamp()
                .setup_cqsize(completions.max(requests));
            if !indexed {
                builder.setup_no_sqarray();
            }
            builder.build(requests)
        };
        let (uring, indexed) = match setup(false) {
            Ok(uring) => (uring, false),
            // The only flag younger than 6.1. It saves an indirection and changes nothing more;
            // `flags` shows whether it was granted.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let uring = setup(true).map_err(refused)?;
                (uring, true)
            }
            Err(error) => return Err(refused(error)),
        };
        Ok(Self {
            uring,
            enabled: false,
            indexed,
            is_cut: false,
            gather: None,
            calls: 0,
        })
    }

    /// The set-up flags that were granted, by the kernel's names.
    fn flags(&self) -> &'static str {
        if self.indexed {
            "SINGLE_ISSUER DEFER_TASKRUN"
        } else {
            "SINGLE_ISSUER DEFER_TASKRUN NO_SQARRAY"
        }
    }

    /// True if the kernel has something to do that only an [`UringQueues::enter`] lets it do.
    fn has_work(&mut self) -> bool {
        let submission = self.uring.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// Passes on new requests and lets the kernel work (`io_uring_enter(2)`); sleeps until `want`
    /// completions are there, for `timeout` at most. A time-out is not an error.
    ///
    /// # Errors
    /// `EINTR`; `EEXIST` in a thread that does not own the ring.
    fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.calls += 1;
        if !self.enabled {
            self.calls += 1;
            self.uring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        let queued = self.uring.submission().len();
        let submitter = self.uring.submitter();
        let entered = match timeout {
            None => submitter.submit_and_wait(want),
            Some(time) => {
                let time = Timespec::from(time.min(WAIT_MAX));
                let mut arguments = SubmitArgs::new();
                if let Some(gather) = self.gather {
                    let microseconds = u32::try_from(gather.as_micros()).unwrap_or(u32::MAX);
                    arguments = arguments.min_wait_usec(microseconds);
                }
                submitter.submit_with_args(want, &arguments.timespec(&time))
            }
        };
        match entered {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
            Ok(passed_on) => {
                // Without memory for the next request the kernel stops between any two and sets
                // off what it has of a chain (`io_submit_sqes`, io_uring/io_uring.c). Where it
                // got none at all it answers an error.
                self.is_cut |= (1..queued).contains(&passed_on);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Completions that have not been looked at.
    fn completed(&mut self) -> usize {
        self.uring.completion().len()
    }
}

impl fmt::Debug for UringQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("flags", &self.flags())
            .field("enabled", &self.enabled)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

fn refused(error: io::Error) -> CallError {
    CallError::new("io_uring_setup", "SINGLE_ISSUER DEFER_TASKRUN", error)
}
