//! `sendmsg(2)`: one datagram a call, the yardstick.

use super::socket::{SOCKET_TX_FIELDS, open_senders, send_all};
use super::{Backend, Layer, Support};
use crate::config::check_room;
use crate::{Error, Frames, Sent, Tx, TxCaps, TxConfig, TxCounters};
use mpps_os::messages::SendMessages;
use mpps_os::socket::UdpSocket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

pub(super) const BACKEND: Backend = Backend {
    name: "send",
    summary: "one datagram a call to an ordinary socket, the yardstick",
    needs: "Linux 5.10",
    layer: Layer::Payload,
    takes_nic: false,
    in_process: false,
    probe: || Support::Yes,
    rx_fields: &[],
    tx_fields: SOCKET_TX_FIELDS,
    rx: None,
    tx: Some(open_tx),
};

fn open_tx(config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
    let (sockets, caps) = open_senders(&BACKEND, config)?;
    let call: SendCall = |messages, socket, from, _| messages.send_one(socket, from).map(|()| 1);
    Ok(Box::new(SocketTx::new(config, sockets, caps, call)?))
}

/// The call that passes messages `from..to` to a socket and answers how many it took.
pub(super) type SendCall = fn(&mut SendMessages, BorrowedFd<'_>, usize, usize) -> io::Result<usize>;

/// A sender over ordinary sockets; `send` and `sendmmsg` differ only by their call.
#[derive(Debug)]
pub(super) struct SocketTx {
    call: SendCall,
    sockets: Vec<UdpSocket>,
    messages: SendMessages,
    payload_bytes: usize,
    /// Datagrams per message.
    segments: usize,
    counters: TxCounters,
    caps: TxCaps,
}

impl SocketTx {
    pub(super) fn new(
        config: &TxConfig,
        sockets: Vec<UdpSocket>,
        caps: TxCaps,
        call: SendCall,
    ) -> Result<Self, Error> {
        let segments = usize::from(config.gso_segments);
        let target = (!config.connect).then_some(config.target);
        let message_bytes = config.payload_bytes * segments;
        check_room(config.batch, message_bytes)?;
        Ok(Self {
            call,
            sockets,
            messages: SendMessages::new(config.batch, message_bytes, target),
            payload_bytes: config.payload_bytes,
            segments,
            counters: TxCounters::default(),
            caps,
        })
    }
}

impl Tx for SocketTx {
    fn frames(&mut self, datagrams: usize) -> Frames<'_> {
        let datagrams = datagrams.min(self.caps.batch);
        let message_bytes = self.payload_bytes * self.segments;
        let stride = self.messages.stride();
        Frames::new(
            self.messages.arena_mut(),
            stride,
            message_bytes,
            self.payload_bytes,
            datagrams,
        )
    }

    fn send(&mut self, flow: usize, datagrams: usize) -> io::Result<Sent> {
        let Self {
            call,
            sockets,
            messages,
            segments,
            counters,
            ..
        } = self;
        let segments = *segments;
        let datagrams = datagrams.min(self.caps.batch);
        let count = datagrams.div_ceil(segments);
        let Some(last) = count.checked_sub(1) else {
            return Ok(Sent::default());
        };
        // A train may be short: 100 datagrams in trains of 64 are 64 and 36.
        let last_segments = datagrams - last * segments;
        messages.set_bytes(last, last_segments * self.payload_bytes);
        let datagrams_of = |at: usize| if at == last { last_segments } else { segments } as u64;
        let socket = sockets[flow % sockets.len()].as_fd();
        let sent = send_all(count, datagrams_of, counters, |from, to| {
            call(messages, socket, from, to)
        });
        messages.set_bytes(last, segments * self.payload_bytes);
        sent
    }

    fn readiness(&self, flow: usize) -> Option<BorrowedFd<'_>> {
        Some(self.sockets[flow % self.sockets.len()].as_fd())
    }

    fn counters(&self) -> &TxCounters {
        &self.counters
    }

    fn caps(&self) -> &TxCaps {
        &self.caps
    }
}
