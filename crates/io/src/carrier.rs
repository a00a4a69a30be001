//! Waiting until an interface can send and receive.

use crate::Error;
use mpps_os::netlink::link;
use mpps_os::text::ShellWord;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How long a link may take to come up. igb takes 1.4 s after its rings were made anew, a line
/// between two cards that agree on a speed several seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// Of include/uapi/asm-generic/errno-base.h and errno.h.
const ENXIO: i32 = 6;
const ENETDOWN: i32 = 100;
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

/// Turns the kernel's answer about the interface `name` into a receiver's. An interface that is
/// down comes up again, and the kernel then goes on with its rings: that is no error.
///
/// # Errors
/// An interface that is gone, by its name; any other error as it is.
pub(crate) fn outlast(answer: io::Result<()>, name: &str) -> io::Result<()> {
    match answer.as_ref().map_err(io::Error::raw_os_error) {
        Err(Some(ENETDOWN)) => Ok(()),
        Err(Some(ENXIO)) => Err(io::Error::other(format!(
            "{name} is gone: its driver gave the card back, or it was deleted or moved to another \
             network namespace; `ip link` shows what is there, and a new receiver can read it"
        ))),
        _ => answer,
    }
}

fn await_for(interface_index: u32, patience: Duration) -> Result<Duration, Error> {
    let began = Instant::now();
    let mut waited = Duration::ZERO;
    loop {
        let link = link::of(interface_index)?;
        if link.carrier {
            return Ok(waited);
        }
        let word = ShellWord::new(&link.name);
        let why = if !link.up {
            format!("it is switched off: `ip link set dev {word} up` switches it on")
        } else if waited >= patience {
            format!(
                "it had no carrier for {} s: is the line plugged in, and is its other end up? \
                 `ip link show dev {word}` says NO-CARRIER until it is",
                patience.as_secs()
            )
        } else {
            thread::sleep(LOOK);
            waited = began.elapsed();
            continue;
        };
        return Err(Error::invalid("ring.interface", link.name, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_down_is_outlasted_and_one_that_is_gone_is_named() {
        let answer = |errno| outlast(Err(io::Error::from_raw_os_error(errno)), "eth1");
        assert!(outlast(Ok(()), "eth1").is_ok() && answer(ENETDOWN).is_ok());
        let gone = answer(ENXIO).unwrap_err().to_string();
        assert!(gone.starts_with("eth1 is gone"), "{gone}");
        assert_eq!(answer(1).unwrap_err().raw_os_error(), Some(1));
    }
}
