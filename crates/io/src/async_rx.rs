//! A receiver in a tokio runtime.

use crate::{Batch, Requests, Rx, Served, Wait};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::coop::consume_budget;

/// A packet socket whose interface went down is not readable, but has an error.
const READY: Interest = Interest::READABLE.add(Interest::ERROR);
/// Looks once, and asks whether the interface is still there if nothing came.
const LOOK: Wait = Wait::Block(Duration::ZERO);

/// A receiver whose waits are those of a tokio runtime.
///
/// ```
/// use mpps_io::{AsyncRx, RxConfig, backend};
/// # use std::net::UdpSocket;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
/// # runtime.block_on(async {
/// let rx = backend::find("recvmmsg")?.open_rx(&RxConfig::new("127.0.0.1:0".parse()?))?;
/// # UdpSocket::bind("127.0.0.1:0")?.send_to(b"hello", rx.caps().local_address)?;
/// let mut rx = AsyncRx::new(rx)?;
/// let mut datagrams = 0;
/// while datagrams == 0 {
///     datagrams += rx.recv().await?.datagrams();
/// }
/// assert_eq!(datagrams, 1);
/// # Ok(())
/// # })
/// # }
/// ```
///
/// The backend `io_uring` keeps a ring for the thread that receives, and makes it anew when another
/// one does: leave such a task on one thread (a `current_thread` runtime, or a `LocalSet`).
#[derive(Debug)]
pub struct AsyncRx {
    // Leaves the runtime before the receiver closes what it is a copy of.
    readable: AsyncFd<OwnedFd>,
    rx: Box<dyn Rx>,
}

impl AsyncRx {
    /// Registers a receiver with the runtime that this is called in.
    ///
    /// # Errors
    /// `Unsupported` if the receiver has no [`Rx::readiness`]; an error outside of a runtime;
    /// `EMFILE` if descriptors ran out.
    ///
    /// # Panics
    /// In a runtime without I/O (`enable_io`), as [`AsyncFd`] does.
    pub fn new(rx: Box<dyn Rx>) -> io::Result<Self> {
        let Some(fd) = rx.readiness() else {
            let why = format!("{} has nothing to wait for", rx.caps().backend);
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        let fd = fd.as_fd().try_clone_to_owned()?;
        Handle::try_current().map_err(io::Error::other)?;
        #[allow(
            deprecated,
            reason = "it asks of its argument what the type of this one, which owns its descriptor, \
                      promises"
        )]
        let readable = AsyncFd::with_interest(fd, READY)?;
        Ok(Self { readable, rx })
    }

    /// Waits for packets and lends them. The batch may be empty: then nothing was there after all, and
    /// the next call waits. A call that is dropped while it waits has taken nothing.
    ///
    /// # Errors
    /// As [`Rx::recv`].
    pub async fn recv(&mut self) -> io::Result<Batch<'_>> {
        consume_budget().await;
        let mut ready = self.readable.ready(READY).await?;
        let batch = self.rx.recv(LOOK)?;
        if batch.is_empty() {
            ready.clear_ready();
        }
        Ok(batch)
    }

    /// Waits for packets, and answers them as [`Rx::serve`]; at least one came. A call that is
    /// dropped while it waits has taken nothing.
    ///
    /// # Errors
    /// As [`Rx::serve`].
    pub async fn serve(
        &mut self,
        mut answer: impl FnMut(Requests<'_>) + Send,
    ) -> io::Result<Served> {
        loop {
            consume_budget().await;
            let mut ready = self.readable.ready(READY).await?;
            let served = self.rx.serve(LOOK, &mut answer)?;
            if served.received > 0 {
                return Ok(served);
            }
            ready.clear_ready();
        }
    }

    /// The receiver, for its counters and what it is.
    pub fn rx(&self) -> &dyn Rx {
        &*self.rx
    }

    /// The receiver, to send from ([`Rx::transmit`]) or to look at once. Only a receive reports that the interface of an AF_XDP
    /// receiver went down or away; it ends no wait.
    pub fn rx_mut(&mut self) -> &mut dyn Rx {
        &mut *self.rx
    }

    /// Takes the receiver out of the runtime.
    pub fn into_inner(self) -> Box<dyn Rx> {
        self.rx
    }
}
