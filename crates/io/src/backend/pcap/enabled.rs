//! The receiver over libpcap. The library lends a frame for the time of a callback, so each is copied
//! once more, into an arena of the receiver.

use super::BACKEND;
use crate::backend::Support;
use crate::backend::answers::FrameAnswers;
use crate::backend::held_port::{HeldPort, ListenedInterface, Neighbour};
use crate::backend::packet_mmap::right_remedy;
use crate::batch::FrameDetails;
use crate::rx::not_opened_to_answer;
use crate::waiting::{self, Awaited, ReceiverWait, Sleep};
use crate::{
    Batch, Error, Layer, Mode, PacketDescriptor, Requests, Rx, RxCaps, RxConfig, RxCounters,
    RxDrop, Served, Wait,
};
use mpps_os::capability::Rights;
use mpps_os::packet_socket::{PacketSocket, close_on_exec};
use mpps_os::poll::Waiter;
use pcap::{Active, Capture, Direction, Linktype};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long libpcap may hold frames back to hand over many at once (`pcap_set_timeout`). Its
/// "immediate mode" would hand over each by itself, from a ring of an older kind (`TPACKET_V2`).
const TIMEOUT_MS: i32 = 1;
/// Frames that the buffer holds, if the user gave no other figure.
const FRAMES: u32 = 8192;
/// The room of a frame in the buffer besides its payload: the ring's header, and those of the
/// frame.
const FRAME_HEADROOM_BYTES: usize = 160;
/// The longest frame there is, of 64 KiB and its headers (`MAXIMUM_SNAPLEN` is 262 144).
const SNAP_BYTES: i32 = 128 << 10;

/// A receiver over one capture handle.
struct PcapRx {
    /// The library's counts are read through `&mut`.
    capture: RefCell<Capture<Active>>,
    /// The library's descriptor once more, to be lent while the library is not borrowed.
    readable: OwnedFd,
    arena: Vec<u8>,
    descriptors: Vec<PacketDescriptor>,
    details: FrameDetails,
    answers: Option<FrameAnswers>,
    waiting: ReceiverWait,
    counters: RxCounters,
    drops: Cell<Drops>,
    caps: RxCaps,
    _port: HeldPort,
}

/// The library's count of drops, widened to 64 bits by its growth.
#[derive(Debug, Clone, Copy)]
struct Drops {
    count: u64,
    seen: u32,
}

pub(super) fn probe() -> Support {
    let Err(error) = PacketSocket::new("probe") else {
        return Support::Yes;
    };
    Support::no(
        error.to_string(),
        right_remedy(&Rights::own(), "cap_net_raw"),
    )
}

pub(super) fn open_rx(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let interface = ListenedInterface::find(config)?;
    if interface.index == 0 {
        let why = "frames of all interfaces have no Ethernet header in libpcap: name one";
        return Err(Error::invalid("ring.interface", "none", why));
    }
    let port = HeldPort::open(config.address, Neighbour::Tolerated)?;
    let frames = config.ring.frames.unwrap_or(FRAMES) as usize;
    let bytes = frames.saturating_mul(config.buffer_bytes + FRAME_HEADROOM_BYTES);
    let filter = (!config.ring.all_traffic).then(|| expression(port.address));
    let mut capture = open(&interface.name, bytes, filter.as_deref())
        .map_err(|error| refusal(&interface.name, &error))?;
    // The library does not do it.
    close_on_exec(capture.as_fd())?;
    let stat = capture
        .stats()
        .map_err(|error| refusal(&interface.name, &error))?;

    let what = if config.ring.all_traffic {
        ", all traffic"
    } else {
        ""
    };
    let mode = format!(
        "libpcap on {}{what}, copied twice; the kernel handles each packet too; {}",
        interface.name, port.owner
    );
    let caps = RxCaps {
        queue: None,
        backend: BACKEND.name,
        layer: Layer::Frame,
        local_address: port.address,
        batch: config.batch,
        buffer_bytes: SNAP_BYTES as usize,
        receive_buffer_bytes: Some(bytes),
        gro: false,
        mode: Mode::new(mode).tap(),
    };
    let answers = config
        .answers
        .then(|| FrameAnswers::open(&interface, config.batch));
    let readable = capture.as_fd().try_clone_to_owned();
    let readable =
        readable.map_err(|error| mpps_os::CallError::new("dup", &interface.name, error))?;
    Ok(Box::new(PcapRx {
        readable,
        capture: RefCell::new(capture),
        arena: Vec::new(),
        descriptors: Vec::with_capacity(config.batch),
        details: FrameDetails::new(config.details, Some(interface.index)),
        answers: answers.transpose()?,
        waiting: ReceiverWait::new(),
        counters: RxCounters::default(),
        // Packets dropped before the filter was there are not ours.
        drops: Cell::new(Drops {
            count: 0,
            seen: stat.dropped,
        }),
        caps,
        _port: port,
    }))
}

/// Opens a handle that takes what comes in and passes the filter. The library begins to receive
/// before the filter is set, and then applies it itself to what is there already.
fn open(
    interface: &str,
    bytes: usize,
    filter: Option<&str>,
) -> Result<Capture<Active>, pcap::Error> {
    let capture = Capture::from_device(interface)?
        .timeout(TIMEOUT_MS)
        .snaplen(SNAP_BYTES)
        .buffer_size(i32::try_from(bytes).unwrap_or(i32::MAX));
    let mut capture = capture.open()?.setnonblock()?;
    let kind = capture.get_datalink();
    if kind != Linktype::ETHERNET {
        let name = kind.get_name().unwrap_or_default();
        let text = format!("its frames are of type {name} and not Ethernet");
        return Err(pcap::Error::PcapError(text));
    }
    capture.direction(Direction::In)?;
    if let Some(filter) = filter {
        capture.filter(filter, true)?;
    }
    Ok(capture)
}

/// The library's filter expression (pcap-filter(7)) for the datagrams to an address: whole ones,
/// because of a fragment only the first has ports.
fn expression(address: SocketAddr) -> String {
    let port = address.port();
    let mut text = match address {
        SocketAddr::V4(_) => format!("ip and udp dst port {port} and ip[6:2] & 0x3fff = 0"),
        SocketAddr::V6(_) => format!("ip6 and udp dst port {port}"),
    };
    if !address.ip().is_unspecified() {
        text.push_str(&format!(" and dst host {}", address.ip()));
    }
    text
}

/// The library's error, as a refusal by the kernel: it keeps no `errno`.
fn refusal(interface: &str, error: &pcap::Error) -> Error {
    mpps_os::CallError::new("libpcap", interface, io::Error::other(error.to_string())).into()
}

impl PcapRx {
    /// Copies what is there into the arena; true if there is something.
    fn read(&mut self) -> io::Result<bool> {
        let (arena, descriptors) = (&mut self.arena, &mut self.descriptors);
        arena.clear();
        descriptors.clear();
        self.counters.system_calls += 1;
        let capture = self.capture.get_mut();
        let taken = capture.dispatch(Some(self.caps.batch), |packet| {
            descriptors.push(PacketDescriptor {
                // At most 1024 frames of 128 KiB: 2^27 bytes.
                offset: arena.len() as u32,
                bytes: packet.data.len() as u32,
                wire_bytes: packet.header.len,
                segment_bytes: 0,
            });
            arena.extend_from_slice(packet.data);
        });
        match taken {
            Ok(_) | Err(pcap::Error::TimeoutExpired) => Ok(!descriptors.is_empty()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    /// Frames that found no room in the buffer.
    fn dropped(&self) -> u64 {
        let mut drops = self.drops.get();
        if let Ok(stat) = self.capture.borrow_mut().stats() {
            drops.count += u64::from(stat.dropped.wrapping_sub(drops.seen));
            drops.seen = stat.dropped;
            self.drops.set(drops);
        }
        drops.count
    }
}

impl Awaited for PcapRx {
    fn state(&mut self) -> (&mut ReceiverWait, &RxCounters, usize) {
        (&mut self.waiting, &self.counters, self.caps.batch)
    }

    fn look(&mut self) -> io::Result<bool> {
        self.read()
    }

    fn sleep(&mut self, waiter: &mut Waiter, how: Sleep, time: Duration) -> io::Result<bool> {
        how.on(waiter, self.readable.as_fd(), time)
    }
}

// It is not shared: another handle would get every packet once more.
impl Rx for PcapRx {
    fn recv(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        waiting::until(self, wait)?;
        let batch = Batch::new(&self.arena, &self.descriptors);
        let batch = batch.with_headers(&mut self.details);
        self.counters.add(&batch);
        Ok(batch)
    }

    fn serve(&mut self, wait: Wait, answer: &mut dyn FnMut(Requests<'_>)) -> io::Result<Served> {
        if self.answers.is_none() {
            return Err(not_opened_to_answer());
        }
        waiting::until(self, wait)?;
        let batch = Batch::new(&self.arena, &self.descriptors);
        self.counters.add(&batch);
        let answers = self.answers.as_mut().ok_or_else(not_opened_to_answer)?;
        answers.serve(&batch, answer, wait)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.readable.as_fd())
    }

    fn counters(&self) -> RxCounters {
        RxCounters {
            dropped: self.dropped(),
            system_calls: self.counters.system_calls + self.waiting.calls(),
            polls: self.waiting.polls(),
            ..self.counters
        }
    }

    fn drops(&self) -> Vec<RxDrop> {
        vec![RxDrop {
            reason: "capture buffer full",
            source: "pcap_stats ps_drop",
            count: self.dropped(),
        }]
    }

    fn caps(&self) -> &RxCaps {
        &self.caps
    }
}

impl fmt::Debug for PcapRx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("PcapRx");
        debug.field("caps", &self.caps).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_understands_the_filters() {
        let capture = Capture::dead(Linktype::ETHERNET).unwrap();
        for address in ["127.0.0.1:9", "0.0.0.0:9", "[::1]:9", "[::]:9"] {
            let text = expression(address.parse().unwrap());
            assert!(capture.compile(&text, true).is_ok(), "{text}");
        }
        let text = expression("10.0.0.1:53".parse().unwrap());
        assert!(text.contains("dst host 10.0.0.1") && text.contains("port 53"));
    }
}
