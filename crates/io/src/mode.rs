//! The layer of a receiver or a sender, and how it works, as far as the kernel granted it.

use std::collections::BTreeSet;
use std::fmt;

/// The layer of a backend's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// UDP payloads: the kernel has done the rest.
    Payload,
    /// Frames as they were on the wire.
    Frame,
}

/// How a receiver or a sender works. The kernel may grant less than was hoped for; this says what
/// it granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mode {
    /// In words: `native XDP, copy, wake-ups on demand`.
    pub summary: String,
    /// The properties that a user may require.
    pub properties: BTreeSet<Property>,
    /// True if packets are copied on their way to the kernel, which handles them as well.
    pub is_tap: bool,
}

/// A property that a user may require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Property {
    /// Packets are not copied between the driver's memory and the program's.
    ZeroCopy,
    /// The XDP program runs in the driver.
    Native,
    /// The receiver polls the device itself.
    BusyPoll,
    /// The hardware steers the flow to the queue that is read.
    Steered,
}

impl Property {
    /// The name as a user writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ZeroCopy => "zerocopy",
            Self::Native => "native",
            Self::BusyPoll => "busy-poll",
            Self::Steered => "steered",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Mode {
    /// A mode with nothing that a user could insist on.
    pub fn new(summary: impl Into<String>) -> Self {
        Self {
            summary: summary.into(),
            properties: BTreeSet::new(),
            is_tap: false,
        }
    }

    /// Says that the kernel handles each packet, too.
    #[must_use]
    pub fn tap(mut self) -> Self {
        self.is_tap = true;
        self
    }

    /// Adds a property if it was granted.
    #[must_use]
    pub fn with(mut self, property: Property, granted: bool) -> Self {
        if granted {
            self.properties.insert(property);
        }
        self
    }

    /// Those of `wanted` that were not granted.
    pub fn lacks(&self, wanted: &[Property]) -> Vec<Property> {
        let lacking = wanted.iter().filter(|one| !self.properties.contains(one));
        lacking.copied().collect()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_was_not_granted() {
        let mode = Mode::new("native XDP, copy").with(Property::Native, true);
        let mode = mode.with(Property::ZeroCopy, false);
        let wanted = [Property::ZeroCopy, Property::Native];
        assert_eq!(mode.lacks(&wanted), [Property::ZeroCopy]);
        assert_eq!(mode.lacks(&[]), []);
        assert_eq!(mode.to_string(), "native XDP, copy");
    }
}
