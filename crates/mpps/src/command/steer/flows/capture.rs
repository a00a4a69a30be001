//! The frames of a capture (pcap; draft-ietf-opsawg-pcap).

mod link_type;

use self::link_type::LinkType;
use std::io::{BufReader, Read};

/// Bytes of the file's header, and of a packet's.
const FILE_BYTES: usize = 24;
const PACKET_BYTES: usize = 16;

/// The longest frame that a capture of Ethernet holds (`MAXIMUM_SNAPLEN` of libpcap).
const FRAME_BYTES_MAX: usize = 262_144;

/// How much of a capture was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaptureRead {
    /// Whole records.
    pub records: u64,
    /// Records that hold only the beginning of their frame (`tcpdump -s`).
    pub shortened: u64,
    /// Records of a capture of all interfaces (`tcpdump -i any`).
    pub any: u64,
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
        let some = |count: u64, said: &str| {
            (count > 0).then(|| format!("{count} of {records} records {said}"))
        };
        let shortened = some(
            self.shortened,
            "hold only a part of their frame; they count if it has the ports: capture with `tcpdump -s 0`",
        );
        let any = some(
            self.any,
            "are of a capture of all interfaces: a packet is there once for each interface that it passed, \
             such as a bond and its port; capture at one with `tcpdump -i IF`",
        );
        [cut, shortened, any].into_iter().flatten().collect()
    }
}

/// A capture, and how much of it was read.
struct CaptureReader<R: Read, F> {
    input: BufReader<R>,
    each: F,
    /// Where the record begins that is read.
    at: usize,
    read: CaptureRead,
    /// A frame that is made to look like Ethernet's.
    frame: Vec<u8>,
}

/// Calls `each` with every frame of a capture, as Ethernet has it, and with true if only its beginning was
/// captured. The addresses of Ethernet are zero where a capture has none. A killed program may leave an
/// incomplete last record, which is left out.
///
/// # Errors
/// The file is no capture of Ethernet or IP, a record is damaged, or reading fails. No later record can
/// be found then.
pub fn frames(capture: impl Read, each: impl FnMut(&[u8], bool)) -> Result<CaptureRead, String> {
    let mut reader = CaptureReader {
        input: BufReader::new(capture),
        each,
        at: 0,
        read: CaptureRead::default(),
        frame: Vec::new(),
    };
    let mut head = Vec::new();
    reader.fill(&mut head, 4)?;
    match head[..] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => reader.pcap(u32::from_le_bytes)?,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => reader.pcap(u32::from_be_bytes)?,
        [0x0a, 0x0d, 0x0d, 0x0a] => {
            return Err("it is of the newer form; editcap -F pcap makes one of this".to_owned());
        }
        [_, _, _, _] => return Err("it is no capture".to_owned()),
        _ => return Err("it is no capture: too short".to_owned()),
    }
    Ok(reader.read)
}

/// A number of 32 bits at a place, in the file's order of bytes; zero behind the end.
fn word(bytes: &[u8], at: usize, order: fn([u8; 4]) -> u32) -> u32 {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| order(*bytes))
}

impl<R: Read, F: FnMut(&[u8], bool)> CaptureReader<R, F> {
    /// The records behind the first four bytes.
    fn pcap(&mut self, order: fn([u8; 4]) -> u32) -> Result<(), String> {
        let [mut head, mut packet, mut held] = [const { Vec::new() }; 3];
        if self.fill(&mut head, FILE_BYTES - 4)? < FILE_BYTES - 4 {
            return Err("it is no capture: too short".to_owned());
        }
        // The upper half has other flags.
        let number = word(&head, 16, order) & 0xffff;
        let link = LinkType::of(number).ok_or_else(|| {
            format!("its frames are of link type {number}, and neither of Ethernet (1) nor of IP")
        })?;
        self.at = FILE_BYTES;
        loop {
            match self.fill(&mut packet, PACKET_BYTES)? {
                0 => return Ok(()),
                PACKET_BYTES => {}
                _ => break,
            }
            let [caught, sent] = [8, 12].map(|field| word(&packet, field, order) as usize);
            if sent == 0 || caught > sent || caught > FRAME_BYTES_MAX {
                let (at, records) = (self.at, self.read.records);
                return Err(format!(
                    "record {} at byte {at} is damaged: it says that it holds {caught} bytes of a frame of \
                     {sent}; `head -c {at}` of the file keeps the {records} records before it",
                    records + 1
                ));
            }
            if self.fill(&mut held, caught)? < caught {
                break;
            }
            self.record(link, &held, sent);
            self.at += PACKET_BYTES + caught;
        }
        self.read.cut_at = Some(self.at);
        Ok(())
    }

    /// Counts a whole record, and gives its frame on.
    fn record(&mut self, link: LinkType, held: &[u8], sent: usize) {
        let is_part = held.len() < sent;
        self.read.records += 1;
        self.read.shortened += u64::from(is_part);
        self.read.any += u64::from(link.is_of_all());
        (self.each)(link.as_ethernet(held, &mut self.frame), is_part);
    }

    /// Reads this many bytes, or all that the capture has left. Returns how many.
    fn fill(&mut self, part: &mut Vec<u8>, bytes: usize) -> Result<usize, String> {
        part.clear();
        let read = (&mut self.input).take(bytes as u64).read_to_end(part);
        read.map_err(|error| error.to_string())
    }
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
        let read = frames(bytes, |frame, _| found.push(frame.to_vec()))?;
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
                &[&[0xd4, 0xc3, 0xb2, 0xa1][..], &[0; 5]].concat(),
                "too short",
            ),
        ] {
            let refused = all(bytes).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let mut raw = capture(u32::to_le_bytes, &[]);
        raw[20] = 105;
        assert!(all(&raw).unwrap_err().contains("link type 105"));
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
