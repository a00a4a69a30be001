//! How a receiver waited, and what it made of its memory meanwhile.

use crate::measure::document::count;
use mpps_io::{RxCounters, Wait};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a receiver waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    /// `auto`, `block`, `epoll` or `spin`.
    #[schemars(extend("enum" = ["auto", "block", "epoll", "spin"]))]
    pub wait: String,
    /// How it polled before it slept; absent if the user set how to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polls: Option<PollTotal>,
    /// How many frames its ring gave the kernel; absent where the kernel has all of them always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill_depth: Option<RingFillDepth>,
}

/// How a thread with `auto` polled. Packets that were there without a rest are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PollTotal {
    /// Polls that found something.
    pub found: u64,
    /// Polls that found nothing in their time, and were followed by a sleep.
    pub missed: u64,
    /// How often it took up polling, or left off, trials included.
    pub changes: u64,
}

/// How many frames a thread's ring gave the kernel at a time. It keeps back those that the kernel
/// will not need soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RingFillDepth {
    /// The fewest.
    pub fewest: u32,
    /// The most, which it also has whenever nothing comes.
    pub most: u32,
    /// How often the number changed.
    pub changes: u64,
    /// How often all of them were found full: what came then was dropped.
    pub ran_out: u64,
}

impl Waited {
    pub(crate) fn of(wait: Wait, counters: &RxCounters) -> Self {
        let polls = counters.polls;
        Self {
            wait: wait.name().to_owned(),
            polls: matches!(wait, Wait::Auto(_)).then_some(PollTotal {
                found: polls.found,
                missed: polls.missed,
                changes: polls.changes,
            }),
            fill_depth: counters.fill_depth.map(|depth| RingFillDepth {
                fewest: depth.fewest,
                most: depth.most,
                changes: depth.changes,
                ran_out: depth.ran_out,
            }),
        }
    }

    /// In words: `waited by auto, polled 1 200 times, 7 in vain`.
    pub(crate) fn said(&self) -> String {
        let polls = self.polls.map(|polls| {
            let tried = count(polls.found + polls.missed);
            format!(", polled {tried} times, {} in vain", count(polls.missed))
        });
        let depth = self.fill_depth.map(|depth| format!(", {}", depth.said()));
        let (polls, depth) = (polls.unwrap_or_default(), depth.unwrap_or_default());
        format!("waited by {}{polls}{depth}", self.wait)
    }
}

impl RingFillDepth {
    /// Of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            fewest: self.fewest.min(other.fewest),
            most: self.most.max(other.most),
            changes: self.changes + other.changes,
            ran_out: self.ran_out + other.ran_out,
        }
    }

    pub(crate) fn said(self) -> String {
        let Self { fewest, most, .. } = self;
        format!("{fewest} to {most} frames for the kernel at a time")
    }
}
