//! `recvmsg(2)`: one datagram a call, the yardstick.
//!
//! The call is `recvmsg` and not `recv` because a train's segment size, a datagram's true length
//! and its sender come beside the payload.

use super::answers::Answers;
use super::shared_socket::SharedSocket;
use super::socket::{errors, extras, open_receiver, receive, socket_rx_fields, transmit};
use super::{Backend, Layer, Support};
use crate::config::check_room;
use crate::requests::{PacketSlot, Requests};
use crate::rx::not_opened_to_answer;
use crate::waiting::{self, Awaited, ReceiverWait, Sleep};
use crate::{
    Batch, DatagramDetails, Error, PacketDescriptor, Rx, RxCaps, RxConfig, RxCounters, RxDrop,
    SendError, Sent, Served, Transmit, Wait,
};
use mpps_os::messages::{self, Extras, ReceiveMessages};
use mpps_os::poll::Waiter;
use mpps_os::socket::UdpSocket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

pub(super) const BACKEND: Backend = Backend {
    name: "recv",
    summary: "one datagram a call from an ordinary socket, the yardstick",
    needs: "Linux 5.10",
    layer: Layer::Payload,
    takes_nic: false,
    in_process: false,
    probe: || Support::Yes,
    rx_fields: socket_rx_fields!(),
    tx_fields: &[],
    rx: Some(open_rx),
    tx: None,
};

fn open_rx(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let (socket, mut caps) = open_receiver(&BACKEND, config)?;
    caps.batch = 1;
    let call = ReceiveMessages::receive_one;
    let rx = SocketRx::new(&BACKEND, socket, caps, config, call)?;
    Ok(Box::new(rx))
}

/// The call that fills buffers from a socket.
pub(super) type ReceiveCall =
    fn(&mut ReceiveMessages, BorrowedFd<'_>, messages::ReceiveWait) -> io::Result<usize>;

/// The part of a receiver's configuration that another receiver on the same socket needs.
#[derive(Debug, Clone, Copy)]
struct SharedOptions {
    extras: Extras,
    answers: bool,
    busy_poll_us: Option<u32>,
}

/// A receiver over an ordinary socket; `recv` and `recvmmsg` differ only by their call.
#[derive(Debug)]
pub(super) struct SocketRx {
    backend: &'static Backend,
    call: ReceiveCall,
    socket: Arc<SharedSocket>,
    asked: SharedOptions,
    waiting: ReceiverWait,
    messages: ReceiveMessages,
    /// Messages of the last call.
    received: usize,
    descriptors: Vec<PacketDescriptor>,
    /// Those of the last call, if any are asked for.
    details: Vec<DatagramDetails>,
    answers: Option<Answers>,
    slots: Vec<PacketSlot>,
    counters: RxCounters,
    caps: RxCaps,
}

impl SocketRx {
    pub(super) fn new(
        backend: &'static Backend,
        socket: UdpSocket,
        caps: RxCaps,
        config: &RxConfig,
        call: ReceiveCall,
    ) -> Result<Self, Error> {
        let asked = SharedOptions {
            extras: extras(config),
            answers: config.answers,
            busy_poll_us: config.busy_poll_us,
        };
        let shared = Arc::new(SharedSocket::new(socket));
        Self::over(backend, shared, caps, asked, call)
    }

    fn over(
        backend: &'static Backend,
        socket: Arc<SharedSocket>,
        caps: RxCaps,
        asked: SharedOptions,
        call: ReceiveCall,
    ) -> Result<Self, Error> {
        let SharedOptions {
            extras, answers, ..
        } = asked;
        check_room(caps.batch, caps.buffer_bytes << u32::from(answers))?;
        Ok(Self {
            backend,
            call,
            socket,
            asked,
            waiting: ReceiverWait::polling(asked.busy_poll_us),
            messages: ReceiveMessages::new(caps.batch, caps.buffer_bytes, extras),
            received: 0,
            descriptors: Vec::with_capacity(caps.batch),
            details: Vec::new(),
            answers: answers.then(|| Answers::new(&caps)),
            slots: Vec::new(),
            counters: RxCounters::default(),
            caps,
        })
    }
}

impl SocketRx {
    fn take(&mut self, waiting: messages::ReceiveWait) -> io::Result<bool> {
        self.received = 0;
        self.received = receive(|| {
            self.counters.system_calls += 1;
            (self.call)(&mut self.messages, self.socket.as_fd(), waiting)
        })?;
        Ok(self.received > 0)
    }
}

impl SocketRx {
    /// Describes each message of the last call: where it lies, and its sender.
    #[inline]
    fn describe(&mut self) {
        let messages = &self.messages;
        self.descriptors.clear();
        self.descriptors.extend((0..self.received).map(|at| {
            let message = messages.received(at);
            PacketDescriptor {
                // The arena is at most 1024 buffers of 64 KiB, 2^26 bytes.
                offset: message.offset as u32,
                bytes: message.bytes as u32,
                wire_bytes: message.wire_bytes as u32,
                segment_bytes: message.segment_bytes,
            }
        }));
        if self.asked.extras.details.any() {
            self.details.clear();
            self.details
                .extend((0..self.received).map(|at| messages.details(at)));
        }
    }
}

impl Awaited for SocketRx {
    fn state(&mut self) -> (&mut ReceiverWait, &RxCounters, usize) {
        (&mut self.waiting, &self.counters, self.caps.batch)
    }

    fn look(&mut self) -> io::Result<bool> {
        self.take(messages::ReceiveWait::No)
    }

    fn look_for(&mut self, time: Duration) -> Option<io::Result<bool>> {
        match self.socket.has_timeout(time) {
            Ok(true) => Some(self.take(messages::ReceiveWait::ForOne)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn sleep(&mut self, waiter: &mut Waiter, how: Sleep, time: Duration) -> io::Result<bool> {
        how.on(waiter, self.socket.as_fd(), time)
    }
}

impl Rx for SocketRx {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        waiting::until(self, wait)?;
        self.describe();
        let batch = Batch::new(self.messages.arena(), &self.descriptors);
        let batch = batch.with_details(&self.details);
        self.counters.add(&batch);
        Ok(batch)
    }

    fn serve(&mut self, wait: Wait, answer: &mut dyn FnMut(Requests<'_>)) -> io::Result<Served> {
        if self.answers.is_none() {
            return Err(not_opened_to_answer());
        }
        waiting::until(self, wait)?;
        self.describe();
        self.counters
            .add(&Batch::new(self.messages.arena(), &self.descriptors));
        let stride = self.messages.stride();
        self.slots.clear();
        let slots = self
            .descriptors
            .iter()
            .map(|came| PacketSlot::new(came, stride as u32));
        self.slots.extend(slots);
        if !self.slots.is_empty() {
            let memory = self.messages.arena_mut();
            let requests = Requests::new(memory, stride, Layer::Payload, &mut self.slots);
            answer(requests.with_details(&self.details));
        }
        let answers = self.answers.as_mut().ok_or_else(not_opened_to_answer)?;
        self.descriptors.clear();
        self.descriptors
            .extend(self.slots.iter().map(PacketSlot::lying));
        let lying = Batch::new(self.messages.arena(), &self.descriptors);
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
            system_calls: self.counters.system_calls + self.waiting.calls(),
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

    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        let socket = Arc::clone(&self.socket);
        let (caps, call) = (self.caps.clone(), self.call);
        let rx = Self::over(self.backend, socket, caps, self.asked, call)?;
        Ok(Box::new(rx))
    }

    fn steer_by_cpu(&self, cpus: &[usize]) -> Result<(), Error> {
        Ok(self.socket.socket().steer_by_cpu(cpus)?)
    }
}
