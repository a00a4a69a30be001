//! The receiver: lends frames straight out of the ring's blocks.

use super::BACKEND;
use super::tap::PacketTap;
use crate::backend::answers::FrameAnswers;
use crate::batch::FrameDetails;
use crate::carrier::outlast;
use crate::rx::not_opened_to_answer;
use crate::waiting::{self, Awaited, ReceiverWait, Sleep};
use crate::{
    Batch, Error, Layer, PacketDescriptor, Requests, Rx, RxCaps, RxConfig, RxCounters, RxDrop,
    SendError, Sent, Served, Transmit, Wait, WantedDetails,
};
use mpps_os::packet_socket::{PacketRxRing, PacketStatistics, RxFrame};
use mpps_os::poll::Waiter;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A receiver over one ring, the only one on its tap or a member of a group.
#[derive(Debug)]
struct PacketRx {
    ring: PacketRxRing,
    tap: Arc<PacketTap>,
    descriptors: Vec<PacketDescriptor>,
    details: FrameDetails,
    answers: Option<FrameAnswers>,
    waiting: ReceiverWait,
    counters: RxCounters,
    /// The kernel's counts up to the last look; a look sets its own counts to zero.
    statistics: Cell<PacketStatistics>,
    /// The first receiver reports the drops at the held port, which all share.
    port_before: Option<u64>,
    caps: RxCaps,
}

pub(super) fn open(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let (tap, ring) = PacketTap::open(config)?;
    let caps = RxCaps {
        queue: None,
        backend: BACKEND.name,
        layer: Layer::Frame,
        local_address: tap.address,
        batch: config.batch,
        buffer_bytes: ring.frame_bytes_max(),
        receive_buffer_bytes: Some(tap.size.bytes()),
        gro: false,
        mode: tap.mode.clone(),
    };
    let asked = (config.details, config.answers);
    let mut rx = PacketRx::new(ring, Arc::new(tap), caps, asked)?;
    rx.port_before = rx.tap.taken_port_drops();
    Ok(Box::new(rx))
}

impl PacketRx {
    fn new(
        ring: PacketRxRing,
        tap: Arc<PacketTap>,
        caps: RxCaps,
        (details, answers): (WantedDetails, bool),
    ) -> Result<Self, Error> {
        let answers = answers.then(|| FrameAnswers::open(&tap.interface, caps.batch));
        // All interfaces have no index of their own.
        let interface = Some(tap.interface.index).filter(|index| *index != 0);
        Ok(Self {
            answers: answers.transpose()?,
            details: FrameDetails::new(details, interface),
            ring,
            tap,
            descriptors: Vec::with_capacity(caps.batch),
            waiting: ReceiverWait::new(),
            counters: RxCounters::default(),
            statistics: Cell::default(),
            port_before: None,
            caps,
        })
    }

    /// Reads what is there into `descriptors`; true if there is something.
    #[inline]
    fn read(&mut self) -> bool {
        let (descriptors, details) = (&mut self.descriptors, &mut self.details);
        descriptors.clear();
        details.times.clear();
        let frames = self.ring.read(self.caps.batch, |frame| {
            descriptors.push(descriptor(frame));
            if details.wanted.time {
                details.times.push(SystemTime::UNIX_EPOCH + frame.time);
            }
        });
        frames > 0
    }

    /// Clears what waits on the socket; an error if nothing can come any more.
    fn outlast(&self) -> io::Result<()> {
        outlast(self.ring.socket().pending_error(), &self.tap.interface.name)
    }

    /// The kernel's counts from the opening of the receiver on.
    fn statistics(&self) -> PacketStatistics {
        let mut sum = self.statistics.get();
        if let Ok(more) = self.ring.socket().take_statistics() {
            sum.frames += more.frames;
            sum.drops += more.drops;
            sum.freezes += more.freezes;
            self.statistics.set(sum);
        }
        sum
    }
}

impl Awaited for PacketRx {
    fn state(&mut self) -> (&mut ReceiverWait, &RxCounters, usize) {
        (&mut self.waiting, &self.counters, self.caps.batch)
    }

    fn look(&mut self) -> io::Result<bool> {
        Ok(self.read())
    }

    fn sleep(&mut self, waiter: &mut Waiter, how: Sleep, time: Duration) -> io::Result<bool> {
        how.on(waiter, self.ring.socket().as_fd(), time)
    }

    /// An error waits, and would wake us again at once.
    fn woken_for_nothing(&mut self) -> io::Result<()> {
        self.outlast()
    }

    fn give_up(&mut self) -> io::Result<()> {
        self.outlast()
    }
}

impl Rx for PacketRx {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        waiting::until(self, wait)?;
        let batch = Batch::new(self.ring.block(), &self.descriptors);
        let batch = batch.with_headers(&mut self.details);
        self.counters.add(&batch);
        Ok(batch)
    }

    fn serve(&mut self, wait: Wait, answer: &mut dyn FnMut(Requests<'_>)) -> io::Result<Served> {
        if self.answers.is_none() {
            return Err(not_opened_to_answer());
        }
        waiting::until(self, wait)?;
        let batch = Batch::new(self.ring.block(), &self.descriptors);
        self.counters.add(&batch);
        let answers = self.answers.as_mut().ok_or_else(not_opened_to_answer)?;
        answers.serve(&batch, answer, wait)
    }

    fn transmit(&mut self, transmits: &[Transmit<'_>]) -> io::Result<Sent> {
        self.tap.port.transmit(transmits)
    }

    fn errors(&mut self) -> io::Result<Vec<SendError>> {
        self.tap.port.errors()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.socket().as_fd())
    }

    fn counters(&self) -> RxCounters {
        RxCounters {
            dropped: self.drops().iter().map(|drop| drop.count).sum(),
            system_calls: self.waiting.calls(),
            polls: self.waiting.polls(),
            ..self.counters
        }
    }

    fn drops(&self) -> Vec<RxDrop> {
        let mut drops = vec![RxDrop {
            reason: "receive ring full",
            source: "PACKET_STATISTICS tp_drops",
            count: self.statistics().drops,
        }];
        // The copy of each frame that a tap takes is dropped in front of the port.
        if let Some((before, now)) = self.port_before.zip(self.tap.taken_port_drops()) {
            drops.push(RxDrop {
                reason: RxDrop::PAST_RING,
                source: "SO_MEMINFO drops of the socket that holds the port",
                count: now.saturating_sub(before),
            });
        }
        drops
    }

    fn caps(&self) -> &RxCaps {
        &self.caps
    }

    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        let ring = self.tap.join(self.ring.socket())?;
        let asked = (self.details.wanted, self.answers.is_some());
        let tap = Arc::clone(&self.tap);
        Ok(Box::new(Self::new(ring, tap, self.caps.clone(), asked)?))
    }
}

#[inline]
fn descriptor(frame: RxFrame) -> PacketDescriptor {
    PacketDescriptor {
        offset: frame.offset,
        bytes: frame.bytes,
        wire_bytes: frame.wire_bytes,
        segment_bytes: 0,
    }
}
