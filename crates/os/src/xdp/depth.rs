//! Decides how many frames the kernel has at a time, by the packets that came so far.
//!
//! The fill ring is a queue: with all frames in it, a frame is used again after all the others. By
//! then no cache holds it any more. So the kernel gets as few frames as will do, those used last.
//! It gets all of them as soon as few might not do: before a sleep, after a silence and in the
//! burst that may follow it, and while many packets wait.

/// The fewest: 1 MiB of the smaller frames, and 0.1 ms at 5 million packets a second.
const LEAST: u32 = 512;
/// The kernel has this multiple of the most frames that waited at a time.
const MARGIN: u32 = 2;
/// Frames received between two decisions. Within an interval the number never falls below the need.
const INTERVAL: u32 = 1 << 16;
/// Looks in a row that may find nothing before the kernel has all frames: some tens of microseconds,
/// longer than a sender takes for its next batch.
const SILENCE: u32 = 1024;
/// A burst after a silence is at most this multiple of all frames; more is a flood. A receiver that
/// is held up in the middle of a burst loses no more than with all frames.
const BURST: u32 = 4;
/// The longest penalty: after it ran out, the kernel has all frames for this number of intervals.
const PENALTY_MAX: u32 = 256;

/// Decides how many frames the kernel has.
#[derive(Debug)]
pub(super) struct Depth {
    all: u32,
    depth: u32,
    /// The most that waited at a time since the last look.
    waited: u32,
    /// Frames received since then.
    received: u32,
    /// Looks in a row that found nothing.
    silence: u32,
    /// Frames left of the burst that may follow a silence.
    burst: u32,
    /// Looks left before it may fall.
    penalty: u32,
    /// The length of the next penalty.
    next_penalty: u32,
    told: FillDepth,
}

/// How many frames the kernel was given at a time by a receiver that keeps back those that it will
/// not need soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillDepth {
    /// The fewest.
    pub fewest: u32,
    /// The most, which it also has whenever nothing comes.
    pub most: u32,
    /// How often the number changed.
    pub changes: u64,
    /// How often all of them were found full: what came then was dropped.
    pub ran_out: u64,
}

impl Depth {
    /// For `all` frames. The kernel has all of them at first, and always if they are few.
    pub(super) fn new(all: u32) -> Self {
        Self {
            all,
            depth: all,
            waited: 0,
            received: 0,
            silence: 0,
            burst: 0,
            penalty: 0,
            next_penalty: 1,
            told: FillDepth {
                fewest: all,
                most: all,
                changes: 0,
                ran_out: 0,
            },
        }
    }

    /// How many frames the kernel should have now.
    #[inline]
    pub(super) fn frames(&self) -> u32 {
        if self.silence >= SILENCE || self.burst > 0 {
            self.all
        } else {
            self.depth
        }
    }

    pub(super) fn told(&self) -> FillDepth {
        self.told
    }

    /// Records that `waiting` frames wait, and that the kernel had `left` more. True if it is to
    /// have more frames at once.
    #[inline]
    pub(super) fn found(&mut self, waiting: u32, left: u32) -> bool {
        if waiting == 0 {
            self.silence = self.silence.saturating_add(1);
            if self.silence == SILENCE {
                self.silence();
                return true;
            }
            return false;
        }
        self.silence = 0;
        if left == 0 {
            self.told.ran_out += 1;
            self.penalty = self.next_penalty;
            self.next_penalty = (self.next_penalty * 2).min(PENALTY_MAX);
            self.set(self.all);
            return true;
        }
        // Frames that wait after a sleep say nothing about the flood that may follow.
        if self.burst > 0 {
            return false;
        }
        self.waited = self.waited.max(waiting);
        if waiting.saturating_mul(MARGIN) > self.depth {
            self.set(self.wanted());
            return true;
        }
        false
    }

    /// Records that `count` frames were received.
    #[inline]
    pub(super) fn received(&mut self, count: u32) {
        self.burst = self.burst.saturating_sub(count);
        self.received += count;
        if self.received >= INTERVAL {
            self.look();
        }
    }

    /// Nothing came for a while.
    pub(super) fn silence(&mut self) {
        self.silence = SILENCE;
        self.burst = self.all.saturating_mul(BURST);
    }

    #[cold]
    fn look(&mut self) {
        let wanted = self.wanted();
        (self.received, self.waited) = (0, 0);
        if self.penalty > 0 {
            self.penalty -= 1;
        } else if wanted < self.depth {
            self.set(wanted);
        }
    }

    /// The number of frames that would do for those that waited.
    fn wanted(&self) -> u32 {
        let wanted = self.waited.saturating_mul(MARGIN).max(LEAST);
        wanted.min(self.all)
    }

    fn set(&mut self, depth: u32) {
        if depth == self.depth {
            return;
        }
        self.depth = depth;
        self.told.fewest = self.told.fewest.min(depth);
        self.told.changes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: u32 = 4096;

    /// A kernel that takes a frame for each packet, and a receiver that takes all that wait.
    struct Ring {
        depth: Depth,
        /// Empty frames that the kernel has, and full ones.
        empty: u32,
        full: u32,
        dropped: u64,
    }

    impl Ring {
        fn new() -> Self {
            Self {
                depth: Depth::new(ALL),
                empty: ALL,
                full: 0,
                dropped: 0,
            }
        }

        fn packets(&mut self, count: u32) {
            let taken = count.min(self.empty);
            (self.empty, self.full) = (self.empty - taken, self.full + taken);
            self.dropped += u64::from(count - taken);
        }

        fn look(&mut self) {
            let (left, held) = (self.empty, self.empty + self.full);
            self.empty += self.depth.frames().saturating_sub(held);
            if self.depth.found(self.full, left) {
                let held = self.empty + self.full;
                self.empty += self.depth.frames().saturating_sub(held);
            }
            self.depth.received(self.full);
            self.full = 0;
        }

        /// Makes `looks` looks; each finds `each` packets.
        fn flood(&mut self, looks: u32, each: u32) {
            for _ in 0..looks {
                self.packets(each);
                self.look();
            }
        }
    }

    /// Looks that find 64 packets each until the next interval is over.
    const LOOKS: u32 = INTERVAL / 64 + 1;

    #[test]
    fn a_steady_flood_needs_few_and_a_longer_queue_more_at_once() {
        let mut ring = Ring::new();
        assert_eq!(ring.depth.frames(), ALL);
        ring.flood(LOOKS, 64);
        assert_eq!(ring.depth.frames(), LEAST);
        ring.flood(1, 300);
        assert_eq!(ring.depth.frames(), 600);
        ring.flood(LOOKS * 2, 64);
        assert_eq!(ring.depth.frames(), LEAST);
        let told = ring.depth.told();
        assert_eq!((told.fewest, told.most, told.ran_out), (LEAST, ALL, 0));
        assert_eq!((told.changes, ring.dropped), (3, 0));
    }

    #[test]
    fn after_the_kernel_ran_out_it_has_all_for_longer_each_time() {
        let mut ring = Ring::new();
        let mut intervals = Vec::new();
        for _ in 0..3 {
            ring.flood(LOOKS, 64);
            while ring.depth.frames() == ALL {
                ring.flood(LOOKS, 64);
            }
            ring.flood(1, 5000);
            assert_eq!(ring.depth.frames(), ALL);
            // Frames that waited then are no measure for those that come.
            let mut passed = 0;
            while ring.depth.frames() == ALL {
                ring.flood(LOOKS, 64);
                passed += 1;
            }
            intervals.push(passed);
        }
        assert_eq!(ring.depth.told().ran_out, 3);
        assert!(
            intervals.is_sorted() && intervals[2] > intervals[0],
            "{intervals:?}"
        );
    }

    #[test]
    fn a_burst_after_silence_finds_all_frames() {
        let mut ring = Ring::new();
        ring.flood(LOOKS, 64);
        ring.flood(SILENCE + 1, 0);
        ring.packets(ALL);
        assert_eq!(ring.dropped, 0);
        ring.look();
        // A receiver that sleeps says so.
        ring.flood(LOOKS * 600, 64);
        assert_eq!(ring.depth.frames(), LEAST);
        ring.depth.silence();
        assert_eq!(ring.depth.frames(), ALL);
        // A flood is more than a burst, and what waited at its beginning is no measure for it.
        ring.flood(1, 0);
        ring.flood(1, 1000);
        ring.flood(ALL * BURST / 64, 64);
        assert_eq!(ring.depth.frames(), LEAST);
    }

    #[test]
    fn few_frames_are_all_needed() {
        let mut depth = Depth::new(300);
        (0..INTERVAL).for_each(|_| {
            depth.found(1, 299);
            depth.received(1);
        });
        assert_eq!(depth.frames(), 300);
    }

    proptest! {
        /// Of bursts after a silence nothing is lost that all frames would have kept, whenever the
        /// receiver looks and however long it is held up in between.
        #[test]
        fn no_burst_is_lost_that_all_frames_keep(
            before in 0_u32..2000,
            looks in prop::collection::vec(0_u32..ALL, 0..20),
        ) {
            let mut ring = Ring::new();
            ring.flood(before, 64);
            ring.flood(SILENCE + 1, 0);
            let (before, mut left) = (ring.dropped, ALL * BURST);
            // For a ring that has all frames except those lent.
            let (mut full, mut lent, mut lost) = (0, 0, 0);
            for part in looks {
                let part = part.min(left);
                left -= part;
                ring.packets(part);
                let taken = part.min(ALL - full - lent);
                (full, lost) = (full + taken, lost + u64::from(part - taken));
                if part % 3 > 0 {
                    ring.look();
                    (full, lent) = (0, full);
                }
            }
            prop_assert_eq!(ring.dropped - before, lost);
        }

        /// The kernel's frames are enough for the longest queue of the interval, several times
        /// over, or are all that exist. It never has more than exist.
        #[test]
        fn it_never_falls_below_what_was_asked_within_the_interval(
            waits in prop::collection::vec(prop_oneof![8 => 0_u32..100, 1 => 0_u32..2000, 1 => Just(ALL)], 1..4000),
        ) {
            let mut ring = Ring::new();
            let (mut most, mut received) = (0, 0);
            for each in waits {
                ring.packets(each);
                let waiting = ring.full;
                ring.look();
                (most, received) = (most.max(waiting), received + waiting);
                if received >= INTERVAL {
                    (most, received) = (0, 0);
                }
                let frames = ring.depth.frames();
                prop_assert!(frames >= (most * MARGIN).clamp(LEAST, ALL) && frames <= ALL);
            }
        }
    }
}
