//! A conversation without a socket, for tests and fuzzers.

use super::connection::{Connection, ServeStep};
use super::responder::Responder;
use super::site::ServedSite;
use super::{Close, Limits, ServedContent};
use std::sync::Arc;

/// The statuses that a server of one small body answers with to bytes that arrive in these pieces,
/// and whether it ends the connection after the last of them. The peer takes each reply at once.
pub fn rehearse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u16>, bool) {
    let Ok(site) = ServedSite::open(&ServedContent::Size(1)) else {
        return (Vec::new(), true);
    };
    let limits = Limits::default();
    let mut responder = Responder::new(Arc::new(site), &limits, Close::Server);
    let mut connection = Connection::new(0);
    let mut statuses = Vec::new();
    for piece in pieces {
        let mut step = connection.receive(piece, &mut responder, 0);
        loop {
            step = match step {
                ServeStep::Send(reply) => {
                    statuses.push(reply.status);
                    connection.sent(&mut responder, 0)
                }
                ServeStep::Receive => break,
                ServeStep::Shutdown | ServeStep::Close => return (statuses, true),
            };
        }
    }
    (statuses, false)
}
