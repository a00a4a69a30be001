//! The five ways of the 2014 paper to reuse what a short connection needs, as they are today.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One technique, which can be on or off whatever the others are.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// One listener per worker, chosen by the CPU that received the SYN; workers pinned.
    Affinity,
    /// Interrupts, or their software counterpart, throttled.
    Moderation,
    /// Buffers that are kept, not allocated for each connection.
    Buffers,
    /// Direct descriptors: slots of the ring instead of the process's table.
    Fds,
    /// Events that are armed once, not added and deleted for each connection.
    Events,
}

impl Switch {
    /// All, in the order of the paper's cumulative steps.
    pub const ALL: [Self; 5] = [
        Self::Affinity,
        Self::Moderation,
        Self::Buffers,
        Self::Fds,
        Self::Events,
    ];
}

/// As flags, JSON and docs name it.
impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A set of switches that are on.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches(u8);

impl Switches {
    /// None: the baseline of the paper.
    pub const NONE: Self = Self(0);

    /// The set of these.
    pub fn of(switches: &[Switch]) -> Self {
        switches
            .iter()
            .fold(Self::NONE, |set, &switch| set.with(switch))
    }

    /// The same set with one more.
    #[must_use]
    pub fn with(self, switch: Switch) -> Self {
        Self(self.0 | 1 << switch as u8)
    }

    /// The same set without one.
    #[must_use]
    pub fn without(self, switch: Switch) -> Self {
        Self(self.0 & !(1 << switch as u8))
    }

    /// Whether a switch is on.
    pub fn has(self, switch: Switch) -> bool {
        self.0 & 1 << switch as u8 != 0
    }

    /// Those that are on, in the paper's order.
    pub fn iter(self) -> impl Iterator<Item = Switch> {
        Switch::ALL
            .into_iter()
            .filter(move |&switch| self.has(switch))
    }
}

impl fmt::Debug for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// `affinity+fds`, or `none`.
impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.iter().map(|one| one.to_string()).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in() {
        let set = Switches::of(&[Switch::Events, Switch::Affinity]);
        assert_eq!(set.to_string(), "affinity+events");
        assert!(set.has(Switch::Events) && !set.has(Switch::Fds));
        assert_eq!(
            set.without(Switch::Affinity).without(Switch::Events),
            Switches::NONE
        );
        assert_eq!(Switches::NONE.to_string(), "none");
    }
}
