//! Connections that have sent everything, and are not reset before their peers have got it.

use super::Loop;
use crate::serve::{Acknowledgement, Ending};
use std::net::Shutdown;

impl Loop {
    /// A peer has not got everything. It is asked again soon, and then now and then.
    pub(super) fn unacknowledged(&mut self, slot: u32, bytes: usize) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let limits = &self.worker.limits;
        let Some(acknowledgement) = &mut client.acknowledgement else {
            client.acknowledgement = Some(Acknowledgement::new(bytes, self.now_ms));
            return self.unacknowledged.push(slot);
        };
        if !acknowledgement.look(bytes, limits, self.now_ms) {
            client.end(Ending::SendTimeout);
            return self.close_now(slot);
        }
        // What a peer that is gone has not acknowledged stays counted (tcp_ioctl, net/ipv4/tcp.c).
        // Whether there is a connection is told by ending the receiving, of which the peer learns
        // nothing.
        if let Some(socket) = &client.socket {
            client.request = Some(self.ring.shutdown(slot, socket, Shutdown::Read));
        }
    }

    /// Asks whether a peer has got everything.
    pub(super) fn ask(&mut self, slot: u32) {
        if let Some(client) = self.clients.get_mut(slot as usize)
            && client.acknowledgement.is_some()
            && client.request.is_none()
            && let Some(socket) = &client.socket
        {
            client.request = Some(self.ring.unsent(slot, socket));
        }
    }

    /// Whether there is a connection at all.
    pub(super) fn asked(&mut self, slot: u32, is_there: bool) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        match &client.acknowledgement {
            Some(acknowledgement) if is_there => {
                let look_ms = acknowledgement.look_ms(&self.worker.limits);
                self.deadlines.arm(slot, look_ms);
            }
            _ => {
                client.end(Ending::Reset);
                self.close_now(slot);
            }
        }
    }

    /// Asks those again that were asked once.
    pub(super) fn ask_unacknowledged(&mut self) {
        if self.unacknowledged.is_empty() || self.now_ms < self.ask_at_ms {
            return;
        }
        // No earlier than the next tick of the clock.
        self.ask_at_ms = self.now_ms + 1;
        for slot in std::mem::take(&mut self.unacknowledged) {
            self.ask(slot);
        }
    }
}
