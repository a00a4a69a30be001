//! One setting, from its old value to a new one: how it is done, and how it is undone.

use mpps_os::text::ShellWord;
use std::fmt;

use mpps_os::ethtool::ntuple::{NtupleRule, Shown};
use serde::{Deserialize, Serialize};

use super::host::{SettingHost, coalescings_of};
use super::outcome::Undone;
use super::primitive::{Setting, Value};
use super::queues::Queues;
use crate::{HostError, HostResult};

/// The value of [`Setting::SkbDefer`] while sleeping lists are woken: no list is full then. It is
/// the largest that `proc_dointvec_minmax` takes.
const UNLIMITED: u32 = i32::MAX as u32;

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

    /// Why no plan makes such an edit.
    pub(super) fn fault(&self) -> Option<String> {
        let values = [&self.old, &self.new].into_iter().chain(&self.became);
        let of_queues = self.queues.iter().flat_map(Queues::all);
        let of_queues = of_queues.map(|one| (&one.setting, &one.value));
        let mut all = values.map(|value| (&self.setting, value)).chain(of_queues);
        all.find_map(|(setting, value)| setting.fault_of(value))
    }

    /// Looks at what is there just before the edit is written down; `object` is the interface.
    ///
    /// # Errors
    /// [`HostError::Impossible`] if it is not as it was when the edit was planned; [`HostError::Kernel`].
    pub(super) fn prepare(&mut self, host: &dyn SettingHost, object: &str) -> HostResult<()> {
        if let Setting::Rule { .. } = self.setting {
            return self.prepare_rule(host, object);
        }
        let now = host.read(&self.setting, object)?;
        if now.is_none() && matches!(self.setting, Setting::OfProgram(_)) {
            let why = format!("its {} is gone", self.setting.noun());
            return Err(HostError::impossible(object, why, "look again"));
        }
        if !now.is_some_and(|now| self.setting.is(&self.old, &now)) {
            let why = format!("another program changed {} just now", self.setting.noun());
            return Err(HostError::impossible(object, why, "try again"));
        }
        if self.setting.remakes_queues() {
            self.queues = Some(Queues::new(host, object)?);
        }
        if self.setting == Setting::SkbDefer {
            // If it could not be put back later, it fails here, before anything is changed.
            host.write(&self.setting, object, &self.old)?;
            host.wake().map_err(|refusal| {
                let why = format!("its lists could not be woken afterwards ({refusal})");
                let remedy =
                    "this needs every CPU, and so no cpuset, and the loopback interface up";
                HostError::impossible(object, why, remedy)
            })?;
        }
        Ok(())
    }

    /// Finds a place for the rule.
    fn prepare_rule(&mut self, host: &dyn SettingHost, interface: &str) -> HostResult<()> {
        let Some(ours) = self.rule() else {
            return Ok(());
        };
        let destination = ours.destination;
        let table = host.rules(interface)?;
        for &place in &table.locations {
            let rule = host.rule(interface, place)?.rule;
            if rule.is_some_and(|rule| rule.destination == destination) {
                return Err(HostError::impossible(
                    interface,
                    format!("there is a rule for {destination} already, at {place}"),
                    format!(
                        "`ethtool -N {} delete {place}` takes it away",
                        ShellWord::new(interface)
                    ),
                ));
            }
        }
        let location = table.free_location();
        // A driver that shows neither a size nor that it chooses is asked to choose.
        if !table.driver_chooses && table.size > 0 {
            if location.is_none() {
                return Err(HostError::impossible(
                    interface,
                    format!("all {} places for rules are taken", table.size),
                    format!("`ethtool -n {}` lists them", ShellWord::new(interface)),
                ));
            }
            let shown = None;
            self.new = Value::Rule { location, shown };
        }
        self.old = Value::Numbers(table.locations);
        Ok(())
    }

    /// Makes the edit.
    ///
    /// # Errors
    /// [`HostError::Kernel`]; [`HostError::Impossible`] where the driver accepts a value and has another.
    pub(super) fn make(&mut self, host: &dyn SettingHost, object: &str) -> HostResult<()> {
        if let (Some(rule), Value::Rule { location, .. }) = (self.rule(), &self.new) {
            let place = host.insert(object, &rule, *location)?;
            let found = host.rule(object, place);
            // A driver may show the rule in other words; undo compares with those.
            let shown = found.as_ref().ok().map(|shown| shown.description.clone());
            let location = Some(place);
            self.became = Some(Value::Rule { location, shown });
            return match found?.rule {
                Some(other) if other != rule => Err(HostError::impossible(
                    object,
                    format!("its driver accepted a rule and shows another at {place}"),
                    format!("`ethtool -n {}` lists them", ShellWord::new(object)),
                )),
                _ => Ok(()),
            };
        }
        self.write(host, object, &self.new)
            .map_err(|error| self.setting.refused(error, object))?;
        self.became = host.read(&self.setting, object)?;
        if let Some(queues) = &mut self.queues {
            queues.changed(host, object)?;
        }
        if self.setting == Setting::RssTable && self.became.as_ref() != Some(&self.new) {
            // i40e takes some tables only at the second attempt (Firedancer's
            // `configure ethtool-channels`).
            self.write(host, object, &self.new)?;
            self.became = host.read(&self.setting, object)?;
        }
        let became = self.became.as_ref();
        match became.and_then(|became| self.setting.fault(&self.new, became)) {
            Some((why, remedy)) => Err(HostError::impossible(object, why, remedy)),
            None => Ok(()),
        }
    }

    fn write(
        &self,
        host: &dyn SettingHost,
        object: &str,
        value: &Value,
    ) -> mpps_os::CallResult<()> {
        if let (Setting::RssTable, Value::Numbers(table)) = (&self.setting, value) {
            // A table that the kernel would choose is left to the kernel, which will then also adapt
            // it to a change of the number of queues (ethtool_rxfh_indir_default() is the remainder).
            let rings = host.rings(object)?.max(1);
            let mut chosen = (0..rings).cycle().zip(table);
            if chosen.all(|(queue, entry)| queue == *entry)
                && host
                    .write(&self.setting, object, &Value::Numbers(Vec::new()))
                    .is_ok()
                && host.read(&self.setting, object)?.as_ref() == Some(value)
            {
                return Ok(());
            }
        }
        host.write(&self.setting, object, value)
    }

    /// Finds the settings of queues that undoing will change. Returns true if they must be written
    /// down before.
    ///
    /// # Errors
    /// The message for the user.
    pub(super) fn prepare_undo(
        &mut self,
        host: &dyn SettingHost,
        object: &str,
    ) -> HostResult<bool, String> {
        let effect = self.effect().clone();
        let Some(queues) = &mut self.queues else {
            return Ok(false);
        };
        let now = host.read(&self.setting, object);
        let is_ours = now.map_err(|error| error.to_string())? == Some(effect);
        if is_ours {
            queues.want(host, object)?;
        }
        Ok(is_ours)
    }

    /// After an undo: true if what was written down for it is another now.
    pub(super) fn end_undo(&mut self, host: &dyn SettingHost, object: &str) -> bool {
        let effect = self.effect().clone();
        let Some(queues) = self.queues.as_mut().filter(|queues| queues.is_wanted()) else {
            return false;
        };
        // Nothing was done yet, and the next one looks anew.
        if host.read(&self.setting, object).ok().flatten() == Some(effect) {
            queues.want_no_more();
        }
        true
    }

    /// Takes the present value for the result of the edit.
    pub(super) fn take_as_made(&mut self, host: &dyn SettingHost, object: &str) {
        let now = host.read(&self.setting, object).ok().flatten();
        self.became = now.or(self.became.take());
        if let Some(queues) = &mut self.queues {
            // Where they cannot be read undo says so.
            let _ = queues.changed(host, object);
        }
    }

    /// Puts the old value back, if things are as the edit left them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn undo(
        &mut self,
        host: &dyn SettingHost,
        object: &str,
    ) -> mpps_os::CallResult<Undone> {
        let setting = &self.setting;
        if let Some(rule) = self.rule() {
            return self.undo_rule(&rule, host, object);
        }
        let now = match (setting, host.read(setting, object)?) {
            (_, Some(now)) => now,
            (Setting::Untracked { .. }, None) => {
                return Ok(Undone::Failed("nft(8) is not here".to_owned()));
            }
            (_, None) => return Ok(Undone::Nothing),
        };
        if *setting == Setting::SkbDefer {
            return self.undo_defer(&now, host, object);
        }
        let now = setting.but_chosen(&now, &self.old);
        if now == self.old {
            // The undo that set the number ended before it came to the queues.
            let queues = self.queues.as_mut().filter(|queues| queues.is_wanted());
            return match queues {
                Some(queues) => queues.restore(host, object),
                None => Ok(Undone::Nothing),
            };
        }
        let ours = match (setting, &now, &self.old, self.effect()) {
            // The process died before it was known what the card made of a time. A time that the
            // card rounded looks like another program's. Leaving the setting would be worse than
            // undoing another program's.
            (Setting::Coalescing { .. }, ..) if self.became.is_none() => true,
            // The kernel does not show it.
            (Setting::OfProgram(one), Value::Text(now), ..) if one.may_be(now) => true,
            // A value that takes several calls is half old and half new if its process died in
            // between. That may be on the way there or back.
            (
                Setting::Coalescing { .. } | Setting::IrqSuspend,
                Value::Numbers(now),
                Value::Numbers(old),
                Value::Numbers(effect),
            ) => {
                let mut each = now.iter().zip(old.iter().zip(effect));
                now.len() == old.len() && each.all(|(now, (old, new))| now == old || now == new)
            }
            _ => now == *self.effect(),
        };
        if !ours {
            return Ok(Undone::Changed(setting.told(&now)));
        }
        if *setting == (Setting::Coalescing { queue: None })
            && let [(first, _), ..] = coalescings_of(host, object)?.as_slice()
            && first != setting
        {
            // One value for all would end it.
            return Ok(Undone::Changed("its queues differ now".to_owned()));
        }
        if *setting == Setting::Filters {
            // A driver forgets the rules when they are switched off, and these are others'.
            let rules = host.rules(object)?.locations.len();
            if rules > 0 {
                return Ok(Undone::Changed(format!("{rules} other rules need it")));
            }
        }
        self.write(host, object, &self.old)?;
        match &mut self.queues {
            Some(queues) => queues.restore(host, object),
            None => Ok(Undone::Restored),
        }
    }

    /// Writing the old value is not enough. On Linux 6.18 a list also counts packets that did not
    /// get on it. Its count begins anew only when something is taken off. After the 0 every list is
    /// empty and counted full. It stays so under any limit that is not above its count. So the
    /// limit is lifted, each list gets a packet and loses it, and the limit is restored. The
    /// program that wrote the old value before us may not have known that.
    fn undo_defer(
        &self,
        now: &Value,
        host: &dyn SettingHost,
        object: &str,
    ) -> mpps_os::CallResult<Undone> {
        let lifted = Value::text(UNLIMITED);
        if ![&self.new, &lifted, &self.old].contains(&now) {
            return Ok(Undone::Changed(self.setting.told(now)));
        }
        host.write(&self.setting, object, &lifted)?;
        let woken = host.wake();
        // The value comes back also if the lists do not.
        host.write(&self.setting, object, &self.old)?;
        woken.map(|()| Undone::Restored)
    }

    /// Takes the rule away. Where its place never came to be written down, because the process died
    /// in between, it is looked for.
    fn undo_rule(
        &self,
        rule: &NtupleRule,
        host: &dyn SettingHost,
        interface: &str,
    ) -> mpps_os::CallResult<Undone> {
        let (location, shown) = match self.effect() {
            Value::Rule { location, shown } => (*location, shown.as_ref()),
            _ => (None, None),
        };
        let is_ours =
            |found: &Shown| found.rule.as_ref() == Some(rule) || shown == Some(&found.description);
        let others = match &self.old {
            Value::Numbers(others) if location.is_none() => &**others,
            _ => &[],
        };
        for place in host.rules(interface)?.locations {
            if location.is_some_and(|location| location != place) || others.contains(&place) {
                continue;
            }
            if is_ours(&host.rule(interface, place)?) {
                host.remove(interface, place)?;
                return Ok(Undone::Restored);
            }
            if location.is_some() {
                return Ok(Undone::Changed(format!("another rule is at {place}")));
            }
        }
        Ok(Undone::Nothing)
    }

    /// The present value if it is not the edit's result; none if the edit stands.
    pub(super) fn otherwise(&self, host: &dyn SettingHost, object: &str) -> Option<String> {
        if self.rule().is_some() {
            return None;
        }
        match host.read(&self.setting, object) {
            Ok(Some(now)) if self.setting.is(self.effect(), &now) => None,
            Ok(Some(now)) if self.setting.is(&self.old, &now) => {
                Some("it is as it was before".to_owned())
            }
            Ok(Some(now)) => Some(self.setting.told(&now)),
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

    /// The value after the edit, as far as that is known.
    fn effect(&self) -> &Value {
        self.became.as_ref().unwrap_or(&self.new)
    }
}

/// An edit as undoing shows it: the old value is the new one.
pub(super) struct Backward<'a>(pub(super) &'a Edit);

impl fmt::Display for Backward<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edit {
            setting, old, new, ..
        } = self.0;
        match setting {
            // Their texts have no direction.
            Setting::Rule { .. } | Setting::Filters | Setting::RssTable | Setting::RssKey => {
                self.0.fmt(f)
            }
            _ => setting.show(new, old, f),
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let new = match self.setting {
            Setting::Rule { .. } => self.effect(),
            _ => &self.new,
        };
        self.setting.show(&self.old, new, f)
    }
}
