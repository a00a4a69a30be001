//! The counters of a server: every connection it accepted, and how each one ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::AddAssign;

/// How a connection ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The last reply went whole, and the server closed as was agreed.
    Done,
    /// The client closed first.
    Client,
    /// No whole request head came in time.
    HeadTimeout,
    /// No further request came in time, or the client was to close and did not.
    IdleTimeout,
    /// The client took nothing of a reply for too long.
    SendTimeout,
    /// The client, or the network, reset it.
    Reset,
    /// There were as many connections as there may be.
    OverLimit,
    /// It was shed, because descriptors ran out.
    NoDescriptor,
    /// The server was ended.
    Drained,
    /// The request was refused, and the connection with it: see the status classes.
    Refused,
    /// Something failed in the server: a file that shrank, a call that the kernel refused.
    Error,
}

impl Ending {
    /// All, in the order of counting.
    pub const ALL: [Self; 11] = [
        Self::Done,
        Self::Client,
        Self::HeadTimeout,
        Self::IdleTimeout,
        Self::SendTimeout,
        Self::Reset,
        Self::OverLimit,
        Self::NoDescriptor,
        Self::Drained,
        Self::Refused,
        Self::Error,
    ];
}

/// As JSON and reports name it.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The counts of a server, or of one of its workers. At every look `accepted == closed() + open`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServeCounters {
    /// Connections taken from the kernel.
    pub accepted: u64,
    /// Connections that are open, as counted where they are kept.
    pub open: u64,
    /// Connections that ended, by the place of [`Ending::ALL`].
    pub endings: [u64; Ending::ALL.len()],
    /// Requests that were answered, whatever the status, and whether or not the reply went whole.
    pub requests: u64,
    /// Of those, by the first digit of the status, from 1.
    pub statuses: [u64; 5],
    /// Bytes of replies that the kernel took.
    pub bytes_sent: u64,
    /// Bytes of requests, those that were thrown away included.
    pub bytes_received: u64,
    /// System calls, as far as the engine makes them itself.
    pub system_calls: u64,
    /// How often accepting was refused, by lack of descriptors or memory, or otherwise.
    pub accept_errors: u64,
}

impl ServeCounters {
    /// Connections that ended in one way.
    pub fn ended(&self, ending: Ending) -> u64 {
        self.endings[ending as usize]
    }

    /// Connections that ended, in whatever way.
    pub fn closed(&self) -> u64 {
        self.endings.iter().sum()
    }

    /// A connection was taken.
    #[inline]
    pub(crate) fn accept(&mut self) {
        self.accepted += 1;
    }

    /// A connection that was taken has ended.
    #[inline]
    pub(crate) fn end(&mut self, ending: Ending) {
        self.endings[ending as usize] += 1;
    }

    /// A request has its reply.
    #[inline]
    pub(crate) fn reply(&mut self, status: u16) {
        self.requests += 1;
        let class = usize::from(status / 100).clamp(1, self.statuses.len());
        self.statuses[class - 1] += 1;
    }
}

impl AddAssign for ServeCounters {
    fn add_assign(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.open += other.open;
        self.requests += other.requests;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.system_calls += other.system_calls;
        self.accept_errors += other.accept_errors;
        for (sum, more) in self.endings.iter_mut().zip(other.endings) {
            *sum += more;
        }
        for (sum, more) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_its_place_and_name() {
        for (place, ending) in Ending::ALL.into_iter().enumerate() {
            assert_eq!(ending as usize, place);
            let name = ending.to_string();
            let same = Ending::ALL.iter().filter(|one| one.to_string() == name);
            assert_eq!(same.count(), 1);
        }
    }

    #[test]
    fn what_was_accepted_is_open_or_ended() {
        let mut counters = ServeCounters::default();
        for ending in Ending::ALL {
            counters.accept();
            counters.accept();
            counters.end(ending);
        }
        counters.open = Ending::ALL.len() as u64;
        assert_eq!(counters.accepted, counters.closed() + counters.open);
        let mut sum = counters;
        sum += counters;
        assert_eq!(sum.accepted, sum.closed() + sum.open);
        assert_eq!(sum.ended(Ending::Reset), 2);
    }

    #[test]
    fn a_status_is_counted_in_its_class() {
        let mut counters = ServeCounters::default();
        for status in [200, 206, 304, 404, 503, 0, 999] {
            counters.reply(status);
        }
        assert_eq!(counters.requests, 7);
        assert_eq!(counters.statuses, [1, 2, 1, 1, 2]);
    }
}
