//! Serving with completions: each connection has one request at a time with the kernel, or one
//! chain, and moves on when it is answered.
//!
//! With no switch every step is a request of its own, as the steps of the paper's loop are system
//! calls of their own: accept, poll, receive into fresh memory, send, close.
//!
//! Rejected after trials, because they cost more than they save. The figures are server CPU per
//! connection on Linux 6.18, measured on a busy machine. A standing accept with slots that the
//! kernel chooses takes 16 µs.
//!
//! * accepting into the slot of a finished connection, which replaces the old socket without a
//!   close: 25 µs. Each accept is then a request of its own, which waits and is woken. The peer's
//!   FIN also needs a shutdown;
//! * single accepts into slots that the kernel chooses, 64 at a time: 20 µs.
//!
//! The largest gain does not depend on io_uring: a reply that waits for the close carries the FIN.
//! One packet less is made, delivered and acknowledged ([`StreamRing::send_and_close`]).

mod accepting;
mod acknowledging;
mod draining;

use super::client::{Forced, RingClient};
use crate::serve::{
    AcknowledgedBytes, Chunk, Close, Deadlines, Ending, Reply, Responder, ServeCounters,
    ServeStage, ServeStep, ServeWorker, TICK_MS, now_ms,
};
use crate::{HttpError, Switch};
use mpps_os::limit;
use mpps_os::uring::{
    Buffer, CompletedCall, RequestKey, RingEvent, RingSocket, SendRequest, StreamOptions,
    StreamRing,
};
use mpps_os::wake::Wake;
use slab::Slab;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

/// Tokens that are no connection's.
const ACCEPT: u32 = u32::MAX;
const WAKE: u32 = u32::MAX - 1;
/// The mark of a look at a connection's peer, beside the one request that the connection has.
const LOOK: u32 = 1 << 31;

/// Bytes of a receive: most heads are shorter, and longer ones come in parts.
const RECEIVE_BYTES: usize = 1024;
/// The ring's own buffers. A waiting connection has none, so that this is how many may receive
/// between two looks of ours.
const BUFFERS: usize = 1024;
/// The most bytes that are sent in one request that ends when all have gone. More than that moves
/// in parts, to distinguish a slow client from a dead one.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// Slots beyond the connections that are allowed: those that are being refused or closed.
const SLOTS_SPARE: usize = 256;
/// Slots of a ring beside those of connections.
const SLOTS_ADOPTED: usize = 8;
/// Events that are looked at before time-outs and new requests have their turn.
const EVENTS: usize = 1024;
/// How long to wait for a peer's acknowledgement before asking for the second time: most have
/// come by then, and the others are left to their [`crate::serve::Acknowledgement`].
const RETRY: Duration = Duration::from_millis(2);

/// One worker's loop.
struct Loop {
    worker: ServeWorker,
    ring: StreamRing,
    listener: RingSocket,
    wake: RingSocket,
    clients: Slab<RingClient>,
    responder: Responder,
    deadlines: Deadlines,
    counters: ServeCounters,
    now_ms: u64,
    stage: ServeStage,
    /// The standing, or repeated, request that accepts.
    accept: Option<RequestKey>,
    /// When accepting may be tried again.
    accept_at_ms: u64,
    /// A descriptor to give up when there is no other.
    reserve: Option<Wake>,
    /// Connections that wait for an acknowledgement before they are reset, and were asked once.
    unacknowledged: Vec<u32>,
    /// When they are asked again.
    ask_at_ms: u64,
    /// When a drain gives up.
    drain_ends_ms: u64,
    /// Slots for connections; none without [`Switch::Fds`].
    slots: usize,
}

/// Serves until the worker's stage says otherwise.
pub(super) fn run(worker: ServeWorker) -> Result<(), HttpError> {
    let mut engine = Loop::new(worker)?;
    engine.worker.ready();
    engine.run()
}

impl Loop {
    fn new(worker: ServeWorker) -> Result<Self, HttpError> {
        let [fds, buffers] =
            [Switch::Fds, Switch::Buffers].map(|switch| worker.switches.has(switch));
        let slots = worker.limits.connections.saturating_add(SLOTS_SPARE);
        // The kernel allows no more slots than descriptors.
        let descriptors = usize::try_from(limit::allow_descriptors(0)?).unwrap_or(usize::MAX);
        let slots = slots.min(descriptors.saturating_sub(SLOTS_ADOPTED)).max(1);
        let options = StreamOptions {
            slots: if fds { slots as u32 } else { 0 },
            buffers: if buffers { BUFFERS } else { 0 },
            buffer_bytes: RECEIVE_BYTES,
            ..StreamOptions::default()
        };
        let mut ring = StreamRing::new(&options)?;
        let now_ms = now_ms();
        Ok(Self {
            listener: ring.adopt(worker.listener.as_fd())?,
            wake: ring.adopt(worker.wake().as_fd())?,
            ring,
            clients: Slab::new(),
            responder: worker.responder(),
            deadlines: Deadlines::new(now_ms),
            counters: ServeCounters::default(),
            now_ms,
            stage: ServeStage::Running,
            accept: None,
            accept_at_ms: 0,
            reserve: Some(Wake::new()?),
            unacknowledged: Vec::new(),
            ask_at_ms: 0,
            drain_ends_ms: u64::MAX,
            slots: options.slots as usize,
            worker,
        })
    }

    fn run(&mut self) -> Result<(), HttpError> {
        self.ring.poll_readable(WAKE, &self.wake);
        let mut is_more = false;
        loop {
            self.accept_on();
            self.ask_unacknowledged();
            let (want, timeout) = match is_more {
                true => (0, Some(Duration::ZERO)),
                false => (1, self.timeout()),
            };
            self.ring
                .wait(want, timeout)
                .map_err(|error| mpps_os::CallError::new("io_uring_enter", "connections", error))?;
            self.now_ms = now_ms();
            is_more = self.events();
            self.expire();
            self.counters.system_calls = self.ring.calls();
            let open = self.clients.len();
            self.worker.publish(&self.counters, open);
            if self.stage != ServeStage::Running && self.is_over() {
                return Ok(());
            }
        }
    }

    fn has(&self, switch: Switch) -> bool {
        self.worker.switches.has(switch)
    }

    /// How long nothing need be done.
    fn timeout(&self) -> Option<Duration> {
        if !self.unacknowledged.is_empty() {
            return Some(RETRY);
        }
        let waits = self.deadlines.is_empty() && self.accept.is_some();
        (!waits || self.stage != ServeStage::Running).then_some(Duration::from_millis(4 * TICK_MS))
    }

    /// Looks at what has happened. True if there may be more.
    fn events(&mut self) -> bool {
        for _ in 0..EVENTS {
            match self.ring.next() {
                Some(event) => self.event(event),
                None => return false,
            }
        }
        true
    }

    fn event(&mut self, event: RingEvent) {
        match (event.token, event.outcome) {
            (WAKE, _) => self.turn_stage(),
            (ACCEPT, CompletedCall::Accepted { socket, more }) => {
                if !more {
                    self.accept = None;
                }
                match socket {
                    Ok(socket) => self.admit(socket),
                    Err(error) => self.not_accepted(&error),
                }
            }
            (slot, CompletedCall::Lent(fd)) if slot & LOOK != 0 => self.lent(slot & !LOOK, fd),
            (slot, outcome) => self.moved(slot, outcome),
        }
    }

    // Steps of a connection.

    /// Handles the outcome of a connection's request.
    fn moved(&mut self, slot: u32, outcome: CompletedCall) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        client.request = None;
        let forced = client.forced.take();
        match (outcome, forced) {
            (CompletedCall::Received(Ok(buffer)), Some(Forced::CloseIfIdle))
                if buffer.filled() > 0 =>
            {
                client.ending = None;
                self.received(slot, buffer);
            }
            (CompletedCall::Ready(Ok(())), Some(Forced::CloseIfIdle)) => {
                client.forced = Some(Forced::CloseIfIdle);
                self.receive_now(slot);
            }
            (CompletedCall::Ended(result), _) => self.ended(slot, result.is_ok()),
            (CompletedCall::Closed(_), _) => self.remove(slot),
            (outcome, Some(forced)) => {
                self.discard(outcome);
                match forced {
                    Forced::Close => self.close_now(slot),
                    Forced::CloseIfIdle => self.close(slot, Ending::Drained),
                    Forced::Send(reply) => self.send(slot, *reply),
                }
            }
            (CompletedCall::Received(Ok(buffer)), None) => self.received(slot, buffer),
            (CompletedCall::Ready(Ok(())), None) => self.receive_now(slot),
            (CompletedCall::Sent(Ok(bytes)), None) => self.sent(slot, bytes),
            // A peer that has gone is found out by receiving.
            (CompletedCall::ShutDown(_), None) => self.receive(slot),
            (CompletedCall::Unsent(Ok(bytes)), None) if bytes > 0 => {
                self.unacknowledged(slot, AcknowledgedBytes::left(bytes));
            }
            (CompletedCall::Lent(fd), None) => self.lent_at_end(slot, fd),
            (CompletedCall::Unsent(_), None) => self.close_now(slot),
            (CompletedCall::Received(Err(error)), None) if is_out_of_buffers(&error) => {
                self.receive_now(slot);
            }
            (outcome, None) => {
                self.discard(outcome);
                self.close(slot, Ending::Reset);
            }
        }
    }

    /// Waits for bytes, or takes those that are there.
    fn receive(&mut self, slot: u32) {
        if self.has(Switch::Events) {
            return self.receive_now(slot);
        }
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        if let Some(socket) = &client.socket {
            client.request = Some(self.ring.poll_readable(slot, socket));
        }
    }

    fn receive_now(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let Some(socket) = &client.socket else {
            return;
        };
        client.request = Some(match self.worker.switches.has(Switch::Buffers) {
            true => self.ring.receive(slot, socket),
            false => {
                let buffer = Buffer::new(RECEIVE_BYTES);
                self.ring.receive_into(slot, socket, buffer)
            }
        });
    }

    fn received(&mut self, slot: u32, buffer: Buffer) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let bytes = self.ring.bytes(&buffer);
        self.counters.bytes_received += bytes.len() as u64;
        let step = match bytes {
            [] => {
                // A client that was to close after the last reply has kept the agreement.
                let is_agreed = client.connection.is_over();
                client.end(if is_agreed {
                    Ending::Done
                } else {
                    Ending::Client
                });
                client.connection.end()
            }
            bytes => {
                let responder = &mut self.responder;
                client.connection.receive(bytes, responder, self.now_ms)
            }
        };
        self.ring.give_back(buffer);
        self.step(slot, step);
    }

    fn step(&mut self, slot: u32, step: ServeStep) {
        match step {
            ServeStep::Receive => {
                self.arm(slot);
                self.receive(slot);
                let is_idle = |client: &mut RingClient| client.connection.is_between();
                if self.stage != ServeStage::Running
                    && self.clients.get_mut(slot as usize).is_some_and(is_idle)
                {
                    // Its reply had begun before the drain, and did not say that it was the last.
                    self.force(slot, Ending::Drained, Forced::CloseIfIdle);
                }
            }
            ServeStep::Send(reply) => {
                self.arm(slot);
                self.counters.reply(reply.status);
                if let Some(client) = self.clients.get_mut(slot as usize) {
                    client.status = reply.status;
                }
                self.send(slot, reply);
            }
            ServeStep::Shutdown => {
                self.arm(slot);
                let Some(client) = self.clients.get_mut(slot as usize) else {
                    return;
                };
                client.end(match client.status {
                    400.. => Ending::Refused,
                    _ => Ending::Done,
                });
                if let Some(socket) = &client.socket {
                    let request = self.ring.shutdown(slot, socket, Shutdown::Write);
                    client.request = Some(request);
                }
            }
            ServeStep::Close => self.close(slot, Ending::Done),
        }
    }

    /// Sends a reply, or what is left of one.
    fn send(&mut self, slot: u32, reply: Reply) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let is_all = reply.is_last_part();
        let length = reply.part.range.len();
        if self.worker.switches.has(Switch::Events)
            && reply.last
            && is_all
            && self.worker.close == Close::Server
            && let Some(socket) = client.socket.take()
        {
            let Chunk { bytes, range } = reply.part;
            let request = self.ring.send_and_close(slot, socket, bytes, range);
            client.request = Some(request);
            client.bytes_at_end = length;
            return;
        }
        let Some(socket) = &client.socket else {
            return;
        };
        let sending = SendRequest {
            whole: length <= WHOLE_BYTES_MAX,
            more: !is_all,
        };
        let Chunk { bytes, range } = reply.part.clone();
        client.request = Some(self.ring.send(slot, socket, bytes, range, sending));
        client.reply = Some(reply);
    }

    /// A part of a reply has gone.
    fn sent(&mut self, slot: u32, bytes: usize) {
        self.counters.bytes_sent += bytes as u64;
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        client.connection.progress(self.now_ms);
        let Some(mut reply) = client.reply.take() else {
            return;
        };
        reply.part.range.start += bytes;
        if !reply.part.range.is_empty() {
            return self.send(slot, reply);
        }
        match reply.advance() {
            Ok(true) => self.send(slot, reply),
            Ok(false) => self.whole(slot),
            Err(_) => self.close(slot, Ending::Error),
        }
    }

    /// A reply has gone whole.
    fn whole(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let step = client.connection.sent(&mut self.responder, self.now_ms);
        self.step(slot, step);
    }

    /// The chain that sends the last reply and closes is over.
    fn ended(&mut self, slot: u32, is_ok: bool) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let bytes = client.bytes_at_end;
        client.end(if is_ok { Ending::Done } else { Ending::Reset });
        if is_ok {
            self.counters.bytes_sent += bytes as u64;
        }
        self.remove(slot);
    }

    // Ends.

    /// Closes a connection that has no request with the kernel.
    fn close(&mut self, slot: u32, ending: Ending) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        client.end(ending);
        let ending = client.ending.unwrap_or(ending);
        if client.connection.end_as(ending, self.worker.close)
            && let Some(socket) = &client.socket
        {
            client.request = Some(self.ring.unsent(slot, socket));
            return;
        }
        self.close_now(slot);
    }

    fn close_now(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        client.reply = None;
        let Some(socket) = client.socket.take() else {
            return self.remove(slot);
        };
        // Bytes that the client does not take must not stay in the kernel.
        let resets = match client.ending {
            Some(Ending::SendTimeout | Ending::Error) => true,
            Some(Ending::Drained) => self.stage == ServeStage::Stopped,
            _ => false,
        };
        client.request = Some(match resets {
            true => self.ring.reset(slot, socket),
            false => self.ring.close(slot, socket),
        });
    }

    /// Ends a connection whatever its request is; at once if it has none.
    fn force(&mut self, slot: u32, ending: Ending, forced: Forced) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        client.end(ending);
        match (client.request, forced) {
            (Some(request), forced) => {
                // A chain ends by itself when its send does.
                client.forced = Some(forced);
                self.ring.cancel(request);
            }
            (None, Forced::Close) => self.close_now(slot),
            (None, Forced::CloseIfIdle) => self.close(slot, ending),
            (None, Forced::Send(reply)) => self.send(slot, *reply),
        }
    }

    fn remove(&mut self, slot: u32) {
        let Some(client) = self.clients.try_remove(slot as usize) else {
            return;
        };
        self.counters.end(client.ending.unwrap_or(Ending::Done));
        // There is a slot, or a descriptor, again.
        self.accept_at_ms = 0;
        if client.is_admitted {
            self.worker.peers.leave();
        }
    }

    /// Gives back the buffer of an outcome that is not needed any more.
    fn discard(&mut self, outcome: CompletedCall) {
        if let CompletedCall::Received(Ok(buffer)) = outcome {
            self.ring.give_back(buffer);
        }
    }

    // Time.

    fn arm(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let deadline_ms = client.connection.deadline_ms(&self.worker.limits);
        self.deadlines.arm(slot, deadline_ms);
    }

    fn expire(&mut self) {
        while let Some(slot) = self.deadlines.expired(self.now_ms) {
            let Some(client) = self.clients.get_mut(slot as usize) else {
                continue;
            };
            if client.forced.is_some() {
                continue;
            }
            if let Some(acknowledgement) = &client.acknowledgement {
                let look_ms = acknowledgement.look_ms(&self.worker.limits);
                if look_ms > self.now_ms {
                    self.deadlines.arm(slot, look_ms);
                } else {
                    self.ask(slot);
                }
                continue;
            }
            // A connection that ends by itself has no deadline. Its request is the close, or the
            // first question what the peer has got. A reset before that answer would throw a reply
            // away.
            if client.connection.is_closed() && client.request.is_some() {
                continue;
            }
            let deadline_ms = client.connection.deadline_ms(&self.worker.limits);
            if deadline_ms > self.now_ms {
                self.deadlines.arm(slot, deadline_ms);
                continue;
            }
            match client.connection.needs_look() {
                true => self.look(slot),
                false => self.end_late(slot),
            }
        }
    }

    /// A connection's time is over.
    fn end_late(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let late = client.connection.ending_if_late();
        let ending = late.unwrap_or(Ending::Done);
        let forced = match client.connection.expire(&mut self.responder, self.now_ms) {
            ServeStep::Send(reply) => {
                self.counters.reply(reply.status);
                Forced::Send(Box::new(reply))
            }
            _ => Forced::Close,
        };
        self.force(slot, ending, forced);
        // A reply that was begun by a time-out has a time of its own.
        self.arm(slot);
    }
}

fn is_out_of_buffers(error: &io::Error) -> bool {
    // Of io_uring_enter(2): others have all of them at this moment.
    error.raw_os_error() == Some(libc::ENOBUFS)
}
