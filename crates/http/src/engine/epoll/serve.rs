//! Serves connections in one thread with `epoll(7)`.
//!
//! Without switches this is the server of the 2014 paper: accept, `epoll_ctl` add, read, write,
//! `epoll_ctl` delete, close, level-triggered, with a buffer for each connection. With `events` it
//! is the loop that a server of today has: a connection is read right after it was accepted, and
//! most are closed before they were ever added to the set.

mod exchange;

use self::exchange::{Exchange, ExchangeNext, Open};
use crate::serve::{Deadlines, Ending, ServeStage, ServeWorker, TICK_MS, now_ms};
use crate::{HttpError, Switch};
use mpps_os::epoll::{Epoll, Events, Interest, ReadyDescriptor};
use mpps_os::tcp::{TcpStream, ran_out, would_block};
use mpps_os::wake::Wake;
use slab::Slab;
use std::io;
use std::time::Duration;

/// Keys of all except connections. The key of a connection is its slot.
const WAKE: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// Events that one wait returns. Another batch waits for as long as this one takes.
const EVENTS: usize = 256;

/// Connections that are accepted in a row before those that are open get their turn.
const ACCEPTS: usize = 64;

/// How long nothing is accepted after descriptors ran out, unless one of ours is closed before.
const PAUSE_MS: u64 = 10;

/// Serves until it is stopped and has drained.
pub(super) fn run(worker: ServeWorker) -> Result<(), HttpError> {
    let mut serving = EpollWorker::new(worker)?;
    serving.worker.ready();
    loop {
        serving.wait()?;
        serving.turn();
        if serving.is_over() {
            return Ok(());
        }
    }
}

/// One worker at work.
struct EpollWorker {
    worker: ServeWorker,
    epoll: Epoll,
    events: Events,
    exchange: Exchange,
    slots: Slab<Open>,
    deadlines: Deadlines,
    /// Connections that could go on, and had their share of this turn.
    again: Vec<u32>,
    accepting: AcceptState,
    /// A descriptor to give up when there is no other, so that a connection can be shed.
    reserve: Option<Wake>,
    stage: ServeStage,
    drain_ends_ms: u64,
}

/// Whether connections are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcceptState {
    Yes,
    /// Not before this time.
    Paused(u64),
    /// Never again.
    Ended,
}

impl EpollWorker {
    fn new(worker: ServeWorker) -> Result<Self, HttpError> {
        let epoll = Epoll::new()?;
        epoll
            .add(worker.wake(), WAKE, Interest::READ)
            .map_err(|source| mpps_os::CallError::new("epoll_ctl", "wake", source))?;
        let now_ms = now_ms();
        let mut serving = Self {
            exchange: Exchange::new(&worker, now_ms),
            events: Events::new(EVENTS),
            slots: Slab::new(),
            deadlines: Deadlines::new(now_ms),
            again: Vec::new(),
            accepting: AcceptState::Ended,
            reserve: Some(Wake::new()?),
            stage: ServeStage::Running,
            drain_ends_ms: 0,
            worker,
            epoll,
        };
        serving
            .watch_listener()
            .map_err(|source| mpps_os::CallError::new("epoll_ctl", "listener", source))?;
        Ok(serving)
    }

    /// Sleeps until something is to be done.
    fn wait(&mut self) -> Result<(), HttpError> {
        let timeout_ms = if !self.again.is_empty() {
            Some(0)
        } else if let AcceptState::Paused(until_ms) = self.accepting {
            Some(until_ms.saturating_sub(self.exchange.now_ms).max(1))
        } else if self.stage == ServeStage::Draining || !self.deadlines.is_empty() {
            Some(TICK_MS)
        } else {
            None
        };
        self.exchange.counters.system_calls += 1;
        let timeout = timeout_ms.map(Duration::from_millis);
        match self.epoll.wait(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(mpps_os::CallError::new("epoll_wait", "set", error).into())
            }
            _ => Ok(()),
        }
    }

    /// Does what there is to do.
    fn turn(&mut self) {
        self.exchange.now_ms = now_ms();
        for index in 0..self.events.len() {
            let Some(event) = self.events.at(index) else {
                break;
            };
            match event.key {
                LISTENER => self.accept(ACCEPTS),
                WAKE => self.change_stage(),
                slot => self.on_event(slot as u32, event),
            }
        }
        for slot in std::mem::take(&mut self.again) {
            if let Some(open) = self.slots.get_mut(slot as usize) {
                open.is_queued = false;
                self.go_on(slot);
            }
        }
        while let Some(slot) = self.deadlines.expired(self.exchange.now_ms) {
            self.on_deadline(slot);
        }
        if let AcceptState::Paused(until_ms) = self.accepting
            && self.exchange.now_ms >= until_ms
        {
            self.resume_accepting();
        }
        if self.stage == ServeStage::Draining && self.exchange.now_ms >= self.drain_ends_ms {
            self.stage = ServeStage::Stopped;
        }
        if self.stage == ServeStage::Stopped {
            self.reset_all();
        }
        let open = self.slots.len();
        self.worker.publish(&self.exchange.counters, open);
    }

    fn is_over(&self) -> bool {
        self.stage != ServeStage::Running && self.slots.is_empty()
    }

    /// Takes connections that wait, up to `most`.
    fn accept(&mut self, most: usize) {
        for _ in 0..most {
            if self.accepting != AcceptState::Yes {
                return;
            }
            self.exchange.counters.system_calls += 1;
            match self.worker.listener.accept() {
                Ok(stream) => self.admit(stream),
                // No connection waits; or another worker of this listener has begun to drain, and
                // has ended it.
                Err(error)
                    if would_block(&error) || error.kind() == io::ErrorKind::InvalidInput =>
                {
                    return;
                }
                Err(error) if ran_out(&error) => {
                    self.exchange.counters.accept_errors += 1;
                    self.shed();
                }
                // accept(2) reports a connection that failed while it waited.
                Err(_) => self.exchange.counters.accept_errors += 1,
            }
        }
    }

    fn admit(&mut self, stream: TcpStream) {
        self.exchange.counters.accept();
        if !self.worker.peers.admit() {
            self.exchange.counters.end(Ending::OverLimit);
            self.exchange.counters.system_calls += 1;
            return;
        }
        let mut open = self.exchange.open(stream);
        if !self.worker.switches.has(Switch::Events) {
            let slot = self.slots.insert(open) as u32;
            self.settle(slot, ExchangeNext::Wait);
            return;
        }
        // The request is there, or nearly: most connections end here and never see the set.
        open.is_readable = true;
        match self.exchange.drive(&mut open) {
            ExchangeNext::End(ending) => self.end(open, ending),
            next => {
                let slot = self.slots.insert(open) as u32;
                self.settle(slot, next);
            }
        }
    }

    /// The event of a connection that ended in this very batch has no slot any more, or that of the
    /// next connection, which is then tried in vain: no call waits.
    fn on_event(&mut self, slot: u32, event: ReadyDescriptor) {
        if let Some(open) = self.slots.get_mut(slot as usize) {
            open.note(event);
            // A connection that is queued anyway has one share of this turn, and not two.
            if !open.is_queued {
                self.go_on(slot);
            }
        }
    }

    fn go_on(&mut self, slot: u32) {
        if let Some(open) = self.slots.get_mut(slot as usize) {
            let next = self.exchange.drive(open);
            self.settle(slot, next);
        }
    }

    /// Sees to it that a connection goes on when it can.
    fn settle(&mut self, slot: u32, next: ExchangeNext) {
        let Some(open) = self.slots.get_mut(slot as usize) else {
            return;
        };
        let ending = match next {
            ExchangeNext::End(ending) => Some(ending),
            ExchangeNext::Again => {
                if !open.is_queued {
                    open.is_queued = true;
                    self.again.push(slot);
                }
                None
            }
            ExchangeNext::Wait => match self.exchange.watch(&self.epoll, slot.into(), open) {
                Ok(()) => None,
                // No memory, or the user's share of watches is used up.
                Err(_) => Some(Ending::Error),
            },
        };
        match ending {
            None => {
                let deadline_ms = self.exchange.deadline_ms(open);
                self.deadlines.arm(slot, deadline_ms);
            }
            Some(ending) => {
                if let Some(open) = self.slots.try_remove(slot as usize) {
                    self.end(open, ending);
                }
            }
        }
    }

    fn on_deadline(&mut self, slot: u32) {
        let Some(open) = self.slots.get_mut(slot as usize) else {
            return;
        };
        let deadline_ms = self.exchange.deadline_ms(open);
        if deadline_ms > self.exchange.now_ms {
            // It has moved on since it was armed.
            self.deadlines.arm(slot, deadline_ms);
            return;
        }
        let next = self.exchange.expire(open);
        self.settle(slot, next);
    }

    /// Closes a connection that is in no slot any more.
    fn end(&mut self, open: Open, ending: Ending) {
        self.worker.peers.leave();
        self.exchange.close(&self.epoll, open, ending);
        if let AcceptState::Paused(_) = self.accepting {
            // There is a descriptor again.
            self.resume_accepting();
        }
    }

    /// Sheds a connection, and takes none for a while. The listener is not watched meanwhile: it would
    /// be ready all the time.
    fn shed(&mut self) {
        self.exchange.counters.system_calls += 6;
        let counters = &mut self.exchange.counters;
        self.worker.shed(&mut self.reserve, counters);
        // An unwatched listener need not be deleted.
        let _ = self.epoll.delete(&*self.worker.listener);
        self.accepting = AcceptState::Paused(self.exchange.now_ms + PAUSE_MS);
    }

    fn resume_accepting(&mut self) {
        if self.reserve.is_none() {
            self.reserve = Wake::new().ok();
        }
        self.exchange.counters.system_calls += 1;
        if self.watch_listener().is_err() {
            self.accepting = AcceptState::Paused(self.exchange.now_ms + PAUSE_MS);
        }
    }

    fn watch_listener(&mut self) -> io::Result<()> {
        let interest = if self.worker.shared {
            Interest::READ.exclusive()
        } else {
            Interest::READ
        };
        self.epoll.add(&*self.worker.listener, LISTENER, interest)?;
        self.accepting = AcceptState::Yes;
        Ok(())
    }

    fn change_stage(&mut self) {
        self.worker.wake().clear();
        let stage = self.worker.stage();
        if self.stage == ServeStage::Running && stage == ServeStage::Draining {
            self.begin_drain();
        }
        self.stage = self.stage.max(stage);
    }

    /// Takes what has connected already and nothing more, and closes what is idle.
    fn begin_drain(&mut self) {
        self.drain_ends_ms = self.worker.drain_ends_ms(self.exchange.now_ms);
        self.exchange.responder.is_draining = true;
        // The queue of a listener holds at most as many as there may be connections at a time, or
        // the rest is over the limit anyhow.
        self.accept(self.worker.limits.connections);
        let _ = self.epoll.delete(&*self.worker.listener);
        self.worker.listener.stop();
        self.accepting = AcceptState::Ended;
        for slot in self.open_slots() {
            self.end_if_idle(slot);
        }
    }

    /// A request that has arrived is answered; who has sent none is not waited for.
    fn end_if_idle(&mut self, slot: u32) {
        let is_idle = |open: &Open| open.is_idle();
        let open = self.slots.get_mut(slot as usize);
        let Some(open) = open.filter(|open| is_idle(open)) else {
            return;
        };
        open.is_readable = true;
        let next = match self.exchange.drive(open) {
            ExchangeNext::Wait if is_idle(open) => self.exchange.drained(open),
            next => next,
        };
        self.settle(slot, next);
    }

    fn open_slots(&self) -> Vec<u32> {
        // There are fewer descriptors than that in a process (fs.nr_open is a 32-bit number).
        let slots = self.slots.iter().map(|(slot, _)| slot as u32);
        slots.collect()
    }

    fn reset_all(&mut self) {
        if self.accepting != AcceptState::Ended {
            self.worker.listener.stop();
            self.accepting = AcceptState::Ended;
        }
        for open in self.slots.drain() {
            self.worker.peers.leave();
            self.exchange.abort(open, Ending::Drained);
        }
    }
}
