//! Whether a file is still what a client has of it (RFC 9110, section 13).

use super::request::Conditions;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds from 1970 to the year 9999, the last that a date of HTTP can be written for.
const SECONDS_MAX: u64 = 253_370_764_800;

/// The marks that distinguish the versions of a file.
#[derive(Debug)]
pub(crate) struct Validators {
    /// The strong entity tag with its quotation marks.
    pub(crate) tag: String,
    /// The last modification, in whole seconds.
    pub(crate) modified: SystemTime,
}

/// The result of a request's conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreconditionResult {
    /// The file is to be sent, if wanted in part.
    Send,
    /// The file is to be sent whole: the client's part is of another version.
    SendWhole,
    /// The client has this version.
    NotModified,
    /// The client wanted another version than this.
    Failed,
}

/// The time this number of seconds after 1970, or the last date that HTTP can write.
pub(crate) fn date_after(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.min(SECONDS_MAX))
}

impl Validators {
    /// Those of a file: inode, size and time of modification in nanoseconds.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let nanoseconds =
            i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self {
            tag: format!(
                "\"{:x}-{:x}-{nanoseconds:x}\"",
                metadata.ino(),
                metadata.size()
            ),
            modified: date_after(u64::try_from(metadata.mtime()).unwrap_or(0)),
        }
    }

    /// Evaluates conditions in the order of RFC 9110, section 13.2.2.
    pub(crate) fn evaluate(&self, conditions: &Conditions<'_>) -> PreconditionResult {
        match (conditions.if_match, conditions.if_unmodified_since) {
            (Some(tags), _) if !self.is_among(tags, false) => return PreconditionResult::Failed,
            (None, Some(date)) if is_some_and(date, |date| self.modified > date) => {
                return PreconditionResult::Failed;
            }
            _ => {}
        }
        match (conditions.if_none_match, conditions.if_modified_since) {
            (Some(tags), _) if self.is_among(tags, true) => return PreconditionResult::NotModified,
            (None, Some(date)) if is_some_and(date, |date| self.modified <= date) => {
                return PreconditionResult::NotModified;
            }
            _ => {}
        }
        match conditions.if_range {
            Some(validator) if !self.is_same(validator) => PreconditionResult::SendWhole,
            _ => PreconditionResult::Send,
        }
    }

    /// Whether this version's tag is in a list. The tags here have no commas and are strong.
    fn is_among(&self, tags: &[u8], weakly: bool) -> bool {
        tags.split(|&byte| byte == b',').any(|tag| {
            let tag = tag.trim_ascii();
            let tag = match tag.strip_prefix(b"W/") {
                Some(weak) if weakly => weak,
                _ => tag,
            };
            tag == b"*" || tag == self.tag.as_bytes()
        })
    }

    /// Whether an `If-Range` means exactly this version.
    fn is_same(&self, validator: &[u8]) -> bool {
        validator == self.tag.as_bytes() || is_some_and(validator, |date| date == self.modified)
    }
}

/// Whether these bytes are a date that satisfies `holds`.
fn is_some_and(date: &[u8], holds: impl FnOnce(SystemTime) -> bool) -> bool {
    let date = str::from_utf8(date).ok();
    let date = date.and_then(|text| httpdate::parse_http_date(text).ok());
    date.is_some_and(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";

    fn outcome(conditions: Conditions<'_>) -> PreconditionResult {
        let validators = Validators {
            tag: "\"1-2-3\"".to_owned(),
            modified: UNIX_EPOCH + Duration::from_secs(784_111_777),
        };
        validators.evaluate(&conditions)
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        let none_match = |tags: &'static str| {
            outcome(Conditions {
                if_none_match: Some(tags.as_bytes()),
                if_modified_since: Some(BEFORE),
                ..Conditions::default()
            })
        };
        assert_eq!(none_match("\"1-2-3\""), PreconditionResult::NotModified);
        assert_eq!(
            none_match("\"0\", W/\"1-2-3\""),
            PreconditionResult::NotModified
        );
        assert_eq!(none_match("*"), PreconditionResult::NotModified);
        assert_eq!(none_match("\"1-2-4\""), PreconditionResult::Send);
        assert_eq!(none_match("1-2-3"), PreconditionResult::Send);
    }

    #[test]
    fn dates_count_where_there_are_no_tags() {
        let since = |date| {
            outcome(Conditions {
                if_modified_since: Some(date),
                ..Conditions::default()
            })
        };
        assert_eq!(since(BEFORE), PreconditionResult::Send);
        assert_eq!(since(THEN), PreconditionResult::NotModified);
        assert_eq!(since(AFTER), PreconditionResult::NotModified);
        assert_eq!(since(b"yesterday"), PreconditionResult::Send);
    }

    #[test]
    fn a_wish_for_another_version_fails() {
        let conditions = |if_match, if_unmodified_since| Conditions {
            if_match,
            if_unmodified_since,
            ..Conditions::default()
        };
        assert_eq!(
            outcome(conditions(Some(b"\"1-2-3\""), None)),
            PreconditionResult::Send
        );
        assert_eq!(
            outcome(conditions(Some(b"*"), Some(BEFORE))),
            PreconditionResult::Send
        );
        assert_eq!(
            outcome(conditions(Some(b"W/\"1-2-3\""), None)),
            PreconditionResult::Failed
        );
        assert_eq!(
            outcome(conditions(None, Some(BEFORE))),
            PreconditionResult::Failed
        );
        assert_eq!(
            outcome(conditions(None, Some(THEN))),
            PreconditionResult::Send
        );
    }

    #[test]
    fn a_part_is_sent_of_the_same_version_only() {
        let range = |validator| {
            outcome(Conditions {
                if_range: Some(validator),
                ..Conditions::default()
            })
        };
        assert_eq!(range(b"\"1-2-3\""), PreconditionResult::Send);
        assert_eq!(range(THEN), PreconditionResult::Send);
        assert_eq!(range(AFTER), PreconditionResult::SendWhole);
        assert_eq!(range(b"W/\"1-2-3\""), PreconditionResult::SendWhole);
        assert_eq!(range(b""), PreconditionResult::SendWhole);
    }

    #[test]
    fn a_date_that_cannot_be_written_is_moved_to_where_it_can() {
        let written = |seconds| httpdate::fmt_http_date(date_after(seconds));
        assert_eq!(written(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        for seconds in [SECONDS_MAX, SECONDS_MAX + (1 << 30), u64::MAX] {
            assert_eq!(written(seconds), "Fri, 01 Jan 9999 00:00:00 GMT");
        }
    }
}
