//! Whether to poll on before sleeping, decided by what came so far. It reads no clock itself.

use crate::RxPolls;
use std::time::Duration;

/// Packets that come as close together as this on average are worth polling for. A sleep costs the
/// receiver about that much, and the sender, who has to wake it, as much again.
const DENSE_NS: u64 = 5_000;
/// How long it polls before it sleeps. Longer brings no more packets and costs more.
const WINDOW: Duration = Duration::from_micros(50);
/// Waits between two looks at the rate.
const WAITS: u32 = 16;
/// Polls in a row that may bring nothing before it sleeps for a while: where the sender needs this
/// very CPU, none of them ever does.
const FAILURES_MAX: u32 = 4;
/// The longest such while, in looks at the rate.
const PENALTY_MAX: u32 = 256;
/// Polls in a row that have to bring something before a while is short again.
const SUCCESSES: u32 = 64;

/// Decides how long a receiver polls.
#[derive(Debug, Default)]
pub(crate) struct Adaptive {
    is_polling: bool,
    /// Waits since the last look at the rate.
    waits: u32,
    /// When that was, and what had been received by then.
    looked: Option<(u64, u64)>,
    failures: u32,
    successes: u32,
    /// Looks at the rate left before it may poll again.
    penalty: u32,
    /// What the next penalty will be.
    next_penalty: u32,
    polls: RxPolls,
}

impl Adaptive {
    /// A wait begins. `now_ns` is asked for the time at every 16th of them; `received` is how many
    /// packets were received so far. How long to poll before sleeping; zero is not at all.
    #[inline]
    pub(crate) fn begin(&mut self, received: u64, now_ns: impl FnOnce() -> u64) -> Duration {
        self.waits += 1;
        if self.waits >= WAITS {
            self.look(now_ns(), received);
        }
        if self.is_polling {
            WINDOW
        } else {
            Duration::ZERO
        }
    }

    /// It polled, for longer than one look, and something came in time or not.
    pub(crate) fn polled(&mut self, has_come: bool) {
        if has_come {
            self.polls.found += 1;
            self.failures = 0;
            self.successes = self.successes.saturating_add(1);
            if self.successes >= SUCCESSES {
                self.next_penalty = 0;
            }
            return;
        }
        self.polls.missed += 1;
        self.successes = 0;
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            self.failures = 0;
            self.penalty = self.next_penalty.clamp(1, PENALTY_MAX);
            self.next_penalty = self.penalty * 2;
            self.set(false);
        }
    }

    pub(crate) fn polls(&self) -> RxPolls {
        self.polls
    }

    fn look(&mut self, now_ns: u64, received: u64) {
        self.waits = 0;
        let Some((then_ns, before)) = self.looked.replace((now_ns, received)) else {
            return;
        };
        let packets = received.saturating_sub(before);
        let is_dense = now_ns.saturating_sub(then_ns) < packets.saturating_mul(DENSE_NS);
        self.penalty = self.penalty.saturating_sub(1);
        self.set(is_dense && self.penalty == 0);
    }

    fn set(&mut self, is_polling: bool) {
        self.polls.changes += u64::from(self.is_polling != is_polling);
        self.is_polling = is_polling;
    }
}
