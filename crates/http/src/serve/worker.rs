//! What one worker thread of a server has: everything that an engine needs to serve.

use super::counters::WorkerCounters;
use super::peers::Peers;
use super::phase::{Phase, Stage};
use super::responder::{MetricsPage, Responder};
use super::site::Site;
use super::{Close, Limits};
use crate::Switches;
use mpps_os::tcp::{Listener, TcpStream};
use mpps_os::wake::Wake;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// What one worker thread of a server has.
pub(crate) struct ServeWorker {
    /// Its number, from 0.
    pub(crate) index: usize,
    /// Where connections come from: its own listener with the switch `affinity`, otherwise one for
    /// all workers. It is closed when the last worker has let go of it.
    pub(crate) listener: Arc<Listener>,
    /// Whether other workers accept from the same listener.
    pub(crate) shared: bool,
    /// What is reused.
    pub(crate) switches: Switches,
    /// Who closes.
    pub(crate) close: Close,
    /// How much a client may ask for.
    pub(crate) limits: Limits,
    /// How long a drain waits for open connections.
    pub(crate) drain_time: Duration,
    /// What is served.
    pub(crate) site: Arc<Site>,
    /// Where its counters are published, once for each batch.
    pub(crate) counters: Arc<WorkerCounters>,
    /// What it is to do; see [`ServeWorker::wake`].
    pub(crate) phase: Arc<Phase>,
    /// Who may connect.
    pub(crate) peers: Arc<Peers>,
    /// The page `/metrics`, if it is served.
    pub(crate) metrics: Option<MetricsPage>,
    /// Told by [`ServeWorker::ready`].
    pub(crate) started: Option<SyncSender<()>>,
}

impl ServeWorker {
    /// To be called once by an engine when nothing can fail to start any more: the server is not
    /// there for its owner before.
    pub(crate) fn ready(&mut self) {
        if let Some(started) = self.started.take() {
            // Nobody listens if another worker has failed; the phase tells soon.
            let _ = started.send(());
        }
    }

    /// What it is to do at this moment.
    pub(crate) fn stage(&self) -> Stage {
        self.phase.stage()
    }

    /// Becomes readable when the stage changes.
    pub(crate) fn wake(&self) -> &Wake {
        self.phase.wake(self.index)
    }

    /// Takes a connection that waits, with its address if somebody counts that.
    pub(crate) fn accept(&self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        if self.peers.needs_address() {
            let (stream, address) = self.listener.accept_from()?;
            return Ok((stream, Some(address)));
        }
        Ok((self.listener.accept()?, None))
    }

    /// What makes replies of requests.
    pub(crate) fn responder(&self) -> Responder {
        Responder::new(
            Arc::clone(&self.site),
            &self.limits,
            self.close,
            self.metrics.clone(),
        )
    }
}
