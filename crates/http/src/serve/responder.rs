//! A worker's source of answers: the site, the date, and replies that are kept for a second.

use super::heads::{Heads, TEXT};
use super::reply::{Chunk, Keep, Reply, ReplyBody};
use super::request::{HttpRequest, Method};
use super::site::ServedSite;
use super::{Close, Limits};
use std::sync::Arc;

/// Bodies up to this size lie right behind their heads, and go with one system call. They are
/// copied once a second.
const ONE_PIECE_BYTES_MAX: usize = 256 << 10;

/// Answers requests; one for each worker.
pub(crate) struct Responder {
    site: Arc<ServedSite>,
    /// Largest head of a request.
    pub(crate) head_bytes_max: usize,
    /// The side that closes.
    pub(crate) close: Close,
    /// Whether every reply is the last of its connection.
    pub(crate) is_draining: bool,
    heads: Heads,
    /// Replies that do not depend on the request, one for each [`Keep`], until the date changes.
    ready: [Option<Ready>; 3],
}

/// A reply that can be sent as often as one likes.
#[derive(Clone)]
struct Ready {
    bytes: Arc<[u8]>,
    head_bytes: usize,
    body: Option<Chunk>,
}

impl Responder {
    /// Answers from a site, within some limits.
    pub(crate) fn new(site: Arc<ServedSite>, limits: &Limits, close: Close) -> Self {
        Self {
            site,
            head_bytes_max: limits.head_bytes,
            close,
            is_draining: false,
            heads: Heads::default(),
            ready: [const { None }; 3],
        }
    }

    /// The reply to a request.
    #[inline]
    pub(crate) fn answer(&mut self, request: &HttpRequest<'_>, keeps: bool, now_ms: u64) -> Reply {
        self.renew_date(now_ms);
        let keep = match (keeps, request.is_1_1) {
            (true, true) => Keep::Implied,
            (true, false) => Keep::Told,
            (false, _) => Keep::No,
        };
        match request.method {
            Method::Get | Method::Head => {}
            Method::NotAllowed => return self.heads.note(405, keep, false),
            Method::Unknown => return self.heads.note(501, keep, false),
        }
        match &*self.site {
            ServedSite::Body(body) => self.ready[keep as usize]
                .get_or_insert_with(|| Ready::new(&self.heads, body, keep))
                .reply(request.method),
            ServedSite::Root(_) => self.file(request, keep),
        }
    }

    /// The reply to what is no request; the connection ends with it.
    pub(crate) fn refuse(&mut self, status: u16, now_ms: u64) -> Reply {
        self.renew_date(now_ms);
        self.heads.note(status, Keep::No, false)
    }

    /// The reply that sends a file, or says why not.
    fn file(&self, request: &HttpRequest<'_>, keep: Keep) -> Reply {
        let is_head = request.method == Method::Head;
        let mut file = match self.site.find(request.path) {
            Ok(file) => file,
            Err(status) => return self.heads.note(status, keep, is_head),
        };
        let mut bytes = self
            .heads
            .head(200, keep, "application/octet-stream", file.left());
        if is_head {
            return Reply::in_memory(200, bytes);
        }
        match file.read(&mut bytes) {
            Ok(()) => Reply {
                rest: file.into(),
                ..Reply::in_memory(200, bytes)
            },
            // The file became shorter just now, or its disk fails. Nothing was promised yet.
            Err(_) => self.heads.note(503, keep, false),
        }
    }

    /// Writes the date anew if its second is over.
    #[inline]
    fn renew_date(&mut self, now_ms: u64) {
        if self.heads.renew_date(now_ms) {
            self.ready = [const { None }; 3];
        }
    }
}

impl Ready {
    fn new(heads: &Heads, body: &Arc<[u8]>, keep: Keep) -> Self {
        let mut bytes = heads.head(200, keep, TEXT, body.len() as u64);
        let head_bytes = bytes.len();
        let is_small = body.len() <= ONE_PIECE_BYTES_MAX;
        if is_small {
            bytes.extend_from_slice(body);
        }
        Self {
            bytes: bytes.into(),
            head_bytes,
            body: (!is_small).then(|| Chunk::whole(Arc::clone(body))),
        }
    }

    #[inline]
    fn reply(&self, method: Method) -> Reply {
        let (end, body) = match method {
            Method::Get => (self.bytes.len(), self.body.clone()),
            _ => (self.head_bytes, None),
        };
        Reply {
            part: Chunk {
                bytes: Arc::clone(&self.bytes),
                range: 0..end,
            },
            rest: body.map_or(ReplyBody::None, ReplyBody::Memory),
            last: false,
            status: 200,
        }
    }
}

#[cfg(test)]
mod tests;
