//! What can go wrong while a host is read: the kernel refused, or gave something unexpected.

use crate::cpu::CpuUnavailable;
use crate::cpu_list::CpuListError;

/// A failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused a call or a file.
    #[error(transparent)]
    Kernel(#[from] mpps_os::Error),
    /// A file of the kernel does not have the form that this version knows.
    #[error("{file}: {what}")]
    Malformed {
        /// The file that was read.
        file: String,
        /// What is wrong with it, with the line where that helps.
        what: String,
    },
    /// A list of CPUs could not be read.
    #[error(transparent)]
    CpuList(#[from] CpuListError),
    /// A CPU was named that this process cannot use.
    #[error(transparent)]
    Cpu(#[from] CpuUnavailable),
}

impl Error {
    /// A file whose content is not what it should be.
    pub(crate) fn malformed(file: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Malformed {
            file: file.into(),
            what: what.into(),
        }
    }
}

/// A result whose error is one of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
