//! An interface: its driver and, by ethtool, how it is set. For a network card also its node and its
//! interrupts.

use crate::facts::KernelAnswer;
use crate::root::Root;
use mpps_os::ethtool::coalesce::{self, Coalescing};
use mpps_os::ethtool::rss::{self, Rss};
use mpps_os::ethtool::{self, Channels, RingSizes};
use mpps_os::interrupts::{self, Interrupt, InterruptLines};
use std::collections::{BTreeMap, BTreeSet};

/// An interface's driver and settings, the CPUs that serve the queues of its card, and the card's NUMA
/// node.
///
/// ```
/// use mpps_host::Interface;
///
/// let interface = Interface::read("lo");
/// println!("driver {}, node {:?}", interface.driver, interface.node);
/// for interrupt in &interface.interrupts {
///     println!("queue {:?}: CPUs {:?}", interrupt.queue, interrupt.effective);
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The driver, as `ethtool -i` names it: `mlx5_core`, `veth`; empty if it is unknown.
    pub driver: String,
    /// The version of the card's firmware; empty if the driver shows none.
    pub firmware: String,
    /// The place of its device on the bus, such as a PCI address; empty without one.
    pub bus: String,
    /// Where its device is, below the root: `sys/bus/pci/devices/0000:00:03.0`; none without a card.
    pub device: Option<String>,
    /// The NUMA node that the card sits at, where the machine has nodes and says so.
    pub node: Option<usize>,
    /// Its interrupts, in the order of their numbers; none without a card.
    pub interrupts: Vec<Interrupt>,
    /// How many channels it has, if the driver has that notion.
    pub channels: Option<Channels>,
    /// The size of its receive rings, if the driver shows it.
    pub ring: Option<RingSizes>,
    /// How long it waits before it interrupts, if the driver shows it.
    pub coalescing: Option<Coalescing>,
    /// How it chooses the queue of a packet, or why the driver does not show it.
    pub rss: KernelAnswer<Rss>,
}

/// These interfaces, without those whose driver is unknown. Facts that hardly change are taken from an
/// earlier look, if there was one.
pub(super) fn of<'a>(
    root: &Root,
    names: impl Iterator<Item = &'a str>,
    earlier: Option<&BTreeMap<String, Interface>>,
) -> BTreeMap<String, Interface> {
    let mut lines = None;
    let all = names.map(|name| {
        let known = earlier.and_then(|earlier| earlier.get(name)).cloned();
        let mut interface = known.unwrap_or_else(|| Interface::read_settings(root, name));
        interface.read_interrupts(root, &mut lines);
        (name.to_owned(), interface)
    });
    all.filter(|(_, interface)| !interface.driver.is_empty())
        .collect()
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

impl Interface {
    /// Reads an interface of the calling thread's network namespace. A refused value is absent.
    pub fn read(name: &str) -> Self {
        let root = Root::machine();
        let mut interface = Self::read_settings(&root, name);
        interface.read_interrupts(&root, &mut None);
        interface
    }

    /// Without its interrupts.
    fn read_settings(root: &Root, name: &str) -> Self {
        let driver = ethtool::driver(name).unwrap_or_default();
        let device = interrupts::device(root.path(), &driver.bus);
        Self {
            name: name.to_owned(),
            driver: driver.name,
            firmware: driver.firmware_version,
            bus: driver.bus,
            node: device
                .as_ref()
                .and_then(|device| interrupts::node(root.path(), device)),
            device,
            interrupts: Vec::new(),
            channels: ethtool::channels(name).ok(),
            ring: ethtool::rx_ring(name).ok(),
            coalescing: coalesce::read(name).ok(),
            rss: KernelAnswer::of(rss::read(name)),
        }
    }

    /// `lines` are those of the machine, once they were read.
    fn read_interrupts(&mut self, root: &Root, lines: &mut Option<InterruptLines>) {
        let Some(device) = &self.device else { return };
        let lines = lines.get_or_insert_with(|| interrupts::lines(root.path()));
        let reported = interrupts::reported(&self.name);
        self.interrupts = interrupts::of(root.path(), device, lines, &self.name, &reported);
    }

    /// The number of its receive queues, if the driver shows it. A combined channel is a receive and a
    /// transmit queue.
    pub fn rx_queues(&self) -> Option<u32> {
        let channels = self.channels?;
        Some(channels.rx.saturating_add(channels.combined))
    }

    /// The number of its transmit queues, if the driver shows it.
    pub fn tx_queues(&self) -> Option<u32> {
        let channels = self.channels?;
        Some(channels.tx.saturating_add(channels.combined))
    }

    /// The interrupt of a receive queue, if it has one of its own.
    pub fn interrupt_of(&self, queue: usize) -> Option<&Interrupt> {
        self.interrupts.iter().find(|one| one.queue == Some(queue))
    }

    /// How long it waits before it interrupts, if that is fixed and no number of packets ends it.
    pub(crate) fn fixed_wait_us(&self) -> Option<u32> {
        let told = self.coalescing.as_ref()?;
        (!told.is_adaptive_rx() && told.rx_packets() == 0).then(|| told.rx_time_us())
    }

    /// To how many queues its RSS table sends packets; none if it has no such table.
    pub(crate) fn table_queues(&self) -> Option<usize> {
        let queues: BTreeSet<&u32> = self.rss.value()?.indirection.iter().collect();
        (!queues.is_empty()).then_some(queues.len())
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

    #[test]
    fn each_queue_of_a_recorded_card_has_its_interrupt() {
        for (_, expected, tree) in fixture::DRIVERS {
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
