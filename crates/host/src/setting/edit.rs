//! One setting, from its old value to a new one: how it is done, and how it is undone.

mod rule;

use std::fmt;

use mpps_os::CallResult;
use mpps_os::ethtool::ntuple::NtupleRule;
use serde::{Deserialize, Serialize};

use super::kind::{Attempt, Setting, SettingHost};
use super::outcome::Undone;
use super::place::Place;
use super::queues::Queues;
use super::value::Value;
use crate::{HostError, HostResult};

/// One setting, from its old value to a new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The setting.
    pub setting: Setting,
    /// Its value before.
    pub old: Value,
    /// The value to set.
    pub new: Value,
    /// The value that the driver made of that, once it is known: it may count in coarser units.
    pub became: Option<Value>,
    /// The settings of each queue, if the driver may make the queues anew for this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queues: Option<Queues>,
}

impl Edit {
    /// An edit that has not been made yet.
    pub fn new(setting: Setting, old: Value, new: Value) -> Self {
        Self {
            setting,
            old,
            new,
            became: None,
            queues: None,
        }
    }

    /// Every value, and the setting that has it.
    pub(super) fn values(&mut self) -> impl Iterator<Item = (&Setting, &mut Value)> {
        let own = [&mut self.old, &mut self.new]
            .into_iter()
            .chain(&mut self.became);
        let of_queues = self.queues.iter_mut().flat_map(Queues::all);
        let of_queues = of_queues.map(|one| (&one.setting, &mut one.value));
        own.map(|value| (&self.setting, value)).chain(of_queues)
    }

    /// Looks at what is there just before the edit is written down.
    ///
    /// # Errors
    /// [`HostError::Impossible`] if it is not as it was when the edit was planned; [`HostError::Kernel`].
    pub(super) fn prepare(&mut self, host: &dyn SettingHost, place: &Place) -> HostResult<()> {
        if let Some(rule) = self.rule() {
            return self.prepare_rule(rule, host, place.name());
        }
        let row = self.setting.row();
        let now = host.read(&self.setting, place)?;
        if now.is_none() {
            let why = format!("there is no {} any more", row.noun);
            return Err(HostError::impossible(place.name(), why, "look again"));
        }
        if !now.is_some_and(|now| self.setting.is(&self.old, &now)) {
            let why = format!("another program changed {} just now", row.noun);
            return Err(HostError::impossible(place.name(), why, "try again"));
        }
        (row.rehearse)(host, place, &self.old)?;
        if row.remakes_queues {
            self.queues = Some(Queues::new(host, place)?);
        }
        Ok(())
    }

    /// Makes the edit.
    ///
    /// # Errors
    /// [`HostError::Kernel`]; [`HostError::Impossible`] where the driver accepts a value and has another.
    pub(super) fn make(&mut self, host: &dyn SettingHost, place: &Place) -> HostResult<()> {
        if let Some(rule) = self.rule() {
            return self.make_rule(rule, host, place.name());
        }
        let row = self.setting.row();
        let set = self.set(row.set, host, place, &self.new);
        set.map_err(|error| row.refused(error, place.name()))?;
        self.became = host.read(&self.setting, place)?;
        if let Some(queues) = &mut self.queues {
            queues.changed(host, place)?;
        }
        let became = self.became.as_ref();
        match became.and_then(|became| row.fault(&self.new, became)) {
            Some((why, remedy)) => Err(HostError::impossible(place.name(), why, remedy)),
            None => Ok(()),
        }
    }

    /// Finds the settings of queues that undoing will change. Returns true if they must be written
    /// down before.
    ///
    /// # Errors
    /// The message for the user.
    pub(super) fn prepare_undo(
        &mut self,
        host: &dyn SettingHost,
        place: &Place,
    ) -> HostResult<bool, String> {
        let effect = self.effect().clone();
        let Some(queues) = &mut self.queues else {
            return Ok(false);
        };
        let now = host.read(&self.setting, place);
        let is_ours = now.map_err(|error| error.to_string())? == Some(effect);
        if is_ours {
            queues.want(host, place)?;
        }
        Ok(is_ours)
    }

    /// After an undo: true if what was written down for it is another now.
    pub(super) fn end_undo(&mut self, host: &dyn SettingHost, place: &Place) -> bool {
        let effect = self.effect().clone();
        let Some(queues) = self.queues.as_mut().filter(|queues| queues.is_wanted()) else {
            return false;
        };
        // Nothing was done yet, and the next one looks anew.
        if host.read(&self.setting, place).ok().flatten() == Some(effect) {
            queues.want_no_more();
        }
        true
    }

    /// Takes the present value for the result of the edit.
    pub(super) fn take_as_made(&mut self, host: &dyn SettingHost, place: &Place) {
        let now = host.read(&self.setting, place).ok().flatten();
        self.became = now.or(self.became.take());
        if let Some(queues) = &mut self.queues {
            // Where they cannot be read undo says so.
            let _ = queues.changed(host, place);
        }
    }

    /// Puts the old value back, if things are as the edit left them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn undo(&mut self, host: &dyn SettingHost, place: &Place) -> CallResult<Undone> {
        if let Some(rule) = self.rule() {
            return self.undo_rule(&rule, host, place.name());
        }
        let row = self.setting.row();
        let Some(now) = host.read(&self.setting, place)? else {
            let failed = |why: &str| Undone::Failed(why.to_owned());
            return Ok(row.absent.map_or(Undone::Nothing, failed));
        };
        let now = (row.settled)(&now, &self.old);
        if now == self.old && row.restore.is_none() && !row.is_unread {
            // The undo that set the number ended before it came to the queues.
            let queues = self.queues.as_mut().filter(|queues| queues.is_wanted());
            return match queues {
                Some(queues) => queues.restore(host, place),
                None => Ok(Undone::Nothing),
            };
        }
        // A driver may have rounded the value before its process died. It looks like another program's
        // then. Leaving the setting would be worse than undoing another program's.
        let is_rounded = row.rounds.is_some() && self.became.is_none();
        let is_ours = [Some(self.effect()), row.meanwhile.as_ref()].contains(&Some(&now))
            || now == self.old
            || is_rounded
            || (row.is_in_parts && self.is_half(&now));
        if !is_ours {
            return Ok(Undone::Changed(row.told(&now)));
        }
        if let Some(why) = (row.obstacle)(host, place, &self.old)? {
            return Ok(Undone::Changed(why));
        }
        self.set(row.restore.or(row.set), host, place, &self.old)?;
        match &mut self.queues {
            Some(queues) => queues.restore(host, place),
            None => {
                let lost = (row.lost)(&self.old).map(str::to_owned);
                Ok(lost.map_or(Undone::Restored, Undone::Reset))
            }
        }
    }

    /// The present value if it is not the edit's result; none if the edit stands.
    pub(super) fn otherwise(&self, host: &dyn SettingHost, place: &Place) -> Option<String> {
        if self.rule().is_some() {
            return None;
        }
        match host.read(&self.setting, place) {
            Ok(Some(now)) if self.setting.is(self.effect(), &now) => None,
            Ok(Some(now)) if self.setting.is(&self.old, &now) => {
                Some("it is as it was before".to_owned())
            }
            Ok(Some(now)) => Some(self.setting.row().told(&now)),
            Ok(None) => Some("it is gone".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn rule(&self) -> Option<NtupleRule> {
        let Setting::Rule { destination, queue } = self.setting else {
            return None;
        };
        Some(NtupleRule { destination, queue })
    }

    fn set(
        &self,
        set: Option<Attempt<CallResult<()>>>,
        host: &dyn SettingHost,
        place: &Place,
        value: &Value,
    ) -> CallResult<()> {
        match set {
            Some(set) => set(host, place, value),
            None => host.write(&self.setting, place, value),
        }
    }

    /// True if each part of a value is the old one or the new one. The process may have died on the way
    /// there or back.
    fn is_half(&self, now: &Value) -> bool {
        let [now, old, new] = [now, &self.old, self.effect()].map(Value::numbers);
        let mut each = now.iter().zip(old.iter().zip(new));
        now.len() == old.len() && each.all(|(now, (old, new))| now == old || now == new)
    }

    /// The value after the edit, as far as that is known.
    fn effect(&self) -> &Value {
        self.became.as_ref().unwrap_or(&self.new)
    }

    fn shown(&self, is_undone: bool) -> String {
        let new = self.rule().map_or(&self.new, |_| self.effect());
        self.setting.row().show(&self.old, new, is_undone)
    }
}

/// An edit as undoing shows it: the old value is the new one.
pub(super) struct Backward<'a>(pub(super) &'a Edit);

impl fmt::Display for Backward<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.shown(true))
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown(false))
    }
}
