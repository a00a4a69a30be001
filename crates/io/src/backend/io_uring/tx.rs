//! Sending: one call for a batch, without a copy unless `CopyMode::Copy` asks for one.

use super::BACKEND;
use crate::backend::socket::{SEND_TIMEOUT, is_hopeless, open_senders};
use crate::{CopyMode, Error, Frames, Property, Sent, Tx, TxCaps, TxConfig, TxCounters};
use mpps_os::uring::{SendRing, Submission};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// `EINTR` and `EAGAIN` of include/uapi/asm-generic/errno.h.
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;

#[derive(Debug)]
struct UringTx {
    ring: SendRing,
    payload_bytes: usize,
    /// Datagrams per message.
    segments: usize,
    zero_copy: bool,
    /// True once the kernel has reported whether it copies.
    is_mode_known: bool,
    /// Messages of a send that the kernel had no room for yet, in order.
    pending: Vec<usize>,
    counters: TxCounters,
    caps: TxCaps,
}

pub(super) fn open(config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
    let zero_copy = config.ring.copy != Some(CopyMode::Copy);
    let segments = usize::from(config.gso_segments);
    let target = (!config.connect).then_some(config.target);
    let (sockets, caps) = open_senders(&BACKEND, config)?;
    let message_bytes = config.payload_bytes * segments;
    let ring = SendRing::new(sockets, config.batch, message_bytes, target, zero_copy)?;
    let mut tx = UringTx {
        ring,
        payload_bytes: config.payload_bytes,
        segments,
        zero_copy,
        is_mode_known: false,
        pending: Vec::with_capacity(config.batch),
        counters: TxCounters::default(),
        caps,
    };
    tx.tell_mode();
    Ok(Box::new(tx))
}

impl UringTx {
    /// Says how it works. Whether the kernel really did without a copy shows only when it lets go
    /// of a payload.
    fn tell_mode(&mut self) {
        let flags = self.ring.flags();
        let mode = &mut self.caps.mode;
        if !self.zero_copy {
            mode.summary = format!("send, copy, {flags}");
            return;
        }
        let (how, granted) = match self.ring.copied() {
            (_, 0) => ("zero-copy asked for", false),
            (0, _) => ("zero-copy", true),
            (copied, notified) if copied == notified => ("zero-copy asked for, all copied", false),
            _ => ("zero-copy asked for, some copied", false),
        };
        mode.summary = format!("send_zc, {how}, {flags}");
        if granted {
            mode.properties.insert(Property::ZeroCopy);
        } else {
            mode.properties.remove(&Property::ZeroCopy);
        }
    }

    /// Passes the pending messages on, once; what there is no room for stays pending. Answers the
    /// number of the last message that was dealt with.
    fn pass(
        &mut self,
        flow: usize,
        datagrams_of: impl Fn(usize) -> u64,
        sent: &mut Sent,
    ) -> io::Result<Option<usize>> {
        let Self {
            ring,
            pending,
            counters,
            ..
        } = self;
        let mut hopeless = None;
        let mut last = None;
        let mut full = Vec::new();
        let tell = |at, outcome| {
            let datagrams = datagrams_of(at);
            match outcome {
                Submission::Taken => {
                    sent.accepted += datagrams;
                    counters.accepted += datagrams;
                }
                Submission::Failed(EAGAIN | EINTR) => {
                    full.push(at);
                    return;
                }
                Submission::Failed(errno) => {
                    let error = io::Error::from_raw_os_error(errno);
                    if is_hopeless(&error) {
                        hopeless = Some(error);
                        return;
                    }
                    sent.refused += datagrams;
                    *counters.refused.entry(errno).or_default() += datagrams;
                }
            }
            last = last.max(Some(at));
        };
        let calls = ring.calls();
        let passed = ring.send(flow, pending.iter().copied(), tell);
        counters.calls += ring.calls() - calls;
        passed?;
        if let Some(error) = hopeless {
            return Err(error);
        }
        full.sort_unstable();
        *pending = full;
        Ok(last)
    }

    /// Passes messages `0..count` on, and waits for room as long as a sending socket does.
    fn pass_all(
        &mut self,
        flow: usize,
        count: usize,
        datagrams_of: impl Fn(usize) -> u64,
    ) -> io::Result<Sent> {
        let mut sent = Sent::default();
        self.pending.clear();
        self.pending.extend(0..count);
        let mut last = None;
        let mut deadline = None;
        loop {
            last = last.max(self.pass(flow, &datagrams_of, &mut sent)?);
            if self.pending.is_empty() {
                return Ok(sent);
            }
            let now = Instant::now();
            let left = deadline
                .get_or_insert(now + SEND_TIMEOUT)
                .saturating_duration_since(now);
            let calls = self.ring.calls();
            let room = !left.is_zero() && self.ring.wait_writable(flow, left).unwrap_or(true);
            self.counters.calls += self.ring.calls() - calls;
            if !room {
                break;
            }
        }
        self.counters.blocked += 1;
        // The caller goes on after the last message dealt with. So a message before it that never
        // found room is refused.
        for at in self.pending.drain(..).filter(|at| Some(*at) < last) {
            let datagrams = datagrams_of(at);
            sent.refused += datagrams;
            *self.counters.refused.entry(EAGAIN).or_default() += datagrams;
        }
        Ok(sent)
    }
}

impl Tx for UringTx {
    fn frames(&mut self, datagrams: usize) -> Frames<'_> {
        let datagrams = datagrams.min(self.caps.batch);
        let message_bytes = self.payload_bytes * self.segments;
        let stride = self.ring.stride();
        Frames::new(
            self.ring.arena_mut(),
            stride,
            message_bytes,
            self.payload_bytes,
            datagrams,
        )
    }

    fn send(&mut self, flow: usize, datagrams: usize) -> io::Result<Sent> {
        let segments = self.segments;
        let datagrams = datagrams.min(self.caps.batch);
        let count = datagrams.div_ceil(segments);
        let Some(last) = count.checked_sub(1) else {
            return Ok(Sent::default());
        };
        // A train may be short: 100 datagrams in trains of 64 are 64 and 36.
        let last_segments = datagrams - last * segments;
        self.ring
            .set_bytes(last, last_segments * self.payload_bytes);
        let datagrams_of = |at: usize| if at == last { last_segments } else { segments } as u64;
        let sent = self.pass_all(flow, count, datagrams_of);
        self.ring.set_bytes(last, segments * self.payload_bytes);
        // The first notifications show what was granted.
        if !self.is_mode_known && self.ring.copied().1 > 0 {
            self.is_mode_known = true;
            self.tell_mode();
        }
        sent
    }

    fn readiness(&self, flow: usize) -> Option<BorrowedFd<'_>> {
        Some(self.ring.socket(flow).as_fd())
    }

    fn counters(&self) -> &TxCounters {
        &self.counters
    }

    fn caps(&self) -> &TxCaps {
        &self.caps
    }
}
