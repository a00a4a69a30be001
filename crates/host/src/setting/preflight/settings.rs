//! Settings that drivers are known to set anew when an XDP program comes, before and after.

use crate::setting::{Edit, LiveKernel, Setting, SettingHost, Value};

/// The settings of an interface: channels, rings, hashing, coalescing and merging, as the driver
/// shows them.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings(Vec<(Setting, Value)>);

impl Settings {
    /// Reads those that can be read, of an interface of the calling thread's network namespace.
    pub fn read(interface: &str) -> Self {
        Self::of(&LiveKernel::default(), interface)
    }

    fn of(host: &dyn SettingHost, interface: &str) -> Self {
        let fields = |flow: &str| Setting::HashFields {
            flow: flow.to_owned(),
        };
        let feature = |name: &str| Setting::Feature {
            name: name.to_owned(),
        };
        let settings = [
            Setting::Channels,
            Setting::RxRing,
            Setting::RssTable,
            Setting::Coalescing { queue: None },
            fields("udp4"),
            fields("udp6"),
            feature("rx-lro"),
            feature("rx-gro-hw"),
            feature("rx-gro"),
        ];
        let read = settings.into_iter().filter_map(|setting| {
            let value = host.read(&setting, interface).ok().flatten()?;
            Some((setting, value))
        });
        Self(read.collect())
    }

    /// The settings that differ from an earlier reading, in words: `rx ring 512 -> 256`.
    pub fn since(&self, earlier: &Self) -> Vec<String> {
        let changed = self.0.iter().filter_map(|(setting, now)| {
            let mut before = earlier.0.iter();
            let (_, then) = before.find(|(known, _)| known == setting)?;
            let edit = Edit::new(setting.clone(), then.clone(), now.clone());
            (now != then).then(|| edit.to_string())
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_told_and_what_only_one_has_is_not() {
        let value = |name: &str, value: &str| {
            let name = name.to_owned();
            (Setting::Feature { name }, Value::text(value))
        };
        let of = |values: &[(Setting, Value)]| Settings(values.to_vec());
        let ring = |size: &str| (Setting::RxRing, Value::text(size));
        let earlier = of(&[value("rx-gro", "off"), ring("512")]);
        assert_eq!(earlier.since(&earlier), Vec::<String>::new());
        let later = of(&[value("rx-gro", "on"), ring("256"), value("rx-lro", "off")]);
        let told = ["rx-gro off -> on", "rx ring 512 -> 256"];
        assert_eq!(later.since(&earlier), told);
        assert_eq!(of(&[]).since(&earlier), Vec::<String>::new());
    }
}
