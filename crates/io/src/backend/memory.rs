//! Packets through this process's own memory: the executable example of a backend.
//!
//! A receiver claims an address in a table of this process; a sender to that address appends its
//! payloads to an arena, and the receiver takes the whole arena by swapping it for an empty one.
//! No packet is copied on the receiving side.

use super::answers::AnswerCopies;
use super::{Backend, Layer, Support};
use crate::requests::Requests;
use crate::rx::not_opened_to_answer;
use crate::{
    Batch, DatagramDetails, Error, Frames, Mode, PacketDescriptor, Rx, RxCaps, RxConfig,
    RxCounters, RxDrop, Sent, Served, Tx, TxCaps, TxConfig, TxCounters, Wait,
};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(super) const BACKEND: Backend = Backend {
    name: "memory",
    summary: "packets inside one process, for examples and tests",
    needs: "nothing",
    layer: Layer::Payload,
    takes_nic: false,
    in_process: true,
    probe: || Support::Yes,
    rx_fields: &[
        "receive_buffer_bytes",
        "buffer_bytes",
        "details.source",
        "answers",
    ],
    tx_fields: &["flows", "connect = false", "send_buffer_bytes"],
    rx: Some(open_rx),
    tx: Some(open_tx),
};

/// Bytes that wait for the receiver at most, if it asked for no other figure.
const BUFFER_BYTES: usize = 4 << 20;

/// The least that a waiting datagram costs of those bytes.
const DATAGRAM_BYTES_MIN: usize = 16;

/// The receivers in this process, by address.
static WIRES: Mutex<BTreeMap<SocketAddr, Weak<Wire>>> = Mutex::new(BTreeMap::new());

/// The wire between senders and one receiver.
#[derive(Debug)]
struct Wire {
    arena: Mutex<Arena>,
    arrived: Condvar,
    bytes_max: usize,
    /// Bytes that the receiver keeps of each datagram.
    buffer_bytes: u32,
    /// Whether it wants to know the senders.
    sources: bool,
}

#[derive(Debug, Default)]
struct Arena {
    bytes: Vec<u8>,
    descriptors: Vec<PacketDescriptor>,
    details: Vec<DatagramDetails>,
    dropped: u64,
}

impl Arena {
    /// Some of its datagrams, with their senders if those are kept.
    fn batch(&self, lent: Range<usize>) -> Batch<'_> {
        let details = self.details.get(lent.clone()).unwrap_or_default();
        Batch::new(&self.bytes, &self.descriptors[lent]).with_details(details)
    }

    /// Adds a datagram, or counts it as dropped.
    fn append(&mut self, wire: &Wire, payload: &[u8], source: Option<SocketAddr>) {
        // An empty datagram has no bytes, and must not be free.
        let is_full = self.descriptors.len() >= wire.bytes_max / DATAGRAM_BYTES_MIN;
        if is_full || self.bytes.len() + payload.len() > wire.bytes_max {
            self.dropped += 1;
            return;
        }
        let offset = self.bytes.len() as u32;
        let bytes = payload.len() as u32;
        self.bytes.extend_from_slice(payload);
        self.descriptors.push(PacketDescriptor {
            offset,
            bytes: bytes.min(wire.buffer_bytes),
            wire_bytes: bytes,
            segment_bytes: 0,
        });
        if wire.sources {
            self.details.push(DatagramDetails {
                source,
                ..DatagramDetails::default()
            });
        }
    }
}

#[derive(Debug)]
struct MemoryRx {
    wire: Arc<Wire>,
    arena: Arena,
    /// Descriptors of `arena` that were lent already.
    lent: usize,
    counters: RxCounters,
    caps: RxCaps,
    answering: Option<AnswerCopies>,
}

fn open_rx(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let bytes_max = config.receive_buffer_bytes.unwrap_or(BUFFER_BYTES);
    let wire = Arc::new(Wire {
        arena: Mutex::default(),
        arrived: Condvar::new(),
        bytes_max,
        buffer_bytes: u32::try_from(config.buffer_bytes).unwrap_or(u32::MAX),
        sources: config.details.source || config.answers,
    });
    let mut wires = lock(&WIRES);
    wires.retain(|_, wire| wire.strong_count() > 0);
    let mut address = config.address;
    if address.port() == 0 {
        // Ephemeral ports as Linux gives them out: net.ipv4.ip_local_port_range.
        let free = (32_768..61_000_u16)
            .find(|port| !wires.contains_key(&SocketAddr::new(address.ip(), *port)));
        address.set_port(free.unwrap_or(0));
    }
    if wires.contains_key(&address) || address.port() == 0 {
        let source = io::Error::from(io::ErrorKind::AddrInUse);
        return Err(mpps_os::CallError::new("bind (memory)", address, source).into());
    }
    wires.insert(address, Arc::downgrade(&wire));
    let caps = RxCaps {
        queue: None,
        backend: BACKEND.name,
        layer: Layer::Payload,
        local_address: address,
        batch: config.batch,
        buffer_bytes: config.buffer_bytes,
        receive_buffer_bytes: Some(bytes_max),
        gro: false,
        mode: Mode::new("inside one process"),
    };
    Ok(Box::new(MemoryRx::new(wire, caps, config.answers)))
}

impl MemoryRx {
    fn new(wire: Arc<Wire>, caps: RxCaps, answers: bool) -> Self {
        let (arena, counters) = (Arena::default(), RxCounters::default());
        let answering = answers.then(|| AnswerCopies::new(caps.batch, caps.buffer_bytes.max(1)));
        Self {
            wire,
            arena,
            lent: 0,
            counters,
            caps,
            answering,
        }
    }

    /// The next datagrams that have come; waits as `wait` says if there are none.
    fn lend(&mut self, wait: Wait) -> Range<usize> {
        if self.lent == self.arena.descriptors.len() {
            self.refill(wait);
        }
        let from = self.lent;
        self.lent = self.arena.descriptors.len().min(from + self.caps.batch);
        from..self.lent
    }

    /// Swaps the empty arena for the datagrams that have come, waiting as `wait` says.
    fn refill(&mut self, wait: Wait) {
        self.arena.bytes.clear();
        self.arena.descriptors.clear();
        self.arena.details.clear();
        self.lent = 0;
        let deadline = match wait {
            Wait::Poll => None,
            // Nothing here has a descriptor, so that epoll is a sleep like any other.
            Wait::Block(time) | Wait::Auto(time) | Wait::Spin(time) | Wait::Epoll(time) => {
                Some(after(time))
            }
        };
        let mut arrived = lock(&self.wire.arena);
        while arrived.descriptors.is_empty() {
            let left = deadline.map_or(Duration::ZERO, |at| {
                at.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return;
            }
            arrived = match wait {
                Wait::Block(_) | Wait::Auto(_) | Wait::Epoll(_) => {
                    let waited = self.wire.arrived.wait_timeout(arrived, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Wait::Poll | Wait::Spin(_) => {
                    drop(arrived);
                    std::hint::spin_loop();
                    lock(&self.wire.arena)
                }
            };
        }
        std::mem::swap(&mut arrived.bytes, &mut self.arena.bytes);
        std::mem::swap(&mut arrived.descriptors, &mut self.arena.descriptors);
        std::mem::swap(&mut arrived.details, &mut self.arena.details);
        drop(arrived);
    }
}

impl Rx for MemoryRx {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        let lent = self.lend(wait);
        let batch = self.arena.batch(lent);
        self.counters.add(&batch);
        Ok(batch)
    }

    fn serve(&mut self, wait: Wait, answer: &mut dyn FnMut(Requests<'_>)) -> io::Result<Served> {
        if self.answering.is_none() {
            return Err(not_opened_to_answer());
        }
        let lent = self.lend(wait);
        let batch = self.arena.batch(lent);
        self.counters.add(&batch);
        let answering = self.answering.as_mut().ok_or_else(not_opened_to_answer)?;
        answering.ask(&batch, Layer::Payload, answer);
        let mut served = Served::default();
        for (packet, answer) in batch.packets().zip(answering.answers()) {
            served.received += 1;
            match (answer, packet.source()) {
                (Some(answer), Some(source)) => {
                    deliver(answer, self.caps.local_address, &source);
                    served.sent += 1;
                }
                (Some(_), None) => served.refused += 1,
                (None, _) => {}
            }
        }
        Ok(served)
    }

    fn counters(&self) -> RxCounters {
        RxCounters {
            dropped: lock(&self.wire.arena).dropped,
            ..self.counters
        }
    }

    fn drops(&self) -> Vec<RxDrop> {
        vec![RxDrop {
            reason: "buffer full",
            source: "the receiver's own count",
            count: self.counters().dropped,
        }]
    }

    fn caps(&self) -> &RxCaps {
        &self.caps
    }

    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        Ok(Box::new(Self::new(
            Arc::clone(&self.wire),
            self.caps.clone(),
            self.answering.is_some(),
        )))
    }
}

/// Delivers a datagram to the receiver at an address. As over UDP, one to an address without a receiver
/// is gone without an error.
fn deliver(payload: &[u8], from: SocketAddr, to: &SocketAddr) {
    let wire = lock(&WIRES).get(to).and_then(Weak::upgrade);
    if let Some(wire) = wire {
        lock(&wire.arena).append(&wire, payload, Some(from));
        wire.arrived.notify_all();
    }
}

#[derive(Debug)]
struct MemoryTx {
    wire: Weak<Wire>,
    arena: Vec<u8>,
    payload_bytes: usize,
    counters: TxCounters,
    caps: TxCaps,
}

fn open_tx(config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
    let any_port = || SocketAddr::new(config.target.ip(), 0);
    let first = config.source.unwrap_or_else(any_port);
    let local_addresses = (0..config.flows)
        .map(|flow| SocketAddr::new(first.ip(), first.port().wrapping_add(flow as u16)))
        .collect();
    Ok(Box::new(MemoryTx {
        wire: lock(&WIRES)
            .get(&config.target)
            .cloned()
            .unwrap_or_default(),
        arena: vec![0; config.payload_bytes.max(1) * config.batch],
        payload_bytes: config.payload_bytes,
        counters: TxCounters::default(),
        caps: TxCaps {
            backend: BACKEND.name,
            layer: Layer::Payload,
            batch: config.batch,
            train: 1,
            flows: config.flows,
            local_addresses,
            send_buffer_bytes: None,
            template: false,
            mode: Mode::new("inside one process"),
        },
    }))
}

impl Tx for MemoryTx {
    fn frames(&mut self, datagrams: usize) -> Frames<'_> {
        let bytes = self.payload_bytes;
        let datagrams = datagrams.min(self.caps.batch);
        Frames::new(&mut self.arena, bytes, bytes, bytes, datagrams)
    }

    fn send(&mut self, flow: usize, datagrams: usize) -> io::Result<Sent> {
        let datagrams = datagrams.min(self.caps.batch);
        self.counters.calls += 1;
        self.counters.accepted += datagrams as u64;
        let sent = Sent {
            accepted: datagrams as u64,
            refused: 0,
        };
        // As over UDP, datagrams to an address without a receiver are gone without an error.
        let Some(wire) = self.wire.upgrade() else {
            return Ok(sent);
        };
        let source = self.caps.local_addresses.get(flow).copied();
        let mut arena = lock(&wire.arena);
        for at in 0..datagrams {
            let from = at * self.payload_bytes;
            arena.append(&wire, &self.arena[from..from + self.payload_bytes], source);
        }
        drop(arena);
        wire.arrived.notify_all();
        Ok(sent)
    }

    fn counters(&self) -> &TxCounters {
        &self.counters
    }

    fn caps(&self) -> &TxCaps {
        &self.caps
    }
}

/// A panic elsewhere leaves a wire as good as it was: nothing here is half-written for long.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So long from now, or in a year if the clock cannot say so late a time.
fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time)
        .unwrap_or(now + Duration::from_secs(31_536_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's own code can be tried without a kernel. A client that sends from the address that
    /// it receives at gets the answers there.
    #[test]
    fn who_asks_is_answered() {
        let open = |answers| {
            let mut config = RxConfig::new("192.0.2.7:0".parse().unwrap());
            (config.answers, config.details.source) = (answers, true);
            open_rx(&config).unwrap()
        };
        let (mut server, mut client) = (open(true), open(false));
        let [server_at, client_at] = [&server, &client].map(|rx| rx.caps().local_address);
        let mut config = TxConfig::new(server_at);
        config.source = Some(client_at);
        let mut tx = open_tx(&config).unwrap();
        for (at, payload) in tx.frames(3).enumerate() {
            payload.fill(at as u8);
        }
        assert_eq!(tx.send(0, 3).unwrap().accepted, 3);

        let served = server.serve(Wait::Poll, &mut |requests| {
            for request in requests {
                match request.payload()[0] {
                    0 => drop(request.reply(b"first")),
                    1 => {}
                    _ => drop(request.send_back()),
                }
            }
        });
        let counts = Served {
            received: 3,
            sent: 2,
            refused: 0,
        };
        assert_eq!(served.unwrap(), counts);
        let came = client.recv(Wait::Poll).unwrap();
        let came: Vec<_> = came.packets().map(|p| (p.data, p.source())).collect();
        let from = Some(server_at);
        assert_eq!(came, [(&b"first"[..], from), (&[2; 32], from)]);
        assert!(client.serve(Wait::Poll, &mut |_| {}).is_err());
        assert_eq!(
            server.serve(Wait::Poll, &mut |_| {}).unwrap(),
            Served::default()
        );
    }
}
