//! The receiver of a build with DPDK.

#![allow(
    unsafe_code,
    reason = "packets are lent from DPDK's memory, which is not one Rust slice"
)]

mod arguments;
mod tap;

use super::BACKEND;
use crate::backend::Support;
use crate::backend::packet_mmap::filter::incoming;
use crate::filter::FlowFilter;
use crate::requests::{PacketSlot, Requests};
use crate::rx::not_opened_to_answer;
use crate::waiting::{self, Awaited, ReceiverWait, Sleep};
use crate::wire::ETHERNET_BYTES;
use crate::{
    Batch, Error, Layer, Mode, PacketDescriptor, Property, Rx, RxCaps, RxConfig, RxCounters,
    RxDrop, Served, Wait,
};
use arguments::Arguments;
use mpps_os::capability::{CAP_NET_RAW, Rights};
use mpps_os::dpdk::{self, Lent, Port, PortFacts, PortOptions, RxQueue};
use mpps_os::poll::Waiter;
use mpps_os::sched;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tap::DpdkTap;

/// How long a blocked receiver sleeps between looks into a device that cannot wake it. Its timer
/// adds 50 µs of slack (prctl(2), PR_SET_TIMERSLACK). In that time a ring of 4096 frames fills at
/// 40 million packets a second.
const NAP: Duration = Duration::from_micros(50);

/// Looks that may bring nothing but frames of others before a queue is taken to be empty.
const LOOKS: u32 = 64;

/// Bytes of a frame that a buffer holds, if no interface says otherwise: more than that of an MTU of
/// 1500, and DPDK's own figure (`RTE_MBUF_DEFAULT_DATAROOM`).
const FRAME_BYTES: u16 = 2048;

pub(super) fn probe() -> Support {
    if Rights::own().has(CAP_NET_RAW) {
        return Support::Yes;
    }
    Support::no(
        "DPDK's drivers open raw sockets or devices, which needs CAP_NET_RAW",
        Rights::own().remedy(&[CAP_NET_RAW]),
    )
}

pub(super) fn open_rx(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let cpus = sched::affinity(sched::thread_id())?;
    let arguments = Arguments::new(&config.ring, &cpus)?;
    let is_default = arguments.device.is_none();
    let (device, frame_bytes) = match arguments.device {
        Some(device) => (device, FRAME_BYTES),
        None => tap::device(config)?,
    };
    let options = PortOptions {
        rx_descriptors: rx_descriptors(config)?,
        // More threads than CPUs would take turns.
        rx_queues_max: u16::try_from(cpus.len()).unwrap_or(u16::MAX),
        batch: config.batch,
        frame_bytes,
    };
    let tap = match device.starts_with(tap::DRIVER) {
        true => Some(Arc::new(DpdkTap::claim(
            &device,
            config.address,
            is_default,
        )?)),
        false => None,
    };
    let mut config = config.clone();
    config.address = tap.as_ref().map_or(config.address, |tap| tap.port.address);
    if config.address.port() == 0 {
        let why = "no kernel can choose a port for packets that it does not see";
        return Err(Error::invalid("address", config.address, why));
    }
    dpdk::start(&arguments.environment)?;
    Ok(Box::new(DpdkRx::open(&device, options, config, tap)?))
}

fn rx_descriptors(config: &RxConfig) -> Result<Option<u16>, Error> {
    let Some(frames) = config.ring.frames else {
        return Ok(None);
    };
    match u16::try_from(frames) {
        Ok(frames) if frames > 0 => Ok(Some(frames)),
        _ => Err(Error::Invalid {
            field: "ring.frames",
            value: frames.to_string(),
            why: "DPDK's rings hold 1 to 65535 packets".to_owned(),
        }),
    }
}

/// A receiver, on some of the port's queues.
#[derive(Debug)]
struct DpdkRx {
    hand: Hand,
    shared: Arc<DpdkShared>,
    /// True for the receiver that reports the port's drops; those that share the port report none.
    tells_drops: bool,
    filter: FlowFilter,
    lent: Lent,
    descriptors: Vec<PacketDescriptor>,
    slots: Vec<PacketSlot>,
    /// Bytes to be sent of each frame that is held.
    answers: Vec<u32>,
    waiting: ReceiverWait,
    naps: u64,
    counters: RxCounters,
    caps: RxCaps,
}

/// The queues of one receiver. It holds the lock while it polls them, so that they may be dealt out
/// anew when another receiver comes.
type Hand = Arc<Mutex<Vec<RxQueue>>>;

/// The common part of the receivers of a port.
#[derive(Debug)]
struct DpdkShared {
    port: Arc<Port>,
    hands: Mutex<Vec<Hand>>,
    /// The options of further devices.
    options: PortOptions,
    config: RxConfig,
    /// Shared with the devices of further receivers.
    tap: Option<Arc<DpdkTap>>,
}

impl DpdkRx {
    /// Opens a device; the receiver has all its queues.
    fn open(
        device: &str,
        options: PortOptions,
        config: RxConfig,
        tap: Option<Arc<DpdkTap>>,
    ) -> Result<Self, Error> {
        let queues = Port::open(device, &options)?;
        let Some(port) = queues.first().map(|queue| Arc::clone(queue.port())) else {
            return Err(BACKEND.unsupported("a device without receive queues"));
        };
        check_answering(&config, port.facts())?;
        let filter = match config.ring.all_traffic {
            true => FlowFilter::everything(),
            false => FlowFilter::new(config.address),
        };
        if tap.is_some() {
            // In the kernel, so that frames of others are neither copied nor counted as dropped.
            port.set_filter(&incoming(&filter, config.ring.all_traffic))?;
        }
        let caps = RxCaps {
            queue: None,
            backend: BACKEND.name,
            layer: Layer::Frame,
            local_address: config.address,
            batch: config.batch,
            buffer_bytes: usize::from(options.frame_bytes),
            receive_buffer_bytes: None,
            gro: false,
            mode: mode(port.facts(), tap.as_deref()),
        };
        let hand = Arc::new(Mutex::new(queues));
        let shared = DpdkShared {
            port,
            hands: Mutex::new(vec![Arc::clone(&hand)]),
            options,
            config,
            tap,
        };
        Ok(Self::with(hand, Arc::new(shared), filter, caps, true))
    }

    fn with(
        hand: Hand,
        shared: Arc<DpdkShared>,
        filter: FlowFilter,
        caps: RxCaps,
        tells_drops: bool,
    ) -> Self {
        Self {
            hand,
            tells_drops,
            filter,
            lent: Lent::new(Arc::clone(&shared.port), caps.batch),
            shared,
            descriptors: Vec::with_capacity(caps.batch),
            slots: Vec::new(),
            answers: Vec::new(),
            waiting: ReceiverWait::new(),
            naps: 0,
            counters: RxCounters::default(),
            caps,
        }
    }

    /// Looks once into each queue. Packets of others go back with the next look.
    fn poll(&mut self) {
        self.lent.release();
        self.descriptors.clear();
        for queue in lock(&self.hand).iter_mut() {
            self.lent.receive(queue);
        }
        for (at, frame) in self.lent.frames().iter().enumerate() {
            if !self.filter.matches(self.lent.bytes(at)) {
                continue;
            }
            self.descriptors.push(PacketDescriptor {
                offset: frame.offset,
                bytes: frame.bytes,
                wire_bytes: frame.wire_bytes,
                segment_bytes: 0,
            });
        }
    }
}

impl Awaited for DpdkRx {
    fn state(&mut self) -> (&mut ReceiverWait, &RxCounters, usize) {
        (&mut self.waiting, &self.counters, self.caps.batch)
    }

    fn look(&mut self) -> io::Result<bool> {
        // Frames of others must not make a queue look empty: behind them may be what is waited for.
        for _ in 0..LOOKS {
            self.poll();
            if !self.descriptors.is_empty() || self.lent.frames().is_empty() {
                break;
            }
        }
        Ok(!self.descriptors.is_empty())
    }

    /// A packet socket whose interface went down keeps saying that it has something.
    fn woken_for_nothing(&mut self) -> io::Result<()> {
        thread::sleep(NAP);
        Ok(())
    }

    fn sleep(&mut self, waiter: &mut Waiter, how: Sleep, time: Duration) -> io::Result<bool> {
        match (self.shared.port.readiness(), how) {
            (Some(readiness), _) => how.on(waiter, readiness, time),
            (None, Sleep::Poll) => {
                thread::sleep(NAP.min(time));
                self.naps += 1;
                Ok(false)
            }
            (None, Sleep::Epoll) => {
                let why = "this DPDK driver has nothing that epoll could wait for; block or spin";
                Err(io::Error::new(io::ErrorKind::Unsupported, why))
            }
        }
    }
}

impl Rx for DpdkRx {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        waiting::until(self, wait)?;
        let (memory, memory_bytes) = self.lent.memory();
        // SAFETY: the descriptors are those of packets that `lent` holds until the next call, which
        // the batch's borrow of `self` keeps away. They lie in this memory, which lives as long as
        // the port that `lent` holds, and DPDK writes no packet that it has handed out.
        let batch = unsafe { Batch::from_raw(memory, memory_bytes, &self.descriptors) };
        self.counters.add(&batch);
        Ok(batch)
    }

    fn serve(&mut self, wait: Wait, answer: &mut dyn FnMut(Requests<'_>)) -> io::Result<Served> {
        if !self.shared.config.answers {
            return Err(not_opened_to_answer());
        }
        if self.recv(wait)?.is_empty() {
            return Ok(Served::default());
        }
        let most = self.shared.sent_bytes_max();
        let (frames, mut came) = (self.lent.frames(), self.descriptors.iter().peekable());
        self.slots.clear();
        self.slots.extend(frames.iter().filter_map(|frame| {
            let came = came.next_if(|came| came.offset == frame.offset)?;
            Some(PacketSlot::new(came, frame.room.min(most)))
        }));
        let (memory, memory_bytes) = self.lent.memory();
        // SAFETY: each packet lies in a buffer of its own, with room up to the buffer's end. Only
        // `lent` holds it, until it is sent below or released by the next call.
        let requests =
            unsafe { Requests::from_raw(memory, memory_bytes, Layer::Frame, &mut self.slots) };
        answer(requests);
        let mut slots = self.slots.iter().peekable();
        self.answers.clear();
        self.answers.extend(frames.iter().map(|frame| {
            let slot = slots.next_if(|slot| slot.offset == frame.offset);
            slot.and_then(|slot| slot.answer).unwrap_or(0)
        }));
        let asked = self.answers.iter().filter(|bytes| **bytes > 0).count() as u64;
        let sent = match lock(&self.hand).first_mut() {
            Some(queue) if asked > 0 => self.lent.send(queue, &mut self.answers),
            _ => 0,
        };
        Ok(Served {
            received: self.slots.len() as u64,
            sent,
            refused: asked - sent,
        })
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.shared.port.readiness()
    }

    fn counters(&self) -> RxCounters {
        RxCounters {
            dropped: self.drops().iter().map(|drop| drop.count).sum(),
            system_calls: self.waiting.calls() + self.naps,
            polls: self.waiting.polls(),
            ..self.counters
        }
    }

    fn drops(&self) -> Vec<RxDrop> {
        let row = |reason, source, count| RxDrop {
            reason,
            source,
            count,
        };
        let own = row(
            "no packet buffer",
            "the receiver's own count",
            self.lent.lost(),
        );
        if !self.tells_drops {
            return vec![own];
        }
        let drops = self.shared.port.drops();
        vec![
            row("receive ring full", "the driver's socket", drops.ring_full),
            row(
                "missed by the device",
                "rte_eth_stats imissed",
                drops.missed,
            ),
            row("broken frame", "rte_eth_stats ierrors", drops.errors),
            row(
                "no packet buffer",
                "rte_eth_stats rx_nombuf",
                drops.no_buffer,
            ),
            own,
        ]
    }

    fn caps(&self) -> &RxCaps {
        &self.caps
    }

    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        let shared = Arc::clone(&self.shared);
        let hand = match (shared.deal(), &shared.tap) {
            (Ok(hand), _) => hand,
            // The default device has one ring; another device gets its part of the flows.
            (Err(_), Some(tap)) if tap.is_default => {
                let (device, _) = tap::device(&shared.config)?;
                let (config, tap) = (shared.config.clone(), Some(Arc::clone(tap)));
                return Ok(Box::new(Self::open(&device, shared.options, config, tap)?));
            }
            (Err(error), _) => return Err(error),
        };
        let caps = self.caps.clone();
        Ok(Box::new(Self::with(
            hand,
            shared,
            self.filter.clone(),
            caps,
            false,
        )))
    }
}

impl DpdkShared {
    /// Bytes of the longest frame that may leave. The driver for packet sockets does not know the
    /// interface's MTU, and waits without end behind a longer frame.
    fn sent_bytes_max(&self) -> u32 {
        let own = u32::from(self.port.facts().mtu);
        let mtu = self.tap.as_ref().map_or(own, |tap| tap.mtu.min(own));
        mtu.saturating_add(ETHERNET_BYTES as u32)
    }

    /// Deals the queues out anew, among the existing receivers and one more. Every queue stays with
    /// a receiver, because the device puts packets into all of them.
    fn deal(&self) -> Result<Hand, Error> {
        let mut hands = lock(&self.hands);
        // A receiver that is gone leaves its queues to the others.
        let mut queues = Vec::new();
        for hand in hands.iter() {
            queues.append(&mut lock(hand));
        }
        hands.retain(|hand| Arc::strong_count(hand) > 1);
        let has_more = hands.len() < queues.len();
        if has_more {
            hands.push(Hand::default());
        }
        queues.sort_by_key(RxQueue::number);
        let most = queues.len();
        for (at, queue) in queues.into_iter().enumerate() {
            lock(&hands[at % hands.len()]).push(queue);
        }
        match hands.last() {
            Some(hand) if has_more => Ok(Arc::clone(hand)),
            _ => Err(Error::Invalid {
                field: "share",
                value: (most + 1).to_string(),
                why: format!(
                    "{} has {most} receive queues (see qpairs= and queue_count= of \
                     `ring.arguments`)",
                    self.port.facts().driver
                ),
            }),
        }
    }
}

/// Refuses answers by a device that has no transmit queue for each receive queue: two threads must
/// not send by one.
fn check_answering(config: &RxConfig, facts: &PortFacts) -> Result<(), Error> {
    if !config.answers || facts.tx_queues >= facts.rx_queues {
        return Ok(());
    }
    let why = format!(
        "it has {} transmit queues for {} receive queues",
        facts.tx_queues, facts.rx_queues
    );
    Err(Error::invalid(
        "answers",
        format!("by {}", facts.driver),
        why,
    ))
}

/// The description of the device, and the kernel's treatment of its packets.
fn mode(facts: &PortFacts, tap: Option<&DpdkTap>) -> Mode {
    let kernel = match tap {
        Some(tap) => format!(
            "tap: the kernel handles each packet too, {}",
            tap.port.owner
        ),
        None => "the kernel gets nothing of its queues".to_owned(),
    };
    let summary = format!(
        "DPDK {}, polled, {} queues, {kernel}",
        facts.driver, facts.rx_queues
    );
    let mode = match tap {
        Some(_) => Mode::new(summary).tap(),
        None => Mode::new(summary),
    };
    // Hardware writes into DPDK's own memory. Drivers of software do not show what the kernel
    // granted their sockets.
    mode.with(Property::BusyPoll, !facts.is_virtual)
        .with(Property::ZeroCopy, !facts.is_virtual)
}

/// A panic elsewhere leaves a list of queues as good as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
