//! The rate of the link between the two hosts, if the user limits it.

use anyhow::{Context, Result};
use mpps_lab::Lab;
use mpps_os::netlink::qdisc;
use std::fmt;

/// Bytes that wait for the link at most: more than all connections send at once. TCP's own limits
/// hold, and nothing is dropped, which would cost a connection up to a second.
const WAITING_BYTES: u32 = 1 << 30;
/// The smallest burst: two full frames and some.
const BURST_BYTES_MIN: u64 = 4 << 10;
/// A burst takes this part of a second: a timer of the kernel may be late by less.
const BURSTS_PER_SECOND: u64 = 1000;

/// Bits per second in each direction, of frames with their Ethernet headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkRate(pub(crate) u64);

impl LinkRate {
    /// Limits both directions of a lab's link.
    pub(super) fn apply(self, lab: &Lab) -> Result<()> {
        let (rate, burst) = (self.0 / 8, self.burst_bytes());
        for host in [lab.sender(), lab.receiver()] {
            let index = host.interface_index();
            host.run(|| qdisc::limit_rate(index, rate, burst, WAITING_BYTES))?
                .with_context(|| format!("--link-rate: {self}"))?;
        }
        Ok(())
    }

    fn burst_bytes(self) -> u32 {
        let burst = (self.0 / 8 / BURSTS_PER_SECOND).max(BURST_BYTES_MIN);
        u32::try_from(burst).unwrap_or(u32::MAX)
    }

    /// The share that bytes in this time are.
    pub(super) fn share(self, bytes: i64, seconds: f64) -> f64 {
        bytes as f64 * 8.0 / seconds.max(f64::MIN_POSITIVE) / self.0 as f64
    }

    /// The limit in a sentence.
    pub(super) fn note(self) -> String {
        format!(
            "--link-rate: each direction of the link carries {self} at most, Ethernet headers \
             included (tbf, bursts of {} bytes); the rest waits",
            self.burst_bytes()
        )
    }
}

/// `100 Mbit/s`.
impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s", self.0 as f64 / 1e6)
    }
}
