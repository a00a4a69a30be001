//! The state of one worker thread of a server: everything that an engine needs to serve.

use super::counters::{Ending, ServeCounters};
use super::peers::Peers;
use super::phase::{ServePhase, ServeStage};
use super::responder::Responder;
use super::site::ServedSite;
use super::{Close, Limits, duration_ms};
use crate::Switches;
use crate::thread_counts::ThreadCounts;
use mpps_os::tcp::AcceptingSocket;
use mpps_os::wake::Wake;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// The state of one worker thread of a server.
pub(crate) struct ServeWorker {
    /// Its number, from 0.
    pub(crate) index: usize,
    /// Where connections come from: its own listener with the switch `affinity`, otherwise one for
    /// all workers. It is closed when the last worker has let go of it.
    pub(crate) listener: Arc<AcceptingSocket>,
    /// Whether other workers accept from the same listener.
    pub(crate) shared: bool,
    /// The switches that are on.
    pub(crate) switches: Switches,
    /// The side that closes.
    pub(crate) close: Close,
    /// How much a client may ask for.
    pub(crate) limits: Limits,
    /// How long a drain waits for open connections.
    pub(crate) drain_time: Duration,
    /// The content.
    pub(crate) site: Arc<ServedSite>,
    /// Where its counters are published, once for each batch.
    pub(crate) counters: Arc<ThreadCounts<ServeCounters>>,
    /// The stage of the server; see [`ServeWorker::wake`].
    pub(crate) phase: Arc<ServePhase>,
    /// The limits on who may connect.
    pub(crate) peers: Arc<Peers>,
    /// Sent to by [`ServeWorker::ready`].
    pub(crate) started: Option<SyncSender<()>>,
}

impl ServeWorker {
    /// To be called once by an engine when nothing can fail to start any more: the server is not
    /// there for its owner before.
    pub(crate) fn ready(&mut self) {
        if let Some(started) = self.started.take() {
            // The other end is gone if another worker has failed; the phase soon shows that.
            let _ = started.send(());
        }
    }

    /// Publishes the counts and the number of open connections. That number is counted separately: it
    /// would be no check on the others if it followed from them.
    pub(crate) fn publish(&self, counters: &ServeCounters, open: usize) {
        let open = open as u64;
        self.counters.publish(ServeCounters { open, ..*counters });
    }

    /// The present stage.
    pub(crate) fn stage(&self) -> ServeStage {
        self.phase.stage()
    }

    /// Becomes readable when the stage changes.
    pub(crate) fn wake(&self) -> &Wake {
        self.phase.wake(self.index)
    }

    /// When a drain that begins now gives up.
    pub(crate) fn drain_ends_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add(duration_ms(self.drain_time))
    }

    /// Descriptors ran out, and the kernel keeps what waits: one connection is taken with the
    /// `reserve` and closed, so that its client learns of it.
    pub(crate) fn shed(&self, reserve: &mut Option<Wake>, counters: &mut ServeCounters) {
        if reserve.take().is_some() && self.listener.accept().is_ok() {
            counters.accept();
            counters.end(Ending::NoDescriptor);
        }
        *reserve = Wake::new().ok();
    }

    /// The maker of replies to requests.
    pub(crate) fn responder(&self) -> Responder {
        Responder::new(Arc::clone(&self.site), &self.limits, self.close)
    }
}
