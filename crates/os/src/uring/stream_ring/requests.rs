//! The requests that a stream ring makes, one verb each (io_uring_enter(2), io_uring_prep_*(3)).

use super::pending::{PendingKey, PendingRequest};
use super::socket::{Memory, RingDescriptor};
use super::{Address, Buffer, DescriptorKind, GROUP, RequestKey, RingSocket, StreamRing};
use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, DestinationSlot, Fd, Fixed};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// The number of completions that belong to no request.
pub(super) const NOBODY: u64 = u64::MAX;
/// The parts of [`PendingRequest::Dial`] after the socket and its options. One of them is the last.
pub(super) const STAGE_BIND: u32 = 1;
const STAGE_CONNECT: u32 = 2;
/// The second part of [`PendingRequest::SendAndClose`].
pub(super) const STAGE_CLOSE: u32 = 1;

/// The second part of [`PendingRequest::Exchange`].
pub(super) const STAGE_RECEIVE: u32 = 1;

/// The number of another ring's slot: as a descriptor it is -1, which the kernel answers with
/// `EBADF`.
const FOREIGN: i64 = i64::MAX;
/// Bytes that one request sends at most (`MAX_RW_COUNT`, include/linux/fs.h): in a chain, the
/// kernel would cut off the rest without a report.
pub(super) const SEND_BYTES_MAX: usize = i32::MAX as usize & !4095;

/// `IORING_RECVSEND_POLL_FIRST`, include/uapi/linux/io_uring.h.
const POLL_FIRST: u16 = 1;
/// `SOCKET_URING_OP_SIOCOUTQ`, include/uapi/linux/io_uring.h.
const SOCKET_UNSENT: u32 = 1;
static ONE: libc::c_int = 1;
static ZERO: libc::c_int = 0;
/// Close discards what is not sent and answers with RST, socket(7).
static LINGER: libc::linger = libc::linger {
    l_onoff: 1,
    l_linger: 0,
};

/// Where a new connection goes.
#[derive(Debug, Clone, Copy)]
pub struct Dialling<'a> {
    /// The other end.
    pub target: &'a Address,
    /// Our end; the kernel chooses what is none, or the port if that is 0.
    pub source: Option<&'a Address>,
    /// To close it later sends RST (`SO_LINGER` of zero).
    pub reset: bool,
}

/// How bytes are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendRequest {
    /// Not over before all is sent (`MSG_WAITALL`); otherwise as soon as some is.
    pub whole: bool,
    /// More comes at once, so that the last packet may wait for it (`MSG_MORE`).
    pub more: bool,
}

impl SendRequest {
    fn flags(self) -> i32 {
        let whole = if self.whole { libc::MSG_WAITALL } else { 0 };
        let more = if self.more { libc::MSG_MORE } else { 0 };
        whole | more
    }
}

/// Either kind of descriptor, in the two types that the `io-uring` crate has for them.
macro_rules! on {
    ($number:expr, $descriptor:ident => $entry:expr) => {{
        let number: i64 = $number;
        match slot(number) {
            Some(slot) => {
                let $descriptor = Fixed(slot);
                $entry
            }
            None => {
                let $descriptor = Fd(number as i32);
                $entry
            }
        }
    }};
}

impl StreamRing {
    /// Accepts a connection (accept(2)); with `multishot` again and again (`IORING_ACCEPT_MULTISHOT`,
    /// Linux 5.19). Answered by [`super::CompletedCall::Accepted`].
    pub fn accept(
        &mut self,
        token: u32,
        listener: &RingSocket,
        placement: DescriptorKind,
        multishot: bool,
    ) -> RequestKey {
        let direct = !matches!(placement, DescriptorKind::Ordinary);
        let listener = self.number(listener);
        let entry = if multishot {
            on!(listener, fd => opcode::AcceptMulti::new(fd)
                .allocate_file_index(direct)
                .flags(accept_flags(direct))
                .build())
        } else {
            let index = direct.then(DestinationSlot::auto_target);
            on!(listener, fd => opcode::Accept::new(fd, ptr::null_mut(), ptr::null_mut())
                .file_index(index)
                .flags(accept_flags(direct))
                .build())
        };
        self.request(token, PendingRequest::Accept { direct }, entry)
    }

    /// Makes a socket in a slot and connects it, in one turn: socket(2), setsockopt(2), bind(2) if
    /// there is a source, connect(2). The first data carries the acknowledgement of the handshake,
    /// and a close that of the reply, as with [`crate::tcp::TcpStream::connect`]. Answered by
    /// [`super::CompletedCall::Dialled`]. None if no slot is free.
    ///
    /// The options are no parts of a chain. The kernel reads each unlinked request, and the first
    /// of a chain, while it takes them from the queue. It reads a later part of a chain when its
    /// turn comes. Linux 6.10 to 6.13 read an option only then (`io_uring_cmd_prep_setup`,
    /// io_uring/uring_cmd.c). Its place in the queue may have the next request in it by that time.
    /// A failed part leaves nothing for the parts after it to work on.
    pub fn dial(&mut self, token: u32, dialling: &Dialling<'_>) -> Option<RequestKey> {
        let index = self.dial_slots.pop()?;
        let Dialling {
            target,
            source,
            reset,
        } = *dialling;
        let held = PendingRequest::Dial {
            slot: index,
            target: target.clone(),
            source: source.cloned(),
            failure: 0,
        };
        let request = self.add(token, held);
        let fd = Fixed(index);
        let number = -1 - i64::from(index);
        let silent = |entry: Entry, stage| {
            let entry = entry.flags(Flags::SKIP_SUCCESS);
            entry.user_data(request.stage(stage))
        };
        let socket = opcode::Socket::new(target.family(), libc::SOCK_STREAM, libc::IPPROTO_TCP)
            .file_index(DestinationSlot::try_from_slot_target(index).ok())
            .build();
        let late = option(number, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &ZERO);
        let mut requests = vec![silent(socket, 0), silent(late, 0)];
        if reset {
            let linger = option(number, libc::SOL_SOCKET, libc::SO_LINGER, &LINGER);
            requests.push(silent(linger, 0));
        }
        if let Some(source) = source {
            // The port is chosen when the target is known, so that the same port serves many
            // targets (ip(7)).
            let no_port = libc::IP_BIND_ADDRESS_NO_PORT;
            let no_port = option(number, libc::IPPROTO_IP, no_port, &ONE);
            let bind = opcode::Bind::new(fd, source.pointer(), source.0.1).build();
            // No connection is made from another address.
            let bind = silent(bind, STAGE_BIND).flags(Flags::IO_LINK);
            requests.extend([silent(no_port, 0), bind]);
        }
        let connect = opcode::Connect::new(fd, target.pointer(), target.0.1).build();
        requests.push(connect.user_data(request.stage(STAGE_CONNECT)));
        self.push(&requests);
        Some(self.named(request))
    }

    /// Receives into one of the ring's buffers, which is taken only when there is something (recv(2),
    /// `IOSQE_BUFFER_SELECT`). Answered by [`super::CompletedCall::Received`]: nothing is the end of the
    /// stream, `ENOBUFS` that all buffers are taken.
    #[inline]
    pub fn receive(&mut self, token: u32, socket: &RingSocket) -> RequestKey {
        let entry = on!(self.number(socket), fd => opcode::Recv::new(fd, ptr::null_mut(), 0)
            .buf_group(GROUP)
            .build());
        let entry = entry.flags(Flags::BUFFER_SELECT);
        self.request(token, PendingRequest::Receive, entry)
    }

    /// Receives into this buffer, which must be on the heap: one of a ring's is given back, and
    /// the answer is `EINVAL`. Answered by [`super::CompletedCall::Received`].
    pub fn receive_into(
        &mut self,
        token: u32,
        socket: &RingSocket,
        mut buffer: Buffer,
    ) -> RequestKey {
        let Some((memory, bytes)) = room(&mut buffer) else {
            self.give_back(buffer);
            return self.refuse(
                token,
                PendingRequest::ReceiveInto(Buffer::none()),
                libc::EINVAL,
            );
        };
        let entry = on!(self.number(socket), fd => opcode::Recv::new(fd, memory, bytes).build());
        self.request(token, PendingRequest::ReceiveInto(buffer), entry)
    }

    /// Sends a part of shared bytes (send(2), never `SIGPIPE`). Answered by
    /// [`super::CompletedCall::Sent`], with `EMSGSIZE` for 2 GiB and more.
    #[inline]
    pub fn send(
        &mut self,
        token: u32,
        socket: &RingSocket,
        bytes: Arc<[u8]>,
        range: Range<usize>,
        sending: SendRequest,
    ) -> RequestKey {
        let part = part(&bytes, range);
        if part.len() > self.send_bytes_max {
            return self.refuse(token, PendingRequest::Send(bytes), libc::EMSGSIZE);
        }
        let entry = send(self.number(socket), part, sending);
        self.request(token, PendingRequest::Send(bytes), entry)
    }

    /// Sends all of it, and receives the answer into one of the ring's buffers, in one chain.
    /// Answered by one [`super::CompletedCall::Received`], which also says why nothing could be sent
    /// (`EMSGSIZE` for 2 GiB and more). The socket must stay open until then, see [`RingSocket`].
    ///
    /// The receive waits at once and does not look first (`IORING_RECVSEND_POLL_FIRST`, Linux
    /// 5.19): no answer can have come yet. It can be cancelled only after a wait, when the second
    /// part begins.
    #[inline]
    pub fn exchange(
        &mut self,
        token: u32,
        socket: &RingSocket,
        bytes: Arc<[u8]>,
        range: Range<usize>,
    ) -> RequestKey {
        let part = part(&bytes, range);
        if part.len() > self.send_bytes_max {
            return self.refuse(token, PendingRequest::Exchange(bytes), libc::EMSGSIZE);
        }
        let number = self.number(socket);
        let whole = SendRequest {
            whole: true,
            more: false,
        };
        let first = send(number, part, whole);
        // As in `send_and_close`: there is one completion, whatever happens.
        let first = first.flags(Flags::IO_LINK | Flags::SKIP_SUCCESS);
        let second = on!(number, fd => opcode::Recv::new(fd, ptr::null_mut(), 0)
            .buf_group(GROUP)
            .ioprio(POLL_FIRST)
            .build());
        let second = second.flags(Flags::BUFFER_SELECT);
        let request = self.add(token, PendingRequest::Exchange(bytes));
        let chain = [
            first.user_data(request.stage(0)),
            second.user_data(request.stage(STAGE_RECEIVE)),
        ];
        self.push(&chain);
        self.named(request)
    }

    /// Sends all of it and closes the socket, in one chain. Answered by one
    /// [`super::CompletedCall::Ended`]; the socket is closed in any case. Nothing is sent of 2 GiB and
    /// more (`EMSGSIZE`).
    ///
    /// The last packet waits for the close, and so carries the FIN (`tcp_send_fin`,
    /// net/ipv4/tcp_output.c): one packet less to make, to deliver and to acknowledge.
    #[inline]
    pub fn send_and_close(
        &mut self,
        token: u32,
        socket: RingSocket,
        bytes: Arc<[u8]>,
        range: Range<usize>,
    ) -> RequestKey {
        let number = self.take_number(socket);
        let whole = SendRequest {
            whole: true,
            more: true,
        };
        let part = part(&bytes, range);
        let is_too_long = part.len() > self.send_bytes_max;
        let first = send(number, part, whole);
        let held = PendingRequest::SendAndClose {
            bytes,
            socket: number,
            failure: if is_too_long { libc::EMSGSIZE } else { 0 },
        };
        let request = self.add(token, held);
        if is_too_long {
            self.close_after(request, number);
            return self.named(request);
        }
        // There is always one completion. A send that succeeded is silent. A failed send silences
        // the close that it prevents (`req_set_fail`, io_uring/io_uring.h).
        let first = first.flags(Flags::IO_LINK | Flags::SKIP_SUCCESS);
        let chain = [
            first.user_data(request.stage(0)),
            close(number).user_data(request.stage(STAGE_CLOSE)),
        ];
        self.push(&chain);
        self.named(request)
    }

    /// Ends one direction or both (shutdown(2)). Answered by [`super::CompletedCall::ShutDown`].
    pub fn shutdown(&mut self, token: u32, socket: &RingSocket, how: Shutdown) -> RequestKey {
        let how = match how {
            Shutdown::Read => libc::SHUT_RD,
            Shutdown::Write => libc::SHUT_WR,
            Shutdown::Both => libc::SHUT_RDWR,
        };
        let entry = on!(self.number(socket), fd => opcode::Shutdown::new(fd, how).build());
        self.request(token, PendingRequest::Shutdown, entry)
    }

    /// Closes a socket (close(2)). Answered by [`super::CompletedCall::Closed`]. Requests about it that
    /// are not over hold it open: a multishot or a waiting one must be over, or be cancelled, and
    /// a chain must have been answered, see [`RingSocket`].
    #[inline]
    pub fn close(&mut self, token: u32, socket: RingSocket) -> RequestKey {
        let socket = self.take_number(socket);
        self.close_number(token, socket, true)
    }

    /// Closes a socket with a RST, which throws away what was not sent yet (`SO_LINGER` of zero,
    /// socket(7); Linux 6.7). Answered by [`super::CompletedCall::Closed`]. As with
    /// [`StreamRing::close`], a chain about it must have been answered.
    pub fn reset(&mut self, token: u32, socket: RingSocket) -> RequestKey {
        let socket = self.take_number(socket);
        let held = PendingRequest::Close {
            socket,
            is_told: true,
        };
        let request = self.add(token, held);
        let linger = option(socket, libc::SOL_SOCKET, libc::SO_LINGER, &LINGER);
        // The close follows even if the option is refused. That refusal is of no interest.
        let flags = Flags::IO_HARDLINK | Flags::SKIP_SUCCESS;
        self.push(&[
            linger.flags(flags).user_data(NOBODY),
            close(socket).user_data(request.stage(0)),
        ]);
        self.named(request)
    }

    /// Waits until there is something to receive, or the peer has gone (poll(2)). Answered by
    /// [`super::CompletedCall::Ready`].
    pub fn poll_readable(&mut self, token: u32, socket: &RingSocket) -> RequestKey {
        let events = libc::POLLIN as u32;
        let entry = on!(self.number(socket), fd => opcode::PollAdd::new(fd, events).build());
        self.request(token, PendingRequest::Poll, entry)
    }

    /// Asks how many bytes the peer has not acknowledged (`SIOCOUTQ` of tcp(7), Linux 6.7).
    /// Answered by [`super::CompletedCall::Unsent`].
    pub fn unsent(&mut self, token: u32, socket: &RingSocket) -> RequestKey {
        let entry =
            on!(self.number(socket), fd => opcode::UringCmd16::new(fd, SOCKET_UNSENT).build());
        self.request(token, PendingRequest::Unsent, entry)
    }

    /// Asks for a further descriptor of a socket, for what no request does (Linux 6.8 for a slot).
    /// Answered by [`super::CompletedCall::Lent`]. While it is open, a close ends no connection.
    pub fn lend(&mut self, token: u32, socket: &RingSocket) -> RequestKey {
        self.lend_number(token, self.number(socket))
    }

    /// As [`StreamRing::lend`], about the socket that [`StreamRing::send_and_close`] was given. None if
    /// that request is over.
    pub fn lend_of(&mut self, token: u32, request: RequestKey) -> Option<RequestKey> {
        let socket = self.number_of(request)?;
        Some(self.lend_number(token, socket))
    }

    fn lend_number(&mut self, token: u32, socket: i64) -> RequestKey {
        if let Some(slot) = slot(socket) {
            let entry = opcode::FixedFdInstall::new(Fixed(slot), 0).build();
            return self.request(token, PendingRequest::Lend(None), entry);
        }
        // SAFETY: fcntl(2) takes any number; the descriptor that it returns is open, and only ours.
        let copy = unsafe {
            match libc::fcntl(socket as libc::c_int, libc::F_DUPFD_CLOEXEC, 0) {
                -1 => None,
                copy => Some(OwnedFd::from_raw_fd(copy)),
            }
        };
        match copy {
            None => self.refuse(token, PendingRequest::Lend(None), libc::EBADF),
            copy => self.request(
                token,
                PendingRequest::Lend(copy),
                opcode::Nop::new().build(),
            ),
        }
    }

    /// The socket of [`PendingRequest::SendAndClose`]; none if that is over.
    fn number_of(&mut self, request: RequestKey) -> Option<i64> {
        match self.pending.find(request.key)?.1 {
            PendingRequest::SendAndClose { socket, .. } if request.ring == self.id => Some(*socket),
            _ => None,
        }
    }

    /// Tries to end a request early; it is answered with `ECANCELED` then, and as always if it is
    /// too late. A request between two states is not found, such as a chain whose next part begins.
    /// To be sure, repeat this until the request is answered. A request of another ring is ignored.
    pub fn cancel(&mut self, request: RequestKey) {
        if request.ring != self.id {
            return;
        }
        let request = request.key;
        // Of a chain that dials, what can take long is its last part; of an exchange, both.
        let stages: &[u32] = match self.pending.find(request) {
            Some((_, PendingRequest::Dial { .. })) => &[STAGE_CONNECT],
            Some((_, PendingRequest::Exchange(_))) => &[0, STAGE_RECEIVE],
            _ => &[0],
        };
        for stage in stages {
            let number = CancelBuilder::user_data(request.stage(*stage));
            let entry = opcode::AsyncCancel2::new(number).build();
            self.push(&[entry.flags(Flags::SKIP_SUCCESS).user_data(NOBODY)]);
        }
    }

    pub(super) fn close_number(&mut self, token: u32, socket: i64, is_told: bool) -> RequestKey {
        self.request(
            token,
            PendingRequest::Close { socket, is_told },
            close(socket),
        )
    }

    /// The second half of [`PendingRequest::SendAndClose`], when the first one has failed.
    pub(super) fn close_after(&mut self, request: PendingKey, socket: i64) {
        self.push(&[close(socket).user_data(request.stage(STAGE_CLOSE))]);
    }

    /// Answers what is not passed on.
    fn refuse(&mut self, token: u32, held: PendingRequest, error: libc::c_int) -> RequestKey {
        let held = PendingRequest::Refused(Box::new(held), error);
        self.request(token, held, opcode::Nop::new().build())
    }

    #[inline]
    fn request(&mut self, token: u32, held: PendingRequest, entry: Entry) -> RequestKey {
        let request = self.add(token, held);
        self.push(&[entry.user_data(request.stage(0))]);
        self.named(request)
    }

    #[inline]
    fn named(&self, key: PendingKey) -> RequestKey {
        let ring = self.id;
        RequestKey { ring, key }
    }

    /// A descriptor as one number: slots are negative, from -1 on.
    #[inline]
    fn number(&self, socket: &RingSocket) -> i64 {
        match &socket.0 {
            RingDescriptor::Ordinary(fd) => i64::from(fd.as_raw_fd()),
            RingDescriptor::Direct { ring, slot } if *ring == self.id => -1 - i64::from(*slot),
            RingDescriptor::Direct { .. } => FOREIGN,
        }
    }

    /// As [`StreamRing::number`], and gives up an ordinary descriptor, for the kernel to close.
    #[inline]
    fn take_number(&self, socket: RingSocket) -> i64 {
        let number = self.number(&socket);
        if let RingDescriptor::Ordinary(fd) = socket.0 {
            let _ = fd.into_raw_fd();
        }
        number
    }
}

/// The slot of a descriptor's number.
pub(super) fn slot(number: i64) -> Option<u32> {
    u32::try_from(-1 - number).ok()
}

/// The bytes in a range; none if it reaches outside.
fn part(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or_default()
}

fn send(number: i64, bytes: &[u8], sending: SendRequest) -> Entry {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    on!(number, fd => opcode::Send::new(fd, bytes.as_ptr(), length)
        .flags(sending.flags())
        .build())
}

fn close(number: i64) -> Entry {
    on!(number, fd => opcode::Close::new(fd).build())
}

fn option<T>(number: i64, level: libc::c_int, name: libc::c_int, value: &'static T) -> Entry {
    let value_bytes = size_of::<T>() as u32;
    let value = ptr::from_ref(value).cast();
    on!(number, fd => opcode::SetSockOpt::new(fd, level as u32, name as u32, value, value_bytes)
        .build())
}

/// Room on the heap, as passed to the kernel; none in a buffer of a ring, which the kernel has to
/// choose by itself.
fn room(buffer: &mut Buffer) -> Option<(*mut u8, u32)> {
    match &mut buffer.0 {
        Memory::Own { memory, filled } => {
            *filled = 0;
            let bytes = u32::try_from(memory.len()).unwrap_or(u32::MAX);
            Some((memory.as_mut_ptr(), bytes))
        }
        Memory::Lent { .. } => None,
    }
}

fn accept_flags(direct: bool) -> i32 {
    // No process inherits a slot, and the kernel refuses the flag for one.
    if direct { 0 } else { libc::SOCK_CLOEXEC }
}
