//! The interrupts of network cards: which queue each is for, which CPU takes it, how often it came.

use crate::CpuList;
use crate::root::Root;
use std::collections::BTreeMap;

/// An interrupt of a network card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The name that its driver gave it: `eth0-TxRx-3`.
    pub name: String,
    /// The receive queue that it is for, as far as its name tells; none for one that only sends, or
    /// that configures.
    pub queue: Option<usize>,
    /// How often each CPU took it since the machine started.
    pub counts: BTreeMap<usize, u64>,
    /// The CPUs that may take it (`smp_affinity_list`).
    pub allowed: Vec<usize>,
    /// The CPUs that take it (`effective_affinity_list`).
    pub effective: Vec<usize>,
}

/// The interrupts of the machine, by their numbers: the name of each, and how often each CPU took it.
pub(super) type Lines = BTreeMap<u32, (String, BTreeMap<usize, u64>)>;

/// Reads all of them.
pub(super) fn lines(root: &Root) -> Lines {
    Interrupt::parse_all(&root.read_if_possible("proc/interrupts").unwrap_or_default())
}

/// Those of these numbers, which belong to an interface of this name.
pub(super) fn of(root: &Root, numbers: &[u32], lines: &Lines, interface: &str) -> Vec<Interrupt> {
    let own = numbers.iter().filter_map(|&number| {
        let (name, counts) = lines.get(&number)?;
        let cpus = |file: &str| {
            let list = root.read_if_possible(&format!("proc/irq/{number}/{file}"));
            let list = list.and_then(|list| CpuList::from_kernel(&list).ok());
            list.unwrap_or_default().0
        };
        Some(Interrupt {
            number,
            name: name.clone(),
            queue: queue(name, interface),
            counts: counts.clone(),
            allowed: cpus("smp_affinity_list"),
            effective: cpus("effective_affinity_list"),
        })
    });
    let mut own: Vec<Interrupt> = own.collect();
    // igb and e1000e call by the interface what is for all other causes, where each queue has its own.
    let is_other = |one: &Interrupt| one.name == interface;
    if own.iter().any(|one| one.queue.is_some() && !is_other(one)) {
        for other in own.iter_mut().filter(|one| is_other(one)) {
            other.queue = None;
        }
    }
    own
}

/// The numbers of the interrupts of the device at this place in `/sys`.
pub(super) fn numbers(root: &Root, device: &str) -> Vec<u32> {
    let names = root.names(&format!("{device}/msi_irqs")).into_iter();
    let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    if numbers.is_empty() {
        let line = root.read_if_possible(&format!("{device}/irq"));
        let line = line.and_then(|number| number.parse::<u32>().ok());
        numbers.extend(line.filter(|&number| number > 0));
    }
    numbers
}

impl Interrupt {
    /// The names and counts of `/proc/interrupts`: a column for each online CPU, then the controller, the
    /// line of it, and the names of those who share it.
    pub fn parse_all(text: &str) -> BTreeMap<u32, (String, BTreeMap<usize, u64>)> {
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default().split_ascii_whitespace();
        let cpus: Vec<usize> = head
            .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
            .collect();
        let all = lines.filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let number = number.trim().parse().ok()?;
            let mut words = rest.split_ascii_whitespace();
            let counts = cpus.iter().map(|&cpu| {
                let count = words.next()?.parse().ok()?;
                Some((cpu, count))
            });
            let counts = counts.collect::<Option<BTreeMap<usize, u64>>>()?;
            let name = words.next_back().unwrap_or_default().to_owned();
            Some((number, (name, counts)))
        });
        all.collect()
    }
}

/// The receive queue in the name of an interrupt. There is no rule for these names; the drivers in
/// `drivers/net` of Linux end them with the queue's number, and call it by its direction, by a
/// completion queue (mlx5), or by nothing but the interface (e1000e, tg3 with one interrupt).
fn queue(name: &str, interface: &str) -> Option<usize> {
    if name == interface {
        return Some(0);
    }
    // mlx5 adds the card: mlx5_comp3@pci:0000:04:00.0.
    let name = name.split('@').next()?.to_ascii_lowercase();
    let own = name.replace(&interface.to_ascii_lowercase(), "");
    let receives = ["rx", "tx-rx", "input", "comp"];
    let prefix = own.trim_end_matches(|character: char| character.is_ascii_digit());
    if !receives.iter().any(|word| prefix.contains(word)) {
        return None;
    }
    own[prefix.len()..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use proptest::prelude::*;

    const TREE: &str = "proc/interrupts =            CPU0       CPU2\\n \
         37:          1          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config\\n \
         38:          5      17674 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\\n \
         39:      12303          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0\\n\
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
        let numbers = numbers(root, "sys/bus/pci/devices/a");
        let found = of(root, &numbers, &lines(root), "eth0");
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

    /// What Linux 6.12 shows of cards in a machine, as it was recorded.
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
            let above = format!("{device}/../");
            let mut own = numbers(root, device);
            if own.is_empty() {
                own = numbers(root, &above);
            }
            let found = of(root, &own, &lines(root), "eth0");
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
    fn a_machine_with_1024_cpus_of_which_one_is_unplugged_is_read() {
        let cpus = || (0..1024).filter(|cpu| *cpu != 7);
        let head: Vec<String> = cpus().map(|cpu| format!("CPU{cpu}")).collect();
        let counts: Vec<String> = cpus().map(|cpu| (cpu * 2).to_string()).collect();
        let text = format!(
            "  {}\n 900: {} PCI-MSI 5-edge eth0-rx-3\n",
            head.join(" "),
            counts.join(" ")
        );
        let (name, counts) = &Interrupt::parse_all(&text)[&900];
        assert_eq!((&**name, counts.len()), ("eth0-rx-3", 1023));
        assert_eq!((counts.get(&7), counts.get(&1023)), (None, Some(&2046)));
    }

    #[test]
    fn a_card_with_one_line_has_its_number_and_one_without_has_none() {
        let root = &fixture::tree(TREE).root;
        assert_eq!(numbers(root, "sys/bus/pci/devices/b"), [11]);
        assert!(numbers(root, "sys/bus/pci/devices/c").is_empty());
    }

    #[test]
    fn names_tell_their_queue() {
        for (name, expected) in [
            ("eth0", Some(0)),
            ("eth0-TxRx-3", Some(3)),
            ("i40e-eth0-TxRx-11", Some(11)),
            ("eth0-Tx-Rx-2", Some(2)),
            ("eth0-rx-1", Some(1)),
            ("eth0-rxtx-7", Some(7)),
            ("eth0-rx0", Some(0)),
            ("virtio2-input.1", Some(1)),
            ("mlx5_comp12@pci:0000:04:00.0", Some(12)),
            ("mlx5_async0@pci:0000:04:00.0", None),
            ("eth0-tx-1", None),
            ("virtio2-output.1", None),
            ("virtio2-config", None),
            ("ena-mgmnt@pci:0000:00:05.0", None),
            ("eth0-rx-", None),
            ("eth0-rx-99999999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(queue(name, "eth0"), expected, "{name}");
        }
        assert_eq!(queue("rx3", "rx3"), Some(0), "an interface of that name");
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text in "\\PC{0,200}", lines in "( CPU[0-9]{1,3}){0,4}\n([ 0-9:a-z]{0,30}\n){0,6}", name in "\\PC{0,12}") {
            let _ = (Interrupt::parse_all(&text), Interrupt::parse_all(&lines), queue(&text, &name), queue(&name, &text));
        }
    }
}
