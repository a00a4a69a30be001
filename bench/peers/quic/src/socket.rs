//! The socket: receives trains, and sends them from where they lie.

use mpps_io::{Layer, Rx, RxConfig, Wait, backend};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Trains that quinn takes at a time (`BATCH_SIZE` of quinn-udp).
const BATCH: usize = 32;
/// Segments of a train that is sent: before Linux 6.9 the kernel takes 64.
const SEGMENTS: usize = 64;

/// A UDP socket of `mpps-io`, for [`quinn::Endpoint::new_with_abstract_socket`].
pub struct QuicSocket {
    receiving: Arc<Mutex<Box<dyn Rx>>>,
    /// Another one on the same socket, so that neither waits for the other; of a ring the same one.
    sending: Arc<Mutex<Box<dyn Rx>>>,
    readiness: AsyncFd<OwnedFd>,
    address: SocketAddr,
}

impl QuicSocket {
    /// Binds an address.
    ///
    /// # Errors
    /// The backend has no descriptor to wait for, or refuses the address; outside of a tokio runtime.
    #[allow(
        deprecated,
        reason = "the descriptor is owned; what replaces it is unsafe for others"
    )]
    pub fn bind(backend: &str, address: SocketAddr) -> io::Result<Arc<Self>> {
        let backend = backend::find(backend).map_err(io::Error::other)?;
        let mut config = match backend.layer {
            Layer::Payload => RxConfig::new(address).with_gro(),
            Layer::Frame => RxConfig::new(address),
        };
        // Of a ring, to send past the kernel's stack.
        config.answers = backend.layer == Layer::Frame;
        config.batch = BATCH;
        config.details.source = true;
        config.details.local = true;
        config.details.traffic_class = true;
        let receiving = backend.open_rx(&config).map_err(io::Error::other)?;
        let descriptor = receiving.readiness().ok_or(io::ErrorKind::Unsupported)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        let readiness = AsyncFd::with_interest(descriptor.try_clone_to_owned()?, both)?;
        let address = receiving.caps().local_address;
        let other = match backend.layer {
            Layer::Payload => Some(receiving.share().map_err(io::Error::other)?),
            Layer::Frame => None,
        };
        let receiving = Arc::new(Mutex::new(receiving));
        Ok(Arc::new(Self {
            sending: other.map_or(Arc::clone(&receiving), |rx| Arc::new(Mutex::new(rx))),
            receiving,
            readiness,
            address,
        }))
    }
}

fn lock(rx: &Mutex<Box<dyn Rx>>) -> MutexGuard<'_, Box<dyn Rx>> {
    rx.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes what is there into quinn's buffers; how many trains that were. None if nothing was there.
fn take(
    rx: &mut dyn Rx,
    buffers: &mut [IoSliceMut<'_>],
    meta: &mut [RecvMeta],
) -> io::Result<Option<usize>> {
    let mut taken = 0;
    let batch = rx.recv(Wait::Block(Duration::ZERO))?;
    let mut rooms = buffers.iter_mut().zip(meta);
    for packet in batch.trains().filter(|packet| !packet.is_truncated()) {
        let details = packet.details.copied().unwrap_or_default();
        let (Some(address), Some(payload)) = (details.source, packet.payload()) else {
            continue;
        };
        let Some((buffer, meta)) = rooms.next() else {
            break;
        };
        let bytes = payload.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&payload[..bytes]);
        let mut came = RecvMeta::default();
        came.addr = address;
        came.len = bytes;
        came.stride = match packet.segment_bytes {
            0 => bytes,
            segment => segment.into(),
        };
        came.ecn = details.ecn().and_then(EcnCodepoint::from_bits);
        came.dst_ip = details.local;
        *meta = came;
        taken += 1;
    }
    Ok((!batch.is_empty()).then_some(taken))
}

impl AsyncUdpSocket for QuicSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller {
            socket: self,
            waiting: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let mut one = mpps_io::Transmit::new(transmit.destination, transmit.contents);
        one.segment_bytes = transmit
            .segment_size
            .and_then(|bytes| bytes.try_into().ok());
        one.source = transmit.src_ip;
        one.traffic_class = transmit.ecn.map(|ecn| ecn as u8);
        // A datagram that the kernel refuses is a lost one, to QUIC.
        self.readiness.try_io(Interest::WRITABLE, |_| {
            match lock(&self.sending).transmit(&[one])?.offered() {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        })
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.readiness.poll_read_ready(context))?;
            match take(&mut **lock(&self.receiving), buffers, meta)? {
                None => ready.clear_ready(),
                Some(0) => {}
                Some(taken) => return Poll::Ready(Ok(taken)),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn max_transmit_segments(&self) -> usize {
        SEGMENTS
    }

    fn max_receive_segments(&self) -> usize {
        SEGMENTS
    }
}

impl fmt::Debug for QuicSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuicSocket({})", self.address)
    }
}

type Waiting = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// Waits for room to send; several may.
struct Poller {
    socket: Arc<QuicSocket>,
    waiting: Option<Waiting>,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Arc::clone(&self.socket);
        let waiting = self.waiting.get_or_insert_with(|| {
            Box::pin(async move { socket.readiness.writable().await.map(|_| ()) })
        });
        let answer = ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        Poll::Ready(answer)
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Poller({:?})", self.socket)
    }
}
