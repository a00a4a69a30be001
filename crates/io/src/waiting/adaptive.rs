//! Whether to poll on before sleeping, decided by what either brings here. It reads no clock itself.

use crate::RxPolls;
use std::time::Duration;

/// Packets that come further apart than this on average are slept for: there is time for what a sleep
/// costs.
const SPARSE_NS: u64 = 5_000;
/// How long it polls before it sleeps: a pause in the middle of a flood is mostly shorter
/// (docs/waiting.md). After a sleep AF_XDP's kernel has all frames and uses them in turn, so that each
/// is out of the cache when it comes round.
pub(super) const WINDOW: Duration = Duration::from_micros(200);
/// A poll that the end of the wait cuts shorter than this says nothing of the others.
pub(super) const TELLING: Duration = Duration::from_micros(50);
/// How long a poll rests after it found nothing. Meanwhile several packets come, and the sender has
/// the socket or the ring to itself.
pub(super) const REST: Duration = Duration::from_micros(5);
/// From this number of packets at a time, no rest is needed for more.
const MANY: u64 = 16;
/// Waits between two readings of the clock.
const WAITS: u32 = 16;
/// How long a way of waiting is followed before its rate is taken, and how many packets it is taken of.
/// Of fewer the sender's own bursts would decide.
const LAP_NS: u64 = 4_000_000;
const LAP_PACKETS: u64 = 4_096;
/// Polling is worth a CPU if it brings more than this percentage of the packets that sleeping
/// brings. Less than that could be the noise of a lap.
const WORTH_PERCENT: u128 = 103;
/// It polls if it won so often, and sleeps if it lost so often.
const WINS: u32 = 3;
const LOSSES: u32 = 2;
/// How long it does so before it tries again. A trial of polling costs CPU time, one of sleeping
/// packets.
const SLEEPS_FOR_NS: u64 = 1_000_000_000;
const POLLS_FOR_NS: u64 = 1_000_000_000;
/// Polls in a row that may bring nothing before it sleeps: where the sender needs this very CPU, none
/// of them ever does.
const FAILURES_MAX: u32 = 4;

/// Decides how long a receiver polls.
#[derive(Debug, Default)]
pub(crate) struct Adaptive {
    phase: WaitPhase,
    /// Waits since the clock was read.
    waits: u32,
    /// When this lap began, and what had been received by then.
    begun: Option<(u64, u64)>,
    failures: u32,
    /// Until then polling is known to be worth it, also after a pause of the traffic.
    known_until_ns: u64,
    /// Packets and trains received before the wait before.
    buffers: u64,
    polls: RxPolls,
}

#[derive(Debug, Clone, Copy)]
enum WaitPhase {
    /// It sleeps, until then at least.
    Asleep { until_ns: u64 },
    /// It sleeps for a lap and polls for the next, again and again, to compare them. The lap that was
    /// slept through, once it is over.
    Trial {
        slept: Option<Lap>,
        won: u32,
        lost: u32,
    },
    /// It polls, as long as that is known to be worth it and packets go on to come.
    Polling,
}

/// Packets that came, and in what time.
#[derive(Debug, Clone, Copy)]
struct Lap {
    packets: u64,
    took_ns: u64,
}

impl Adaptive {
    /// A wait begins. `now_ns` is asked for the time at every 16th of them; `received` is how many
    /// packets were received so far. True if it is to poll before it sleeps.
    #[inline]
    pub(super) fn begin(&mut self, received: u64, now_ns: impl FnOnce() -> u64) -> bool {
        self.waits += 1;
        if self.waits >= WAITS {
            self.waits = 0;
            self.look(now_ns(), received);
        }
        self.is_polling()
    }

    /// True if a poll is to rest before its first look. The look before must have brought several
    /// of the `buffers` received so far, but not yet many. It left nothing, because it may take up
    /// to `batch`. A rest would only delay those that are there.
    pub(super) fn rests_after(&mut self, buffers: u64, batch: usize) -> bool {
        let brought = buffers.saturating_sub(self.buffers);
        self.buffers = buffers;
        (2..MANY.min(batch as u64)).contains(&brought)
    }

    /// A poll brought something after a rest.
    pub(super) fn found(&mut self) {
        self.polls.found += 1;
        self.failures = 0;
    }

    /// A poll brought nothing.
    pub(super) fn missed(&mut self, now_ns: u64) {
        self.polls.missed += 1;
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            self.known_until_ns = 0;
            self.sleep_until(now_ns.saturating_add(SLEEPS_FOR_NS));
        }
    }

    pub(super) fn polls(&self) -> RxPolls {
        self.polls
    }

    pub(super) fn is_polling(&self) -> bool {
        match self.phase {
            WaitPhase::Asleep { .. } => false,
            WaitPhase::Trial { slept, .. } => slept.is_some(),
            WaitPhase::Polling => true,
        }
    }

    fn look(&mut self, now_ns: u64, received: u64) {
        let (begun_ns, before) = *self.begun.get_or_insert((now_ns, received));
        let lap = Lap {
            packets: received.saturating_sub(before),
            took_ns: now_ns.saturating_sub(begun_ns),
        };
        if lap.took_ns >= LAP_NS && (lap.packets >= LAP_PACKETS || !lap.is_dense()) {
            self.begun = Some((now_ns, received));
            self.failures = 0;
            self.end_lap(lap, now_ns);
        }
    }

    fn end_lap(&mut self, lap: Lap, now_ns: u64) {
        let trial = |slept, won, lost| WaitPhase::Trial { slept, won, lost };
        let next = match self.phase {
            WaitPhase::Asleep { until_ns } if !lap.is_dense() || now_ns < until_ns => return,
            _ if !lap.is_dense() => return self.sleep_until(now_ns),
            WaitPhase::Asleep { .. } if now_ns < self.known_until_ns => WaitPhase::Polling,
            WaitPhase::Asleep { .. } => trial(Some(lap), 0, 0),
            WaitPhase::Polling if now_ns < self.known_until_ns => return,
            WaitPhase::Polling => trial(None, 0, 0),
            WaitPhase::Trial { slept, won, lost } => match slept {
                None => trial(Some(lap), won, lost),
                Some(slept) if lap.is_worth_more_than(slept) && won + 1 == WINS => {
                    self.known_until_ns = now_ns.saturating_add(POLLS_FOR_NS);
                    WaitPhase::Polling
                }
                Some(slept) if lap.is_worth_more_than(slept) => trial(None, won + 1, lost),
                Some(_) if lost + 1 == LOSSES => {
                    return self.sleep_until(now_ns.saturating_add(SLEEPS_FOR_NS));
                }
                Some(_) => trial(None, won, lost + 1),
            },
        };
        self.set(next);
    }

    fn sleep_until(&mut self, until_ns: u64) {
        // Of what was polled for, nothing counts for the next lap.
        self.begun = None;
        self.failures = 0;
        self.set(WaitPhase::Asleep { until_ns });
    }

    fn set(&mut self, phase: WaitPhase) {
        let was_polling = self.is_polling();
        self.phase = phase;
        self.polls.changes += u64::from(was_polling != self.is_polling());
    }
}

impl Default for WaitPhase {
    fn default() -> Self {
        Self::Asleep { until_ns: 0 }
    }
}

impl Lap {
    fn is_dense(self) -> bool {
        self.took_ns < self.packets.saturating_mul(SPARSE_NS)
    }

    /// True if it brought enough more packets in its time that polling is worth it.
    fn is_worth_more_than(self, slept: Self) -> bool {
        let crossed = |one: Self, other: Self| u128::from(one.packets) * u128::from(other.took_ns);
        crossed(self, slept) * 100 > crossed(slept, self) * WORTH_PERCENT
    }
}
