//! How many connections there may be, over all workers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The open connections of a server, counted.
#[derive(Debug)]
pub(crate) struct Peers {
    open: AtomicUsize,
    limit: usize,
}

impl Peers {
    pub(crate) fn new(limit: usize) -> Self {
        let open = AtomicUsize::new(0);
        Self { open, limit }
    }

    /// Whether a new connection may stay. An admitted connection must [`Peers::leave`].
    pub(crate) fn admit(&self) -> bool {
        let is_admitted = self.open.fetch_add(1, Ordering::Relaxed) < self.limit;
        if !is_admitted {
            self.leave();
        }
        is_admitted
    }

    /// A connection that was admitted has ended.
    pub(crate) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_again_for_each_that_leaves() {
        let peers = Peers::new(2);
        assert_eq!([(); 3].map(|()| peers.admit()), [true, true, false]);
        peers.leave();
        assert_eq!([(); 2].map(|()| peers.admit()), [true, false]);
    }
}
