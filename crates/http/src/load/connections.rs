//! The connections of one thread, without their sockets: the state of each, its next step, and its
//! outcome.
//!
//! An engine reports the events of a socket and gets a [`LoadStep`]. Everything that is counted is
//! counted here, so that engines cannot count differently.

use super::pace::StartPace;
use super::response::{LastHead, ReplyEnd, ReplyState, Response};
use super::tally::LoadTally;
use super::{Failure, LoadConfig};
use crate::Close;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a server that said it would close may take, before the connection is closed here.
const FIN_NS: u64 = 1_000_000_000;
/// How long nothing is started after this side ran out of ports or descriptors.
const PAUSE_NS: u64 = 1_000_000;
/// How often time-outs are looked for: at least that many times in one, and within these bounds.
const SWEEPS: u64 = 16;
const SWEEP_NS_MIN: u64 = 1_000_000;
const SWEEP_NS_MAX: u64 = 100_000_000;

/// The next step of an engine with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadStep {
    /// Open a socket and connect; then [`Flights::connected`] or [`Flights::failed`].
    Connect,
    /// Send this request; then wait for bytes.
    Send(NextRequest),
    /// Wait for bytes, or for the end.
    Receive,
    /// Close the socket; then [`Flights::free`].
    Close,
    /// Close the socket and connect anew, for the same request.
    Reopen,
}

/// Which request is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextRequest {
    /// The connection stays open after it.
    Ordinary,
    /// The connection's last, which says so.
    Last,
}

/// All connections of a thread.
#[derive(Debug)]
pub(crate) struct Flights {
    slots: Vec<Flight>,
    free: Vec<u32>,
    /// Connections that wait for a request to become due. Some may have ended since.
    idle: VecDeque<u32>,
    /// Connections that are neither free nor idle.
    active: usize,
    pace: Option<StartPace>,
    tickets: Option<Arc<AtomicU64>>,
    /// True once nothing more is to be started.
    over: bool,
    requests_per_connection: Option<u64>,
    closes_at_once: bool,
    timeout_ns: u64,
    sweep_ns: u64,
    next_sweep_ns: u64,
    paused_until_ns: u64,
    last_head: LastHead,
    /// When a reply last came whole.
    answered_ns: Option<u64>,
    pub(crate) tally: LoadTally,
}

/// One connection.
#[derive(Debug, Clone, Default)]
struct Flight {
    phase: FlightPhase,
    /// True while the number is in `idle`.
    is_listed: bool,
    /// True once a whole reply had a status that is not 2xx.
    had_bad_status: bool,
    connect_ns: u64,
    /// When its request was to start.
    intended_ns: u64,
    deadline_ns: u64,
    /// Replies that came whole on this connection.
    replies: u64,
    response: Response,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum FlightPhase {
    /// No connection.
    #[default]
    Free,
    Connecting,
    /// For the first byte of a reply.
    Waiting,
    Replying,
    /// For a request to become due.
    Idle,
    /// For the server's end, which it announced.
    Closing,
    /// Counted, and not closed yet.
    Ended,
}

impl Flights {
    /// `count` connections; `pace` is this thread's share of a rate, and `tickets` the requests
    /// that all threads may still start.
    pub(crate) fn new(
        config: &LoadConfig,
        count: usize,
        pace: Option<StartPace>,
        tickets: Option<Arc<AtomicU64>>,
    ) -> Self {
        let timeout_ns = u64::try_from(config.timeout.as_nanos()).unwrap_or(u64::MAX / 2);
        Self {
            slots: vec![Flight::default(); count],
            free: (0..count as u32).rev().collect(),
            idle: VecDeque::new(),
            active: 0,
            pace,
            tickets,
            over: false,
            requests_per_connection: config.requests_per_connection,
            closes_at_once: config.close != Close::Server,
            timeout_ns,
            sweep_ns: (timeout_ns / SWEEPS).clamp(SWEEP_NS_MIN, SWEEP_NS_MAX),
            next_sweep_ns: 0,
            paused_until_ns: 0,
            last_head: LastHead::default(),
            answered_ns: None,
            tally: LoadTally::default(),
        }
    }

    /// Sets the clock to the beginning.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        if let Some(pace) = &mut self.pace {
            pace.begin(now_ns);
        }
        self.next_sweep_ns = now_ns + self.sweep_ns;
    }

    /// A connection for a request that is to start now: it is to be opened, or has been idle.
    pub(crate) fn start(&mut self, now_ns: u64) -> Option<(u32, LoadStep)> {
        if self.over || now_ns < self.paused_until_ns {
            return None;
        }
        while let Some(&slot) = self.idle.front() {
            if self.slots[slot as usize].phase == FlightPhase::Idle {
                break;
            }
            self.idle.pop_front();
            self.slots[slot as usize].is_listed = false;
        }
        if self.idle.is_empty() && self.free.is_empty() {
            self.tally.was_busy |= self
                .pace
                .as_ref()
                .is_some_and(|pace| pace.next_ns() <= now_ns);
            return None;
        }
        let intended_ns = self.due(now_ns)?;
        self.tally.requests.started += 1;
        if let Some(slot) = self.idle.pop_front() {
            self.slots[slot as usize].is_listed = false;
            self.active += 1;
            return Some((slot, self.request(slot, intended_ns, now_ns)));
        }
        let slot = self.free.pop()?;
        self.active += 1;
        self.slots[slot as usize].intended_ns = intended_ns;
        self.open(slot, now_ns);
        Some((slot, LoadStep::Connect))
    }

    /// The connection was made.
    pub(crate) fn connected(&mut self, slot: u32, now_ns: u64) -> LoadStep {
        let flight = &mut self.slots[slot as usize];
        if flight.phase != FlightPhase::Connecting {
            return LoadStep::Close;
        }
        flight.phase = FlightPhase::Waiting;
        self.tally.latency.connect.record(flight.connect_ns, now_ns);
        LoadStep::Send(self.which(slot))
    }

    /// Bytes came.
    pub(crate) fn received(&mut self, slot: u32, bytes: &[u8], now_ns: u64) -> LoadStep {
        self.tally.bytes_received += bytes.len() as u64;
        let flight = &mut self.slots[slot as usize];
        match flight.phase {
            FlightPhase::Waiting => {
                flight.phase = FlightPhase::Replying;
                let first_byte = &mut self.tally.latency.first_byte;
                first_byte.record(flight.intended_ns, now_ns);
            }
            FlightPhase::Replying => {}
            FlightPhase::Idle | FlightPhase::Closing => {
                return self.lose(slot, Failure::BadReply, || {
                    "bytes after a whole reply".into()
                });
            }
            FlightPhase::Free | FlightPhase::Connecting | FlightPhase::Ended => {
                return LoadStep::Close;
            }
        }
        match flight.response.receive(bytes, &mut self.last_head) {
            Ok(ReplyState::More) => LoadStep::Receive,
            Ok(ReplyState::Whole) => self.whole(slot, now_ns),
            Err(bad) => self.lose(slot, Failure::BadReply, || bad.to_string()),
        }
    }

    /// The server ended its side.
    pub(crate) fn ended(&mut self, slot: u32, now_ns: u64) -> LoadStep {
        let flight = &mut self.slots[slot as usize];
        match flight.phase {
            FlightPhase::Idle => {
                self.tally.closed_early += 1;
                self.complete(slot)
            }
            FlightPhase::Closing => self.complete(slot),
            FlightPhase::Waiting if flight.replies > 0 => self.reopen(slot, now_ns),
            FlightPhase::Waiting | FlightPhase::Replying => match flight.response.end() {
                ReplyEnd::Whole => {
                    let bytes = flight.response.body_bytes();
                    self.tally.unsized_replies += 1;
                    self.tally.note_unsized(bytes, bytes);
                    self.answered(slot, now_ns);
                    self.complete(slot)
                }
                ReplyEnd::Nothing => self.lose(slot, Failure::NoReply, || "closed at once".into()),
                ReplyEnd::ShortHead => self.lose(slot, Failure::BadReply, || "a cut head".into()),
                ReplyEnd::ShortBody => {
                    let bytes = flight.response.body_bytes();
                    self.lose(slot, Failure::ShortBody, || format!("{bytes} bytes came"))
                }
            },
            FlightPhase::Connecting => self.lose(slot, Failure::ResetConnecting, String::new),
            FlightPhase::Free | FlightPhase::Ended => LoadStep::Close,
        }
    }

    /// The kernel refused something, with this `errno`.
    pub(crate) fn failed(&mut self, slot: u32, errno: i32, now_ns: u64) -> LoadStep {
        let flight = &self.slots[slot as usize];
        let failure = Failure::of_errno(errno, flight.phase == FlightPhase::Connecting);
        match flight.phase {
            FlightPhase::Idle => {
                self.tally.closed_early += 1;
                self.complete(slot)
            }
            // The reply was whole: how the server ends after it is its own business.
            FlightPhase::Closing => self.complete(slot),
            FlightPhase::Waiting if flight.replies > 0 && failure == Failure::Reset => {
                self.reopen(slot, now_ns)
            }
            FlightPhase::Connecting | FlightPhase::Waiting | FlightPhase::Replying => {
                if failure.is_local() {
                    self.paused_until_ns = now_ns + PAUSE_NS;
                }
                self.lose(slot, failure, || mpps_os::errno_text(errno))
            }
            FlightPhase::Free | FlightPhase::Ended => LoadStep::Close,
        }
    }

    /// The socket of a counted connection is closed, and its place can be used again.
    pub(crate) fn free(&mut self, slot: u32) {
        let flight = &mut self.slots[slot as usize];
        if flight.phase == FlightPhase::Ended {
            flight.phase = FlightPhase::Free;
            self.free.push(slot);
        }
    }

    /// Looks for connections whose time is over, now and then; they are counted, and to be closed.
    pub(crate) fn expire(&mut self, now_ns: u64, mut close: impl FnMut(u32)) {
        if now_ns < self.next_sweep_ns {
            return;
        }
        self.next_sweep_ns = now_ns + self.sweep_ns;
        for slot in 0..self.slots.len() as u32 {
            let flight = &self.slots[slot as usize];
            let phase = flight.phase;
            let waits = matches!(
                phase,
                FlightPhase::Connecting
                    | FlightPhase::Waiting
                    | FlightPhase::Replying
                    | FlightPhase::Closing
            );
            if !waits || flight.deadline_ns > now_ns {
                continue;
            }
            match phase {
                FlightPhase::Closing => self.complete(slot),
                FlightPhase::Connecting => {
                    self.lose(slot, Failure::TimedOutConnecting, String::new)
                }
                _ => self.lose(slot, Failure::TimedOut, String::new),
            };
            close(slot);
        }
    }

    /// When there is something to do although nothing happens.
    pub(crate) fn wake_ns(&self) -> u64 {
        let has_room = !(self.free.is_empty() && self.idle.is_empty());
        let can_start = has_room && !self.over;
        let start_ns = match &self.pace {
            Some(pace) if can_start => pace.next_ns().max(self.paused_until_ns),
            None if can_start => self.paused_until_ns,
            _ => u64::MAX,
        };
        start_ns.min(self.next_sweep_ns)
    }

    /// True once everything that was to be started has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.over && self.active == 0
    }

    /// Ends the run. Requests in flight are counted as aborted. Those that were due by then and did
    /// not start are missed. The sockets are the engine's to close.
    pub(crate) fn finish(&mut self, now_ns: u64) {
        self.over = true;
        for slot in 0..self.slots.len() as u32 {
            match self.slots[slot as usize].phase {
                FlightPhase::Free | FlightPhase::Ended => {}
                FlightPhase::Idle | FlightPhase::Closing => drop(self.complete(slot)),
                FlightPhase::Connecting | FlightPhase::Waiting | FlightPhase::Replying => {
                    self.tally.requests.aborted_at_end += 1;
                    self.tally.connections.aborted_at_end += 1;
                    let waited_ns = now_ns.saturating_sub(self.slots[slot as usize].intended_ns);
                    let most = &mut self.tally.cut_off_ns_max;
                    *most = (*most).max(Some(waited_ns));
                    let flight = &self.slots[slot as usize];
                    let never = flight.phase == FlightPhase::Waiting && flight.replies == 0;
                    self.tally.never_answered += u64::from(never);
                    self.end(slot);
                }
            }
        }
        let silent_ns = self.answered_ns.map(|at_ns| now_ns.saturating_sub(at_ns));
        self.tally.silent_ns = silent_ns;
        if let Some(pace) = &self.pace {
            self.tally.lateness_ns_max = pace.lateness_ns_max();
            self.tally.not_started = match self.tickets {
                None => pace.missed(now_ns),
                Some(_) => 0,
            };
        }
    }

    /// The intended start of a request that may start now; none if none may.
    fn due(&mut self, now_ns: u64) -> Option<u64> {
        if self.over
            || self
                .pace
                .as_ref()
                .is_some_and(|pace| pace.next_ns() > now_ns)
        {
            return None;
        }
        if let Some(tickets) = &self.tickets {
            let taken = tickets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
            if taken.is_err() {
                self.over = true;
                return None;
            }
        }
        match &mut self.pace {
            Some(pace) => pace.take(now_ns),
            None => Some(now_ns),
        }
    }

    /// A socket is about to be opened.
    fn open(&mut self, slot: u32, now_ns: u64) {
        self.tally.connections.started += 1;
        let flight = &mut self.slots[slot as usize];
        flight.phase = FlightPhase::Connecting;
        flight.had_bad_status = false;
        flight.connect_ns = now_ns;
        flight.deadline_ns = now_ns.saturating_add(self.timeout_ns);
        flight.replies = 0;
        flight.response.reset();
    }

    /// A request is about to be sent on an open connection.
    fn request(&mut self, slot: u32, intended_ns: u64, now_ns: u64) -> LoadStep {
        let flight = &mut self.slots[slot as usize];
        flight.phase = FlightPhase::Waiting;
        flight.intended_ns = intended_ns;
        flight.deadline_ns = now_ns.saturating_add(self.timeout_ns);
        flight.response.reset();
        LoadStep::Send(self.which(slot))
    }

    fn which(&self, slot: u32) -> NextRequest {
        let number = self.slots[slot as usize].replies + 1;
        match self.requests_per_connection {
            Some(most) if number >= most => NextRequest::Last,
            _ => NextRequest::Ordinary,
        }
    }

    /// A reply is whole, and the connection still there.
    fn whole(&mut self, slot: u32, now_ns: u64) -> LoadStep {
        let was_last = self.which(slot) == NextRequest::Last;
        self.answered(slot, now_ns);
        let flight = &mut self.slots[slot as usize];
        let closes = flight.response.closes();
        if closes && !self.closes_at_once {
            flight.phase = FlightPhase::Closing;
            flight.deadline_ns = now_ns.saturating_add(FIN_NS);
            return LoadStep::Receive;
        }
        if was_last || closes {
            return self.complete(slot);
        }
        match self.due(now_ns) {
            Some(intended_ns) => {
                self.tally.requests.started += 1;
                self.request(slot, intended_ns, now_ns)
            }
            None if self.over => self.complete(slot),
            None => {
                flight_idle(&mut self.slots[slot as usize], slot, &mut self.idle);
                self.active -= 1;
                LoadStep::Receive
            }
        }
    }

    /// Counts a whole reply.
    fn answered(&mut self, slot: u32, now_ns: u64) {
        let flight = &mut self.slots[slot as usize];
        flight.replies += 1;
        self.answered_ns = Some(now_ns);
        let status = flight.response.status();
        self.tally.body_bytes += flight.response.body_bytes();
        let class = usize::from(status / 100).min(self.tally.statuses.len() - 1);
        self.tally.statuses[class] += 1;
        if class == 2 {
            self.tally.requests.completed += 1;
            let last_byte = &mut self.tally.latency.last_byte;
            last_byte.record(flight.intended_ns, now_ns);
        } else {
            flight.had_bad_status = true;
            self.tally.requests.fail(Failure::BadStatus);
            self.tally
                .remember(Failure::BadStatus, || format!("status {status}"));
        }
    }

    /// The connection ended as it should, or its replies were not what they should be.
    fn complete(&mut self, slot: u32) -> LoadStep {
        self.count_end(slot);
        self.end(slot)
    }

    fn count_end(&mut self, slot: u32) {
        match self.slots[slot as usize].had_bad_status {
            true => self.tally.connections.fail(Failure::BadStatus),
            false => self.tally.connections.completed += 1,
        }
    }

    /// The connection failed, and with it the request that was under way, if one was.
    fn lose(&mut self, slot: u32, failure: Failure, example: impl FnOnce() -> String) -> LoadStep {
        let phase = self.slots[slot as usize].phase;
        if !matches!(phase, FlightPhase::Idle | FlightPhase::Closing) {
            self.tally.requests.fail(failure);
        }
        self.tally.connections.fail(failure);
        self.tally.remember(failure, example);
        self.end(slot)
    }

    /// A server may close a connection that was used, whenever it is idle (RFC 9112, section 9.5);
    /// a request that crossed the close on its way goes out again.
    fn reopen(&mut self, slot: u32, now_ns: u64) -> LoadStep {
        self.tally.closed_early += 1;
        self.count_end(slot);
        self.open(slot, now_ns);
        LoadStep::Reopen
    }

    fn end(&mut self, slot: u32) -> LoadStep {
        let flight = &mut self.slots[slot as usize];
        if flight.phase != FlightPhase::Idle {
            self.active -= 1;
        }
        flight.phase = FlightPhase::Ended;
        LoadStep::Close
    }
}

fn flight_idle(flight: &mut Flight, slot: u32, idle: &mut VecDeque<u32>) {
    flight.phase = FlightPhase::Idle;
    if !flight.is_listed {
        flight.is_listed = true;
        idle.push_back(slot);
    }
}

#[cfg(test)]
mod tests;
