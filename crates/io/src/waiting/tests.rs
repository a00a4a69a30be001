//! The loop against a kernel whose clock and packets are made up.

use super::*;
use std::cell::Cell;
use std::collections::VecDeque;

/// The price of a look, of being woken, and of asking for the time.
const LOOK_NS: u64 = 300;
const WAKE_NS: u64 = 3_000;
const CLOCK_NS: u64 = 100;
/// The longest poll: the look before the window, those in it, and the look before the sleep. The
/// last look in the window may begin just before its end.
const LONGEST_NS: u64 = LOOK_NS + 200_000 + LOOK_NS + LOOK_NS + 4 * CLOCK_NS;
const SECOND: Duration = Duration::from_secs(1);

/// A receiver whose packets come at fixed times.
#[derive(Default)]
struct Scripted {
    waiting: ReceiverWait,
    now_ns: Cell<u64>,
    arrivals: VecDeque<u64>,
    /// How much later the sender is than that, and how much later each sleep makes it: it has to wake
    /// the receiver.
    late_ns: u64,
    wake_costs_sender_ns: u64,
    /// True if the sender needs this CPU: nothing comes but while the receiver sleeps, and then so
    /// many.
    shared: Option<u64>,
    counters: RxCounters,
    /// The most that a look takes; 0 is all.
    batch: usize,
    sleeps: u64,
    /// The last look did, and nothing was done since.
    found_nothing: bool,
    polled_ns: u64,
    /// When the present poll began.
    polls_since: Option<u64>,
    longest_poll_ns: u64,
    signals: u32,
    /// Sleeps that end without a packet.
    false_wakes: u32,
    woken_for_nothing: u32,
    given_up: u32,
    has_call: bool,
}

impl Scripted {
    fn new(gaps: impl IntoIterator<Item = u64>) -> Self {
        let mut at = 0;
        let arrivals = gaps.into_iter().map(|gap| {
            at += gap;
            at
        });
        Self {
            arrivals: arrivals.collect(),
            ..Self::default()
        }
    }

    fn pass(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
    }

    fn is_there(&self) -> bool {
        self.next_ns().is_some_and(|at| at <= self.now_ns.get())
    }

    fn next_ns(&self) -> Option<u64> {
        Some(self.arrivals.front()? + self.late_ns)
    }

    /// How long it takes to receive all that comes.
    fn takes_ns(mut self, wait: Wait) -> u64 {
        while !self.arrivals.is_empty() {
            until(&mut self, wait).unwrap();
        }
        self.now_ns.get()
    }

    /// Receives what comes next; a poll begins with it, if there is one.
    fn next(&mut self, wait: Wait) -> bool {
        self.polls_since = Some(self.now_ns.get());
        until(self, wait).unwrap()
    }

    /// Receives all that comes.
    fn run(&mut self, wait: Wait) {
        while self.next(wait) {}
    }

    /// Receives dense traffic until it polls, whose sender a sleep slows.
    fn dense(gap: u64) -> Self {
        let mut scripted = Self::new((0..200_000).map(|_| gap));
        scripted.wake_costs_sender_ns = 1_500;
        while scripted.waiting.polls().found < 10_000 || !scripted.waiting.adaptive.is_polling() {
            assert!(!scripted.arrivals.is_empty(), "it never polls");
            scripted.next(Wait::Auto(SECOND));
        }
        scripted.arrivals.clear();
        scripted.late_ns = 0;
        scripted
    }

    /// Packets come after these gaps from now on.
    fn then(&mut self, gaps: impl IntoIterator<Item = u64>) {
        let mut at = self.now_ns.get();
        self.arrivals.extend(gaps.into_iter().map(|gap| {
            at += gap;
            at
        }));
    }

    fn batch(&self) -> usize {
        match self.batch {
            0 => usize::MAX,
            batch => batch,
        }
    }

    fn slumber(&mut self, time: Duration) -> bool {
        self.sleeps += 1;
        if self.false_wakes > 0 {
            self.false_wakes -= 1;
            self.pass(WAKE_NS);
            return true;
        }
        let end = after(self.now_ns.get(), time);
        if let Some(packets) = self.shared {
            let now = self.now_ns.get();
            self.arrivals.extend((0..packets).map(|_| now));
        }
        let until = self.next_ns().map_or(end, |at| at.min(end));
        self.now_ns.set(until.max(self.now_ns.get()) + WAKE_NS);
        self.late_ns += self.wake_costs_sender_ns;
        until < end
    }
}

impl Awaited for Scripted {
    fn state(&mut self) -> (&mut ReceiverWait, &RxCounters, usize) {
        let batch = self.batch();
        (&mut self.waiting, &self.counters, batch)
    }

    fn look(&mut self) -> io::Result<bool> {
        let begun = self.now_ns.get();
        self.pass(LOOK_NS);
        if self.signals > 0 {
            self.signals -= 1;
            return Err(io::ErrorKind::Interrupted.into());
        }
        let since = self.polls_since.unwrap_or(begun);
        self.longest_poll_ns = self.longest_poll_ns.max(self.now_ns.get() - since);
        let mut taken = 0;
        while self.is_there() && taken < self.batch() {
            self.arrivals.pop_front();
            taken += 1;
            self.pass(LOOK_NS);
        }
        self.counters.datagrams += taken as u64;
        self.counters.buffers += taken as u64;
        self.found_nothing = taken == 0;
        if taken == 0 {
            self.polled_ns += LOOK_NS;
        }
        Ok(taken > 0)
    }

    fn look_for(&mut self, time: Duration) -> Option<io::Result<bool>> {
        if !self.has_call {
            return None;
        }
        if !self.is_there() {
            self.slumber(time);
        }
        self.polls_since = None;
        Some(self.look())
    }

    fn sleep(&mut self, _: &mut Waiter, _: Sleep, time: Duration) -> io::Result<bool> {
        // Packets that came after the last look, which found nothing, wake it at once.
        assert!(
            std::mem::take(&mut self.found_nothing),
            "it sleeps and has not looked"
        );
        let is_woken = self.is_there() || self.slumber(time);
        self.polls_since = None;
        Ok(is_woken)
    }

    fn woken_for_nothing(&mut self) -> io::Result<()> {
        self.woken_for_nothing += 1;
        Ok(())
    }

    fn give_up(&mut self) -> io::Result<()> {
        self.given_up += 1;
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.pass(CLOCK_NS);
        self.now_ns.get()
    }
}

#[test]
fn every_way_finds_everything_and_then_gives_up() {
    let ways = [
        Wait::Block(SECOND),
        Wait::Auto(SECOND),
        Wait::Epoll(SECOND),
        Wait::Spin(Duration::from_millis(1)),
    ];
    for wait in ways {
        for has_call in [false, true] {
            let mut scripted = Scripted::new((0..500).map(|packet| 100 + packet * 97 % 90_000));
            scripted.has_call = has_call;
            scripted.run(wait);
            assert_eq!(scripted.counters.datagrams, 500, "{wait:?}");
            let spins = matches!(wait, Wait::Spin(_));
            assert_eq!(scripted.sleeps == 0, spins, "{wait:?}");
        }
    }
}

/// A wait lasts as long as asked, and little longer, however often it is woken for nothing. The
/// receiver gets a call at each such wake, and at the end.
#[test]
fn a_wait_ends_with_its_time() {
    for wait in [Wait::Block, Wait::Auto, Wait::Epoll] {
        for false_wakes in [0, 1, 5] {
            let mut scripted = Scripted::new([]);
            scripted.false_wakes = false_wakes;
            assert!(!until(&mut scripted, wait(SECOND)).unwrap());
            assert_eq!(scripted.woken_for_nothing, false_wakes);
            assert_eq!(
                (scripted.given_up, scripted.sleeps),
                (1, u64::from(false_wakes) + 1)
            );
            let (took, told) = (scripted.now_ns.get(), 1_000_000_000);
            assert!(
                took >= told && took < told + 2 * (WAKE_NS + LOOK_NS),
                "{took}"
            );
        }
    }
    let mut scripted = Scripted::new([]);
    assert!(!until(&mut scripted, Wait::Spin(SECOND)).unwrap());
    assert_eq!((scripted.given_up, scripted.sleeps), (1, 0));
    assert!(scripted.now_ns.get() < 1_000_000_000 + 2 * LOOK_NS);
}

/// Polls that were cut short by the time of the wait say nothing of others.
#[test]
fn short_waits_do_not_count_as_polls_in_vain() {
    let mut scripted = Scripted::dense(1_500);
    let (polled_ns, sleeps) = (scripted.polled_ns, scripted.sleeps);
    for _ in 0..1_000 {
        assert!(!scripted.next(Wait::Auto(Duration::from_nanos(1))));
    }
    assert_eq!(scripted.waiting.polls().missed, 0);
    // Each looks before its short rest, after it, and before it gives up.
    let looks = (scripted.polled_ns - polled_ns) / LOOK_NS;
    assert!(looks >= 2_900 && scripted.sleeps == sleeps, "{looks} looks");
}

#[test]
fn a_poll_looks_once_and_a_signal_ends_a_wait() {
    let mut scripted = Scripted::new([10_000]);
    assert!(!until(&mut scripted, Wait::Poll).unwrap());
    assert_eq!(scripted.now_ns.get(), LOOK_NS);
    scripted.signals = 1;
    assert!(!until(&mut scripted, Wait::Spin(SECOND)).unwrap());
    assert!(until(&mut scripted, Wait::Spin(SECOND)).unwrap());
}

#[test]
fn a_time_beyond_the_clock_is_as_long_as_it_gets() {
    for wait in [Wait::Block, Wait::Auto, Wait::Spin, Wait::Epoll] {
        let mut scripted = Scripted::new([10_000]);
        assert!(until(&mut scripted, wait(Duration::MAX)).unwrap());
    }
}

#[test]
fn where_sleeping_slows_the_sender_dense_traffic_is_polled_for() {
    for has_call in [false, true] {
        let mut scripted = Scripted::new((0..1_000_000).map(|_| 1_500));
        (scripted.has_call, scripted.wake_costs_sender_ns) = (has_call, 1_500);
        scripted.run(Wait::Auto(SECOND));
        assert_eq!(scripted.counters.datagrams, 1_000_000);
        // A lap before the first trial, three in each of three: at most a sleep for each of 4096 packets.
        assert!(scripted.sleeps < 11 * 4_200, "{} sleeps", scripted.sleeps);
        let polls = scripted.waiting.polls();
        assert!(polls.found > 100_000 && polls.changes < 20, "{polls:?}");
        assert!(scripted.longest_poll_ns <= LONGEST_NS);
    }
}

/// A poll finds more than one packet after a rest.
#[test]
fn a_poll_rests_so_that_several_come_at_a_time() {
    let mut scripted = Scripted::new((0..1_000_000).map(|_| 1_000));
    scripted.wake_costs_sender_ns = 1_500;
    scripted.run(Wait::Auto(SECOND));
    let polls = scripted.waiting.polls();
    assert!(polls.found > 100_000, "{polls:?}");
    assert!(polls.found * 4 < scripted.counters.datagrams, "{polls:?}");
}

/// Polling would find all of it, and bring nothing that sleeping does not.
#[test]
fn where_sleeping_slows_nobody_dense_traffic_is_slept_for() {
    let mut scripted = Scripted::new((0..1_000_000).map(|_| 2_000));
    scripted.run(Wait::Auto(SECOND));
    assert_eq!(scripted.counters.datagrams, 1_000_000);
    let polls = scripted.waiting.polls();
    assert!(polls.changes >= 4, "it is never tried: {polls:?}");
    // Two laps of 4096 packets in a second.
    assert!(polls.found < 8 * 4_200, "{polls:?}");
}

/// Whichever way is faster, the receiver that decides for itself is nearly as fast, whatever a sleep
/// costs the sender.
#[test]
fn it_is_about_as_fast_as_the_faster_way() {
    for gap in [500, 1_000, 2_000] {
        for cost in [0, 200, 2_000] {
            let takes = |wait| {
                let mut scripted = Scripted::new((0..300_000_000 / gap).map(|_| gap));
                scripted.wake_costs_sender_ns = cost;
                scripted.takes_ns(wait)
            };
            let fastest = takes(Wait::Spin(SECOND)).min(takes(Wait::Block(SECOND)));
            let auto = takes(Wait::Auto(SECOND));
            // It ignores gains below the noise, and trials have their price.
            assert!(
                auto * 100 < fastest * 112,
                "gap {gap}, cost {cost}: {auto} and {fastest}"
            );
        }
    }
}

#[test]
fn thin_traffic_is_slept_for() {
    let mut scripted = Scripted::new((0..10_000).map(|_| 20_000));
    scripted.has_call = true;
    scripted.run(Wait::Auto(SECOND));
    assert_eq!(
        (scripted.counters.datagrams, scripted.sleeps),
        (10_000, 10_001)
    );
    assert_eq!(scripted.waiting.polls(), RxPolls::default());
}

#[test]
fn where_the_sender_needs_the_cpu_polls_soon_become_rare() {
    let mut scripted = Scripted::new([]);
    (scripted.shared, scripted.has_call) = (Some(8), true);
    for _ in 0..100_000 {
        assert!(until(&mut scripted, Wait::Auto(SECOND)).unwrap());
    }
    let (all, polled) = (scripted.now_ns.get(), scripted.polled_ns);
    assert!(polled > 0, "it is never tried");
    assert!(polled * 50 < all, "{polled} ns of {all}");
}

#[test]
fn after_a_time_of_failures_dense_traffic_is_polled_for_again() {
    let mut scripted = Scripted::new([]);
    scripted.shared = Some(8);
    for _ in 0..100_000 {
        assert!(until(&mut scripted, Wait::Auto(SECOND)).unwrap());
    }
    scripted.shared = None;
    scripted.wake_costs_sender_ns = 1_500;
    let now = scripted.now_ns.get();
    scripted
        .arrivals
        .extend((1..700_000).map(|packet| now + packet * 1_500));
    scripted.sleeps = 0;
    scripted.run(Wait::Auto(SECOND));
    // A second of sleeps, 3 µs each, and the trial.
    assert!(scripted.sleeps < 360_000, "{} sleeps", scripted.sleeps);
    assert!(scripted.waiting.polls().found > 50_000);
}

/// It still knows the traffic after a pause, and does not try again.
#[test]
fn a_pause_of_the_traffic_is_no_reason_to_compare_again() {
    let mut scripted = Scripted::dense(1_500);
    let burst = || std::iter::once(100_000_000).chain((0..20_000).map(|_| 1_500));
    scripted.then(burst().chain(burst()));
    let (before, polls) = (scripted.counters.datagrams, scripted.waiting.polls());
    scripted.run(Wait::Auto(SECOND));
    assert_eq!(scripted.counters.datagrams - before, 40_002);
    let now = scripted.waiting.polls();
    assert!(now.found > polls.found + 2_000, "{now:?}");
    // Off and on for each pause, and off at the end.
    assert!(now.changes <= polls.changes + 6, "{polls:?} {now:?}");
}

/// A sender is held up for a moment, again and again: no sleep, and nothing that a sleep does.
#[test]
fn a_short_pause_of_a_flood_is_polled_through() {
    let mut scripted = Scripted::dense(1_500);
    let burst = || std::iter::once(150_000).chain((0..2_000).map(|_| 1_500));
    scripted.then((0..10).flat_map(|_| burst()));
    let (sleeps, missed) = (scripted.sleeps, scripted.waiting.polls().missed);
    while !scripted.arrivals.is_empty() {
        assert!(scripted.next(Wait::Auto(SECOND)));
    }
    let now = (scripted.sleeps, scripted.waiting.polls().missed);
    assert_eq!(now, (sleeps, missed));
}

/// The time of polling is part of the wait.
#[test]
fn a_wait_is_no_longer_than_its_time() {
    for micros in [1, 100, 200, 1_000] {
        let mut scripted = Scripted::dense(1_500);
        let began = scripted.now_ns.get();
        assert!(!scripted.next(Wait::Auto(Duration::from_micros(micros))));
        let took = scripted.now_ns.get() - began;
        // The looks at both ends, and the way out of the sleep.
        let most = micros * 1_000 + 4 * LOOK_NS + 8 * CLOCK_NS + WAKE_NS;
        assert!(took <= most, "{took} ns, {micros} us");
        let missed = scripted.waiting.polls().missed;
        assert_eq!(missed, u64::from(micros >= 50), "{micros} us");
    }
}

/// A receiver with a small batch takes all packets that are there before it rests.
#[test]
fn a_full_batch_is_no_reason_to_rest() {
    let mut scripted = Scripted::dense(1_500);
    scripted.batch = 4;
    scripted.then([0; 4_000]);
    let (now, found) = (scripted.now_ns.get(), scripted.waiting.polls().found);
    for _ in 0..1_000 {
        assert!(scripted.next(Wait::Auto(SECOND)));
    }
    assert_eq!(scripted.waiting.polls().found, found);
    // A look and four packets each, and of every 16th wait the time.
    let took = scripted.now_ns.get() - now;
    assert!(took < 1_000 * (5 * LOOK_NS + CLOCK_NS), "{took} ns");
}

proptest::proptest! {
    /// A polling receiver receives every packet, and no poll is longer than the window and one more
    /// look.
    #[test]
    fn no_poll_is_longer_than_its_bound(
        gaps in proptest::collection::vec(0_u64..400_000, 1..2_000),
        dense in 1_u64..100,
        has_call in proptest::prelude::any::<bool>(),
        batch in 0_usize..40,
    ) {
        let packets = gaps.len() as u64;
        let mut scripted = Scripted::dense(1_500);
        let before = scripted.counters.datagrams;
        (scripted.has_call, scripted.batch) = (has_call, batch);
        scripted.then(gaps.into_iter().map(|gap| gap / dense));
        scripted.run(Wait::Auto(SECOND));
        proptest::prop_assert_eq!(scripted.counters.datagrams - before, packets);
        proptest::prop_assert!(scripted.longest_poll_ns <= LONGEST_NS);
    }
}
