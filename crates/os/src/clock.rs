//! Clocks (`clock_gettime(2)`).

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// `CLOCK_MONOTONIC_COARSE` in nanoseconds: as of the last tick (1 to 10 ms ago), at a fifth of
/// the price.
#[inline]
pub fn monotonic_coarse_ns() -> u64 {
    nanoseconds(ClockId::MonotonicCoarse)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock runs backwards from zero.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
