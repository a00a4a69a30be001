//! The head of a request: httparse knows the grammar, this file what its fields mean together.
//!
//! The rules are those of RFC 9112 and RFC 9110, read strictly where a lenient reading lets two
//! programs disagree about where a request ends.

use httparse::Status;
use std::mem::MaybeUninit;

/// Fields in one head. Browsers send about 15; 100 is Apache's `LimitRequestFields`.
const FIELDS_MAX: usize = 100;

/// The meaning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// The beginning of a head, as far as one can see.
    Part,
    /// A request.
    Whole {
        /// The request.
        request: HttpRequest<'a>,
        /// Bytes of its head, with the empty line.
        head_bytes: usize,
    },
    /// Something that cannot be followed up; the status says why.
    Refused(u16),
}

/// A request whose framing is beyond doubt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HttpRequest<'a> {
    /// The method.
    pub(crate) method: Method,
    /// The path as it was sent, percent signs and all; it begins with a slash.
    pub(crate) path: &'a str,
    /// Whether the client speaks HTTP/1.1, and not 1.0.
    pub(crate) is_1_1: bool,
    /// Whether the client wants to ask more on this connection.
    pub(crate) keep_alive: bool,
    /// The content behind the head.
    pub(crate) content: RequestContent,
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// Send it.
    Get,
    /// Send the head only.
    Head,
    /// A method of RFC 9110 or 5789 that a server of files does not allow.
    NotAllowed,
    /// A word that is no method known here.
    Unknown,
}

/// The content behind a request's head. It is not read; only its end matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestContent {
    /// This number of bytes, which may be 0.
    Length(u64),
    /// Chunks, or bytes that the client sends only after a word that it does not get: the
    /// connection cannot go on after the reply.
    Unbounded,
}

/// The fields that decide how long a request is and whom it is for.
#[derive(Debug, Default)]
struct RequestFraming<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    encoding: Option<&'a [u8]>,
    close: bool,
    keep_alive: bool,
    expects: bool,
}

/// Reads the head at the beginning of these bytes. Empty lines before it are its part.
///
/// The result for some bytes, and for the same bytes with more behind them, agrees: a request or a
/// refusal stays as it is, whatever follows.
pub(crate) fn parse(bytes: &[u8], head_bytes_max: usize) -> Parsed<'_> {
    let seen = &bytes[..bytes.len().min(head_bytes_max)];
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut []);
    let parsed = match head.parse_with_uninit_headers(seen, &mut fields) {
        Ok(Status::Complete(head_bytes)) => match understand(&head) {
            Ok(request) => Parsed::Whole {
                request,
                head_bytes,
            },
            Err(status) => Parsed::Refused(status),
        },
        Ok(Status::Partial) => Parsed::Part,
        Err(httparse::Error::TooManyHeaders) => Parsed::Refused(431),
        Err(httparse::Error::Version) => other_version(first_line(seen)),
        Err(_) => Parsed::Refused(400),
    };
    match parsed {
        Parsed::Part if seen.len() == head_bytes_max => Parsed::Refused(too_large(seen)),
        parsed => parsed,
    }
}

fn understand<'a>(head: &httparse::Request<'_, 'a>) -> Result<HttpRequest<'a>, u16> {
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Err(400);
    };
    let mut framing = RequestFraming::default();
    for field in head.headers.iter() {
        framing.take(field)?;
    }
    let is_1_1 = version == 1;
    let content = framing.content(is_1_1)?;
    match framing.host {
        Some(host) if !host.iter().all(|&byte| is_host_byte(byte)) => return Err(400),
        None if is_1_1 => return Err(400),
        _ => {}
    }
    let method = Method::of(method);
    let path = match method {
        Method::Get | Method::Head => path_of(target).ok_or(400u16)?,
        // `OPTIONS *` and `CONNECT host:port` have no path, and get none.
        Method::NotAllowed | Method::Unknown => "/",
    };
    Ok(HttpRequest {
        method,
        path,
        is_1_1,
        keep_alive: !framing.close && (is_1_1 || framing.keep_alive),
        content,
    })
}

impl Method {
    /// The method of a word; case matters (RFC 9110, section 9.1).
    fn of(word: &str) -> Self {
        match word {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => {
                Self::NotAllowed
            }
            _ => Self::Unknown,
        }
    }
}

impl<'a> RequestFraming<'a> {
    /// Takes one field. The names differ by their length.
    fn take(&mut self, field: &httparse::Header<'a>) -> Result<(), u16> {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        let value = field.value.trim_ascii();
        match field.name.len() {
            4 if is("host") && self.host.replace(value).is_some() => return Err(400),
            6 if is("expect") => self.expects = true,
            10 if is("connection") => self.connection(value),
            14 if is("content-length") => {
                let length = decimal(value).ok_or(400u16)?;
                // Two lengths are refused even if they are equal: a proxy in between may have gone
                // by the one and not by the other.
                if self.length.replace(length).is_some() {
                    return Err(400);
                }
            }
            17 if is("transfer-encoding") && self.encoding.replace(value).is_some() => {
                return Err(501);
            }
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Where the request ends (RFC 9112, section 6.3).
    fn content(&self, is_1_1: bool) -> Result<RequestContent, u16> {
        match (self.encoding, self.length) {
            (Some(_), Some(_)) => Err(400),
            (Some(_), None) if !is_1_1 => Err(400),
            (Some(encoding), None) if encoding.eq_ignore_ascii_case(b"chunked") => {
                Ok(RequestContent::Unbounded)
            }
            (Some(_), None) => Err(501),
            (None, Some(length)) if length > 0 && self.expects => Ok(RequestContent::Unbounded),
            (None, length) => Ok(RequestContent::Length(length.unwrap_or(0))),
        }
    }
}

/// Only digits: the standard parser would take a sign.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A byte of a name, an address or a port (RFC 3986, section 3.2).
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(&byte)
}

/// The path of a target, in origin form or in absolute form, without its query.
fn path_of(target: &str) -> Option<&str> {
    let local = if target.starts_with('/') {
        target
    } else {
        let scheme_end = target.find("://")?;
        let scheme = &target[..scheme_end];
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return None;
        }
        let rest = &target[scheme_end + 3..];
        let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, local) = rest.split_at(authority_end);
        if authority.is_empty() || !authority.bytes().all(is_host_byte) {
            return None;
        }
        local
    };
    if local.contains('#') {
        return None;
    }
    let path = local.split('?').next().unwrap_or("");
    Some(if path.is_empty() { "/" } else { path })
}

/// The line that a head begins with, and whether its end has been seen.
fn first_line(bytes: &[u8]) -> (&[u8], bool) {
    let start = bytes.iter().position(|byte| !b"\r\n".contains(byte));
    let line = &bytes[start.unwrap_or(bytes.len())..];
    match line.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&line[..end], true),
        None => (line, false),
    }
}

/// A line whose version httparse does not take: another version of HTTP, none, or the beginning of
/// one. (It does not take HTTP/1.2 either, which no client sends.)
fn other_version((line, is_whole): (&[u8], bool)) -> Parsed<'_> {
    let version = line.splitn(3, |&byte| byte == b' ').nth(2).unwrap_or(b"");
    let version = version.strip_suffix(b"\r").unwrap_or(version);
    let fits = |(at, &byte): (usize, &u8)| match at {
        5 | 7 => byte.is_ascii_digit(),
        _ => byte == b"HTTP/0.0"[at],
    };
    match version.len() {
        0..=8 if !version.iter().enumerate().all(fits) => Parsed::Refused(400),
        0..=8 if !is_whole => Parsed::Part,
        8 => Parsed::Refused(505),
        _ => Parsed::Refused(400),
    }
}

/// Which part of a head that does not end is too long.
fn too_large(seen: &[u8]) -> u16 {
    match first_line(seen) {
        (_, true) => 431,
        (_, false) => 414,
    }
}

#[cfg(test)]
mod tests;
