//! The peers' acknowledgements: of replies on their way, and of the last one, before a close that
//! would discard the rest.

use super::{LOOK, Loop};
use crate::serve::{AcknowledgedBytes, Acknowledgement, Ending};
use mpps_os::tcp::TcpStream;
use std::io;
use std::os::fd::OwnedFd;

impl Loop {
    /// Asks how much of a reply its peer has not got, while the kernel sends it.
    pub(super) fn look(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        if client.is_asked {
            return;
        }
        let asked = match (&client.socket, client.request) {
            (Some(socket), _) => Some(self.ring.lend(slot | LOOK, socket)),
            // The kernel closes it behind the reply.
            (None, Some(request)) => self.ring.lend_of(slot | LOOK, request),
            (None, None) => None,
        };
        client.is_asked = asked.is_some();
        if asked.is_none() {
            self.looked_at(slot, AcknowledgedBytes::left(usize::MAX));
        }
    }

    /// A descriptor to look with, because no request shows whether a peer's kernel answers.
    pub(super) fn lent(&mut self, slot: u32, fd: io::Result<OwnedFd>) {
        let seen = self.seen(fd.map(TcpStream::from));
        // The connection may have gone meanwhile, and another be in its slot.
        let client = self.clients.get_mut(slot as usize);
        if !client.is_some_and(|client| std::mem::take(&mut client.is_asked)) {
            return;
        }
        match seen {
            Some(seen) => self.looked_at(slot, seen),
            // Descriptors ran out: it is looked at again with the next tick.
            None => self.arm(slot),
        }
    }

    fn seen(&mut self, lent: io::Result<TcpStream>) -> Option<AcknowledgedBytes> {
        let stream = lent.ok()?;
        // Its close is one more.
        self.counters.system_calls += 3;
        let seen = AcknowledgedBytes::of(&stream);
        Some(seen.unwrap_or(AcknowledgedBytes::left(usize::MAX)))
    }

    fn looked_at(&mut self, slot: u32, seen: AcknowledgedBytes) {
        let (limits, now_ms) = (&self.worker.limits, self.now_ms);
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        if !client.connection.needs_look() || client.forced.is_some() {
            return;
        }
        match client.connection.look(seen, limits, now_ms) {
            true => self.arm(slot),
            false => self.end_late(slot),
        }
    }

    /// A peer has not got everything. It is asked again soon, and then now and then.
    pub(super) fn unacknowledged(&mut self, slot: u32, seen: AcknowledgedBytes) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let limits = &self.worker.limits;
        let Some(acknowledgement) = &mut client.acknowledgement else {
            client.acknowledgement = Some(Acknowledgement::new(seen, self.now_ms));
            return self.unacknowledged.push(slot);
        };
        if acknowledgement.look(seen, limits, self.now_ms) {
            let look_ms = acknowledgement.look_ms(limits);
            return self.deadlines.arm(slot, look_ms);
        }
        client.end(Ending::SendTimeout);
        self.close_now(slot);
    }

    /// Asks whether a peer has got everything.
    pub(super) fn ask(&mut self, slot: u32) {
        if let Some(client) = self.clients.get_mut(slot as usize)
            && client.acknowledgement.is_some()
            && client.request.is_none()
            && let Some(socket) = &client.socket
        {
            client.request = Some(self.ring.lend(slot, socket));
        }
    }

    /// As [`Loop::lent`], of a last reply. Bytes that a lost peer has not acknowledged stay counted
    /// (tcp_ioctl, net/ipv4/tcp.c).
    pub(super) fn lent_at_end(&mut self, slot: u32, fd: io::Result<OwnedFd>) {
        let stream = fd.map(TcpStream::from);
        let is_lost = |stream: &TcpStream| stream.take_error().is_err();
        if stream.as_ref().is_ok_and(is_lost)
            && let Some(client) = self.clients.get_mut(slot as usize)
        {
            client.end(Ending::Reset);
            return self.close_now(slot);
        }
        match self.seen(stream) {
            Some(seen) if seen.left > 0 => self.unacknowledged(slot, seen),
            Some(_) => self.close_now(slot),
            None => self.deadlines.arm(slot, self.now_ms),
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
