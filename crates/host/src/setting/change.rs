//! A list of settings to be changed.

use serde::{Deserialize, Serialize};

use super::edit::Edit;
use super::kind::SettingHost;
use super::place::{Place, PlaceKind};

/// A list of settings to be changed, found by reading only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Its name: `carve-out`. Two changes of one name are not made at one place at a time.
    pub name: String,
    /// The place that is changed.
    pub place: Place,
    /// The network namespace to make and undo it in, by its inode number (`ns.inum`).
    pub namespace: u32,
    /// Its number that no other of this boot has, which the first is not (`SO_NETNS_COOKIE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_cookie: Option<u64>,
    /// The user of the process that it is of (effective, user_namespaces(7)); none of another place, and in old journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// How `mpps undo` names it.
    pub heading: String,
    /// The edits in order; what is already so needs none.
    pub edits: Vec<Edit>,
}

impl SettingChange {
    pub(crate) fn new(
        host: &dyn SettingHost,
        place: Place,
        name: impl Into<String>,
        heading: String,
        edits: Vec<Edit>,
    ) -> mpps_os::CallResult<Self> {
        Ok(Self {
            name: name.into(),
            place,
            namespace: host.namespace()?,
            namespace_cookie: host.namespace_cookie(),
            user: None,
            heading,
            edits,
        })
    }

    /// True if the namespace of its number here is another, made since: its own is gone, with all interfaces.
    pub(super) fn has_outlived(&self, host: &dyn SettingHost) -> bool {
        let both = self.namespace_cookie.zip(host.namespace_cookie());
        both.is_some_and(|(then, now)| then != now)
    }

    /// The edits, in a few words each.
    pub fn steps(&self) -> Vec<String> {
        self.edits.iter().map(ToString::to_string).collect()
    }

    /// The place, for the name of a journal. No namespace has settings of the machine of its own.
    pub(super) fn key(&self) -> String {
        match &self.place {
            Place::Interface { index, .. } => match self.namespace_cookie {
                None => format!("{}-{index}", self.namespace),
                Some(cookie) => format!("{}-{cookie}-{index}", self.namespace),
            },
            Place::Process { process, .. } => format!("process-{}", process.pid),
            Place::Machine { setting } => setting.clone(),
        }
    }

    /// The name of its journal: one for each name and place.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{}.json", self.name, self.key())
    }

    /// Why no plan makes such a change: it names or sets what mpps never does.
    pub(super) fn fault(&mut self) -> Option<String> {
        let is_plain = |letter: u8| letter.is_ascii_lowercase() || b"-0123456789".contains(&letter);
        if self.name.is_empty() || !self.name.bytes().all(is_plain) {
            return Some(format!("`{}` is no kind of change", self.name));
        }
        if !self.place.is_known() {
            return Some(format!(
                "`{}` is nothing that mpps changes",
                self.place.name()
            ));
        }
        let place = &self.place;
        let mut values = self.edits.iter_mut().flat_map(Edit::values);
        values.find_map(|(setting, value)| {
            let row = setting.row();
            let is_here = match place {
                Place::Machine { setting } => row.noun == *setting,
                _ => [PlaceKind::Machine, place.kind()].contains(&row.place),
            };
            let elsewhere = || format!("{} is no setting of {}", row.noun, place.name());
            setting
                .fault_of(value)
                .or_else(|| (!is_here).then(elsewhere))
        })
    }

    /// Gives the texts of an earlier form's journal their types.
    pub(super) fn type_texts(&mut self) {
        let values = self.edits.iter_mut().flat_map(Edit::values);
        values.for_each(|(setting, value)| setting.type_text(value));
    }
}
