//! The receiver: lends frames straight out of the ring's blocks.

use super::BACKEND;
use super::tap::Tap;
use crate::{Batch, Descriptor, Error, Layer, Rx, RxCaps, RxConfig, RxCounters, RxDrop, Wait};
use mpps_os::packet_socket::{PacketStatistics, RxFrame, RxRing};
use mpps_os::poll::Waiter;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A year is longer than any wait, and every clock can hold it.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A receiver over one ring, alone on its tap or a member of a group.
#[derive(Debug)]
struct PacketRx {
    ring: RxRing,
    tap: Arc<Tap>,
    descriptors: Vec<Descriptor>,
    sources: Option<Vec<Option<SocketAddr>>>,
    waiter: Waiter,
    counters: RxCounters,
    /// What the kernel counted up to the last look; a look sets its own counts to zero.
    statistics: Cell<PacketStatistics>,
    caps: RxCaps,
}

pub(super) fn open(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let (tap, ring) = Tap::open(config)?;
    let caps = RxCaps {
        backend: BACKEND.name,
        layer: Layer::Frame,
        local_address: tap.address,
        batch: config.batch,
        buffer_bytes: ring.frame_bytes_max(),
        receive_buffer_bytes: Some(tap.size.bytes()),
        gro: false,
        mode: tap.mode.clone(),
    };
    let rx = PacketRx::new(ring, Arc::new(tap), caps, config.sources);
    Ok(Box::new(rx))
}

impl PacketRx {
    fn new(ring: RxRing, tap: Arc<Tap>, caps: RxCaps, sources: bool) -> Self {
        Self {
            ring,
            tap,
            descriptors: Vec::with_capacity(caps.batch),
            sources: sources.then(|| Vec::with_capacity(caps.batch)),
            waiter: Waiter::new(),
            counters: RxCounters::default(),
            statistics: Cell::default(),
            caps,
        }
    }

    /// Reads what is there into `descriptors`; true if there is something.
    #[inline]
    fn read(&mut self) -> bool {
        let descriptors = &mut self.descriptors;
        descriptors.clear();
        let frames = self.ring.read(self.caps.batch, |frame| {
            descriptors.push(descriptor(frame));
        });
        frames > 0
    }

    /// Waits until there is something to read, or the time is over.
    fn wait(&mut self, wait: Wait) -> io::Result<()> {
        let (Wait::Block(time) | Wait::Spin(time) | Wait::Epoll(time)) = wait else {
            return Ok(());
        };
        let deadline = Instant::now() + time.min(WAIT_MAX);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let fd = self.ring.socket().as_fd();
            let woken = match wait {
                Wait::Block(_) => self.waiter.poll(fd, left),
                Wait::Epoll(_) => self.waiter.epoll(fd, left),
                Wait::Poll | Wait::Spin(_) => {
                    std::hint::spin_loop();
                    Ok(false)
                }
            };
            let woken = match woken {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                woken => woken?,
            };
            if self.read() {
                return Ok(());
            }
            if woken {
                // Woken for nothing: an error waits, and would wake us again at once.
                self.ring.socket().pending_error()?;
            }
        }
    }

    /// What the kernel counted since the receiver was opened.
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

impl Rx for PacketRx {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        if !self.read() {
            self.wait(wait)?;
            self.counters.system_calls = self.waiter.calls();
        }
        let batch = Batch::new(self.ring.block(), &self.descriptors);
        let batch = batch.with_frames_sources(&mut self.sources);
        self.counters.add(&batch);
        Ok(batch)
    }

    fn counters(&self) -> RxCounters {
        RxCounters {
            dropped: self.statistics().drops,
            ..self.counters
        }
    }

    fn drops(&self) -> Vec<RxDrop> {
        vec![RxDrop {
            reason: "receive ring full",
            source: "PACKET_STATISTICS tp_drops",
            count: self.statistics().drops,
        }]
    }

    fn caps(&self) -> &RxCaps {
        &self.caps
    }

    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        let ring = self.tap.join(self.ring.socket())?;
        let sources = self.sources.is_some();
        let tap = Arc::clone(&self.tap);
        Ok(Box::new(Self::new(ring, tap, self.caps.clone(), sources)))
    }
}

#[inline]
fn descriptor(frame: RxFrame) -> Descriptor {
    Descriptor {
        offset: frame.offset,
        bytes: frame.bytes,
        wire_bytes: frame.wire_bytes,
        segment_bytes: 0,
    }
}
