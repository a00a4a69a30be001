//! `recvmsg(2)`: one datagram a call, the yardstick.
//!
//! The call is `recvmsg` and not `recv` because a train's segment size, a datagram's true length
//! and its sender come beside the payload.

use super::shared_socket::SharedSocket;
use super::socket::{SOCKET_RX_OPTIONS, open_receiver, receive};
use super::{Backend, Layer, Support};
use crate::waiting::{self, Awaited, Sleep, Waiting};
use crate::{Batch, Descriptor, Error, Rx, RxCaps, RxConfig, RxCounters, RxDrop, Wait};
use mpps_os::messages::{self, Extras, ReceiveMessages};
use mpps_os::poll::Waiter;
use mpps_os::socket::UdpSocket;
use std::io;
use std::net::SocketAddr;
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
    rx_options: SOCKET_RX_OPTIONS,
    tx_options: &[],
    rx: Some(open_rx),
    tx: None,
};

fn open_rx(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let (socket, mut caps) = open_receiver(&BACKEND, config)?;
    caps.batch = 1;
    Ok(Box::new(SocketRx::new(
        &BACKEND,
        socket,
        caps,
        config.sources,
        ReceiveMessages::receive_one,
    )))
}

/// The call that fills buffers from a socket.
pub(super) type ReceiveCall =
    fn(&mut ReceiveMessages, BorrowedFd<'_>, messages::Waiting) -> io::Result<usize>;

/// A receiver over an ordinary socket; `recv` and `recvmmsg` differ by their call alone.
#[derive(Debug)]
pub(super) struct SocketRx {
    backend: &'static Backend,
    call: ReceiveCall,
    socket: Arc<SharedSocket>,
    waiting: Waiting,
    messages: ReceiveMessages,
    /// Messages of the last call.
    received: usize,
    descriptors: Vec<Descriptor>,
    sources: Option<Vec<Option<SocketAddr>>>,
    counters: RxCounters,
    caps: RxCaps,
}

impl SocketRx {
    pub(super) fn new(
        backend: &'static Backend,
        socket: UdpSocket,
        caps: RxCaps,
        sources: bool,
        call: ReceiveCall,
    ) -> Self {
        let shared = Arc::new(SharedSocket::new(socket));
        Self::over(backend, shared, caps, sources, call)
    }

    fn over(
        backend: &'static Backend,
        socket: Arc<SharedSocket>,
        caps: RxCaps,
        sources: bool,
        call: ReceiveCall,
    ) -> Self {
        let extras = Extras {
            segments: caps.gro,
            sources,
        };
        Self {
            backend,
            call,
            socket,
            waiting: Waiting::new(),
            messages: ReceiveMessages::new(caps.batch, caps.buffer_bytes, extras),
            received: 0,
            descriptors: Vec::with_capacity(caps.batch),
            sources: sources.then(|| Vec::with_capacity(caps.batch)),
            counters: RxCounters::default(),
            caps,
        }
    }
}

impl SocketRx {
    fn take(&mut self, waiting: messages::Waiting) -> io::Result<bool> {
        self.received = 0;
        self.received = receive(|| {
            self.counters.system_calls += 1;
            (self.call)(&mut self.messages, self.socket.as_fd(), waiting)
        })?;
        Ok(self.received > 0)
    }
}

impl Awaited for SocketRx {
    fn waiting(&mut self) -> &mut Waiting {
        &mut self.waiting
    }

    fn received(&self) -> u64 {
        self.counters.buffers
    }

    fn look(&mut self) -> io::Result<bool> {
        self.take(messages::Waiting::No)
    }

    fn look_for(&mut self, time: Duration) -> Option<io::Result<bool>> {
        match self.socket.has_timeout(time) {
            Ok(true) => Some(self.take(messages::Waiting::ForOne)),
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
        let Self {
            messages,
            received,
            descriptors,
            ..
        } = self;
        let received = *received;
        descriptors.clear();
        descriptors.extend((0..received).map(|at| {
            let message = messages.received(at);
            Descriptor {
                // The arena is at most 1024 buffers of 64 KiB, 2^26 bytes.
                offset: message.offset as u32,
                bytes: message.bytes as u32,
                wire_bytes: message.wire_bytes as u32,
                segment_bytes: message.segment_bytes,
            }
        }));
        let mut batch = Batch::new(messages.arena(), descriptors);
        if let Some(sources) = &mut self.sources {
            sources.clear();
            sources.extend((0..received).map(|at| messages.source(at)));
            batch = batch.with_sources(sources);
        }
        self.counters.add(&batch);
        Ok(batch)
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
        let sources = self.sources.is_some();
        Ok(Box::new(Self::over(
            self.backend,
            socket,
            self.caps.clone(),
            sources,
            self.call,
        )))
    }

    fn steer_by_cpu(&self, cpus: &[usize]) -> Result<(), Error> {
        Ok(self.socket.socket().steer_by_cpu(cpus)?)
    }
}
