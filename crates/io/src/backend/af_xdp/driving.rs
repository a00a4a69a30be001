//! Making the kernel send what is in a transmit ring.

use super::errno::{EAGAIN, EBUSY, EINTR, ENOBUFS, ENOMEM};
use mpps_os::xdp::{Receiver, Sender};
use std::io;
use std::time::{Duration, Instant};

/// How long the kernel may have no room, as of the socket backends.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_millis(5);
/// How long it is slept at a time.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(1);

/// A socket with a transmit ring.
pub(super) trait Transmits {
    /// Packets that the kernel has not taken yet.
    fn pending(&self) -> u32;
    /// True if it sends nothing until it is called.
    fn needs_kick(&self) -> bool;
    /// Calls it.
    fn kick(&self) -> io::Result<()>;
    /// Waits until it may have room.
    fn wait(&self, time: Duration) -> io::Result<()>;
}

impl Transmits for Sender {
    fn pending(&self) -> u32 {
        self.pending()
    }

    fn needs_kick(&self) -> bool {
        self.needs_wakeup()
    }

    fn kick(&self) -> io::Result<()> {
        self.kick()
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        self.wait(time)
    }
}

impl Transmits for Receiver {
    fn pending(&self) -> u32 {
        self.pending()
    }

    fn needs_kick(&self) -> bool {
        self.needs_kick()
    }

    fn kick(&self) -> io::Result<()> {
        self.kick()
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        self.wait_for_room(time)
    }
}

/// Lets the kernel send what is in the ring, until it has taken everything or the time is up. Adds
/// to `dropped` the packets that the device dropped in the kernel's hands, and to `calls` the system
/// calls.
pub(super) fn drain(
    port: &impl Transmits,
    is_zero_copy: bool,
    deadline: Instant,
    calls: &mut u64,
    dropped: &mut u64,
) -> io::Result<()> {
    loop {
        let before = port.pending();
        // A driver that is at work takes the rest without being called.
        if before == 0 || is_zero_copy && !port.needs_kick() {
            return Ok(());
        }
        *calls += 1;
        match port.kick().map_err(|error| (error.raw_os_error(), error)) {
            Err((Some(EBUSY), _)) if !is_zero_copy => {
                *dropped += 1;
                continue;
            }
            Ok(()) | Err((Some(EAGAIN | EBUSY | ENOBUFS | ENOMEM | EINTR), _)) => {}
            Err((_, error)) => return Err(error),
        }
        if port.pending() < before {
            continue;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || is_zero_copy {
            return Ok(());
        }
        pause(port, left, calls)?;
    }
}

/// Sleeps until the kernel may have room. A stopped device queue wakes nobody, hence the limit.
pub(super) fn pause(port: &impl Transmits, left: Duration, calls: &mut u64) -> io::Result<()> {
    *calls += 1;
    match port.wait(left.min(PAUSE_MAX)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        waited => waited,
    }
}
