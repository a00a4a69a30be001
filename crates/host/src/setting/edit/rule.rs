//! The edit that adds a rule, and takes it away.

use mpps_os::CallResult;
use mpps_os::ethtool::ntuple::{NtupleRule, Shown};
use mpps_os::text::ShellWord;

use super::{Edit, SettingHost, Undone, Value};
use crate::{HostError, HostResult};

impl Edit {
    /// Finds a place for the rule.
    pub(super) fn prepare_rule(
        &mut self,
        rule: NtupleRule,
        host: &dyn SettingHost,
        interface: &str,
    ) -> HostResult<()> {
        let destination = rule.destination;
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
                let why = format!("all {} places for rules are taken", table.size);
                return Err(HostError::impossible(interface, why, listed(interface)));
            }
            let shown = None;
            self.new = Value::Rule { location, shown };
        }
        self.old = Value::Numbers(table.locations);
        Ok(())
    }

    pub(super) fn make_rule(
        &mut self,
        rule: NtupleRule,
        host: &dyn SettingHost,
        interface: &str,
    ) -> HostResult<()> {
        let location = match &self.new {
            Value::Rule { location, .. } => *location,
            _ => None,
        };
        let place = host.insert(interface, &rule, location)?;
        let found = host.rule(interface, place);
        // A driver may show the rule in other words; undo compares with those.
        let shown = found.as_ref().ok().map(|shown| shown.description.clone());
        let location = Some(place);
        self.became = Some(Value::Rule { location, shown });
        match found?.rule {
            Some(other) if other != rule => {
                let why = format!("its driver accepted a rule and shows another at {place}");
                Err(HostError::impossible(interface, why, listed(interface)))
            }
            _ => Ok(()),
        }
    }

    /// Takes the rule away. Where its place never came to be written down, because the process died
    /// in between, it is looked for.
    pub(super) fn undo_rule(
        &self,
        rule: &NtupleRule,
        host: &dyn SettingHost,
        interface: &str,
    ) -> CallResult<Undone> {
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
}

/// The remedy that shows all rules.
fn listed(interface: &str) -> String {
    format!("`ethtool -n {}` lists them", ShellWord::new(interface))
}
