//! Clocks (`clock_gettime(2)`).

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// `CLOCK_MONOTONIC` in nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// `CLOCK_TAI` in nanoseconds.
pub fn tai_ns() -> u64 {
    // Linux has it since 3.10.
    clock_gettime_dynamic(DynamicClockId::Tai).map_or(0, of)
}

/// `CLOCK_MONOTONIC_COARSE` in nanoseconds: as of the last tick (1 to 10 ms ago), at a fifth of
/// the price.
#[inline]
pub fn monotonic_coarse_ns() -> u64 {
    nanoseconds(ClockId::MonotonicCoarse)
}

/// `CLOCK_PROCESS_CPUTIME_ID` in nanoseconds: what all threads of this process have used of the
/// CPUs, those that have ended included.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// How many seconds `CLOCK_REALTIME` is ahead of `CLOCK_TAI`, the clock that BPF programs read:
/// minus the leap seconds so far, or zero if no program has set them in the kernel.
pub fn realtime_ahead_of_tai_seconds() -> i64 {
    let Ok(tai) = clock_gettime_dynamic(DynamicClockId::Tai) else {
        // Linux before 3.10 has no such clock, nor programs that read it.
        return 0;
    };
    let realtime = clock_gettime(ClockId::Realtime);
    // The clocks tick together, but are read one after the other: the nearest second is meant.
    let ns = (realtime.tv_sec - tai.tv_sec) * 1_000_000_000 + (realtime.tv_nsec - tai.tv_nsec);
    (ns + 500_000_000).div_euclid(1_000_000_000)
}

fn nanoseconds(clock: ClockId) -> u64 {
    of(clock_gettime(clock))
}

fn of(time: Timespec) -> u64 {
    // None of these clocks runs backwards from zero.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
