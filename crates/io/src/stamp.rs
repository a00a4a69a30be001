//! The 16-byte header of stamped traffic: who sent it, its place in the flow, and when.
//!
//! ```text
//! bits   16    8      1     7       16    8    36        36
//!        "mp"  check  kind  sender  flow  run  sequence  send time in units of 16 ns
//! ```
//!
//! Integers are big-endian. The check byte makes all sixteen bytes xor to zero, so that foreign
//! payloads are taken for stamps about once in 16 million. The run is a number drawn at random by
//! each run of a sender, so that two of them are not taken for one. The send time is
//! `CLOCK_REALTIME` modulo 2^40 ns (18 minutes); between two machines it is as true as their clocks
//! are the same.

use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a stamp, which is the shortest payload that carries one.
pub const STAMP_BYTES: usize = 16;
/// The bits of a sender's number: 7.
const SENDER_MASK: u8 = 0x7f;
const END_BIT: u8 = 0x80;
const U40_MASK: u64 = (1 << 40) - 1;
const U36_MASK: u64 = (1 << 36) - 1;
/// The send time has 36 bits for 40 bits of nanoseconds: units of 16 ns.
const TIME_SHIFT: u32 = 4;

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
///     time_ns: Stamp::now_ns() & !15,
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
    /// Which run of the sender.
    pub run: u8,
    /// Place in the flow, from 0, modulo 2^36: 19 hours at a million a second.
    pub sequence: u64,
    /// When it was written, [`Stamp::now_ns`], cut to 16 ns.
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
        let mut bits = u128::from(u16::from_be_bytes(*b"mp")) << 112;
        bits |= u128::from(end | (self.sender & SENDER_MASK)) << 96;
        bits |= u128::from(self.flow) << 80;
        bits |= u128::from(self.run) << 72;
        bits |= u128::from(self.sequence & U36_MASK) << 36;
        bits |= u128::from((self.time_ns & U40_MASK) >> TIME_SHIFT);
        bits |= u128::from(parity(bits)) << 104;
        *header = bits.to_be_bytes();
    }

    /// Reads the stamp of a payload, if it has one.
    #[inline]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bits = u128::from_be_bytes(*payload.first_chunk::<STAMP_BYTES>()?);
        if (bits >> 112) as u16 != u16::from_be_bytes(*b"mp") || parity(bits) != 0 {
            return None;
        }
        let who = (bits >> 96) as u8;
        Some(Self {
            kind: if who & END_BIT == 0 {
                StampKind::Data
            } else {
                StampKind::End
            },
            sender: who & SENDER_MASK,
            flow: (bits >> 80) as u16,
            run: (bits >> 72) as u8,
            sequence: (bits >> 36) as u64 & U36_MASK,
            time_ns: (bits as u64 & U36_MASK) << TIME_SHIFT,
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

    /// The whole number of a sequence number that a stamp cut to 36 bits: the nearest to `next`,
    /// and not below 0.
    #[inline]
    pub(crate) fn unfold(sequence: u64, next: u64) -> u64 {
        let ahead = sequence.wrapping_sub(next) & U36_MASK;
        let behind = (1 << 36) - ahead;
        match ahead <= U36_MASK / 2 || behind > next {
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
            run: 0x55,
            sequence: 0x0a_0b0c_0d0e,
            time_ns: 0x70,
        };
        stamp.write(&mut payload);
        assert_eq!(payload[..2], *b"mp");
        assert_eq!(
            payload[3..],
            [
                0x83, 1, 2, 0x55, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0, 0, 0, 7, 0xaa, 0xaa
            ]
        );
        assert_eq!(payload[..16].iter().fold(0, |xor, byte| xor ^ byte), 0);
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
            time_ns: 1600,
        };
        sent.write(&mut payload);
        let stamp = Stamp::read(&payload).unwrap();
        assert_eq!((stamp.age_ns(2100), stamp.age_ns(900)), (500, -700));
        // Half of the range, and one more.
        let [half, more] = [0, 1].map(|more| stamp.age_ns((1 << 39) - 1 + 1600 + more));
        assert_eq!((half, more), ((1 << 39) - 1, -(1 << 39)));
    }

    #[test]
    fn a_sequence_number_goes_on_after_its_36_bits() {
        let turn = 1 << 36;
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
            end in any::<bool>(), sender in any::<u8>(), flow in any::<u16>(), run in any::<u8>(),
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
                sequence: sequence % (1 << 36),
                time_ns: time_ns % (1 << 40) / 16 * 16,
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
