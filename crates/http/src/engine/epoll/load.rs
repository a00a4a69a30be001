//! The load over epoll: edge-triggered, added once for each connection, never deleted. It is modified
//! only to hear again of bytes that a turn left.

use crate::load::{LoadStep, LoadWorker, NextRequest, errno};
use crate::{Close, HttpError};
use mpps_os::clock::monotonic_ns;
use mpps_os::epoll::{Epoll, Events, Interest, ReadyDescriptor};
use mpps_os::tcp::{TcpStream, would_block};
use std::io;

/// Events of one wait at most.
const EVENTS: usize = 256;
/// Room for one read in bytes: the largest reply that is usual comes in one.
const READ_BYTES: usize = 64 << 10;
/// Reads of one connection in a turn at most: a server that is as fast as this thread must not keep it
/// from the other connections, from the clock and from signals.
const TURN_READS: usize = 4;
/// The events that each connection is watched for.
const INTEREST: Interest = Interest::READ.and(Interest::WRITE).edge();

/// A thread's sockets.
struct EpollSockets {
    worker: LoadWorker,
    epoll: Epoll,
    streams: Vec<Option<LoadStream>>,
    buffer: Vec<u8>,
}

struct LoadStream {
    stream: TcpStream,
    is_connecting: bool,
    /// Of the request that is being sent: how much of it has gone.
    unsent: Option<(NextRequest, usize)>,
}

/// Makes connections until the run is over.
pub(super) fn run(mut worker: LoadWorker) -> Result<(), HttpError> {
    let epoll = Epoll::new()?;
    let mut events = Events::new(EVENTS);
    if !worker.begin("edge-triggered, added once per connection") {
        return Ok(());
    }
    let count = worker.count;
    let mut sockets = EpollSockets {
        worker,
        epoll,
        streams: (0..count).map(|_| None).collect(),
        buffer: vec![0; READ_BYTES],
    };
    loop {
        let now_ns = monotonic_ns();
        if !sockets.worker.goes_on(now_ns) {
            break;
        }
        sockets.start_due();
        sockets.expire();
        sockets.wait(&mut events)?;
        for event in (0..events.len()).filter_map(|index| events.at(index)) {
            sockets.react(event);
        }
    }
    sockets.worker.finish();
    Ok(())
}

impl EpollSockets {
    /// Waits until something happens, or something is to be started. The times of an open loop
    /// are finer than the milliseconds of epoll_wait(2).
    fn wait(&mut self, events: &mut Events) -> Result<(), HttpError> {
        let timeout = self.worker.sleep(monotonic_ns());
        let waited = if self.worker.config.rate.is_some() && !timeout.is_zero() {
            self.worker.system_calls += 2;
            self.epoll.wait_exactly(events, timeout)
        } else {
            self.worker.system_calls += 1;
            self.epoll.wait(events, Some(timeout))
        };
        match waited {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(mpps_os::CallError::new("epoll_wait", "set", error).into())
            }
            _ => Ok(()),
        }
    }

    /// Starts what is to start now; no more than there are connections, so that failures at once
    /// do not keep the others waiting.
    fn start_due(&mut self) {
        for _ in 0..self.worker.count {
            let Some((slot, step)) = self.worker.flights.start(monotonic_ns()) else {
                return;
            };
            self.perform(slot, step);
        }
    }

    fn expire(&mut self) {
        let mut expired = Vec::new();
        let flights = &mut self.worker.flights;
        flights.expire(monotonic_ns(), |slot| expired.push(slot));
        for slot in expired {
            self.perform(slot, LoadStep::Close);
        }
    }

    /// Does what a connection needs next, until there is something to wait for.
    fn perform(&mut self, slot: u32, mut step: LoadStep) {
        loop {
            step = match step {
                LoadStep::Connect => match self.connect(slot) {
                    Ok(()) => return,
                    Err(errno) => self.worker.flights.failed(slot, errno, monotonic_ns()),
                },
                LoadStep::Send(request) => match self.send(slot, request, 0) {
                    Ok(()) => return,
                    Err(errno) => self.worker.flights.failed(slot, errno, monotonic_ns()),
                },
                LoadStep::Receive => return,
                LoadStep::Close => {
                    self.close(slot);
                    self.worker.flights.free(slot);
                    return;
                }
                LoadStep::Reopen => {
                    self.close(slot);
                    LoadStep::Connect
                }
            }
        }
    }

    /// Reacts to what the kernel says about a socket.
    fn react(&mut self, event: ReadyDescriptor) {
        let slot = event.key as u32;
        let Some(stream) = self.streams[slot as usize].as_mut() else {
            return;
        };
        if stream.is_connecting {
            if event.is_broken() {
                self.worker.system_calls += 1;
                let taken = stream.stream.take_error();
                let errno = taken.map_or_else(|error| errno(&error), |()| libc::ECONNRESET);
                let step = self.worker.flights.failed(slot, errno, monotonic_ns());
                self.perform(slot, step);
                return;
            }
            if !event.is_writable() {
                return;
            }
            stream.is_connecting = false;
            let step = self.worker.flights.connected(slot, monotonic_ns());
            self.perform(slot, step);
        } else if event.is_writable()
            && let Some((request, sent)) = stream.unsent.take()
            && let Err(errno) = self.send(slot, request, sent)
        {
            let step = self.worker.flights.failed(slot, errno, monotonic_ns());
            self.perform(slot, step);
            return;
        }
        if event.is_readable() {
            self.receive(slot, event.is_ended());
        }
    }

    /// Reads the bytes that are there, up to the share of a turn. A read that does not fill the
    /// buffer has emptied the socket. Bytes after it are a new event, but a reported end is not
    /// reported again.
    fn receive(&mut self, slot: u32, is_ended: bool) {
        for _ in 0..TURN_READS {
            let Some(stream) = &self.streams[slot as usize] else {
                return;
            };
            self.worker.system_calls += 1;
            let received = stream.stream.receive(&mut self.buffer);
            let now_ns = monotonic_ns();
            let flights = &mut self.worker.flights;
            let (step, more) = match received {
                Ok(0) => (flights.ended(slot, now_ns), false),
                Ok(bytes) => {
                    let step = flights.received(slot, &self.buffer[..bytes], now_ns);
                    (step, is_ended || bytes == self.buffer.len())
                }
                Err(error) if would_block(&error) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => (flights.failed(slot, errno(&error), now_ns), false),
            };
            self.perform(slot, step);
            if !more || !matches!(step, LoadStep::Receive | LoadStep::Send(_)) {
                return;
            }
        }
        self.tell_again(slot);
    }

    /// Makes the next wait report the state of the socket, its end too.
    fn tell_again(&mut self, slot: u32) {
        let Some(stream) = &self.streams[slot as usize] else {
            return;
        };
        self.worker.system_calls += 1;
        let told = self.epoll.modify(&stream.stream, u64::from(slot), INTEREST);
        if let Err(error) = told {
            let now_ns = monotonic_ns();
            let step = self.worker.flights.failed(slot, errno(&error), now_ns);
            self.perform(slot, step);
        }
    }

    fn connect(&mut self, slot: u32) -> Result<(), i32> {
        let source = self.worker.next_source();
        let source = source.and_then(|at| self.worker.config.sources.get(at).copied());
        let target = &self.worker.config.target;
        // `socket`, `connect` and `epoll_ctl`; with a source also `setsockopt` and `bind`.
        self.worker.system_calls += if source.is_some() { 5 } else { 3 };
        let stream = TcpStream::connect(target, source).map_err(|error| errno(&error.source))?;
        if self.worker.config.close == Close::Rst {
            self.worker.system_calls += 1;
            stream.reset_on_close().map_err(|error| errno(&error))?;
        }
        let added = self.epoll.add(&stream, u64::from(slot), INTEREST);
        added.map_err(|error| errno(&error))?;
        self.streams[slot as usize] = Some(LoadStream {
            stream,
            is_connecting: true,
            unsent: None,
        });
        Ok(())
    }

    /// Sends a request from its `from`th byte on; what there is no room for waits.
    fn send(&mut self, slot: u32, request: NextRequest, from: usize) -> Result<(), i32> {
        let Some(stream) = self.streams[slot as usize].as_mut() else {
            return Ok(());
        };
        let text = self.worker.text(request);
        let sent = match stream.stream.send(&text[from..], false) {
            Ok(sent) => sent,
            Err(error) if would_block(&error) => 0,
            Err(error) => return Err(errno(&error)),
        };
        if from + sent < text.len() {
            stream.unsent = Some((request, from + sent));
        }
        self.worker.system_calls += 1;
        self.worker.flights.tally.bytes_sent += sent as u64;
        Ok(())
    }

    fn close(&mut self, slot: u32) {
        let closed = self.streams[slot as usize].take();
        self.worker.system_calls += u64::from(closed.is_some());
    }
}
