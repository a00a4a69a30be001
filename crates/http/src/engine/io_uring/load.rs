//! The load over io_uring: direct descriptors, and many connections for one system call.

use crate::load::{CLOSING_MAX, LoadStep, LoadWorker, NextRequest as Which, errno};
use crate::{Close, HttpError};
use mpps_os::clock::monotonic_ns;
use mpps_os::uring::{
    Address, Buffer, CompletedCall, Dialling, RequestKey, RingSocket, SendRequest, StreamOptions,
    StreamRing,
};
use std::io;
use std::sync::Arc;

/// Room for one read in bytes: most replies come in one.
const READ_BYTES: usize = 32 << 10;
/// Buffers at most: those that are filled by one system call, and free again before the next.
const BUFFERS_MAX: usize = 512;
/// Requests that are passed on by one system call at most.
const REQUESTS_MAX: usize = 4096;
/// Events between two looks at the clock, so that starts and time-outs are not put off for as long
/// as events come.
const EVENTS_MAX: usize = 1024;

/// A thread's sockets.
struct RingSockets {
    worker: LoadWorker,
    ring: StreamRing,
    lines: Vec<RingConnection>,
    target: Address,
    sources: Vec<Address>,
    /// Connections to be closed. The ring may still have a part of them.
    closing: Vec<u32>,
    /// The time of what is started, and then of everything that the next system call brings.
    now_ns: u64,
    /// True if there may be events that were not looked at.
    has_more: bool,
}

/// The ring's part of a connection.
#[derive(Default)]
struct RingConnection {
    socket: Option<RingSocket>,
    dialling: Option<RequestKey>,
    sending: Option<RequestKey>,
    receiving: Option<RequestKey>,
    /// Bytes that go out with the receive, and have gone once it is answered.
    asked_bytes: u32,
    then: Then,
}

/// The next action when the ring has nothing of it any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Then {
    /// The connection goes on.
    #[default]
    Nothing,
    /// It is closed.
    Close,
    /// It is closed, and made anew.
    Reopen,
}

/// Makes connections until the run is over.
pub(super) fn run(mut worker: LoadWorker) -> Result<(), HttpError> {
    let count = worker.count;
    let ring = StreamRing::new(&StreamOptions {
        // A connection that begins or ends takes two or three.
        requests: (4 * count).clamp(64, REQUESTS_MAX) as u32,
        completions: (8 * count).clamp(256, 1 << 15) as u32,
        slots: 0,
        // Until a close is done, its slot is taken.
        dial_slots: (count + count.min(CLOSING_MAX)) as u32,
        buffers: count.clamp(16, BUFFERS_MAX),
        buffer_bytes: READ_BYTES,
    })?;
    let granted = format!("{}, direct descriptors, provided buffers", ring.flags());
    if !worker.begin(&granted) {
        return Ok(());
    }
    let sources = worker.config.sources.iter();
    let mut sockets = RingSockets {
        target: worker.config.target.into(),
        sources: sources
            .map(|ip| Address::from(std::net::SocketAddr::new(*ip, 0)))
            .collect(),
        worker,
        ring,
        closing: Vec::new(),
        lines: (0..count).map(|_| RingConnection::default()).collect(),
        now_ns: monotonic_ns(),
        has_more: false,
    };
    while sockets.worker.goes_on(sockets.now_ns) {
        sockets.start_due();
        sockets.expire();
        sockets.wait()?;
        sockets.react_to_all();
    }
    sockets.worker.system_calls = sockets.ring.calls();
    sockets.worker.finish();
    Ok(())
}

impl RingConnection {
    /// The requests that the ring has not answered yet.
    fn pending(&self) -> impl Iterator<Item = RequestKey> {
        let requests = [self.dialling, self.sending, self.receiving];
        requests.into_iter().flatten()
    }
}

impl RingSockets {
    /// Waits until something happens, or something is to be started; not at all while there are
    /// events left.
    fn wait(&mut self) -> Result<(), HttpError> {
        let waited = if self.has_more {
            self.ring.wait(0, None)
        } else {
            let timeout = self.worker.sleep(monotonic_ns());
            self.ring.wait(1, Some(timeout))
        };
        Ok(waited.map_err(|error| mpps_os::CallError::new("io_uring_enter", "ring", error))?)
    }

    fn react_to_all(&mut self) {
        self.now_ns = monotonic_ns();
        self.has_more = true;
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.ring.next() else {
                self.has_more = false;
                return;
            };
            self.react(event.token, event.outcome);
        }
    }

    fn start_due(&mut self) {
        // Reacting took its time.
        self.now_ns = monotonic_ns();
        for _ in 0..self.worker.count {
            if self.ring.free_dial_slots() == 0 {
                // Some are being closed.
                return;
            }
            let Some((slot, step)) = self.worker.flights.start(self.now_ns) else {
                return;
            };
            self.perform(slot, step);
        }
    }

    fn expire(&mut self) {
        let mut expired = Vec::new();
        let flights = &mut self.worker.flights;
        flights.expire(self.now_ns, |slot| expired.push(slot));
        for slot in expired {
            self.perform(slot, LoadStep::Close);
        }
        self.hurry();
    }

    /// Cancels, once more, what stands in the way of a close: what was not begun when it was
    /// cancelled, such as the second part of a chain, was not found.
    fn hurry(&mut self) {
        for slot in std::mem::take(&mut self.closing) {
            let line = &self.lines[slot as usize];
            if line.then == Then::Nothing {
                continue;
            }
            let pending: Vec<RequestKey> = line.pending().collect();
            if pending.is_empty() {
                self.go_on(slot);
            } else {
                self.closing.push(slot);
                pending
                    .into_iter()
                    .for_each(|request| self.ring.cancel(request));
            }
        }
    }

    /// Asks the ring for what a connection needs next.
    fn perform(&mut self, slot: u32, step: LoadStep) {
        match step {
            LoadStep::Connect => self.dial(slot),
            LoadStep::Send(request) => self.send(slot, request),
            LoadStep::Receive => self.receive(slot),
            LoadStep::Close => self.close(slot, Then::Close),
            LoadStep::Reopen => self.close(slot, Then::Reopen),
        }
    }

    fn dial(&mut self, slot: u32) {
        let source = self.worker.next_source();
        let dialling = Dialling {
            target: &self.target,
            source: source.and_then(|at| self.sources.get(at)),
            reset: self.worker.config.close == Close::Rst,
        };
        let request = self.ring.dial(slot, &dialling);
        self.lines[slot as usize].dialling = request;
        if request.is_none() {
            // The caller has seen that there is one.
            let step = self.worker.flights.failed(slot, libc::EMFILE, self.now_ns);
            self.perform(slot, step);
        }
    }

    /// Sends a request and waits for bytes; a connection that has been idle waits already.
    fn send(&mut self, slot: u32, request: Which) {
        let text = Arc::clone(self.worker.text(request));
        let range = 0..text.len();
        let line = &mut self.lines[slot as usize];
        let Some(socket) = &line.socket else {
            return;
        };
        if line.receiving.is_none() {
            line.asked_bytes = text.len() as u32;
            line.receiving = Some(self.ring.exchange(slot, socket, text, range));
            return;
        }
        let whole = SendRequest {
            whole: true,
            more: false,
        };
        line.sending = Some(self.ring.send(slot, socket, text, range, whole));
    }

    /// Waits for bytes, unless it does already.
    fn receive(&mut self, slot: u32) {
        let line = &mut self.lines[slot as usize];
        if let (Some(socket), None) = (&line.socket, line.receiving) {
            line.receiving = Some(self.ring.receive(slot, socket));
        }
    }

    /// Closes when the ring has nothing of the connection any more, which is hurried.
    fn close(&mut self, slot: u32, then: Then) {
        self.lines[slot as usize].then = then;
        if self.lines[slot as usize].pending().next().is_some() {
            // The next turn cancels it.
            self.closing.push(slot);
        }
        self.go_on(slot);
    }

    /// Does what was to be done once the ring has nothing of the connection any more.
    fn go_on(&mut self, slot: u32) {
        let line = &mut self.lines[slot as usize];
        if line.pending().next().is_some() || line.then == Then::Nothing {
            return;
        }
        if let Some(socket) = line.socket.take() {
            self.ring.close(slot, socket);
        }
        if line.then == Then::Reopen && self.ring.free_dial_slots() == 0 {
            self.closing.push(slot);
            return;
        }
        match std::mem::take(&mut line.then) {
            // The place is free before the socket is closed: the next one takes another slot.
            Then::Close => self.worker.flights.free(slot),
            Then::Reopen => self.dial(slot),
            Then::Nothing => {}
        }
    }

    /// Reacts to what became of a request.
    fn react(&mut self, slot: u32, outcome: CompletedCall) {
        let Some(line) = self.lines.get_mut(slot as usize) else {
            return;
        };
        let flights = &mut self.worker.flights;
        let is_going = line.then == Then::Nothing;
        let step = match outcome {
            CompletedCall::Dialled(dialled) => {
                line.dialling = None;
                let dialled = dialled.map(|socket| line.socket = Some(socket));
                match dialled {
                    Ok(()) if is_going => Some(flights.connected(slot, self.now_ns)),
                    Err(error) if is_going => {
                        Some(flights.failed(slot, errno(&error), self.now_ns))
                    }
                    _ => None,
                }
            }
            CompletedCall::Sent(sent) => {
                line.sending = None;
                let bytes = *sent.as_ref().unwrap_or(&0);
                flights.tally.bytes_sent += bytes as u64;
                match sent {
                    Err(error) if is_going => {
                        Some(flights.failed(slot, errno(&error), self.now_ns))
                    }
                    _ => None,
                }
            }
            CompletedCall::Received(received) => {
                line.receiving = None;
                let asked = std::mem::take(&mut line.asked_bytes);
                // Without a buffer it could not be received, but the request has gone.
                let has_gone = match &received {
                    Ok(_) => true,
                    Err(error) => errno(error) == libc::ENOBUFS,
                };
                if has_gone {
                    flights.tally.bytes_sent += u64::from(asked);
                }
                self.received(slot, received, is_going)
            }
            // The socket that was closed has no owner by now.
            _ => return,
        };
        match step {
            Some(step) => self.perform(slot, step),
            None => self.go_on(slot),
        }
    }

    fn received(
        &mut self,
        slot: u32,
        received: io::Result<Buffer>,
        is_going: bool,
    ) -> Option<LoadStep> {
        let flights = &mut self.worker.flights;
        match received {
            Ok(buffer) => {
                let bytes = self.ring.bytes(&buffer);
                let step = match bytes.len() {
                    _ if !is_going => None,
                    0 => Some(flights.ended(slot, self.now_ns)),
                    _ => Some(flights.received(slot, bytes, self.now_ns)),
                };
                self.ring.give_back(buffer);
                step
            }
            // Some buffers have come back since.
            Err(error) if errno(&error) == libc::ENOBUFS => is_going.then_some(LoadStep::Receive),
            Err(error) if is_going => Some(flights.failed(slot, errno(&error), self.now_ns)),
            Err(_) => None,
        }
    }
}
