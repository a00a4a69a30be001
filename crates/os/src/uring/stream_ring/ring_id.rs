//! Which ring something is of.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

/// A ring's number. By it a ring knows its own slots, buffers and requests: those of another ring
/// have the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingId(NonZeroU32);

impl RingId {
    /// A number that no other ring has, as long as there are fewer than four milliards of rings.
    pub(super) fn next() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let next = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Self(NonZeroU32::new(next).unwrap_or(NonZeroU32::MIN))
    }
}
