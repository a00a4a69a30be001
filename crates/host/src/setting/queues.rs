//! The settings of each queue. A driver may forget them when it makes the queues anew.

use serde::{Deserialize, Serialize};

use super::kind::{OfQueue, Setting, SettingHost, is_unknown};
use super::outcome::Undone;
use super::place::Place;

/// The settings of all queues around a change that may make the queues anew.
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
    pub(super) fn new(host: &dyn SettingHost, place: &Place) -> mpps_os::CallResult<Self> {
        Ok(Self {
            before: host.of_queues(place)?,
            after: None,
            wanted: None,
        })
    }

    /// All settings that it names.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut OfQueue> {
        let later = [&mut self.after, &mut self.wanted].into_iter().flatten();
        [&mut self.before].into_iter().chain(later).flatten()
    }

    /// Takes what they are set to now for what the driver made of them.
    pub(super) fn changed(
        &mut self,
        host: &dyn SettingHost,
        place: &Place,
    ) -> mpps_os::CallResult<()> {
        self.after = Some(host.of_queues(place)?);
        Ok(())
    }

    /// Decides what undo puts back: all settings except those that another program has changed
    /// since.
    ///
    /// # Errors
    /// The message for the user.
    pub(super) fn want(&mut self, host: &dyn SettingHost, place: &Place) -> Result<(), String> {
        let now = host.of_queues(place).map_err(|error| error.to_string())?;
        let is_interrupt = |one: &OfQueue| one.interrupt.is_some();
        // Some drivers have interrupts only while they are up.
        if self.before.iter().any(is_interrupt) && !now.iter().any(is_interrupt) {
            return Err("it has no interrupts while it is down: set it up first".to_owned());
        }
        let is_coalescing = |one: &&OfQueue| matches!(one.setting, Setting::Coalescing { .. });
        let form = |all: &[OfQueue]| {
            let settings = all.iter().filter(is_coalescing);
            settings.map(|one| one.setting.clone()).collect::<Vec<_>>()
        };
        // Another program replaced one value for all queues by one for each, or the reverse.
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

    /// Lets the next undo decide again what it puts back.
    pub(super) fn want_no_more(&mut self) {
        self.wanted = None;
    }

    /// True once undo has begun to have them made anew.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Sets the wanted values of the queues that exist. Values that fail stay wanted.
    pub(super) fn restore(
        &mut self,
        host: &dyn SettingHost,
        place: &Place,
    ) -> mpps_os::CallResult<Undone> {
        let there = host.of_queues(place)?;
        let (mut told, mut failed, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for one in self.wanted.take().into_iter().flatten() {
            let setting = match (&one.setting, one.find_in(&there)) {
                (_, Some(same)) => &same.setting,
                // Its number may now be that of another card's interrupt.
                (Setting::Affinity { .. }, None) => continue,
                (setting, None) => setting,
            };
            let noun = setting.row().noun;
            let old = one.find_in(&self.before);
            if old.is_none_or(|old| old.value != one.value) {
                told.push(format!(
                    "{noun}: changed since, {}",
                    setting.row().told(&one.value)
                ));
            }
            let set = host.read(setting, place).and_then(|now| match now {
                Some(now) if !setting.is(&one.value, &now) => {
                    host.write(setting, place, &one.value)
                }
                _ => Ok(()),
            });
            match set {
                Ok(()) => {}
                // It will never take it.
                Err(error) if is_unknown(&error) => {
                    told.push(format!("{noun} does not take it back: {error}"));
                }
                Err(error) => {
                    failed.push(format!("{noun}: {error}"));
                    left.push(one);
                }
            }
        }
        self.wanted = Some(left);
        Ok(match (failed.is_empty(), told.is_empty()) {
            (true, true) => Undone::Restored,
            (true, false) => Undone::Partly(told.join("; ")),
            (false, _) => Undone::Failed(failed.join("; ")),
        })
    }
}
