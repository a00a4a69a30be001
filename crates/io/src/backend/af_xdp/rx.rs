//! Receiving: one receiver per queue, all under one XDP program.

#![allow(
    unsafe_code,
    reason = "packets are lent from memory that the kernel fills"
)]

use super::driving::{self, FLUSH_TIMEOUT, PAUSE_MAX, SEND_TIMEOUT};
use super::interface::XdpInterface;
use super::peers::XdpPeers;
use super::port_counts::PortCounts;
use super::steering::{FlowSteering, metadata};
use super::tx_queue::Out;
use super::{BACKEND, busy_poll, explain, socket_config};
use crate::backend::answers::refuse_loopback;
use crate::backend::held_port::{HeldPort, Neighbour};
use crate::batch::FrameDetails;
use crate::carrier::outlast;
use crate::requests::{PacketSlot, Requests};
use crate::rx::not_opened_to_answer;
use crate::waiting::{self, Awaited, ReceiverWait, Sleep};
use crate::wire::ETHERNET_BYTES;
use crate::xdp_switch::XdpSwitch;
use crate::{
    Batch, CopyMode, Error, Layer, Mode, PacketDescriptor, Property, Queue, Rx, RxCaps, RxConfig,
    RxCounters, RxDrop, SendError, Sent, Served, Transmit, Wait,
};
use mpps_os::poll::Waiter;
use mpps_os::text::ShellWord;
use mpps_os::xdp::{HEADROOM_BYTES, Receiver, SocketConfig};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a spinning receiver looks at the ring between two looks at the clock.
const SPINS: u32 = 64;

pub(super) fn open(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    if config.ring.forward_to.is_some() && !config.answers {
        let why = "frames leave from `Rx::serve`: set `RxConfig::answers`";
        return Err(Error::invalid("ring.forward_to", "without answers", why));
    }
    let busy_poll = busy_poll(config.busy_poll_us)?;
    let interface = XdpInterface::find(config.address.ip(), &config.ring)?;
    if config.answers {
        refuse_loopback(interface.index)?;
    }
    let first = config.ring.queue.unwrap_or(0);
    check_queue(&interface, first)?;
    // A configuration that cannot work is refused before anything is opened.
    socket_config(&config.ring, &interface, first, HEADROOM_BYTES)?;
    let mut config = config.clone();
    let port = hold_port(&config, interface.index)?;
    if let Some(port) = &port {
        config.address = port.address;
    }
    let steering = FlowSteering::open(&config, &interface)?;
    if !steering.is_native() {
        config.ring.copy = Some(generic_copies(config.ring.copy, &interface)?);
    }
    let shared = Arc::new(XdpShared {
        queues: interface.queues(),
        steering,
        port,
        next_queue: AtomicU32::new(first + 1),
        busy_poll,
        interface,
        config,
    });
    Ok(Box::new(XdpRx::open(shared, first, true)?))
}

/// Only a program in the driver puts packets into a zero-copy socket. A driver that has zero-copy
/// would grant it to a socket under a generic program too, and then hand over nothing (virtio_net),
/// or copies that are not called so (igb).
fn generic_copies(wanted: Option<CopyMode>, interface: &XdpInterface) -> Result<CopyMode, Error> {
    if wanted != Some(CopyMode::ZeroCopy) {
        return Ok(CopyMode::Copy);
    }
    let why = format!(
        "the XDP program of {} runs behind the driver (generic XDP), where the kernel has copied \
             each packet already; zero-copy needs a program in the driver (`ring.attach` native)",
        interface.name
    );
    Err(Error::invalid("ring.copy", "zero", why))
}

/// Holds the port, so that the kernel can choose one and no other program takes it, and joins the
/// groups. Packets of the flow that came by a queue without a receiver end there: the XDP program
/// passes them on. Nothing is held if all traffic is taken, or if another program decides what is.
fn hold_port(config: &RxConfig, interface_index: u32) -> Result<Option<HeldPort>, Error> {
    let others = config.ring.all_traffic || config.ring.sockets.is_some();
    if others && config.groups.is_empty() && !config.errors {
        return Ok(None);
    }
    let port = HeldPort::open(config.address, Neighbour::Refused)?;
    port.join(&config.groups, interface_index)?;
    if config.errors {
        port.keep_errors()?;
    }
    Ok(Some(port))
}

/// Refuses busy polling that the kernel would accept and never do. Until Linux 6.12 a socket learnt
/// which NAPI context to poll from its first packet. From 6.13 on it learns it when it is bound, if
/// the driver names it (`xsk_bind` in net/xdp/xsk.c).
fn check_polling(
    receiver: &Receiver,
    interface: &XdpInterface,
    queue: u32,
    time_us: u32,
) -> Result<(), Error> {
    let is_late = release().is_some_and(|release| release >= (6, 13));
    if !is_late || receiver.napi_id()?.is_some() {
        return Ok(());
    }
    let why = format!(
        "the kernel cannot poll queue {queue} of {}: its driver does not say which NAPI context \
             serves it; leave the option out, or use `Wait::Spin`",
        interface.name
    );
    Err(Error::invalid("busy_poll_us", time_us, why))
}

/// The kernel's release, as far as it is two numbers: `6.18`.
fn release() -> Option<(u32, u32)> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The common part of the receivers of all queues. Dropping the last of them closes the program's
/// link, which detaches it; so does the end of the process.
#[derive(Debug)]
struct XdpShared {
    steering: FlowSteering,
    port: Option<HeldPort>,
    /// The queue of the next receiver.
    next_queue: AtomicU32,
    busy_poll: Option<mpps_os::xdp::WakePolling>,
    interface: XdpInterface,
    queues: Vec<Queue>,
    config: RxConfig,
}

impl XdpShared {
    /// The packets that ended at the held port; none if no socket of ours has it.
    fn port_counts(&self) -> Option<PortCounts> {
        let dropped = self.port.as_ref()?.dropped()?;
        // Read after it: a frame on its way to the port is not taken for one past the ring.
        let unclaimed = self.steering.unclaimed(self.interface.rx_queues);
        Some(PortCounts {
            unclaimed: unclaimed.unwrap_or(0),
            dropped,
        })
    }

    /// The same to begin with, where what is on its way has arrived.
    fn first_port_counts(&self) -> Option<PortCounts> {
        let (before, later) = (self.port_counts()?, self.port_counts()?);
        Some(PortCounts {
            dropped: later.dropped,
            ..before
        })
    }

    fn details(&self, receiver: &Receiver) -> FrameDetails {
        let wanted = self.config.details;
        let mut details = FrameDetails::new(wanted, Some(self.interface.index));
        if !metadata(&wanted).is_empty() {
            details.metadata_end = receiver.frames_end();
        }
        details
    }

    /// How a socket works, in words.
    fn summary(&self, socket: &SocketConfig<'_>, is_zero_copy: bool) -> String {
        format!(
            "{}, {}, {}, {}, {} frames{}{}",
            self.steering.summary(),
            if is_zero_copy { "zero-copy" } else { "copy" },
            match self.busy_poll {
                Some(_) => "preferred busy polling",
                None => "wake-ups on demand",
            },
            self.queues[socket.queue as usize],
            socket.frames,
            if socket.adapts && !is_zero_copy {
                ", filled as needed"
            } else {
                ""
            },
            if socket.hugepages {
                " in huge pages"
            } else {
                ""
            },
        )
    }
}

/// The receiver of one queue.
#[derive(Debug)]
struct XdpRx {
    receiver: Receiver,
    waiting: ReceiverWait,
    /// Calls to the driver.
    wakes: u64,
    descriptors: Vec<PacketDescriptor>,
    slots: Vec<PacketSlot>,
    /// Bytes of a frame, and of the longest that may be sent.
    frame_bytes: u32,
    sent_bytes_max: u32,
    is_zero_copy: bool,
    /// True if frames may leave by another interface.
    may_forward: bool,
    /// Held while the other interface's driver needs it to transmit.
    _switch: Option<XdpSwitch>,
    details: FrameDetails,
    /// Those that frames are sent to unasked, if there is a ring to send by.
    peers: Option<XdpPeers>,
    counters: RxCounters,
    caps: RxCaps,
    /// Frames of its queue that were left to the kernel before this receiver was there.
    passed_before: u64,
    /// The first receiver reports the packets that ended at the held port, which all share. Before
    /// it could receive, nothing was past its ring.
    port_before: Option<PortCounts>,
    shared: Arc<XdpShared>,
}

impl XdpRx {
    fn open(shared: Arc<XdpShared>, queue: u32, is_first: bool) -> Result<Self, Error> {
        let XdpShared {
            config, interface, ..
        } = &*shared;
        let mut socket = socket_config(&config.ring, interface, queue, HEADROOM_BYTES)?;
        if config.answers {
            check_answering(interface, queue, socket.frames)?;
        }
        socket.adapts = config.ring.frames.is_none();
        socket.transmits = config.answers;
        let out = Out::find(&config.ring, queue)?;
        socket.forwards = out.as_ref().map(Out::place);
        let mut receiver = Receiver::open(&socket, shared.busy_poll);
        // Two interfaces of one memory copy both or neither, and one of them may have to.
        if receiver.is_err() && out.is_some() && socket.zero_copy.is_none() {
            socket.zero_copy = Some(false);
            receiver = Receiver::open(&socket, shared.busy_poll);
        }
        let receiver = receiver.map_err(|error| explain(error, &socket))?;
        if let Some(busy_poll) = shared.busy_poll {
            check_polling(&receiver, interface, queue, busy_poll.time_us)?;
        }
        shared.steering.bind(queue, receiver.as_fd())?;
        let is_native = shared.steering.is_native();
        let is_zero_copy = receiver.is_zero_copy()?;
        let summary = shared.summary(&socket, is_zero_copy);
        let mode = Mode::new(summary)
            .with(Property::Native, is_native)
            .with(Property::ZeroCopy, is_zero_copy)
            .with(Property::BusyPoll, shared.busy_poll.is_some());
        let buffer_bytes = if socket.segments {
            interface.frame_bytes_max()
        } else {
            socket.frame_bytes - HEADROOM_BYTES
        };
        let caps = RxCaps {
            queue: shared.queues.get(queue as usize).cloned(),
            backend: BACKEND.name,
            layer: Layer::Frame,
            local_address: config.address,
            batch: config.batch,
            buffer_bytes: buffer_bytes as usize,
            receive_buffer_bytes: None,
            gro: false,
            mode,
        };
        // A copying socket sends as any other does, and needs no program there.
        let zero_copy_out = out.as_ref().filter(|_| is_zero_copy);
        let switch = zero_copy_out.map(|out| XdpSwitch::on(out.interface.index));
        let mtu = out.as_ref().map_or(u32::MAX, |out| out.interface.mtu);
        let mtu = mtu.min(interface.mtu);
        Ok(Self {
            details: shared.details(&receiver),
            receiver,
            waiting: ReceiverWait::polling(config.busy_poll_us),
            wakes: 0,
            descriptors: Vec::with_capacity(config.batch),
            slots: Vec::new(),
            frame_bytes: socket.frame_bytes,
            sent_bytes_max: mtu.saturating_add(ETHERNET_BYTES as u32),
            is_zero_copy,
            may_forward: out.is_some(),
            _switch: switch.transpose()?,
            peers: XdpPeers::of(config, interface),
            counters: RxCounters::default(),
            caps,
            passed_before: shared.steering.passed_on(queue).unwrap_or(0),
            port_before: is_first.then(|| shared.first_port_counts()).flatten(),
            shared,
        })
    }

    /// Frames of its queue that were left to the kernel since it was opened.
    fn passed_on(&self) -> Option<u64> {
        let queue = self.caps.queue.as_ref()?.number;
        let now = self.shared.steering.passed_on(queue)?;
        Some(now.saturating_sub(self.passed_before))
    }

    /// Gives the last batch back and takes what has arrived. False if that is nothing.
    #[inline]
    fn take(&mut self) -> bool {
        let descriptors = &mut self.descriptors;
        descriptors.clear();
        let taken = self.receiver.receive(self.caps.batch, |offset, bytes| {
            descriptors.push(PacketDescriptor {
                offset,
                bytes,
                wire_bytes: bytes,
                segment_bytes: 0,
            });
        });
        taken > 0
    }

    /// Sends what the last batch was answered with; `time` is how long the kernel may have no room.
    fn send_answers(&mut self, time: Duration) -> io::Result<Served> {
        let answers = self.slots.iter().filter_map(|slot| {
            let bytes = slot.answer.filter(|bytes| *bytes <= slot.room)?;
            Some((slot.offset, bytes, usize::from(slot.forward)))
        });
        let sent = u64::from(self.receiver.send(answers));
        let asked = self.slots.iter().filter(|slot| slot.answer.is_some());
        let asked = asked.count() as u64;
        let is_forwarded = self.slots.iter().any(|slot| slot.forward);
        let dropped = self.drain(time, is_forwarded)?;
        let sent = sent.saturating_sub(dropped);
        Ok(Served {
            received: self.slots.len() as u64,
            sent,
            refused: asked.saturating_sub(sent),
        })
    }

    /// Lets the kernel send the frames on their way out; returns how many packets the device
    /// dropped meanwhile. An error of the other interface counts only if `is_forwarded`. An error
    /// of one interface does not keep the other from sending.
    fn drain(&mut self, time: Duration, is_forwarded: bool) -> io::Result<u64> {
        let (mut dropped, mut drained) = (0, Ok(()));
        for (at, way) in self.receiver.ways().iter().enumerate() {
            if way.pending() == 0 {
                continue;
            }
            let deadline = Instant::now() + time;
            let (zero_copy, calls) = (self.is_zero_copy, &mut self.wakes);
            let one = driving::drain(way, zero_copy, deadline, calls, &mut dropped);
            if at == 0 || is_forwarded {
                drained = drained.and(one);
            }
        }
        drained.map(|()| dropped)
    }

    /// True if something is in a transmit ring that only a call sends.
    fn has_unsent(&self) -> bool {
        let mut ways = self.receiver.ways().iter();
        ways.any(|way| way.pending() > 0 && (!self.is_zero_copy || way.needs_wakeup()))
    }

    /// Receives, true if something came. As long as earlier answers found no room it tries those
    /// again. A client that waits for them may send nothing more, and then nothing would wake the
    /// kernel.
    fn recv_and_send(&mut self, wait: Wait) -> io::Result<bool> {
        if !self.has_unsent() {
            return self.wait_for(wait);
        }
        let begun = Instant::now();
        loop {
            self.drain(Duration::ZERO, false)?;
            let left = wait.time().saturating_sub(begun.elapsed());
            let is_unsent = self.has_unsent();
            let most = if is_unsent { left.min(PAUSE_MAX) } else { left };
            if self.wait_for(wait.at_most(most))? {
                return Ok(true);
            }
            if !is_unsent || left <= most {
                return Ok(false);
            }
        }
    }

    fn wait_for(&mut self, wait: Wait) -> io::Result<bool> {
        let came = waiting::until(self, wait)?;
        // A caller that waits by other means than this call may be about to.
        if !came {
            self.receiver.give_all();
        }
        Ok(came)
    }

    /// Puts a datagram into the ring, or each of a train. False without room; none if it cannot leave as
    /// frames.
    fn push(&mut self, one: &Transmit<'_>) -> Option<bool> {
        let peers = self.peers.as_mut().filter(|_| one.time.is_none())?;
        let step = match one.segment_bytes {
            None | Some(0) => one.payload.len(),
            Some(bytes) => bytes.into(),
        };
        let count = one.payload.len().div_ceil(step.max(1)).max(1);
        // The first is the longest.
        let mut headers = peers.headers(one, step.min(one.payload.len()))?;
        let fits = headers.frame_bytes() <= self.frame_bytes as usize;
        if !fits || count > self.receiver.room_max() {
            return None;
        }
        if self.receiver.room() < count {
            return Some(false);
        }
        for at in 0..count {
            let rest = &one.payload[at * step..];
            let payload = &rest[..rest.len().min(step)];
            if payload.len() < step {
                headers = peers.headers(one, payload.len())?;
            }
            self.receiver.push(|frame| {
                headers.write(frame, 0, payload);
                headers.frame_bytes()
            });
        }
        Some(true)
    }

    /// Calls the driver if it has to be called: to poll the device, or for the frames given back. True if
    /// it did.
    fn drive(&mut self) -> io::Result<bool> {
        let has_to = self.shared.busy_poll.is_some() || self.receiver.needs_wakeup();
        if has_to {
            self.wake()?;
        }
        Ok(has_to)
    }

    /// The port that datagrams leave from.
    fn port(&self) -> io::Result<&HeldPort> {
        let why = "with `ring.all_traffic` or `ring.sockets` no port is held to send from";
        let none = || io::Error::new(io::ErrorKind::Unsupported, why);
        self.shared.port.as_ref().ok_or_else(none)
    }

    /// Calls the driver; an error if the interface is gone.
    fn wake(&mut self) -> io::Result<()> {
        self.wakes += 1;
        outlast(self.receiver.wake(), &self.shared.interface.name)
    }
}

impl Awaited for XdpRx {
    fn state(&mut self) -> (&mut ReceiverWait, &RxCounters, usize) {
        (&mut self.waiting, &self.counters, self.caps.batch)
    }

    fn look(&mut self) -> io::Result<bool> {
        if self.take() {
            return Ok(true);
        }
        Ok(self.drive()? && self.take())
    }

    fn sleep(&mut self, waiter: &mut Waiter, how: Sleep, time: Duration) -> io::Result<bool> {
        self.receiver.give_all();
        how.on(waiter, self.receiver.as_fd(), time)
    }

    /// The device is gone or down, and a call says so.
    fn woken_for_nothing(&mut self) -> io::Result<()> {
        self.wake()
    }

    /// Looks at the ring for a while; with busy polling only a call brings something.
    fn pause(&mut self) {
        if self.shared.busy_poll.is_some() {
            return;
        }
        for _ in 0..SPINS {
            if self.receiver.is_ready() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// The kernel wakes no process when the interface goes away: only a call reports it.
    fn give_up(&mut self) -> io::Result<()> {
        self.wake()
    }
}

impl Drop for XdpRx {
    /// Answers are sent before the socket closes, as far as the kernel lets it. A zero-copy driver
    /// works on behind the call.
    fn drop(&mut self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        while self.receiver.is_sending() && self.drain(SEND_TIMEOUT, true).is_ok() {
            if !self.is_zero_copy || Instant::now() >= deadline {
                return;
            }
            thread::sleep(PAUSE_MAX);
        }
    }
}

impl Rx for XdpRx {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        self.recv_and_send(wait)?;
        let (memory, memory_bytes) = self.receiver.memory();
        // SAFETY: the descriptors are those of the last `Receiver::receive`, whose packets lie in
        // that memory and stay untouched until the next one, which needs `&mut self`, and so the
        // end of this batch.
        let batch = unsafe { Batch::from_raw(memory, memory_bytes, &self.descriptors) };
        let batch = batch.with_headers(&mut self.details);
        self.counters.add(&batch);
        Ok(batch)
    }

    fn serve(&mut self, wait: Wait, answer: &mut dyn FnMut(Requests<'_>)) -> io::Result<Served> {
        if !self.shared.config.answers {
            return Err(not_opened_to_answer());
        }
        if !self.recv_and_send(wait)? {
            return Ok(Served::default());
        }
        self.counters.add(&Batch::new(&[], &self.descriptors));
        let (memory, memory_bytes) = self.receiver.memory();
        let (frame_bytes, most) = (self.frame_bytes, self.sent_bytes_max);
        let end = self.receiver.frames_end();
        self.slots.clear();
        self.slots.extend(self.descriptors.iter().map(|descriptor| {
            let left = frame_bytes - descriptor.offset % frame_bytes;
            // A packet put together from pieces lies behind the frames, and is not answered.
            let is_frame = (descriptor.offset as usize) < end;
            PacketSlot {
                may_forward: self.may_forward,
                ..PacketSlot::new(descriptor, if is_frame { left.min(most) } else { 0 })
            }
        }));
        // SAFETY: the descriptors are those of the last `Receiver::receive`. No other code touches
        // their packets until the next one or `send_back`. Each lies in a frame of its own, with
        // room up to the frame's end. Or it lies behind all frames, one after the other and without
        // room.
        let requests =
            unsafe { Requests::from_raw(memory, memory_bytes, Layer::Frame, &mut self.slots) };
        answer(requests);
        self.send_answers(wait.send_timeout())
    }

    fn transmit(&mut self, transmits: &[Transmit<'_>]) -> io::Result<Sent> {
        if self.peers.is_none() {
            return self.port()?.transmit(transmits);
        }
        let mut sent = Sent::default();
        for one in transmits {
            let offered = match (self.push(one), &self.shared.port) {
                (Some(pushed), _) => [u64::from(pushed), 0],
                (None, Some(port)) => {
                    let sent = port.transmit(slice::from_ref(one))?;
                    [sent.accepted, sent.refused]
                }
                (None, None) => [0, 1],
            };
            if offered == [0, 0] {
                break;
            }
            sent.accepted += offered[0];
            sent.refused += offered[1];
        }
        self.receiver.publish();
        let dropped = self.drain(Duration::ZERO, false)?.min(sent.accepted);
        sent.accepted -= dropped;
        sent.refused += dropped;
        Ok(sent)
    }

    fn errors(&mut self) -> io::Result<Vec<SendError>> {
        self.port()?.errors()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.as_fd())
    }

    fn counters(&self) -> RxCounters {
        RxCounters {
            dropped: self.drops().iter().map(|drop| drop.count).sum(),
            system_calls: self.wakes + self.waiting.calls(),
            polls: self.waiting.polls(),
            fill_depth: self.receiver.fill_depth(),
            passed_on: self.passed_on(),
            ..self.counters
        }
    }

    fn drops(&self) -> Vec<RxDrop> {
        // A bound socket answers always.
        let statistics = self.receiver.statistics().unwrap_or_default();
        let mut drops = vec![
            RxDrop {
                reason: "no free frame, or longer than one",
                source: "XDP_STATISTICS rx_dropped",
                count: statistics.rx_dropped,
            },
            RxDrop {
                reason: "receive ring full",
                source: "XDP_STATISTICS rx_ring_full",
                count: statistics.rx_ring_full,
            },
        ];
        if let Some((before, now)) = self.port_before.zip(self.shared.port_counts()) {
            let [queues, past] = now.causes(before);
            drops.push(RxDrop {
                reason: RxDrop::OTHER_QUEUE,
                source: "SO_MEMINFO drops of the socket that holds the port",
                count: queues,
            });
            drops.push(RxDrop {
                reason: RxDrop::PAST_RING,
                source: "SO_MEMINFO drops of the socket that holds the port, beyond the frames of other \
                         queues",
                count: past,
            });
        }
        drops
    }

    fn caps(&self) -> &RxCaps {
        &self.caps
    }

    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        let queue = self.shared.next_queue.fetch_add(1, Ordering::Relaxed);
        check_queue(&self.shared.interface, queue)?;
        Ok(Box::new(Self::open(
            Arc::clone(&self.shared),
            queue,
            false,
        )?))
    }
}

fn check_queue(interface: &XdpInterface, queue: u32) -> Result<(), Error> {
    let XdpInterface {
        name, rx_queues, ..
    } = interface;
    if queue < *rx_queues {
        return Ok(());
    }
    let why = format!(
        "{name} has {rx_queues} receive queues, 0 to {}, and a receiver takes one of its own; \
             for more queues: ethtool -L {}",
        rx_queues.saturating_sub(1),
        ShellWord::new(name)
    );
    Err(Error::invalid("ring.queue", queue, why))
}

/// Refuses a queue without a transmit queue of its number: the kernel would take the answers and never
/// send them (`__xsk_generic_xmit`, net/xdp/xsk.c).
fn check_answering(interface: &XdpInterface, queue: u32, frames: u32) -> Result<(), Error> {
    // While one leaves another has to be there for what comes.
    if frames < 2 {
        let why = "a receiver that answers has 2 frames or more";
        return Err(Error::invalid("ring.frames", frames, why));
    }
    let XdpInterface {
        name, tx_queues, ..
    } = interface;
    if queue < *tx_queues {
        return Ok(());
    }
    let why = format!(
        "{name} has {tx_queues} transmit queues, and an answer leaves by the queue of the number \
             that its question came by"
    );
    Err(Error::invalid("answers", format!("by queue {queue}"), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_is_copy_and_never_anything_else() {
        for wanted in [None, Some(CopyMode::Copy)] {
            let granted = generic_copies(wanted, &XdpInterface::named("eth1", 1500));
            assert_eq!(granted.ok(), Some(CopyMode::Copy));
        }
        let refused = generic_copies(Some(CopyMode::ZeroCopy), &XdpInterface::named("eth1", 1500))
            .unwrap_err();
        assert!(refused.to_string().contains("generic XDP"), "{refused}");
    }
}
