//! Errors while a host is read: the kernel refused, or gave something unexpected.

use mpps_os::text::Foreign;
use mpps_os::{CpuList, CpuListError};
use std::fmt;

/// A failure of this crate.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The kernel refused a call or a file.
    #[error(transparent)]
    Kernel(#[from] mpps_os::CallError),
    /// A file of the kernel does not have the form that this version knows.
    #[error("{file}: {}", Foreign(.what))]
    Malformed {
        /// The file that was read.
        file: String,
        /// The fault, with its line if that helps.
        what: String,
    },
    /// This cannot be had here.
    #[error("{}: {why}; {remedy}", Foreign(.object))]
    Impossible {
        /// The object, such as an interface.
        object: String,
        /// Why not.
        why: String,
        /// The remedy for the user.
        remedy: String,
    },
    /// A change failed in the middle, and what was changed before could not all be put back.
    #[error("{cause}; and of what was changed before: {rest}; `mpps undo` tries again")]
    PutBack {
        /// Why the change failed.
        #[source]
        cause: Box<HostError>,
        /// The settings that could not be put back, and why.
        rest: String,
    },
    /// A list of CPUs could not be read.
    #[error(transparent)]
    CpuList(#[from] CpuListError),
    /// A CPU was named that this process cannot use.
    #[error(transparent)]
    Cpu(#[from] CpuUnavailable),
}

/// Prints the text of `Display`, because `fn main() -> Result<(), Error>` prints an error this way.
impl fmt::Debug for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl HostError {
    /// Says that something is impossible for an object, why, and how to help it.
    pub(crate) fn impossible(
        object: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Impossible {
            object: object.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// A file whose content is not what it should be.
    pub(crate) fn malformed(file: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Malformed {
            file: file.into(),
            what: what.into(),
        }
    }
}

/// Why a CPU that was named cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuUnavailable {
    /// The host has no such CPU.
    #[error("CPU {cpu} does not exist: this host has {online}")]
    Absent {
        /// The CPU that was named.
        cpu: usize,
        /// The CPUs that are online.
        online: CpuList,
    },
    /// The CPU is switched off.
    #[error(
        "CPU {cpu} is offline; switch it on with: echo 1 > /sys/devices/system/cpu/cpu{cpu}/online"
    )]
    Offline {
        /// The CPU that was named.
        cpu: usize,
    },
    /// The CPU is there, but not for this process.
    #[error(
        "CPU {cpu} is not allowed to this process, which may use {allowed} (taskset or a cgroup's cpuset says so)"
    )]
    Forbidden {
        /// The CPU that was named.
        cpu: usize,
        /// The CPUs that are allowed.
        allowed: CpuList,
    },
}

/// A result whose error is one of this crate.
pub type HostResult<T, E = HostError> = std::result::Result<T, E>;
