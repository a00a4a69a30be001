//! The heads of replies, with the date, and the texts of those that say what the matter is.

use super::reply::{HeadWriter, Keep, Reply};
use super::status;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
        let text = format!("{status} {}\n", status::reason(status));
        let mut head = self
            .head(status, keep)
            .field("Content-Type", "text/plain; charset=utf-8")
            .field("Content-Length", text.len());
        if status == 405 {
            head = head.field("Allow", "GET, HEAD");
        }
        let mut bytes = head.end();
        if !is_head {
            bytes.extend_from_slice(text.as_bytes());
        }
        Reply::in_memory(status, bytes)
    }

    /// The beginning of a head.
    pub(super) fn head(&self, status: u16, keep: Keep) -> HeadWriter {
        HeadWriter::new(status, &self.date, keep)
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
