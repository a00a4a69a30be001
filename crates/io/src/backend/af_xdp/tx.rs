//! Sending: frames with headers of our own, written into shared memory.

use super::driving::{self, FLUSH_TIMEOUT, PAUSE_MAX, SEND_TIMEOUT};
use super::errno::EBUSY;
use super::interface::XdpInterface;
use super::{BACKEND, explain, socket_config};
use crate::link_path::LinkPath;
use crate::wire::Template;
use crate::xdp_switch::XdpSwitch;
use crate::{Error, Frames, Layer, Mode, Property, Sent, Tx, TxCaps, TxConfig, TxCounters};
use mpps_os::xdp::XdpSender;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Instant;

pub(super) fn open(config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
    let path = LinkPath::find(config.target, config.source, &config.ring)?.with_flows(config.flows);
    let template = path.template(config.payload_bytes)?;
    let interface = XdpInterface::of(path.interface_index)?;
    let queue = config.ring.queue.unwrap_or(0);
    if queue >= interface.tx_queues {
        let (name, queues) = (&interface.name, interface.tx_queues);
        let why = format!("{name} has {queues} transmit queues, numbered from 0");
        return Err(Error::invalid("ring.queue", queue, why));
    }
    let mut socket = socket_config(&config.ring, &interface, queue, 0)?;
    // A sender's frames are as long as it makes them, and lie in one piece each.
    check_size(&template, config.payload_bytes, socket.frame_bytes as usize)?;
    socket.segments = false;
    let mut sender = XdpSender::open(&socket, config.send_buffer_bytes)
        .map_err(|error| explain(error, &socket))?;
    let is_zero_copy = sender.is_zero_copy()?;
    // A copying socket sends as any other does, and needs no program.
    let switch = is_zero_copy.then(|| XdpSwitch::on(interface.index));
    let switch = switch.transpose()?;
    let summary = format!(
        "{}, queue {queue} of {} on {}, {} frames{}{}",
        if is_zero_copy { "zero-copy" } else { "copy" },
        interface.tx_queues,
        interface.name,
        socket.frames,
        if socket.hugepages {
            " in huge pages"
        } else {
            ""
        },
        switch
            .as_ref()
            .map_or_else(String::new, |switch| format!(", {switch}")),
    );
    let port = |flow: usize| path.source.port().wrapping_add(flow as u16);
    let caps = TxCaps {
        backend: BACKEND.name,
        layer: Layer::Frame,
        batch: config.batch.min(socket.frames as usize),
        train: 1,
        flows: config.flows,
        local_addresses: (0..config.flows)
            .map(|flow| SocketAddr::new(path.source.ip(), port(flow)))
            .collect(),
        send_buffer_bytes: Some(sender.send_buffer_bytes()),
        template: false,
        mode: Mode::new(summary).with(Property::ZeroCopy, is_zero_copy),
    };
    Ok(Box::new(AfXdpTx {
        arena: vec![0; config.payload_bytes * config.batch],
        payload_bytes: config.payload_bytes,
        template,
        frames: sender.free(),
        sender,
        is_zero_copy,
        counters: TxCounters::default(),
        caps,
        _switch: switch,
    }))
}

fn check_size(template: &Template, payload_bytes: usize, frame_bytes: usize) -> Result<(), Error> {
    if template.frame_bytes() <= frame_bytes {
        return Ok(());
    }
    let most = frame_bytes - template.header_bytes();
    let why = format!("a frame in shared memory has room for {most} bytes of payload");
    Err(Error::invalid("payload_bytes", payload_bytes, why))
}

#[derive(Debug)]
struct AfXdpTx {
    sender: XdpSender,
    /// The payloads of a batch, one behind the other.
    arena: Vec<u8>,
    payload_bytes: usize,
    template: Template,
    /// How many there are in all.
    frames: usize,
    is_zero_copy: bool,
    counters: TxCounters,
    caps: TxCaps,
    /// Held as long as it sends, if a zero-copy driver needs it.
    _switch: Option<XdpSwitch>,
}

impl AfXdpTx {
    /// Writes frames from the arena's `from`th payload on, as many as there is room for, and shows
    /// them to the kernel. Returns how many.
    fn fill(&mut self, flow: usize, from: usize, to: usize) -> usize {
        let room = self.sender.free();
        let to = to.min(from.saturating_add(room));
        let Self {
            sender,
            arena,
            payload_bytes,
            template,
            ..
        } = self;
        let flow = flow as u16;
        let frame_bytes = template.frame_bytes();
        let mut filled = 0;
        for at in from..to {
            let payload = &arena[at * *payload_bytes..(at + 1) * *payload_bytes];
            let is_pushed = sender.push(|frame| {
                template.write(&mut frame[..frame_bytes], flow, payload);
                frame_bytes
            });
            if !is_pushed {
                break;
            }
            filled += 1;
        }
        sender.publish();
        filled
    }

    /// As [`driving::drain`].
    fn drain(&mut self, deadline: Instant, dropped: &mut u64) -> io::Result<()> {
        let calls = &mut self.counters.calls;
        driving::drain(
            self.sender.transmitter(),
            self.is_zero_copy,
            deadline,
            calls,
            dropped,
        )
    }

    /// Counts the datagrams offered and dropped. Datagrams that an earlier call left in the ring,
    /// and counted as accepted, may be dropped in this one. Then the counters are corrected, and no
    /// call returns more than it was given.
    fn count(&mut self, offered: u64, dropped: u64) {
        self.counters.accepted = (self.counters.accepted + offered).saturating_sub(dropped);
        if dropped > 0 {
            *self.counters.refused.entry(EBUSY).or_default() += dropped;
        }
    }
}

impl Tx for AfXdpTx {
    fn frames(&mut self, datagrams: usize) -> Frames<'_> {
        let bytes = self.payload_bytes;
        let datagrams = datagrams.min(self.caps.batch);
        Frames::new(&mut self.arena, bytes, bytes, bytes, datagrams)
    }

    fn send(&mut self, flow: usize, datagrams: usize) -> io::Result<Sent> {
        let datagrams = datagrams.min(self.caps.batch);
        let flow = flow % self.caps.flows;
        let deadline = Instant::now() + SEND_TIMEOUT;
        let (mut filled, mut dropped) = (0, 0);
        while filled < datagrams {
            let more = self.fill(flow, filled, datagrams);
            filled += more;
            if let Err(error) = self.drain(deadline, &mut dropped) {
                // Frames that the kernel left in the ring were not sent.
                let left = self.sender.transmitter().pending() as usize;
                self.count(filled.saturating_sub(left) as u64, dropped);
                return Err(error);
            }
            if more == 0 {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    self.counters.blocked += 1;
                    break;
                }
                driving::pause(self.sender.transmitter(), left, &mut self.counters.calls)?;
            }
        }
        let offered = filled as u64;
        self.count(offered, dropped);
        let refused = dropped.min(offered);
        Ok(Sent {
            accepted: offered - refused,
            refused,
        })
    }

    /// A driver without a copy works on behind the call, until no frame is its own any more.
    fn flush(&mut self) {
        let mut drained = self.drain(Instant::now() + SEND_TIMEOUT, &mut 0);
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        while self.is_zero_copy && drained.is_ok() && self.sender.free() < self.frames {
            if Instant::now() >= deadline {
                return;
            }
            thread::sleep(PAUSE_MAX);
            drained = self.drain(deadline, &mut 0);
        }
    }

    fn readiness(&self, _flow: usize) -> Option<BorrowedFd<'_>> {
        Some(self.sender.as_fd())
    }

    fn counters(&self) -> &TxCounters {
        &self.counters
    }

    fn caps(&self) -> &TxCaps {
        &self.caps
    }
}

impl Drop for AfXdpTx {
    /// Accepted frames are sent before the socket closes, as far as the kernel lets it.
    fn drop(&mut self) {
        Tx::flush(self);
    }
}
