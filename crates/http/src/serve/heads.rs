//! The heads of replies, with the date, and the texts of those that say what the matter is.

use super::reply::{Keep, Reply};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The media type of what this server makes up.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Seconds from 1970 to the year 9999, the last that a date of HTTP can be written for.
const SECONDS_MAX: u64 = 253_370_764_800;

/// Writes heads. Its date is renewed once a second.
#[derive(Default)]
pub(super) struct Heads {
    date: String,
    /// When the date is to be written anew, on the clock of `now_ms`.
    pub(super) date_ends_ms: u64,
}

impl Heads {
    /// A short text that says what the matter is.
    pub(super) fn note(&self, status: u16, keep: Keep, is_head: bool) -> Reply {
        let text = format!("{status} {}\n", reason(status));
        let mut bytes = self.head(status, keep, TEXT, text.len() as u64);
        if !is_head {
            bytes.extend_from_slice(text.as_bytes());
        }
        Reply::in_memory(status, bytes)
    }

    /// A head, with the empty line that ends it.
    pub(super) fn head(&self, status: u16, keep: Keep, media_type: &str, length: u64) -> Vec<u8> {
        let connection = match keep {
            Keep::Implied => "",
            Keep::Told => "Connection: keep-alive\r\n",
            Keep::No => "Connection: close\r\n",
        };
        let allow = match status {
            405 => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let (reason, date) = (reason(status), &self.date);
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nDate: {date}\r\n{connection}\
             Content-Type: {media_type}\r\nContent-Length: {length}\r\n{allow}\r\n"
        );
        head.into_bytes()
    }

    /// Writes the date anew if its second is over, and answers whether it did.
    #[inline]
    pub(super) fn renew_date(&mut self, now_ms: u64) -> bool {
        let is_over = now_ms >= self.date_ends_ms;
        if is_over {
            self.write_date(now_ms);
        }
        is_over
    }

    #[cold]
    fn write_date(&mut self, now_ms: u64) {
        let now = SystemTime::now();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.date = httpdate::fmt_http_date(
            UNIX_EPOCH + Duration::from_secs(since.as_secs().min(SECONDS_MAX)),
        );
        self.date_ends_ms = now_ms + 1_000 - u64::from(since.subsec_millis());
    }
}

/// The reason phrase of a status that this server sends (RFC 9110, section 15).
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        414 => "URI Too Long",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_its_lines_in_order() {
        let heads = Heads {
            date: "Thu, 01 Jan 1970 00:00:00 GMT".to_owned(),
            date_ends_ms: 0,
        };
        let head = heads.head(405, Keep::No, "a/b", 7);
        let expected = "HTTP/1.1 405 Method Not Allowed\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
            Connection: close\r\nContent-Type: a/b\r\nContent-Length: 7\r\nAllow: GET, HEAD\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&head), expected);
    }
}
