//! One change of a setting: how it is done, and how it is undone.

use std::fmt;

use mpps_os::ethtool::coalesce::Coalescing;
use serde::{Deserialize, Serialize};

use super::{Attribute, Settings};
use crate::change::Undone;
use crate::{Error, Result};

/// Empty polls before a queue's interrupts are on again: the figure of the example in
/// Documentation/networking/napi.rst.
const DEFERRED_POLLS: u32 = 2;

/// One change, with what is needed to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum ModerationStep {
    /// Writes a file.
    Attribute {
        /// The file.
        attribute: Attribute,
        /// What it said before.
        was: String,
        /// What it will say.
        will_be: String,
    },
    /// Sets the card's coalescing.
    Coalescing {
        /// All of it before, in the order of the kernel's structure.
        was: Vec<u32>,
        /// All of it after.
        will_be: Vec<u32>,
        /// What the card made of it, once that is known: it may count in coarser units.
        became: Option<Vec<u32>>,
    },
}

/// The steps by which the kernel defers its polls.
///
/// # Errors
/// [`Error::Kernel`].
pub(super) fn deferral(
    settings: &dyn Settings,
    interface: &str,
    time_ns: u64,
) -> Result<Vec<ModerationStep>> {
    let polls = if time_ns == 0 { 0 } else { DEFERRED_POLLS };
    // The time first: deferral without it would leave a queue to itself.
    let wanted = [
        (Attribute::GroFlushTimeout, time_ns.to_string()),
        (Attribute::NapiDeferHardIrqs, polls.to_string()),
    ];
    let mut steps = Vec::new();
    for (attribute, will_be) in wanted {
        let was = settings.attribute(interface, attribute)?;
        if was != will_be {
            steps.push(ModerationStep::Attribute {
                attribute,
                was,
                will_be,
            });
        }
    }
    Ok(steps)
}

/// The step by which a card waits.
///
/// # Errors
/// [`Error::Impossible`] where the driver has no coalescing, or the time is too long for it;
/// [`Error::Kernel`].
pub(super) fn coalescing(
    settings: &dyn Settings,
    interface: &str,
    time_ns: u64,
) -> Result<Vec<ModerationStep>> {
    let was = settings
        .coalescing(interface)
        .map_err(|error| unless_unsupported(error, interface))?;
    let Ok(time_us) = u32::try_from(time_ns.div_ceil(1000)) else {
        let why = "no card waits so long";
        return Err(Error::impossible(interface, why, "name a shorter time"));
    };
    let will_be = was.with_rx_time_us(time_us);
    if was == will_be {
        return Ok(Vec::new());
    }
    Ok(vec![ModerationStep::Coalescing {
        was: was.words(),
        will_be: will_be.words(),
        became: None,
    }])
}

/// A plain sentence for what the driver does not have, and the refusal itself for all else.
fn unless_unsupported(error: mpps_os::Error, interface: &str) -> Error {
    if error.source.kind() != std::io::ErrorKind::Unsupported {
        return error.into();
    }
    Error::impossible(
        interface,
        "its driver does not let a card wait before it interrupts",
        "the kernel can wait instead of the card",
    )
}

impl ModerationStep {
    /// Looks at what is there just before the step is written down.
    ///
    /// # Errors
    /// [`Error::Impossible`] if it is not as it was when the step was planned.
    pub(super) fn check(&self, settings: &dyn Settings, interface: &str) -> Result<()> {
        let (same, what) = match self {
            Self::Attribute { attribute, was, .. } => (
                settings.attribute(interface, *attribute)? == *was,
                attribute.name(),
            ),
            Self::Coalescing { was, .. } => (
                settings.coalescing(interface)?.words() == *was,
                "its coalescing",
            ),
        };
        if same {
            return Ok(());
        }
        let why = format!("somebody changed {what} just now");
        Err(Error::impossible(interface, why, "try again"))
    }

    /// Makes the change.
    ///
    /// # Errors
    /// [`Error::Impossible`] where the driver has no such value; [`Error::Kernel`].
    pub(super) fn take(&mut self, settings: &dyn Settings, interface: &str) -> Result<()> {
        match self {
            Self::Attribute {
                attribute, will_be, ..
            } => Ok(settings.set_attribute(interface, *attribute, will_be)?),
            Self::Coalescing {
                will_be, became, ..
            } => {
                let will_be = words(interface, will_be)?;
                settings
                    .set_coalescing(interface, &will_be)
                    .map_err(|error| unless_unsupported(error, interface))?;
                let now = settings.coalescing(interface)?;
                *became = Some(now.words());
                if now.rx_time_us() == 0 && will_be.rx_time_us() > 0 {
                    let why = "its driver took the time and does not keep it";
                    let remedy = "the kernel can wait instead of the card";
                    return Err(Error::impossible(interface, why, remedy));
                }
                Ok(())
            }
        }
    }

    /// Undoes the change, if things are as the step left them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn undo(
        &self,
        settings: &dyn Settings,
        interface: &str,
    ) -> Result<Undone, mpps_os::Error> {
        match self {
            Self::Attribute {
                attribute,
                was,
                will_be,
            } => {
                let now = settings.attribute(interface, *attribute)?;
                if now == *was {
                    return Ok(Undone::Nothing);
                }
                if now != *will_be {
                    return Ok(Undone::Changed(format!("it is {now}")));
                }
                settings.set_attribute(interface, *attribute, was)?;
                Ok(Undone::Restored)
            }
            Self::Coalescing { was, became, .. } => {
                let now = settings.coalescing(interface)?;
                if now.words() == *was {
                    return Ok(Undone::Nothing);
                }
                // Who died before it was known what the card made of the value cannot tell what
                // it rounded from what somebody else set: a setting that stays is the worse.
                if became.as_ref().is_some_and(|became| now.words() != *became) {
                    let (time, packets) = (now.rx_time_us(), now.rx_packets());
                    return Ok(Undone::Changed(format!("{time} µs, {packets} packets")));
                }
                let Some(was) = Coalescing::from_words(was) else {
                    return Ok(Undone::Failed("the journal is damaged".to_owned()));
                };
                settings.set_coalescing(interface, &was)?;
                Ok(Undone::Restored)
            }
        }
    }
}

fn words(interface: &str, words: &[u32]) -> Result<Coalescing> {
    let made = Coalescing::from_words(words);
    made.ok_or_else(|| Error::malformed(interface, "a plan with other words than coalescing has"))
}

impl fmt::Display for ModerationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute {
                attribute,
                was,
                will_be,
            } => write!(f, "{} {was} -> {will_be}", attribute.name()),
            Self::Coalescing { was, will_be, .. } => {
                let time = |words: &Vec<u32>| {
                    Coalescing::from_words(words).map_or_else(
                        || "?".to_owned(),
                        |told| {
                            let adaptive = if told.is_adaptive_rx() {
                                " adaptive"
                            } else {
                                ""
                            };
                            format!("{}{adaptive}", told.rx_time_us())
                        },
                    )
                };
                write!(f, "rx-usecs {} -> {}", time(was), time(will_be))
            }
        }
    }
}
