//! A setting that goes with a queue.

use serde::{Deserialize, Serialize};

use super::super::value::Value;
use super::Setting;

/// A setting of a queue or an interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfQueue {
    /// The name of the interrupt, whose number another one may have once they are made anew.
    pub(crate) interrupt: Option<String>,
    pub(crate) setting: Setting,
    pub(crate) value: Value,
}

impl OfQueue {
    pub(crate) fn find_in<'a>(&self, all: &'a [Self]) -> Option<&'a Self> {
        all.iter().find(|one| match &self.interrupt {
            Some(_) => one.interrupt == self.interrupt,
            None => one.setting == self.setting,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_known_by_its_name() {
        let of = |name: &str, interrupt, cpus| OfQueue {
            interrupt: Some(name.to_owned()),
            setting: Setting::Affinity { interrupt },
            value: Value::set([cpus]),
        };
        let before = [of("-TxRx-0", 40, 0), of("-TxRx-1", 41, 1)];
        let made_anew = [of("-TxRx-1", 40, 1), of("-TxRx-0", 41, 0)];
        let found = before.map(|one| one.find_in(&made_anew).expect("it is there").value.clone());
        assert_eq!(found, [0, 1].map(|cpu| Value::set([cpu])));
    }
}
