//! Taking connections: by a request that stands, or by one for each, and what is done when slots or
//! descriptors have run out.

use super::{ACCEPT, Loop};
use crate::Switch;
use crate::engine::io_uring::client::RingClient;
use crate::serve::{Ending, ServeStage};
use mpps_os::tcp;
use mpps_os::uring::{DescriptorKind, RingSocket};
use std::io;
use std::os::fd::OwnedFd;

/// How long to wait before accepting again when descriptors had run out.
const ACCEPT_PAUSE_MS: u64 = 100;

impl Loop {
    /// Has one request that accepts with the kernel.
    pub(super) fn accept_on(&mut self) {
        if self.accept.is_some()
            || self.stage != ServeStage::Running
            || self.now_ms < self.accept_at_ms
        {
            return;
        }
        let placement = match self.has(Switch::Fds) {
            true => DescriptorKind::Chosen,
            false => DescriptorKind::Ordinary,
        };
        let request = self
            .ring
            .accept(ACCEPT, &self.listener, placement, self.has(Switch::Events));
        self.accept = Some(request);
    }

    pub(super) fn not_accepted(&mut self, error: &io::Error) {
        // In a drain, cancelled or missing accepts are expected.
        if self.stage != ServeStage::Running {
            return;
        }
        let pause_ends_ms = self.now_ms + ACCEPT_PAUSE_MS;
        if error.kind() == io::ErrorKind::InvalidInput {
            // Another worker of this listener has begun to drain, and has ended it.
            self.accept_at_ms = pause_ends_ms;
            return;
        }
        self.counters.accept_errors += 1;
        // Other errors are those of one connection, and say nothing of the next one.
        if tcp::ran_out(error) {
            if is_dropped(error, self.ring.open_slots(), self.slots) {
                self.counters.accept();
                self.counters.end(Ending::NoDescriptor);
            } else {
                self.shed();
            }
            self.accept_at_ms = pause_ends_ms;
        }
    }

    fn shed(&mut self) {
        self.worker.shed(&mut self.reserve, &mut self.counters);
    }

    /// A connection has come.
    pub(super) fn admit(&mut self, socket: RingSocket) {
        self.counters.accept();
        let mut client = RingClient::new(socket, self.now_ms);
        client.is_admitted = self.worker.peers.admit();
        let is_admitted = client.is_admitted;
        // There are fewer descriptors than that in a process, and fewer slots in a ring.
        let slot = self.clients.insert(client) as u32;
        if !is_admitted {
            return self.close(slot, Ending::OverLimit);
        }
        if self.stage == ServeStage::Stopped {
            return self.close(slot, Ending::Drained);
        }
        self.arm(slot);
        self.receive(slot);
    }

    /// Takes what waits in the listener, which is as many at most as there may be connections, or
    /// the rest is over the limit anyhow.
    pub(super) fn accept_the_rest(&mut self) {
        for _ in 0..self.worker.limits.connections {
            match self.worker.listener.accept() {
                Ok(stream) => self.admit(RingSocket::from(OwnedFd::from(stream))),
                // No connection waits; or another worker has ended the listener.
                Err(error)
                    if tcp::would_block(&error) || error.kind() == io::ErrorKind::InvalidInput =>
                {
                    return;
                }
                Err(error) => {
                    self.counters.accept_errors += 1;
                    if tcp::ran_out(&error) {
                        self.shed();
                    }
                }
            }
        }
    }
}

/// Whether the connection of a failed accept is lost, and not still waiting in the listener, so that
/// it must be counted now. Into a slot, a connection is accepted first, and dropped with `ENFILE` if
/// there is none (`io_accept`, io_uring/net.c). The same error comes before a connection was taken
/// where all files of the host are open (fs.file-max; `do_accept`, net/socket.c): there are slots
/// then, unless both ran out at once.
fn is_dropped(error: &io::Error, open_slots: usize, slots: usize) -> bool {
    slots > 0 && open_slots >= slots && error.raw_os_error() == Some(libc::ENFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_lost_for_want_of_a_slot_and_not_for_want_of_a_file() {
        let [no_file, no_descriptor] =
            [libc::ENFILE, libc::EMFILE].map(io::Error::from_raw_os_error);
        assert!(is_dropped(&no_file, 8, 8));
        // It waits in the listener still, and is counted when it is taken.
        assert!(!is_dropped(&no_file, 7, 8));
        assert!(!is_dropped(&no_descriptor, 8, 8));
        assert!(!is_dropped(&no_file, 0, 0), "without slots");
    }
}
