//! Sending many datagrams with one call, copied (`IORING_OP_SEND`) or not (`IORING_OP_SEND_ZC`,
//! Linux 6.0, io_uring_prep_send_zc(3)).

use super::UringQueues;
use crate::error::On;
use crate::messages::storage;
use crate::mmap::Mapping;
use crate::socket::UdpSocket;
use crate::{CallError, CallResult};
use io_uring::squeue::Entry;
use io_uring::types::Fixed;
use io_uring::{cqueue, opcode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr;
use std::slice;
use std::thread;
use std::time::Duration;

/// `IORING_SEND_ZC_REPORT_USAGE` and `IORING_NOTIF_USAGE_ZC_COPIED`, include/uapi/linux/io_uring.h.
const REPORT_USAGE: u16 = 1 << 3;
const COPIED: i32 = i32::MIN;
/// How long the kernel may keep payloads before they are given up to it and others are used. A
/// datagram waits that long only for a neighbour that does not answer.
const RECLAIM_TIME: Duration = Duration::from_secs(1);

/// How long to wait before a ring is asked for again that the kernel refused.
const RENEW_PAUSE: Duration = Duration::from_millis(1);

/// Payloads of up to `count` messages, and the ring that passes them to the kernel.
///
/// One thread at a time may send; when another one does, the ring is replaced by a new one.
pub struct SendRing {
    // Before the payloads, so that it is closed before their memory is unmapped.
    ring: UringQueues,
    arena: Mapping,
    sockets: Vec<UdpSocket>,
    shape: SendRingShape,
    lengths: Vec<u32>,
    // The destination of unconnected sockets, one element or none. On the heap, because the
    // kernel reads it during calls.
    target: Vec<libc::sockaddr_storage>,
    target_bytes: libc::socklen_t,
    /// Payloads that the kernel still reads, as far as it has reported.
    held: usize,
    notified: u64,
    copied: u64,
    /// System calls of rings that were replaced.
    calls: u64,
}

#[derive(Debug, Clone, Copy)]
struct SendRingShape {
    count: usize,
    stride: usize,
    zero_copy: bool,
}

/// The result for a message of one [`SendRing::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submission {
    /// The kernel took it.
    Taken,
    /// It met this `errno`; `EAGAIN` if the send buffer was full.
    Failed(i32),
}

impl SendRing {
    /// A ring over `sockets` with `count` messages of `message_bytes` zeros each, to `target` or,
    /// if that is none, to the peers that the sockets are connected to.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` where io_uring is forbidden or not built in, `EINVAL` before Linux 6.1,
    /// `ENOMEM` also if zero-copy payloads exceed `RLIMIT_MEMLOCK`, `EMFILE`.
    pub fn new(
        sockets: Vec<UdpSocket>,
        count: usize,
        message_bytes: usize,
        target: Option<SocketAddr>,
        zero_copy: bool,
    ) -> CallResult<Self> {
        let shape = SendRingShape {
            count,
            stride: message_bytes.next_multiple_of(64).max(64),
            zero_copy,
        };
        let arena = Mapping::anonymous(shape.stride * count)?;
        let (target, target_bytes) = match target.map(|address| storage(&address)) {
            Some((storage, bytes)) => (vec![storage], bytes),
            None => (Vec::new(), 0),
        };
        Ok(Self {
            ring: open(&sockets, &arena, &shape)?,
            arena,
            sockets,
            shape,
            lengths: vec![message_bytes as u32; count],
            target,
            target_bytes,
            held: 0,
            notified: 0,
            copied: 0,
            calls: 0,
        })
    }

    /// All payloads; message `at` begins at `at` times [`SendRing::stride`]. Waits until the
    /// kernel has let go of what was sent without a copy.
    pub fn arena_mut(&mut self) -> &mut [u8] {
        self.reclaim();
        // SAFETY: the mapping is that long and zeroed at first. The kernel reads it only for
        // requests that were submitted and not yet reported as over, and there are none. No other
        // code has the address.
        unsafe { slice::from_raw_parts_mut(self.arena.start().as_ptr(), self.arena.bytes()) }
    }

    /// Bytes from one message's payload to the next one's.
    pub fn stride(&self) -> usize {
        self.shape.stride
    }

    /// Changes the length of message `at`, up to the room that it was given.
    pub fn set_bytes(&mut self, at: usize, bytes: usize) {
        self.lengths[at] = bytes.min(self.shape.stride) as u32;
    }

    /// Passes the messages of these numbers to the kernel on one socket, and their results to
    /// `each`. None waits for room in the send buffer.
    ///
    /// # Errors
    /// An error of the ring, not of a message.
    pub fn send(
        &mut self,
        socket: usize,
        messages: impl Iterator<Item = usize> + Clone,
        mut each: impl FnMut(usize, Submission),
    ) -> io::Result<()> {
        let socket = Fixed((socket % self.sockets.len().max(1)) as u32);
        let mut left = self.push(socket, messages.clone());
        let mut fresh = true;
        while left > 0 {
            // Requests that must not wait are complete when the call that submits them returns.
            let want = if fresh { 0 } else { left };
            match self.ring.enter(want, None) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    self.renew().map_err(|error| error.source)?;
                    left = self.push(socket, messages.clone());
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.reap(&mut each);
                    // A new ring forgets the requests that were not passed on; in this one they
                    // would go out with the next call. If there is none, that call fails as well.
                    let _ = self.renew();
                    return Err(error);
                }
                Ok(()) => {}
            }
            fresh = false;
            left = left.saturating_sub(self.reap(&mut each));
        }
        Ok(())
    }

    /// The socket of that number, of those that there are in turn.
    pub fn socket(&self, number: usize) -> &UdpSocket {
        &self.sockets[number % self.sockets.len().max(1)]
    }

    /// Waits until a socket's send buffer has room again (`poll(2)`), for `timeout` at most. True
    /// if it has.
    ///
    /// # Errors
    /// `EINTR` for a signal.
    pub fn wait_writable(&mut self, socket: usize, timeout: Duration) -> io::Result<bool> {
        self.ring.calls += 1;
        let socket = self.socket(socket);
        let timeout = Timespec::try_from(timeout).ok();
        let ready = poll(&mut [PollFd::new(socket, PollFlags::OUT)], timeout.as_ref())?;
        Ok(ready > 0)
    }

    /// Two counts of messages sent without a copy: those that the kernel copied after all, and
    /// those that it has reported on. It copies for receivers on the same machine.
    pub fn copied(&self) -> (u64, u64) {
        (self.copied, self.notified)
    }

    /// The set-up flags that the kernel granted, by its names.
    pub fn flags(&self) -> &'static str {
        self.ring.flags()
    }

    /// System calls made so far.
    pub fn calls(&self) -> u64 {
        self.calls + self.ring.calls
    }

    /// Writes requests; answers how many.
    fn push(&mut self, socket: Fixed, messages: impl Iterator<Item = usize>) -> usize {
        let mut pushed = 0;
        for at in messages {
            let request = self.request(socket, at);
            // SAFETY: the payload is inside the arena and the destination on the heap; both live
            // as long as the ring, and the arena is not written while the kernel holds payloads.
            let push = unsafe { self.ring.uring.submission().push(&request) };
            if push.is_err() {
                // The queue has room for as many as there are messages.
                break;
            }
            pushed += 1;
        }
        pushed
    }

    fn request(&self, socket: Fixed, at: usize) -> Entry {
        let at = at.min(self.shape.count - 1);
        let payload = self
            .arena
            .start()
            .as_ptr()
            .wrapping_add(at * self.shape.stride);
        let bytes = self.lengths[at];
        let target = self.target.first().map_or(ptr::null(), |target| {
            ptr::from_ref(target).cast::<libc::sockaddr>()
        });
        let entry = if self.shape.zero_copy {
            opcode::SendZc::new(socket, payload, bytes)
                .flags(libc::MSG_DONTWAIT)
                .zc_flags(REPORT_USAGE)
                .buf_index(Some(0))
                .dest_addr(target)
                .dest_addr_len(self.target_bytes)
                .build()
        } else {
            opcode::Send::new(socket, payload, bytes)
                .flags(libc::MSG_DONTWAIT)
                .dest_addr(target)
                .dest_addr_len(self.target_bytes)
                .build()
        };
        entry.user_data(at as u64)
    }

    /// Looks at completions; answers how many messages they are about.
    fn reap(&mut self, each: &mut impl FnMut(usize, Submission)) -> usize {
        let mut answered = 0;
        for completion in self.ring.uring.completion() {
            let (flags, result) = (completion.flags(), completion.result());
            if cqueue::notif(flags) {
                self.held = self.held.saturating_sub(1);
                self.notified += 1;
                self.copied += u64::from(result & COPIED != 0);
                continue;
            }
            self.held += usize::from(cqueue::more(flags));
            answered += 1;
            let outcome = if result < 0 {
                Submission::Failed(-result)
            } else {
                Submission::Taken
            };
            each(completion.user_data() as usize, outcome);
        }
        answered
    }

    /// Waits until the kernel holds no payload any more.
    fn reclaim(&mut self) {
        if self.held == 0 {
            return;
        }
        self.reap(&mut |_, _| {});
        while self.held > 0 {
            let before = self.held;
            let entered = self.ring.enter(1, Some(RECLAIM_TIME));
            let interrupted = entered
                .as_ref()
                .is_err_and(|error| error.kind() == io::ErrorKind::Interrupted);
            self.reap(&mut |_, _| {});
            if self.held == before && !interrupted {
                // It takes too long, or the ring is another thread's: the kernel may keep these.
                if self.renew().is_ok() {
                    return;
                }
                // There may be descriptors and memory again soon.
                thread::sleep(RENEW_PAUSE);
            }
        }
    }

    /// Replaces the ring by a new one for the calling thread, and the payloads by copies of them.
    /// The kernel may still read the old ones, whose pages it holds on its own account.
    fn renew(&mut self) -> CallResult<()> {
        let arena = Mapping::anonymous(self.arena.bytes())?;
        // SAFETY: both mappings are that long and do not overlap; the kernel at most reads the
        // old one, and does not know the new one.
        unsafe {
            ptr::copy_nonoverlapping(
                self.arena.start().as_ptr(),
                arena.start().as_ptr(),
                arena.bytes(),
            );
        }
        let ring = open(&self.sockets, &arena, &self.shape)?;
        self.calls += self.ring.calls;
        self.ring = ring;
        self.arena = arena;
        self.held = 0;
        Ok(())
    }
}

impl Drop for SendRing {
    /// The kernel takes a ring apart some time after its descriptor was closed, and would hold the
    /// sockets until then.
    fn drop(&mut self) {
        // It fails in a thread that does not own the ring; then the kernel is later.
        let _ = self.ring.uring.submitter().unregister_files();
    }
}

impl fmt::Debug for SendRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRing")
            .field("ring", &self.ring)
            .field("shape", &self.shape)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

/// A ring that knows the sockets, and the payloads if they are not to be copied.
fn open(sockets: &[UdpSocket], arena: &Mapping, shape: &SendRingShape) -> CallResult<UringQueues> {
    let count = shape.count as u32;
    // A message has an answer, and without a copy a notification besides; of those there may be
    // some from the sends before.
    let ring = UringQueues::new(count, 4 * count)?;
    let submitter = ring.uring.submitter();
    let files: Vec<RawFd> = sockets
        .iter()
        .map(|socket| socket.as_fd().as_raw_fd())
        .collect();
    submitter
        .register_files(&files)
        .on("io_uring_register", "files")?;
    if shape.zero_copy {
        let whole = libc::iovec {
            iov_base: arena.start().as_ptr().cast(),
            iov_len: arena.bytes(),
        };
        // SAFETY: the mapping is that long. The kernel pins its pages, so that unmapping it before
        // the ring has gone would be harmless.
        let registered = unsafe { submitter.register_buffers(&[whole]) };
        registered.map_err(|error| {
            let object = format!("{} bytes of payload", arena.bytes());
            CallError::new("io_uring_register", object, error)
        })?;
    }
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(zero_copy: bool, count: usize) -> Option<(SendRing, std::net::UdpSocket)> {
        // Where io_uring is forbidden there is nothing to test.
        super::super::probe().ok()?;
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = receiver.local_addr().unwrap();
        let socket = UdpSocket::new(&target).unwrap();
        socket.connect(&target).unwrap();
        let ring = SendRing::new(vec![socket], count, 4, None, zero_copy).unwrap();
        Some((ring, receiver))
    }

    fn send_numbers(ring: &mut SendRing, from: u32, count: usize) {
        let stride = ring.stride();
        let messages = ring.arena_mut().chunks_mut(stride).take(count);
        for (number, payload) in (from..).zip(messages) {
            payload[..4].copy_from_slice(&number.to_le_bytes());
        }
        let mut answered = vec![false; count];
        let tell = |at: usize, outcome| {
            assert_eq!(outcome, Submission::Taken);
            assert!(!std::mem::replace(&mut answered[at], true), "{at} twice");
        };
        ring.send(0, 0..count, tell).unwrap();
        assert!(answered.iter().all(|answered| *answered));
    }

    fn receive_numbers(receiver: &std::net::UdpSocket, from: u32, count: usize) {
        for number in (from..).take(count) {
            let mut bytes = [0; 4];
            assert_eq!(receiver.recv(&mut bytes).unwrap(), 4);
            assert_eq!(u32::from_le_bytes(bytes), number);
        }
    }

    #[test]
    fn payloads_arrive_in_order_and_are_not_reused_too_early() {
        for zero_copy in [false, true] {
            let Some((mut ring, receiver)) = ring(zero_copy, 64) else {
                return;
            };
            for round in 0..200 {
                send_numbers(&mut ring, round * 64, 64);
                receive_numbers(&receiver, round * 64, 64);
            }
            ring.reclaim();
            let (copied, notified) = ring.copied();
            let expected = if zero_copy { 200 * 64 } else { 0 };
            // To a receiver on the same machine it is always copied.
            assert_eq!((copied, notified), (expected, expected));
        }
    }

    #[test]
    fn another_thread_may_send_on() {
        for zero_copy in [false, true] {
            let Some((mut ring, receiver)) = ring(zero_copy, 8) else {
                return;
            };
            for round in 0..5 {
                ring = thread::spawn(move || {
                    send_numbers(&mut ring, round * 8, 8);
                    ring
                })
                .join()
                .unwrap();
                receive_numbers(&receiver, round * 8, 8);
            }
            // The payloads outlive the ring.
            ring.send(0, 0..8, |_, _| {}).unwrap();
            receive_numbers(&receiver, 32, 8);
        }
    }

    #[test]
    fn what_a_broken_call_left_behind_is_not_sent_later() {
        for zero_copy in [false, true] {
            let Some((mut ring, receiver)) = ring(zero_copy, 8) else {
                return;
            };
            send_numbers(&mut ring, 0, 8);
            receive_numbers(&receiver, 0, 8);
            // Whatever the cause, such as no memory: io_uring_enter(2) fails.
            let null = std::fs::File::open("/dev/null").unwrap();
            let broken = ring.ring.uring.as_raw_fd();
            // SAFETY: two open descriptors; the second stays open, and the ring's own.
            assert!(unsafe { libc::dup3(null.as_raw_fd(), broken, libc::O_CLOEXEC) } >= 0);
            assert!(ring.send(0, 0..8, |_, _| {}).is_err());
            send_numbers(&mut ring, 8, 8);
            receive_numbers(&receiver, 8, 8);
            receiver.set_nonblocking(true).unwrap();
            assert!(receiver.recv(&mut [0; 4]).is_err(), "one came twice");
        }
    }

    #[test]
    fn a_refused_message_says_why() {
        let Some((mut ring, receiver)) = ring(false, 1) else {
            return;
        };
        drop(receiver);
        let mut outcomes = Vec::new();
        for _ in 0..4 {
            ring.send(0, 0..1, |_, outcome| outcomes.push(outcome))
                .unwrap();
        }
        assert_eq!(outcomes.len(), 4);
        assert!(outcomes.contains(&Submission::Failed(libc::ECONNREFUSED)));
    }
}
