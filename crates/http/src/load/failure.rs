//! The kinds of failure of a connection or a request of a load.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, io};

/// Why a connection, or a request, was not completed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The server's host answered the SYN with a RST (`ECONNREFUSED`).
    Refused,
    /// There is no way to the server (`ENETUNREACH`, `EHOSTUNREACH` and their like).
    Unreachable,
    /// No own port was free for this pair of addresses (`EADDRNOTAVAIL`).
    NoPort,
    /// This process, or this host, has no descriptor left (`EMFILE`, `ENFILE`).
    NoDescriptor,
    /// A RST before the connection was made (`ECONNRESET`, `ECONNABORTED`).
    ResetConnecting,
    /// The connection was not made in time.
    TimedOutConnecting,
    /// A RST before the reply was whole.
    Reset,
    /// The reply was not whole in time.
    TimedOut,
    /// The server closed a new connection without a byte of a reply.
    NoReply,
    /// The server closed before the body was as long as announced.
    ShortBody,
    /// A whole reply, whose status is not 2xx.
    BadStatus,
    /// The bytes that came are not an HTTP/1 reply, or more than was asked for.
    BadReply,
    /// Any other error of the kernel; the report has an example.
    Other,
}

impl Failure {
    /// All of them, in the order of a connection's life.
    pub const ALL: [Self; 13] = [
        Self::Refused,
        Self::Unreachable,
        Self::NoPort,
        Self::NoDescriptor,
        Self::ResetConnecting,
        Self::TimedOutConnecting,
        Self::Reset,
        Self::TimedOut,
        Self::NoReply,
        Self::ShortBody,
        Self::BadStatus,
        Self::BadReply,
        Self::Other,
    ];

    /// The remedy for the user, if the cause is on this side.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::NoPort => Some(
                "closed connections hold their ports for a minute: add addresses with `sources`, \
                 or end connections with `close` rst",
            ),
            Self::NoDescriptor => Some("raise `ulimit -n`, or lower `connections`"),
            _ => None,
        }
    }

    /// True if the cause is on this side, and trying again at once is of no use.
    pub(crate) fn is_local(self) -> bool {
        matches!(self, Self::NoPort | Self::NoDescriptor)
    }

    /// The meaning of an `errno` while connecting or later (connect(2), recv(2)).
    pub(crate) fn of_errno(errno: i32, connecting: bool) -> Self {
        match errno {
            libc::ECONNREFUSED => Self::Refused,
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN => {
                Self::Unreachable
            }
            libc::EADDRNOTAVAIL | libc::EADDRINUSE if connecting => Self::NoPort,
            libc::EMFILE | libc::ENFILE => Self::NoDescriptor,
            libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE if connecting => {
                Self::ResetConnecting
            }
            libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE => Self::Reset,
            libc::ETIMEDOUT if connecting => Self::TimedOutConnecting,
            libc::ETIMEDOUT => Self::TimedOut,
            _ => Self::Other,
        }
    }
}

/// As result files name it.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The number of a socket's error: every one has one.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
