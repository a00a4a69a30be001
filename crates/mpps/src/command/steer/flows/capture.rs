//! The frames of a capture (pcap; draft-ietf-opsawg-pcap).

use std::io::{BufReader, Read};

/// Bytes of the file's header, and of a packet's.
const FILE_BYTES: usize = 24;
const PACKET_BYTES: usize = 16;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;

/// The longest frame that a capture of Ethernet holds (`MAXIMUM_SNAPLEN` of libpcap).
const FRAME_BYTES_MAX: usize = 262_144;

/// How much of a capture was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaptureRead {
    /// Whole records.
    pub records: u64,
    /// Records that hold only the beginning of their frame (`tcpdump -s`).
    pub shortened: u64,
    /// The byte where an incomplete last record begins.
    pub cut_at: Option<usize>,
}

impl CaptureRead {
    /// Notes on the parts of the capture that were not used, and why.
    pub(super) fn notes(&self) -> Vec<String> {
        let records = self.records;
        let cut = self.cut_at.map(|at| {
            format!(
                "the capture ends within record {}, which begins at byte {at}, or that record is \
                 damaged: the {records} records before it were read",
                records + 1
            )
        });
        let shortened = (self.shortened > 0).then(|| {
            format!(
                "{} of {records} records hold only a part of their frame, and a flow is read from a whole \
                 one: capture with `tcpdump -s 0`",
                self.shortened
            )
        });
        cut.into_iter().chain(shortened).collect()
    }
}

/// Calls `each` with every frame of a capture. A killed program may leave an incomplete last
/// record, which is left out.
///
/// # Errors
/// The file is no capture of Ethernet, a record is damaged, or reading fails. No later record can
/// be found then.
pub fn frames(capture: impl Read, mut each: impl FnMut(&[u8])) -> Result<CaptureRead, String> {
    let mut capture = BufReader::new(capture);
    let [mut head, mut packet, mut frame] = [const { Vec::new() }; 3];
    if fill(&mut head, FILE_BYTES, &mut capture)? < FILE_BYTES {
        return Err("it is no capture: too short".to_owned());
    }
    let word_of = match head[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => u32::from_le_bytes,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => u32::from_be_bytes,
        [0x0a, 0x0d, 0x0d, 0x0a] => {
            return Err("it is of the newer form; editcap -F pcap makes one of this".to_owned());
        }
        _ => return Err("it is no capture".to_owned()),
    };
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, word_of)
    };
    // The upper half has other flags.
    let link = word(&head, 20) & 0xffff;
    if link != ETHERNET {
        return Err(format!(
            "its frames are of link type {link}, and not of Ethernet (1)"
        ));
    }
    let mut read = CaptureRead::default();
    let mut at = FILE_BYTES;
    loop {
        match fill(&mut packet, PACKET_BYTES, &mut capture)? {
            0 => break,
            PACKET_BYTES => {}
            _ => {
                read.cut_at = Some(at);
                break;
            }
        }
        let [held, sent] = [8, 12].map(|field| word(&packet, field) as usize);
        if sent == 0 || held > sent || held > FRAME_BYTES_MAX {
            return Err(format!(
                "record {} at byte {at} is damaged: it says that it holds {held} bytes of a frame of \
                 {sent}; `head -c {at}` of the file keeps the {} records before it",
                read.records + 1,
                read.records
            ));
        }
        if fill(&mut frame, held, &mut capture)? < held {
            read.cut_at = Some(at);
            break;
        }
        each(&frame);
        read.records += 1;
        read.shortened += u64::from(held < sent);
        at += PACKET_BYTES + held;
    }
    Ok(read)
}

/// Reads this many bytes, or all that the capture has left. Returns how many.
fn fill(part: &mut Vec<u8>, bytes: usize, capture: &mut impl Read) -> Result<usize, String> {
    part.clear();
    let read = capture.take(bytes as u64).read_to_end(part);
    read.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(order: fn(u32) -> [u8; 4], frames: &[&[u8]]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 1]
            .map(order)
            .concat();
        for frame in frames {
            let bytes_of = frame.len() as u32;
            bytes.extend([0, 0, bytes_of, bytes_of + 9].map(order).concat());
            bytes.extend_from_slice(frame);
        }
        bytes
    }

    fn all(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, CaptureRead), String> {
        let mut found = Vec::new();
        let read = frames(bytes, |frame| found.push(frame.to_vec()))?;
        Ok((found, read))
    }

    #[test]
    fn both_orders_of_bytes_are_read_and_a_cut_end_is_told() {
        for order in [u32::to_le_bytes, u32::to_be_bytes] {
            let mut bytes = capture(order, &[b"first", b"", b"third"]);
            let (found, read) = all(&bytes).unwrap();
            assert_eq!(found, [&b"first"[..], b"", b"third"]);
            assert_eq!(
                (read.records, read.shortened, read.cut_at),
                (3, 3, None),
                "each frame was longer"
            );
            let third = bytes.len() - 5 - PACKET_BYTES;
            // Somewhere in the last frame, and then in its header.
            while bytes.len() > third + 1 {
                bytes.pop();
                let (found, read) = all(&bytes).unwrap();
                assert_eq!(found, [&b"first"[..], b""]);
                assert_eq!((read.records, read.cut_at), (2, Some(third)));
            }
            bytes.pop();
            assert_eq!(all(&bytes).unwrap().1.cut_at, None);
        }
    }

    #[test]
    fn a_damaged_record_is_an_error_that_says_where() {
        for order in [u32::to_le_bytes, u32::to_be_bytes] {
            let whole = capture(order, &[b"first", b"second", b"third"]);
            let second = FILE_BYTES + PACKET_BYTES + 5;
            // Longer than its frame was, longer than any, of no frame, and a hole of zeros.
            for (field, value) in [(8, 16), (8, u32::MAX), (12, 0), (12, 5)] {
                let mut bytes = whole.clone();
                bytes[second + field..][..4].copy_from_slice(&order(value));
                let refused = all(&bytes).unwrap_err();
                for part in ["record 2", &format!("at byte {second}"), "the 1 records"] {
                    assert!(refused.contains(part), "{part}: {refused}");
                }
            }
            let mut hole = whole.clone();
            hole.extend([0; 64]);
            assert!(all(&hole).unwrap_err().contains("record 4"));
            // Bytes that are missing in the middle: what follows may look like a record that is cut.
            for missing in 1..PACKET_BYTES {
                let mut short = whole.clone();
                short.drain(second..second + missing);
                let read = all(&short).map(|(_, read)| read);
                assert!(read.is_err() || read.unwrap().cut_at.is_some(), "{missing}");
            }
            let giant = order(FRAME_BYTES_MAX as u32 + 1);
            let mut bytes = whole;
            for field in [8, 12] {
                bytes[second + field..][..4].copy_from_slice(&giant);
            }
            assert!(all(&bytes).unwrap_err().contains("262145"));
        }
    }

    #[test]
    fn what_is_no_capture_is_said() {
        for (bytes, why) in [
            (&b""[..], "too short"),
            (&[9; 30], "no capture"),
            (
                &[&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 30]].concat(),
                "editcap",
            ),
        ] {
            let refused = all(bytes).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let mut raw = capture(u32::to_le_bytes, &[]);
        raw[20] = 101;
        assert!(all(&raw).unwrap_err().contains("link type 101"));
    }

    proptest::proptest! {
        #[test]
        fn no_capture_is_a_panic(
            begun in proptest::bool::ANY,
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        ) {
            let head = capture(u32::to_le_bytes, &[]);
            let bytes = if begun { [head, bytes].concat() } else { bytes };
            let sum: usize = all(&bytes).map_or(0, |(frames, _)| frames.iter().map(Vec::len).sum());
            proptest::prop_assert!(sum <= bytes.len());
        }
    }
}
