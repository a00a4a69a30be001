//! The content of a server: one body at every path, or the files below a directory.

use super::ServedContent;
use super::reply::FilePart;
use crate::HttpError;
use mpps_os::file::{self, Directory};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Largest body that is made up; it lies in memory.
const SIZE_BYTES_MAX: usize = 1 << 30;

/// The text that a made-up body repeats.
const PATTERN: &[u8] = b"The quick brown fox jumps over the lazy dog. 0123456789 abcdefg\n";

/// The content of a server.
#[derive(Debug)]
pub(crate) enum ServedSite {
    /// At every path.
    Body(Arc<[u8]>),
    /// A file for each path.
    Root(Directory),
}

impl ServedSite {
    /// Prepares the content.
    ///
    /// # Errors
    ///
    /// A size that memory should not be filled with; a directory that cannot be opened; a kernel
    /// without `openat2` (before Linux 5.6), because no path would be safe there.
    pub(crate) fn open(content: &ServedContent) -> Result<Self, HttpError> {
        Ok(match content {
            ServedContent::Size(size) if *size > SIZE_BYTES_MAX => {
                let why = format!("the body lies in memory; at most {SIZE_BYTES_MAX} bytes");
                return Err(HttpError::invalid("content", size, why));
            }
            ServedContent::Size(size) => {
                // It is there twice for a moment. An allocation that fails ends the process.
                if Vec::<u8>::new().try_reserve_exact(2 * size).is_err() {
                    let why = "this process gets no memory for the body (`ulimit -v`?)";
                    return Err(HttpError::invalid("content", size, why));
                }
                let mut body = PATTERN.repeat(size.div_ceil(PATTERN.len()));
                body.truncate(*size);
                Self::Body(body.into())
            }
            ServedContent::Root(path) => Self::Root(Directory::open(path)?),
        })
    }

    /// Whether the user that the server is now may look for files.
    ///
    /// # Errors
    ///
    /// That of the kernel.
    pub(crate) fn check(&self) -> Result<(), HttpError> {
        match self {
            Self::Body(_) => Ok(()),
            Self::Root(root) => Ok(root.may_be_searched()?),
        }
    }

    /// Looks for the file of a request's path, which is taken as it was sent. The kernel keeps it
    /// below the root (`RESOLVE_BENEATH`): a file outside counts as absent.
    ///
    /// # Errors
    ///
    /// The status that says why there is none.
    pub(crate) fn find(&self, path: &str) -> Result<FilePart, u16> {
        let Self::Root(root) = self else {
            return Err(404);
        };
        let file = root.open_below(Path::new(path.trim_start_matches('/')));
        let file = file.map_err(|error| match error.source.kind() {
            _ if file::is_absent(&error) => 404u16,
            ErrorKind::PermissionDenied => 403,
            _ => 503,
        })?;
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(FilePart::whole(file, metadata.len())),
            Ok(_) => Err(404),
            Err(_) => Err(503),
        }
    }
}

#[cfg(test)]
mod tests;
