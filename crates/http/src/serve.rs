//! The content and the clients of a server, and how each connection ends.

mod acknowledgement;
mod connection;
mod counters;
mod deadlines;
mod heads;
mod peers;
mod phase;
mod rehearsal;
mod reply;
mod request;
mod responder;
mod site;
mod worker;

#[doc(hidden)]
pub use rehearsal::rehearse;

pub use counters::{Ending, ServeCounters};

pub(crate) use acknowledgement::{AcknowledgedBytes, Acknowledgement};
pub(crate) use connection::{Connection, ServeStep};
pub(crate) use deadlines::{Deadlines, TICK_MS, now_ms};
pub(crate) use peers::Peers;
pub(crate) use phase::{ServePhase, ServeStage};
pub(crate) use reply::{Chunk, Reply};
pub(crate) use request::decimal;
pub(crate) use responder::Responder;
pub(crate) use site::ServedSite;
pub(crate) use worker::ServeWorker;

use crate::HttpError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The content that a server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServedContent {
    /// A body of this number of bytes at every path.
    Size(usize),
    /// The files below a directory.
    Root(PathBuf),
}

/// The side that closes a connection first, and how. Every figure depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Close {
    /// The server, with a FIN, after the reply: TIME_WAIT is the server's.
    #[default]
    Server,
    /// The client, after it has read the reply: TIME_WAIT is the client's. If it does not close,
    /// our server closes after a few seconds, and counts [`Ending::IdleTimeout`].
    Client,
    /// The side with this setting, with a RST: a server once the client has acknowledged the whole
    /// reply, a load after its last reply. No side keeps a socket in TIME_WAIT.
    Rst,
}

/// As flags, JSON and reports name it.
impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Limits against slow and hostile clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest request head in bytes; a larger one is answered with 431.
    pub head_bytes: usize,
    /// Time for a whole request head, from its first byte or from the connection's start; 408.
    pub head_time: Duration,
    /// Time between two requests of a connection, once the client has acknowledged the reply.
    pub idle_time: Duration,
    /// The longest time without an acknowledgement of a reply; twenty times as long while the
    /// client's kernel answers.
    pub send_time: Duration,
    /// Connections at a time, over all workers; further ones are closed at once, and counted.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 8 << 10,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            send_time: Duration::from_secs(30),
            connections: 65_536,
        }
    }
}

impl Limits {
    /// Refuses limits that would allow no request.
    pub(crate) fn check(&self) -> Result<(), HttpError> {
        if self.head_bytes == 0 {
            let why = "a request's head has at least one byte";
            return Err(HttpError::invalid("limits.head_bytes", 0, why));
        }
        Ok(())
    }
}

/// Milliseconds, as the clock of all deadlines counts.
fn duration_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
