//! The chunked transfer coding (RFC 9112, section 7.1), read as it comes.

/// Bytes of a chunk's size line or of a trailer line, and of all trailers, before it is too much.
const LINE_BYTES_MAX: usize = 8 << 10;
/// Digits of a size: more do not fit, or begin with zeros that no server writes.
const DIGITS_MAX: usize = 16;

/// Where a chunked body is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    state: ChunkState,
    /// Of the chunk: its size as far as it was read, then what is left of it.
    left: u64,
    /// Bytes of the line, or of the trailers, so far.
    line_bytes: usize,
}

/// The next part that is expected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ChunkState {
    /// The first digit of a size.
    #[default]
    FirstDigit,
    /// Another digit, an extension, or the line's end.
    Digit,
    /// The blanks between a size and its extension, or the line's end.
    Blank,
    /// The rest of an extension.
    Extension,
    /// The line feed of a size line.
    SizeEnd,
    /// Bytes of data.
    Data,
    DataReturn,
    DataEnd,
    /// A trailer line, or the empty line that ends the body.
    TrailerStart,
    Trailer,
    TrailerEnd,
    /// The line feed of the last, empty line.
    LastEnd,
    Whole,
}

/// The result of reading some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fed {
    /// How many of them belong to the body and its framing.
    pub(super) used: usize,
    /// How many of them are the body's own.
    pub(super) body_bytes: u64,
    /// True once the body is whole.
    pub(super) whole: bool,
}

impl Chunks {
    /// Reads on. None if this is not the chunked coding.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<Fed> {
        let mut used = 0;
        let mut body_bytes = 0;
        while self.state != ChunkState::Whole {
            if self.state == ChunkState::Data {
                let rest = (bytes.len() - used) as u64;
                let taken = self.left.min(rest);
                self.left -= taken;
                body_bytes += taken;
                // It is at most the length of a slice.
                used += taken as usize;
                if self.left > 0 {
                    break;
                }
                self.state = ChunkState::DataReturn;
            }
            let Some(&byte) = bytes.get(used) else { break };
            self.state = self.step(byte)?;
            used += 1;
        }
        Some(Fed {
            used,
            body_bytes,
            whole: self.state == ChunkState::Whole,
        })
    }

    /// Reads a byte of the framing.
    fn step(&mut self, byte: u8) -> Option<ChunkState> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX {
            return None;
        }
        match (self.state, byte) {
            (ChunkState::FirstDigit | ChunkState::Digit, _) if byte.is_ascii_hexdigit() => {
                if self.line_bytes > DIGITS_MAX {
                    return None;
                }
                let digit = u64::from((byte as char).to_digit(16)?);
                self.left = (self.left << 4) | digit;
                Some(ChunkState::Digit)
            }
            (ChunkState::Digit | ChunkState::Blank | ChunkState::Extension, b'\r') => {
                Some(ChunkState::SizeEnd)
            }
            (ChunkState::Digit | ChunkState::Blank, b' ' | b'\t') => Some(ChunkState::Blank),
            (ChunkState::Digit | ChunkState::Blank, b';') => Some(ChunkState::Extension),
            (ChunkState::Extension, _) if !is_control(byte) => Some(ChunkState::Extension),
            (ChunkState::SizeEnd, b'\n') => {
                self.line_bytes = 0;
                Some(if self.left == 0 {
                    ChunkState::TrailerStart
                } else {
                    ChunkState::Data
                })
            }
            (ChunkState::DataReturn, b'\r') => Some(ChunkState::DataEnd),
            (ChunkState::DataEnd, b'\n') => {
                self.line_bytes = 0;
                Some(ChunkState::FirstDigit)
            }
            (ChunkState::TrailerStart, b'\r') => Some(ChunkState::LastEnd),
            (ChunkState::Trailer, b'\r') => Some(ChunkState::TrailerEnd),
            (ChunkState::TrailerStart | ChunkState::Trailer, _) if !is_control(byte) => {
                Some(ChunkState::Trailer)
            }
            (ChunkState::TrailerEnd, b'\n') => Some(ChunkState::TrailerStart),
            (ChunkState::LastEnd, b'\n') => Some(ChunkState::Whole),
            _ => None,
        }
    }
}

/// A tab may stand in a value.
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(sizes: &[usize], extension: &str, trailers: &[String]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for size in sizes.iter().filter(|size| **size > 0) {
            bytes.extend(format!("{size:x}{extension}\r\n").bytes());
            bytes.extend((0..*size).map(|at| b"\r\n0;"[at % 4]));
            bytes.extend(b"\r\n");
        }
        bytes.extend(format!("0{extension}\r\n").bytes());
        for trailer in trailers {
            bytes.extend(format!("{trailer}\r\n").bytes());
        }
        bytes.extend(b"\r\n");
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

        #[test]
        fn a_body_is_whole_wherever_it_was_split(
            sizes in proptest::collection::vec(0_usize..5000, 0..6),
            extension in "(;[a-z]{1,5}(=[a-z]{1,5})?)?",
            trailers in proptest::collection::vec("[A-Z]{1,5}: [a-z ]{0,9}", 0..3),
            rest in proptest::collection::vec(any::<u8>(), 0..20),
            splits in proptest::collection::vec(1_usize..700, 1..40),
        ) {
            let own = encode(&sizes, &extension, &trailers);
            let stream = [&own[..], &rest].concat();
            let mut chunks = Chunks::default();
            let (mut at, mut body, mut whole) = (0, 0, false);
            for split in splits.into_iter().cycle() {
                let end = stream.len().min(at + split);
                let fed = chunks.feed(&stream[at..end]).unwrap();
                prop_assert!(fed.used == end - at || fed.whole);
                at += fed.used;
                body += fed.body_bytes;
                whole = fed.whole;
                if whole {
                    break;
                }
                prop_assert!(at < own.len());
            }
            prop_assert!(whole);
            prop_assert_eq!(at, own.len());
            prop_assert_eq!(body, sizes.iter().sum::<usize>() as u64);
        }

        /// The size line agrees with `httparse`, which forgives no more than we do.
        #[test]
        fn sizes_agree_with_httparse(line in "[0-9a-fA-FgG;\r\n \t]{0,20}") {
            let ours = Chunks::default().feed(line.as_bytes());
            if let Ok(httparse::Status::Complete((used, size))) = httparse::parse_chunk_size(line.as_bytes()) {
                let mut chunks = Chunks::default();
                if let Some(fed) = chunks.feed(&line.as_bytes()[..used]) {
                    prop_assert_eq!(fed.used, used);
                    prop_assert_eq!(chunks.left, size);
                }
            } else if let Some(fed) = ours {
                // Not complete, or refused: then we have not come beyond the line either.
                prop_assert_eq!(fed.body_bytes, 0);
            }
        }
    }

    #[test]
    fn damage_is_refused() {
        let endless = [b"1;".to_vec(), vec![b'a'; LINE_BYTES_MAX]].concat();
        let trailers = [
            b"0\r\n".to_vec(),
            b"A: b\r\n".repeat(LINE_BYTES_MAX / 6 + 1),
        ]
        .concat();
        let damaged: [&[u8]; 14] = [
            b"\r\n",
            b"g\r\n",
            b"-1\r\n",
            b"1\nA\r\n",
            b"1 a\r\nA",
            b"1 1\r\nA",
            b"1\t a;b\r\nA",
            b"1\r\nAB\r\n",
            b"1\r\nA\n0\r\n\r\n",
            b"10000000000000000\r\n",
            b"00000000000000001\r\nA",
            b"0\r\n\n",
            &endless,
            &trailers,
        ];
        for bytes in damaged {
            assert_eq!(Chunks::default().feed(bytes), None, "{bytes:?}");
        }
        assert!(Chunks::default().feed(b"ffffffffffffffff\r\n").is_some());
        assert!(Chunks::default().feed(b"1 \t;a b\r\nA\r\n1 \r\n").is_some());
    }
}
