//! How many packets each receive queue of an interface got, by its driver's own counters.

use mpps_os::netlink::queue_statistics::{self, QueueCounter};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The packets of one receive queue, with the counter that said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePackets {
    /// The queue.
    pub queue: usize,
    /// Its packets. On veth only those that went through NAPI are counted.
    pub packets: i64,
    /// The driver's name for the counter; the first of them where several are added up.
    pub counter: String,
}

/// How a driver writes the number of a queue into the name of a counter.
struct Naming {
    before: &'static str,
    /// The possible texts after the number. If a driver has several, they are added up.
    after: &'static [&'static str],
}

/// The ways of the drivers in `drivers/net` of Linux. There is no rule for these names, so an
/// unknown driver has no queue counters here rather than guessed ones.
const NAMINGS: [Naming; 9] = [
    // veth: what its NAPI received, whether or not a program is attached.
    Naming {
        before: "rx_queue_",
        after: &["_xdp_packets"],
    },
    // ixgbe, ixgbevf, igb, igc, ice, hv_netvsc, virtio_net before 6.10.
    Naming {
        before: "rx_queue_",
        after: &["_packets"],
    },
    // mlx4, mlx5.
    Naming {
        before: "rx",
        after: &["_packets"],
    },
    // i40e, iavf.
    Naming {
        before: "rx-",
        after: &[".packets"],
    },
    // sfc, older i40e.
    Naming {
        before: "rx-",
        after: &[".rx_packets"],
    },
    // ena.
    Naming {
        before: "queue_",
        after: &["_rx_cnt"],
    },
    // gve.
    Naming {
        before: "rx_packets[",
        after: &["]"],
    },
    // Counters that the kernel keeps for the driver, see `by_kernel`. Only if the driver itself has
    // none.
    Naming {
        before: KERNEL_BEFORE,
        after: &[KERNEL_AFTER],
    },
    // bnxt_en.
    Naming {
        before: "[",
        after: &[
            "]: rx_ucast_packets",
            "]: rx_mcast_packets",
            "]: rx_bcast_packets",
        ],
    },
];

/// The packets of each receive queue among a driver's counters, in the order of the queues.
///
/// Empty where the driver does not count by queue, or names its counters in an unknown way.
pub(crate) fn queue_packets<'a>(
    counters: impl Iterator<Item = (&'a str, i64)> + Clone,
) -> Vec<QueuePackets> {
    NAMINGS
        .iter()
        .map(|naming| by_naming(naming, counters.clone()))
        .find(|queues| !queues.is_empty())
        .unwrap_or_default()
}

/// The name of a queue's counter that the kernel reports over netlink. The kernel's own name
/// follows (Documentation/netlink/specs/netdev.yaml).
const KERNEL_BEFORE: &str = "qstats rx ";
const KERNEL_AFTER: &str = " rx-packets";

/// The kernel's own counters of the receive queues of all interfaces, by the interface's number; none
/// where the driver keeps none. Drivers such as virtio_net moved theirs there in Linux 6.10.
pub(crate) fn by_kernel() -> BTreeMap<u32, Vec<QueueCounter>> {
    queue_statistics::received().unwrap_or_default()
}

/// Such a counter with the name that it gets here.
pub(crate) fn named(counter: &QueueCounter) -> (String, u64) {
    let QueueCounter { queue, name, value } = counter;
    (format!("{KERNEL_BEFORE}{queue} {name}"), *value)
}

fn by_naming<'a>(
    naming: &Naming,
    counters: impl Iterator<Item = (&'a str, i64)>,
) -> Vec<QueuePackets> {
    let mut queues: Vec<QueuePackets> = Vec::new();
    for (name, packets) in counters {
        let Some(queue) = queue_of(naming, name) else {
            continue;
        };
        match queues.iter_mut().find(|known| known.queue == queue) {
            Some(known) => known.packets = known.packets.saturating_add(packets),
            None => queues.push(QueuePackets {
                queue,
                packets,
                counter: name.to_owned(),
            }),
        }
    }
    queues.sort_by_key(|known| known.queue);
    queues
}

/// The queue that a counter belongs to, if its name follows this naming.
fn queue_of(naming: &Naming, name: &str) -> Option<usize> {
    let rest = name.strip_prefix(naming.before)?;
    let digits = naming.after.iter().find_map(|end| rest.strip_suffix(end))?;
    // `usize` would also take a leading plus sign.
    let number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queues(counters: &[(&str, i64)]) -> Vec<(usize, i64, String)> {
        let found = queue_packets(counters.iter().copied());
        let whole = |q: QueuePackets| (q.queue, q.packets, q.counter);
        found.into_iter().map(whole).collect()
    }

    #[test]
    fn veth() {
        let counters = [
            ("peer_ifindex", 9),
            ("rx_queue_0_xdp_packets", 1),
            ("rx_queue_0_drops", 8),
            ("rx_queue_1_xdp_packets", 2),
            ("tx_queue_0_xdp_xmit", 5),
        ];
        let expected = [
            (0, 1, "rx_queue_0_xdp_packets".to_owned()),
            (1, 2, "rx_queue_1_xdp_packets".to_owned()),
        ];
        assert_eq!(queues(&counters), expected);
    }

    #[test]
    fn each_driver_by_its_own_naming() {
        for case in [
            "rx_packets = 9, rx_queue_3_packets = 5, rx_queue_3_bytes = 6",
            "rx_packets = 9, rx3_packets = 5, rx3_xdp_drop = 1, tx3_packets = 7",
            "rx_packets = 9, rx-3.packets = 5, tx-3.packets = 7",
            "rx-3.rx_packets = 5, tx-3.tx_packets = 7",
            "queue_3_rx_cnt = 5, queue_3_tx_cnt = 7",
            "rx_packets[3] = 5, tx_packets[3] = 7, rx_packets = 9",
            "[3]: rx_ucast_packets = 2, [3]: rx_mcast_packets = 1, [3]: rx_bcast_packets = 2, [3]: tx_ucast_packets = 7",
        ] {
            let counters = case.split(", ").filter_map(|one| one.split_once(" = "));
            let counters = counters.map(|(name, value)| (name, value.parse().expect("a number")));
            let found = queues(&counters.collect::<Vec<_>>());
            assert_eq!(found.len(), 1, "{case}");
            assert_eq!((found[0].0, found[0].1), (3, 5), "{case}");
        }
    }

    #[test]
    fn the_kernels_own_are_read_by_the_name_that_they_get() {
        let named: Vec<(String, u64)> = [(0, 5), (11, 7)]
            .map(|(queue, value)| {
                named(&QueueCounter {
                    queue,
                    name: "rx-packets",
                    value,
                })
            })
            .into();
        let counters: Vec<(&str, i64)> = named
            .iter()
            .map(|(name, packets)| (name.as_str(), packets.cast_signed()))
            .collect();
        let expected = [
            (0, 5, "qstats rx 0 rx-packets".to_owned()),
            (11, 7, "qstats rx 11 rx-packets".to_owned()),
        ];
        assert_eq!(queues(&counters), expected);
    }

    #[test]
    fn an_unknown_driver_has_none() {
        assert_eq!(queues(&[("rx_packets", 9), ("rx_fifo_0", 2)]), []);
        assert_eq!(queues(&[("rx+1_packets", 9), ("rx_queue__packets", 2)]), []);
    }

    #[test]
    fn queues_are_in_the_order_of_their_numbers() {
        let counters = [("rx10_packets", 1), ("rx2_packets", 2)];
        let order: Vec<usize> = queues(&counters).into_iter().map(|found| found.0).collect();
        assert_eq!(order, [2, 10]);
    }

    proptest! {
        #[test]
        fn never_panics(names in proptest::collection::vec("(rx|rx_queue_|rx-|\\[)?\\PC{0,9}(_packets)?", 0..9), value: i64) {
            let _ = queue_packets(names.iter().map(|name| (name.as_str(), value)));
        }
    }
}
