//! The wait for a peer to acknowledge the last reply, before a RST that would throw it away.

use super::deadlines::TICK_MS;
use super::{Limits, duration_ms};

/// The longest time between two looks. It doubles from [`TICK_MS`] while nothing moves, so that
/// many slow clients cost little: what a client takes to acknowledge, or this if that is less, is
/// how late it may be seen. The kernel could tell at once (`SOF_TIMESTAMPING_TX_ACK`), but that
/// would have to be asked for before the reply is sent, and so for every connection, with a system
/// call and a packet's head each; most have acknowledged at the first look or the second.
const PAUSE_MS_MAX: u64 = 1024;

/// A connection that has sent everything, and whose peer has not got it yet. Nothing tells of an
/// acknowledgement: it is looked for again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    /// Bytes that the peer lacked at the last look.
    left: usize,
    /// When that last became less.
    moved_ms: u64,
    /// When to look again.
    look_ms: u64,
    pause_ms: u64,
}

impl Acknowledgement {
    /// The first look has found that the peer lacks so many bytes.
    pub(crate) fn new(left: usize, now_ms: u64) -> Self {
        Self {
            left,
            moved_ms: now_ms,
            look_ms: now_ms + TICK_MS,
            pause_ms: TICK_MS,
        }
    }

    /// A further look. False if the peer has taken nothing for longer than it may.
    pub(crate) fn look(&mut self, left: usize, limits: &Limits, now_ms: u64) -> bool {
        if left < self.left {
            self.moved_ms = now_ms;
            self.pause_ms = TICK_MS;
        } else if now_ms >= self.look_ms {
            self.pause_ms = (2 * self.pause_ms).min(PAUSE_MS_MAX);
        }
        self.left = left;
        self.look_ms = now_ms + self.pause_ms;
        now_ms < self.ends_ms(limits)
    }

    /// When to look again.
    pub(crate) fn look_ms(&self, limits: &Limits) -> u64 {
        self.look_ms.min(self.ends_ms(limits))
    }

    fn ends_ms(&self, limits: &Limits) -> u64 {
        self.moved_ms.saturating_add(duration_ms(limits.send_time))
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
        let mut wait = Acknowledgement::new(9, 0);
        let mut looks = vec![wait.look_ms(&limits)];
        while wait.look(9, &limits, looks[looks.len() - 1]) {
            looks.push(wait.look_ms(&limits));
        }
        looks
    }

    #[test]
    fn who_takes_nothing_is_looked_at_less_and_less_until_its_time_is_over() {
        assert_eq!(looks(300), [64, 192, 300]);
        assert_eq!(looks(0), [0]);
        let long = looks(30_000);
        assert_eq!(long[..6], [64, 192, 448, 960, 1984, 3008]);
        assert_eq!(long.last(), Some(&30_000));
        assert!(long.len() < 40);
    }

    #[test]
    fn who_takes_something_has_its_time_anew() {
        let limits = limits(300);
        let mut wait = Acknowledgement::new(9, 0);
        assert!(wait.look(8, &limits, 290));
        assert_eq!(wait.look_ms(&limits), 290 + TICK_MS);
        assert!(wait.look(8, &limits, 589));
        assert_eq!(wait.look_ms(&limits), 590);
        assert!(!wait.look(8, &limits, 590));
    }
}
