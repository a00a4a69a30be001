//! What mpps refused, as opposed to what the kernel refused.

use crate::Switch;

/// Why a server or a load could not be started as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel said no.
    #[error(transparent)]
    Kernel(#[from] mpps_os::Error),
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
    #[error("{option} {value}: {why}")]
    Invalid {
        /// The option, as a user names it.
        option: &'static str,
        /// What was given.
        value: String,
        /// What is wrong with it, and what is possible.
        why: String,
    },
    /// No engine of that name.
    #[error("no engine is called `{name}`; there are {known}")]
    UnknownEngine {
        /// What was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// This kernel cannot run the engine.
    #[error("engine {engine} cannot run here: {why}; {remedy}")]
    Unavailable {
        /// The engine's name.
        engine: &'static str,
        /// What is missing.
        why: String,
        /// What a user can do about it.
        remedy: String,
    },
}

impl Error {
    pub(crate) fn invalid(
        option: &'static str,
        value: impl ToString,
        why: impl Into<String>,
    ) -> Self {
        Self::Invalid {
            option,
            value: value.to_string(),
            why: why.into(),
        }
    }
}
