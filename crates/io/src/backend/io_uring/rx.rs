//! Receiving: a multishot request, whose buffers are lent where the kernel filled them.

#![allow(unsafe_code, reason = "packets are lent in the memory of the ring")]

use super::BACKEND;
use crate::backend::answers::Answers;
use crate::backend::shared_socket::SharedSocket;
use crate::backend::socket::{errors, extras, open_receiver, receive, transmit};
use crate::requests::{PacketSlot, Requests};
use crate::rx::not_opened_to_answer;
use crate::waiting::{self, Awaited, ReceiverWait, Sleep};
use crate::{
    Batch, DatagramDetails, Error, Layer, PacketDescriptor, Rx, RxCaps, RxConfig, RxCounters,
    RxDrop, SendError, Sent, Served, Transmit, Wait,
};
use mpps_os::messages::Extras;
use mpps_os::poll::Waiter;
use mpps_os::uring::ReceiveRing;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// The most buffers that the kernel takes (`io_register_pbuf_ring`, io_uring/kbuf.c).
const BUFFERS_MAX: u32 = 1 << 15;
/// Datagrams that may come beyond a full batch: the kernel receives 33 in a run (`RUN` of
/// mpps_os::uring), and the last run may begin when one is missing.
const BEYOND_BATCH: usize = 32;
/// Buffers, unless the user sets a number. They are used in turns. More of them than are needed
/// push the packets themselves out of the processor's cache: with 2048 a datagram cost a tenth more
/// than with 1024.
const BUFFERS_DEFAULT_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct UringRx {
    ring: ReceiveRing,
    socket: Arc<SharedSocket>,
    waiting: ReceiverWait,
    descriptors: Vec<PacketDescriptor>,
    extras: Extras,
    /// Those of the last receive, if any are asked for.
    details: Vec<DatagramDetails>,
    answers: Option<Answers>,
    slots: Vec<PacketSlot>,
    counters: RxCounters,
    busy_poll_us: Option<u32>,
    buffers: usize,
    caps: RxCaps,
}

pub(super) fn open(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let buffers = match config.ring.frames {
        None => (config.batch + BEYOND_BATCH)
            .next_power_of_two()
            .min(BUFFERS_DEFAULT_MAX),
        Some(frames @ 1..=BUFFERS_MAX) => frames as usize,
        Some(frames) => {
            let why = format!("a ring holds 1 to {BUFFERS_MAX} buffers");
            return Err(Error::invalid("ring.frames", frames, why));
        }
    };
    let (socket, mut caps) = open_receiver(&BACKEND, config)?;
    // A batch must not take every buffer, or the kernel has none for the run that it is in.
    let spared = buffers
        .saturating_sub(BEYOND_BATCH)
        .max(buffers.div_ceil(2));
    caps.batch = caps.batch.min(spared);
    let socket = Arc::new(SharedSocket::new(socket));
    let asked = (extras(config), config.answers);
    let mut rx = UringRx::new(socket, caps, asked, buffers, config.busy_poll_us)?;
    rx.caps.mode.summary = format!(
        "multishot {}, copy, {} buffers, {}",
        rx.ring.operation(),
        rx.ring.buffers(),
        rx.ring.flags()
    );
    Ok(Box::new(rx))
}

impl UringRx {
    fn new(
        socket: Arc<SharedSocket>,
        caps: RxCaps,
        (extras, answers): (Extras, bool),
        buffers: usize,
        busy_poll_us: Option<u32>,
    ) -> Result<Self, Error> {
        let mut ring = ReceiveRing::new(socket.as_fd(), buffers, caps.buffer_bytes, extras)?;
        if let Some(microseconds) = busy_poll_us.filter(|time| *time > 0) {
            ring.set_busy_poll(microseconds)?;
        }
        Ok(Self {
            ring,
            socket,
            waiting: ReceiverWait::new(),
            descriptors: Vec::with_capacity(caps.batch),
            extras,
            details: Vec::new(),
            answers: answers.then(|| Answers::new(&caps)),
            slots: Vec::new(),
            counters: RxCounters::default(),
            busy_poll_us,
            buffers,
            caps,
        })
    }

    /// Fills the descriptors; sleeps for the first if there is a time.
    fn take(&mut self, time: Option<Duration>) -> io::Result<bool> {
        let Self {
            ring,
            descriptors,
            details,
            caps,
            ..
        } = self;
        let received = receive(|| {
            descriptors.clear();
            details.clear();
            ring.receive(caps.batch, time, |at, said| {
                descriptors.push(PacketDescriptor {
                    // The memory is at most 2^15 buffers of 64 KiB and a little, below 2^32 bytes.
                    offset: at.offset as u32,
                    bytes: at.bytes as u32,
                    wire_bytes: at.wire_bytes as u32,
                    segment_bytes: at.segment_bytes,
                });
                details.extend(said);
            })
        })?;
        Ok(received > 0)
    }
}

impl Awaited for UringRx {
    fn state(&mut self) -> (&mut ReceiverWait, &RxCounters, usize) {
        (&mut self.waiting, &self.counters, self.caps.batch)
    }

    fn look(&mut self) -> io::Result<bool> {
        self.take(None)
    }

    fn look_for(&mut self, time: Duration) -> Option<io::Result<bool>> {
        (!time.is_zero()).then(|| self.take(Some(time)))
    }

    /// The socket is watched and not the ring. With `DEFER_TASKRUN` a datagram becomes a completion
    /// only once this thread asks for it. Only a completion wakes the ring's watchers.
    fn sleep(&mut self, waiter: &mut Waiter, how: Sleep, time: Duration) -> io::Result<bool> {
        how.on(waiter, self.socket.as_fd(), time)
    }
}

impl Rx for UringRx {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        waiting::until(self, wait)?;
        let (memory, memory_bytes) = self.ring.memory();
        // SAFETY: the descriptors are those of the ring's last receive. Their bytes are readable,
        // and are not written until its next one. That takes this receiver mutably, and so cannot
        // come while the batch borrows it.
        let batch = unsafe { Batch::from_raw(memory, memory_bytes, &self.descriptors) };
        let batch = batch.with_details(&self.details);
        self.counters.add(&batch);
        Ok(batch)
    }

    fn serve(&mut self, wait: Wait, answer: &mut dyn FnMut(Requests<'_>)) -> io::Result<Served> {
        if self.answers.is_none() {
            return Err(not_opened_to_answer());
        }
        waiting::until(self, wait)?;
        let (memory, memory_bytes) = self.ring.memory();
        let room = self.caps.buffer_bytes as u32;
        self.slots.clear();
        let slots = self
            .descriptors
            .iter()
            .map(|came| PacketSlot::new(came, room));
        self.slots.extend(slots);
        // SAFETY: as in `recv`; each packet lies in a buffer of its own, which holds the given
        // number of bytes of payload. No other code has it until the next receive.
        let requests =
            unsafe { Requests::from_raw(memory, memory_bytes, Layer::Payload, &mut self.slots) };
        if requests.len() > 0 {
            answer(requests.with_details(&self.details));
        }
        // SAFETY: as in `recv`; the requests have ended.
        self.counters
            .add(&unsafe { Batch::from_raw(memory, memory_bytes, &self.descriptors) });
        let answers = self.answers.as_mut().ok_or_else(not_opened_to_answer)?;
        self.descriptors.clear();
        self.descriptors
            .extend(self.slots.iter().map(PacketSlot::lying));
        // SAFETY: as in `recv`; an answer lies in the buffer of its question.
        let lying = unsafe { Batch::from_raw(memory, memory_bytes, &self.descriptors) };
        answers.send(
            self.socket.as_fd(),
            &lying,
            &self.slots,
            Some(&self.details),
            wait,
        )
    }

    fn transmit(&mut self, transmits: &[Transmit<'_>]) -> io::Result<Sent> {
        transmit(self.socket.as_fd(), transmits)
    }

    fn errors(&mut self) -> io::Result<Vec<SendError>> {
        errors(self.socket.as_fd())
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&self) -> RxCounters {
        RxCounters {
            dropped: self.socket.dropped(),
            system_calls: self.ring.calls() + self.waiting.calls(),
            polls: self.waiting.polls(),
            ..self.counters
        }
    }

    fn drops(&self) -> Vec<RxDrop> {
        self.socket.drops()
    }

    fn caps(&self) -> &RxCaps {
        &self.caps
    }

    /// Another ring over the same socket: each datagram goes to one of them.
    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        let socket = Arc::clone(&self.socket);
        let asked = (self.extras, self.answers.is_some());
        let (caps, buffers) = (self.caps.clone(), self.buffers);
        let rx = Self::new(socket, caps, asked, buffers, self.busy_poll_us)?;
        Ok(Box::new(rx))
    }

    fn steer_by_cpu(&self, cpus: &[usize]) -> Result<(), Error> {
        Ok(self.socket.socket().steer_by_cpu(cpus)?)
    }
}
