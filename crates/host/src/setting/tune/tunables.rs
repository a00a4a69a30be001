//! The present settings, and the machine.

use std::collections::BTreeMap;

use mpps_os::ethtool::QUEUES_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::sysctl;
use crate::facts::{Conntrack, Interface};
use crate::root::Root;
use crate::setting::{FEATURES, LiveKernel, Place, Setting, SettingHost, Value, interface_file};
use crate::{CpuList, HostError, HostResult, Topology};

/// How many flows the machine's table of readers has.
pub(super) const FLOWS: &str = "net.core.rps_sock_flow_entries";

/// The input of the stages. It can be recorded on one host and judged on another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tunables {
    /// The interface.
    pub interface: String,
    /// Its driver.
    pub driver: String,
    /// True if there is no card behind it.
    pub is_virtual: bool,
    /// The NUMA node that the card sits at, where the machine has nodes and says so.
    pub node: Option<usize>,
    /// The machine's CPUs.
    pub cpus: Vec<CpuPlace>,
    /// The interrupts of its receive queues.
    pub interrupts: Vec<QueueInterrupt>,
    /// How many combined channels the card may have; 0 without.
    pub channels_max: u32,
    /// How many receive queues, and how many transmit queues, it has.
    pub rx_queues: u32,
    /// The same of what it sends by.
    pub tx_queues: u32,
    /// How many descriptors a receive ring may have.
    pub rx_ring_max: u32,
    /// How many virtual functions the card may have; 0 without.
    #[serde(default)]
    pub functions_max: u32,
    /// How many connections the network namespace tracks.
    #[serde(default)]
    pub tracked: u64,
    /// True if a program is running that moves its interrupts.
    pub irqbalance: bool,
    /// Every setting that there is, and its value.
    pub values: Vec<(Setting, Value)>,
}

/// Where a CPU is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuPlace {
    /// Its number.
    pub cpu: usize,
    /// Its NUMA node.
    pub node: usize,
    /// The lowest number of the hyper-threads of its core.
    pub core: usize,
}

/// The interrupt of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueInterrupt {
    /// Its number.
    pub interrupt: u32,
    /// The queue.
    pub queue: usize,
}

impl Tunables {
    /// Reads the host and an interface of the calling thread's network namespace, and of a port whether its
    /// packets are left out of connection tracking. No right is needed.
    ///
    /// # Errors
    /// [`HostError::Kernel`] where the interface is not there; [`HostError::Impossible`] where its files
    /// cannot be seen.
    pub fn read(interface: &str, port: Option<u16>) -> HostResult<Self> {
        let host = LiveKernel::default();
        let place = host.interface(interface)?;
        let root = Root::machine();
        if let Err(refusal) = interface_file(&root, interface, "ifindex") {
            let why =
                format!("/sys is not of this network namespace, or cannot be read ({refusal})");
            let remedy =
                "run as root, or enter its mount namespace too (unshare --mount, nsenter --mount)";
            return Err(HostError::impossible(interface, why, remedy));
        }
        let card = Interface::read(interface);
        let queues = card.interrupts.iter().filter_map(|one| {
            let queue = one.queue?;
            Some(QueueInterrupt {
                interrupt: one.number,
                queue,
            })
        });
        // Of an interface that is down some drivers (igb) show all queues that there may be.
        let used = |used: Option<u32>| used.filter(|used| *used > 0).unwrap_or(QUEUES_MAX);
        let topology = Topology::read()?;
        // CPUs that the administrator has kept free of such work stay free.
        let kept_free = ["isolated", "nohz_full"].map(|list| {
            let list = root.read_if_possible(&format!("sys/devices/system/cpu/{list}"));
            let list = list.and_then(|list| CpuList::from_kernel(&list).ok());
            list.unwrap_or_default().0
        });
        let cpus = topology.cpus.iter();
        let cpus = cpus.filter(|cpu| !kept_free.iter().flatten().any(|one| *one == cpu.id));
        let cpus = cpus.map(|cpu| CpuPlace {
            cpu: cpu.id,
            node: cpu.node,
            core: cpu.siblings.iter().min().copied().unwrap_or(cpu.id),
        });
        let mut tunables = Self {
            interface: interface.to_owned(),
            driver: card.driver.clone(),
            is_virtual: card.device.is_none(),
            node: card.node,
            cpus: cpus.collect(),
            interrupts: queues.collect(),
            channels_max: card.channels.map_or(0, |channels| channels.combined_max),
            rx_queues: count(&host, &place, rps_file).min(used(card.rx_queues())),
            tx_queues: count(&host, &place, xps_file).min(used(card.tx_queues())),
            rx_ring_max: card.ring.map_or(0, |ring| ring.size_max),
            functions_max: card.device.as_deref().map_or(0, |device| {
                let told = root.read_if_possible(&format!("{device}/sriov_totalvfs"));
                told.and_then(|told| told.parse().ok()).unwrap_or(0)
            }),
            tracked: Conntrack::read_from(&root).map_or(0, |table| table.entries),
            // Without interrupts of its own there is nothing that it could move.
            irqbalance: !card.interrupts.is_empty() && is_running(&root, "irqbalance"),
            values: Vec::new(),
        };
        let settings = tunables.settings(port);
        // Some settings of the machine are shown in other network namespaces, and cannot be set there.
        let settings = settings.into_iter().filter(|setting| match setting {
            Setting::Sysctl { name } => !root.is_read_only(&sysctl::path(name)),
            _ => true,
        });
        let known = settings.filter_map(|setting| {
            let value = match (&setting, host.read(&setting, &place)) {
                // If this user may not see the rules, the setting counts as off.
                (Setting::Untracked { .. }, Err(_)) => Value::Word("off".to_owned()),
                (_, Err(error)) if error.is_shortage() => return Some(Err(error)),
                // A setting that cannot be read does not exist on this host.
                (_, value) => value.ok().flatten()?,
            };
            Some(Ok((setting, value)))
        });
        tunables.values = known.collect::<HostResult<_, _>>()?;
        Ok(tunables)
    }

    /// All settings that a stage might change.
    fn settings(&self, port: Option<u16>) -> Vec<Setting> {
        let mut settings = vec![
            Setting::Channels,
            Setting::RxRing,
            Setting::RssKey,
            Setting::RssTable,
            Setting::Filters,
            Setting::Coalescing { queue: None },
            Setting::file("gro_flush_timeout"),
            Setting::file("napi_defer_hard_irqs"),
            Setting::file("threaded"),
        ];
        let untracked = |protocol: &str| {
            let protocol = protocol.to_owned();
            Some(Setting::Untracked {
                protocol,
                port: port?,
            })
        };
        settings.extend(["udp", "tcp"].into_iter().filter_map(untracked));
        settings.extend(Setting::fields_of_udp());
        settings.extend(FEATURES.map(Setting::feature));
        settings.extend((0..self.rx_queues).map(rps_file).map(Setting::file));
        settings.extend((0..self.rx_queues).map(flows_file).map(Setting::file));
        let of_queue = |queue| Setting::Coalescing { queue: Some(queue) };
        settings.extend((0..self.rx_queues).map(of_queue));
        settings.extend((0..self.tx_queues).map(xps_file).map(Setting::file));
        settings.extend(self.interrupts.iter().map(|one| Setting::Affinity {
            interrupt: one.interrupt,
        }));
        settings.extend(sysctl::CHANGED.map(Setting::sysctl));
        settings
    }

    /// The value of a setting; none if there is no such setting.
    pub(super) fn value(&self, setting: &Setting) -> Option<&Value> {
        let mut known = self.values.iter();
        known
            .find(|(known, _)| known == setting)
            .map(|(_, value)| value)
    }

    /// The value of a setting that is a number.
    pub(super) fn number(&self, setting: &Setting) -> Option<u32> {
        self.value(setting)?.count()
    }

    pub(super) fn channels(&self) -> Option<u32> {
        self.number(&Setting::Channels)
    }

    /// How many receive queues it uses.
    pub(super) fn queues(&self) -> u32 {
        self.rx_queues.max(1)
    }

    /// One CPU of each core of the card's node, or of the machine where it is at none.
    pub(super) fn near_cores(&self) -> Vec<usize> {
        let has_near = self.cpus.iter().any(|place| Some(place.node) == self.node);
        let is_near = |place: &&CpuPlace| !has_near || Some(place.node) == self.node;
        let mut cores: BTreeMap<usize, usize> = BTreeMap::new();
        for place in self.cpus.iter().filter(is_near) {
            cores.entry(place.core).or_insert(place.cpu);
        }
        cores.into_values().collect()
    }

    /// How long its receive ring lasts at a million packets a second, in microseconds.
    pub(super) fn ring_us_at_a_million(&self) -> Option<u64> {
        self.number(&Setting::RxRing).map(u64::from)
    }
}

/// How many queues have such a file.
fn count(host: &LiveKernel, place: &Place, name: fn(u32) -> String) -> u32 {
    let file = |queue: &u32| host.read(&Setting::file(name(*queue)), place);
    let is_there = |queue: &u32| matches!(file(queue), Ok(Some(_)));
    (0..QUEUES_MAX).take_while(is_there).count() as u32
}

/// Which CPUs work behind a receive queue.
pub(super) fn rps_file(queue: u32) -> String {
    format!("queues/rx-{queue}/rps_cpus")
}

/// How many flows a receive queue's table has.
pub(super) fn flows_file(queue: u32) -> String {
    format!("queues/rx-{queue}/rps_flow_cnt")
}

/// Which CPUs send by a transmit queue.
pub(super) fn xps_file(queue: u32) -> String {
    format!("queues/tx-{queue}/xps_cpus")
}

/// True if a process of this name runs, as far as this user sees.
fn is_running(root: &Root, name: &str) -> bool {
    let processes = root.names("proc").into_iter();
    let mut processes = processes.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()));
    processes.any(|pid| {
        root.read_if_possible(&format!("proc/{pid}/comm"))
            .as_deref()
            == Some(name)
    })
}
