//! The wait for a peer's acknowledgement. If a reply does not go on, it distinguishes a slow peer
//! from a dead one. After the last reply, it precedes a RST that would throw the reply away.

use super::deadlines::TICK_MS;
use super::{Limits, duration_ms};
use mpps_os::tcp::TcpStream;

/// The longest time between two looks. It doubles from [`TICK_MS`] while nothing moves, so that
/// many slow clients cost little. An acknowledgement may be seen late by the time that it took, but
/// by no more than this.
///
/// The kernel could report it at once (`SOF_TIMESTAMPING_TX_ACK`). But that must be requested
/// before the reply is sent, and so for every connection. It would cost a system call and a
/// packet's head each; most have acknowledged at the first look or the second.
const PAUSE_MS_MAX: u64 = 1024;

/// A peer is first looked at after this part of the time that it has.
const FIRST_OF: u64 = 8;

/// A peer whose kernel answers has this many times as long. A full window opens when a part of the
/// receive buffer is free again. A slow reader of a large one takes minutes for that.
const ANSWERED_TIMES: u64 = 20;

/// A connection whose peer has not got everything that was sent yet. The kernel does not report an
/// acknowledgement: it is looked for again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    /// Bytes that the peer lacked at the last look.
    left: usize,
    /// Bytes that it had acknowledged then, or 0 if that is not known.
    acknowledged: u64,
    /// When it was last known to have acknowledged more.
    moved_ms: u64,
    /// When its kernel was last known to have answered everything.
    answered_ms: u64,
    /// When to look again.
    look_ms: u64,
    pause_ms: u64,
}

/// The result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcknowledgedBytes {
    /// Bytes that the peer lacks.
    pub(crate) left: usize,
    /// Bytes that it has acknowledged, or 0 if that is not known. The kernel refills the socket
    /// while a reply is sent, so `left` can stay the same.
    pub(crate) acknowledged: u64,
    /// Whether its kernel has answered everything; false if that is not known.
    pub(crate) is_answered: bool,
}

impl AcknowledgedBytes {
    /// The state of this peer; none if the kernel does not report it.
    pub(crate) fn of(stream: &TcpStream) -> Option<Self> {
        let left = stream.unacknowledged_bytes().ok()?;
        if left == 0 {
            return Some(Self::left(0));
        }
        let delivery = stream.delivery().ok()?;
        Some(Self {
            left,
            acknowledged: delivery.acknowledged,
            is_answered: delivery.is_answered,
        })
    }

    /// A result with only this known.
    pub(crate) fn left(left: usize) -> Self {
        Self {
            left,
            acknowledged: 0,
            is_answered: false,
        }
    }

    /// Whether a further look can find less. Without an answer of the kernel none can.
    pub(crate) fn lacks_some(&self) -> bool {
        (1..usize::MAX).contains(&self.left)
    }
}

impl Acknowledgement {
    /// The first look has found this.
    pub(crate) fn new(seen: AcknowledgedBytes, now_ms: u64) -> Self {
        Self {
            left: seen.left,
            acknowledged: seen.acknowledged,
            moved_ms: now_ms,
            answered_ms: now_ms,
            look_ms: now_ms + TICK_MS,
            pause_ms: TICK_MS,
        }
    }

    /// Before the first look in a wait of `wait_ms` that began at that time. That look is late
    /// enough for nearly every reply to be gone by then, and the peer's time begins with it.
    pub(crate) fn of_wait(since_ms: u64, wait_ms: u64) -> Self {
        let first_ms = (wait_ms / FIRST_OF).max(TICK_MS);
        Self {
            look_ms: since_ms.saturating_add(first_ms),
            ..Self::new(AcknowledgedBytes::left(usize::MAX), since_ms)
        }
    }

    /// A further look. False if the peer has taken nothing for longer than it may.
    pub(crate) fn look(&mut self, seen: AcknowledgedBytes, limits: &Limits, now_ms: u64) -> bool {
        if seen.is_answered {
            self.answered_ms = now_ms;
        }
        let has_moved = match (self.acknowledged, seen.acknowledged) {
            (1.., 1..) => seen.acknowledged > self.acknowledged,
            _ => seen.left < self.left,
        };
        if has_moved {
            self.moved_ms = now_ms;
            self.pause_ms = TICK_MS;
        } else if now_ms >= self.look_ms {
            // A look may meet a probe that is on its way, so that its time has room for several.
            let most_ms = (duration_ms(limits.send_time) / FIRST_OF).clamp(TICK_MS, PAUSE_MS_MAX);
            self.pause_ms = (2 * self.pause_ms).min(most_ms);
        }
        self.left = seen.left;
        self.acknowledged = seen.acknowledged;
        self.look_ms = now_ms + self.pause_ms;
        now_ms < self.ends_ms(limits)
    }

    /// When to look again.
    pub(crate) fn look_ms(&self, limits: &Limits) -> u64 {
        self.look_ms.min(self.ends_ms(limits))
    }

    fn ends_ms(&self, limits: &Limits) -> u64 {
        let time_ms = duration_ms(limits.send_time);
        let most_ms = time_ms.saturating_mul(ANSWERED_TIMES);
        let last_ms = self.moved_ms.max(self.answered_ms);
        let most_ms = self.moved_ms.saturating_add(most_ms);
        last_ms.saturating_add(time_ms).min(most_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn limits(send_ms: u64) -> Limits {
        Limits {
            send_time: Duration::from_millis(send_ms),
            ..Limits::default()
        }
    }

    /// The times of looks at a peer that takes nothing.
    fn looks(send_ms: u64) -> Vec<u64> {
        let limits = limits(send_ms);
        let mut wait = Acknowledgement::new(AcknowledgedBytes::left(9), 0);
        let mut looks = vec![wait.look_ms(&limits)];
        while wait.look(AcknowledgedBytes::left(9), &limits, looks[looks.len() - 1]) {
            looks.push(wait.look_ms(&limits));
        }
        looks
    }

    #[test]
    fn who_takes_nothing_is_looked_at_less_and_less_until_its_time_is_over() {
        assert_eq!(looks(300), [64, 128, 192, 256, 300]);
        // None of eight looks may meet a probe on its way.
        assert!(
            looks(1000)
                .windows(2)
                .all(|two| two[1] - two[0] <= 1000 / FIRST_OF)
        );
        assert_eq!(looks(0), [0]);
        let long = looks(30_000);
        assert_eq!(long[..6], [64, 192, 448, 960, 1984, 3008]);
        assert_eq!(long.last(), Some(&30_000));
        assert!(long.len() < 40);
    }

    #[test]
    fn a_reply_has_its_time_from_the_first_look_on_and_from_each_that_finds_less() {
        let limits = limits(800);
        let mut slow = Acknowledgement::of_wait(1_000, 800);
        assert_eq!(slow.look_ms(&limits), 1_100);
        // The buffer holds what a slow peer takes in five times as long as it has.
        for (left, now_ms) in [(9_000, 1_100), (7_000, 1_899), (1_000, 2_698), (999, 3_497)] {
            assert!(
                slow.look(AcknowledgedBytes::left(left), &limits, now_ms),
                "{left}"
            );
        }
        assert!(
            slow.look(AcknowledgedBytes::left(999), &limits, 4_296)
                && !slow.look(AcknowledgedBytes::left(999), &limits, 4_297)
        );
        let mut dead = Acknowledgement::of_wait(1_000, 800);
        assert!(
            dead.look(AcknowledgedBytes::left(9_000), &limits, 1_100)
                && dead.look(AcknowledgedBytes::left(9_000), &limits, 1_899)
        );
        assert!(!dead.look(AcknowledgedBytes::left(9_000), &limits, 1_900));
        // If the kernel does not report it, the last send counts.
        let mut untold = Acknowledgement::of_wait(1_000, 800);
        assert!(untold.look(AcknowledgedBytes::left(usize::MAX), &limits, 1_799));
        assert!(!untold.look(AcknowledgedBytes::left(usize::MAX), &limits, 1_800));
    }

    #[test]
    fn who_takes_something_has_its_time_anew() {
        let limits = limits(300);
        let mut wait = Acknowledgement::new(AcknowledgedBytes::left(9), 0);
        assert!(wait.look(AcknowledgedBytes::left(8), &limits, 290));
        assert_eq!(wait.look_ms(&limits), 290 + TICK_MS);
        assert!(wait.look(AcknowledgedBytes::left(8), &limits, 589));
        assert_eq!(wait.look_ms(&limits), 590);
        assert!(!wait.look(AcknowledgedBytes::left(8), &limits, 590));
    }

    #[test]
    fn a_socket_that_is_refilled_has_moved_if_more_is_acknowledged() {
        let limits = limits(300);
        let full = |acknowledged| AcknowledgedBytes {
            acknowledged,
            ..AcknowledgedBytes::left(9)
        };
        let mut wait = Acknowledgement::new(full(1), 0);
        assert!(wait.look(full(2), &limits, 290) && wait.look(full(3), &limits, 580));
        // Less is left, because the reply is over, and nothing has come.
        let less = AcknowledgedBytes { left: 8, ..full(3) };
        assert!(wait.look(less, &limits, 879) && !wait.look(less, &limits, 880));
    }

    #[test]
    fn whose_kernel_answers_is_slow_and_not_dead() {
        let limits = limits(300);
        let answered = AcknowledgedBytes {
            is_answered: true,
            ..AcknowledgedBytes::left(9)
        };
        let mut slow = Acknowledgement::new(AcknowledgedBytes::left(9), 0);
        for now_ms in (0..6_000).step_by(150) {
            assert!(slow.look(answered, &limits, now_ms), "{now_ms}");
        }
        // The hard limit: not a byte in twenty times as long.
        assert!(!slow.look(answered, &limits, 6_000));
        // A peer that dies meanwhile has as long as any other from its last answer on.
        let mut dies = Acknowledgement::new(AcknowledgedBytes::left(9), 0);
        assert!(dies.look(answered, &limits, 290));
        assert!(dies.look(AcknowledgedBytes::left(9), &limits, 589));
        assert_eq!(dies.look_ms(&limits), 590);
        assert!(!dies.look(AcknowledgedBytes::left(9), &limits, 590));
        // Bytes that it takes count for both limits.
        assert!(slow.look(AcknowledgedBytes::left(8), &limits, 6_001));
        assert!(slow.look(
            AcknowledgedBytes {
                left: 8,
                ..answered
            },
            &limits,
            11_999
        ));
    }
}
