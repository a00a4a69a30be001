//! A receiving socket that several threads read.

use crate::RxDrop;
use mpps_os::socket::UdpSocket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A socket with its drops widened to 64 bits, for all threads that read it.
#[derive(Debug)]
pub(super) struct SharedSocket {
    socket: UdpSocket,
    dropped: Mutex<u64>,
    /// `SO_RCVTIMEO`, set once: to change it would change how long the other threads wait.
    timeout: OnceLock<Duration>,
}

impl SharedSocket {
    pub(super) fn new(socket: UdpSocket) -> Self {
        Self {
            socket,
            dropped: Mutex::new(0),
            timeout: OnceLock::new(),
        }
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// True if a receive sleeps for this time by itself. The first time that was wanted is set in
    /// the socket, so that waiting for it costs no call.
    pub(super) fn has_timeout(&self, wanted: Duration) -> io::Result<bool> {
        // A time that rounds to zero microseconds would mean "no limit" (SO_RCVTIMEO, socket(7)).
        if wanted.as_micros() == 0 {
            return Ok(false);
        }
        let mut set = Ok(());
        let timeout = self.timeout.get_or_init(|| {
            set = self.socket.set_receive_timeout(wanted);
            wanted
        });
        set.map_err(|error| error.source)?;
        Ok(*timeout == wanted)
    }

    /// Drops since the socket was opened. The kernel's count has 32 bits; it is widened by its
    /// growth since the last look, so it must be looked at once in 4 billion drops.
    pub(super) fn dropped(&self) -> u64 {
        // Held across the look, so that no thread widens by a count older than the known one.
        let mut known = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(memory) = self.socket.memory() {
            *known += u64::from(memory.drops.wrapping_sub(*known as u32));
        }
        *known
    }

    /// The same as the one row that a socket has.
    pub(super) fn drops(&self) -> Vec<RxDrop> {
        vec![RxDrop {
            reason: RxDrop::AT_SOCKET,
            source: "SO_MEMINFO drops",
            count: self.dropped(),
        }]
    }
}

impl AsFd for SharedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
