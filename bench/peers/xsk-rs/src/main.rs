//! Echo and drop on `xsk-rs`. libxdp attaches an XDP program that hands every frame of the queue to
//! the socket.

#![allow(unsafe_code, reason = "every queue of xsk-rs is unsafe to use")]

use peer_common::{Args, Mode, PATIENCE, Run};
use std::error::Error;
use std::io;
use xsk_rs::config::{BindFlags, SocketConfig, UmemConfig, XdpFlags};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, Socket, TxQueue, Umem};

const FRAMES: u32 = 4096;
const BATCH: usize = 64;

struct Xsk {
    umem: Umem,
    fill: FillQueue,
    completed: CompQueue,
    rx: RxQueue,
    tx: TxQueue,
    batch: [FrameDesc; BATCH],
    sent: [FrameDesc; BATCH],
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse()?;
    let mut xsk = Xsk::open(&args.interface)?;
    let run = Run::start("xsk-rs", &args)?;
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
        let umem_config = UmemConfig::builder()
            .frame_size(2048.try_into()?)
            .fill_queue_size(FRAMES.try_into()?)
            .comp_queue_size(FRAMES.try_into()?)
            .build()?;
        let (umem, frames) = Umem::new(umem_config, FRAMES.try_into()?, false)?;
        let config = SocketConfig::builder()
            .rx_queue_size(FRAMES.try_into()?)
            .tx_queue_size(FRAMES.try_into()?)
            .xdp_flags(XdpFlags::XDP_FLAGS_DRV_MODE)
            .bind_flags(BindFlags::XDP_USE_NEED_WAKEUP)
            .build();
        // SAFETY: the memory is that of no other socket.
        let (tx, rx, rings) = unsafe { Socket::new(config, &umem, &interface.parse()?, 0)? };
        let (mut fill, completed) = rings.ok_or("no fill and completion queue")?;
        // SAFETY: the frames are of this memory, and in no other queue yet.
        unsafe { fill.produce(&frames) };
        Ok(Self {
            umem,
            fill,
            completed,
            rx,
            tx,
            batch: [FrameDesc::default(); BATCH],
            sent: [FrameDesc::default(); BATCH],
        })
    }

    /// Counts frames and gives them back.
    fn discard(&mut self) -> io::Result<usize> {
        let received = self.receive()?;
        // SAFETY: the frames were just received, and are in no other queue.
        unsafe {
            self.fill
                .produce_and_wakeup(&self.batch[..received], self.rx.fd_mut(), 0)?
        };
        Ok(received)
    }

    /// Sends datagrams back from where they lie. Returns the numbers of datagrams received and
    /// sent.
    fn echo(&mut self, port: u16) -> io::Result<(usize, usize)> {
        self.reclaim()?;
        let received = self.receive()?;
        let mut answers = 0;
        for at in 0..received {
            // SAFETY: the frame was just received, so that the kernel does not touch it.
            let mut frame = unsafe { self.umem.data_mut(&mut self.batch[at]) };
            if turn_around(frame.contents_mut(), port).is_some() {
                self.batch.swap(answers, at);
                answers += 1;
            }
        }
        // SAFETY: as in `discard`; each frame goes to one of the two queues.
        let sent = unsafe {
            self.fill
                .produce_and_wakeup(&self.batch[answers..received], self.rx.fd_mut(), 0)?;
            self.tx.produce(&self.batch[..answers])
        };
        // One call sends 32 frames where the kernel copies.
        while self.tx.nb_free_exact() < FRAMES && self.tx.needs_wakeup() {
            self.tx.wakeup()?;
        }
        Ok((answers, sent))
    }

    fn receive(&mut self) -> io::Result<usize> {
        // SAFETY: the descriptors are overwritten by those of this socket's frames.
        let received = unsafe { self.rx.consume(&mut self.batch) };
        if received == 0 {
            self.rx.poll(PATIENCE.as_millis() as i32)?;
        }
        Ok(received)
    }

    /// Gives back the frames that were sent.
    fn reclaim(&mut self) -> io::Result<()> {
        loop {
            // SAFETY: as in `receive`, and the frames go to one queue only.
            let sent = unsafe {
                let sent = self.completed.consume(&mut self.sent);
                self.fill
                    .produce_and_wakeup(&self.sent[..sent], self.rx.fd_mut(), 0)?;
                sent
            };
            if sent < BATCH {
                return Ok(());
            }
        }
    }
}

/// Makes an answer of an IPv4 datagram to a port. Returns none for any other frame. The checksums
/// stay right: they do not depend on the order of addresses and ports.
fn turn_around(frame: &mut [u8], port: u16) -> Option<()> {
    let ip_bytes = usize::from(frame.get(14)? & 0x0f) * 4;
    let udp = 14 + ip_bytes;
    let is_wanted = frame.get(12..14)? == [0x08, 0x00]
        && frame.get(23)? == &17
        && ip_bytes >= 20
        && frame.get(udp + 2..udp + 4)? == port.to_be_bytes();
    if !is_wanted || frame.len() < udp + 8 {
        return None;
    }
    let mut swap = |at: usize, bytes: usize| {
        let (one, other) = frame[at..at + 2 * bytes].split_at_mut(bytes);
        one.swap_with_slice(other);
    };
    swap(0, 6);
    swap(26, 4);
    swap(udp, 2);
    Some(())
}
