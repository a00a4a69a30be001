//! What is set for each queue, which a driver may forget when it makes them anew.

use serde::{Deserialize, Serialize};

use super::host::Host;
use super::of_queue::OfQueue;
use super::outcome::Undone;
use super::primitive::Setting;

/// The settings of all queues around a change for which the driver may make them anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queues {
    /// As they were.
    before: Vec<OfQueue>,
    /// As the driver left them, once that is known.
    after: Option<Vec<OfQueue>>,
    /// As they are to be: known, and written down, before undo has the queues made anew.
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

    /// Takes what they are set to now for what the driver made of them.
    pub(super) fn changed(&mut self, host: &dyn Host, interface: &str) -> mpps_os::Result<()> {
        self.after = Some(host.of_queues(interface)?);
        Ok(())
    }

    /// Finds out what is to be put back: all but what somebody has set since.
    pub(super) fn want(&mut self, host: &dyn Host, interface: &str) -> mpps_os::Result<()> {
        let now = host.of_queues(interface)?;
        let is_coalescing = |one: &&OfQueue| matches!(one.setting, Setting::Coalescing { .. });
        let form = |all: &[OfQueue]| {
            let settings = all.iter().filter(is_coalescing);
            settings.map(|one| one.setting.clone()).collect::<Vec<_>>()
        };
        // Somebody has set a queue by itself where one value was for all, or the other way round.
        let after = self.after.as_deref();
        let is_other = after.is_some_and(|after| form(after) != form(&now));
        let wanted = self.before.iter().map(|old| {
            let after = after.and_then(|after| old.find_in(after));
            match (after, old.find_in(&now)) {
                (Some(after), Some(now)) if !now.setting.is(&after.value, &now.value) => now,
                _ => old,
            }
        });
        let wanted = wanted.filter(|one| !(is_other && is_coalescing(one)));
        let theirs = now.iter().filter(|one| is_other && is_coalescing(one));
        let wanted = wanted.chain(theirs).cloned().collect();
        self.wanted = Some(wanted);
        Ok(())
    }

    /// What was wanted is looked at anew by the next undo.
    pub(super) fn want_no_more(&mut self) {
        self.wanted = None;
    }

    /// True once undo has begun to have them made anew.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Sets what is wanted of the queues that there are.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn restore(&self, host: &dyn Host, interface: &str) -> mpps_os::Result<Undone> {
        let there = host.of_queues(interface)?;
        let is_interrupt = |one: &OfQueue| one.interrupt.is_some();
        let wanted = || self.wanted.iter().flatten();
        if wanted().any(is_interrupt) && !there.iter().any(is_interrupt) {
            let why = "its interrupts are gone while it is down: set it up and undo again";
            return Ok(Undone::Failed(why.to_owned()));
        }
        let mut told = Vec::new();
        for one in wanted() {
            let setting = match (&one.setting, one.find_in(&there)) {
                (_, Some(same)) => &same.setting,
                // What has its number now may be another card's.
                (Setting::Affinity { .. }, None) => continue,
                (setting, None) => setting,
            };
            let old = one.find_in(&self.before);
            if old.is_none_or(|old| old.value != one.value) {
                told.push(format!("{}: {}", setting.noun(), setting.told(&one.value)));
            }
            let now = host.read(setting, interface)?;
            if now.is_some_and(|now| !setting.is(&one.value, &now))
                && let Err(error) = host.write(setting, interface, &one.value)
            {
                told.push(format!("{} cannot be put back: {error}", setting.noun()));
            }
        }
        Ok(match told.is_empty() {
            true => Undone::Restored,
            false => Undone::Changed(told.join("; ")),
        })
    }
}
