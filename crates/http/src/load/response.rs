//! Reading replies: HTTP/1.0 and 1.1, one reply to one request, in whatever pieces it comes.

use super::chunks::Chunks;
use crate::serve::decimal;
use httparse::Status;

/// The longest head of a reply in bytes; a longer one is a bad reply.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most header lines.
const HEADERS_MAX: usize = 100;
/// The most interim replies (1xx) before the final one.
const INTERIM_MAX: u8 = 16;

/// A reply that is being read.
#[derive(Debug, Clone, Default)]
pub struct Response {
    state: ResponseState,
    head: ResponseHead,
    body_bytes: u64,
    interim: u8,
    /// The part of a head that has come, if it came in pieces. A head that came whole takes no
    /// memory.
    partial: Vec<u8>,
}

/// The contents of a head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ResponseHead {
    status: u16,
    framing: ReplyFraming,
    close: bool,
}

/// How the end of a body is known (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ReplyFraming {
    #[default]
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum ResponseState {
    #[default]
    Head,
    Length(u64),
    Chunks(Chunks),
    UntilClose,
    Whole,
}

/// The head that came last, so that one of the same bytes need not be parsed again. Servers repeat
/// themselves for a second, until the date changes.
#[derive(Debug, Clone, Default)]
pub struct LastHead {
    bytes: Vec<u8>,
    head: ResponseHead,
}

/// Whether a reply is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyState {
    /// There is more to come.
    More,
    /// It is whole, and nothing came after it.
    Whole,
}

/// Why bytes are not a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadReply(pub &'static str);

/// The state of a reply when the server closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnd {
    /// Whole: only the close could end it.
    Whole,
    /// Nothing had come.
    Nothing,
    /// It ended within its head.
    ShortHead,
    /// It ended within its body.
    ShortBody,
}

impl Response {
    /// Reads on.
    ///
    /// # Errors
    /// The bytes are no HTTP/1 reply, or more than one. Nothing is to be read after an error.
    pub fn receive(
        &mut self,
        mut bytes: &[u8],
        last_head: &mut LastHead,
    ) -> Result<ReplyState, BadReply> {
        loop {
            match &mut self.state {
                ResponseState::Head => {
                    let Some(used) = self.take_head(bytes, last_head)? else {
                        return Ok(ReplyState::More);
                    };
                    bytes = &bytes[used..];
                }
                ResponseState::Length(left) => {
                    let taken = (*left).min(bytes.len() as u64);
                    *left -= taken;
                    self.body_bytes += taken;
                    if *left > 0 {
                        return Ok(ReplyState::More);
                    }
                    // It is at most the length of a slice.
                    bytes = &bytes[taken as usize..];
                    self.state = ResponseState::Whole;
                }
                ResponseState::Chunks(chunks) => {
                    let fed = chunks.feed(bytes).ok_or(BadReply("a damaged chunk"))?;
                    self.body_bytes += fed.body_bytes;
                    if !fed.whole {
                        return Ok(ReplyState::More);
                    }
                    bytes = &bytes[fed.used..];
                    self.state = ResponseState::Whole;
                }
                ResponseState::UntilClose => {
                    self.body_bytes += bytes.len() as u64;
                    return Ok(ReplyState::More);
                }
                ResponseState::Whole if bytes.is_empty() => return Ok(ReplyState::Whole),
                ResponseState::Whole => return Err(BadReply("more than was asked for")),
            }
        }
    }

    /// The state of the reply if the server closes now.
    pub fn end(&mut self) -> ReplyEnd {
        match self.state {
            ResponseState::UntilClose | ResponseState::Whole => {
                self.state = ResponseState::Whole;
                ReplyEnd::Whole
            }
            ResponseState::Head if self.partial.is_empty() && self.interim == 0 => {
                ReplyEnd::Nothing
            }
            ResponseState::Head => ReplyEnd::ShortHead,
            ResponseState::Length(_) | ResponseState::Chunks(_) => ReplyEnd::ShortBody,
        }
    }

    /// Begins anew, for the next reply of the connection.
    pub fn reset(&mut self) {
        self.state = ResponseState::Head;
        self.body_bytes = 0;
        self.interim = 0;
        self.partial.clear();
    }

    /// The status; 0 before the head was whole.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Bytes of the body so far, without the framing of chunks.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// True if the server will close after this reply.
    pub fn closes(&self) -> bool {
        self.head.close
    }

    /// Takes the head, if the bytes complete it, and returns how many of them belong to it.
    fn take_head(
        &mut self,
        bytes: &[u8],
        last_head: &mut LastHead,
    ) -> Result<Option<usize>, BadReply> {
        if self.partial.is_empty() && last_head.begins(bytes) {
            self.head = last_head.head;
            self.enter_body();
            return Ok(Some(last_head.bytes.len()));
        }
        let before = self.partial.len();
        let parsed = if before == 0 {
            parse(bytes)?
        } else {
            let room = HEAD_BYTES_MAX - before;
            self.partial.extend(&bytes[..bytes.len().min(room)]);
            parse(&self.partial)?
        };
        let Some((head, length)) = parsed else {
            if before == 0 {
                self.partial
                    .extend(&bytes[..bytes.len().min(HEAD_BYTES_MAX)]);
            }
            if self.partial.len() >= HEAD_BYTES_MAX {
                return Err(BadReply("an endless head"));
            }
            return Ok(None);
        };
        self.head = head;
        if head.status < 200 {
            self.interim += 1;
            if self.interim > INTERIM_MAX || head.status == 101 {
                return Err(BadReply("interim replies without end"));
            }
        } else {
            last_head.head = head;
            last_head.bytes.clear();
            let whole = if before == 0 { bytes } else { &self.partial };
            last_head.bytes.extend(&whole[..length]);
            self.enter_body();
        }
        self.partial.clear();
        // The bytes before did not complete the head, so that it is longer.
        Ok(Some(length.saturating_sub(before)))
    }

    fn enter_body(&mut self) {
        self.state = match self.head.framing {
            ReplyFraming::None => ResponseState::Whole,
            ReplyFraming::Length(bytes) => ResponseState::Length(bytes),
            ReplyFraming::Chunked => ResponseState::Chunks(Chunks::default()),
            ReplyFraming::UntilClose => ResponseState::UntilClose,
        };
    }
}

impl LastHead {
    /// True if bytes begin with this head, and so with a whole head.
    fn begins(&self, bytes: &[u8]) -> bool {
        !self.bytes.is_empty() && bytes.starts_with(&self.bytes)
    }
}

/// Parses a head, if it is whole, and returns its length.
fn parse(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, BadReply> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(BadReply("too many headers")),
        Err(httparse::Error::Version) => return Err(BadReply("not HTTP/1")),
        Err(_) => return Err(BadReply("a damaged head")),
    };
    if length > HEAD_BYTES_MAX {
        return Err(BadReply("an endless head"));
    }
    let status = response.code.unwrap_or(0);
    let is_old = response.version == Some(0);
    let head = interpret(status, is_old, response.headers)?;
    Ok(Some((head, length)))
}

/// Reads from the headers the framing of the body, and whether the connection closes.
fn interpret(
    status: u16,
    is_old: bool,
    headers: &[httparse::Header<'_>],
) -> Result<ResponseHead, BadReply> {
    let mut length = None;
    let mut coding = None;
    let (mut close, mut keep_alive) = (false, false);
    for header in headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            let value = decimal(header.value.trim_ascii()).ok_or(BadReply("a damaged length"))?;
            if length.is_some_and(|length| length != value) {
                return Err(BadReply("two lengths"));
            }
            length = Some(value);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            coding = Some(header.value);
        } else if header.name.eq_ignore_ascii_case("connection") {
            for token in header.value.split(|byte| *byte == b',') {
                close |= token.trim_ascii().eq_ignore_ascii_case(b"close");
                keep_alive |= token.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
            }
        }
    }
    let framing = match (status, coding, length) {
        (..200 | 204 | 304, _, _) => ReplyFraming::None,
        (_, Some(coding), _) if is_chunked(coding) => ReplyFraming::Chunked,
        (_, Some(_), _) | (_, None, None) => ReplyFraming::UntilClose,
        (_, None, Some(length)) => ReplyFraming::Length(length),
    };
    // A reply with both is to be the last one of its connection (RFC 9112, section 6.3).
    let is_doubtful = coding.is_some() && length.is_some();
    Ok(ResponseHead {
        status,
        framing,
        close: close
            || is_doubtful
            || framing == ReplyFraming::UntilClose
            || (is_old && !keep_alive),
    })
}

/// True if the last coding of the list is `chunked`.
fn is_chunked(codings: &[u8]) -> bool {
    let last = codings.rsplit(|byte| *byte == b',').next();
    last.is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

#[cfg(test)]
mod tests;
