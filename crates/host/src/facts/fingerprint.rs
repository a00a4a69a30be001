//! The facts about a machine that explain the figures measured on it.

use std::collections::{BTreeMap, BTreeSet};

use mpps_os::netlink::link::{self, NetlinkLink};
use mpps_os::sysfs::Sysfs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::HostResult;
use crate::facts::Interface;
use crate::facts::cpu::Topology;
use crate::facts::interface_facts::InterfaceFacts;
use crate::facts::sysctl;
use crate::root::Root;
use mpps_os::CpuList;

/// A machine and its settings, without anything that names its owner: no host name, no address,
/// no serial number.
///
/// A fact that a machine does not show is absent, never guessed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fingerprint {
    /// The kernel's release (`uname -r`).
    pub kernel_release: String,
    /// The kernel's build (`uname -v`).
    pub kernel_version: Option<String>,
    /// The instruction set that this program was built for, such as `x86_64`.
    pub architecture: String,
    /// The options of the kernel's command line that touch scheduling, idling and mitigations.
    pub boot_options: Vec<String>,
    /// The model of the first CPU.
    pub cpu_model: Option<String>,
    /// How many CPUs are online.
    pub cpus: usize,
    /// The CPUs that this process may use, such as `0-3`.
    pub cpus_usable: String,
    /// How many cores are online.
    pub cores: usize,
    /// How many NUMA nodes have CPUs.
    pub numa_nodes: usize,
    /// Whether a core shows itself as several CPUs.
    pub hyper_threads: bool,
    /// Whether the machine is a virtual one; absent where the CPU does not say.
    pub hypervisor: Option<bool>,
    /// The frequency governors in use.
    pub governors: Vec<String>,
    /// The kernel's mitigation of each CPU vulnerability that the machine has.
    pub mitigations: BTreeMap<String, String>,
    /// The clock that time stamps come from.
    pub clocksource: Option<String>,
    /// The memory that the kernel manages, in bytes.
    pub memory_bytes: Option<u64>,
    /// The settings of [`sysctl::SETTINGS`]; a setting that is not there has no value.
    pub settings: BTreeMap<String, Option<String>>,
    /// The interfaces that the measurement used.
    pub interfaces: BTreeMap<String, InterfaceFacts>,
}

/// A fact that differs between two fingerprints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The fact, such as `net.core.rmem_max` or `eth0 driver`.
    pub name: String,
    /// Its value in the first; absent where that machine does not say.
    pub a: Option<String>,
    /// Its value in the second.
    pub b: Option<String>,
}

/// Beginnings of kernel options that change what is measured. Others are left out, because a
/// command line can hold names and addresses.
const BOOT_OPTIONS: [&str; 12] = [
    "idle=",
    "intel_idle.max_cstate=",
    "intel_pstate=",
    "isolcpus=",
    "mitigations=",
    "nohz_full=",
    "nosmt",
    "preempt=",
    "processor.max_cstate=",
    "rcu_nocbs=",
    "threadirqs",
    "tsc=",
];

impl Fingerprint {
    /// Reads this machine, and the interfaces named, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`crate::HostError::Kernel`] where `/proc` or `/sys` is missing altogether, [`crate::HostError::Malformed`] where
    /// a list of CPUs has an unknown form.
    pub fn collect(interfaces: &[impl AsRef<str>]) -> HostResult<Self> {
        let mut fingerprint = Self::collect_from(&Root::machine())?;
        fingerprint.complete();
        if interfaces.is_empty() {
            return Ok(fingerprint);
        }
        let (sysfs, links) = (Sysfs::mount().ok(), link::list().unwrap_or_default());
        let links = links.iter().map(|link| (&*link.name, link));
        let links: BTreeMap<&str, &NetlinkLink> = links.collect();
        for name in interfaces.iter().map(AsRef::as_ref) {
            let link = links.get(name).copied();
            let facts = InterfaceFacts::of(&Interface::read(name), link, sysfs.as_ref());
            fingerprint.interfaces.insert(name.to_owned(), facts);
        }
        Ok(fingerprint)
    }

    /// Adds the settings that were missing when this was collected and that the calling thread's
    /// network namespace shows.
    pub fn complete(&mut self) {
        sysctl::add_missing(&mut self.settings, sysctl::settings());
    }

    fn collect_from(root: &Root) -> HostResult<Self> {
        let kernel_release = root.read("proc/sys/kernel/osrelease")?;
        let topology = Topology::read_from(root)?;
        let cpuinfo = root.read_if_possible("proc/cpuinfo").unwrap_or_default();
        let meminfo = root.read_if_possible("proc/meminfo").unwrap_or_default();
        Ok(Self {
            kernel_release,
            kernel_version: root.read_if_possible("proc/sys/kernel/version"),
            architecture: std::env::consts::ARCH.to_owned(),
            boot_options: boot_options(&root.read_if_possible("proc/cmdline").unwrap_or_default()),
            cpu_model: field(&cpuinfo, "model name").map(str::to_owned),
            cpus: topology.cpus.len(),
            cpus_usable: CpuList(topology.usable()).to_string(),
            cores: topology.cores(),
            numa_nodes: topology.nodes().len(),
            hyper_threads: topology.has_hyper_threads(),
            hypervisor: field(&cpuinfo, "flags").map(|flags| {
                flags
                    .split_ascii_whitespace()
                    .any(|flag| flag == "hypervisor")
            }),
            governors: governors(root, &topology),
            mitigations: mitigations(root),
            clocksource: root.read_if_possible(
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            memory_bytes: field(&meminfo, "MemTotal").and_then(kibibytes),
            settings: sysctl::settings_from(root),
            interfaces: BTreeMap::new(),
        })
    }

    /// The facts that differ from another fingerprint, in the order of their names.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let (a, b) = (self.facts(), other.facts());
        let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        names
            .into_iter()
            .map(|name| Difference {
                name: name.clone(),
                a: a.get(name).cloned().flatten(),
                b: b.get(name).cloned().flatten(),
            })
            .filter(|difference| difference.a != difference.b)
            .collect()
    }

    /// All facts by name.
    fn facts(&self) -> BTreeMap<String, Option<String>> {
        let mut facts: BTreeMap<_, _> = texts("", self).collect();
        facts.extend(texts("mitigation ", &self.mitigations));
        facts.extend(self.settings.clone());
        for (interface, own) in &self.interfaces {
            let prefix = format!("{interface} ");
            let features = own.features.iter();
            let features = features.map(|(name, &on)| (name, if on { "on" } else { "off" }));
            let features: BTreeMap<_, _> = features.collect();
            facts.extend(texts(&prefix, own));
            facts.extend(texts(&prefix, &features));
            facts.extend(texts(&prefix, &own.attributes));
        }
        facts
    }
}

/// The fields of a structure by their names, without those that have fields themselves. An empty list
/// is absent.
fn texts(prefix: &str, facts: &impl Serialize) -> impl Iterator<Item = (String, Option<String>)> {
    let fields = match serde_json::to_value(facts) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    fields.into_iter().filter_map(move |(name, value)| {
        let text = match value {
            Value::Object(_) => return None,
            Value::Null => None,
            Value::String(text) => Some(text),
            Value::Array(words) => {
                let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                Some(words.join(" ")).filter(|text| !text.is_empty())
            }
            number => Some(number.to_string()),
        };
        Some((format!("{prefix}{name}"), text))
    })
}

fn boot_options(command_line: &str) -> Vec<String> {
    command_line
        .split_ascii_whitespace()
        .filter(|word| BOOT_OPTIONS.iter().any(|option| word.starts_with(option)))
        .map(str::to_owned)
        .collect()
}

fn governors(root: &Root, topology: &Topology) -> Vec<String> {
    let file = |id| format!("sys/devices/system/cpu/cpu{id}/cpufreq/scaling_governor");
    let governors: BTreeSet<String> = topology
        .cpus
        .iter()
        .filter_map(|cpu| root.read_if_possible(&file(cpu.id)))
        .collect();
    governors.into_iter().collect()
}

/// The kernel's text on each vulnerability, without those that do not affect the CPU.
fn mitigations(root: &Root) -> BTreeMap<String, String> {
    let directory = "sys/devices/system/cpu/vulnerabilities";
    root.names(directory)
        .into_iter()
        .filter_map(|name| {
            let text = root.read_if_possible(&format!("{directory}/{name}"))?;
            (text != "Not affected").then_some((name, text))
        })
        .collect()
}

/// The first value of a name in a file of `name : value` lines.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
}

/// A size of `/proc/meminfo` in bytes. Its kB are units of 1024.
fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use mpps_os::namespace::NetNamespace;

    fn virtual_machine() -> Fingerprint {
        let tree = fixture::tree(include_str!("../../tests/fixtures/machine.tree"));
        Fingerprint::collect_from(&tree.root).expect("the fixture is a whole machine")
    }

    #[test]
    fn reads_a_recorded_machine() {
        let machine = virtual_machine();
        assert_eq!(machine.kernel_release, "6.18.44");
        assert_eq!(machine.cpu_model.as_deref(), Some("AMD EPYC"));
        assert_eq!((machine.cpus, machine.cores, machine.numa_nodes), (2, 2, 1));
        assert_eq!(machine.cpus_usable, "0-1");
        assert_eq!(machine.hypervisor, Some(true));
        assert_eq!(machine.governors, [""; 0]);
        assert_eq!(machine.clocksource.as_deref(), Some("tsc"));
        assert_eq!(machine.memory_bytes, Some(16_384_000 * 1024));
        assert_eq!(machine.boot_options, ["mitigations=auto", "nosmt"]);
        let vulnerable: Vec<&str> = machine.mitigations.keys().map(String::as_str).collect();
        assert_eq!(vulnerable, ["spec_store_bypass", "spectre_v2"]);
        assert_eq!(
            machine.settings["net.core.rmem_max"].as_deref(),
            Some("4194304")
        );
        assert_eq!(machine.settings["net.core.busy_poll"], None);
    }

    #[test]
    fn differences_are_named() {
        let a = virtual_machine();
        assert_eq!(a.differences(&a), []);
        let mut b = a.clone();
        b.cpus = 24;
        b.hypervisor = None;
        b.settings.insert("net.core.rmem_max".to_owned(), None);
        let veth = InterfaceFacts {
            driver: Some("veth".to_owned()),
            rx_queues: Some(4),
            features: [("rx-gro".to_owned(), true)].into(),
            attributes: [("threaded".to_owned(), "1".to_owned())].into(),
            ..InterfaceFacts::default()
        };
        b.interfaces.insert("eth9".to_owned(), veth);
        let difference = |name: &str, a: Option<&str>, b: Option<&str>| Difference {
            name: name.to_owned(),
            a: a.map(str::to_owned),
            b: b.map(str::to_owned),
        };
        assert_eq!(
            a.differences(&b),
            [
                difference("cpus", Some("2"), Some("24")),
                difference("eth9 driver", None, Some("veth")),
                difference("eth9 rx-gro", None, Some("on")),
                difference("eth9 rx_queues", None, Some("4")),
                difference("eth9 threaded", None, Some("1")),
                difference("hypervisor", Some("true"), None),
                difference("net.core.rmem_max", Some("4194304"), None),
            ]
        );
    }

    #[test]
    fn every_fact_can_differ() {
        // A field that `facts` forgets would never show up in a comparison.
        let machine = virtual_machine();
        let json = serde_json::to_value(&machine).expect("plain data");
        let fields = json.as_object().expect("a structure");
        let facts = machine.facts();
        for name in fields.keys() {
            let covered = match name.as_str() {
                "mitigations" => facts.contains_key("mitigation spectre_v2"),
                "settings" => facts.contains_key("net.core.rmem_max"),
                "interfaces" => true, // Has a test of its own above.
                plain => facts.contains_key(plain),
            };
            assert!(covered, "{name} is not compared");
        }
    }

    #[test]
    fn a_bare_machine_has_few_facts_and_is_no_error() {
        let text = include_str!("../../tests/fixtures/cpu-1.tree").to_owned()
            + "proc/sys/kernel/osrelease = 5.10.0\n";
        let bare = Fingerprint::collect_from(&fixture::tree(&text).root).expect("enough");
        assert_eq!(bare.cpu_model, None);
        assert_eq!(bare.hypervisor, None);
        assert_eq!(bare.memory_bytes, None);
    }

    #[test]
    fn no_proc_is_an_error_that_names_it() {
        let tree = fixture::tree("");
        let error = Fingerprint::collect_from(&tree.root)
            .unwrap_err()
            .to_string();
        assert!(error.contains("proc/sys/kernel/osrelease"), "{error}");
    }

    #[test]
    fn a_namespace_does_not_hide_the_settings_of_the_machine() {
        // An ordinary user can have none.
        let Ok(namespace) = NetNamespace::new() else {
            return;
        };
        let inside = namespace.run(|| Fingerprint::collect(&["lo"]));
        let mut inside = inside.expect("entered").expect("/proc and /sys are here");
        inside.complete();
        let outside = sysctl::settings_from(&Root::machine());
        for name in ["net.core.netdev_budget", "net.core.skb_defer_max"] {
            assert_eq!(inside.settings[name], outside[name], "{name}");
        }
    }

    #[test]
    fn this_machine_survives_json_and_says_nothing_of_its_owner() {
        let machine = Fingerprint::collect(&["lo"]).expect("/proc and /sys are here");
        let text = serde_json::to_string(&machine).expect("plain data");
        let back: Fingerprint = serde_json::from_str(&text).expect("the same form");
        assert_eq!(back, machine);
        assert!(machine.interfaces.contains_key("lo"));
        assert_eq!(machine.differences(&back), []);
        for word in machine.boot_options {
            assert!(BOOT_OPTIONS.iter().any(|option| word.starts_with(option)));
        }
    }
}
