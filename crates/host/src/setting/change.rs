//! A list of settings to be changed.

use serde::{Deserialize, Serialize};

use super::edit::Edit;

/// A list of settings to be changed, found by reading only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What it is called: `carve-out`. Two of one name are not made on one object at a time.
    pub name: String,
    /// What is changed, as a message names it: an interface or a setting.
    pub object: String,
    /// The number by which the kernel knows the interface, which stays if it is renamed; none where
    /// a setting of the machine is changed.
    pub interface_index: Option<u32>,
    /// The network namespace in which it is to be made and undone, by its inode number (`ns.inum`).
    pub namespace: u32,
    /// How `mpps undo` names it.
    pub heading: String,
    /// The edits in order; what is already so needs none.
    pub edits: Vec<Edit>,
}

impl Change {
    /// What is done, a few words an edit.
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
}
