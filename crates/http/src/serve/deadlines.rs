//! When each of many connections is to be looked at again: a timer wheel.
//!
//! It is lazy: a slot keeps the earliest time that it was armed for. When a slot is due, the caller
//! checks whether that is still the deadline, and arms it again if not. So a connection that closes
//! need not be taken out. A connection whose deadline moves on with every request costs one
//! comparison.

/// The precision in milliseconds: a slot is due at most this much too late, and never too early.
/// Time-outs of connections are seconds.
pub(crate) const TICK_MS: u64 = 64;

/// Buckets of the wheel. Together they span 65 seconds, a little more than the longest default
/// time-out; what lies further ahead is passed over once each turn.
const BUCKETS: usize = 1024;

/// Later than all deadlines.
const UNARMED: u64 = u64::MAX;

/// A timer wheel over slots, which are small numbers.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// The slots of each bucket. A slot that was armed anew may still be in its old one.
    buckets: Box<[Vec<u32>]>,
    /// When each slot is due, or [`UNARMED`].
    due: Vec<u64>,
    /// The tick whose bucket is being emptied; everything before it is done.
    tick: u64,
    /// The latest tick that was asked about.
    now: u64,
    /// The slots of that bucket that were not looked at yet.
    left: Vec<u32>,
    armed: usize,
}

impl Deadlines {
    /// A wheel with nothing on it.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            buckets: vec![Vec::new(); BUCKETS].into_boxed_slice(),
            due: Vec::new(),
            tick: now_ms / TICK_MS,
            now: now_ms / TICK_MS,
            left: Vec::new(),
            armed: 0,
        }
    }

    /// Makes a slot due at this time at the latest. An earlier time that it was armed for stands.
    pub(crate) fn arm(&mut self, slot: u32, deadline_ms: u64) {
        let index = slot as usize;
        if index >= self.due.len() {
            self.due.resize(index + 1, UNARMED);
        }
        // A slot that is due now comes with the next tick. So the loop ends that takes out expired
        // slots and arms them anew.
        let due = deadline_ms.div_ceil(TICK_MS).max(self.now + 1);
        let before = self.due[index];
        if before <= due {
            return;
        }
        self.armed += usize::from(before == UNARMED);
        self.due[index] = due;
        self.buckets[bucket(due)].push(slot);
    }

    /// Takes out one slot whose time has come. None if there is no more at this time.
    pub(crate) fn expired(&mut self, now_ms: u64) -> Option<u32> {
        let now = now_ms / TICK_MS;
        self.now = self.now.max(now);
        loop {
            while let Some(slot) = self.left.pop() {
                let due = self.due[slot as usize];
                if due <= now {
                    self.due[slot as usize] = UNARMED;
                    self.armed -= 1;
                    return Some(slot);
                }
                // A later turn; otherwise it is in another bucket, or in none.
                if due != UNARMED && bucket(due) == bucket(self.tick) {
                    self.buckets[bucket(due)].push(slot);
                }
            }
            if self.tick >= now {
                return None;
            }
            // After a long pause one turn has seen every bucket.
            self.tick = (self.tick + 1).max(now.saturating_sub(BUCKETS as u64 - 1));
            std::mem::swap(&mut self.left, &mut self.buckets[bucket(self.tick)]);
        }
    }

    /// Whether no slot is armed, so that no thread has to wake up.
    pub(crate) fn is_empty(&self) -> bool {
        self.armed == 0
    }
}

/// The clock of all deadlines: as of the last tick of the kernel, which is exact enough for them.
pub(crate) fn now_ms() -> u64 {
    mpps_os::clock::monotonic_coarse_ns() / 1_000_000
}

fn bucket(tick: u64) -> usize {
    (tick % BUCKETS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn all_expired(deadlines: &mut Deadlines, now_ms: u64) -> Vec<u32> {
        let mut slots: Vec<u32> = std::iter::from_fn(|| deadlines.expired(now_ms)).collect();
        slots.sort_unstable();
        slots
    }

    #[test]
    fn a_slot_is_told_once_and_not_too_early() {
        let mut deadlines = Deadlines::new(1_000);
        deadlines.arm(3, 1_500);
        assert!(!deadlines.is_empty());
        assert_eq!(deadlines.expired(1_499), None);
        assert_eq!(deadlines.expired(1_500 + TICK_MS), Some(3));
        assert_eq!(deadlines.expired(9_000), None);
        assert!(deadlines.is_empty());
    }

    #[test]
    fn a_slot_may_be_armed_anew_while_the_expired_are_taken_out() {
        let mut deadlines = Deadlines::new(0);
        for slot in 0..10 {
            deadlines.arm(slot, 100);
        }
        let mut told = 0;
        while let Some(slot) = deadlines.expired(1_000) {
            told += 1;
            deadlines.arm(slot, 500);
        }
        assert_eq!(told, 10);
        assert_eq!(all_expired(&mut deadlines, 2_000).len(), 10);
    }

    #[test]
    fn a_deadline_many_turns_ahead_waits_for_its_turn() {
        let turn_ms = BUCKETS as u64 * TICK_MS;
        let mut deadlines = Deadlines::new(0);
        deadlines.arm(0, 10 * turn_ms);
        for turn in 1..10 {
            assert_eq!(deadlines.expired(turn * turn_ms), None);
        }
        assert_eq!(deadlines.expired(10 * turn_ms), Some(0));
    }

    #[derive(Debug, Clone)]
    enum Act {
        Arm(u32, u64),
        Wait(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0..40u32, 0..200_000u64).prop_map(|(slot, ahead)| Act::Arm(slot, ahead)),
            1 => prop_oneof![0..300u64, 0..300_000u64].prop_map(Act::Wait),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

        /// Against a map from slot to the earliest tick that it was armed for.
        #[test]
        fn it_tells_what_a_plain_map_tells(acts in prop::collection::vec(act(), 1..200)) {
            let mut now_ms = 77;
            let mut deadlines = Deadlines::new(now_ms);
            let mut plain = BTreeMap::<u32, u64>::new();
            for act in acts {
                match act {
                    Act::Arm(slot, ahead_ms) => {
                        deadlines.arm(slot, now_ms + ahead_ms);
                        let due = (now_ms + ahead_ms).div_ceil(TICK_MS).max(now_ms / TICK_MS + 1);
                        let earliest = plain.entry(slot).or_insert(due);
                        *earliest = due.min(*earliest);
                    }
                    Act::Wait(pause_ms) => {
                        now_ms += pause_ms;
                        let told = all_expired(&mut deadlines, now_ms);
                        let now = now_ms / TICK_MS;
                        let due = plain.iter().filter(|&(_, &due)| due <= now);
                        let expected: Vec<u32> = due.map(|(&slot, _)| slot).collect();
                        plain.retain(|_, due| *due > now);
                        prop_assert_eq!(told, expected);
                        prop_assert_eq!(deadlines.is_empty(), plain.is_empty());
                    }
                }
            }
        }
    }
}
