//! The interface to the kernel's settings. A test can answer in its place.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use mpps_os::ethtool::coalesce::{self, Coalescing};
use mpps_os::ethtool::{self, Feature, QUEUES_MAX, hash_fields, ntuple, rss};
use mpps_os::interrupts;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{link, napi};
use mpps_os::sysfs::Sysfs;
use mpps_os::{CallError, CallResult};

use super::defer_lists;
use super::of_queue::OfQueue;
use super::primitive::{OF_QUEUES, SKB_DEFER_MAX, Setting, Value, coalescings, hash_flow};
use super::untracked::PortPackets;
use crate::facts::namespace_paths;
use crate::facts::receive_path::facts::FILTERS;
use crate::facts::rss::hexadecimal;
use crate::facts::sysctl;
use crate::facts::{Interface, virtio_feature};
use crate::root::Root;

/// A virtio card can wait before it interrupts, all of it or each queue apart
/// (include/uapi/linux/virtio_net.h).
const VIRTIO_NET_F_NOTF_COAL: usize = 53;
const VIRTIO_NET_F_VQ_NOTF_COAL: usize = 52;

/// A host whose settings are changed. Every method fails as the call of `mpps-os` does that it
/// stands for.
pub(crate) trait SettingHost: fmt::Debug {
    /// The network namespace of the other methods, by its inode number (`ns.inum`).
    fn namespace(&self) -> CallResult<u32>;
    /// The number of an interface.
    fn index(&self, interface: &str) -> CallResult<u32>;
    /// The present name of an interface; none where it is gone.
    fn name(&self, index: u32) -> CallResult<Option<String>>;
    /// Another network namespace with an interface of this name.
    fn elsewhere(&self, _interface: &str) -> Option<u32> {
        None
    }
    /// How many receive queues rules and the RSS table may name.
    fn rings(&self, interface: &str) -> CallResult<u32>;
    /// How many queues of an interface the kernel polls; none if it does not show them.
    fn polled_queues(&self, index: u32) -> Option<usize>;
    /// The value of a setting other than a rule; none if there is no such setting.
    fn read(&self, setting: &Setting, interface: &str) -> CallResult<Option<Value>>;
    /// Sets it. An RSS table without entries lets the kernel choose.
    fn write(&self, setting: &Setting, interface: &str, value: &Value) -> CallResult<()>;
    /// The settings of each of its queues, and those that spread packets by their hash.
    fn of_queues(&self, interface: &str) -> CallResult<Vec<OfQueue>>;
    /// The places of the rules.
    fn rules(&self, interface: &str) -> CallResult<ntuple::NtupleTable>;
    /// The rule at a place.
    fn rule(&self, interface: &str, location: u32) -> CallResult<ntuple::Shown>;
    /// Adds a rule and returns its place.
    fn insert(
        &self,
        interface: &str,
        rule: &ntuple::NtupleRule,
        location: Option<u32>,
    ) -> CallResult<u32>;
    /// Takes a rule away.
    fn remove(&self, interface: &str, location: u32) -> CallResult<()>;
    /// Lets every list of packet buffers to be freed get a packet and lose it again, so that its
    /// count begins anew unless it is full.
    fn wake(&self) -> CallResult<()>;
}

/// The kernel, in the network namespace of the calling thread.
#[derive(Debug, Clone)]
pub(crate) struct LiveKernel(Root);

impl Default for LiveKernel {
    fn default() -> Self {
        Self(Root::machine())
    }
}

impl LiveKernel {
    /// The text of a file of the interface; none if it is of a queue that no longer exists.
    pub(crate) fn file(&self, interface: &str, name: &str) -> CallResult<Option<String>> {
        let mounted = |name: &str| self.0.read(&format!("sys/{}", file(interface, name)));
        let sysfs = match Sysfs::mount() {
            Ok(sysfs) => Some(sysfs),
            // A user who may not mount reads the mounted files, if they are of this namespace.
            Err(refusal) => {
                let index = mounted("ifindex").ok();
                if index != Some(link::index(interface)?.to_string()) {
                    return Err(refusal);
                }
                None
            }
        };
        let read = |name: &str| match &sysfs {
            Some(sysfs) => sysfs.read(&file(interface, name)),
            None => mounted(name),
        };
        match read(name) {
            Err(error)
                if name.starts_with("queues/")
                    && error.source.kind() == io::ErrorKind::NotFound
                    && read("ifindex").is_ok() =>
            {
                Ok(None)
            }
            told => told.map(Some),
        }
    }

    fn coalescing(&self, interface: &str, queue: Option<u32>) -> CallResult<Option<Coalescing>> {
        let (told, feature) = match queue {
            None => (coalesce::read(interface), VIRTIO_NET_F_NOTF_COAL),
            Some(queue) => (
                coalesce::read_queue(interface, queue),
                VIRTIO_NET_F_VQ_NOTF_COAL,
            ),
        };
        let is_refused = match &told {
            Ok(_) => false,
            Err(error) if error.source.kind() == io::ErrorKind::InvalidInput => true,
            Err(_) => return told.map(Some),
        };
        let driver = ethtool::driver(interface).ok();
        let device = driver.and_then(|driver| interrupts::device(self.0.path(), &driver.bus));
        let has_feature = device.and_then(|at| virtio_feature(&self.0, &at, feature));
        // A driver refuses a queue that has gone. virtio_net still answers.
        if let Some(queue) = queue
            && (is_refused || has_feature == Some(true))
            && self
                .file(interface, &format!("queues/rx-{queue}/rps_cpus"))?
                .is_none()
        {
            return Ok(None);
        }
        // virtio_net shows a time, and without the feature sets none (`virtnet_set_coalesce`,
        // `virtnet_set_per_queue_coalesce`).
        match has_feature {
            Some(false) => {
                let source = io::ErrorKind::Unsupported.into();
                Err(CallError::new("virtio features", interface, source))
            }
            _ => told.map(Some),
        }
    }
}

/// How the card waits, to be changed ([`coalescings`]).
pub(crate) fn coalescings_of(
    host: &dyn SettingHost,
    interface: &str,
) -> CallResult<Vec<(Setting, Coalescing)>> {
    let read = |setting: &Setting| match host.read(setting, interface) {
        Ok(told) => Ok(told.and_then(|told| told.coalescing())),
        // The driver has no settings per queue, or shows none while the link is down (mlx5).
        Err(error)
            if *setting != Setting::Coalescing { queue: None }
                && matches!(
                    error.source.kind(),
                    io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
                ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    };
    let sends = |queue| {
        let name = format!("queues/tx-{queue}/xps_cpus");
        matches!(host.read(&Setting::File { name }, interface), Ok(Some(_)))
    };
    coalescings(read, sends)
}

impl SettingHost for LiveKernel {
    fn namespace(&self) -> CallResult<u32> {
        NetNamespace::current().map(|namespace| namespace.inode())
    }

    fn index(&self, interface: &str) -> CallResult<u32> {
        link::index(interface)
    }

    fn name(&self, index: u32) -> CallResult<Option<String>> {
        Ok(link::find(index)?.map(|link| link.name))
    }

    fn elsewhere(&self, interface: &str) -> Option<u32> {
        let mut seen = BTreeSet::from([self.namespace().ok()?]);
        let mut others = namespace_paths().filter(|(inode, _)| seen.insert(*inode));
        others.find_map(|(inode, path)| {
            let there = NetNamespace::open(&path).ok()?;
            let found = there.run(|| link::index(interface)).ok()?;
            found.is_ok().then_some(inode)
        })
    }

    fn rings(&self, interface: &str) -> CallResult<u32> {
        ntuple::rings(interface)
    }

    fn polled_queues(&self, index: u32) -> Option<usize> {
        // Linux before 6.8 has no such question.
        napi::list(index).ok().map(|queues| queues.len())
    }

    fn read(&self, setting: &Setting, interface: &str) -> CallResult<Option<Value>> {
        Ok(match setting {
            Setting::File { name } => self.file(interface, name)?.map(Value::Text),
            Setting::Coalescing { queue } => {
                let told = self.coalescing(interface, *queue)?;
                told.map(|told| Value::Numbers(told.words()))
            }
            Setting::IrqSuspend => {
                let contexts = napi::list(link::index(interface)?)?;
                let times = contexts.iter().map(|one| one.irq_suspend_timeout_ns);
                let times = times.map(|time| u32::try_from(time?).ok());
                times.collect::<Option<_>>().map(Value::Numbers)
            }
            Setting::Filters => {
                let mut features = ethtool::features(interface)?.into_iter();
                switch(features.find(|known| known.name == FILTERS))
            }
            Setting::RssTable => Some(Value::Numbers(rss::read(interface)?.indirection)),
            Setting::RssKey => {
                let key = rss::read(interface)?.key;
                (!key.is_empty()).then(|| Value::Text(hexadecimal(&key)))
            }
            Setting::Rule { .. } => None,
            Setting::Channels => known(ethtool::channels(interface))?
                .filter(|channels| channels.combined > 0)
                .map(|channels| Value::text(channels.combined)),
            Setting::RxRing => {
                known(ethtool::rx_ring(interface))?.map(|ring| Value::text(ring.size))
            }
            Setting::HashFields { flow } => match hash_flow(flow) {
                Some(flow) => known(hash_fields::read(interface, flow))?
                    .map(|fields| Value::text(hash_fields::letters(fields))),
                None => None,
            },
            Setting::Feature { name } => {
                let mut features = ethtool::features(interface)?.into_iter();
                switch(features.find(|known| known.name == *name))
            }
            Setting::Affinity { interrupt } => {
                let cpus = self.0.read_if_present(&affinity(*interrupt))?;
                cpus.map(Value::Text)
            }
            Setting::Untracked { protocol, port } => {
                let port = *port;
                PortPackets { protocol, port }.read()?.map(Value::text)
            }
            Setting::Sysctl { name } => {
                let value = self.0.read_if_present(&sysctl::path(name))?;
                value.map(Value::Text)
            }
            Setting::OfProgram(one) => one.read()?.map(Value::Text),
            Setting::SkbDefer => {
                let limit = self.0.read_if_present(&sysctl::path(SKB_DEFER_MAX))?;
                limit.map(Value::Text)
            }
        })
    }

    fn write(&self, setting: &Setting, interface: &str, value: &Value) -> CallResult<()> {
        match (setting, value) {
            (Setting::File { name }, Value::Text(text)) => {
                Sysfs::mount()?.write(&file(interface, name), text)
            }
            (Setting::Filters, Value::Text(text)) => {
                ethtool::set_feature(interface, FILTERS, text == "on")
            }
            (Setting::Feature { name }, Value::Text(text)) => {
                ethtool::set_feature(interface, name, text == "on")
            }
            (Setting::Channels, Value::Text(text)) => match text.parse() {
                Ok(count) => ethtool::set_channels(interface, count),
                Err(_) => Err(unfit(interface)),
            },
            (Setting::RxRing, Value::Text(text)) => match text.parse() {
                Ok(size) => ethtool::set_rx_ring(interface, size),
                Err(_) => Err(unfit(interface)),
            },
            (Setting::HashFields { flow }, Value::Text(text)) => {
                match hash_flow(flow).zip(hash_fields::fields(text)) {
                    Some((flow, fields)) => hash_fields::set(interface, flow, fields),
                    None => Err(unfit(interface)),
                }
            }
            (Setting::Affinity { interrupt }, Value::Text(text)) => {
                self.0.write(&affinity(*interrupt), text)
            }
            (Setting::Untracked { protocol, port }, Value::Text(text)) => {
                let port = *port;
                PortPackets { protocol, port }.write(text == "on")
            }
            (Setting::OfProgram(one), Value::Text(text)) => one.write(text),
            (Setting::Sysctl { name }, Value::Text(text)) => {
                self.0.write(&sysctl::path(name), text)
            }
            (Setting::SkbDefer, Value::Text(text)) => {
                self.0.write(&sysctl::path(SKB_DEFER_MAX), text)
            }
            (Setting::IrqSuspend, Value::Numbers(times)) => {
                let contexts = napi::list(link::index(interface)?)?;
                // With other queues than it was planned for there is nothing that fits.
                if contexts.len() != times.len() {
                    return Err(unfit(interface));
                }
                let mut pairs = contexts.iter().zip(times);
                pairs.try_for_each(|(context, time)| napi::suspend_irqs(context.id, *time))
            }
            (Setting::RssTable, Value::Numbers(table)) if table.is_empty() => {
                rss::reset_indirection(interface)
            }
            (Setting::RssTable, Value::Numbers(table)) => rss::set_indirection(interface, table),
            (Setting::RssKey, Value::Text(letters)) => match crate::facts::rss::key(letters) {
                Ok(key) => rss::set_key(interface, &key),
                Err(_) => Err(unfit(interface)),
            },
            (Setting::Coalescing { queue }, Value::Numbers(words)) => {
                match (Coalescing::from_words(words), queue) {
                    (Some(wanted), None) => coalesce::set(interface, &wanted),
                    (Some(wanted), Some(queue)) => coalesce::set_queue(interface, *queue, &wanted),
                    (None, _) => Err(unfit(interface)),
                }
            }
            _ => Err(unfit(interface)),
        }
    }

    fn of_queues(&self, interface: &str) -> CallResult<Vec<OfQueue>> {
        let mut settings = vec![Setting::RssTable, Setting::RssKey];
        for (direction, files) in OF_QUEUES {
            let names = |queue| {
                let directory = format!("queues/{direction}-{queue}");
                let names = files.iter().map(move |name| format!("{directory}/{name}"));
                names.map(|name| Setting::File { name })
            };
            let is_there = |queue: &u32| {
                let directory = format!("queues/{direction}-{queue}/{}", files[0]);
                // The kernel refuses to show some where there is one queue.
                !matches!(self.file(interface, &directory), Ok(None))
            };
            settings.extend((0..QUEUES_MAX).take_while(is_there).flat_map(names));
        }
        let coalescings = known(coalescings_of(self, interface))?.unwrap_or_default();
        settings.extend(coalescings.into_iter().map(|(setting, _)| setting));
        let card = Interface::read(interface);
        let interrupts = card.interrupts.into_iter().map(|one| {
            let interrupt = one.number;
            // The interface may have another name by then.
            (
                Some(one.name.replace(interface, "")),
                Setting::Affinity { interrupt },
            )
        });
        let all = settings.into_iter().map(|setting| (None, setting));
        let known = all.chain(interrupts).filter_map(|(interrupt, setting)| {
            // A setting that its driver does not show cannot be put back either.
            let value = self.read(&setting, interface).ok().flatten()?;
            Some(OfQueue {
                interrupt,
                setting,
                value,
            })
        });
        Ok(known.collect())
    }

    fn rules(&self, interface: &str) -> CallResult<ntuple::NtupleTable> {
        ntuple::table(interface)
    }

    fn rule(&self, interface: &str, location: u32) -> CallResult<ntuple::Shown> {
        ntuple::rule(interface, location)
    }

    fn insert(
        &self,
        interface: &str,
        rule: &ntuple::NtupleRule,
        location: Option<u32>,
    ) -> CallResult<u32> {
        ntuple::insert(interface, rule, location)
    }

    fn remove(&self, interface: &str, location: u32) -> CallResult<()> {
        ntuple::remove(interface, location)
    }

    fn wake(&self) -> CallResult<()> {
        defer_lists::wake()
    }
}

/// A driver that has no such notion has no such setting.
fn known<T>(answer: CallResult<T>) -> CallResult<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if matches!(
                error.source.kind(),
                io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn affinity(interrupt: u32) -> String {
    format!("proc/irq/{interrupt}/smp_affinity_list")
}

fn file(interface: &str, name: &str) -> String {
    format!("class/net/{interface}/{name}")
}

/// A switch that is off and cannot be switched on is no setting.
fn switch(feature: Option<Feature>) -> Option<Value> {
    match feature? {
        feature if feature.active => Some(Value::text("on")),
        feature if feature.changeable => Some(Value::text("off")),
        _ => None,
    }
}

/// No edit that was planned here has such a value.
fn unfit(interface: &str) -> CallError {
    let source = io::Error::from(io::ErrorKind::InvalidInput);
    CallError::new("set", interface, source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn a_switch_that_is_fixed_off_is_no_setting() {
        let feature = |active, changeable| Feature {
            name: FILTERS.to_owned(),
            active,
            requested: active,
            changeable,
        };
        for (found, value) in [
            (None, None),
            (Some(feature(false, false)), None),
            (Some(feature(false, true)), Some("off")),
            (Some(feature(true, true)), Some("on")),
            (Some(feature(true, false)), Some("on")),
        ] {
            assert_eq!(switch(found), value.map(Value::text));
        }
    }

    #[test]
    fn the_setting_is_read_and_written_where_the_kernel_has_it() {
        let tree = fixture::tree("proc/sys/net/core/skb_defer_max = 64");
        let kernel = LiveKernel(tree.root.clone());
        let read = |kernel: &LiveKernel| kernel.read(&Setting::SkbDefer, "").expect("readable");
        assert_eq!(read(&kernel), Some(Value::text(64)));
        let write = |kernel: &LiveKernel| kernel.write(&Setting::SkbDefer, "", &Value::text(0));
        write(&kernel).expect("writable");
        let written = tree.root.read("proc/sys/net/core/skb_defer_max");
        assert_eq!(written.expect("readable"), "0");
        let none = LiveKernel(fixture::tree("").root.clone());
        assert_eq!(read(&none), None);
        write(&none).expect_err("a file that is not there is not made");
    }

    #[test]
    fn a_value_of_another_kind_is_refused() {
        let kernel = LiveKernel::default();
        let coalescing = Setting::Coalescing { queue: None };
        for setting in [coalescing, Setting::Filters, Setting::SkbDefer] {
            let error = kernel.write(&setting, "lo", &Value::Numbers(vec![1]));
            assert_eq!(error.expect_err("unfit").call, "set");
        }
    }
}
