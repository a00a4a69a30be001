//! Loss, duplicates, reordering and one-way delay of each flow, by the stamps alone.

use crate::{Stamp, StampKind};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt;

/// Sequence numbers remembered below the highest one of a flow. A datagram that comes later than
/// that cannot be told to be late or a duplicate, and is counted as `too_late`.
const WINDOW: u64 = 4096;
/// Flows with a delay histogram (10 KiB each); the others have none, so that the memory of a
/// receiver stays flat whatever it is sent.
const HISTOGRAMS_MAX: usize = 256;
/// Flows that are followed (0.6 KiB each); datagrams of others are counted as untracked.
const FLOWS_MAX: usize = 8192;

/// Which flow: the run of a sending thread, the thread, and its flow number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Run of the sending thread, a random number.
    pub run: u8,
    /// Sending thread.
    pub sender: u8,
    /// Flow of that thread.
    pub flow: u16,
}

/// What one receiving thread saw of one flow.
#[derive(Clone)]
struct Flow {
    report: FlowReport,
    /// One bit for each of the `WINDOW` sequence numbers below `next`, by number modulo `WINDOW`.
    seen: Box<[u64; (WINDOW / 64) as usize]>,
    /// One more than the highest sequence number seen.
    next: u64,
    is_timed: bool,
}

/// What was seen of one flow, by all threads together after [`FlowReport::merge`].
#[derive(Debug, Clone)]
pub struct FlowReport {
    /// Datagrams received, duplicates included.
    pub received: u64,
    /// Datagrams whose sequence number had been seen before.
    pub duplicates: u64,
    /// Datagrams that came after one with a higher number (RFC 4737, type-P-reordered), on the
    /// thread that received them.
    pub reordered: u64,
    /// Datagrams more than 4096 numbers behind: late or duplicates, nobody knows.
    pub too_late: u64,
    /// The lowest sequence number seen.
    pub first: u64,
    /// One more than the highest sequence number seen.
    pub next: u64,
    /// How many datagrams the sender offered, once an end marker came.
    pub offered: Option<u64>,
    /// End markers received; they are in none of the other counts.
    pub end_markers: u64,
    /// One-way delay in nanoseconds, 1 % wide buckets; empty for flows beyond the 256th.
    pub delay_ns: Histogram<u32>,
}

impl FlowReport {
    fn new() -> Self {
        Self {
            received: 0,
            duplicates: 0,
            reordered: 0,
            too_late: 0,
            first: u64::MAX,
            next: 0,
            offered: None,
            end_markers: 0,
            delay_ns: delay_histogram(),
        }
    }

    /// Datagrams that were offered and never came, counted from sequence number 0: against the
    /// end marker if it came, else against the highest number seen.
    pub fn lost(&self) -> u64 {
        self.lost_of(1)
    }

    /// The same where each datagram was to be delivered so many times, as multicast to several
    /// sockets is.
    pub fn lost_of(&self, copies: u64) -> u64 {
        let offered = self.offered.unwrap_or(self.next).max(self.next);
        let distinct = self.received - self.duplicates;
        offered.saturating_mul(copies).saturating_sub(distinct)
    }

    /// Adds what another thread saw of the same flow. A duplicate that came to another thread than
    /// its twin is not seen as one.
    pub fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.too_late += other.too_late;
        self.first = self.first.min(other.first);
        self.next = self.next.max(other.next);
        self.offered = self.offered.max(other.offered);
        self.end_markers += other.end_markers;
        // Both histograms have the same bounds, so nothing can fail to fit.
        let _ = self.delay_ns.add(&other.delay_ns);
    }
}

/// Follows the flows that one thread receives.
///
/// ```
/// use mpps_io::{FlowTable, Stamp, StampKind};
///
/// let mut flows = FlowTable::new();
/// for sequence in [0, 1, 3, 2, 7] {
///     let mut payload = [0; 32];
///     let time_ns = Stamp::now_ns();
///     let kind = StampKind::Data;
///     Stamp { kind, sender: 0, flow: 0, run: 9, sequence, time_ns }.write(&mut payload);
///     flows.record(&payload, Stamp::now_ns());
/// }
/// let (_, report) = flows.reports().next().unwrap();
/// assert_eq!((report.received, report.reordered, report.lost()), (5, 1, 3));
/// ```
#[derive(Default)]
pub struct FlowTable {
    flows: Vec<Flow>,
    index: BTreeMap<FlowKey, usize>,
    last: Option<(FlowKey, usize)>,
    /// Datagrams of flows beyond the 8192nd.
    untracked: u64,
    /// Datagrams without a stamp.
    unstamped: u64,
    end_markers: u64,
}

impl FlowTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes one datagram, received at `now_ns` ([`Stamp::now_ns`]).
    #[inline]
    pub fn record(&mut self, payload: &[u8], now_ns: u64) {
        let Some(stamp) = Stamp::read(payload) else {
            self.unstamped += 1;
            return;
        };
        let key = FlowKey {
            run: stamp.run,
            sender: stamp.sender,
            flow: stamp.flow,
        };
        let at = match self.last {
            Some((last, at)) if last == key => at,
            _ => match self.find(key) {
                Some(at) => at,
                None => {
                    self.untracked += 1;
                    return;
                }
            },
        };
        self.last = Some((key, at));
        let flow = &mut self.flows[at];
        if stamp.kind == StampKind::End {
            flow.report.offered = Some(stamp.sequence);
            flow.report.end_markers += 1;
            self.end_markers += 1;
            return;
        }
        flow.see(stamp.sequence);
        if flow.is_timed {
            let delay = stamp.age_ns(now_ns);
            flow.report.delay_ns.saturating_record(delay);
        }
    }

    /// Datagrams that carried no stamp.
    pub fn unstamped(&self) -> u64 {
        self.unstamped
    }

    /// Datagrams of flows that were too many to follow.
    pub fn untracked(&self) -> u64 {
        self.untracked
    }

    /// End markers, which are datagrams too.
    pub fn end_markers(&self) -> u64 {
        self.end_markers
    }

    /// What was seen of each flow.
    pub fn reports(&self) -> impl Iterator<Item = (FlowKey, &FlowReport)> {
        self.index
            .iter()
            .map(|(key, at)| (*key, &self.flows[*at].report))
    }

    fn find(&mut self, key: FlowKey) -> Option<usize> {
        if let Some(at) = self.index.get(&key) {
            return Some(*at);
        }
        if self.flows.len() >= FLOWS_MAX {
            return None;
        }
        let mut report = FlowReport::new();
        let is_timed = self.flows.len() < HISTOGRAMS_MAX;
        if !is_timed {
            // The smallest histogram there is: it stays empty.
            report.delay_ns =
                Histogram::new_with_bounds(1, 2, 0).unwrap_or_else(|_| delay_histogram());
        }
        self.flows.push(Flow {
            report,
            seen: Box::new([0; 64]),
            next: 0,
            is_timed,
        });
        self.index.insert(key, self.flows.len() - 1);
        Some(self.flows.len() - 1)
    }
}

impl fmt::Debug for FlowTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowTable")
            .field("flows", &self.flows.len())
            .field("untracked", &self.untracked)
            .field("unstamped", &self.unstamped)
            .finish_non_exhaustive()
    }
}

impl Flow {
    #[inline]
    fn see(&mut self, sequence: u64) {
        let report = &mut self.report;
        report.received += 1;
        report.first = report.first.min(sequence);
        if sequence >= self.next {
            // Numbers that fall into the window now have not been seen.
            if sequence - self.next >= WINDOW {
                self.seen.fill(0);
            } else {
                for skipped in self.next..sequence {
                    clear(&mut self.seen, skipped);
                }
            }
            set(&mut self.seen, sequence);
            self.next = sequence + 1;
            report.next = self.next;
        } else if self.next - sequence > WINDOW {
            report.too_late += 1;
        } else if is_set(&self.seen, sequence) {
            report.duplicates += 1;
        } else {
            set(&mut self.seen, sequence);
            report.reordered += 1;
        }
    }
}

fn set(seen: &mut [u64; 64], sequence: u64) {
    seen[(sequence % WINDOW / 64) as usize] |= 1 << (sequence % 64);
}

fn clear(seen: &mut [u64; 64], sequence: u64) {
    seen[(sequence % WINDOW / 64) as usize] &= !(1 << (sequence % 64));
}

fn is_set(seen: &[u64; 64], sequence: u64) -> bool {
    seen[(sequence % WINDOW / 64) as usize] & 1 << (sequence % 64) != 0
}

/// 1 µs to 60 s, two significant digits: 1 % wide and 10 KiB.
fn delay_histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 2)
        .expect("the bounds are constants that the histogram accepts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn feed(table: &mut FlowTable, kind: StampKind, sequence: u64) {
        feed_flow(table, 2, kind, sequence);
    }

    fn feed_flow(table: &mut FlowTable, flow: u16, kind: StampKind, sequence: u64) {
        let mut payload = [0; 16];
        Stamp {
            kind,
            sender: 1,
            flow,
            run: 0,
            sequence,
            time_ns: 0,
        }
        .write(&mut payload);
        table.record(&payload, 5_000);
    }

    fn only(table: &FlowTable) -> FlowReport {
        table.reports().next().unwrap().1.clone()
    }

    #[test]
    fn tells_loss_duplicates_and_disorder_apart() {
        let mut table = FlowTable::new();
        for sequence in [0, 1, 3, 3, 2, 6] {
            feed(&mut table, StampKind::Data, sequence);
        }
        let report = only(&table);
        assert_eq!(
            (report.received, report.duplicates, report.reordered),
            (6, 1, 1)
        );
        assert_eq!(report.lost(), 2, "4 and 5");
        feed(&mut table, StampKind::End, 10);
        assert_eq!(only(&table).lost(), 5, "4, 5, 7, 8 and 9");
        assert_eq!(
            only(&table).delay_ns.len(),
            6,
            "the end marker is no datagram of the flow"
        );
    }

    #[test]
    fn memory_is_bounded_whatever_flows_come() {
        let mut table = FlowTable::new();
        for flow in 0..u16::MAX {
            feed_flow(&mut table, flow, StampKind::Data, 0);
        }
        assert_eq!(table.reports().count(), FLOWS_MAX);
        assert_eq!(table.untracked(), u64::from(u16::MAX) - FLOWS_MAX as u64);
        let timed = table.reports().filter(|(_, flow)| flow.delay_ns.len() == 1);
        assert_eq!(timed.count(), HISTOGRAMS_MAX);
    }

    #[test]
    fn flows_are_kept_apart_and_threads_added_up() {
        let (mut one, mut two) = (FlowTable::new(), FlowTable::new());
        for sequence in [5, 3, 3, 9000, 1] {
            feed(&mut one, StampKind::Data, sequence);
            feed_flow(&mut one, 7, StampKind::Data, 0);
        }
        feed(&mut one, StampKind::End, 9010);
        for sequence in [8999, 2, 8998, 8998, 8997, 3] {
            feed(&mut two, StampKind::Data, sequence);
        }
        for offered in [9008, 9009] {
            feed(&mut two, StampKind::End, offered);
        }
        two.record(b"no stamp", 5_000);
        two.record(b"none either", 5_000);
        assert_eq!(
            (one.unstamped(), one.end_markers(), one.untracked()),
            (0, 1, 0)
        );
        assert_eq!((two.unstamped(), two.end_markers()), (2, 2));
        let text = format!("{two:?}");
        assert_eq!(
            text,
            "FlowTable { flows: 1, untracked: 0, unstamped: 2, .. }"
        );

        let reports: Vec<_> = one
            .reports()
            .map(|(key, report)| (key.flow, report))
            .collect();
        let [(2, report), (7, other)] = *reports else {
            panic!("two flows: {reports:?}");
        };
        assert_eq!(
            (other.received, other.duplicates, other.lost_of(3)),
            (5, 4, 2)
        );
        let mut sum = report.clone();
        sum.merge(&only(&two));
        let counts = |report: &FlowReport| {
            let FlowReport {
                received,
                duplicates,
                reordered,
                too_late,
                ..
            } = report;
            [
                *received,
                *duplicates,
                *reordered,
                *too_late,
                report.end_markers,
            ]
        };
        assert_eq!(counts(report), [5, 1, 1, 1, 1]);
        assert_eq!(counts(&only(&two)), [6, 1, 2, 2, 2]);
        assert_eq!(counts(&sum), [11, 2, 3, 3, 3]);
        assert_eq!((sum.first, sum.next, sum.offered), (1, 9001, Some(9010)));
        assert_eq!(
            (sum.delay_ns.len(), sum.lost(), sum.lost_of(2)),
            (11, 9001, 18_011)
        );
    }

    /// How far from the highest number so far, mostly little, and about one window at times.
    fn step() -> impl Strategy<Value = i64> {
        let window = WINDOW as i64;
        prop_oneof![
            8 => -20_i64..20,
            2 => -80_i64..200,
            1 => -window - 3..-window + 4,
            1 => window - 3..window + 4,
            1 => -2 * window..3 * window,
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_model(steps in proptest::collection::vec(step(), 1..400)) {
            let mut table = FlowTable::new();
            let (mut seen, mut duplicates, mut reordered, mut late) = (BTreeSet::new(), 0, 0, 0);
            for step in &steps {
                let next = seen.last().map_or(0, |highest| highest + 1_u64);
                let sequence = next.saturating_add_signed(*step);
                feed(&mut table, StampKind::Data, sequence);
                if sequence + WINDOW < next {
                    late += 1;
                } else if !seen.insert(sequence) {
                    duplicates += 1;
                } else if sequence < next {
                    reordered += 1;
                }
            }
            let report = only(&table);
            prop_assert_eq!(report.duplicates, duplicates);
            prop_assert_eq!(report.reordered, reordered);
            prop_assert_eq!(report.too_late, late);
            let missing = seen.last().unwrap() + 1 - seen.len() as u64;
            prop_assert_eq!(report.lost(), missing.saturating_sub(late));
        }
    }
}
