//! How an interface is set, as far as it matters to what becomes of packets.

use std::collections::BTreeMap;

use crate::facts::Interface;
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::{ethtool, sysfs::Sysfs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The driver and the settings of one interface. A value that the driver does not show is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceFacts {
    /// The driver, such as `veth` or `mlx5_core`.
    pub driver: Option<String>,
    /// The version of the card's firmware.
    pub firmware: Option<String>,
    /// The largest packet without the link header, in bytes.
    pub mtu_bytes: Option<u32>,
    /// The receive queues that are in use.
    pub rx_queues: Option<u32>,
    /// The transmit queues that are in use.
    pub tx_queues: Option<u32>,
    /// Which of [`FEATURES`] are on, by the names of `ethtool -k`.
    pub features: BTreeMap<String, bool>,
    /// The files of [`ATTRIBUTES`] that could be read.
    pub attributes: BTreeMap<String, String>,
}

/// The offloads that change what a packet is, or who works on it (`net/ethtool/common.c`).
pub const FEATURES: [&str; 19] = [
    "hw-tc-offload",
    "rx-checksum",
    "rx-gro",
    "rx-gro-hw",
    "rx-gro-list",
    "rx-hashing",
    "rx-lro",
    "rx-ntuple-filter",
    "rx-udp-gro-forwarding",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "tx-generic-segmentation",
    "tx-gso-list",
    "tx-nocache-copy",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
];

/// The files of `/sys/class/net/<interface>` that decide when its packets are handled
/// (`Documentation/ABI/testing/sysfs-class-net`).
pub const ATTRIBUTES: [&str; 5] = [
    "gro_flush_timeout",
    "napi_defer_hard_irqs",
    "speed",
    "threaded",
    "tx_queue_len",
];

impl InterfaceFacts {
    /// The facts of an interface of the calling thread's network namespace; `link` is it in the kernel's
    /// list.
    ///
    /// `sysfs` must be one of that namespace: `/sys` itself may show another one.
    pub(crate) fn of(
        interface: &Interface,
        link: Option<&NetlinkLink>,
        sysfs: Option<&Sysfs>,
    ) -> Self {
        let name = &interface.name;
        let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let read = |file: &str| sysfs?.read(&format!("class/net/{name}/{file}")).ok();
        // A driver without channels uses the queues that it was made with.
        let (rx, tx) = (interface.rx_queues(), interface.tx_queues());
        Self {
            firmware: known(&interface.firmware),
            driver: known(&interface.driver),
            mtu_bytes: link.map(|link| link.mtu),
            rx_queues: rx.or_else(|| link.map(|link| link.rx_queues)),
            tx_queues: tx.or_else(|| link.map(|link| link.tx_queues)),
            features: ethtool::features(name)
                .unwrap_or_default()
                .into_iter()
                .filter(|feature| FEATURES.contains(&feature.name.as_str()))
                .map(|feature| (feature.name, feature.active))
                .collect(),
            attributes: ATTRIBUTES
                .iter()
                .filter_map(|&file| Some((file.to_owned(), read(file)?)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_facts() {
        let links = mpps_os::netlink::link::list().expect("the kernel lists them");
        let lo = links.iter().find(|link| link.name == "lo");
        let facts = InterfaceFacts::of(&Interface::read("lo"), lo, Sysfs::mount().ok().as_ref());
        assert!(facts.mtu_bytes.is_some());
        assert!(facts.rx_queues.is_some());
        assert!(
            facts.features.contains_key("rx-gro"),
            "{:?}",
            facts.features
        );
    }

    #[test]
    fn an_interface_that_does_not_exist_has_none() {
        let facts = InterfaceFacts::of(&Interface::read("mpps-nowhere"), None, None);
        assert_eq!(facts, InterfaceFacts::default());
    }
}
