//! A reply: what the protocol hands to an engine, which sends it and knows nothing of HTTP.

use super::status;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// One reply, whole.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The head, and after it the body where both lie in one piece of memory.
    pub(crate) head: Chunk,
    /// The rest of the body.
    pub(crate) body: ReplyBody,
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

/// The body behind a reply's head.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// Nothing more.
    None,
    /// Bytes in memory.
    Memory(Chunk),
    /// A part of a file. Its length was promised in the head. If the file is shorter by now, only
    /// closing the connection shows that to the client.
    File {
        /// The file.
        file: Arc<File>,
        /// Which of its bytes.
        range: Range<u64>,
    },
}

/// The connection's future, as a reply states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It goes on, which HTTP/1.1 takes for granted.
    Implied,
    /// It goes on, and the head says so for a client of HTTP/1.0.
    Told,
    /// It ends with this reply.
    No,
}

/// The head of a reply in the making.
#[derive(Debug)]
pub(crate) struct HeadWriter {
    text: Vec<u8>,
}

impl Reply {
    /// Bytes of head and body.
    pub(crate) fn bytes(&self) -> u64 {
        let body = match &self.body {
            ReplyBody::None => 0,
            ReplyBody::Memory(chunk) => chunk.range.len() as u64,
            ReplyBody::File { range, .. } => range.end.saturating_sub(range.start),
        };
        self.head.range.len() as u64 + body
    }

    /// A reply that is one piece of memory, head and body.
    pub(crate) fn in_memory(status: u16, bytes: Vec<u8>) -> Self {
        Self {
            head: Chunk::whole(bytes.into()),
            body: ReplyBody::None,
            last: false,
            status,
        }
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

impl HeadWriter {
    /// The status line and what every reply has.
    pub(crate) fn new(status: u16, date: &str, keep: Keep) -> Self {
        let mut writer = Self {
            text: Vec::with_capacity(256),
        };
        writer.push(format_args!(
            "HTTP/1.1 {status} {}\r\nDate: {date}\r\n",
            status::reason(status)
        ));
        match keep {
            Keep::Implied => {}
            Keep::Told => writer.push(format_args!("Connection: keep-alive\r\n")),
            Keep::No => writer.push(format_args!("Connection: close\r\n")),
        }
        writer
    }

    /// One more field.
    pub(crate) fn field(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.push(format_args!("{name}: {value}\r\n"));
        self
    }

    /// The head's bytes with the empty line that ends it, and room for what follows.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.text.extend_from_slice(b"\r\n");
        self.text
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to memory does not fail.
        let _ = self.text.write_fmt(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_its_lines_in_order() {
        let head = HeadWriter::new(404, "Thu, 01 Jan 1970 00:00:00 GMT", Keep::No)
            .field("Content-Length", 0)
            .end();
        let expected = "HTTP/1.1 404 Not Found\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
            Connection: close\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&head), expected);
    }

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
