//! An interface's driver. For a network card also its node, its interrupts and its settings.

use crate::root::Root;
use mpps_os::ethtool::{self, RingSizes, coalesce, rss};
use mpps_os::interrupts::{self, Interrupt, InterruptLines};
use std::collections::{BTreeMap, BTreeSet};

/// An interface's driver and its network card: the CPUs that serve its queues, and its NUMA node.
///
/// ```
/// use mpps_host::{Moment, Observation};
///
/// let facts = Observation::take(Moment::Later(None), &["lo"], None)?;
/// for card in facts.cards.values() {
///     for interrupt in &card.interrupts {
///         println!("queue {:?}: CPUs {:?}, node {:?}", interrupt.queue, interrupt.effective, card.node);
///     }
/// }
/// # Ok::<(), mpps_host::HostError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkCard {
    /// The driver, as `ethtool -i` names it: `mlx5_core`, `veth`.
    pub driver: String,
    /// The NUMA node that the card sits at, where the machine has nodes and says so.
    pub node: Option<usize>,
    /// Its interrupts, in the order of their numbers; none without a card.
    pub interrupts: Vec<Interrupt>,
    /// The size of its receive rings, if the driver shows it.
    pub ring: Option<RingSizes>,
    /// How long it waits before it interrupts, where that is fixed and no number of packets ends it.
    pub coalescing_us: Option<u32>,
    /// The number of its receive queues, if the driver shows it.
    pub queues: Option<usize>,
    /// To how many queues its RSS table sends packets; none where it has no such table.
    pub table_queues: Option<usize>,
    /// Where its device is, below the root: `sys/bus/pci/devices/0000:00:03.0`; none without a card.
    pub device: Option<String>,
}

/// The drivers and cards of these interfaces. An interface whose driver is unknown is left out.
/// Facts that hardly change are taken from an earlier look, if there was one.
pub(super) fn of<'a>(
    root: &Root,
    interfaces: impl Iterator<Item = &'a str>,
    earlier: Option<&BTreeMap<String, NetworkCard>>,
) -> BTreeMap<String, NetworkCard> {
    let mut lines = None;
    let cards = interfaces.filter_map(|name| {
        let known = earlier.and_then(|earlier| earlier.get(name)).cloned();
        let mut card = known.or_else(|| NetworkCard::read(root, name))?;
        if let Some(device) = &card.device {
            let lines: &InterruptLines =
                lines.get_or_insert_with(|| interrupts::lines(root.path()));
            let reported = interrupts::reported(name);
            card.interrupts = interrupts::of(root.path(), device, lines, name, &reported);
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

impl NetworkCard {
    /// Reads the driver and the card of one interface.
    pub(crate) fn of_one(root: &Root, interface: &str) -> Option<Self> {
        of(root, std::iter::once(interface), None).remove(interface)
    }

    /// Without its interrupts.
    fn read(root: &Root, interface: &str) -> Option<Self> {
        let driver = ethtool::driver(interface).ok()?;
        let device = interrupts::device(root.path(), &driver.bus);
        let Some(at) = device else {
            return Some(Self {
                driver: driver.name,
                ..Self::default()
            });
        };
        let coalescing = coalesce::read(interface).ok();
        let fixed = coalescing.filter(|one| !one.is_adaptive_rx() && one.rx_packets() == 0);
        let table = rss::read(interface).ok();
        let queues = table.map(|table| table.indirection.into_iter().collect::<BTreeSet<u32>>());
        Some(Self {
            driver: driver.name,
            node: interrupts::node(root.path(), &at),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    fn of(root: &Root, device: &str) -> Vec<Interrupt> {
        let lines = interrupts::lines(root.path());
        interrupts::of(root.path(), device, &lines, "eth0", &BTreeMap::new())
    }

    const TREE: &str = "proc/interrupts =            CPU0       CPU2\\n \
         37:          1          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config\\n \
         38:          5      17674 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\\n \
         39:      12303          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0\\n\
         11:          7          0 IO-APIC   11-level   one\n\
         LOC:   21086767   27043485   Local timer interrupts\\n\
         ERR:          0\\n \
         40:          1\n\
         proc/irq/38/smp_affinity_list = 0-2\n\
         proc/irq/38/effective_affinity_list = 2\n\
         sys/bus/pci/devices/a/msi_irqs/37 = msix\n\
         sys/bus/pci/devices/a/msi_irqs/38 = msix\n\
         sys/bus/pci/devices/a/msi_irqs/39 = msix\n\
         sys/bus/pci/devices/a/msi_irqs/40 = msix\n\
         sys/bus/pci/devices/b/irq = 11\n\
         sys/bus/pci/devices/c/irq = 0";

    #[test]
    fn a_virtio_card_of_a_recorded_host_is_read() {
        let root = &fixture::tree(TREE).root;
        let found = of(root, "sys/bus/pci/devices/a");
        let told = found.iter().map(|own| (own.number, own.queue));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [(37, None), (38, Some(0)), (39, None)],
            "a line that lacks a column is none"
        );
        assert_eq!(found[1].counts, [(0, 5), (2, 17674)].into());
        assert_eq!(
            (&*found[1].allowed, &*found[1].effective),
            (&[0, 1, 2][..], &[2][..])
        );
    }

    /// Cards in a machine, as recorded with Linux 6.12.
    #[test]
    fn each_queue_of_a_recorded_card_has_its_interrupt() {
        for (tree, expected) in [
            (include_str!("../../tests/fixtures/driver-igb.txt"), 4),
            (include_str!("../../tests/fixtures/driver-e1000e.txt"), 1),
            (
                include_str!("../../tests/fixtures/driver-virtio_net.txt"),
                4,
            ),
            (include_str!("../../tests/fixtures/driver-vmxnet3.txt"), 4),
        ] {
            let root = &fixture::tree(tree).root;
            let device = "sys/class/net/eth0/device";
            let mut found = of(root, device);
            if found.is_empty() {
                found = of(root, &format!("{device}/../"));
            }
            let mut queues: Vec<usize> = found.iter().filter_map(|one| one.queue).collect();
            queues.sort_unstable();
            assert_eq!(queues, (0..expected).collect::<Vec<_>>(), "{found:?}");
            let receives = found.iter().filter(|one| one.queue.is_some());
            for one in receives {
                assert_eq!((one.effective.len(), one.counts.len()), (1, 4), "{one:?}");
            }
        }
    }

    #[test]
    fn names_do_not_matter_where_the_kernel_reports_the_queues() {
        let root = &fixture::tree(TREE).root;
        let lines = interrupts::lines(root.path());
        let device = "sys/bus/pci/devices/a";
        let reported = [(39, 1), (11, 0)].into();
        let found = interrupts::of(root.path(), device, &lines, "eth0", &reported);
        let told = found.iter().map(|own| (own.number, own.queue));
        let expected = [(37, None), (38, None), (39, Some(1))];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_card_with_one_line_has_its_number_and_one_without_has_none() {
        let root = &fixture::tree(TREE).root;
        let found = of(root, "sys/bus/pci/devices/b");
        assert_eq!(found.iter().map(|one| one.number).collect::<Vec<_>>(), [11]);
        assert!(of(root, "sys/bus/pci/devices/c").is_empty());
    }
}
