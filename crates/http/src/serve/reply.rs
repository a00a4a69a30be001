//! A reply: what the protocol hands to an engine, which sends it and knows nothing of HTTP.

use std::fs::File;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of a file that are in memory at a time. A client that takes nothing holds them.
const FILE_BYTES: u64 = 32 << 10;

/// One reply, or the rest of it.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The part to send now: the head with the beginning of the body, and later more of that. An
    /// engine takes away what has gone.
    pub(crate) part: Chunk,
    /// The rest of the body.
    pub(crate) rest: ReplyBody,
    /// The connection is closed right after it, in the server's way, without asking.
    pub(crate) last: bool,
    /// The status, for the counters.
    pub(crate) status: u16,
}

/// Bytes that are shared and not copied.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// The memory that they lie in.
    pub(crate) bytes: Arc<[u8]>,
    /// Where in it.
    pub(crate) range: Range<usize>,
}

/// The body behind a reply's part.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// Nothing more.
    None,
    /// Bytes in memory.
    Memory(Chunk),
    /// A part of a file.
    File(FilePart),
}

/// The bytes of a file that were not read yet. Their number was promised in the head. If the file is
/// shorter by now, only closing the connection shows that to the client.
///
/// They are read into memory by the engine's own thread, with either engine: io_uring has no
/// sendfile(2), and never does splice(2) in the thread that asks (`io_splice`, io_uring/splice.c).
#[derive(Debug)]
pub(crate) struct FilePart {
    file: File,
    range: Range<u64>,
}

/// The connection's future, as a reply states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It goes on: the default of HTTP/1.1.
    Implied,
    /// It goes on, and the head says so for a client of HTTP/1.0.
    Told,
    /// It ends with this reply.
    No,
}

impl Reply {
    /// Bytes of head and body.
    pub(crate) fn bytes(&self) -> u64 {
        let rest = match &self.rest {
            ReplyBody::None => 0,
            ReplyBody::Memory(chunk) => chunk.range.len() as u64,
            ReplyBody::File(file) => file.left(),
        };
        self.part.range.len() as u64 + rest
    }

    /// Whether nothing comes after the part.
    pub(crate) fn is_last_part(&self) -> bool {
        matches!(self.rest, ReplyBody::None)
    }

    /// Goes on to the next part. False if there is none.
    ///
    /// # Errors
    ///
    /// The file is shorter than it was, or cannot be read.
    pub(crate) fn advance(&mut self) -> io::Result<bool> {
        self.part = match mem::replace(&mut self.rest, ReplyBody::None) {
            ReplyBody::None => return Ok(false),
            ReplyBody::Memory(chunk) => chunk,
            ReplyBody::File(mut file) => {
                let mut bytes = Vec::new();
                file.read(&mut bytes)?;
                self.rest = file.into();
                Chunk::whole(bytes.into())
            }
        };
        Ok(true)
    }

    /// A reply that is one piece of memory, head and body.
    pub(crate) fn in_memory(status: u16, bytes: Vec<u8>) -> Self {
        Self {
            part: Chunk::whole(bytes.into()),
            rest: ReplyBody::None,
            last: false,
            status,
        }
    }
}

impl From<FilePart> for ReplyBody {
    fn from(file: FilePart) -> Self {
        match file.left() {
            0 => Self::None,
            _ => Self::File(file),
        }
    }
}

impl FilePart {
    /// All bytes of a file of this length.
    pub(crate) fn whole(file: File, length: u64) -> Self {
        let range = 0..length;
        Self { file, range }
    }

    /// How many are left.
    pub(crate) fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Reads the next of them behind what is there.
    ///
    /// # Errors
    ///
    /// The file is shorter than it was, or cannot be read.
    pub(crate) fn read(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let (start, count) = (bytes.len(), self.left().min(FILE_BYTES));
        bytes.resize(start + count as usize, 0);
        self.file
            .read_exact_at(&mut bytes[start..], self.range.start)?;
        self.range.start += count;
        Ok(())
    }
}

impl Chunk {
    /// All of these bytes.
    pub(crate) fn whole(bytes: Arc<[u8]>) -> Self {
        let range = 0..bytes.len();
        Self { bytes, range }
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_the_bytes_in_its_range() {
        let chunk = Chunk {
            bytes: Arc::from(*b"abcdef"),
            range: 2..4,
        };
        assert_eq!(chunk.as_slice(), b"cd");
        assert_eq!(Chunk::whole(chunk.bytes).as_slice(), b"abcdef");
    }
}
