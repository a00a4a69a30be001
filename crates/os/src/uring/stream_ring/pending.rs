//! The table of requests that are not over, with all memory that the kernel may still use for them.

use super::socket::{Address, Buffer};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bits of a completion's 64 that hold a request's place in the table.
const INDEX_BITS: u32 = 28;
/// Bits above them that hold the part of a chain.
const STAGE_BITS: u32 = 4;
const STAGE_MASK: u64 = ((1 << STAGE_BITS) - 1) << INDEX_BITS;

/// A request, and all that must live until it is over. Everything that the kernel points to is on
/// the heap, so that the table may move.
pub(super) enum PendingRequest {
    /// No request: the next free place.
    Free(u32),
    Accept {
        /// True if the new socket gets a slot.
        direct: bool,
    },
    /// Requests that make a socket in one of our slots and connect it.
    Dial {
        slot: u32,
        #[expect(dead_code, reason = "held for the kernel")]
        target: Address,
        #[expect(dead_code, reason = "held for the kernel")]
        source: Option<Address>,
        /// Why there is no socket, or none with its options.
        failure: i32,
    },
    /// Into one of the ring's buffers.
    Receive,
    /// Into this one.
    ReceiveInto(Buffer),
    Send(#[expect(dead_code, reason = "held for the kernel")] Arc<[u8]>),
    /// A chain that sends these and receives into one of the ring's buffers.
    Exchange(#[expect(dead_code, reason = "held for the kernel")] Arc<[u8]>),
    /// A chain of both.
    SendAndClose {
        #[expect(dead_code, reason = "held for the kernel")]
        bytes: Arc<[u8]>,
        socket: i64,
        failure: i32,
    },
    Close {
        socket: i64,
        /// False if the caller wants no answer.
        is_told: bool,
    },
    Shutdown,
    Poll,
    Unsent,
    /// A further descriptor of a socket: an existing one, or the kernel's answer.
    Lend(Option<OwnedFd>),
    /// A request that the ring refuses, and the error. The kernel gets an empty request, which
    /// answers in its turn.
    Refused(Box<PendingRequest>, i32),
}

/// Which request a completion is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PendingKey(u64);

struct Entry {
    token: u32,
    /// Counts the requests that had this place, so that a late cancel hits none but its own.
    generation: u32,
    held: PendingRequest,
}

/// The table.
pub(super) struct Pending {
    entries: Vec<Entry>,
    free: u32,
    count: usize,
    /// Places at most.
    entries_max: u32,
}

const NONE: u32 = u32::MAX;

impl Pending {
    pub(super) fn new(count: usize) -> Self {
        Self {
            entries: Vec::with_capacity(count),
            free: NONE,
            count: 0,
            // With one more, a number could mean a part of another request's chain.
            entries_max: 1 << INDEX_BITS,
        }
    }

    /// How many requests are not over.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// None if the table is full.
    pub(super) fn add(&mut self, token: u32, held: PendingRequest) -> Option<PendingKey> {
        let index = self.free;
        if let Some(entry) = self.entries.get_mut(index as usize) {
            if let PendingRequest::Free(next) = entry.held {
                self.free = next;
            }
            entry.token = token;
            entry.held = held;
            self.count += 1;
            return Some(PendingKey::new(index, entry.generation));
        }
        let index = u32::try_from(self.entries.len()).ok()?;
        if index >= self.entries_max {
            return None;
        }
        self.count += 1;
        self.entries.push(Entry {
            token,
            generation: 0,
            held,
        });
        Some(PendingKey::new(index, 0))
    }

    /// The request that a completion is about, and its token.
    pub(super) fn find(&mut self, request: PendingKey) -> Option<(u32, &mut PendingRequest)> {
        let entry = self.entries.get_mut(request.index() as usize)?;
        let is_it = entry.generation == request.generation()
            && !matches!(entry.held, PendingRequest::Free(_));
        is_it.then_some((entry.token, &mut entry.held))
    }

    /// Ends a request, and hands out what it held.
    pub(super) fn remove(&mut self, request: PendingKey) -> Option<(u32, PendingRequest)> {
        let free = self.free;
        let (token, held) = self.find(request)?;
        let held = std::mem::replace(held, PendingRequest::Free(free));
        self.free = request.index();
        self.count -= 1;
        let entry = &mut self.entries[request.index() as usize];
        entry.generation = entry.generation.wrapping_add(1);
        Some((token, held))
    }

    /// True if that is true of a request that is not over.
    pub(super) fn any(&self, mut test: impl FnMut(PendingKey, &PendingRequest) -> bool) -> bool {
        self.entries.iter().enumerate().any(|(index, entry)| {
            let is_free = matches!(entry.held, PendingRequest::Free(_));
            !is_free && test(PendingKey::new(index as u32, entry.generation), &entry.held)
        })
    }
}

impl PendingKey {
    /// No request's.
    pub(super) const NONE: Self = Self(!STAGE_MASK);

    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    /// From a completion: the request, and which part of it.
    pub(super) fn parse(data: u64) -> (Self, u32) {
        let stage = (data as u32) >> INDEX_BITS;
        (Self(data & !STAGE_MASK), stage)
    }

    /// For a part of a chain.
    pub(super) fn stage(self, stage: u32) -> u64 {
        self.0 | u64::from(stage) << INDEX_BITS
    }

    fn index(self) -> u32 {
        self.0 as u32
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_is_used_again_under_another_name() {
        let mut pending = Pending::new(2);
        let first = pending.add(7, PendingRequest::Poll).unwrap();
        assert_eq!(pending.remove(first).map(|(token, _)| token), Some(7));
        assert!(pending.remove(first).is_none());
        let second = pending.add(8, PendingRequest::Poll).unwrap();
        assert_ne!(first, second);
        assert!(pending.find(first).is_none());
        assert_eq!(pending.find(second).map(|(token, _)| token), Some(8));
        assert_eq!(pending.count(), 1);
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let mut pending = Pending::new(2);
        assert_eq!(pending.entries_max, 1 << INDEX_BITS);
        pending.entries_max = 1;
        let first = pending.add(7, PendingRequest::Poll).unwrap();
        assert!(pending.add(8, PendingRequest::Poll).is_none());
        assert_eq!(pending.count(), 1);
        pending.remove(first);
        assert!(pending.add(9, PendingRequest::Poll).is_some());
        assert!(pending.find(PendingKey::NONE).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn a_number_says_which_request_and_part(
            index in 0_u32..1 << INDEX_BITS, generation in any::<u32>(),
            stage in 0_u32..1 << STAGE_BITS,
        ) {
            let request = PendingKey::new(index, generation);
            prop_assert_eq!(PendingKey::parse(request.stage(stage)), (request, stage));
        }

        #[test]
        fn what_was_added_is_there_until_removed(turns in proptest::collection::vec(any::<u8>(), 1..200)) {
            let mut pending = Pending::new(0);
            let mut known = Vec::new();
            for turn in turns {
                if turn % 3 == 0 && !known.is_empty() {
                    let (request, token) = known.swap_remove(usize::from(turn) % known.len());
                    prop_assert_eq!(pending.remove(request).map(|(token, _)| token), Some(token));
                } else {
                    known.push((pending.add(u32::from(turn), PendingRequest::Poll).unwrap(), u32::from(turn)));
                }
                prop_assert_eq!(pending.count(), known.len());
            }
            for (request, token) in known {
                prop_assert_eq!(pending.find(request).map(|(token, _)| token), Some(token));
            }
        }
    }
}
