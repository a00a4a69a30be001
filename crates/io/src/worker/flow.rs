//! Loss, duplicates, reordering and one-way delay of each flow, computed only from the stamps.

mod numbers;

use self::numbers::{Novelty, Numbers};
use crate::stamp::{GROUP_BIT, RUN_MIN};
use crate::{Stamp, StampKind};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Pages of sequence numbers that a thread remembers, of all flows together, besides three of each
/// flow: 134 million numbers in 16 MiB. If a flow has more, the lowest are forgotten. A datagram
/// that comes later than that may be late or a duplicate, and is counted as `too_late`.
const PAGES_MAX: usize = 1 << 15;
/// Different end markers of a flow, by their send times. A sender writes as many.
const END_MARKERS: usize = 3;
/// The longest delay that is taken for one, in nanoseconds: a minute.
const DELAY_MAX_NS: u64 = 60_000_000_000;
/// Flows with a delay histogram (10 KiB each); the others have none, so that the memory of a
/// receiver stays flat whatever it is sent.
const HISTOGRAMS_MAX: usize = 256;
/// Flows that are followed (0.7 KiB each or more); datagrams of others are counted as untracked.
const FLOWS_MAX: usize = 8192;

/// Which flow: the run of a sending thread, the thread, and its flow number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Run of the sending thread, a random number.
    pub run: u32,
    /// Sending thread.
    pub sender: u8,
    /// Flow of that thread.
    pub flow: u16,
}

impl FlowKey {
    /// Whether all sockets of a multicast group may get a copy each. A stamp of an older version does
    /// not show that.
    pub fn may_be_copied(&self) -> bool {
        self.run & GROUP_BIT != 0 || self.run < RUN_MIN
    }
}

/// One receiving thread's view of one flow.
#[derive(Clone)]
struct FlowWindow {
    report: FlowReport,
    is_timed: bool,
}

/// The report of one flow, by all threads together after [`FlowReport::merge`].
#[derive(Debug, Clone)]
pub struct FlowReport {
    /// Datagrams received, duplicates included.
    pub received: u64,
    /// Datagrams whose sequence number had been seen before, repeated end markers included.
    pub duplicates: u64,
    /// Datagrams that came after one with a higher number (RFC 4737, type-P-reordered), on the
    /// thread that received them.
    pub reordered: u64,
    /// Datagrams more than 134 million datagrams behind: each is late or a duplicate.
    /// [`FlowReport::decide`] says how many are undecided.
    pub too_late: u64,
    /// Datagrams whose sequence number another thread received as well: each is a duplicate, or one of
    /// several copies that were to come.
    pub across_threads: u64,
    /// The lowest sequence number seen; `u64::MAX` if none was.
    pub first: u64,
    /// One more than the highest sequence number seen.
    pub next: u64,
    /// How many datagrams the sender offered, once an end marker came.
    pub offered: Option<u64>,
    /// End markers received, a repeated one once; they are in none of the other counts.
    pub end_markers: u64,
    /// One-way delay in nanoseconds, 1 % wide buckets; empty for flows beyond the 256th. Without the
    /// datagrams that [`FlowReport::clocks_apart_ns`] is about.
    pub delay_ns: Histogram<u32>,
    /// How far the clocks of sender and receiver differ at least, in nanoseconds: some datagrams came
    /// before they were sent, or a minute after. 0 if none did.
    pub clocks_apart_ns: u64,
    numbers: Numbers,
    /// Datagrams that may be in `across_threads` too, at most: a thread had forgotten their numbers.
    forgotten_across: u64,
    /// The send times of the end markers that came, of each thread.
    ends: Vec<u64>,
}

/// The result of a flow's stamps, see [`FlowReport::decide`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowDecision {
    /// Datagrams that are not known to have come.
    pub lost: u64,
    /// The part of `lost` that may have come: this number of received datagrams are late ones or
    /// duplicates, and the stamps do not show which.
    pub undecided: u64,
    /// Datagrams that are duplicates for certain.
    pub duplicates: u64,
}

impl FlowReport {
    fn new() -> Self {
        Self {
            received: 0,
            duplicates: 0,
            reordered: 0,
            too_late: 0,
            across_threads: 0,
            first: u64::MAX,
            next: 0,
            offered: None,
            end_markers: 0,
            delay_ns: delay_histogram(),
            clocks_apart_ns: 0,
            numbers: Numbers::new(),
            forgotten_across: 0,
            ends: Vec::new(),
        }
    }

    /// How many end markers are different ones, where each was to be delivered `copies` times. A
    /// repeated one may have come to another thread.
    pub fn end_markers_once(&self, copies: u64) -> u64 {
        let different: BTreeSet<&u64> = self.ends.iter().collect();
        let most = (different.len() as u64).saturating_mul(copies);
        self.end_markers.min(most)
    }

    /// Decides by the stamps what was lost. Each datagram was to be delivered `copies` times, as
    /// multicast to several sockets is. The flow begins at sequence number 0. It ends at the end
    /// marker, or without one at the highest number seen.
    pub fn decide(&self, copies: u64) -> FlowDecision {
        let offered = self.offered.unwrap_or(self.next).max(self.next);
        let due = offered.saturating_mul(copies);
        // With multicast each thread has a copy of its own.
        let (again, forgotten) = match copies > 1 {
            true => (0, 0),
            false => (self.across_threads, self.forgotten_across),
        };
        let duplicates = self.duplicates.saturating_add(again);
        let arrived = self.received.saturating_sub(duplicates);
        let doubtful = self.too_late.saturating_add(forgotten).min(arrived);
        let lost = due.saturating_sub(arrived - doubtful);
        // Doubtful datagrams beyond the remaining holes fill none of them.
        let undecided = doubtful.min(lost);
        FlowDecision {
            lost,
            undecided,
            duplicates: duplicates + (doubtful - undecided),
        }
    }

    /// Datagrams that are not known to have come: [`FlowReport::decide`] for one copy.
    pub fn lost(&self) -> u64 {
        self.decide(1).lost
    }

    /// Adds what another thread saw of the same flow.
    pub fn merge(&mut self, other: &Self) {
        let shared = self.next.min(other.next);
        let shared = shared.saturating_sub(self.first.max(other.first));
        let (common, unknown) = self.numbers.merge(&other.numbers);
        self.across_threads += other.across_threads + common;
        self.forgotten_across += other.forgotten_across + unknown.min(shared);
        self.received += other.received;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.too_late += other.too_late;
        self.first = self.first.min(other.first);
        self.next = self.next.max(other.next);
        self.offered = self.offered.max(other.offered);
        self.end_markers += other.end_markers;
        self.clocks_apart_ns = self.clocks_apart_ns.max(other.clocks_apart_ns);
        self.ends.extend(&other.ends);
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
pub struct FlowTable {
    flows: Vec<FlowWindow>,
    index: BTreeMap<FlowKey, usize>,
    last: Option<(FlowKey, usize)>,
    /// Datagrams of flows beyond the 8192nd.
    untracked: u64,
    /// Datagrams without a stamp.
    unstamped: u64,
    end_markers: u64,
    /// Pages that it may still get.
    pages_free: usize,
}

impl Default for FlowTable {
    fn default() -> Self {
        Self {
            flows: Vec::new(),
            index: BTreeMap::new(),
            last: None,
            untracked: 0,
            unstamped: 0,
            end_markers: 0,
            pages_free: PAGES_MAX,
        }
    }
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
        let sequence = Stamp::unfold(stamp.sequence, flow.report.next);
        if stamp.kind == StampKind::End {
            self.end_markers += u64::from(flow.end(sequence, stamp.time_ns));
            return;
        }
        // A repeated datagram has no delay of its own.
        if flow.see(sequence, &mut self.pages_free) && flow.is_timed {
            flow.time(stamp.age_ns(now_ns));
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

    /// End markers, which are datagrams too; a repeated one is a duplicate of its flow.
    pub fn end_markers(&self) -> u64 {
        self.end_markers
    }

    /// The report of each flow.
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
        self.flows.push(FlowWindow { report, is_timed });
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

impl FlowWindow {
    /// True if it is the first of its number for certain.
    #[inline]
    fn see(&mut self, sequence: u64, pages_free: &mut usize) -> bool {
        let report = &mut self.report;
        report.received += 1;
        report.first = report.first.min(sequence);
        let novelty = report.numbers.enter(sequence, pages_free);
        match novelty {
            Novelty::Unknown => report.too_late += 1,
            Novelty::Again => report.duplicates += 1,
            Novelty::New if sequence < report.next => report.reordered += 1,
            Novelty::New => report.next = sequence.saturating_add(1),
        }
        novelty == Novelty::New
    }

    /// Notes an end marker. False if it came before: then it is a duplicate like any other.
    #[cold]
    fn end(&mut self, offered: u64, time_ns: u64) -> bool {
        let report = &mut self.report;
        if report.ends.len() >= END_MARKERS || report.ends.contains(&time_ns) {
            report.received += 1;
            report.duplicates += 1;
            return false;
        }
        report.ends.push(time_ns);
        report.offered = Some(offered);
        report.end_markers += 1;
        true
    }

    #[inline]
    fn time(&mut self, age_ns: i64) {
        let apart_ns = match u64::try_from(age_ns) {
            // A delay of 0 would be less than its bucket's name.
            Ok(delay) if delay <= DELAY_MAX_NS => {
                return self.report.delay_ns.saturating_record(delay.max(1));
            }
            Ok(delay) => delay - DELAY_MAX_NS,
            Err(_) => age_ns.unsigned_abs(),
        };
        let most = &mut self.report.clocks_apart_ns;
        *most = apart_ns.max(*most);
    }
}

/// 1 µs to 60 s, two significant digits: 1 % wide and 10 KiB.
fn delay_histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1_000, DELAY_MAX_NS, 2)
        .expect("the bounds are constants that the histogram accepts")
}

#[cfg(test)]
mod tests;
