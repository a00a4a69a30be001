//! The programs in an interpreter, against a plain reading of the same frames.

use std::fs::File;

use mpps_os::bpf::sandbox::{PacketContext, Sandbox};
use proptest::prelude::*;

use super::*;

const PORT_ASKED: u16 = 4321;

/// The verdict of the program on a frame, and its count.
fn run(reading: Reading, frame: &[u8]) -> (i32, u64) {
    // Any open file names the map.
    let name = File::open("/dev/null").expect("every machine has it");
    let program = program(reading, name.as_fd()).expect("the program assembles");
    let mut world = Sandbox::new();
    world.add_map(name.as_fd(), 4, 8, 1);
    world.insert(name.as_fd(), &[0; 4], &[0; 8]);
    let kind = PacketContext::Xdp { queue: 0 };
    let answer = world.run_on_packet(&program, kind, frame, frame.len());
    let answer = answer.expect("the program stays inside the frame");
    let entries = world.entries(name.as_fd());
    let count = entries[0].1.as_slice().try_into().expect("eight bytes");
    (answer as i32, u64::from_ne_bytes(count))
}

/// The same rule, read off a frame field by field.
fn is_to_port(frame: &[u8]) -> bool {
    let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let udp = match half(12) {
        Some(0x0800) if frame.len() >= 34 => {
            let header = usize::from(frame[14] & 15) * 4;
            let is_first = half(20).is_some_and(|fragment| fragment & 0x1fff == 0);
            if frame[23] != 17 || !is_first || header < 20 {
                return false;
            }
            14 + header
        }
        Some(0x86dd) if frame.len() >= 34 && frame[20] == 17 => 54,
        _ => return false,
    };
    half(udp + 2) == Some(PORT_ASKED)
}

/// A datagram to the port, with IPv4 options if asked for.
fn datagram(is_v4: bool, option_words: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if is_v4 {
        frame.extend([
            0x08,
            0x00,
            0x45 + option_words,
            0,
            0,
            0,
            0,
            0,
            0x40,
            0,
            64,
            17,
            0,
            0,
        ]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(vec![1; usize::from(option_words) * 4]);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
        frame.extend([0xfd; 32]);
    }
    frame.extend([0x12, 0x34]);
    frame.extend(PORT_ASKED.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    frame.extend(payload);
    frame
}

#[test]
fn what_is_not_read_is_dropped() {
    for frame in [vec![0; 14], datagram(true, 0, b"x"), vec![0xff; 1500]] {
        assert_eq!(run(Reading::Nothing, &frame), (XDP_DROP, 1));
        assert_eq!(run(Reading::FirstByte, &frame), (XDP_DROP, 1));
    }
    assert_eq!(run(Reading::Nothing, &[]), (XDP_DROP, 1));
    assert_eq!(run(Reading::FirstByte, &[]), (XDP_PASS, 0));
}

#[test]
fn only_datagrams_to_the_port_are_dropped() {
    let headers = Reading::Headers { port: PORT_ASKED };
    for is_v4 in [true, false] {
        assert_eq!(run(headers, &datagram(is_v4, 0, b"")), (XDP_DROP, 1));
        let other = Reading::Headers {
            port: PORT_ASKED + 1,
        };
        assert_eq!(run(other, &datagram(is_v4, 0, b"")), (XDP_PASS, 0));
    }
    assert_eq!(run(headers, &datagram(true, 10, b"")), (XDP_DROP, 1));
}

fn check(frame: &[u8]) -> Result<(), TestCaseError> {
    let expected = if is_to_port(frame) {
        (XDP_DROP, 1)
    } else {
        (XDP_PASS, 0)
    };
    let headers = Reading::Headers { port: PORT_ASKED };
    prop_assert_eq!(run(headers, frame), expected, "{:02x?}", frame);
    Ok(())
}

proptest! {
    #[test]
    fn cut_and_changed_frames_agree_with_the_plain_reading(
        is_v4: bool,
        option_words in 0..11_u8,
        changes in prop::collection::vec((0..70_usize, any::<u8>()), 0..3),
        cut in 0..120_usize,
    ) {
        let mut frame = datagram(is_v4, option_words.min(10), &[7; 20]);
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(cut);
        check(&frame)?;
    }

    #[test]
    fn noise_agrees_with_the_plain_reading(frame in prop::collection::vec(any::<u8>(), 0..100)) {
        check(&frame)?;
    }
}
