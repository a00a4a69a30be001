//! The frames of a capture (pcap; draft-ietf-opsawg-pcap).

use std::io::{BufReader, Read};

/// Bytes of the file's header, and of a packet's.
const FILE_BYTES: usize = 24;
const PACKET_BYTES: usize = 16;
/// No program captures more of a frame (`MAXIMUM_SNAPLEN`, pcap-int.h).
const FRAME_BYTES_MAX: usize = 262_144;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;

/// Tells `each` every frame of a capture. One that ends in the middle of a frame, as that of a killed
/// program does, ends before it.
pub fn frames(capture: impl Read, mut each: impl FnMut(&[u8])) -> Result<(), String> {
    let mut capture = BufReader::new(capture);
    let [mut head, mut packet, mut frame] = [const { Vec::new() }; 3];
    if !fill(&mut head, FILE_BYTES, &mut capture)? {
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
    while fill(&mut packet, PACKET_BYTES, &mut capture)? {
        let bytes = word(&packet, 8) as usize;
        if bytes > FRAME_BYTES_MAX {
            return Err(format!("it is damaged: a frame of {bytes} bytes"));
        }
        if !fill(&mut frame, bytes, &mut capture)? {
            break;
        }
        each(&frame);
    }
    Ok(())
}

/// Reads so many bytes; false where the capture ends before.
fn fill(part: &mut Vec<u8>, bytes: usize, capture: &mut impl Read) -> Result<bool, String> {
    part.clear();
    let read = capture.take(bytes as u64).read_to_end(part);
    read.map(|read| read == bytes)
        .map_err(|error| error.to_string())
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

    fn all(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut found = Vec::new();
        frames(bytes, |frame| found.push(frame.to_vec()))?;
        Ok(found)
    }

    #[test]
    fn both_orders_of_bytes_are_read_and_a_cut_end_is_left_out() {
        for order in [u32::to_le_bytes, u32::to_be_bytes] {
            let mut bytes = capture(order, &[b"first", b"", b"third"]);
            assert_eq!(all(&bytes).unwrap(), [&b"first"[..], b"", b"third"]);
            bytes.pop();
            assert_eq!(all(&bytes).unwrap(), [&b"first"[..], b""]);
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
        let mut damaged = capture(u32::to_le_bytes, &[b"frame"]);
        damaged[FILE_BYTES + 11] = 9;
        let refused = all(&damaged).unwrap_err();
        assert!(refused.contains("a frame of 150994949 bytes"), "{refused}");
    }

    proptest::proptest! {
        #[test]
        fn no_capture_is_a_panic(
            begun in proptest::bool::ANY,
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        ) {
            let head = capture(u32::to_le_bytes, &[]);
            let bytes = if begun { [head, bytes].concat() } else { bytes };
            let sum: usize = all(&bytes).map_or(0, |frames| frames.iter().map(Vec::len).sum());
            proptest::prop_assert!(sum <= bytes.len());
        }
    }
}
