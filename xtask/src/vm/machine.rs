//! Machines as data: `xtask/vm/machines.toml`.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The file, compiled into the program.
const MACHINES: &str = include_str!("../../vm/machines.toml");

/// Every machine and every kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machines {
    kernel: BTreeMap<String, Source>,
    machine: Vec<VmMachine>,
}

/// The source of a kernel.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    /// A suite of Debian.
    pub(super) suite: String,
    /// The names of its packages, with a `*` for the version. The first package decides the
    /// version.
    pub(super) packages: Vec<String>,
    /// True if the suite is not released.
    #[serde(default)]
    pub(super) moves: bool,
}

/// One machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VmMachine {
    pub(super) name: String,
    /// The name of a kernel.
    pub(super) kernel: String,
    /// CPUs, sockets, cores and threads, as QEMU's `-smp` takes them.
    pub(super) smp: String,
    /// NUMA nodes.
    #[serde(default = "one")]
    pub(super) nodes: u32,
    /// Two network cards of a kind.
    pub(super) cards: Option<Cards>,
    /// Arguments for the program `machine`, such as filters.
    #[serde(default)]
    pub(super) only: Vec<String>,
    /// More tests of `vm test`, beside the program `machine`: package, test program, and filters.
    #[serde(default)]
    pub(super) tests: Vec<Vec<String>>,
    /// The number of trials that this machine does not meet the needs of.
    pub(super) ignored: u32,
}

/// Network cards, joined back to back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cards {
    /// Intel 82576, a queue for each CPU; native XDP, and zero-copy AF_XDP from Linux 6.14.
    Igb,
    /// Intel 82574L, one queue, no native XDP.
    E1000e,
    /// Four queues that access the machine's memory directly: no zero-copy.
    Virtio,
    /// Four queues behind the DMA interface of the kernel, which zero-copy requires.
    VirtioIommu,
    /// VMware's card. QEMU counts each of its packets that found no descriptor.
    Vmxnet3,
    /// Realtek's 8139C+, with a ring of 64 descriptors. A register counts packets that found none.
    Rtl8139,
}

impl Cards {
    /// The kernel's name of their driver.
    pub(super) fn driver(self) -> &'static str {
        match self {
            Self::Igb => "igb",
            Self::E1000e => "e1000e",
            Self::Virtio | Self::VirtioIommu => "virtio_net",
            Self::Vmxnet3 => "vmxnet3",
            Self::Rtl8139 => "8139cp",
        }
    }
}

fn one() -> u32 {
    1
}

impl Machines {
    /// Reads the file.
    pub(super) fn read() -> Result<Self> {
        let machines: Self = toml::from_str(MACHINES).context("xtask/vm/machines.toml")?;
        for machine in &machines.machine {
            if !machines.kernel.contains_key(&machine.kernel) {
                bail!("machine {} has an unknown kernel", machine.name);
            }
        }
        Ok(machines)
    }

    /// All of them.
    pub(super) fn all(&self) -> &[VmMachine] {
        &self.machine
    }

    /// The one of that name.
    pub(super) fn find(&self, name: &str) -> Result<&VmMachine> {
        let found = self.machine.iter().find(|machine| machine.name == name);
        found.with_context(|| {
            let names: Vec<&str> = self.machine.iter().map(|m| m.name.as_str()).collect();
            format!(
                "there is no machine `{name}`; there are {}",
                names.join(", ")
            )
        })
    }

    /// The kernel of a machine.
    pub(super) fn source(&self, machine: &VmMachine) -> &Source {
        &self.kernel[&machine.kernel]
    }

    /// The suites that the kernels come from.
    pub(super) fn suites(&self) -> Vec<&str> {
        let mut suites: Vec<&str> = self
            .kernel
            .values()
            .map(|kernel| kernel.suite.as_str())
            .collect();
        suites.sort_unstable();
        suites.dedup();
        suites
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_can_be_read_and_names_are_unique() {
        let machines = Machines::read().unwrap();
        let mut names: Vec<&str> = machines.all().iter().map(|m| m.name.as_str()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(machines.find("6.1").is_ok());
        assert!(
            machines
                .find("none")
                .unwrap_err()
                .to_string()
                .contains("6.12")
        );
    }
}
