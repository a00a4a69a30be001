//! Packets through this process's own memory: the executable example of a backend.
//!
//! A receiver claims an address in a table of this process; a sender to that address appends its
//! payloads to an arena, and the receiver takes the whole arena by swapping it for an empty one.
//! No packet is copied on the receiving side.

use super::{Backend, Layer, Support};
use crate::{
    Batch, Descriptor, Error, Frames, Mode, Rx, RxCaps, RxConfig, RxCounters, RxDrop, Sent, Tx,
    TxCaps, TxConfig, TxCounters, Wait,
};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
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
    rx_options: &["--rcvbuf", "--buffer", "sources"],
    tx_options: &["--flows", "--no-connect", "--sndbuf"],
    rx: Some(open_rx),
    tx: Some(open_tx),
};

/// Bytes that wait for the receiver at most, if it asked for no other figure.
const BUFFER_BYTES: usize = 4 << 20;

/// What a waiting datagram costs at least, of those bytes.
const DATAGRAM_BYTES_MIN: usize = 16;

/// Who receives at which address in this process.
static WIRES: Mutex<BTreeMap<SocketAddr, Weak<Wire>>> = Mutex::new(BTreeMap::new());

/// What lies between senders and one receiver.
#[derive(Debug)]
struct Wire {
    arena: Mutex<Arena>,
    arrived: Condvar,
    bytes_max: usize,
    /// What the receiver keeps of each datagram.
    buffer_bytes: u32,
    /// Whether it wants to know the senders.
    sources: bool,
}

#[derive(Debug, Default)]
struct Arena {
    bytes: Vec<u8>,
    descriptors: Vec<Descriptor>,
    sources: Vec<Option<SocketAddr>>,
    dropped: u64,
}

#[derive(Debug)]
struct MemoryRx {
    wire: Arc<Wire>,
    arena: Arena,
    /// Descriptors of `arena` that were lent already.
    lent: usize,
    counters: RxCounters,
    caps: RxCaps,
    sources: bool,
}

fn open_rx(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let bytes_max = config.receive_buffer_bytes.unwrap_or(BUFFER_BYTES);
    let wire = Arc::new(Wire {
        arena: Mutex::default(),
        arrived: Condvar::new(),
        bytes_max,
        buffer_bytes: u32::try_from(config.buffer_bytes).unwrap_or(u32::MAX),
        sources: config.sources,
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
        return Err(mpps_os::Error::new("bind (memory)", address, source).into());
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
    Ok(Box::new(MemoryRx::new(wire, caps, config.sources)))
}

impl MemoryRx {
    fn new(wire: Arc<Wire>, caps: RxCaps, sources: bool) -> Self {
        let (arena, counters) = (Arena::default(), RxCounters::default());
        Self {
            wire,
            arena,
            lent: 0,
            counters,
            caps,
            sources,
        }
    }

    /// Swaps the empty arena for what has come, waiting as told.
    fn refill(&mut self, wait: Wait) {
        self.arena.bytes.clear();
        self.arena.descriptors.clear();
        self.arena.sources.clear();
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
        std::mem::swap(&mut arrived.sources, &mut self.arena.sources);
        drop(arrived);
    }
}

impl Rx for MemoryRx {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        if self.lent == self.arena.descriptors.len() {
            self.refill(wait);
        }
        let from = self.lent;
        self.lent = self.arena.descriptors.len().min(from + self.caps.batch);
        let mut batch = Batch::new(&self.arena.bytes, &self.arena.descriptors[from..self.lent]);
        if self.sources {
            batch = batch.with_sources(&self.arena.sources[from..self.lent]);
        }
        self.counters.add(&batch);
        Ok(batch)
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
            self.sources,
        )))
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
        // As over UDP, what nobody listens to is gone without an error.
        let Some(wire) = self.wire.upgrade() else {
            return Ok(sent);
        };
        let source = self.caps.local_addresses.get(flow).copied();
        let mut arena = lock(&wire.arena);
        for at in 0..datagrams {
            let from = at * self.payload_bytes;
            let payload = &self.arena[from..from + self.payload_bytes];
            // An empty datagram has no bytes, and must not be free.
            let is_full = arena.descriptors.len() >= wire.bytes_max / DATAGRAM_BYTES_MIN;
            if is_full || arena.bytes.len() + payload.len() > wire.bytes_max {
                arena.dropped += 1;
                continue;
            }
            let offset = arena.bytes.len() as u32;
            let bytes = payload.len() as u32;
            arena.bytes.extend_from_slice(payload);
            arena.descriptors.push(Descriptor {
                offset,
                bytes: bytes.min(wire.buffer_bytes),
                wire_bytes: bytes,
                segment_bytes: 0,
            });
            if wire.sources {
                arena.sources.push(source);
            }
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
