//! Settings that drivers are known to set anew when an XDP program comes, before and after.

use crate::setting::{Edit, FEATURES, LiveKernel, Setting, SettingHost, Value};

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
        let mut settings = vec![
            Setting::Channels,
            Setting::RxRing,
            Setting::RssTable,
            Setting::Coalescing { queue: None },
        ];
        settings.extend(Setting::fields_of_udp());
        settings.extend(FEATURES.map(Setting::feature));
        let place = host.interface(interface).ok();
        let read = settings.into_iter().filter_map(|setting| {
            let value = host.read(&setting, place.as_ref()?).ok().flatten()?;
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
        let value = |name: &str, is_on| (Setting::feature(name), Value::Switch(is_on));
        let of = |values: &[(Setting, Value)]| Settings(values.to_vec());
        let ring = |size| (Setting::RxRing, Value::Number(size));
        let earlier = of(&[value("rx-gro", false), ring(512)]);
        assert_eq!(earlier.since(&earlier), Vec::<String>::new());
        let later = of(&[value("rx-gro", true), ring(256), value("rx-lro", false)]);
        let told = ["rx-gro off -> on", "rx ring 512 -> 256"];
        assert_eq!(later.since(&earlier), told);
        assert_eq!(of(&[]).since(&earlier), Vec::<String>::new());
    }
}
