//! The sender: whole frames through a transmit ring, past the queueing discipline.

use super::BACKEND;
use crate::link_path::LinkPath;
use crate::wire::Template;
use crate::{Error, Frames, Layer, Mode, Sent, Tx, TxCaps, TxConfig, TxCounters};
use mpps_os::packet_socket::{PacketSocket, Protocol, TxRing, TxRingSize};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Frames under way, if the user gave no other figure.
const SLOTS: u32 = 2048;
/// The most that a small frame is charged to the send buffer: its `struct sk_buff`, and its bytes
/// with the kernel's own behind them (`SKB_TRUESIZE`, include/linux/skbuff.h).
const FRAME_CHARGE_BYTES: usize = 1024;
/// How long a send waits for room.
const SEND_TIMEOUT: Duration = Duration::from_millis(5);
/// Frames per call after the device has dropped one: what is behind a dropped frame has to be
/// filled in anew.
const CAREFUL: usize = 16;

/// Of include/uapi/asm-generic/errno.h.
const ENOBUFS: i32 = 105;

/// A sender over one ring. Its flows differ by the source port that they write.
#[derive(Debug)]
struct PacketTx {
    ring: TxRing,
    template: Template,
    /// Payloads one after another, each at least one byte long; `send` copies them behind their
    /// headers.
    payloads: Vec<u8>,
    payload_bytes: usize,
    /// Frames per call.
    chunk: usize,
    counters: TxCounters,
    caps: TxCaps,
}

pub(super) fn open(config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
    let path = LinkPath::find(config.target, config.source, &config.ring)?;
    let path = path.with_flows(config.flows);
    let template = path.template(config.payload_bytes)?;
    let slots = config.ring.frames.unwrap_or(SLOTS);
    let size = TxRingSize::holding(slots, template.frame_bytes());

    let socket = PacketSocket::new(&path.interface)?;
    // The ring is to be the limit, and not the send buffer.
    let charge = size.slots()
        * template
            .frame_bytes()
            .next_power_of_two()
            .max(FRAME_CHARGE_BYTES);
    let send_buffer_bytes = socket.set_send_buffer(config.send_buffer_bytes.unwrap_or(charge))?;
    socket.bypass_qdisc()?;
    let ring = TxRing::new(socket, size)?;
    // It receives nothing.
    ring.socket().bind(Protocol::None, path.interface_index)?;

    let batch = config.batch.min(size.slots());
    let local_address = |flow: usize| {
        // A flow's number is below 65 536.
        let port = template.source_port(flow as u16);
        SocketAddr::new(path.source.ip(), port)
    };
    let caps = TxCaps {
        backend: BACKEND.name,
        layer: Layer::Frame,
        batch,
        train: 1,
        flows: config.flows,
        local_addresses: (0..config.flows).map(local_address).collect(),
        send_buffer_bytes: Some(send_buffer_bytes),
        template: false,
        mode: Mode::new(format!(
            "transmit ring on {} past the queueing discipline, copy",
            path.interface
        )),
    };
    Ok(Box::new(PacketTx {
        ring,
        payloads: vec![0; batch * config.payload_bytes.max(1)],
        payload_bytes: config.payload_bytes,
        template,
        chunk: batch,
        counters: TxCounters::default(),
        caps,
    }))
}

impl Tx for PacketTx {
    fn frames(&mut self, datagrams: usize) -> Frames<'_> {
        let bytes = self.payload_bytes;
        let datagrams = datagrams.min(self.caps.batch);
        Frames::new(&mut self.payloads, bytes.max(1), bytes, bytes, datagrams)
    }

    fn send(&mut self, flow: usize, datagrams: usize) -> io::Result<Sent> {
        let datagrams = datagrams.min(self.caps.batch);
        let mut sent = Sent::default();
        let mut waited = false;
        let mut at = 0;
        while at < datagrams {
            let filled = self.fill(flow, at, datagrams);
            let (taken, refusal) = match filled {
                0 => (0, None),
                _ => self.flush(filled),
            };
            at += taken;
            sent.accepted += taken as u64;
            if taken == filled && filled > 0 {
                self.chunk = (self.chunk * 2).min(self.caps.batch);
                continue;
            }
            match refusal {
                Some(error) if error.raw_os_error() == Some(ENOBUFS) => {
                    // The device dropped the frame that was next (`net_xmit_errno`).
                    at += 1;
                    sent.refused += 1;
                    *self.counters.refused.entry(ENOBUFS).or_default() += 1;
                    self.chunk = CAREFUL.min(self.caps.batch);
                }
                Some(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Some(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ if taken > 0 => {}
                _ if waited => {
                    self.counters.blocked += 1;
                    break;
                }
                _ => {
                    waited = true;
                    self.counters.calls += 1;
                    match self.ring.wait_for_room(SEND_TIMEOUT) {
                        Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                            return Err(error);
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(sent)
    }

    fn readiness(&self, _flow: usize) -> Option<BorrowedFd<'_>> {
        Some(self.ring.socket().as_fd())
    }

    fn counters(&self) -> &TxCounters {
        &self.counters
    }

    fn caps(&self) -> &TxCaps {
        &self.caps
    }
}

impl PacketTx {
    /// Fills slots with datagrams from number `from` on, up to a chunk of them, and says how many
    /// found a free slot.
    fn fill(&mut self, flow: usize, from: usize, to: usize) -> usize {
        let to = to.min(from + self.chunk);
        let bytes = self.payload_bytes;
        for at in from..to {
            let payload = &self.payloads[at * bytes.max(1)..][..bytes];
            let template = &self.template;
            let filled = self.ring.fill(at - from, template.frame_bytes(), |frame| {
                // A flow's number is below 65 536.
                template.write(frame, flow as u16, payload);
            });
            if !filled {
                return at - from;
            }
        }
        to - from
    }

    /// Passes the `filled` frames on. Returns how many the kernel took, and its error for the next.
    fn flush(&mut self, filled: usize) -> (usize, Option<io::Error>) {
        self.counters.calls += 1;
        let flushed = self.ring.flush(filled);
        self.counters.accepted += flushed.taken as u64;
        (flushed.taken, flushed.refusal)
    }
}
