//! The results of a load.

use super::tally::LoadTally;
use super::{Failure, Latency, LoadAccount, LoadConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

/// The names of the classes of status, in the order of [`LoadTally::statuses`].
const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
/// A request in flight at the end is normal, unless it has waited very long: this many times as
/// long as the slowest that was completed,
const WAIT_TIMES: f64 = 4.0;
/// and as long as this, or half of the run: one lost SYN costs a second.
const WAIT_US: f64 = 2e6;
/// A connection whose first packet was lost is a second late (RFC 6298). That is no sign of a
/// server that stopped.
const SYN_US: f64 = 1.2e6;
/// A cut-off request is worth a note if it waited this many times as long as nearly all others,
const NOTE_TIMES: f64 = 2.0;
/// and as long as this.
const NOTE_US: f64 = 0.2e6;

/// The result of a load: what all threads have counted, and how long they did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadReport {
    /// The engine.
    #[schemars(extend("enum" = ["epoll", "io_uring"]))]
    pub engine: String,
    /// The features that the engine was granted, in a line.
    pub granted: String,
    /// From the first start to the end of the last thread.
    pub seconds: f64,
    /// Connections that were completed, per second.
    pub cps: f64,
    /// Requests that were completed, per second.
    pub requests_per_second: f64,
    /// Bytes of requests that the kernel took.
    pub bytes_sent: u64,
    /// Bytes of replies, heads included.
    pub bytes_received: u64,
    /// Bytes of bodies that came whole.
    pub body_bytes: u64,
    /// Bytes received per second.
    pub bytes_per_second: f64,
    /// Of a kind of failure the first one, in the words of the kernel or of the parser.
    #[schemars(extend("propertyNames" = {"enum": Failure::ALL}))]
    pub error_examples: BTreeMap<Failure, String>,
    /// Whole replies by the first digit of their status: `2xx`.
    #[schemars(extend("propertyNames" = {"enum": CLASSES}, "required" = CLASSES))]
    pub statuses: BTreeMap<String, u64>,
    /// How long connecting, the first and the last byte took.
    pub latency_us: Latency,
    /// With `rate`: how much too late the latest request started, in microseconds.
    pub lateness_us_max: Option<f64>,
    /// With `rate`: requests that were due before the end and never started.
    pub not_started: Option<u64>,
    /// How long the requests that were cut off at the end had waited at most, in microseconds; absent
    /// if none was, and in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_off_us_max: Option<f64>,
    /// For how long there had been no whole reply at the end, in microseconds; absent if there was none
    /// at all or nothing was cut off, and in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_us: Option<f64>,
    /// Connections that the server closed between two requests, and that were opened anew if there
    /// was more to ask for. They count as completed.
    pub closed_early: u64,
    /// Where every connection and every request went.
    pub ledger: LoadLedger,
    /// Where the connections of each thread went, if there are several; their sum is the account of
    /// all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_thread: Vec<LoadAccount>,
    /// CPU time of the load's threads, system time included.
    pub cpu_seconds: f64,
    /// The same for each completed connection, in microseconds; none without any.
    pub cpu_us_per_connection: Option<f64>,
    /// The same for each completed request, in microseconds; none without any.
    pub cpu_us_per_request: Option<f64>,
    /// System calls of the load's threads.
    pub system_calls: u64,
    /// Remarks that a reader has to know.
    pub notes: Vec<String>,
}

/// The account of a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadLedger {
    /// Of its connections.
    pub connections: LoadAccount,
    /// Of its requests.
    pub requests: LoadAccount,
}

/// How far a load is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// Since the first start.
    pub elapsed: Duration,
    /// Connections that ended as they should.
    pub connections_completed: u64,
    /// Connections that failed.
    pub connections_failed: u64,
    /// Requests that were answered.
    pub requests_completed: u64,
    /// Requests that failed.
    pub requests_failed: u64,
}

impl AddAssign for LoadProgress {
    fn add_assign(&mut self, other: Self) {
        self.elapsed += other.elapsed;
        self.connections_completed += other.connections_completed;
        self.connections_failed += other.connections_failed;
        self.requests_completed += other.requests_completed;
        self.requests_failed += other.requests_failed;
    }
}

impl LoadLedger {
    /// Both accounts, the connections' first.
    pub fn both(&self) -> [&LoadAccount; 2] {
        [&self.connections, &self.requests]
    }
}

impl LoadReport {
    pub(crate) fn new(
        engine: &str,
        granted: String,
        elapsed: Duration,
        tally: &LoadTally,
        open_loop: bool,
    ) -> Self {
        let ledger = LoadLedger {
            connections: tally.connections.clone().close(),
            requests: tally.requests.clone().close(),
        };
        let seconds = elapsed.as_secs_f64();
        // No time at all has no rate.
        let rate = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        let [connections, requests] = ledger.both().map(|ledger| ledger.completed);
        let cpu_us = |count: u64| (count > 0).then(|| tally.cpu_ns as f64 / 1e3 / count as f64);
        let examples = tally.examples.iter();
        let examples = examples.filter(|(_, example)| !example.is_empty());
        let statuses = CLASSES.into_iter().zip(tally.statuses);
        let mut report = Self {
            engine: engine.to_owned(),
            granted,
            seconds,
            cps: rate(connections),
            requests_per_second: rate(requests),
            bytes_sent: tally.bytes_sent,
            bytes_received: tally.bytes_received,
            body_bytes: tally.body_bytes,
            bytes_per_second: rate(tally.bytes_received),
            error_examples: examples
                .map(|(failure, example)| (*failure, example.clone()))
                .collect(),
            statuses: statuses
                .map(|(class, count)| (class.to_owned(), count))
                .collect(),
            latency_us: tally.latency.report(),
            lateness_us_max: open_loop.then_some(tally.lateness_ns_max as f64 / 1e3),
            not_started: open_loop.then_some(tally.not_started),
            cut_off_us_max: tally.cut_off_ns_max.map(|ns| ns as f64 / 1e3),
            closed_early: tally.closed_early,
            cpu_seconds: tally.cpu_ns as f64 / 1e9,
            cpu_us_per_connection: cpu_us(connections),
            cpu_us_per_request: cpu_us(requests),
            system_calls: tally.system_calls,
            silent_us: tally
                .silent_ns
                .filter(|_| tally.cut_off_ns_max.is_some())
                .map(|ns| ns as f64 / 1e3),
            notes: notes(&ledger, tally.was_busy && tally.not_started > 0),
            ledger,
            by_thread: Vec::new(),
        };
        let undecided = report.undecided(tally.never_answered);
        report.notes.extend(undecided);
        report.notes.extend(unsized_replies(tally));
        report
    }

    /// Adds a note if the time was over while `left` of the requests had not been made.
    pub(crate) fn with_unmade(mut self, config: &LoadConfig, left: u64) -> Self {
        let note = unmade(config.requests, left, config.duration, self.seconds);
        self.notes.extend(note);
        self
    }

    /// True if requests were completed, nothing failed, the server answered to the end, and both
    /// accounts add up.
    pub fn is_clean(&self) -> bool {
        let failed = |ledger: &LoadAccount| ledger.failed_total() > 0;
        self.balances()
            && self.ledger.requests.completed > 0
            && self.unanswered_us().is_none()
            && !self.ledger.both().into_iter().any(failed)
    }

    /// How long a request had waited at the end that the server would have answered long before, if it
    /// still answered: in microseconds.
    pub fn unanswered_us(&self) -> Option<f64> {
        let least = WAIT_US.min(SYN_US.max(self.seconds * 1e6 / 2.0));
        let least = least.max(WAIT_TIMES * self.latency_us.last_byte.max);
        // One slow answer says little where the others were quick and there was none for long.
        let silence = SYN_US.max(WAIT_TIMES * self.latency_us.last_byte.p99);
        let is_silent = self.silent_us.is_some_and(|silent| silent > silence);
        self.cut_off_us_max
            .filter(|waited| *waited > least || is_silent && *waited > silence)
    }

    /// The note on requests that were cut off and had waited long. The wait does not prove that the
    /// server stopped answering.
    fn undecided(&self, never_answered: u64) -> Option<String> {
        let least = NOTE_US.max(NOTE_TIMES * self.latency_us.last_byte.p99);
        let waited = self.cut_off_us_max.filter(|waited| *waited > least)?;
        if self.unanswered_us().is_some() || self.ledger.requests.completed == 0 {
            return None;
        }
        let mut note = format!(
            "{} requests were cut off at the end, the longest after {:.2} s, and 99 % of the answers took \
             {:.1} ms at most: whether they would have been answered is not known",
            self.ledger.requests.aborted_at_end,
            waited / 1e6,
            self.latency_us.last_byte.p99 / 1e3
        );
        if let Some(silent) = self.silent_us.filter(|silent| *silent > least) {
            note += &format!("; nothing came in the last {:.2} s", silent / 1e6);
        }
        if never_answered > 0 {
            note += &format!("; {never_answered} connections had no answer at all");
        }
        Some(note)
    }

    /// True if nothing is unaccounted for.
    pub fn balances(&self) -> bool {
        let ledgers = self.ledger.both();
        ledgers.iter().all(|ledger| ledger.unaccounted == 0)
    }
}

/// The note on replies without a length. A server that is cut off ends them like a server that is
/// done.
fn unsized_replies(tally: &LoadTally) -> Option<String> {
    let (least, most) = tally.unsized_bytes?;
    let differ = match least == most {
        true => String::new(),
        false => format!("; they differ, from {least} to {most} bytes"),
    };
    Some(format!(
        "{} replies had no length: whether they were whole is not known{differ}",
        tally.unsized_replies
    ))
}

/// Says that a run was shorter than its requests. A run stopped by the user needs no such note.
fn unmade(asked: Option<u64>, left: u64, time: Option<Duration>, seconds: f64) -> Option<String> {
    let is_time_over = time.is_some_and(|time| seconds >= time.as_secs_f64());
    let asked = asked.filter(|_| is_time_over && left > 0)?;
    Some(format!(
        "{left} of {asked} requests were not made: the time was over first"
    ))
}

/// The remedies for failures, and late starts, whose cause is on this side.
fn notes(ledger: &LoadLedger, was_busy: bool) -> Vec<String> {
    let note = |failure: Failure| {
        let remedy = failure.remedy()?;
        let mut failed = ledger.both().into_iter().map(|one| one.failed(failure));
        failed
            .any(|count| count > 0)
            .then(|| format!("{failure}: {remedy}"))
    };
    let busy = was_busy.then(|| {
        "requests were not started while all connections were busy: more `connections`?".to_owned()
    });
    Failure::ALL
        .into_iter()
        .filter_map(note)
        .chain(busy)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of that many seconds: answers that took so long, in milliseconds, how long the longest
    /// that was cut off had waited, and for how long nothing had come.
    fn run(seconds: u64, took_ms: &[(usize, u64)], waited_ms: u64, silent_ms: u64) -> LoadReport {
        let mut tally = LoadTally::default();
        for &(count, ms) in took_ms {
            for _ in 0..count {
                tally.latency.last_byte.record(0, ms * 1_000_000);
            }
            tally.requests.completed += count as u64;
        }
        tally.requests.aborted_at_end = 4;
        tally.requests.started = tally.requests.completed + 4;
        tally.cut_off_ns_max = Some(waited_ms * 1_000_000);
        tally.silent_ns = Some(silent_ms * 1_000_000);
        tally.never_answered = 4;
        let time = Duration::from_secs(seconds);
        LoadReport::new("epoll", String::new(), time, &tally, false)
    }

    #[test]
    fn one_slow_answer_hides_no_server_that_died() {
        // A lost SYN, and all hang from the seventh second on.
        let died = run(10, &[(1000, 10), (1, 1050)], 3_000, 3_000);
        assert!(!died.is_clean() && died.notes.is_empty(), "{died:?}");
        // As slow an answer of a server that answers to the end is none.
        let slow = run(10, &[(1000, 10), (5, 1050)], 1_900, 5);
        assert!(slow.is_clean(), "{slow:?}");
        let steady = run(10, &[(1000, 10)], 9, 1);
        assert!(steady.is_clean() && steady.notes.is_empty(), "{steady:?}");
        let slow = run(10, &[(36, 1000)], 990, 990);
        assert!(slow.is_clean() && slow.notes.is_empty(), "{slow:?}");
    }

    #[test]
    fn what_is_not_decided_is_said() {
        let few = run(4, &[(4, 1200)], 2_800, 2_800);
        assert!(few.is_clean());
        let note = &few.notes[0];
        assert!(note.contains("nothing came in the last 2.80 s"), "{note}");
        // Every second connection hangs.
        let half = run(1, &[(100, 1)], 990, 900);
        assert!(half.is_clean());
        let note = &half.notes[0];
        for part in [
            "4 requests were cut off",
            "after 0.99 s",
            "4 connections had",
        ] {
            assert!(note.contains(part), "{note}");
        }
    }

    #[test]
    fn requests_that_the_time_left_no_room_for_are_told() {
        let time = Some(Duration::from_secs(2));
        let said = unmade(Some(1000), 988, time, 2.01).unwrap();
        assert_eq!(
            said,
            "988 of 1000 requests were not made: the time was over first"
        );
        // All were made; the user stopped it; no number was asked for, or no time.
        for (asked, left, time, seconds) in [
            (Some(1000), 0, time, 2.01),
            (Some(1000), 988, time, 1.5),
            (None, 0, time, 2.01),
            (Some(1000), 988, None, 2.01),
        ] {
            assert_eq!(unmade(asked, left, time, seconds), None);
        }
    }

    #[test]
    fn replies_without_a_length_are_told() {
        let mut tally = LoadTally::default();
        assert_eq!(unsized_replies(&tally), None);
        tally.unsized_replies = 2;
        tally.note_unsized(7, 7);
        let alike = unsized_replies(&tally).unwrap();
        assert!(alike.starts_with("2 replies had no length") && !alike.contains("differ"));
        let mut both = LoadTally::default();
        both.note_unsized(3, 3);
        both.add(&tally);
        let differ = unsized_replies(&both).unwrap();
        assert!(differ.ends_with("from 3 to 7 bytes"), "{differ}");
    }
}
