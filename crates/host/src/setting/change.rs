//! A list of settings to be changed.

use serde::{Deserialize, Serialize};

use super::edit::Edit;
use super::of_program::PROCESS;
use super::primitive::{SKB_DEFER_MAX, Setting};

/// A list of settings to be changed, found by reading only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Its name: `carve-out`. Two changes of one name are not made on one object at a time.
    pub name: String,
    /// The object that is changed, as messages name it: an interface or a setting.
    pub object: String,
    /// The kernel's number of the interface, which stays if it is renamed. None if a setting of the
    /// machine is changed.
    pub interface_index: Option<u32>,
    /// The network namespace to make and undo it in, by its inode number (`ns.inum`).
    pub namespace: u32,
    /// How `mpps undo` names it.
    pub heading: String,
    /// The edits in order; what is already so needs none.
    pub edits: Vec<Edit>,
}

impl SettingChange {
    /// The edits, in a few words each.
    pub fn steps(&self) -> Vec<String> {
        self.edits.iter().map(ToString::to_string).collect()
    }

    /// The name of its journal: one for each name and object. No namespace has settings of the
    /// machine of its own.
    pub(super) fn file_name(&self) -> String {
        match self.interface_index {
            Some(index) => format!("{}-{}-{index}.json", self.name, self.namespace),
            None => format!("{}-{}.json", self.name, self.object),
        }
    }

    /// Why no plan makes such a change: it names or sets what mpps never does.
    pub(super) fn fault(&self) -> Option<String> {
        let is_plain = |letter: u8| letter.is_ascii_lowercase() || b"-0123456789".contains(&letter);
        if self.name.is_empty() || !self.name.bytes().all(is_plain) {
            return Some(format!("`{}` is no kind of change", self.name));
        }
        let is_known = match self.interface_index {
            Some(_) => is_interface(&self.object),
            None => self.object == SKB_DEFER_MAX || of_process(&self.object).is_some(),
        };
        if !is_known {
            return Some(format!("`{}` is nothing that mpps changes", self.object));
        }
        let is_of_object = |edit: &Edit| match (&edit.setting, self.interface_index) {
            (Setting::OfProgram(one), None) => Some(one.pid()) == of_process(&self.object),
            (Setting::SkbDefer, None) => self.object == SKB_DEFER_MAX,
            (setting, index) => index.is_some() && !matches!(setting, Setting::OfProgram(_)),
        };
        if !self.edits.iter().all(is_of_object) {
            return Some(format!("a setting that is none of {}", self.object));
        }
        self.edits.iter().find_map(Edit::fault)
    }
}

/// The process in `process-4711`.
fn of_process(object: &str) -> Option<u32> {
    let number = object.strip_prefix(PROCESS)?;
    let pid = number.parse().ok()?;
    (format!("{pid}") == number).then_some(pid)
}

/// Whether the kernel takes such a name (`dev_valid_name`, net/core/dev.c). A byte that is no UTF-8
/// is one letter here.
fn is_interface(name: &str) -> bool {
    let is_bad = |letter: char| letter.is_whitespace() || "/:\0".contains(letter);
    let length = name.chars().count();
    (1..=15).contains(&length) && !matches!(name, "." | "..") && !name.contains(is_bad)
}
