//! What is set for each queue, which a driver may forget when their number changes.

use serde::{Deserialize, Serialize};

use super::host::Host;
use super::of_queue::OfQueue;
use super::primitive::Setting;

/// The settings of all queues around a change of their number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queues {
    /// As they were.
    before: Vec<OfQueue>,
    /// As the driver left them, once that is known.
    after: Option<Vec<OfQueue>>,
    /// As they are to be once the number is what it was: known, and written down, before undo sets it.
    wanted: Option<Vec<OfQueue>>,
}

impl Queues {
    pub(super) fn new(host: &dyn Host, interface: &str) -> mpps_os::Result<Self> {
        Ok(Self {
            before: host.of_queues(interface)?,
            after: None,
            wanted: None,
        })
    }

    /// Sees what the driver made of them.
    pub(super) fn changed(&mut self, host: &dyn Host, interface: &str) -> mpps_os::Result<()> {
        self.after = Some(host.of_queues(interface)?);
        Ok(())
    }

    /// Finds out what is to be put back: all but what somebody has set since.
    pub(super) fn want(&mut self, host: &dyn Host, interface: &str) -> mpps_os::Result<()> {
        let now = host.of_queues(interface)?;
        let wanted = self.before.iter().map(|old| {
            let after = self.after.as_deref().and_then(|after| old.find_in(after));
            match (after, old.find_in(&now)) {
                (Some(after), Some(now)) if !now.setting.is(&after.value, &now.value) => {
                    now.clone()
                }
                _ => old.clone(),
            }
        });
        self.wanted = Some(wanted.collect());
        Ok(())
    }

    /// True once undo has begun to set their number.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Sets what is wanted of the queues that there are.
    pub(super) fn restore(&self, host: &dyn Host, interface: &str) -> mpps_os::Result<()> {
        let there = host.of_queues(interface)?;
        for one in self.wanted.iter().flatten() {
            let setting = match (&one.setting, one.find_in(&there)) {
                (_, Some(same)) => &same.setting,
                // What has its number now may be another card's.
                (Setting::Affinity { .. }, None) => continue,
                (setting, None) => setting,
            };
            let now = host.read(setting, interface)?;
            if now.is_some_and(|now| !setting.is(&one.value, &now)) {
                host.write(setting, interface, &one.value)?;
            }
        }
        Ok(())
    }
}
