//! The interrupts of network cards: which queue each is for, which CPU takes it, how often it came.

use crate::CpuList;
use crate::netlink::{link, napi};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// An interrupt of a network card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The name that its driver gave it: `eth0-TxRx-3`.
    pub name: String,
    /// The receive queue that it is for, if the kernel says so or its name shows it; none if it only
    /// sends, or configures.
    pub queue: Option<usize>,
    /// How often each CPU took it since the machine started.
    pub counts: BTreeMap<usize, u64>,
    /// The CPUs that may take it (`smp_affinity_list`).
    pub allowed: Vec<usize>,
    /// The CPUs that take it (`effective_affinity_list`).
    pub effective: Vec<usize>,
}

/// The interrupts of a machine, by their numbers: the name of each, and how often each CPU took it.
pub type InterruptLines = BTreeMap<u32, (String, BTreeMap<usize, u64>)>;

/// Reads all of the machine whose `proc` and `sys` are in this directory, `/` for this one; none where
/// it shows none.
pub fn lines(root: &Path) -> InterruptLines {
    Interrupt::parse_all(&read(root, "proc/interrupts"))
}

/// The path of an interface's device below the root, `sys/bus/pci/devices/0000:00:03.0`. It is
/// found by the driver's word for the bus ([`crate::ethtool::Driver::bus`]). None if it is on no
/// such bus.
///
/// `/sys/class/net` shows the interfaces of the namespace that mounted it; the place on the bus is
/// the same in all.
pub fn device(root: &Path, bus: &str) -> Option<String> {
    let device = format!("sys/bus/pci/devices/{bus}");
    (!bus.is_empty() && root.join(&device).exists()).then_some(device)
}

/// The NUMA node of a [`device`], where the machine has nodes and says so.
pub fn node(root: &Path, device: &str) -> Option<usize> {
    // -1 where there is none.
    read(root, &format!("{device}/numa_node")).parse().ok()
}

/// The receive queue of each interrupt of an interface in the calling thread's network namespace, as
/// the kernel reports them ([`napi::queue_interrupts`]); empty if it does not.
pub fn reported(interface: &str) -> BTreeMap<u32, usize> {
    let found = link::index(interface).and_then(napi::queue_interrupts);
    found.unwrap_or_default()
}

/// Those of a [`device`], which belongs to the interface of this name. If none is [`reported`], their
/// names show their queues.
pub fn of(
    root: &Path,
    device: &str,
    lines: &InterruptLines,
    interface: &str,
    reported: &BTreeMap<u32, usize>,
) -> Vec<Interrupt> {
    let own = numbers(root, device).into_iter().filter_map(|number| {
        let (name, counts) = lines.get(&number)?;
        let cpus = |file: &str| {
            let list = read(root, &format!("proc/irq/{number}/{file}"));
            CpuList::from_kernel(&list).unwrap_or_default().0
        };
        Some(Interrupt {
            number,
            name: name.clone(),
            queue: match reported.is_empty() {
                true => queue(name, interface),
                false => reported.get(&number).copied(),
            },
            counts: counts.clone(),
            allowed: cpus("smp_affinity_list"),
            effective: cpus("effective_affinity_list"),
        })
    });
    let mut own: Vec<Interrupt> = own.collect();
    // igb and e1000e call by the interface what is for all other causes, where each queue has its own.
    let is_other = |one: &Interrupt| reported.is_empty() && one.name == interface;
    if own.iter().any(|one| one.queue.is_some() && !is_other(one)) {
        for other in own.iter_mut().filter(|one| is_other(one)) {
            other.queue = None;
        }
    }
    own
}

/// The numbers of the interrupts of a device.
fn numbers(root: &Path, device: &str) -> Vec<u32> {
    let names = fs::read_dir(root.join(device).join("msi_irqs"));
    let names = names.into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    if numbers.is_empty() {
        let line = read(root, &format!("{device}/irq")).parse::<u32>().ok();
        numbers.extend(line.filter(|&number| number > 0));
    }
    numbers
}

/// The content of a file without the white space around it; nothing where it cannot be read.
fn read(root: &Path, file: &str) -> String {
    let bytes = fs::read(root.join(file)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
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
    use proptest::prelude::*;

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
