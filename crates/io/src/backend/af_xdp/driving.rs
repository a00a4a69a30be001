//! Making the kernel send what is in a transmit ring.

use super::errno::{EAGAIN, EBUSY, EINTR, ENOBUFS, ENOMEM};
use mpps_os::xdp::Transmitter;
use std::io;
use std::time::{Duration, Instant};

pub(super) use crate::rx::SEND_TIMEOUT;

/// How long a driver may take for what is left at the end.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_millis(100);
/// How long it is slept at a time.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(1);

/// Lets the kernel send what is in the ring, until it has taken everything or the time is up. Adds
/// to `dropped` the packets that the device dropped in the kernel's hands, and to `calls` the system
/// calls.
pub(super) fn drain(
    way: &Transmitter,
    is_zero_copy: bool,
    deadline: Instant,
    calls: &mut u64,
    dropped: &mut u64,
) -> io::Result<()> {
    loop {
        let before = way.pending();
        // A driver that is at work takes the rest without being called.
        if before == 0 || is_zero_copy && !way.needs_wakeup() {
            return Ok(());
        }
        *calls += 1;
        match way.kick().map_err(|error| (error.raw_os_error(), error)) {
            Err((Some(EBUSY), _)) if !is_zero_copy => {
                *dropped += 1;
                continue;
            }
            Ok(()) | Err((Some(EAGAIN | EBUSY | ENOBUFS | ENOMEM | EINTR), _)) => {}
            Err((_, error)) => return Err(error),
        }
        if way.pending() < before {
            continue;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || is_zero_copy {
            return Ok(());
        }
        pause(way, left, calls)?;
    }
}

/// Sleeps until the kernel may have room. A stopped device queue wakes no process, hence the limit.
pub(super) fn pause(way: &Transmitter, left: Duration, calls: &mut u64) -> io::Result<()> {
    *calls += 1;
    match way.wait(left.min(PAUSE_MAX)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        waited => waited,
    }
}
