//! The protocol of one connection, without its socket: bytes in, replies out, and who closes.

use super::reply::Reply;
use super::request::{self, HttpRequest, Parsed, RequestContent};
use super::responder::Responder;
use super::{AcknowledgedBytes, Acknowledgement, Close, Ending, Limits, duration_ms};
use std::mem;

/// Bytes of a request's content that are read and thrown away, so that the connection can go on.
/// With more than that it is closed after the reply, which is cheaper for both.
const CONTENT_BYTES_MAX: u64 = 64 << 10;

/// Bytes that may wait behind a reply that is being sent. An engine need not receive at that time;
/// this stops an engine that does.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// Bytes that are on their way as soon as they are sent: ten segments (`TCP_INIT_CWND`, net/tcp.h).
/// Right behind them the connection may be closed. A longer reply waits in the socket, and a close
/// would discard it with the first byte that the client sends then.
const FIRST_FLIGHT_BYTES: u64 = 14 << 10;

/// How long a connection is read from after our FIN and the client's acknowledgement of the reply, in
/// milliseconds. Without it, a RST would answer what the client is still sending. A RST can overtake
/// the reply (RFC 9112, section 9.6).
const LINGER_MS: u64 = 2_000;

/// The longest wait, in milliseconds, for a client that is to close first. Both sides have said
/// `close` by then, and the server is bound to close too (RFC 9112, section 9.6). A client that
/// leaves it to the server must not wait as long as a client that may ask again.
const PART_MS: u64 = 5_000;

/// The protocol of one connection. It has no memory of its own while it is idle.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Bytes that arrived and could not be answered yet.
    waiting: Vec<u8>,
    /// How much of it is done with.
    done: usize,
    /// Bytes of content that are still to be thrown away.
    skip: u64,
    /// When the present state began, or the reply last moved.
    since_ms: u64,
    /// The last look at the peer, if it has not acknowledged everything.
    seen: Option<Acknowledgement>,
    /// Bytes of replies that no look has found acknowledged. Until one does, no close may discard
    /// them, and the peer is neither idle nor late.
    owed: u64,
    state: ConnectionState,
    /// Whether the peer has closed its side.
    is_ended: bool,
}

/// The next step with a connection's socket.
#[derive(Debug)]
pub(crate) enum ServeStep {
    /// Wait for more from the peer.
    Receive,
    /// Send this, then ask [`Connection::sent`], unless it is the last.
    Send(Reply),
    /// Send a FIN (`shutdown(SHUT_WR)`), and go on receiving: the peer is given the time to read
    /// the last reply.
    Shutdown,
    /// Close it. Its slot can be used for another.
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// A request's head, or its rest.
    Head,
    /// The next request; nothing of it has come.
    Idle,
    /// The peer, to take a reply.
    Send(After),
    /// The last reply is with the peer, who is to close.
    Part,
    /// The same, and we have closed our side.
    Linger,
    Closed,
}

/// The state after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Request,
    Close,
    Part,
    Linger,
}

impl Connection {
    /// A connection that was accepted just now.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            waiting: Vec::new(),
            done: 0,
            skip: 0,
            since_ms: now_ms,
            seen: None,
            owed: 0,
            state: ConnectionState::Head,
            is_ended: false,
        }
    }

    /// Takes bytes that arrived. At most one reply comes out; the rest of what was pipelined waits
    /// inside.
    ///
    /// While a reply is being sent nothing comes out but [`ServeStep::Receive`], which then means
    /// nothing new.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        responder: &mut Responder,
        now_ms: u64,
    ) -> ServeStep {
        match self.state {
            ConnectionState::Head | ConnectionState::Idle => {}
            ConnectionState::Send(After::Request) => {
                self.waiting.extend_from_slice(bytes);
                return match self.waiting.len() - self.done {
                    0..=WAITING_BYTES_MAX => ServeStep::Receive,
                    _ => self.close(),
                };
            }
            ConnectionState::Send(_) | ConnectionState::Part | ConnectionState::Linger => {
                return ServeStep::Receive;
            }
            ConnectionState::Closed => return ServeStep::Close,
        }
        if self.waiting.is_empty() {
            // The usual case: a whole request in one piece, read where it lies.
            let (used, step) = self.take(bytes, responder, now_ms);
            if self.wants_the_rest() {
                self.waiting.extend_from_slice(&bytes[used..]);
            }
            return step;
        }
        self.waiting.extend_from_slice(bytes);
        // Only the end of a line can make a difference. So a head that comes byte by byte is read
        // once for each line. The number of lines is limited.
        let is_full = self.waiting.len() >= responder.head_bytes_max;
        if !is_full && !bytes.contains(&b'\n') {
            return ServeStep::Receive;
        }
        self.resume(responder, now_ms)
    }

    /// The next step after a reply has gone whole: the next pipelined reply, wait, or close.
    pub(crate) fn sent(&mut self, responder: &mut Responder, now_ms: u64) -> ServeStep {
        let ConnectionState::Send(after) = self.state else {
            return ServeStep::Receive;
        };
        self.since_ms = now_ms;
        self.seen = None;
        match after {
            After::Request if !self.waiting.is_empty() => {
                self.state = ConnectionState::Idle;
                match self.resume(responder, now_ms) {
                    ServeStep::Receive if self.is_ended => self.close(),
                    step => step,
                }
            }
            _ if self.is_ended => self.close(),
            After::Request => {
                self.state = ConnectionState::Idle;
                ServeStep::Receive
            }
            After::Close => self.close(),
            After::Part => {
                self.state = ConnectionState::Part;
                ServeStep::Receive
            }
            After::Linger => {
                self.state = ConnectionState::Linger;
                ServeStep::Shutdown
            }
        }
    }

    /// Notes that a part of a reply has gone, so that its peer is not taken for a dead one.
    pub(crate) fn progress(&mut self, now_ms: u64) {
        if let ConnectionState::Send(_) = self.state {
            self.since_ms = now_ms;
            self.seen = None;
        }
    }

    /// Takes in the result of a look at the peer. False if it has acknowledged nothing for longer
    /// than it may. Room in the socket does not count: its buffer can hold minutes of a slow peer's
    /// reading.
    pub(crate) fn look(&mut self, found: AcknowledgedBytes, limits: &Limits, now_ms: u64) -> bool {
        let may_lack = match self.state {
            ConnectionState::Send(_) => true,
            // If the kernel does not report it, a close might discard the rest.
            ConnectionState::Linger => found.left > 0,
            _ => found.lacks_some(),
        };
        if !may_lack {
            self.owed = 0;
            // It lacked something at the look before: its time begins now.
            if self.seen.take().is_some() {
                self.since_ms = now_ms;
            }
            return true;
        }
        let mut seen = self.seen(limits);
        let goes_on = seen.look(found, limits, now_ms);
        self.seen = Some(seen);
        goes_on
    }

    fn seen(&self, limits: &Limits) -> Acknowledgement {
        let first = || Acknowledgement::of_wait(self.since_ms, self.wait_ms(limits));
        self.seen.unwrap_or_else(first)
    }

    /// Whether to look at the peer when the time is over, because it may lack a part of a reply. A
    /// peer that has begun its next request has the time of any head.
    pub(crate) fn needs_look(&self) -> bool {
        self.owed > 0 && !matches!(self.state, ConnectionState::Head | ConnectionState::Closed)
    }

    /// Ends it. True if its socket must wait until the peer has everything, because closing it would
    /// discard the rest.
    pub(crate) fn end_as(&mut self, ending: Ending, close: Close) -> bool {
        self.close();
        let discards = match ending {
            Ending::Drained => true,
            Ending::Error | Ending::Reset | Ending::SendTimeout => false,
            _ => close == Close::Rst,
        };
        self.owed > 0 && discards
    }

    /// How it is counted if its time is over. None if it does not matter, because all was over.
    pub(crate) fn ending_if_late(&self) -> Option<Ending> {
        match self.state {
            _ if self.needs_look() => Some(Ending::SendTimeout),
            ConnectionState::Head => Some(Ending::HeadTimeout),
            ConnectionState::Idle | ConnectionState::Part => Some(Ending::IdleTimeout),
            _ => None,
        }
    }

    /// The peer closed its side. Its earlier requests are still answered: [`ServeStep::Receive`] says
    /// that a reply is on its way, and nothing more is to be received.
    pub(crate) fn end(&mut self) -> ServeStep {
        self.is_ended = true;
        match self.state {
            ConnectionState::Send(_) => ServeStep::Receive,
            _ => self.close(),
        }
    }

    /// When it is to be ended if nothing happens, on the clock of `now_ms`; where its peer may lack
    /// a part of a reply, when to look at it.
    pub(crate) fn deadline_ms(&self, limits: &Limits) -> u64 {
        match self.needs_look() {
            true => self.seen(limits).look_ms(limits),
            false => self.since_ms.saturating_add(self.wait_ms(limits)),
        }
    }

    fn wait_ms(&self, limits: &Limits) -> u64 {
        match self.state {
            ConnectionState::Head => duration_ms(limits.head_time),
            ConnectionState::Idle => duration_ms(limits.idle_time),
            ConnectionState::Part => duration_ms(limits.idle_time).min(PART_MS),
            ConnectionState::Send(_) => duration_ms(limits.send_time),
            ConnectionState::Linger => LINGER_MS,
            ConnectionState::Closed => 0,
        }
    }

    /// Whether it waits for its next request and has nothing of it.
    pub(crate) fn is_between(&self) -> bool {
        self.state == ConnectionState::Idle
    }

    /// Whether the last reply is with the peer.
    pub(crate) fn is_over(&self) -> bool {
        matches!(
            self.state,
            ConnectionState::Part | ConnectionState::Linger | ConnectionState::Closed
        )
    }

    /// Whether it can be closed without breaking off anything: no request has begun.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, ConnectionState::Head | ConnectionState::Idle)
            && self.waiting.is_empty()
    }

    /// Whether all is over but the socket.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == ConnectionState::Closed
    }

    /// Its deadline has passed: half a request is answered with 408; any other connection is
    /// closed.
    pub(crate) fn expire(&mut self, responder: &mut Responder, now_ms: u64) -> ServeStep {
        if self.state != ConnectionState::Head || self.waiting.is_empty() {
            return self.close();
        }
        self.waiting = Vec::new();
        let reply = responder.refuse(408, now_ms);
        // The rest of the request may still come.
        self.send(reply, After::Linger, responder.close, now_ms)
    }

    /// Makes of some bytes what can be made of them: how many are done with, and the step.
    fn take(&mut self, bytes: &[u8], responder: &mut Responder, now_ms: u64) -> (usize, ServeStep) {
        let skipped = usize::try_from(self.skip).map_or(bytes.len(), |skip| skip.min(bytes.len()));
        self.skip -= skipped as u64;
        // Some clients end a request with one empty line too many (RFC 9112, section 2.2).
        let start = skipped + empty_lines(&bytes[skipped..]);
        let rest = &bytes[start..];
        if rest.is_empty() {
            return (start, ServeStep::Receive);
        }
        match request::parse(rest, responder.head_bytes_max) {
            Parsed::Part => {
                if self.state == ConnectionState::Idle {
                    self.state = ConnectionState::Head;
                    self.since_ms = now_ms;
                }
                (start, ServeStep::Receive)
            }
            Parsed::Refused(status) => {
                let reply = responder.refuse(status, now_ms);
                (
                    bytes.len(),
                    self.send(reply, After::Linger, responder.close, now_ms),
                )
            }
            Parsed::Whole {
                request,
                head_bytes,
            } => {
                let behind = (rest.len() - head_bytes) as u64;
                let step = self.answer(&request, behind, responder, now_ms);
                (start + head_bytes, step)
            }
        }
    }

    /// Answers a request with `behind` bytes behind its head.
    fn answer(
        &mut self,
        request: &HttpRequest<'_>,
        behind: u64,
        responder: &mut Responder,
        now_ms: u64,
    ) -> ServeStep {
        let content_ends = match request.content {
            RequestContent::Length(length) if length <= CONTENT_BYTES_MAX => {
                self.skip = length;
                true
            }
            _ => false,
        };
        let keeps = request.keep_alive && content_ends && !responder.is_draining;
        let after = match responder.close {
            _ if keeps => After::Request,
            _ if !content_ends => After::Linger,
            Close::Client => After::Part,
            // Content that is still to come would be answered with a RST.
            Close::Server | Close::Rst if self.skip > behind => After::Linger,
            // So would the next request of a client that has sent more already, or that did not ask for
            // the close, as in a drain.
            Close::Server if self.skip < behind || request.keep_alive => After::Linger,
            Close::Server | Close::Rst => After::Close,
        };
        let reply = responder.answer(request, keeps, now_ms);
        self.send(reply, after, responder.close, now_ms)
    }

    fn send(&mut self, mut reply: Reply, after: After, close: Close, now_ms: u64) -> ServeStep {
        self.owed = self.owed.saturating_add(reply.bytes());
        let after = match after {
            // A reset waits for the acknowledgement by itself.
            After::Close if close != Close::Rst && self.owed > FIRST_FLIGHT_BYTES => After::Linger,
            after => after,
        };
        reply.last = after == After::Close;
        self.state = ConnectionState::Send(after);
        self.since_ms = now_ms;
        self.seen = None;
        ServeStep::Send(reply)
    }

    /// Goes on with what waits inside.
    fn resume(&mut self, responder: &mut Responder, now_ms: u64) -> ServeStep {
        let mut waiting = mem::take(&mut self.waiting);
        let start = mem::take(&mut self.done);
        let (used, step) = self.take(&waiting[start..], responder, now_ms);
        let done = start + used;
        if done < waiting.len() && self.wants_the_rest() {
            if let ConnectionState::Send(_) = self.state {
                self.done = done;
            } else {
                // Once for each head that is not whole; so what is kept stays small.
                waiting.drain(..done);
            }
            self.waiting = waiting;
        }
        step
    }

    /// Whether bytes behind those that were answered can still mean something.
    fn wants_the_rest(&self) -> bool {
        matches!(
            self.state,
            ConnectionState::Head | ConnectionState::Idle | ConnectionState::Send(After::Request)
        )
    }

    fn close(&mut self) -> ServeStep {
        self.state = ConnectionState::Closed;
        self.waiting = Vec::new();
        ServeStep::Close
    }
}

/// The bytes of empty lines at the beginning.
fn empty_lines(bytes: &[u8]) -> usize {
    let mut count = 0;
    loop {
        match bytes[count..] {
            [b'\n', ..] => count += 1,
            [b'\r', b'\n', ..] => count += 2,
            _ => return count,
        }
    }
}

#[cfg(test)]
mod tests;
