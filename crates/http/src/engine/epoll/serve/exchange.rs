//! One connection's exchange of requests and replies, as far as its socket lets it go.

use crate::serve::{
    AcknowledgedBytes, Acknowledgement, Close, Connection, Ending, Limits, Reply, Responder,
    ServeCounters, ServeStep, ServeWorker,
};
use crate::{Switch, Switches};
use mpps_os::epoll::{Epoll, Interest, ReadyDescriptor};
use mpps_os::tcp::{TcpStream, would_block};
use std::io;

/// Bytes that one receive takes with `buffers`: the largest head of the default limits, twice.
const KEPT_BUFFER_BYTES: usize = 16 << 10;

/// Bytes of a connection's own buffer without `buffers`. Heads are smaller as a rule, and 10 000
/// of them make 20 MiB.
const OWN_BUFFER_BYTES: usize = 2 << 10;

/// Steps of one connection in one turn: a client that pipelines without end, or sends content that
/// is thrown away, leaves the others their share.
const STEPS: usize = 32;

/// Bytes of a reply that one connection is sent in one turn.
const SHARE_BYTES: usize = 2 << 20;

/// The common part of all connections of a worker.
pub(super) struct Exchange {
    pub(super) counters: ServeCounters,
    pub(super) now_ms: u64,
    pub(super) responder: Responder,
    limits: Limits,
    close: Close,
    switches: Switches,
    /// With `buffers`: what every connection receives into, one after the other.
    buffer: Box<[u8]>,
}

/// An open connection.
pub(super) struct Open {
    stream: TcpStream,
    connection: Connection,
    /// The reply that did not go at once.
    outgoing: Option<Box<Reply>>,
    /// Without `buffers`: what this one connection receives into.
    buffer: Box<[u8]>,
    /// The events that the set reports for it, once it was added.
    watched: Option<Interest>,
    /// Whether a receive may find something.
    pub(super) is_readable: bool,
    /// Whether the peer's end is known to be there, behind what was not received yet.
    is_ended: bool,
    /// Everything is sent, and the close waits for the acknowledgement.
    acknowledgement: Option<Acknowledgement>,
    /// Whether it is to go on in the next turn whatever happens.
    pub(super) is_queued: bool,
    /// How it is counted if it closes as it is.
    ending: Ending,
}

/// How a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeNext {
    /// When the set reports it.
    Wait,
    /// In the next turn, whatever the set reports.
    Again,
    /// Not at all.
    End(Ending),
}

/// How far a reply went.
enum ReplyProgress {
    Whole,
    /// There is no room in the socket.
    Blocked,
    /// There may be room, and it is another connection's turn.
    Share,
    Failed(Ending),
}

impl Exchange {
    pub(super) fn new(worker: &ServeWorker, now_ms: u64) -> Self {
        let keeps = worker.switches.has(Switch::Buffers);
        Self {
            counters: ServeCounters::default(),
            now_ms,
            responder: worker.responder(),
            limits: worker.limits.clone(),
            close: worker.close,
            switches: worker.switches,
            buffer: vec![0; usize::from(keeps) * KEPT_BUFFER_BYTES].into(),
        }
    }

    /// A connection that was just accepted.
    pub(super) fn open(&self, stream: TcpStream) -> Open {
        let needs_own = self.buffer.is_empty();
        Open {
            stream,
            connection: Connection::new(self.now_ms),
            outgoing: None,
            buffer: vec![0; usize::from(needs_own) * OWN_BUFFER_BYTES].into(),
            watched: None,
            is_readable: false,
            is_ended: false,
            acknowledgement: None,
            is_queued: false,
            ending: Ending::Client,
        }
    }

    /// Takes a connection as far as it goes without waiting.
    pub(super) fn drive(&mut self, open: &mut Open) -> ExchangeNext {
        if open.acknowledgement.is_some() {
            return self.part(open);
        }
        let next = match open.outgoing.take() {
            Some(reply) => self.send(open, reply),
            None => self.go(open, ServeStep::Receive),
        };
        if next == ExchangeNext::Wait && self.responder.is_draining && open.connection.is_between()
        {
            // Its reply had begun before the drain, and did not say that it was the last.
            return self.drained(open);
        }
        next
    }

    /// A connection's time is over.
    pub(super) fn expire(&mut self, open: &mut Open) -> ExchangeNext {
        if open.acknowledgement.is_some() {
            return self.part(open);
        }
        if open.connection.needs_look() {
            self.counters.system_calls += 2;
            let seen =
                AcknowledgedBytes::of(&open.stream).unwrap_or(AcknowledgedBytes::left(usize::MAX));
            if open.connection.look(seen, &self.limits, self.now_ms) {
                return ExchangeNext::Wait;
            }
        }
        if let Some(ending) = open.connection.ending_if_late() {
            open.ending = ending;
        }
        let step = open.connection.expire(&mut self.responder, self.now_ms);
        self.go(open, step)
    }

    /// When a connection is to be looked at again.
    pub(super) fn deadline_ms(&self, open: &Open) -> u64 {
        match &open.acknowledgement {
            Some(acknowledgement) => acknowledgement.look_ms(&self.limits),
            None => open.connection.deadline_ms(&self.limits),
        }
    }

    /// Makes the set report when a connection can go on.
    pub(super) fn watch(&mut self, epoll: &Epoll, key: u64, open: &mut Open) -> io::Result<()> {
        let wanted = if self.switches.has(Switch::Events) {
            // Once for all that may come; never changed.
            Interest::READ.and(Interest::WRITE).edge()
        } else if open.acknowledgement.is_some() {
            // A peer that is gone is reported once, and not all the time.
            Interest::NONE.edge()
        } else if open.outgoing.is_some() {
            Interest::WRITE
        } else {
            Interest::READ
        };
        if open.watched == Some(wanted) {
            return Ok(());
        }
        self.counters.system_calls += 1;
        if open.watched.is_none() {
            epoll.add(&open.stream, key, wanted)?;
        } else {
            epoll.modify(&open.stream, key, wanted)?;
        }
        open.watched = Some(wanted);
        Ok(())
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, epoll: &Epoll, open: Open, ending: Ending) {
        if open.watched.is_some() && !self.switches.has(Switch::Events) {
            // The close would do it too. The server of the paper asks for it.
            self.counters.system_calls += 1;
            let _ = epoll.delete(&open.stream);
        }
        match ending {
            // Bytes that the client does not take must not stay in the kernel.
            Ending::SendTimeout | Ending::Error => self.abort(open, ending),
            _ => {
                self.counters.system_calls += 1;
                self.counters.end(ending);
            }
        }
    }

    /// Closes a connection with a RST.
    pub(super) fn abort(&mut self, open: Open, ending: Ending) {
        self.counters.system_calls += 2;
        open.stream.reset();
        self.counters.end(ending);
    }

    fn go(&mut self, open: &mut Open, first: ServeStep) -> ExchangeNext {
        let mut step = first;
        for steps in 1.. {
            let is_enough = steps > STEPS;
            step = match step {
                ServeStep::Receive if !open.is_readable => return ExchangeNext::Wait,
                ServeStep::Receive if is_enough => return ExchangeNext::Again,
                ServeStep::Receive => match self.receive(open) {
                    Ok(step) => step,
                    Err(next) => return next,
                },
                ServeStep::Send(mut reply) => {
                    self.counters.reply(reply.status);
                    let progress = match is_enough {
                        true => ReplyProgress::Share,
                        false => self.transmit(open, &mut reply),
                    };
                    match progress {
                        ReplyProgress::Whole if reply.last => return self.finish(open),
                        ReplyProgress::Whole => self.sent(open, reply.status),
                        stopped => return self.keep(open, Box::new(reply), &stopped),
                    }
                }
                ServeStep::Shutdown => {
                    self.counters.system_calls += 1;
                    // If it is gone already, the next receive reports it.
                    let _ = open.stream.finish();
                    ServeStep::Receive
                }
                ServeStep::Close => break,
            };
        }
        self.end(open)
    }

    /// Goes on with a reply that was stopped.
    fn send(&mut self, open: &mut Open, mut reply: Box<Reply>) -> ExchangeNext {
        match self.transmit(open, &mut reply) {
            ReplyProgress::Whole if reply.last => self.finish(open),
            ReplyProgress::Whole => {
                let step = self.sent(open, reply.status);
                self.go(open, step)
            }
            stopped => self.keep(open, reply, &stopped),
        }
    }

    fn keep(
        &mut self,
        open: &mut Open,
        reply: Box<Reply>,
        stopped: &ReplyProgress,
    ) -> ExchangeNext {
        open.outgoing = Some(reply);
        match stopped {
            ReplyProgress::Failed(ending) => ExchangeNext::End(*ending),
            ReplyProgress::Share => ExchangeNext::Again,
            ReplyProgress::Blocked | ReplyProgress::Whole => ExchangeNext::Wait,
        }
    }

    /// A reply has gone whole, and is not the last.
    fn sent(&mut self, open: &mut Open, status: u16) -> ServeStep {
        let step = open.connection.sent(&mut self.responder, self.now_ms);
        open.ending = match step {
            // It was late before its reply.
            _ if open.ending == Ending::HeadTimeout => Ending::HeadTimeout,
            // A refused request has its answer, which must not be overtaken by a RST.
            ServeStep::Shutdown if status >= 400 => Ending::Refused,
            _ if open.connection.is_over() => Ending::Done,
            _ => Ending::Client,
        };
        // In a drain, a connection is read once more before it is closed as idle.
        open.is_readable |= self.responder.is_draining;
        step
    }

    /// The last reply has gone whole.
    fn finish(&mut self, open: &mut Open) -> ExchangeNext {
        if open.ending == Ending::Client {
            open.ending = Ending::Done;
        }
        self.end(open)
    }

    /// The server ends, and this connection has nothing to do.
    pub(super) fn drained(&mut self, open: &mut Open) -> ExchangeNext {
        open.ending = Ending::Drained;
        self.end(open)
    }

    /// Nothing more is to be done.
    fn end(&mut self, open: &mut Open) -> ExchangeNext {
        match open.connection.end_as(open.ending, self.close) {
            true => self.part(open),
            false => ExchangeNext::End(open.ending),
        }
    }

    /// A close would discard what has not arrived: it waits until everything has.
    fn part(&mut self, open: &mut Open) -> ExchangeNext {
        self.counters.system_calls += 1;
        let Some(seen) = AcknowledgedBytes::of(&open.stream).filter(AcknowledgedBytes::lacks_some)
        else {
            return ExchangeNext::End(open.ending);
        };
        // Bytes that a lost peer has not acknowledged stay counted (tcp_ioctl, net/ipv4/tcp.c).
        self.counters.system_calls += 2;
        if open.stream.take_error().is_err() {
            return ExchangeNext::End(Ending::Reset);
        }
        let Some(acknowledgement) = &mut open.acknowledgement else {
            open.acknowledgement = Some(Acknowledgement::new(seen, self.now_ms));
            return ExchangeNext::Wait;
        };
        if acknowledgement.look(seen, &self.limits, self.now_ms) {
            ExchangeNext::Wait
        } else {
            ExchangeNext::End(Ending::SendTimeout)
        }
    }

    /// Receives once.
    fn receive(&mut self, open: &mut Open) -> Result<ServeStep, ExchangeNext> {
        let buffer = if self.buffer.is_empty() {
            &mut open.buffer
        } else {
            &mut self.buffer
        };
        self.counters.system_calls += 1;
        match open.stream.receive(buffer) {
            Ok(0) => {
                open.is_readable = false;
                Ok(open.connection.end())
            }
            Ok(received) => {
                self.counters.bytes_received += received as u64;
                // A receive that did not fill the buffer has emptied the queue (epoll(7)); only the
                // end may still be behind it. Without `events` the set reports it again.
                let may_be_more = received == buffer.len() || open.is_ended;
                open.is_readable = may_be_more && self.switches.has(Switch::Events);
                let bytes = &buffer[..received];
                let step = open
                    .connection
                    .receive(bytes, &mut self.responder, self.now_ms);
                Ok(step)
            }
            Err(error) if would_block(&error) => {
                open.is_readable = false;
                Err(ExchangeNext::Wait)
            }
            Err(error) => Err(ExchangeNext::End(ending_of(&error))),
        }
    }

    /// Sends as much of a reply as there is room for.
    fn transmit(&mut self, open: &mut Open, reply: &mut Reply) -> ReplyProgress {
        let before = self.counters.bytes_sent;
        let sent = self.transmit_parts(open, reply);
        if self.counters.bytes_sent > before {
            open.connection.progress(self.now_ms);
        }
        sent
    }

    /// Sends one part after the other, up to a share of them.
    fn transmit_parts(&mut self, open: &Open, reply: &mut Reply) -> ReplyProgress {
        let mut share = SHARE_BYTES;
        loop {
            let has_more = !reply.is_last_part();
            while !reply.part.range.is_empty() {
                if share == 0 {
                    return ReplyProgress::Share;
                }
                self.counters.system_calls += 1;
                let left = reply.part.as_slice();
                let bytes = &left[..left.len().min(share)];
                match open
                    .stream
                    .send(bytes, has_more || bytes.len() < left.len())
                {
                    Ok(count) => {
                        reply.part.range.start += count;
                        share -= count;
                        self.counters.bytes_sent += count as u64;
                    }
                    Err(error) if would_block(&error) => return ReplyProgress::Blocked,
                    Err(error) => return ReplyProgress::Failed(ending_of(&error)),
                }
            }
            match reply.advance() {
                Ok(true) => {}
                Ok(false) => return ReplyProgress::Whole,
                Err(_) => return ReplyProgress::Failed(Ending::Error),
            }
        }
    }
}

impl Open {
    /// Records the events of the set.
    pub(super) fn note(&mut self, event: ReadyDescriptor) {
        self.is_readable |= event.is_readable();
        self.is_ended |= event.is_ended();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.connection.is_idle()
    }
}

/// How a connection is counted whose socket failed.
fn ending_of(error: &io::Error) -> Ending {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => Ending::Reset,
        _ => Ending::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 000 idle connections are to stay far below 40 MiB.
    #[test]
    fn a_connection_that_is_idle_takes_little() {
        let bytes = size_of::<Option<Open>>();
        assert!(bytes <= 256, "{bytes}");
    }
}
