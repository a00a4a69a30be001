//! The reply that sends a file, a part of it, or says why not.

use super::heads::Heads;
use super::precondition::PreconditionResult;
use super::range::{self, FilePart};
use super::reply::{Chunk, HeadWriter, Keep, Reply, ReplyBody};
use super::request::{HttpRequest, Method};
use super::site::{FoundFile, PathTarget, ServedSite};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Files up to this size are read and go with their head in one send. For larger ones `sendfile`
/// saves more by not copying than its own system call costs; the socket's send buffer starts out
/// at about this size too (`tcp_wmem`).
const READ_BYTES_MAX: u64 = 16 << 10;

/// Answers from the files below the root.
pub(super) fn answer(
    site: &ServedSite,
    heads: &Heads,
    request: &HttpRequest<'_>,
    keep: Keep,
) -> Reply {
    let is_head = request.method == Method::Head;
    match site.find(request.path) {
        PathTarget::Nothing(status) => heads.note(status, keep, is_head),
        PathTarget::Directory => redirect(heads, request, keep),
        PathTarget::File(found) => FileReply {
            heads,
            keep,
            is_head,
            found,
        }
        .answer(request),
    }
}

/// Sends a client from `/directory` to `/directory/`, so that relative links work.
fn redirect(heads: &Heads, request: &HttpRequest<'_>, keep: Keep) -> Reply {
    // One slash at the beginning and no more: `//name/` would be a host's name.
    let path = request.path.trim_start_matches('/');
    let head = heads
        .head(301, keep)
        .field("Location", format_args!("/{path}/{}", request.query))
        .field("Content-Length", 0);
    Reply::in_memory(301, head.end())
}

struct FileReply<'a> {
    heads: &'a Heads,
    keep: Keep,
    is_head: bool,
    found: FoundFile,
}

impl FileReply<'_> {
    fn answer(self, request: &HttpRequest<'_>) -> Reply {
        let length = self.found.length;
        let conditions = &request.conditions;
        let part = match (self.found.validators.evaluate(conditions), conditions.range) {
            (PreconditionResult::NotModified, _) => {
                return Reply::in_memory(304, self.head(304).end());
            }
            (PreconditionResult::Failed, _) => {
                return self.heads.note(412, self.keep, self.is_head);
            }
            // A range is defined for GET only (RFC 9110, section 14.2).
            (PreconditionResult::Send, Some(value)) if !self.is_head => range::part(value, length),
            _ => FilePart::All,
        };
        match part {
            FilePart::All => self.send(200, 0..length),
            FilePart::Bytes(range) => self.send(206, range),
            FilePart::Beyond => {
                let head = self
                    .heads
                    .head(416, self.keep)
                    .field("Content-Range", format_args!("bytes */{length}"))
                    .field("Content-Length", 0);
                Reply::in_memory(416, head.end())
            }
        }
    }

    fn send(self, status: u16, range: Range<u64>) -> Reply {
        let part_length = range.end - range.start;
        let mut head = self
            .head(status)
            .field("Content-Type", self.found.content_type)
            .field("Content-Length", part_length)
            .field("Accept-Ranges", "bytes");
        if status == 206 {
            let last = range.end - 1;
            let length = self.found.length;
            let value = format_args!("bytes {}-{last}/{length}", range.start);
            head = head.field("Content-Range", value);
        }
        let mut bytes = head.end();
        if self.is_head || part_length == 0 {
            return Reply::in_memory(status, bytes);
        }
        if part_length <= READ_BYTES_MAX {
            return match append(&mut bytes, &self.found.file, &range) {
                Ok(()) => Reply::in_memory(status, bytes),
                // The file became shorter just now, or its disk fails. Nothing was promised yet.
                Err(_) => self.heads.note(503, self.keep, false),
            };
        }
        Reply {
            head: Chunk::whole(bytes.into()),
            body: ReplyBody::File {
                file: Arc::new(self.found.file),
                range,
            },
            last: false,
            status,
        }
    }

    /// The head with the fields that identify the version.
    fn head(&self, status: u16) -> HeadWriter {
        self.heads
            .head(status, self.keep)
            .field("ETag", &self.found.validators.tag)
            .field(
                "Last-Modified",
                httpdate::fmt_http_date(self.found.validators.modified),
            )
    }
}

/// Reads a part of a file behind what is there.
fn append(bytes: &mut Vec<u8>, file: &File, range: &Range<u64>) -> std::io::Result<()> {
    let start = bytes.len();
    let length = usize::try_from(range.end - range.start).map_err(std::io::Error::other)?;
    bytes.resize(start + length, 0);
    file.read_exact_at(&mut bytes[start..], range.start)
}

#[cfg(test)]
mod tests;
