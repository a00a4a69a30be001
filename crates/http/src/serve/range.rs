//! A part of a file: the `Range` field (RFC 9110, section 14).

use std::ops::Range;

/// The part of a file that a `Range` field asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FilePart {
    /// All of it. Also for a field that is malformed, of another unit, or has more than one range:
    /// a server may ignore each of these.
    All,
    /// These bytes, at least one.
    Bytes(Range<u64>),
    /// Bytes that the file does not have.
    Beyond,
}

/// The part that the field's value asks for in a file of `length` bytes.
pub(crate) fn part(value: &[u8], length: u64) -> FilePart {
    asked(value, length).unwrap_or(FilePart::All)
}

fn asked(value: &[u8], length: u64) -> Option<FilePart> {
    let value = str::from_utf8(value).ok()?;
    let (unit, set) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    let range = match (first, last) {
        ("", suffix) => {
            let count = decimal(suffix)?.min(length);
            length - count..length
        }
        (first, "") => decimal(first)?.min(length)..length,
        (first, last) => {
            let (first, last) = (decimal(first)?, decimal(last)?);
            if last < first {
                return None;
            }
            first.min(length)..last.saturating_add(1).min(length)
        }
    };
    Some(if range.is_empty() {
        FilePart::Beyond
    } else {
        FilePart::Bytes(range)
    })
}

/// Only digits. A number too large for any file becomes the largest number.
fn decimal(text: &str) -> Option<u64> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_rfc() {
        let part = |value: &str| part(value.as_bytes(), 10_000);
        assert_eq!(part("bytes=0-499"), FilePart::Bytes(0..500));
        assert_eq!(part("bytes=500-999"), FilePart::Bytes(500..1000));
        assert_eq!(part("bytes=-500"), FilePart::Bytes(9500..10_000));
        assert_eq!(part("bytes=9500-"), FilePart::Bytes(9500..10_000));
        assert_eq!(part("bytes=0-0"), FilePart::Bytes(0..1));
        assert_eq!(part("bytes=0-0,-1"), FilePart::All);
        assert_eq!(part("bytes= 0-0 "), FilePart::Bytes(0..1));
    }

    #[test]
    fn what_a_file_does_not_have_is_beyond_it() {
        assert_eq!(part(b"bytes=10-", 10), FilePart::Beyond);
        assert_eq!(
            part(b"bytes=10-99999999999999999999999", 10),
            FilePart::Beyond
        );
        assert_eq!(part(b"bytes=-0", 10), FilePart::Beyond);
        assert_eq!(part(b"bytes=0-", 0), FilePart::Beyond);
        assert_eq!(part(b"bytes=-5", 0), FilePart::Beyond);
        assert_eq!(part(b"bytes=-99", 10), FilePart::Bytes(0..10));
        assert_eq!(
            part(b"bytes=5-18446744073709551615", 10),
            FilePart::Bytes(5..10)
        );
    }

    #[test]
    fn what_is_malformed_asks_for_everything() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-4",
            "bytes=a-b",
            "lines=1-2",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=0x1-2",
            "bytes=--1",
        ] {
            assert_eq!(part(value.as_bytes(), 10), FilePart::All, "{value}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

        #[test]
        fn a_part_lies_within_the_file(value in "(bytes=)?[-0-9, ]{0,24}", length in 0u64..50) {
            if let FilePart::Bytes(range) = part(value.as_bytes(), length) {
                prop_assert!(range.start < range.end && range.end <= length);
            }
        }

        #[test]
        fn a_plain_range_is_cut_at_the_end(first in 0u64..60, more in 0u64..60, length in 1u64..50) {
            let asked = part(format!("bytes={first}-{}", first + more).as_bytes(), length);
            let bytes: Vec<u64> = (first..=first + more).filter(|&byte| byte < length).collect();
            match asked {
                FilePart::Bytes(range) => prop_assert_eq!(range.collect::<Vec<_>>(), bytes),
                FilePart::Beyond => prop_assert!(bytes.is_empty()),
                FilePart::All => prop_assert!(false),
            }
        }
    }
}
