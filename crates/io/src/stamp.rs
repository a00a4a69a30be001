//! The 16-byte header of stamped traffic: who sent it, its place in the flow, and when.
//!
//! ```text
//! bits   12     4    8      1     7       16    16   32        32
//!        0x6d8  run  check  kind  sender  flow  run  sequence  send time in units of 256 ns
//! ```
//!
//! Integers are big-endian. The check byte makes all sixteen bytes xor to zero, so that foreign
//! payloads are taken for stamps about once in a million. The run is a number drawn at random by
//! each run of a sender, so that two of them are taken for one about once in 500 000. Its highest bit
//! is set if the run is sent to a multicast group. The send time is `CLOCK_REALTIME` modulo 2^40 ns
//! (18 minutes); between two machines it is as true as their clocks are the same.
//!
//! Senders of older versions write this, which is read as well:
//!
//! ```text
//! bits   16    8      1     7       16    8    36        36
//!        "mp"  check  kind  sender  flow  run  sequence  send time in units of 16 ns
//! ```

use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a stamp, which is the shortest payload that carries one.
pub const STAMP_BYTES: usize = 16;
/// The bits of a sender's number: 7.
const SENDER_MASK: u8 = 0x7f;
const END_BIT: u8 = 0x80;
/// The bits of a run's number: 20.
pub(crate) const RUN_MASK: u32 = (1 << 20) - 1;
/// The run is sent to a multicast group.
pub(crate) const GROUP_BIT: u32 = 1 << 19;
/// Lower numbers are those of older versions, which do not show whether they are sent to a group.
pub(crate) const RUN_MIN: u32 = 1 << 8;
/// The first twelve bits; the run's first four follow.
const MAGIC: u16 = 0x6d8;
const OLD_MAGIC: u16 = u16::from_be_bytes(*b"mp");
const U40_MASK: u64 = (1 << 40) - 1;
const U36_MASK: u64 = (1 << 36) - 1;
const U32_MASK: u64 = u32::MAX as u64;
/// The send time has 32 bits for 40 bits of nanoseconds: units of 256 ns.
const TIME_SHIFT: u32 = 8;
const OLD_TIME_SHIFT: u32 = 4;

/// The kind of a stamped datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampKind {
    /// One of the flow's datagrams.
    Data,
    /// The end marker, sent several times after the last datagram: its sequence number is the
    /// number of datagrams that the flow offered.
    End,
}

/// The header of one stamped datagram.
///
/// ```
/// use mpps_io::{Stamp, StampKind};
///
/// let stamp = Stamp {
///     kind: StampKind::Data,
///     sender: 1,
///     flow: 2,
///     run: 3,
///     sequence: 4,
///     time_ns: Stamp::now_ns() & !255,
/// };
/// let mut payload = [0; 32];
/// stamp.write(&mut payload);
/// assert_eq!(Stamp::read(&payload), Some(stamp));
/// assert_eq!(Stamp::read(b"somebody else's datagram"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Data, or the end of the flow.
    pub kind: StampKind,
    /// Which sending thread, 0 to 127.
    pub sender: u8,
    /// Which of the sender's flows.
    pub flow: u16,
    /// Which run of the sender, 0 to 2^20 - 1.
    pub run: u32,
    /// Place in the flow, from 0, modulo 2^32: 71 minutes at a million a second.
    pub sequence: u64,
    /// When it was written, [`Stamp::now_ns`], cut to 256 ns.
    pub time_ns: u64,
}

impl Stamp {
    /// `CLOCK_REALTIME` in nanoseconds modulo 2^40, also before 1970.
    pub fn now_ns() -> u64 {
        Self::cut(SystemTime::now())
    }

    fn cut(time: SystemTime) -> u64 {
        let since_ns = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_nanos() as u64,
            Err(before) => (before.duration().as_nanos() as u64).wrapping_neg(),
        };
        since_ns & U40_MASK
    }

    /// Writes the stamp over the first 16 bytes of a payload; a shorter payload is not changed.
    #[inline]
    pub fn write(&self, payload: &mut [u8]) {
        let Some(header) = payload.first_chunk_mut::<STAMP_BYTES>() else {
            return;
        };
        let end = if self.kind == StampKind::End {
            END_BIT
        } else {
            0
        };
        let run = self.run & RUN_MASK;
        let mut bits = u128::from(MAGIC) << 116 | u128::from(run >> 16) << 112;
        bits |= u128::from(end | (self.sender & SENDER_MASK)) << 96;
        bits |= u128::from(self.flow) << 80 | u128::from(run as u16) << 64;
        bits |= u128::from(self.sequence & U32_MASK) << 32;
        bits |= u128::from((self.time_ns & U40_MASK) >> TIME_SHIFT);
        bits |= u128::from(parity(bits)) << 104;
        *header = bits.to_be_bytes();
    }

    /// Reads the stamp of a payload, if it has one.
    #[inline]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bits = u128::from_be_bytes(*payload.first_chunk::<STAMP_BYTES>()?);
        if parity(bits) != 0 {
            return None;
        }
        let time = bits as u64;
        let (run, sequence, time) = match (bits >> 112) as u16 {
            OLD_MAGIC => (
                u32::from((bits >> 72) as u8),
                (bits >> 36) as u64,
                (time & U36_MASK) >> (TIME_SHIFT - OLD_TIME_SHIFT),
            ),
            magic if magic >> 4 == MAGIC => (
                u32::from(magic & 0xf) << 16 | u32::from((bits >> 64) as u16),
                time >> 32,
                time & U32_MASK,
            ),
            _ => return None,
        };
        let who = (bits >> 96) as u8;
        Some(Self {
            kind: if who & END_BIT == 0 {
                StampKind::Data
            } else {
                StampKind::End
            },
            sender: who & SENDER_MASK,
            flow: (bits >> 80) as u16,
            run,
            sequence: sequence & U32_MASK,
            time_ns: time << TIME_SHIFT,
        })
    }

    /// Nanoseconds from the stamp's time to `now_ns`. It is negative if the receiver's clock is behind
    /// the sender's by more than the delay. The upper half of the range is taken for that.
    #[inline]
    pub(crate) fn age_ns(&self, now_ns: u64) -> i64 {
        let age = now_ns.wrapping_sub(self.time_ns) & U40_MASK;
        let turn = if age > U40_MASK / 2 { 1 << 40 } else { 0 };
        age as i64 - turn
    }

    /// The whole number of a sequence number that a stamp cut to 32 bits: the nearest to `next`,
    /// and not below 0.
    #[inline]
    pub(crate) fn unfold(sequence: u64, next: u64) -> u64 {
        let ahead = sequence.wrapping_sub(next) & U32_MASK;
        let behind = (1 << 32) - ahead;
        match ahead <= U32_MASK / 2 || behind > next {
            true => next.saturating_add(ahead),
            false => next - behind,
        }
    }
}

/// The xor of all sixteen bytes.
#[inline]
fn parity(bits: u128) -> u8 {
    let folded = (bits >> 64) as u64 ^ bits as u64;
    let folded = folded ^ folded >> 32;
    let folded = folded ^ folded >> 16;
    (folded ^ folded >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_fixed() {
        let mut payload = [0xaa; 18];
        let stamp = Stamp {
            kind: StampKind::End,
            sender: 3,
            flow: 0x0102,
            run: 0x4_5566,
            sequence: 0x0b0c_0d0e,
            time_ns: 0x700,
        };
        stamp.write(&mut payload);
        assert_eq!(payload[..2], [0x6d, 0x84]);
        assert_eq!(
            payload[3..],
            [
                0x83, 1, 2, 0x55, 0x66, 0xb, 0xc, 0xd, 0xe, 0, 0, 0, 7, 0xaa, 0xaa
            ]
        );
        assert_eq!(payload[..16].iter().fold(0, |xor, byte| xor ^ byte), 0);
    }

    #[test]
    fn a_stamp_of_an_older_version_is_read() {
        let mut payload = *b"mp\0\x83\x01\x02\x55\xa0\xb0\xc0\xd0\xe0\0\0\0\x75";
        payload[2] = payload.iter().fold(0, |xor, byte| xor ^ byte);
        let stamp = Stamp {
            kind: StampKind::End,
            sender: 3,
            flow: 0x0102,
            run: 0x55,
            sequence: 0x0b0c_0d0e,
            time_ns: 0x700,
        };
        assert_eq!(Stamp::read(&payload), Some(stamp));
        payload[1] = b'q';
        payload[2] ^= 1;
        assert_eq!(Stamp::read(&payload), None, "no version has these");
    }

    #[test]
    fn zeros_are_no_stamp() {
        assert_eq!(Stamp::read(&[0; 32]), None);
        assert_eq!(Stamp::read(b"mp"), None);
    }

    #[test]
    fn a_clock_before_1970_goes_on() {
        let at = |seconds| Stamp::cut(UNIX_EPOCH - std::time::Duration::from_secs(seconds));
        let later = at(1_000).wrapping_sub(at(1_001)) & U40_MASK;
        assert_eq!((later, Stamp::cut(UNIX_EPOCH)), (1_000_000_000, 0));
    }

    #[test]
    fn a_clock_that_is_behind_reads_as_a_negative_delay() {
        let mut payload = [0; 16];
        let sent = Stamp {
            kind: StampKind::Data,
            sender: 0,
            flow: 0,
            run: 0,
            sequence: 0,
            time_ns: 2560,
        };
        sent.write(&mut payload);
        let stamp = Stamp::read(&payload).unwrap();
        assert_eq!((stamp.age_ns(3060), stamp.age_ns(1860)), (500, -700));
        // Half of the range, and one more.
        let [half, more] = [0, 1].map(|more| stamp.age_ns((1 << 39) - 1 + 2560 + more));
        assert_eq!((half, more), ((1 << 39) - 1, -(1 << 39)));
    }

    #[test]
    fn a_sequence_number_goes_on_after_its_32_bits() {
        let turn = 1 << 32;
        for (cut, next, whole) in [
            (0, 0, 0),
            (turn - 1, 0, turn - 1),
            (turn - 1, turn - 1, turn - 1),
            (0, turn, turn),
            (3, turn, turn + 3),
            (turn - 2, turn + 1, turn - 2),
            (5, 9 * turn - 4, 9 * turn + 5),
            (7, 9, 7),
        ] {
            assert_eq!(Stamp::unfold(cut, next), whole, "{cut} at {next}");
        }
    }

    #[test]
    fn now_is_the_time_of_day_within_18_minutes() {
        let nanoseconds = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.expect("after 1970").as_nanos() % (1 << 40)
        };
        let (before, now, after) = (nanoseconds(), Stamp::now_ns().into(), nanoseconds());
        assert!(before > after || (before..=after).contains(&now));
    }

    proptest! {
        #[test]
        fn reads_what_was_written(
            end in any::<bool>(), sender in any::<u8>(), flow in any::<u16>(), run in any::<u32>(),
            sequence in any::<u64>(), time_ns in any::<u64>(), byte in 0..16_usize, bit in 0..8,
        ) {
            let kind = if end { StampKind::End } else { StampKind::Data };
            let stamp = Stamp { kind, sender, flow, run, sequence, time_ns };
            let mut payload = [0; 16];
            stamp.write(&mut payload);
            prop_assert_eq!(payload.iter().fold(0, |xor, byte| xor ^ byte), 0);
            // Values too large for their bits are cut, and nothing beside them changes.
            let cut = Stamp {
                sender: sender % 128,
                run: run % (1 << 20),
                sequence: sequence % (1 << 32),
                time_ns: time_ns % (1 << 40) / 256 * 256,
                ..stamp
            };
            prop_assert_eq!(Stamp::read(&payload), Some(cut));
            let mut damaged = payload;
            damaged[byte] ^= 1_u8 << bit;
            prop_assert_eq!(Stamp::read(&damaged), None);
        }

        #[test]
        fn never_panics_on_foreign_payloads(payload in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Stamp::read(&payload);
        }
    }
}
