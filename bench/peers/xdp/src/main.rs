//! Echo and drop on `xdp`. `aya` attaches an XDP program that hands every frame of the queue to the
//! socket.

#![allow(unsafe_code, reason = "the rings of xdp are unsafe to use")]

use aya::maps::XskMap;
use aya::programs::xdp::{Xdp, XdpMode};
use aya::{Ebpf, include_bytes_aligned};
use peer_common::{Args, Mode, PATIENCE, Run};
use std::error::Error;
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::time::Duration;
use xdp::nic::NicIndex;
use xdp::packet::net_types::{IpHdr, UdpHeaders};
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{PollTimeout, XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{CompletionRing, WakableFillRing, WakableTxRing};
use xdp::{Packet, RingConfigBuilder, RxRing, Umem};

const FRAMES: u32 = 4096;
const BATCH: usize = 64;
const WAIT: PollTimeout = PollTimeout::new(Some(PATIENCE));
const NO_WAIT: PollTimeout = PollTimeout::new(Some(Duration::ZERO));

struct Xsk {
    socket: XdpSocket,
    umem: Umem,
    fill: WakableFillRing,
    completed: CompletionRing,
    rx: RxRing,
    tx: WakableTxRing,
    received: HeapSlab,
    answers: HeapSlab,
    /// Frames that the kernel has not sent, or not reported as sent.
    in_flight: usize,
    /// Keeps the XDP program attached.
    _program: Ebpf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse()?;
    let mut xsk = Xsk::open(&args.interface)?;
    let run = Run::start("xdp", &args)?;
    while run.goes_on() {
        let (received, sent) = match args.mode {
            Mode::Echo => xsk.echo(args.address.port())?,
            Mode::Drop => (xsk.discard()?, 0),
        };
        run.add(received as u64, sent as u64);
    }
    run.finish()
}

impl Xsk {
    fn open(interface: &str) -> Result<Self, Box<dyn Error>> {
        let nic =
            NicIndex::lookup_by_name(&CString::new(interface)?)?.ok_or("no such interface")?;
        let umem_config = UmemCfgBuilder {
            frame_size: FrameSize::TwoK,
            frame_count: FRAMES,
            ..UmemCfgBuilder::default()
        };
        let mut umem = Umem::map(umem_config.build()?)?;
        let ring_config = RingConfigBuilder {
            rx_count: FRAMES,
            tx_count: FRAMES,
            fill_count: FRAMES,
            completion_count: FRAMES,
        };
        let mut builder = XdpSocketBuilder::new()?;
        let (rings, flags) = builder.build_wakable_rings(&umem, ring_config.build()?)?;
        let socket = builder.bind(nic, 0, flags)?;
        let mut fill = rings.fill_ring;
        // SAFETY: the memory lives as long as the socket, by `Self`.
        unsafe { fill.enqueue(&mut umem, FRAMES as usize, false)? };
        Ok(Self {
            _program: attach(interface, &socket)?,
            socket,
            umem,
            fill,
            completed: rings.completion_ring,
            rx: rings.rx_ring.ok_or("no receive ring")?,
            tx: rings.tx_ring.ok_or("no transmit ring")?,
            received: HeapSlab::with_capacity(BATCH),
            answers: HeapSlab::with_capacity(BATCH),
            in_flight: 0,
        })
    }

    /// Counts frames and gives them back.
    fn discard(&mut self) -> io::Result<usize> {
        let received = self.receive()?;
        while let Some(packet) = self.received.pop_back() {
            self.umem.free_packet(packet);
        }
        self.refill(received)?;
        Ok(received)
    }

    /// Sends datagrams back from where they lie. Returns the numbers of datagrams received and
    /// sent.
    fn echo(&mut self, port: u16) -> io::Result<(usize, usize)> {
        self.reclaim()?;
        let received = self.receive()?;
        while let Some(mut packet) = self.received.pop_back() {
            if turn_around(&mut packet, port).is_some() {
                self.answers.push_front(packet);
            } else {
                self.umem.free_packet(packet);
            }
        }
        let answers = self.answers.len();
        self.refill(received - answers)?;
        // SAFETY: the memory lives as long as the socket, by `Self`.
        let sent = unsafe { self.tx.send(&mut self.answers, true) };
        if let Err(error) = sent
            && !is_busy(&error)
        {
            return Err(error);
        }
        let sent = answers - self.answers.len();
        self.in_flight += sent;
        Ok((answers, sent))
    }

    fn receive(&mut self) -> io::Result<usize> {
        // SAFETY: the packets leave the slab before the memory goes, by `Self`.
        let received = unsafe { self.rx.recv(&self.umem, &mut self.received) };
        if received == 0 {
            // While answers wait to be sent, only further polls send them.
            self.socket
                .poll_read(if self.in_flight == 0 { WAIT } else { NO_WAIT })?;
        }
        Ok(received)
    }

    /// Gives the driver as many frames as came back.
    fn refill(&mut self, frames: usize) -> io::Result<usize> {
        // SAFETY: the memory lives as long as the socket, by `Self`. The driver of a socket that
        // copies needs no call.
        unsafe { self.fill.enqueue(&mut self.umem, frames, false) }
    }

    /// Gives back the frames that were sent, and makes the kernel send the rest. One call sends 32
    /// if the kernel copies, and only a poll makes it go on.
    fn reclaim(&mut self) -> io::Result<()> {
        if self.in_flight > 0 {
            self.socket.poll_write(NO_WAIT)?;
            let sent = self.completed.dequeue(&mut self.umem, self.in_flight);
            self.in_flight -= sent;
            self.refill(sent)?;
        }
        Ok(())
    }
}

/// Attaches the XDP program, and enters the socket for queue 0.
fn attach(interface: &str, socket: &XdpSocket) -> Result<Ebpf, Box<dyn Error>> {
    let mut object = Ebpf::load(include_bytes_aligned!(concat!(
        env!("OUT_DIR"),
        "/redirect.o"
    )))?;
    let program: &mut Xdp = object
        .program_mut("redirect")
        .ok_or("no program")?
        .try_into()?;
    program.load()?;
    program.attach(interface, XdpMode::Driver)?;
    let mut sockets = XskMap::try_from(object.map_mut("SOCKETS").ok_or("no map")?)?;
    sockets.set(0, socket.raw_fd(), 0)?;
    Ok(object)
}

/// The frames are in the ring, but the kernel has not sent them all, or dropped one.
fn is_busy(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::ResourceBusy
    )
}

/// Makes an answer of an IPv4 datagram to a port. Returns none for any other frame. The checksum of
/// the datagram stays right: it does not depend on the order of addresses and ports.
fn turn_around(packet: &mut Packet, port: u16) -> Option<()> {
    let mut headers = UdpHeaders::parse_packet(packet).ok()??;
    if headers.udp.destination.host() != port || !matches!(headers.ip, IpHdr::V4(_)) {
        return None;
    }
    headers.eth = headers.eth.swapped();
    headers.ip = headers.ip.swapped();
    headers.udp = headers.udp.swapped();
    headers.set_packet_headers(packet).ok()
}
