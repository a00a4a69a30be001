//! Waiting until an interface can send and receive.

use crate::Error;
use mpps_os::netlink::link;
use std::thread;
use std::time::{Duration, Instant};

/// How long a link may take to come up. igb takes 1.4 s after its rings were made anew, a line
/// between two cards that agree on a speed several seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the kernel is asked.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until the interface has its carrier, and answers how long that took: no time at all if it
/// is there. Many drivers make their rings anew when an XDP program is attached, which takes the
/// link down for a second or more; what is sent meanwhile is lost.
///
/// # Errors
/// [`Error::Invalid`] with a remedy if it does not come within 15 s, or is switched off.
pub fn await_carrier(interface_index: u32) -> Result<Duration, Error> {
    await_for(interface_index, PATIENCE)
}

fn await_for(interface_index: u32, patience: Duration) -> Result<Duration, Error> {
    let began = Instant::now();
    let mut waited = Duration::ZERO;
    loop {
        let link = link::of(interface_index)?;
        if link.carrier {
            return Ok(waited);
        }
        let name = link.name;
        let why = if !link.up {
            format!("it is switched off: `ip link set {name} up` switches it on")
        } else if waited >= patience {
            format!(
                "it had no carrier for {} s: is the line plugged in, and is its other end up? \
                 `ip link show {name}` says NO-CARRIER until it is",
                patience.as_secs()
            )
        } else {
            thread::sleep(LOOK);
            waited = began.elapsed();
            continue;
        };
        return Err(Error::Invalid {
            option: "--interface",
            value: name,
            why,
        });
    }
}
