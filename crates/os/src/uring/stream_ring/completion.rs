//! The meaning of completions: each ends, or continues, the request that it names.

use super::pending::{PendingKey, PendingRequest};
use super::requests::{NOBODY, STAGE_BIND, STAGE_CLOSE, STAGE_RECEIVE, slot};
use super::socket::{Memory, RingDescriptor};
use super::{Buffer, RingSocket, StreamRing};
use io_uring::cqueue;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The end or progress of a request.
#[derive(Debug)]
pub struct RingEvent {
    /// The caller's name for the request.
    pub token: u32,
    /// How it went.
    pub outcome: CompletedCall,
}

/// How a request went, by its kind. Errors are those of the system call of that name, `ECANCELED`
/// for a cancelled request.
#[derive(Debug)]
pub enum CompletedCall {
    /// A connection, or why there is none.
    Accepted {
        /// The new socket.
        socket: io::Result<RingSocket>,
        /// True if the request goes on.
        more: bool,
    },
    /// A new connection to a target.
    Dialled(io::Result<RingSocket>),
    /// Bytes; none for the end of the stream.
    Received(io::Result<Buffer>),
    /// The bytes sent.
    Sent(io::Result<usize>),
    /// All was sent and the socket is closed; or it is closed although the sending failed.
    Ended(io::Result<()>),
    /// A socket is closed.
    Closed(io::Result<()>),
    /// A direction has ended.
    ShutDown(io::Result<()>),
    /// The socket is as it was waited for, or broken.
    Ready(io::Result<()>),
    /// Bytes that the peer has not acknowledged.
    Unsent(io::Result<usize>),
    /// A further descriptor of a socket.
    Lent(io::Result<OwnedFd>),
}

impl StreamRing {
    /// The next completion that was not looked at yet. It makes no system call.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "it is no iterator: requests are made between two of them"
    )]
    pub fn next(&mut self) -> Option<RingEvent> {
        loop {
            let entry = self.ring.uring.completion().next()?;
            if entry.user_data() == NOBODY {
                continue;
            }
            let (request, stage) = PendingKey::parse(entry.user_data());
            if let Some(event) = self.complete(request, stage, entry.result(), entry.flags()) {
                return Some(event);
            }
        }
    }

    #[inline]
    pub(super) fn complete(
        &mut self,
        request: PendingKey,
        stage: u32,
        mut result: i32,
        flags: u32,
    ) -> Option<RingEvent> {
        let (token, held) = self.pending.find(request)?;
        match held {
            PendingRequest::Accept { direct } if cqueue::more(flags) => {
                let direct = *direct;
                let outcome = CompletedCall::Accepted {
                    socket: self.accepted(result, direct),
                    more: true,
                };
                return Some(RingEvent { token, outcome });
            }
            // The parts after it fail as well, and the last one answers; the first one knows why.
            PendingRequest::Dial { failure, .. } if stage < STAGE_BIND => {
                if *failure == 0 {
                    *failure = -result;
                }
                return None;
            }
            PendingRequest::SendAndClose {
                socket, failure, ..
            } if stage != STAGE_CLOSE => {
                // The close was not done. The bytes are kept, which does no harm.
                let socket = *socket;
                *failure = if result < 0 { -result } else { libc::EPIPE };
                self.close_after(request, socket);
                return None;
            }
            // Not all was sent, and so nothing was received.
            PendingRequest::Exchange(_) if stage != STAGE_RECEIVE && result >= 0 => {
                result = -libc::EPIPE
            }
            _ => {}
        }
        let (token, held) = self.pending.remove(request)?;
        let outcome = self.outcome(held, result, flags)?;
        Some(RingEvent { token, outcome })
    }

    /// The outcome of a finished request; none if the caller does not want it.
    fn outcome(&mut self, held: PendingRequest, result: i32, flags: u32) -> Option<CompletedCall> {
        let done = answer(result).map(drop);
        Some(match held {
            PendingRequest::Free(_) => return None,
            PendingRequest::Accept { direct } => CompletedCall::Accepted {
                socket: self.accepted(result, direct),
                more: false,
            },
            PendingRequest::Dial { slot, failure, .. } => {
                CompletedCall::Dialled(self.dialled(slot, unless(failure, done)))
            }
            PendingRequest::Receive | PendingRequest::Exchange(_) => {
                CompletedCall::Received(self.lend_buffer(result, flags))
            }
            PendingRequest::ReceiveInto(buffer) => CompletedCall::Received(fill(buffer, result)),
            PendingRequest::Send(_) => CompletedCall::Sent(answer(result)),
            PendingRequest::SendAndClose {
                socket, failure, ..
            } => {
                self.closed(socket);
                CompletedCall::Ended(unless(failure, done))
            }
            PendingRequest::Close { socket, is_told } => {
                self.closed(socket);
                if !is_told {
                    return None;
                }
                CompletedCall::Closed(done)
            }
            PendingRequest::Shutdown => CompletedCall::ShutDown(done),
            PendingRequest::Poll => CompletedCall::Ready(done),
            PendingRequest::Unsent => CompletedCall::Unsent(answer(result)),
            PendingRequest::Lend(own) => CompletedCall::Lent(done.map(|()| {
                // SAFETY: as of an accepted socket.
                own.unwrap_or_else(|| unsafe { OwnedFd::from_raw_fd(result) })
            })),
            PendingRequest::Refused(held, error) => return self.outcome(*held, -error, 0),
        })
    }

    fn accepted(&mut self, result: i32, direct: bool) -> io::Result<RingSocket> {
        let number = answer(result)? as u32;
        if !direct {
            // SAFETY: the kernel has just opened this descriptor for this request. No other code
            // knows its number.
            let fd = unsafe { OwnedFd::from_raw_fd(number as RawFd) };
            return Ok(RingSocket::from(fd));
        }
        self.open_slots += 1;
        Ok(self.direct(number))
    }

    fn dialled(&mut self, slot: u32, connected: io::Result<()>) -> io::Result<RingSocket> {
        self.open_slots += 1;
        if let Err(error) = connected {
            // There may be a socket in the slot. If there is none, to close it does nothing.
            self.close_number(0, -1 - i64::from(slot), false);
            return Err(error);
        }
        Ok(self.direct(slot))
    }

    fn direct(&self, slot: u32) -> RingSocket {
        let ring = self.id;
        RingSocket(RingDescriptor::Direct { ring, slot })
    }

    /// Counts a slot as free once it is.
    fn closed(&mut self, socket: i64) {
        let Some(index) = slot(socket).and_then(|slot| slot.checked_sub(super::ADOPTED_MAX)) else {
            return;
        };
        self.open_slots = self.open_slots.saturating_sub(1);
        if index < self.dial_slot_count {
            self.dial_slots.push(index + super::ADOPTED_MAX);
        }
    }

    fn lend_buffer(&mut self, result: i32, flags: u32) -> io::Result<Buffer> {
        let received = answer(result);
        let Some(id) = cqueue::buffer_select(flags) else {
            return received.map(|_| Buffer::none());
        };
        self.free_buffers = self.free_buffers.saturating_sub(1);
        let filled = *received.as_ref().unwrap_or(&0) as u32;
        let ring = self.id;
        let buffer = Buffer(Memory::Lent { ring, id, filled });
        match received {
            Ok(_) => Ok(buffer),
            Err(error) => {
                self.give_back(buffer);
                Err(error)
            }
        }
    }
}

/// The kernel's answer, as a system call would return it.
fn answer(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// How the last part went, unless one before it has failed.
fn unless(failure: i32, done: io::Result<()>) -> io::Result<()> {
    match failure {
        0 => done,
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn fill(mut buffer: Buffer, result: i32) -> io::Result<Buffer> {
    let bytes = answer(result)?;
    if let Memory::Own { filled, .. } = &mut buffer.0 {
        *filled = bytes as u32;
    }
    Ok(buffer)
}
