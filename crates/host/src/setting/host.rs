//! The kernel's settings.

use std::collections::BTreeSet;

use mpps_os::CallResult;
use mpps_os::ethtool::{QUEUES_MAX, ntuple};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{link, napi};

use super::defer_lists;
use super::kind::{FILES, OfQueue, Setting, SettingHost, coalescings_of, known, unfit};
use super::place::Place;
use super::value::Value;
use crate::facts::{Interface, namespace_paths};
use crate::root::Root;

/// The kernel, in the network namespace of the calling thread.
#[derive(Debug, Clone)]
pub(crate) struct LiveKernel(Root);

impl Default for LiveKernel {
    fn default() -> Self {
        Self(Root::machine())
    }
}

impl SettingHost for LiveKernel {
    fn namespace(&self) -> CallResult<u32> {
        NetNamespace::current().map(|namespace| namespace.inode())
    }

    fn namespace_cookie(&self) -> Option<u64> {
        NetNamespace::current_cookie().ok()
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
            // A user's namespace may have an interface of any name.
            let there = NetNamespace::open(&path).ok()?;
            if !there.is_of_own_user_namespace() {
                return None;
            }
            let found = there.run(|| link::index(interface)).ok()?;
            found.is_ok().then_some(inode)
        })
    }

    fn rings(&self, interface: &str) -> CallResult<u32> {
        ntuple::rings(interface)
    }

    fn polled_queues(&self, place: &Place) -> Option<usize> {
        // Linux before 6.8 has no such question.
        napi::list(link::index(place.name()).ok()?)
            .ok()
            .map(|queues| queues.len())
    }

    fn read(&self, setting: &Setting, place: &Place) -> CallResult<Option<Value>> {
        let row = setting.row();
        row.form.map_or(Ok(None), |_| (row.read)(&self.0, place))
    }

    fn write(&self, setting: &Setting, place: &Place, value: &Value) -> CallResult<()> {
        let row = setting.row();
        match row.form.is_some_and(|form| form.takes(value)) {
            true => (row.write)(&self.0, place, value),
            false => Err(unfit(place)),
        }
    }

    fn of_queues(&self, place: &Place) -> CallResult<Vec<OfQueue>> {
        let interface = place.name();
        let mut settings = vec![Setting::RssTable, Setting::RssKey];
        for direction in ["rx", "tx"] {
            let files = FILES.iter().filter(|(of, ..)| *of == Some(direction));
            let names = |queue: u32| {
                let directory = format!("queues/{direction}-{queue}");
                let files = files.clone();
                files.map(move |(_, name, ..)| Setting::file(format!("{directory}/{name}")))
            };
            let is_there = |queue: &u32| {
                let mut first = names(*queue).take(1);
                // The kernel refuses to show some where there is one queue.
                first.all(|file| !matches!(self.read(&file, place), Ok(None)))
            };
            settings.extend((0..QUEUES_MAX).take_while(is_there).flat_map(names));
        }
        let coalescings = known(coalescings_of(self, place))?.unwrap_or_default();
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
            let value = self.read(&setting, place).ok().flatten()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use crate::setting::SKB_DEFER_MAX;

    fn machine() -> Place {
        let setting = SKB_DEFER_MAX.to_owned();
        Place::Machine { setting }
    }

    #[test]
    fn the_setting_is_read_and_written_where_the_kernel_has_it() {
        let tree = fixture::tree("proc/sys/net/core/skb_defer_max = 64");
        let kernel = LiveKernel(tree.root.clone());
        let read = |kernel: &LiveKernel| {
            kernel
                .read(&Setting::SkbDefer, &machine())
                .expect("readable")
        };
        assert_eq!(read(&kernel), Some(Value::Number(64)));
        let write =
            |kernel: &LiveKernel| kernel.write(&Setting::SkbDefer, &machine(), &Value::Number(0));
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
            let error = kernel.write(&setting, &machine(), &Value::Numbers(vec![1]));
            assert_eq!(error.expect_err("unfit").call, "set");
        }
    }
}
