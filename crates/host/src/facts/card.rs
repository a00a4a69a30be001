//! What is behind an interface: its driver, and of a network card where it sits, its interrupts, and how
//! it is set.

use super::interrupts::{self, Interrupt, Lines};
use crate::root::Root;
use mpps_os::ethtool::{self, RxRing, coalesce, rss};
use std::collections::{BTreeMap, BTreeSet};

/// An interface's driver, and the network card that it drives: which CPUs serve its queues, and at
/// which NUMA node it sits.
///
/// ```
/// use mpps_host::{Facts, Moment};
///
/// let facts = Facts::take(Moment::Later(None), &["lo"], None)?;
/// for card in facts.cards.values() {
///     for interrupt in &card.interrupts {
///         println!("queue {:?}: CPUs {:?}, node {:?}", interrupt.queue, interrupt.effective, card.node);
///     }
/// }
/// # Ok::<(), mpps_host::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// The driver, as `ethtool -i` tells it: `mlx5_core`, `veth`.
    pub driver: String,
    /// The NUMA node that the card sits at, where the machine has nodes and says so.
    pub node: Option<usize>,
    /// Its interrupts, in the order of their numbers; none without a card.
    pub interrupts: Vec<Interrupt>,
    /// The size of its receive rings, where the driver tells it.
    pub ring: Option<RxRing>,
    /// How long it waits before it interrupts, where that is fixed and no number of packets ends it.
    pub coalescing_us: Option<u32>,
    /// How many receive queues it has, where the driver tells it.
    pub queues: Option<usize>,
    /// To how many queues its RSS table sends packets; none where it has no such table.
    pub table_queues: Option<usize>,
    /// Where its device is, below the root: `sys/bus/pci/devices/0000:00:03.0`; none without a card.
    pub device: Option<String>,
}

/// What is behind these interfaces, of those whose driver tells. What hardly changes is taken from an
/// earlier look, if there was one.
pub(super) fn of<'a>(
    root: &Root,
    interfaces: impl Iterator<Item = &'a str>,
    earlier: Option<&BTreeMap<String, Card>>,
) -> BTreeMap<String, Card> {
    let mut lines = None;
    let cards = interfaces.filter_map(|name| {
        let known = earlier.and_then(|earlier| earlier.get(name)).cloned();
        let mut card = known.or_else(|| Card::read(root, name))?;
        if let Some(device) = &card.device {
            let lines: &Lines = lines.get_or_insert_with(|| interrupts::lines(root));
            let numbers = interrupts::numbers(root, device);
            card.interrupts = interrupts::of(root, &numbers, lines, name);
        }
        Some((name.to_owned(), card))
    });
    cards.collect()
}

/// Whether the virtio device at this place on the bus has agreed to a feature, by its number; none where
/// there is no such device.
pub(crate) fn virtio_feature(root: &Root, device: &str, number: usize) -> Option<bool> {
    let inside = root.names(device);
    let virtio = inside.iter().find(|name| name.starts_with("virtio"))?;
    // A zero or a one for each feature, from bit 0 on (drivers/virtio/virtio.c).
    let bits = root.read_if_possible(&format!("{device}/{virtio}/features"))?;
    Some(*bits.as_bytes().get(number)? == b'1')
}

impl Card {
    /// What is behind this interface.
    pub(crate) fn of_one(root: &Root, interface: &str) -> Option<Self> {
        of(root, std::iter::once(interface), None).remove(interface)
    }

    /// Without its interrupts.
    fn read(root: &Root, interface: &str) -> Option<Self> {
        let driver = ethtool::driver(interface).ok()?;
        // `/sys/class/net` shows the interfaces of the namespace in which it was mounted; the place on
        // the bus is the same in all.
        let device = format!("sys/bus/pci/devices/{}", driver.bus);
        let device = Some(device).filter(|at| !driver.bus.is_empty() && root.exists(at));
        let Some(at) = device else {
            return Some(Self {
                driver: driver.name,
                ..Self::default()
            });
        };
        // -1 where there is none.
        let node = root.read_if_possible(&format!("{at}/numa_node"));
        let coalescing = coalesce::read(interface).ok();
        let fixed = coalescing.filter(|one| !one.is_adaptive_rx() && one.rx_packets() == 0);
        let table = rss::read(interface).ok();
        let queues = table.map(|table| table.indirection.into_iter().collect::<BTreeSet<u32>>());
        Some(Self {
            driver: driver.name,
            node: node.and_then(|node| node.parse().ok()),
            interrupts: Vec::new(),
            ring: ethtool::rx_ring(interface).ok(),
            coalescing_us: fixed.map(|coalescing| coalescing.rx_time_us()),
            queues: ethtool::channels(interface)
                .ok()
                .map(|channels| channels.rx.saturating_add(channels.combined) as usize),
            table_queues: queues
                .map(|queues| queues.len())
                .filter(|&queues| queues > 0),
            device: Some(at),
        })
    }
}
