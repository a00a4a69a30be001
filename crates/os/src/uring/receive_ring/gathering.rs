//! Whether a receiver that sleeps lets packets gather before it wakes up.

use super::RUN;
use std::mem;

/// From this number of datagrams a call, there is traffic, and a wait of
/// [`GATHERING`](super::GATHERING) is no delay that matters.
const MANY: usize = 8;
/// How many sleeps let packets gather before a plain sleep checks whether that still helps.
const GATHERINGS: u32 = 15;

/// Whether a sleep lets packets gather.
///
/// Each wake-up also costs the CPU that delivers. If that is another CPU, it is the scarce one. If
/// it is this one, packets gather by themselves, because the receiver is woken only after the
/// delivery; then the timer would only cost. For an unconnected socket, only the number of packets
/// after a plain sleep shows which CPU delivers.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Datagrams of the last call that brought any, if no sleep came after it.
    last: usize,
    /// Datagrams that the last sleep brought which ended with the first of them.
    plain: usize,
    /// Sleeps since that one.
    gathered: u32,
    /// True until a call brings what a sleep let come.
    slept: bool,
}

impl Gathering {
    /// A sleep begins; true if it is to let packets gather.
    pub(super) fn begin(&mut self) -> bool {
        let last = mem::take(&mut self.last);
        let gathers = last >= MANY && self.plain < RUN && self.gathered < GATHERINGS;
        self.gathered = if gathers { self.gathered + 1 } else { 0 };
        self.slept = true;
        gathers
    }

    /// A call brought this many datagrams.
    pub(super) fn brought(&mut self, datagrams: usize) {
        self.last = datagrams;
        // Datagrams that come without a sleep were left by an earlier one, and say nothing about
        // it.
        if mem::take(&mut self.slept) && self.gathered == 0 {
            self.plain = datagrams;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_gather_only_where_they_do_not_by_themselves() {
        let mut gathering = Gathering::default();
        // A receiver in forty sleeps. Each brings `plain` or `gathered` datagrams.
        let mut sleeps = |plain: usize, gathered: usize| -> Vec<bool> {
            let sleep = |_| {
                let gathers = gathering.begin();
                gathering.brought(if gathers { gathered } else { plain });
                gathers
            };
            (0..40).map(sleep).collect()
        };
        let gathers = |sleeps: Vec<bool>| sleeps.iter().filter(|gathers| **gathers).count();
        assert_eq!(gathers(sleeps(1, 1)), 0);
        assert_eq!(gathers(sleeps(MANY - 1, MANY - 1)), 0);
        // One in sixteen looks whether that is still so; the first one knew of no traffic.
        let often = sleeps(MANY, 2 * MANY);
        assert_eq!(often[..2], [false, true]);
        assert_eq!(gathers(often), 37);
        // When whole runs come anyhow, the next look finds it out, and it stays so.
        assert!(gathers(sleeps(RUN, RUN)) < 16);
        assert_eq!(gathers(sleeps(RUN, RUN)), 0);
        // A sleep in vain ends it.
        assert!(gathers(sleeps(MANY, MANY)) > 30);
        gathering.begin();
        assert!(!gathering.begin());
    }

    #[test]
    fn what_a_sleep_left_over_tells_nothing_of_sleeps() {
        let mut gathering = Gathering::default();
        assert!(!gathering.begin());
        gathering.brought(2 * RUN);
        gathering.brought(MANY);
        assert!(!gathering.begin());
    }
}
