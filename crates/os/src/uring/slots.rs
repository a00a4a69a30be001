//! Whether a kernel closes the sockets in a ring's slots in time.

use super::stream_ring::{CompletedCall, StreamOptions, StreamRing};
use crate::{CallError, CallResult};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

/// Whether the socket in a slot is closed when its close is answered.
///
/// Before Linux 6.13 the kernel kept a socket that was taken out of its slot. It waited until every
/// earlier request about any slot was over (`io_rsrc_node_ref_zero`, io_uring/rsrc.c). With a
/// request that waits, such as an accept, the peers of closed sockets never saw their end.
///
/// # Errors
/// There is no ring, or a limit of the process allows no trial: nothing is known of the kernel
/// then.
pub fn closes_slots() -> CallResult<bool> {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    match ANSWER.get() {
        Some(answer) => Ok(*answer),
        None => super::apart(try_to_close).map(|answer| *ANSWER.get_or_init(|| answer)),
    }
}

/// Closes a slot behind a request that waits, and looks whether the peer sees it.
fn try_to_close() -> CallResult<bool> {
    let failed = |error: io::Error| CallError::new("socketpair", "a slot", error);
    let (waiting, _silent) = UnixStream::pair().map_err(failed)?;
    let (closed, mut peer) = UnixStream::pair().map_err(failed)?;
    peer.set_nonblocking(true).map_err(failed)?;
    let mut ring = StreamRing::new(&StreamOptions::default())?;
    let waiting = ring.adopt(waiting.as_fd())?;
    let slot = ring.adopt(closed.as_fd())?;
    drop(closed);
    ring.poll_readable(0, &waiting);
    ring.close(1, slot);
    loop {
        ring.wait(1, None).map_err(failed)?;
        while let Some(event) = ring.next() {
            if let CompletedCall::Closed(done) = event.outcome {
                done.map_err(failed)?;
                return Ok(matches!(peer.read(&mut [0]), Ok(0)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the probe against the release that changed this.
    #[test]
    fn a_closed_slot_is_closed_from_linux_6_13_on() {
        if crate::uring::probe().is_err() {
            return;
        }
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let numbers: Vec<u32> = release
            .split(['.', '-'])
            .map_while(|number| number.parse().ok())
            .collect();
        assert_eq!(closes_slots().unwrap(), numbers >= vec![6, 13], "{release}");
    }
}
