//! The descriptors and memory of the launcher, and the lock around them.

use crate::frame::{self, RingDatagram};
use crate::kernel;
use libc::c_int;
use mpps_os::xdp::shared::{Control, SharedControl, SharedQueue};
use std::cell::{Cell, UnsafeCell};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::atomic::{Ordering::Relaxed, fence};

/// The variable of the environment with the descriptors: the memory, the eventfd that wakes the
/// launcher, and the socket of each queue.
const VARIABLE: &str = "MPPS_ACCELERATE";
/// Most frames that wait for more to be sent.
const HELD_MAX: u32 = 32;
/// How long a launcher is waited for.
const TELL_MS: u32 = 200;
/// After the launcher had to send what was held, because the program does something between, these datagrams
/// are not held.
const SLOW_SENDS: u32 = 32;

/// The launcher's memory and queues.
pub(crate) struct ProgramSession {
    control: SharedControl,
    queues: UnsafeCell<Vec<SharedQueue>>,
    pub(crate) queue_fds: Vec<c_int>,
    waker: c_int,
}

// SAFETY: the queues are reached only under the lock, or by calls that need none.
unsafe impl Sync for ProgramSession {}
// SAFETY: as above.
unsafe impl Send for ProgramSession {}

static SESSION: OnceLock<Option<ProgramSession>> = OnceLock::new();
/// The number of this process.
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// True while this thread has the lock: a signal's handler must not wait for it.
    static HAS_LOCK: Cell<bool> = const { Cell::new(false) };
    /// The launcher's flushes when this thread last sent, and how many datagrams it holds no more.
    static PACE: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    kernel::keeping_errno(|| SESSION.get_or_init(ProgramSession::join));
}

extern "C" fn after_fork() {
    PROCESS.store(std::process::id(), Relaxed);
}

/// The session, in a program that a launcher started.
#[inline]
pub(crate) fn session() -> Option<&'static ProgramSession> {
    SESSION.get()?.as_ref()
}

impl ProgramSession {
    fn join() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let mut numbers = text.split(',').map(|number| number.parse::<c_int>().ok());
        let (memory, waker) = (numbers.next()??, numbers.next()??);
        let queue_fds: Vec<c_int> = numbers.collect::<Option<_>>()?;
        // SAFETY: only looked at; a descriptor that is something different is refused.
        let memory = unsafe { BorrowedFd::borrow_raw(memory) };
        let control = SharedControl::join(memory)?;
        let frame_bytes = control.frame_bytes.load(Relaxed);
        let queues = queue_fds.iter().zip(0..).map(|(fd, queue)| {
            // SAFETY: the launcher meant the descriptor for this library.
            let socket = unsafe { OwnedFd::from_raw_fd(*fd) };
            SharedQueue::join(socket, memory, queue, frame_bytes).ok()
        });
        let queues: Option<Vec<SharedQueue>> = queues.collect();
        after_fork();
        // SAFETY: the function only stores a number.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
        Some(Self {
            control,
            queues: UnsafeCell::new(queues?),
            queue_fds,
            waker,
        })
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// True for a descriptor of this library, which no program may close by accident.
    pub(crate) fn is_own(&self, fd: c_int) -> bool {
        self.waker == fd || self.queue_fds.contains(&fd)
    }

    /// The lock; none if this thread has it already, in a signal's handler.
    pub(crate) fn lock(&self) -> Option<Locked<'_>> {
        if HAS_LOCK.replace(true) {
            return None;
        }
        let lock = &self.control.lock;
        let own = PROCESS.load(Relaxed);
        let mut tries = 0_u32;
        while let Err(holder) = lock.compare_exchange_weak(0, own, Ordering::Acquire, Relaxed) {
            tries += 1;
            if tries.is_multiple_of(64) {
                std::thread::yield_now();
            }
            if tries.is_multiple_of(1 << 16) && holder != 0 && is_gone(holder) {
                // A killed process leaves at most one frame unused.
                let _ = lock.compare_exchange(holder, 0, Ordering::Acquire, Relaxed);
            }
        }
        Some(Locked { session: self })
    }

    /// The length of a socket's next datagram in a ring, if there is one.
    pub(crate) fn next_bytes(&self, place: usize) -> Option<usize> {
        let mut locked = self.lock()?;
        let found = locked.next(place)?;
        Some(locked.datagram(found)?.payload.len())
    }

    /// A socket of the port is here, is gone, or changed: the launcher looks at once. Waits until it
    /// did if `waits`.
    pub(crate) fn tell(&self, waits: bool) {
        self.control.asked.store(2, Relaxed);
        self.wake();
        let mut left = if waits { TELL_MS * 10 } else { 0 };
        while left > 0 && self.control.asked.load(Relaxed) > 1 {
            std::thread::sleep(std::time::Duration::from_micros(100));
            left -= 1;
        }
    }

    fn wake(&self) {
        let one = 1_u64;
        let words = [self.waker as usize, (&raw const one) as usize, 8, 0, 0, 0];
        // SAFETY: eight bytes are read.
        kernel::keeping_errno(|| unsafe { kernel::call(libc::SYS_write, words) });
    }

    /// Sends what is held back.
    pub(crate) fn flush(&self) {
        if self.control.held.load(Relaxed) > 0 {
            self.control.held.store(0, Relaxed);
            // SAFETY: no queue is changed: a call to the kernel, which has a lock of its own.
            let queues = unsafe { &*self.queues.get() };
            let waiting = queues.iter().filter(|queue| queue.unsent() > 0);
            waiting.for_each(SharedQueue::kick);
        }
    }

    /// Sends what was put into a ring, or holds it back while datagrams wait that may bring more.
    pub(crate) fn sent(&self, count: u32, is_more_waiting: bool) {
        let control = self.control();
        let held = control.held.fetch_add(count, Relaxed);
        let flushes = control.flushes.load(Relaxed);
        let (seen, slow) = PACE.get();
        let slow = if seen == flushes { slow } else { SLOW_SENDS };
        PACE.set((flushes, slow.saturating_sub(count)));
        if !is_more_waiting || slow > 0 || held + count >= HELD_MAX {
            return self.flush();
        }
        if held == 0 {
            control.holds.fetch_add(1, Relaxed);
            fence(Ordering::SeqCst);
            if control.is_watching.load(Relaxed) == 0 {
                self.wake();
            }
        }
    }
}

fn is_gone(process: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { kernel::call(libc::SYS_kill, [process as usize, 0, 0, 0, 0, 0]) };
    asked != 0 && kernel::errno() == libc::ESRCH
}

/// The lock, held.
pub(crate) struct Locked<'a> {
    session: &'a ProgramSession,
}

/// A datagram that was found: its queue, and where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) queue: usize,
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    is_aside: bool,
}

impl Locked<'_> {
    pub(crate) fn queues(&mut self) -> &mut [SharedQueue] {
        // SAFETY: the holder of the lock has all queues, and `&mut self` is the only way to it.
        unsafe { &mut *self.session.queues.get() }
    }

    /// The next datagram of a socket. Those of other sockets in front of it are put aside; those of
    /// none and those with a wrong check sum are dropped.
    pub(crate) fn next(&mut self, socket: usize) -> Option<Found> {
        let control = self.session.control();
        let own = &control.sockets[socket];
        let first = own.aside_first.load(Relaxed);
        if first != own.aside_next.load(Relaxed) {
            return Some(Found::unpacked(aside(control, socket, first).load(Relaxed)));
        }
        let unfinished = control.unfinished_sums.load(Relaxed) != 0;
        let begin = control.next_queue.load(Relaxed) as usize;
        let queues = self.queues();
        for ahead in 0..queues.len() {
            let at = (begin + ahead) % queues.len();
            let queue = &mut queues[at];
            while let Some((address, bytes)) = queue.next() {
                let datagram = queue.bytes(address, bytes).and_then(frame::parse);
                let sound = datagram.filter(|datagram| datagram.is_sound(unfinished));
                let owner = sound.and_then(|datagram| control.owner(datagram.destination));
                let is_bad = sound.is_none();
                let found = Found {
                    queue: at,
                    address,
                    bytes,
                    is_aside: false,
                };
                if owner == Some(socket) {
                    return Some(found);
                }
                queue.take();
                if !owner.is_some_and(|owner| put_aside(control, owner, found)) {
                    let counts = &control.counts;
                    let count = if is_bad {
                        &counts.bad_sum
                    } else {
                        &counts.no_room
                    };
                    count.fetch_add(1, Relaxed);
                    queue.give_back(address);
                }
            }
        }
        None
    }

    /// Drops the datagrams of a socket that is gone, as the kernel does.
    pub(crate) fn purge(&mut self, place: usize) {
        let control = self.session.control();
        let socket = &control.sockets[place];
        if socket.cookie.load(Relaxed) != 0 {
            return;
        }
        while socket.aside_first.load(Relaxed) != socket.aside_next.load(Relaxed) {
            let first = socket.aside_first.fetch_add(1, Relaxed);
            let found = Found::unpacked(aside(control, place, first).load(Relaxed));
            self.queues()[found.queue].give_back(found.address);
            control.counts.no_room.fetch_add(1, Relaxed);
        }
        // Those in the rings have no owner now.
        self.next(place);
    }

    /// A datagram that was found.
    pub(crate) fn datagram(&mut self, found: Found) -> Option<RingDatagram<'_>> {
        frame::parse(self.queues()[found.queue].bytes(found.address, found.bytes)?)
    }

    /// Ends with a datagram that was found.
    pub(crate) fn finish(&mut self, socket: usize, found: Found) {
        let control = self.session.control();
        let queue = &mut self.queues()[found.queue];
        match found.is_aside {
            true => drop(control.sockets[socket].aside_first.fetch_add(1, Relaxed)),
            false => queue.take(),
        }
        queue.give_back(found.address);
        control.counts.by_ring.fetch_add(1, Relaxed);
        if queue.next().is_none() {
            control.next_queue.store(found.queue as u32 + 1, Relaxed);
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.session.control.lock.store(0, Ordering::Release);
        HAS_LOCK.set(false);
    }
}

impl Found {
    fn packed(self) -> u64 {
        (self.queue as u64) << 56 | u64::from(self.bytes) << 40 | self.address
    }

    fn unpacked(word: u64) -> Self {
        Self {
            queue: (word >> 56) as usize,
            bytes: (word >> 40) as u32 & 0xffff,
            address: word & 0xff_ffff_ffff,
            is_aside: true,
        }
    }
}

fn aside(control: &Control, socket: usize, at: u32) -> &std::sync::atomic::AtomicU64 {
    let aside = &control.sockets[socket].aside;
    &aside[at as usize % aside.len()]
}

fn put_aside(control: &Control, socket: usize, found: Found) -> bool {
    let place = &control.sockets[socket];
    let next = place.aside_next.load(Relaxed);
    let has_room = next.wrapping_sub(place.aside_first.load(Relaxed)) < place.aside.len() as u32;
    if has_room {
        aside(control, socket, next).store(found.packed(), Relaxed);
        place.aside_next.store(next.wrapping_add(1), Relaxed);
    }
    has_room
}
