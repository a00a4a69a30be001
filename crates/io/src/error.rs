//! Refusals by mpps, as opposed to refusals by the kernel.

use mpps_os::text::Foreign;
use std::fmt;

/// Why a backend could not be opened as asked.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel said no.
    #[error(transparent)]
    Kernel(#[from] mpps_os::CallError),
    /// The backend cannot do what was asked, and does not pretend to.
    #[error("backend {backend} does not support {field}")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// The field of the configuration, or the method.
        field: &'static str,
    },
    /// A value that no backend takes.
    #[error("{field} {}: {why}", Foreign(.value))]
    Invalid {
        /// The field of the configuration, or the method.
        field: &'static str,
        /// The given value.
        value: String,
        /// The reason, and the possible values.
        why: String,
    },
    /// No backend of that name.
    #[error("no backend is called `{}`; there are {known}", Foreign(.name))]
    UnknownBackend {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
}

/// Prints the text of `Display`, because `fn main() -> Result<(), Error>` prints an error this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
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
