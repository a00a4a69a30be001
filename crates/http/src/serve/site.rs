//! The content of a server: one body at every path, or the files below a directory.

use super::ServedContent;
use crate::HttpError;
use mpps_os::file::{self, Directory};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Largest body that is made up; it lies in memory.
const SIZE_BYTES_MAX: usize = 1 << 30;

/// The text that a made-up body repeats.
const PATTERN: &[u8] = b"The quick brown fox jumps over the lazy dog. 0123456789 abcdefg\n";

/// The file that is served for a directory.
const INDEX: &str = "index.html";

/// The content of a server.
#[derive(Debug)]
pub(crate) struct ServedSite {
    kind: ContentKind,
}

#[derive(Debug)]
enum ContentKind {
    Body(Arc<[u8]>),
    Root(Directory),
}

/// The target of a path.
#[derive(Debug)]
pub(crate) enum PathTarget {
    /// A regular file.
    File(FoundFile),
    /// A directory, asked for without its slash.
    Directory,
    /// Nothing that could be sent; the status says why.
    Nothing(u16),
}

/// A regular file, open for reading, as it was when it was found.
#[derive(Debug)]
pub(crate) struct FoundFile {
    pub(crate) file: File,
    pub(crate) length: u64,
    pub(crate) content_type: &'static str,
}

impl ServedSite {
    /// Prepares the content.
    ///
    /// # Errors
    ///
    /// A size that memory should not be filled with; a directory that cannot be opened; a kernel
    /// without `openat2` (before Linux 5.6), because no path would be safe there.
    pub(crate) fn open(content: &ServedContent) -> Result<Self, HttpError> {
        let kind = match content {
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
                ContentKind::Body(body.into())
            }
            ServedContent::Root(path) => ContentKind::Root(Directory::open(path)?),
        };
        Ok(Self { kind })
    }

    /// Whether the user that the server is now may look for files.
    ///
    /// # Errors
    ///
    /// That of the kernel.
    pub(crate) fn check(&self) -> Result<(), HttpError> {
        match &self.kind {
            ContentKind::Body(_) => Ok(()),
            ContentKind::Root(root) => Ok(root.may_be_searched()?),
        }
    }

    /// The body that is served at every path, if it is of that kind.
    pub(crate) fn body(&self) -> Option<&Arc<[u8]>> {
        match &self.kind {
            ContentKind::Body(body) => Some(body),
            ContentKind::Root(_) => None,
        }
    }

    /// Looks for the file of a request's path.
    pub(crate) fn find(&self, path: &str) -> PathTarget {
        let ContentKind::Root(root) = &self.kind else {
            return PathTarget::Nothing(404);
        };
        let Some(relative) = relative_path(path) else {
            return PathTarget::Nothing(400);
        };
        let relative = Path::new(OsStr::from_bytes(&relative));
        let opened = root.open_below(relative).and_then(|file| {
            let metadata = file.metadata();
            let metadata =
                metadata.map_err(|source| mpps_os::CallError::new("statx", path, source))?;
            Ok((file, metadata))
        });
        match opened {
            Ok((file, metadata)) if metadata.is_file() => {
                let extension = relative.extension().unwrap_or_default();
                PathTarget::File(FoundFile {
                    file,
                    length: metadata.len(),
                    content_type: match extension.eq_ignore_ascii_case("html") {
                        true => "text/html; charset=utf-8",
                        false => "application/octet-stream",
                    },
                })
            }
            Ok((_, metadata)) if metadata.is_dir() => PathTarget::Directory,
            Ok(_) => PathTarget::Nothing(403),
            Err(error) => PathTarget::Nothing(status_of(&error)),
        }
    }
}

/// The path below the root: decoded, without empty and dot segments, with the index of a directory
/// that was asked for by its slash. None if it leads upwards or is no name.
///
/// The kernel keeps paths below the root too (`RESOLVE_BENEATH`); this refuses early, and what it
/// refuses is refused whether or not the directories on the way exist.
fn relative_path(path: &str) -> Option<Vec<u8>> {
    let mut relative = Vec::with_capacity(path.len() + INDEX.len());
    let decoded = decode(path)?;
    let mut is_directory = true;
    for segment in decoded.split(|&byte| byte == b'/') {
        is_directory = segment.is_empty() || segment == b".";
        match segment {
            b"" | b"." => {}
            b".." => return None,
            _ if segment.contains(&0) => return None,
            _ => {
                if !relative.is_empty() {
                    relative.push(b'/');
                }
                relative.extend_from_slice(segment);
            }
        }
    }
    if is_directory {
        if !relative.is_empty() {
            relative.push(b'/');
        }
        relative.extend_from_slice(INDEX.as_bytes());
    }
    Some(relative)
}

/// A path with its percent signs decoded. None if one of them is not followed by two digits.
fn decode(path: &str) -> Option<Vec<u8>> {
    let mut bytes = path.as_bytes();
    while let Some(at) = bytes.iter().position(|&byte| byte == b'%') {
        match bytes[at + 1..] {
            [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                bytes = &bytes[at + 3..];
            }
            _ => return None,
        }
    }
    Some(percent_encoding::percent_decode_str(path).collect())
}

/// The status for a file that could not be opened. A file outside the root counts as absent.
fn status_of(error: &mpps_os::CallError) -> u16 {
    match error.source.kind() {
        _ if file::is_absent(error) => 404,
        std::io::ErrorKind::PermissionDenied => 403,
        _ => 503,
    }
}

#[cfg(test)]
mod tests;
