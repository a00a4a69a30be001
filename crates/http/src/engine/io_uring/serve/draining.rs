//! The end of the server: what has connected is served, what is idle is closed, and the rest is
//! reset when its time is over.

use super::{Loop, WAKE};
use crate::engine::io_uring::client::Forced;
use crate::serve::{Ending, ServeStage};

impl Loop {
    pub(super) fn turn_stage(&mut self) {
        self.worker.wake().clear();
        self.ring.poll_readable(WAKE, &self.wake);
        let before = self.stage;
        self.stage = before.max(self.worker.stage());
        if before == ServeStage::Running && self.stage != ServeStage::Running {
            self.begin_drain();
        }
        if self.stage == ServeStage::Stopped {
            self.drain(false);
        }
    }

    /// Takes what has connected already and nothing more, and closes what is idle.
    fn begin_drain(&mut self) {
        if let Some(accept) = self.accept {
            self.ring.cancel(accept);
        }
        self.responder.is_draining = true;
        // Connections that are there are served; no new ones come after that.
        self.accept_the_rest();
        self.worker.listener.stop();
        self.drain_ends_ms = self.worker.drain_ends_ms(self.now_ms);
        self.drain(true);
    }

    /// Whether all have gone, or must by now.
    pub(super) fn is_over(&mut self) -> bool {
        if self.now_ms >= self.drain_ends_ms && self.stage == ServeStage::Draining {
            self.stage = ServeStage::Stopped;
            self.drain(false);
        }
        self.clients.is_empty() && self.accept.is_none()
    }

    /// Closes all connections, or those that wait for a request. Of those one whose request has
    /// come by now is answered.
    fn drain(&mut self, only_idle: bool) {
        let slots: Vec<usize> = self.clients.iter().map(|(slot, _)| slot).collect();
        for slot in slots.into_iter().map(|slot| slot as u32) {
            let Some(client) = self.clients.get_mut(slot as usize) else {
                continue;
            };
            if !only_idle {
                self.force(slot, Ending::Drained, Forced::Close);
            } else if client.connection.is_idle() && client.forced.is_none() {
                self.force(slot, Ending::Drained, Forced::CloseIfIdle);
            }
        }
    }
}
