//! The counters of each queue of an interface, as reported by the kernel.

use super::generic::{Attributes, Question, u32_of, u64_of};
use crate::CallResult;
use std::collections::BTreeMap;

/// The command and attributes of include/uapi/linux/netdev.h.
const STATISTICS_GET: u8 = 12;
const INTERFACE: u16 = 1;
const QUEUE_TYPE: u16 = 2;
const QUEUE: u16 = 3;
const SCOPE: u16 = 4;
/// The counters of a receive queue, by the names of Documentation/netlink/specs/netdev.yaml.
const COUNTERS: [(&str, u16); 5] = [
    ("rx-packets", 8),
    ("rx-alloc-fail", 12),
    ("rx-hw-drops", 13),
    ("rx-hw-drop-overruns", 14),
    ("rx-hw-drop-ratelimits", 23),
];
/// `NETDEV_QUEUE_TYPE_RX` and `NETDEV_QSTATS_SCOPE_QUEUE`.
const RECEIVE: u32 = 0;
const BY_QUEUE: u64 = 1;

/// A counter of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueCounter {
    /// The queue.
    pub queue: u32,
    /// The counter: `rx-packets`, `rx-alloc-fail`, `rx-hw-drops` and two that are part of it,
    /// `rx-hw-drop-overruns` and `rx-hw-drop-ratelimits`.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
}

/// The counters of each receive queue of all interfaces of the calling thread's namespace, by the
/// interface's number, as far as its driver keeps them; in the order of the queues (the generic netlink
/// family `netdev`, Linux 6.10).
///
/// # Errors
///
/// `ENOENT` or `EOPNOTSUPP` before Linux 6.10.
pub fn received() -> CallResult<BTreeMap<u32, Vec<QueueCounter>>> {
    let question = Question {
        call: "netlink NETDEV_CMD_QSTATS_GET",
        object: "all interfaces",
        family: "netdev",
        command: STATISTICS_GET,
        attributes: &[(SCOPE, BY_QUEUE.to_ne_bytes().to_vec())],
    };
    let mut received: BTreeMap<u32, Vec<QueueCounter>> = BTreeMap::new();
    for answer in question.dump()? {
        if let Some(interface) = u32_of(&answer, INTERFACE) {
            let known = received.entry(interface).or_default();
            known.extend(counters(&answer));
        }
    }
    for counters in received.values_mut() {
        counters.sort_unstable();
    }
    Ok(received)
}

/// The counters in one answer; none if it is of a transmit queue.
fn counters(answer: &Attributes) -> Vec<QueueCounter> {
    let receives = u32_of(answer, QUEUE_TYPE) == Some(RECEIVE);
    let Some(queue) = u32_of(answer, QUEUE).filter(|_| receives) else {
        return Vec::new();
    };
    let counters = COUNTERS.into_iter().filter_map(|(name, kind)| {
        let value = u64_of(answer, kind)?;
        Some(QueueCounter { queue, name, value })
    });
    counters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel writes a number of 64 bits that fits into 32 with 32 (`nla_put_uint`).
    #[test]
    fn what_a_receive_queue_counts_is_read() {
        let answer = |queue_type: u32| {
            vec![
                (INTERFACE, 2_u32.to_ne_bytes().to_vec()),
                (QUEUE_TYPE, queue_type.to_ne_bytes().to_vec()),
                (QUEUE, 3_u32.to_ne_bytes().to_vec()),
                (8, (1_u64 << 40).to_ne_bytes().to_vec()),
                (9, 4711_u32.to_ne_bytes().to_vec()),
                (23, 77_u32.to_ne_bytes().to_vec()),
            ]
        };
        let counter = |name, value| QueueCounter {
            queue: 3,
            name,
            value,
        };
        let expected = [
            counter("rx-packets", 1 << 40),
            counter("rx-hw-drop-ratelimits", 77),
        ];
        assert_eq!(counters(&answer(RECEIVE)), expected);
        assert_eq!(counters(&answer(1)), [], "a transmit queue");
    }
}
