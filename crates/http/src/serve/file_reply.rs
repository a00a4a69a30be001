//! The reply that sends a file, or says why not.

use super::heads::Heads;
use super::reply::{Chunk, Keep, Reply, ReplyBody};
use super::request::{HttpRequest, Method};
use super::site::{FoundFile, ServedSite};
use std::fs::File;
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
        Err(status) => heads.note(status, keep, is_head),
        Ok(found) => FileReply {
            heads,
            keep,
            is_head,
            found,
        }
        .send(),
    }
}

struct FileReply<'a> {
    heads: &'a Heads,
    keep: Keep,
    is_head: bool,
    found: FoundFile,
}

impl FileReply<'_> {
    fn send(self) -> Reply {
        let length = self.found.length;
        let mut bytes = self
            .heads
            .head(200, self.keep)
            .field("Content-Type", "application/octet-stream")
            .field("Content-Length", length)
            .end();
        if self.is_head || length == 0 {
            return Reply::in_memory(200, bytes);
        }
        if length <= READ_BYTES_MAX {
            return match append(&mut bytes, &self.found.file, length) {
                Ok(()) => Reply::in_memory(200, bytes),
                // The file became shorter just now, or its disk fails. Nothing was promised yet.
                Err(_) => self.heads.note(503, self.keep, false),
            };
        }
        Reply {
            head: Chunk::whole(bytes.into()),
            body: ReplyBody::File {
                file: Arc::new(self.found.file),
                range: 0..length,
            },
            last: false,
            status: 200,
        }
    }
}

/// Reads a file behind what is there.
fn append(bytes: &mut Vec<u8>, file: &File, length: u64) -> std::io::Result<()> {
    let start = bytes.len();
    let length = usize::try_from(length).map_err(std::io::Error::other)?;
    bytes.resize(start + length, 0);
    file.read_exact_at(&mut bytes[start..], 0)
}

#[cfg(test)]
mod tests;
