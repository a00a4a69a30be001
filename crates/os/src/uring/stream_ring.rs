//! A ring for many connections: accept, connect, receive, send, close, each a request that a
//! completion answers ([`StreamRing::next`]).
//!
//! Nothing that the kernel may still read or write is ever freed: the ring owns it, or shares it,
//! until the completion came. What is over is told by the caller's `token` and comes back to the
//! caller: sockets, buffers.
//!
//! A request costs no system call; [`StreamRing::wait`] passes on all that were made
//! (io_uring_enter(2)).

mod completion;
mod pending;
mod requests;
mod socket;

pub use completion::{Event, Outcome};
pub use requests::{Accepting, Dialling, Sending};
pub use socket::{Address, Buffer, Placement, Socket};

use super::Ring;
use super::buffer_ring::{BUFFERS_MAX, BufferRing, Shape};
use crate::{Error, Result};
use io_uring::squeue::Entry;
use pending::Pending;
use socket::Memory;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The group of the ring's own buffers.
const GROUP: u16 = 0;
/// Slots for what [`StreamRing::adopt`] is given.
const ADOPTED_MAX: u32 = 8;
/// How long the end of a ring waits for the kernel to let go of its memory.
const END_TIME: Duration = Duration::from_secs(1);

// From include/uapi/linux/io_uring.h, for what the `io-uring` crate has no method for.
const REGISTER_SYNC_CANCEL: libc::c_uint = 24;
const REGISTER_FILE_ALLOC_RANGE: libc::c_uint = 25;
const CANCEL_ANY: u32 = 1 << 2;

/// How large the parts of a ring are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// Requests that one call passes on at most; more take more calls.
    pub requests: u32,
    /// Completions that may wait for their turn; the kernel keeps more than that elsewhere, at a
    /// price.
    pub completions: u32,
    /// Slots that the kernel chooses ([`Placement::Chosen`]).
    pub slots: u32,
    /// Slots for [`StreamRing::dial`], which the ring chooses.
    pub dial_slots: u32,
    /// The ring's own buffers, for [`StreamRing::receive`]; none for 0.
    pub buffers: usize,
    /// Bytes of each.
    pub buffer_bytes: usize,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            requests: 256,
            completions: 4096,
            slots: 0,
            dial_slots: 0,
            buffers: 0,
            buffer_bytes: 2048,
        }
    }
}

/// A request that was made, to cancel it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request(u64);

/// The ring. One thread uses it: the one that first waits.
pub struct StreamRing {
    ring: Ring,
    // Both are leaked if the kernel does not let go of them.
    pending: ManuallyDrop<Pending>,
    buffers: ManuallyDrop<Option<BufferRing>>,
    /// Buffers that the kernel has, or may fill.
    free_buffers: usize,
    /// Requests for which the submission queue had no room, chain by chain.
    backlog: VecDeque<Vec<Entry>>,
    adopted: u32,
    /// Those that are free.
    dial_slots: Vec<u32>,
    dial_slot_count: u32,
    open_slots: usize,
}

impl StreamRing {
    /// A ring with slots and buffers.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` where io_uring is forbidden or not built in, `EINVAL` before Linux 6.1,
    /// `EMFILE` for more slots than `RLIMIT_NOFILE` allows descriptors, `ENOMEM`.
    pub fn new(options: &StreamOptions) -> Result<Self> {
        let ring = Ring::new(options.requests.max(16), options.completions)?;
        let submitter = ring.uring.submitter();
        let dial_slots = options.dial_slots;
        let slots = ADOPTED_MAX
            .saturating_add(dial_slots)
            .saturating_add(options.slots);
        submitter
            .register_files_sparse(slots)
            .map_err(|error| Error::new("io_uring_register", format!("{slots} slots"), error))?;
        let range = FileRange {
            offset: ADOPTED_MAX + dial_slots,
            length: options.slots,
            reserved: 0,
        };
        register(&ring, REGISTER_FILE_ALLOC_RANGE, &range, 0)
            .map_err(|error| Error::new("io_uring_register", "range of slots", error))?;
        let buffers = match options.buffers {
            0 => None,
            count => Some(open_buffers(&ring, count, options.buffer_bytes)?),
        };
        let free_buffers = buffers
            .as_ref()
            .map_or(0, |buffers| usize::from(buffers.shape().count));
        Ok(Self {
            ring,
            pending: ManuallyDrop::new(Pending::new(options.completions as usize)),
            buffers: ManuallyDrop::new(buffers),
            free_buffers,
            backlog: VecDeque::new(),
            adopted: 0,
            dial_slots: (ADOPTED_MAX..ADOPTED_MAX + dial_slots).rev().collect(),
            dial_slot_count: dial_slots,
            open_slots: 0,
        })
    }

    /// Gives the ring a share of a descriptor, such as a listener or an eventfd: requests about a
    /// slot are cheaper than about a descriptor. The slot is taken until the end of the ring.
    ///
    /// # Errors
    /// `EXFULL` for more than a few, `EBADF`.
    pub fn adopt(&mut self, fd: BorrowedFd<'_>) -> Result<Socket> {
        let refused = |error| Error::new("io_uring_register", format!("{fd:?}"), error);
        if self.adopted == ADOPTED_MAX {
            return Err(refused(io::Error::from_raw_os_error(libc::EXFULL)));
        }
        let slot = self.adopted;
        let submitter = self.ring.uring.submitter();
        let updated = submitter.register_files_update(slot, &[fd.as_raw_fd()]);
        updated.map_err(refused)?;
        self.adopted += 1;
        Ok(Socket(socket::Descriptor::Direct(slot)))
    }

    /// Passes on all requests and lets the kernel work; sleeps until `want` completions are there,
    /// for `timeout` at most, or for ever if that is none. Time-outs and signals are no errors.
    ///
    /// # Errors
    /// `EEXIST` in another thread than the one that waited first; `ENOMEM`.
    pub fn wait(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        while !self.backlog.is_empty() {
            self.enter(0, None)?;
            self.submit_backlog();
        }
        self.enter(want, timeout)
    }

    /// As [`StreamRing::wait`], but lets completions gather: sleeps until `want` are there, or any
    /// at all once `gather` is over (Linux 6.12; before, until one is there).
    ///
    /// # Errors
    /// As [`StreamRing::wait`].
    pub fn wait_gathering(
        &mut self,
        want: usize,
        gather: Duration,
        timeout: Duration,
    ) -> io::Result<()> {
        if !self.ring.uring.params().is_feature_min_timeout() {
            return self.wait(1, Some(timeout));
        }
        self.ring.gather = Some(gather);
        let waited = self.wait(want, Some(timeout));
        self.ring.gather = None;
        waited
    }

    /// The bytes in a buffer.
    #[inline]
    pub fn bytes<'a>(&'a self, buffer: &'a Buffer) -> &'a [u8] {
        match &buffer.0 {
            Memory::Own { memory, filled } => memory.get(..*filled as usize).unwrap_or_default(),
            Memory::Lent { id, filled } => match &*self.buffers {
                Some(buffers) => {
                    // SAFETY: the kernel completed this buffer when it was made a `Buffer`, and it
                    // is the kernel's again only when that is given back, which takes it away
                    // from whoever holds the answer.
                    let bytes = unsafe { buffers.filled(*id, *filled as usize) };
                    bytes.unwrap_or_default()
                }
                None => &[],
            },
        }
    }

    /// Gives a buffer back to the ring, or frees it if it is none of the ring's.
    #[inline]
    pub fn give_back(&mut self, buffer: Buffer) {
        if let Memory::Lent { id, .. } = buffer.0
            && let Some(buffers) = &mut *self.buffers
        {
            buffers.give(id);
            buffers.publish();
            self.free_buffers += 1;
        }
    }

    /// The ring's own buffers that nobody holds.
    pub fn free_buffers(&self) -> usize {
        self.free_buffers
    }

    /// Slots with a socket in them, without the adopted ones.
    pub fn open_slots(&self) -> usize {
        self.open_slots
    }

    /// Slots of [`StreamRing::dial`] that are free.
    pub fn free_dial_slots(&self) -> usize {
        self.dial_slots.len()
    }

    /// Requests that are not over.
    pub fn in_flight(&self) -> usize {
        self.pending.count()
    }

    /// System calls made so far.
    pub fn calls(&self) -> u64 {
        self.ring.calls
    }

    /// The set-up flags that the kernel granted, by its names.
    pub fn flags(&self) -> &'static str {
        self.ring.flags()
    }

    fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        match self.ring.enter(want, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            // The kernel is short of requests or has completions to get rid of; both pass.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                Ok(())
            }
            other => other,
        }
    }

    /// Queues a chain of requests, which the kernel must get in one call.
    fn push(&mut self, chain: &[Entry]) {
        // SAFETY: all memory that these requests name is in `pending` or in `buffers`, or static,
        // until their completion; neither is freed before the kernel has let go of everything.
        let push = |ring: &mut Ring| unsafe { ring.uring.submission().push_multiple(chain) };
        if self.backlog.is_empty() {
            if push(&mut self.ring).is_ok() {
                return;
            }
            // An error comes again with the next wait, which tells it.
            let _ = self.enter(0, None);
            if push(&mut self.ring).is_ok() {
                return;
            }
        }
        self.backlog.push_back(chain.to_vec());
    }

    fn submit_backlog(&mut self) {
        while let Some(chain) = self.backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { self.ring.uring.submission().push_multiple(chain) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Cancels everything, and tells whether the kernel has let go of all memory.
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
            // What was cancelled, or came to its end by itself, is done only by a call that lets
            // the kernel work, `IORING_ENTER_GETEVENTS`. Requests that were never passed on are
            // not passed on now: their sockets may have been closed already.
            // SAFETY: no argument, and nothing is submitted.
            let worked = unsafe {
                let submitter = self.ring.uring.submitter();
                submitter.enter::<libc::sigset_t>(0, 0, 1, None)
            };
            // Sockets that came in the meantime are closed with their events.
            while self.next().is_some() {}
            // It answers how many it found (`io_sync_cancel`, io_uring/cancel.c).
            let found = register(&self.ring, REGISTER_SYNC_CANCEL, &cancel, 1);
            match (worked, found) {
                (Ok(_), Ok(0)) => return true,
                // The ring is another thread's.
                (Err(_), Err(_)) => return false,
                _ if Instant::now() >= end => return false,
                _ => {}
            }
        }
    }
}

impl Drop for StreamRing {
    fn drop(&mut self) {
        if self.quiesce() {
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

impl fmt::Debug for StreamRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRing")
            .field("ring", &self.ring)
            .field("in_flight", &self.in_flight())
            .field("open_slots", &self.open_slots)
            .field("free_buffers", &self.free_buffers)
            .finish_non_exhaustive()
    }
}

/// `struct io_uring_file_index_range`.
#[repr(C)]
struct FileRange {
    offset: u32,
    length: u32,
    reserved: u64,
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

/// `io_uring_register(2)` with one struct; answers what the kernel does.
fn register<T>(ring: &Ring, what: libc::c_uint, argument: &T, count: u32) -> io::Result<u64> {
    // SAFETY: the descriptor is the ring's, and both operations read one struct of this layout and
    // write nothing.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.uring.as_raw_fd(),
            what,
            std::ptr::from_ref(argument),
            count,
        )
    };
    u64::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Buffers that are all the kernel's.
fn open_buffers(ring: &Ring, count: usize, bytes: usize) -> Result<BufferRing> {
    let mut buffers = BufferRing::new(Shape::new(count.min(BUFFERS_MAX), bytes.max(1)))?;
    let count = buffers.shape().count;
    let submitter = ring.uring.submitter();
    // SAFETY: the address is that of a mapping with `count` entries at a page's beginning. The
    // kernel holds its pages on its own account, so that unmapping it early would harm nobody.
    unsafe { submitter.register_buf_ring_with_flags(buffers.address(), count, GROUP, 0) }
        .map_err(|error| Error::new("io_uring_register", "buffer ring", error))?;
    (0..count).for_each(|id| buffers.give(id));
    buffers.publish();
    Ok(buffers)
}

#[cfg(test)]
mod tests;
