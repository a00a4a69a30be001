//! What the kernel refused: the call, the object it was about, and its answer.

use std::fmt;
use std::io;

/// A refusal by the kernel: which call, on what object, with which `errno`.
///
/// The remedy is not known here; the command that meets the error adds it.
#[derive(Debug, thiserror::Error)]
#[error("{call} {object}: {source}")]
pub struct Error {
    /// The system call, or the file operation, that failed (`bind`, `setsockopt SO_RCVBUF`, `open`).
    pub call: &'static str,
    /// What it was called on: an address, an interface, a path.
    pub object: String,
    /// The kernel's answer.
    pub source: io::Error,
}

impl Error {
    /// Joins a kernel answer with the call and the object that it is about.
    pub fn new(call: &'static str, object: impl fmt::Display, source: io::Error) -> Self {
        Self {
            call,
            object: object.to_string(),
            source,
        }
    }

    /// The same for the calling thread's last `errno`.
    pub fn last(call: &'static str, object: impl fmt::Display) -> Self {
        Self::new(call, object, io::Error::last_os_error())
    }

    /// The `errno` value, where the source carries one.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

/// A result whose error is a kernel refusal.
pub type Result<T, E = Error> = std::result::Result<T, E>;
