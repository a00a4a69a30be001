//! What each queue of an interface counted, as the kernel itself tells it.

use super::generic::{Question, u32_of, u64_of};
use crate::Result;

/// The command and attributes of include/uapi/linux/netdev.h.
const STATISTICS_GET: u8 = 12;
const INTERFACE: u16 = 1;
const QUEUE_TYPE: u16 = 2;
const QUEUE: u16 = 3;
const SCOPE: u16 = 4;
const RX_PACKETS: u16 = 8;
/// `NETDEV_QUEUE_TYPE_RX` and `NETDEV_QSTATS_SCOPE_QUEUE`.
const RECEIVE: u32 = 0;
const BY_QUEUE: u64 = 1;

/// The packets of each receive queue of the interface with this number, in the order of the queues
/// (the generic netlink family `netdev`, Linux 6.10).
///
/// # Errors
///
/// `ENOENT` or `EOPNOTSUPP` before Linux 6.10, and where the driver has none; `ENODEV`.
pub fn received(index: u32) -> Result<Vec<(u32, u64)>> {
    let question = Question {
        call: "netlink NETDEV_CMD_QSTATS_GET",
        object: &format!("interface {index}"),
        family: "netdev",
        command: STATISTICS_GET,
        attributes: &[
            (INTERFACE, index.to_ne_bytes().to_vec()),
            (SCOPE, BY_QUEUE.to_ne_bytes().to_vec()),
        ],
    };
    let queues = question.dump()?;
    let mut received: Vec<(u32, u64)> = queues
        .iter()
        .filter(|queue| u32_of(queue, QUEUE_TYPE) == Some(RECEIVE))
        .filter_map(|queue| Some((u32_of(queue, QUEUE)?, u64_of(queue, RX_PACKETS)?)))
        .collect();
    received.sort_unstable();
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_does_not_exist_has_none() {
        received(u32::MAX).expect_err("nobody has this number");
    }
}
