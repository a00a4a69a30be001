//! Facts about a host that decide which receive paths it has.

use std::collections::{BTreeMap, BTreeSet};

use mpps_os::capability;
use mpps_os::ethtool::rss::Rss;
use mpps_os::ethtool::{self, Channels, ntuple};
use mpps_os::netlink::{link, napi, netdev};
use schemars::JsonSchema;
use serde::Serialize;

use crate::facts::parent_interfaces;
use crate::facts::{Interface, KernelAnswer, virtio_feature};
use crate::root::Root;
use crate::{HostError, HostResult};

/// The kernel's name for the switch that `ethtool -K` calls `ntuple` (net/ethtool/common.c).
pub(crate) const FILTERS: &str = "rx-ntuple-filter";

/// Kernel modules that stand for a receive path. `/sys/module` has those that are built in as well,
/// if they have parameters.
const MODULES: [&str; 13] = [
    "igb_uio",
    "ixgbevf",
    "mlx5_core",
    "netmap",
    "onload",
    "pf_ring",
    "sfc",
    "sfc_char",
    "sfc_resource",
    "uio",
    "uio_pci_generic",
    "vfio",
    "vfio_pci",
];

/// Devices that stand for a receive path, and programs and libraries that belong to one.
const FILES: [&str; 11] = [
    "dev/netmap",
    "dev/onload",
    "dev/vfio/vfio",
    "proc/net/packet",
    "proc/net/pf_ring/info",
    "sys/module/sfc_resource/afxdp/register",
    "usr/bin/dpdk-devbind.py",
    "usr/bin/onload",
    "usr/bin/snabb",
    "usr/local/bin/snabb",
    "usr/sbin/dpdk-devbind",
];

/// Merging by the card. With it some drivers take no XDP program.
const MERGING: [&str; 2] = ["rx-lro", "rx-gro-hw"];

/// `VIRTIO_F_ACCESS_PLATFORM` of include/uapi/linux/virtio_config.h.
const VIRTIO_F_ACCESS_PLATFORM: usize = 33;

/// All that is known of a host and one of its interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PathFacts {
    /// The host.
    pub host: HostFacts,
    /// The interface.
    pub nic: NicFacts,
}

/// Facts about the whole host, for this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostFacts {
    /// The kernel's release, such as `6.18.44`.
    pub kernel: String,
    /// Which of the modules that matter are there.
    pub modules: BTreeSet<String>,
    /// Which of the devices, programs and kernel files that matter are there.
    pub files: BTreeSet<String>,
    /// `kernel.io_uring_disabled`; absent before Linux 6.6.
    pub io_uring_disabled: Option<u32>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<u32>,
    /// The kernel can busy poll (`net.core.busy_poll`); absent where it does not show its settings,
    /// as in a network namespace of its own.
    pub busy_poll: Option<bool>,
    /// The kernel was built with AF_XDP, `CONFIG_XDP_SOCKETS`; absent where it does not show its
    /// protocols (`/proc/net/protocols`).
    pub af_xdp: Option<bool>,
    /// Reserved large pages.
    pub huge_pages: HugePages,
    /// The hardware can confine what a card writes to: there are IOMMU groups.
    pub iommu: bool,
    /// The most memory that this process may lock, in bytes (`RLIMIT_MEMLOCK`); none where there is no limit, or it is not known.
    pub locked_memory_bytes: Option<u64>,
    /// The capabilities of this process (`CapEff` of `/proc/PID/status`).
    pub capabilities: u64,
    /// It is in the user namespace that the kernel starts with, where BPF is allowed.
    pub initial_user_namespace: bool,
}

/// The large pages of the default size (`/proc/meminfo`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HugePages {
    /// Reserved.
    pub total: u64,
    /// Not in use.
    pub free: u64,
    /// The size of each, in bytes.
    pub size_bytes: u64,
}

/// Facts about one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(default))]
pub struct NicFacts {
    /// Its name.
    pub name: String,
    /// Its driver, such as `veth` or `mlx5_core`; empty where there is none.
    pub driver: String,
    /// It was set up.
    pub up: bool,
    /// Its driver sees the other end of the line.
    pub carrier: bool,
    /// Whether the XDP program that is attached to it runs in its driver; none if none is attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_xdp: Option<bool>,
    /// The largest packet without the link header, in bytes.
    pub mtu_bytes: u32,
    /// The default route goes through it: to take it from the kernel cuts the host off.
    pub default_route: bool,
    /// The PCI function behind it.
    pub function: Option<Function>,
    /// Of a virtio device: it reaches memory as other devices do (`VIRTIO_F_ACCESS_PLATFORM`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtio_dma: Option<bool>,
    /// The virtual functions of that, where it has some.
    pub virtual_functions: Option<VirtualFunctions>,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Receive queues that it may have.
    pub rx_queues_max: u32,
    /// The CPUs that take the interrupt of each receive queue, if its name shows the queue.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_cpus: BTreeMap<usize, Vec<usize>>,
    /// Descriptors of each receive ring, if the driver shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_ring: Option<u32>,
    /// Merging by the card: `rx-lro`, and `rx-gro-hw`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, serde(borrow))]
    pub merging: Vec<&'static str>,
    /// Merging on receipt (`rx-gro`); absent where the kernel does not say.
    pub gro: Option<bool>,
    /// Steering rules (`rx-ntuple-filter`): on, off, or fixed.
    pub filters: Option<Filters>,
    /// Leased queues: for each the number of the other interface, and its queue there (netkit, Linux 7.1).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub leases: BTreeMap<u32, (u32, u32)>,
    /// NAPI contexts: the kernel's receivers, which busy polling needs.
    pub napi_contexts: KernelAnswer<usize>,
    /// The driver's XDP features, by the names of `netdev.yaml`.
    #[cfg_attr(test, serde(borrow))]
    pub xdp_features: KernelAnswer<Vec<&'static str>>,
    /// Entries of the RSS table.
    pub rss_entries: KernelAnswer<usize>,
    /// Steering rules that are there.
    pub rules: KernelAnswer<usize>,
}

/// The switch for steering rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(serde::Deserialize))]
pub enum Filters {
    /// On.
    On,
    /// Off, and could be on.
    Off,
    /// Off, and cannot be on.
    FixedOff,
}

/// A PCI function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Function {
    /// Its address, such as `0000:03:00.0`.
    pub address: String,
    /// The vendor's number.
    pub vendor: u16,
    /// The device's number.
    pub device: u16,
}

/// The virtual functions of a card (`Documentation/PCI/pci-iov-howto.rst`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct VirtualFunctions {
    /// How many it may have.
    pub total: u32,
    /// How many it has now.
    pub now: u32,
}

impl PathFacts {
    /// Asks the host, and completes the facts of an interface in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`HostError::Impossible`] for an interface that is not there, with those that are;
    /// [`HostError::Kernel`] where not even a list of interfaces can be had.
    pub fn gather(interface: &Interface) -> HostResult<Self> {
        Ok(Self {
            nic: NicFacts::gather(interface)?,
            host: HostFacts::gather(),
        })
    }
}

impl HostFacts {
    /// Reads the host. A file that cannot be read counts as absent.
    pub fn gather() -> Self {
        Self {
            initial_user_namespace: capability::in_initial_user_namespace(),
            ..Self::from_root(&Root::machine())
        }
    }

    pub(super) fn from_root(root: &Root) -> Self {
        let number = |path: &str| root.read_if_possible(path)?.parse().ok();
        let listed = root.read_if_possible("proc/modules").unwrap_or_default();
        let listed: BTreeSet<&str> = listed
            .lines()
            .filter_map(|line| line.split_ascii_whitespace().next())
            .collect();
        let present = root.names("sys/module");
        let status = root.read_if_possible("proc/thread-self/status");
        let capabilities = status.as_deref().and_then(|status| {
            let mask = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        });
        Self {
            kernel: root
                .read_if_possible("proc/sys/kernel/osrelease")
                .unwrap_or_default(),
            modules: MODULES
                .iter()
                .filter(|name| listed.contains(**name) || present.iter().any(|p| p == *name))
                .map(|name| (*name).to_owned())
                .collect(),
            files: FILES
                .iter()
                .filter(|path| root.exists(path))
                .map(|path| format!("/{path}"))
                .collect(),
            io_uring_disabled: number("proc/sys/kernel/io_uring_disabled"),
            unprivileged_bpf_disabled: number("proc/sys/kernel/unprivileged_bpf_disabled"),
            // Both files are there in the initial network namespace only.
            busy_poll: root
                .exists("proc/sys/net/core/netdev_budget")
                .then(|| root.exists("proc/sys/net/core/busy_poll")),
            af_xdp: root
                .read_if_possible("proc/net/protocols")
                .map(|table| table.lines().any(|line| line.starts_with("XDP "))),
            huge_pages: huge_pages(&root.read_if_possible("proc/meminfo").unwrap_or_default()),
            locked_memory_bytes: locked_memory(
                &root
                    .read_if_possible("proc/thread-self/limits")
                    .unwrap_or_default(),
            ),
            iommu: !root.names("sys/kernel/iommu_groups").is_empty(),
            capabilities: capabilities.unwrap_or(0),
            initial_user_namespace: false,
        }
    }

    /// Why this kernel cannot do `packet_mmap --take`; none if it can. It needs TCX links: programs
    /// behind the packet taps (`kernel/bpf/tcx.c`).
    pub fn without_tcx(&self) -> Option<String> {
        let sentence = || {
            format!(
                "--take needs TCX, of Linux 6.6, and this is {}",
                self.kernel
            )
        };
        (!self.since(6, 6)).then(sentence)
    }

    /// Whether the kernel is this version or a later one.
    pub(super) fn since(&self, major: u32, minor: u32) -> bool {
        let mut numbers = self
            .kernel
            .split(|c: char| !c.is_ascii_digit())
            .map_while(|number| number.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        version >= (major, minor)
    }

    pub(crate) fn capable(&self, capability: u8) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    pub(super) fn has_module(&self, name: &str) -> bool {
        self.modules.contains(name)
    }

    pub(super) fn has_file(&self, name: &str) -> bool {
        self.files.contains(name)
    }
}

impl NicFacts {
    fn gather(interface: &Interface) -> HostResult<Self> {
        let name = &*interface.name;
        let links = link::list()?;
        let Some(link) = links.iter().find(|link| link.name == name) else {
            let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            return Err(HostError::impossible(
                name,
                "there is no such interface",
                format!("this host has {}", known.join(", ")),
            ));
        };
        let features = ethtool::features(name).unwrap_or_default();
        let feature = |wanted: &str| features.iter().find(|feature| feature.name == wanted);
        let most = |channels: Channels| channels.rx_max.saturating_add(channels.combined_max);
        let xdp = netdev::xdp_features(link.index);
        let queues = interface.interrupts.iter();
        let queues = queues.filter(|one| !one.effective.is_empty());
        let queues = queues.filter_map(|one| Some((one.queue?, one.effective.clone())));
        let entries = |rss: Rss| rss.indirection.len();
        let facts = Self {
            name: name.to_owned(),
            driver: interface.driver.clone(),
            up: link.up,
            carrier: link.carrier,
            native_xdp: link.native_xdp,
            mtu_bytes: link.mtu,
            queue_cpus: queues.collect(),
            rx_ring: interface.ring.map(|ring| ring.size),
            merging: MERGING
                .into_iter()
                .filter(|name| feature(name).is_some_and(|one| one.active))
                .collect(),
            rx_queues: interface.rx_queues().unwrap_or(link.rx_queues),
            rx_queues_max: interface.channels.map_or(link.rx_queues, most),
            gro: feature("rx-gro").map(|feature| feature.active),
            filters: feature(FILTERS).map(|feature| match (feature.active, feature.changeable) {
                (true, _) => Filters::On,
                (false, true) => Filters::Off,
                (false, false) => Filters::FixedOff,
            }),
            leases: napi::leases(link.index).unwrap_or_default(),
            napi_contexts: KernelAnswer::of(napi::list(link.index).map(|list| list.len())),
            xdp_features: KernelAnswer::of(xdp.map(|x| x.map(|x| x.names()).unwrap_or_default())),
            rss_entries: interface.rss.clone().map(entries),
            rules: KernelAnswer::of(ntuple::table(name).map(|table| table.locations.len())),
            ..Self::default()
        };
        Ok(facts.with_device(&Root::machine(), &interface.bus))
    }

    /// Adds what `/sys` and `/proc` have of the device at that place on the PCI bus.
    ///
    /// The device is looked up on its bus, because `/sys/class/net` may be that of another network
    /// namespace, where the name is another interface's.
    pub(super) fn with_device(mut self, root: &Root, bus: &str) -> Self {
        let defaults = parent_interfaces::of_default_routes(root);
        let mut defaults = defaults.iter();
        self.default_route =
            defaults.any(|upper| parent_interfaces::carries_in(root, &self.name, upper));
        // The name of a bus without a PCI device must not become another path.
        if bus.is_empty() || bus.contains('/') {
            return self;
        }
        let read = |file: &str| root.read_if_possible(&format!("sys/bus/pci/devices/{bus}/{file}"));
        let identity = |file: &str| u16::from_str_radix(read(file)?.strip_prefix("0x")?, 16).ok();
        let number = |file: &str| read(file)?.parse().ok();
        self.function = identity("vendor")
            .zip(identity("device"))
            .map(|(vendor, device)| Function {
                address: bus.to_owned(),
                vendor,
                device,
            });
        let device = format!("sys/bus/pci/devices/{bus}");
        self.virtio_dma = virtio_feature(root, &device, VIRTIO_F_ACCESS_PLATFORM);
        self.virtual_functions = number("sriov_totalvfs").map(|total| VirtualFunctions {
            total,
            now: number("sriov_numvfs").unwrap_or(0),
        });
        self
    }

    pub(crate) fn xdp(&self, feature: &str) -> bool {
        self.xdp_features
            .value()
            .is_some_and(|features| features.contains(&feature))
    }
}

/// The soft limit of `proc_pid_limits(5)`.
fn locked_memory(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn huge_pages(memory: &str) -> HugePages {
    let number = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
        let number = line
            .trim_start_matches(':')
            .split_ascii_whitespace()
            .next()?;
        number.parse::<u64>().ok()
    };
    HugePages {
        total: number("HugePages_Total").unwrap_or(0),
        free: number("HugePages_Free").unwrap_or(0),
        // The kernel's kB are units of 1024.
        size_bytes: number("Hugepagesize").unwrap_or(0).saturating_mul(1024),
    }
}
