//! Receiving by one standing request: multishot `recv`, or `recvmsg` if trains or senders are
//! wanted. It fills provided buffers (Linux 6.0, io_uring_prep_recvmsg_multishot(3)).

mod gathering;

use self::gathering::Gathering;
use super::UringQueues;
use super::buffer_ring::{BufferRing, BufferRingShape};
use super::header::BufferLayout;
use crate::CallResult;
use crate::error::On;
use crate::messages::{DatagramDetails, Extras, ReceivedMessage};
use io_uring::types::{CancelBuilder, Fixed, Napi, NapiTracking, SubmitArgs, Timespec};
use io_uring::{cqueue, opcode};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// The buffers' group; each ring has one.
const GROUP: u16 = 0;
/// Datagrams that the kernel receives before it lets other work run: the first, and
/// `MULTISHOT_MAX_RETRY` more (io_uring/net.c).
const RUN: usize = 33;
/// How long a ring that is dropped waits for its request to end. It never takes that long; but a
/// destructor must not hang.
const CANCEL_TIME: Duration = Duration::from_millis(200);
/// How long a sleeping receiver lets packets gather under traffic. Measured: 10 µs make it as fast as
/// `recvmmsg`, 0 µs leave it 9 % behind, and at 25 µs the socket's default buffer overflows.
const GATHERING: Duration = Duration::from_micros(10);
/// Looks in a row that may bring nothing before the socket is asked whether something is there. A sleep
/// in vain is as many.
const LOOKS: u32 = 1 << 16;
/// How long a request that the kernel has forgotten may take to end.
const END_TIME: Duration = Duration::from_millis(10);
/// Calls between two checks of the device queue that packets come from.
const NAPI_EVERY: u64 = 256;

/// A socket's datagrams, received by one request that stands until it is cancelled.
///
/// One thread at a time may receive, and it owns the ring; if another one calls, the ring is
/// replaced by a new one over the same buffers, and nothing is lost.
#[derive(Debug)]
pub struct ReceiveRing {
    // Before the buffers, so that it is closed before their memory is unmapped.
    ring: UringQueues,
    buffers: BufferRing,
    layout: BufferLayout,
    request: ReceiveRequest,
    socket: OwnedFd,
    /// True while the kernel has the request.
    armed: bool,
    /// Buffers whose packets the caller may read until its next call.
    lent: Vec<u16>,
    /// Completions of a ring that was replaced.
    kept: VecDeque<(Option<u16>, usize)>,
    busy_poll: Option<PolledQueue>,
    /// The error that ended the request. It is returned after everything that came before it.
    failed: Option<io::Error>,
    rearmed: u64,
    /// Looks that brought nothing since the socket was asked last.
    empty: u32,
    /// The last check found something in the socket that the kernel had not reported.
    is_suspect: bool,
    gathering: Gathering,
    /// System calls of rings that were replaced.
    calls: u64,
}

/// The device queue that the kernel polls while it waits.
#[derive(Debug)]
struct PolledQueue {
    microseconds: u32,
    napi_id: u32,
    /// Calls since it was last looked at.
    age: u64,
}

/// The `struct msghdr` of the request: it says how much room each buffer has for the sender's
/// address and for control messages. On the heap, because the kernel reads it some time later.
#[derive(Debug)]
struct ReceiveRequest(Box<libc::msghdr>);

// SAFETY: its pointers are null and stay so.
unsafe impl Send for ReceiveRequest {}

impl ReceiveRequest {
    fn new(layout: &BufferLayout) -> Self {
        // SAFETY: all zeros is a valid `msghdr`: null pointers and zero lengths.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_namelen = layout.name_bytes as libc::socklen_t;
        header.msg_controllen = layout.control_bytes as _;
        Self(Box::new(header))
    }
}

impl ReceiveRing {
    /// A ring over `socket` with `count` buffers (rounded up to a power of two, 32768 at most)
    /// that keep `buffer_bytes` of each datagram or train.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` where io_uring is forbidden or not built in, `EINVAL` before Linux 6.1,
    /// `ENOMEM`, `EMFILE`.
    pub fn new(
        socket: BorrowedFd<'_>,
        count: usize,
        buffer_bytes: usize,
        extras: Extras,
    ) -> CallResult<Self> {
        let layout = BufferLayout::new(buffer_bytes, extras);
        let shape = BufferRingShape::new(count, layout.buffer_bytes())?;
        let socket = socket.try_clone_to_owned().on("dup", "socket")?;
        let mut buffers = BufferRing::new(shape)?;
        let ring = open(&buffers, &socket)?;
        (0..shape.count).for_each(|id| buffers.give(id));
        buffers.publish();
        Ok(Self {
            ring,
            buffers,
            layout,
            request: ReceiveRequest::new(&layout),
            socket,
            armed: false,
            lent: Vec::new(),
            kept: VecDeque::new(),
            busy_poll: None,
            failed: None,
            rearmed: 0,
            empty: 0,
            is_suspect: false,
            gathering: Gathering::default(),
            calls: 0,
        })
    }

    /// Lets waiting calls poll the device queue of the last packet for this time before they sleep.
    /// (`IORING_REGISTER_NAPI`, Linux 6.13 for naming the queue.)
    ///
    /// # Errors
    /// `EINVAL` before Linux 6.13, or if the kernel was built without busy polling.
    pub fn set_busy_poll(&mut self, microseconds: u32) -> CallResult<()> {
        register_napi(&self.ring, microseconds)?;
        self.busy_poll = Some(PolledQueue {
            microseconds,
            napi_id: 0,
            age: NAPI_EVERY,
        });
        Ok(())
    }

    /// Takes back the buffers that were lent by the last call, and receives up to `most` datagrams
    /// or trains. Passes to `each` where they lie in [`ReceiveRing::memory`], and their details if any were asked for.
    /// Sleeps for the first one if there is a `timeout`. Returns how many came, 0 for none in time.
    ///
    /// # Errors
    /// `EINTR` for a signal; an error of the socket that is not about datagrams it sent.
    pub fn receive(
        &mut self,
        most: usize,
        timeout: Option<Duration>,
        mut each: impl FnMut(ReceivedMessage, Option<DatagramDetails>),
    ) -> io::Result<usize> {
        self.take_back();
        let timeout = timeout.map(|time| time.min(super::WAIT_MAX));
        let deadline = timeout.map(|time| Instant::now() + time);
        let mut wait = timeout;
        loop {
            self.fill(most, wait)?;
            let received = self.reap(most, &mut each);
            if received > 0 {
                (self.empty, self.is_suspect) = (0, false);
                self.gathering.brought(received);
                self.follow_queue();
                return Ok(received);
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if !self.armed {
                // It ended without bringing anything: for want of buffers, which are all back by
                // now, or by an error about a datagram that was sent.
                continue;
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            wait = left.filter(|left| !left.is_zero());
            if wait.is_some() {
                continue;
            }
            self.empty += timeout.map_or(1, |_| LOOKS);
            if self.empty < LOOKS {
                return Ok(0);
            }
            self.empty = 0;
            if !self.is_forgotten()? {
                return Ok(0);
            }
            self.restart()?;
        }
    }

    /// True if the socket has had datagrams for a while that the kernel does not hand to the request.
    ///
    /// Seen once, on Linux 6.18.44 under a flood: from some moment on the request brought nothing, and
    /// the socket's buffer was full. A wake-up may have been lost (`io_poll_check_events`,
    /// io_uring/poll.c).
    fn is_forgotten(&mut self) -> io::Result<bool> {
        self.calls += 1;
        let socket = PollFd::new(&self.socket, PollFlags::IN);
        let is_there = poll(&mut [socket], Some(&rustix::event::Timespec::default()))? > 0;
        let is_told = self.ring.has_work() || self.ring.completed() > 0;
        // A packet that came at this very moment is reported by the next call.
        let was_suspect = mem::replace(&mut self.is_suspect, is_there && !is_told);
        Ok(was_suspect && self.is_suspect)
    }

    /// Ends the request, so that it is made again.
    fn restart(&mut self) -> io::Result<()> {
        self.is_suspect = false;
        self.calls += 1;
        let submitter = self.ring.uring.submitter();
        let cancelled = submitter.register_sync_cancel(Some(END_TIME.into()), CancelBuilder::any());
        if cancelled.is_err() {
            // In a thread that does not own the ring, or not in time: it is tried again.
            return Ok(());
        }
        self.enter(1, Some(END_TIME))?;
        // A request that the kernel has reports its end.
        self.armed &= self.ring.completed() > 0;
        Ok(())
    }

    /// Address and length in bytes of all buffers; [`ReceivedMessage::offset`] counts from it.
    ///
    /// The bytes reported by the last [`ReceiveRing::receive`] are readable until its next call or
    /// the end of the ring. They are not written until then. The others are the kernel's.
    #[inline]
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        self.buffers.memory()
    }

    /// How many buffers there are.
    pub fn buffers(&self) -> usize {
        usize::from(self.buffers.shape().count)
    }

    /// The kernel's name of what the request does, over and over.
    pub fn operation(&self) -> &'static str {
        if self.layout.has_header() {
            "recvmsg"
        } else {
            "recv"
        }
    }

    /// The set-up flags that the kernel granted, by its names.
    pub fn flags(&self) -> &'static str {
        self.ring.flags()
    }

    /// Times that the request ended for want of buffers (`ENOBUFS`) and was made again. The
    /// datagrams stay in the socket meanwhile.
    pub fn rearmed(&self) -> u64 {
        self.rearmed
    }

    /// System calls made so far.
    pub fn calls(&self) -> u64 {
        self.calls + self.ring.calls
    }

    /// Gives the kernel the buffers that the caller has read.
    #[inline]
    fn take_back(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        for id in self.lent.drain(..) {
            self.buffers.give(id);
        }
        self.buffers.publish();
    }

    /// Lets the kernel receive until there is enough, or nothing more; sleeps for the first one if
    /// there is a `wait`.
    fn fill(&mut self, most: usize, wait: Option<Duration>) -> io::Result<()> {
        if !self.armed {
            self.arm();
        }
        if wait.is_none() {
            self.run(most)?;
        }
        let polls = self.busy_poll.is_some().then_some(Duration::ZERO);
        if let Some(time) = wait.or(polls)
            // An error that came behind datagrams is returned before any wait.
            && self.failed.is_none()
            && self.kept.is_empty()
            && self.ring.completed() == 0
            && self.sleep(time)?
        {
            return Ok(());
        }
        // The first call of an empty ring makes a single run.
        self.run(most)
    }

    /// Does what there is to do, and sleeps until something is there. Answers whether it let packets
    /// gather.
    ///
    /// A call that gathers makes as many runs as there is work for. When it made several, the kernel
    /// forgets to take back that it wanted to be called (`IORING_SQ_TASKRUN`), so that its wish
    /// should not be looked at until the next call.
    fn sleep(&mut self, time: Duration) -> io::Result<bool> {
        let gathers = self.ring.uring.params().is_feature_min_timeout() && self.gathering.begin();
        if gathers {
            self.ring.gather = Some(GATHERING);
        }
        let slept = self.enter(if gathers { RUN } else { 1 }, Some(time));
        self.ring.gather = None;
        slept.map(|()| gathers)
    }

    /// Lets the kernel receive what it can without sleeping, if there is anything and room for it.
    ///
    /// A call makes as many runs as completions are wanted, and does not sleep if there are that
    /// many already (`io_cqring_wait`, io_uring/io_uring.c).
    fn run(&mut self, most: usize) -> io::Result<()> {
        let ready = self.ring.completed();
        let room = most.saturating_sub(self.kept.len() + ready);
        if room == 0 || !self.ring.has_work() {
            return Ok(());
        }
        self.enter(room.div_ceil(RUN).min(ready), None)
    }

    /// Makes the standing request; it is passed on with the next call.
    fn arm(&mut self) {
        // With MSG_TRUNC the kernel returns a datagram's whole length, recv(2).
        let request = if self.layout.has_header() {
            opcode::RecvMsgMulti::new(Fixed(0), &raw const *self.request.0, GROUP)
                .flags(libc::MSG_TRUNC as u32)
                .build()
        } else {
            opcode::RecvMulti::new(Fixed(0), GROUP)
                .flags(libc::MSG_TRUNC)
                .build()
        };
        // SAFETY: the header is on the heap and lives as long as the ring, and the buffers that
        // the request fills are those that were registered.
        let pushed = unsafe { self.ring.uring.submission().push(&request) };
        // The queue has room for several, and one is made at a time.
        self.armed = pushed.is_ok();
    }

    /// As [`UringQueues::enter`], but in whatever thread.
    fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        match self.ring.enter(want, timeout) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                self.renew().map_err(|error| error.source)?;
                self.arm();
                // The new ring does not gather packets, so one completion must be enough.
                let want = if self.kept.is_empty() { want.min(1) } else { 0 };
                self.ring.enter(want, timeout)
            }
            // Packets that came before the signal are there to be returned.
            Err(error)
                if error.kind() == io::ErrorKind::Interrupted && self.ring.completed() > 0 =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Passes up to `most` datagrams to `each`, and returns how many.
    fn reap(
        &mut self,
        most: usize,
        each: &mut impl FnMut(ReceivedMessage, Option<DatagramDetails>),
    ) -> usize {
        let Self {
            ring,
            buffers,
            layout,
            armed,
            lent,
            kept,
            failed,
            rearmed,
            ..
        } = self;
        let mut received = 0;
        let mut tell = |id: Option<u16>, filled| {
            lent.extend(id);
            if let Some((at, details)) = describe(buffers, layout, id, filled) {
                each(at, details);
                received += 1;
            }
            received
        };
        let mut told = 0;
        while told < most
            && let Some((id, filled)) = kept.pop_front()
        {
            told = tell(id, filled);
        }
        let mut completions = ring.uring.completion();
        while told < most
            && let Some(completion) = completions.next()
        {
            let flags = completion.flags();
            *armed &= cqueue::more(flags);
            match usize::try_from(completion.result()) {
                Ok(filled) => told = tell(cqueue::buffer_select(flags), filled),
                Err(_) => match -completion.result() {
                    libc::ENOBUFS => *rearmed += 1,
                    error if is_passing(error) => {}
                    error => *failed = Some(io::Error::from_raw_os_error(error)),
                },
            }
        }
        told
    }

    /// Replaces the ring by a new one for the calling thread: the kernel lets in only the first
    /// thread (`EEXIST`). Datagrams that the old ring received are kept; those that it did not
    /// receive yet are still in the socket.
    fn renew(&mut self) -> CallResult<()> {
        // Reading what the old ring completed needs no call.
        for completion in self.ring.uring.completion() {
            if let Ok(filled) = usize::try_from(completion.result()) {
                let id = cqueue::buffer_select(completion.flags());
                self.kept.push_back((id, filled));
            }
        }
        self.buffers.renew()?;
        let ring = open(&self.buffers, &self.socket)?;
        if let Some(polled) = &mut self.busy_poll {
            register_napi(&ring, polled.microseconds)?;
            (polled.napi_id, polled.age) = (0, NAPI_EVERY);
        }
        self.calls += self.ring.calls;
        self.ring = ring;
        self.armed = false;
        let kept: HashSet<u16> = self.kept.iter().filter_map(|(id, _)| *id).collect();
        let others = (0..self.buffers.shape().count).filter(|id| !kept.contains(id));
        others.for_each(|id| self.buffers.give(id));
        self.buffers.publish();
        Ok(())
    }

    /// Now and then sets the kernel to poll the device queue that packets come from, because it may
    /// have changed.
    #[inline]
    fn follow_queue(&mut self) {
        let Some(polled) = &mut self.busy_poll else {
            return;
        };
        polled.age += 1;
        if polled.age < NAPI_EVERY {
            return;
        }
        polled.age = 0;
        self.ring.calls += 1;
        let napi_id = incoming_napi_id(self.socket.as_fd());
        if napi_id == 0 || napi_id == polled.napi_id {
            return;
        }
        self.ring.calls += 1;
        let added = self.ring.uring.submitter().register_napi_add_id(napi_id);
        // The kernel answers with an error for a queue that it polls already, which is no error
        // here. A queue that it no longer knows is tried again later.
        if added.is_ok() {
            polled.napi_id = napi_id;
        }
    }
}

/// Readable when there is something to receive (poll(2), epoll(7)). It is another descriptor after
/// another thread took over.
impl AsFd for ReceiveRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open as long as it lives, which this borrow does
        // not outlast.
        unsafe { BorrowedFd::borrow_raw(self.ring.uring.as_raw_fd()) }
    }
}

impl Drop for ReceiveRing {
    /// The kernel takes a ring apart some time after its descriptor was closed. Until then the
    /// request would hold the socket, and its address could not be bound again.
    fn drop(&mut self) {
        if self.ring.enabled {
            // All fail in a thread that does not own the ring; then the kernel is later.
            let time = Some(Timespec::from(CANCEL_TIME));
            let submitter = self.ring.uring.submitter();
            let cancelled = submitter.register_sync_cancel(time, CancelBuilder::any());
            if cancelled.is_ok() {
                // The request's end is work like any other.
                let time = Timespec::from(CANCEL_TIME);
                let _ = submitter.submit_with_args(1, &SubmitArgs::new().timespec(&time));
            }
        }
        let _ = self.ring.uring.submitter().unregister_files();
    }
}

/// A ring that knows the socket and the buffers' ring.
fn open(buffers: &BufferRing, socket: &OwnedFd) -> CallResult<UringQueues> {
    let count = buffers.shape().count;
    // Every buffer may be in a completion that has not been looked at. The end of the request is
    // one more, so twice the count never overflows.
    let ring = UringQueues::new(4, 2 * u32::from(count))?;
    let submitter = ring.uring.submitter();
    submitter
        .register_files(&[socket.as_raw_fd()])
        .on("io_uring_register", "files")?;
    // SAFETY: the address is that of a mapping with `count` entries at a page's beginning. The
    // kernel holds its pages on its own account, so that unmapping it early would be harmless.
    let registered =
        unsafe { submitter.register_buf_ring_with_flags(buffers.address(), count, GROUP, 0) };
    registered.on("io_uring_register", "buffer ring")?;
    Ok(ring)
}

fn register_napi(ring: &UringQueues, microseconds: u32) -> CallResult<()> {
    let mut napi = Napi::new()
        .set_busy_poll_timeout(microseconds)
        // The kernel learns queues by itself only from sockets that have received already when the
        // request is made.
        .set_tracking(NapiTracking::Static);
    let registered = ring.uring.submitter().register_napi(&mut napi);
    registered.on("io_uring_register", "NAPI")
}

/// Where the datagram of a completion lies; none for a buffer that there is not. An empty datagram
/// may come without a buffer.
#[inline]
fn describe(
    buffers: &BufferRing,
    layout: &BufferLayout,
    id: Option<u16>,
    filled: usize,
) -> Option<(ReceivedMessage, Option<DatagramDetails>)> {
    let Some(id) = id else {
        return Some((ReceivedMessage::default(), None)).filter(|_| filled == 0);
    };
    let from = buffers.shape().offset(id)?;
    // SAFETY: the kernel has completed this buffer, and it has not been given again.
    let buffer = unsafe { buffers.filled(id, filled) }?;
    let header = layout.header(buffer, filled)?;
    let received = ReceivedMessage {
        offset: from + layout.payload_at(),
        bytes: header.bytes,
        wire_bytes: header.wire_bytes,
        segment_bytes: header.segment_bytes,
    };
    Some((received, layout.details(buffer)))
}

/// True for what ends a request and says nothing of the next one: an ICMP error about a datagram
/// that this socket sent (udp(7)), a signal, the end of the thread that had made it.
fn is_passing(error: i32) -> bool {
    let passing = [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EINTR,
        libc::EAGAIN,
        libc::ECANCELED,
    ];
    error == 0 || passing.contains(&error)
}

/// The device queue of the socket's last packet (`SO_INCOMING_NAPI_ID`, socket(7)), 0 for none.
fn incoming_napi_id(socket: BorrowedFd<'_>) -> u32 {
    let mut value: libc::c_uint = 0;
    let mut length = mem::size_of::<libc::c_uint>() as libc::socklen_t;
    // SAFETY: `value` is writable for `length` bytes and both pointers live across the call. A
    // refusal leaves it 0.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_NAPI_ID,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    value
}

#[cfg(test)]
mod tests;
