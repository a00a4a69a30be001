//! One connection, and what the kernel is doing for it.

use crate::serve::{Acknowledgement, Connection, Ending, Reply};
use mpps_os::uring::{RequestKey, RingSocket};

/// One connection.
pub(super) struct RingClient {
    pub(super) connection: Connection,
    /// None once it was given up to be closed.
    pub(super) socket: Option<RingSocket>,
    /// True if it counts against the limits.
    pub(super) is_admitted: bool,
    /// The request that the kernel has. Its completion comes.
    pub(super) request: Option<RequestKey>,
    /// The reply on its way.
    pub(super) reply: Option<Reply>,
    /// The action that follows as soon as the kernel has answered, whatever the answer is.
    pub(super) forced: Option<Forced>,
    /// The first reason why it ends.
    pub(super) ending: Option<Ending>,
    /// Everything is sent, and the close waits for the acknowledgement.
    pub(super) acknowledgement: Option<Acknowledgement>,
    /// The status of the last reply.
    pub(super) status: u16,
    /// Bytes of the reply that goes in one chain with the close.
    pub(super) bytes_at_end: usize,
    /// Whether the kernel is being asked what the peer has acknowledged, beside `request`.
    pub(super) is_asked: bool,
}

/// The effect of a time-out, or of the end of the server, on a connection.
#[derive(Debug)]
pub(super) enum Forced {
    Close,
    /// As [`Forced::Close`], but a request that has come is answered.
    CloseIfIdle,
    Send(Box<Reply>),
}

impl RingClient {
    pub(super) fn new(socket: RingSocket, now_ms: u64) -> Self {
        Self {
            connection: Connection::new(now_ms),
            socket: Some(socket),
            is_admitted: true,
            request: None,
            reply: None,
            forced: None,
            ending: None,
            acknowledgement: None,
            status: 0,
            bytes_at_end: 0,
            is_asked: false,
        }
    }

    /// Notes why it ends. The first reason stands, except for a peer that has not got everything.
    pub(super) fn end(&mut self, ending: Ending) {
        if self.acknowledgement.take().is_some()
            || matches!(ending, Ending::SendTimeout | Ending::Reset)
        {
            self.ending = None;
        }
        self.ending.get_or_insert(ending);
    }
}
