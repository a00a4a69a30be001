//! Why packets ended at the port that a receiver holds beside its ring.

/// Packets that ended at the held port, and frames that the XDP program sent there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortCounts {
    /// Wanted frames of queues without a receiver.
    pub(super) unclaimed: u64,
    pub(super) dropped: u64,
}

impl PortCounts {
    /// How many packets came by a queue without a receiver, and how many past the ring since the earlier
    /// counts. The kernel drops some frames before they reach the port, so that the first number may be
    /// too large, and never too small.
    pub(super) fn causes(self, earlier: Self) -> [u64; 2] {
        let dropped = self.dropped.saturating_sub(earlier.dropped);
        let past = dropped.saturating_sub(self.unclaimed.saturating_sub(earlier.unclaimed));
        [self.dropped - past, past]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_has_two_causes() {
        let counts = |unclaimed, dropped| PortCounts { unclaimed, dropped };
        let before = counts(5, 7);
        // All by other queues; all past the ring, as fragments are; some of each; and some of the
        // passed that the kernel dropped on their way.
        for (now, causes) in [
            (counts(15, 17), [17, 0]),
            (counts(5, 17), [7, 10]),
            (counts(9, 17), [11, 6]),
            (counts(90, 17), [17, 0]),
            (before, [7, 0]),
        ] {
            assert_eq!(now.causes(before), causes, "{now:?}");
        }
    }
}
