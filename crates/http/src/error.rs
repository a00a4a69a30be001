//! Refusals by mpps, as opposed to refusals by the kernel.

use crate::Switch;
use std::fmt;

/// Why a server or a load could not be started as asked.
#[derive(thiserror::Error)]
pub enum HttpError {
    /// The kernel said no.
    #[error(transparent)]
    Kernel(#[from] mpps_os::CallError),
    /// The engine has no such switch, and does not pretend to.
    #[error("engine {engine} has no switch {switch}{why}")]
    NoSwitch {
        /// The engine's name.
        engine: &'static str,
        /// The switch.
        switch: Switch,
        /// Why not, if it has one on another kernel.
        why: String,
    },
    /// A value that cannot be.
    #[error("{field} {value}: {why}")]
    Invalid {
        /// The field of the configuration.
        field: &'static str,
        /// The given value.
        value: String,
        /// The reason, and the possible values.
        why: String,
    },
    /// No engine of that name.
    #[error("no engine is called `{name}`; there are {known}")]
    UnknownEngine {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// This kernel cannot run the engine.
    #[error("engine {engine} cannot run here: {why}; {remedy}")]
    Unavailable {
        /// The engine's name.
        engine: &'static str,
        /// The missing part.
        why: String,
        /// The remedy for the user.
        remedy: String,
    },
}

/// Prints the text of `Display`, because `fn main() -> Result<(), Error>` prints an error this way.
impl fmt::Debug for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl HttpError {
    pub(crate) fn invalid(
        field: &'static str,
        value: impl ToString,
        why: impl Into<String>,
    ) -> Self {
        Self::Invalid {
            field,
            value: value.to_string(),
            why: why.into(),
        }
    }
}
