//! The places that have settings.

use super::owner::Owner;
use serde::{Deserialize, Serialize};

/// The setting of the machine that is changed by itself (`sysctl(8)`).
pub(crate) const SKB_DEFER_MAX: &str = "net.core.skb_defer_max";

/// The place of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// An interface.
    Interface {
        /// Its name when the change was planned.
        name: String,
        /// The kernel's number, which stays if it is renamed.
        index: u32,
    },
    /// A running program.
    Process {
        /// `process 4711`.
        name: String,
        /// The process.
        process: Owner,
    },
    /// The machine.
    Machine {
        /// The setting that is changed.
        setting: String,
    },
}

/// A kind of place. A row of the table names that of its setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    Interface,
    Process,
    /// Its settings can also be changed with those of another place, and stay when that goes.
    Machine,
}

fn process_name(pid: u32) -> String {
    format!("process {pid}")
}

impl Place {
    /// A running program.
    pub(crate) fn process(process: Owner) -> Self {
        let name = process_name(process.pid);
        Self::Process { name, process }
    }

    pub(super) fn kind(&self) -> PlaceKind {
        match self {
            Self::Interface { .. } => PlaceKind::Interface,
            Self::Process { .. } => PlaceKind::Process,
            Self::Machine { .. } => PlaceKind::Machine,
        }
    }

    /// Its name in messages and commands.
    pub fn name(&self) -> &str {
        match self {
            Self::Interface { name, .. } | Self::Process { name, .. } => name,
            Self::Machine { setting } => setting,
        }
    }

    /// Whether a plan can have it.
    pub(super) fn is_known(&self) -> bool {
        match self {
            Self::Interface { name, .. } => is_interface(name),
            Self::Process { name, process } => *name == process_name(process.pid),
            Self::Machine { setting } => setting == SKB_DEFER_MAX,
        }
    }
}

/// Whether the kernel takes such a name (`dev_valid_name`, net/core/dev.c). A byte that is no UTF-8
/// is one letter here.
fn is_interface(name: &str) -> bool {
    let is_bad = |letter: char| letter.is_whitespace() || "/:\0".contains(letter);
    let length = name.chars().count();
    (1..=15).contains(&length) && !matches!(name, "." | "..") && !name.contains(is_bad)
}
