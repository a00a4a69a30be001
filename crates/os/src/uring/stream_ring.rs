//! A ring for many connections: accept, connect, receive, send, close, each a request that a
//! completion answers ([`StreamRing::next`]).
//!
//! Nothing that the kernel may still read or write is ever freed: the ring owns it, or shares it,
//! until the completion came. A completion is named by the caller's `token`. Sockets and buffers
//! then come back to the caller.
//!
//! A request costs no system call; [`StreamRing::wait`] passes on all that were made
//! (io_uring_enter(2)).

mod completion;
mod end;
mod pending;
mod requests;
mod ring_id;
mod socket;

pub use completion::{CompletedCall, RingEvent};
pub use requests::{Dialling, SendRequest};
pub use socket::{Address, Buffer, DescriptorKind, RingSocket};

use super::UringQueues;
use super::buffer_ring::{BUFFERS_MAX, BufferRing, BufferRingShape};
use crate::error::On;
use crate::{CallError, CallResult};
use io_uring::squeue::Entry;
use pending::{Pending, PendingKey, PendingRequest};
use ring_id::RingId;
use socket::Memory;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The group of the ring's own buffers.
const GROUP: u16 = 0;
/// Slots for what [`StreamRing::adopt`] is given.
const ADOPTED_MAX: u32 = 8;
/// From include/uapi/linux/io_uring.h: the `io-uring` crate has no method for it.
const REGISTER_FILE_ALLOC_RANGE: libc::c_uint = 25;

/// How large the parts of a ring are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// Requests that one call passes on at most; more take more calls.
    pub requests: u32,
    /// Completions that may wait for their turn; the kernel keeps more than that elsewhere, at a
    /// price.
    pub completions: u32,
    /// Slots that the kernel chooses ([`DescriptorKind::Chosen`]).
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
pub struct RequestKey {
    ring: RingId,
    key: PendingKey,
}

/// The ring. Only the first thread that waits may use it.
///
/// Another ring refuses its sockets, buffers and requests. Its end cancels everything. The kernel
/// takes it apart a little later, by a signal to that thread. A system call of the thread may then
/// fail with `EINTR`.
pub struct StreamRing {
    ring: UringQueues,
    id: RingId,
    // Both are leaked if the kernel does not let go of them.
    pending: ManuallyDrop<Pending>,
    buffers: ManuallyDrop<Option<BufferRing>>,
    /// Buffers that the kernel has, or may fill.
    free_buffers: usize,
    /// Requests that found no room in the submission queue, chain by chain.
    backlog: VecDeque<Vec<Entry>>,
    /// The numbers of the completions of the requests in the submission queue.
    queued: Vec<u64>,
    /// True once it is not known any more what the kernel has: nothing is passed on then.
    is_broken: bool,
    /// True at the end, when nothing new is passed on.
    is_ending: bool,
    adopted: u32,
    /// Those that are free.
    dial_slots: Vec<u32>,
    dial_slot_count: u32,
    open_slots: usize,
    /// Bytes that one request sends at most.
    send_bytes_max: usize,
}

impl StreamRing {
    /// A ring with slots and buffers.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` where io_uring is forbidden or not built in, `EINVAL` before Linux 6.1,
    /// `EMFILE` for more slots than `RLIMIT_NOFILE` allows descriptors, `ENOMEM`.
    pub fn new(options: &StreamOptions) -> CallResult<Self> {
        let ring = UringQueues::new(options.requests.max(16), options.completions)?;
        let submitter = ring.uring.submitter();
        let dial_slots = options.dial_slots;
        let slots = ADOPTED_MAX
            .saturating_add(dial_slots)
            .saturating_add(options.slots);
        submitter
            .register_files_sparse(slots)
            .on("io_uring_register", format!("{slots} slots"))?;
        let range = FileRange {
            offset: ADOPTED_MAX + dial_slots,
            length: options.slots,
            reserved: 0,
        };
        register(&ring, REGISTER_FILE_ALLOC_RANGE, &range, 0)
            .on("io_uring_register", "range of slots")?;
        let buffers = match options.buffers {
            0 => None,
            count => Some(open_buffers(&ring, count, options.buffer_bytes)?),
        };
        let free_buffers = buffers
            .as_ref()
            .map_or(0, |buffers| usize::from(buffers.shape().count));
        let parameters = ring.uring.params();
        let (requests, completions) = (parameters.sq_entries(), parameters.cq_entries());
        Ok(Self {
            id: RingId::next(),
            pending: ManuallyDrop::new(Pending::new(completions as usize)),
            buffers: ManuallyDrop::new(buffers),
            free_buffers,
            backlog: VecDeque::new(),
            queued: Vec::with_capacity(requests as usize),
            is_broken: false,
            is_ending: false,
            adopted: 0,
            dial_slots: (ADOPTED_MAX..ADOPTED_MAX + dial_slots).rev().collect(),
            dial_slot_count: dial_slots,
            open_slots: 0,
            send_bytes_max: requests::SEND_BYTES_MAX,
            ring,
        })
    }

    /// Gives the ring a share of a descriptor, such as a listener or an eventfd: requests about a
    /// slot are cheaper than about a descriptor. The slot is taken until the end of the ring.
    ///
    /// # Errors
    /// `EXFULL` for more than a few, `EBADF`.
    pub fn adopt(&mut self, fd: BorrowedFd<'_>) -> CallResult<RingSocket> {
        let refused = |error| CallError::new("io_uring_register", format!("{fd:?}"), error);
        if self.adopted == ADOPTED_MAX {
            return Err(refused(io::Error::from_raw_os_error(libc::EXFULL)));
        }
        let slot = self.adopted;
        let submitter = self.ring.uring.submitter();
        let updated = submitter.register_files_update(slot, &[fd.as_raw_fd()]);
        updated.map_err(refused)?;
        self.adopted += 1;
        let ring = self.id;
        Ok(RingSocket(socket::RingDescriptor::Direct { ring, slot }))
    }

    /// Passes on all requests and lets the kernel work. Sleeps until `want` completions are there,
    /// for `timeout` at most, or without limit if there is none. Time-outs and signals are no
    /// errors. It returns early if the kernel takes no more requests until completions are looked
    /// at.
    ///
    /// # Errors
    /// `EEXIST` in a thread that did not wait first. `ENOMEM`, and from then on always: the kernel
    /// may have got a part of a chain, and the ring is of no more use.
    pub fn wait(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        while !self.backlog.is_empty() {
            let before = self.backlog.len();
            self.enter(0, None)?;
            self.submit_backlog();
            if self.backlog.len() == before {
                return Ok(());
            }
        }
        self.enter(want, timeout)
    }

    /// The bytes in a buffer; none in one of another ring's.
    #[inline]
    pub fn bytes<'a>(&'a self, buffer: &'a Buffer) -> &'a [u8] {
        match &buffer.0 {
            Memory::Own { memory, filled } => memory.get(..*filled as usize).unwrap_or_default(),
            Memory::Lent { ring, id, filled } => match &*self.buffers {
                Some(buffers) if *ring == self.id => {
                    // SAFETY: the kernel completed this buffer when it was made a `Buffer`. It is
                    // the kernel's again only when that is given back, which takes it away from its
                    // holder.
                    let bytes = unsafe { buffers.filled(*id, *filled as usize) };
                    bytes.unwrap_or_default()
                }
                _ => &[],
            },
        }
    }

    /// Gives a buffer back to the ring, or frees it if it is on the heap. One of another ring's is
    /// lost to that ring.
    #[inline]
    pub fn give_back(&mut self, buffer: Buffer) {
        if let Memory::Lent { ring, id, .. } = buffer.0
            && ring == self.id
            && let Some(buffers) = &mut *self.buffers
        {
            buffers.give(id);
            buffers.publish();
            self.free_buffers += 1;
        }
    }

    /// The number of the ring's own buffers that are free.
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
        let out_of_memory = || Err(io::Error::from_raw_os_error(libc::ENOMEM));
        if self.is_broken {
            return out_of_memory();
        }
        let entered = self.ring.enter(want, timeout);
        if self.ring.is_cut {
            self.is_broken = true;
            return out_of_memory();
        }
        // It is all of them or none.
        if self.ring.uring.submission().is_empty() {
            self.queued.clear();
        }
        match entered {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            // The kernel is short of requests or has completions to get rid of; both pass.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                Ok(())
            }
            other => other,
        }
    }

    /// Makes a request known, before it is queued.
    #[inline]
    fn add(&mut self, token: u32, held: PendingRequest) -> PendingKey {
        self.pending.add(token, held).unwrap_or_else(|| {
            // The next wait returns this error.
            self.is_broken = true;
            PendingKey::NONE
        })
    }

    /// Queues a chain of requests, which the kernel must get in one call.
    #[inline]
    fn push(&mut self, chain: &[Entry]) {
        if self.is_broken {
            return;
        }
        if self.is_ending {
            return self.backlog.push_back(chain.to_vec());
        }
        if self.backlog.is_empty() {
            if self.queue(chain) {
                return;
            }
            // An error comes again with the next wait, which returns it.
            let _ = self.enter(0, None);
            if self.queue(chain) {
                return;
            }
        }
        self.backlog.push_back(chain.to_vec());
    }

    /// Writes a chain into the submission queue. False if there is no room.
    #[inline]
    fn queue(&mut self, chain: &[Entry]) -> bool {
        // SAFETY: all memory that these requests name is in `pending` or in `buffers`, or static,
        // until their completion; neither is freed before the kernel has let go of everything.
        let pushed = unsafe { self.ring.uring.submission().push_multiple(chain) };
        if pushed.is_ok() {
            self.queued.extend(chain.iter().map(Entry::get_user_data));
        }
        pushed.is_ok()
    }

    fn submit_backlog(&mut self) {
        while let Some(chain) = self.backlog.pop_front() {
            if !self.queue(&chain) {
                return self.backlog.push_front(chain);
            }
        }
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

/// `io_uring_register(2)` with one struct; answers what the kernel does.
fn register<T>(
    ring: &UringQueues,
    what: libc::c_uint,
    argument: &T,
    count: u32,
) -> io::Result<u64> {
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
fn open_buffers(ring: &UringQueues, count: usize, bytes: usize) -> CallResult<BufferRing> {
    let shape = BufferRingShape::new(count.min(BUFFERS_MAX), bytes.max(1))?;
    let mut buffers = BufferRing::new(shape)?;
    let count = buffers.shape().count;
    let submitter = ring.uring.submitter();
    // SAFETY: the address is that of a mapping with `count` entries at a page's beginning. The
    // kernel holds its pages on its own account, so that unmapping it early would be harmless.
    unsafe { submitter.register_buf_ring_with_flags(buffers.address(), count, GROUP, 0) }
        .on("io_uring_register", "buffer ring")?;
    (0..count).for_each(|id| buffers.give(id));
    buffers.publish();
    Ok(buffers)
}

#[cfg(test)]
mod tests;
