//! Buffers that the kernel takes one by one, as datagrams come (`IORING_REGISTER_PBUF_RING`,
//! io_uring_register(2)).
//!
//! The ring is an array of buffer numbers and a tail. We write numbers and move the tail; the
//! kernel takes them from its own head on. A taken buffer is ours again with the completion that
//! names it.

use crate::mmap::Mapping;
use crate::{CallError, CallResult};
use io_uring::types::BufRingEntry;
use std::io;
use std::mem;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

/// The most buffers that the kernel takes in one ring (`io_register_pbuf_ring`, io_uring/kbuf.c).
pub(super) const BUFFERS_MAX: usize = 1 << 15;
/// A cache line.
const LINE_BYTES: usize = 64;

/// Buffers, and the ring that gives them to the kernel.
#[derive(Debug)]
pub(super) struct BufferRing {
    entries: Mapping,
    memory: Mapping,
    shape: BufferRingShape,
    /// Numbers written since the beginning; the kernel sees it with [`BufferRing::publish`].
    tail: u16,
}

/// The arithmetic of a buffer ring, without its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BufferRingShape {
    /// How many buffers: a power of two.
    pub(super) count: u16,
    /// Bytes that the kernel may fill of each.
    pub(super) buffer_bytes: usize,
    /// Bytes from one to the next.
    pub(super) stride: usize,
}

impl BufferRingShape {
    /// At least `count` buffers of `buffer_bytes` each.
    ///
    /// # Errors
    /// `EINVAL` for buffers larger than an `int` can count: the kernel reports the filled bytes of
    /// a buffer in one.
    pub(super) fn new(count: usize, buffer_bytes: usize) -> CallResult<Self> {
        let refused = || {
            let error = io::Error::from_raw_os_error(libc::EINVAL);
            CallError::new(
                "io_uring_register",
                format!("buffers of {buffer_bytes} bytes"),
                error,
            )
        };
        if i32::try_from(buffer_bytes).is_err() {
            return Err(refused());
        }
        let count = count.clamp(1, BUFFERS_MAX).next_power_of_two();
        // An odd number of cache lines, because buffers whose distance is a power of two have
        // their first lines, which are all that a small datagram fills, in the same few sets of
        // the processor's cache.
        let lines = buffer_bytes.div_ceil(LINE_BYTES) | 1;
        let stride = lines.checked_mul(LINE_BYTES).ok_or_else(refused)?;
        // All of them must be addresses as well.
        stride.checked_mul(count).ok_or_else(refused)?;
        Ok(Self {
            count: count as u16,
            buffer_bytes,
            stride,
        })
    }

    /// Bytes of all buffers.
    pub(super) fn memory_bytes(&self) -> usize {
        self.stride * usize::from(self.count)
    }

    /// Where a buffer begins; none for a number that there is not.
    #[inline]
    pub(super) fn offset(&self, id: u16) -> Option<usize> {
        (id < self.count).then(|| usize::from(id) * self.stride)
    }

    /// Where in the array the `tail`th number is written.
    #[inline]
    pub(super) fn slot(&self, tail: u16) -> usize {
        usize::from(tail & (self.count - 1))
    }
}

impl BufferRing {
    /// Maps the ring and its buffers; the kernel has none of them yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn new(shape: BufferRingShape) -> CallResult<Self> {
        Ok(Self {
            entries: entries(&shape)?,
            memory: Mapping::anonymous(shape.memory_bytes())?,
            shape,
            tail: 0,
        })
    }

    /// The address of the ring, for its registration.
    pub(super) fn address(&self) -> u64 {
        self.entries.start().as_ptr() as u64
    }

    pub(super) fn shape(&self) -> &BufferRingShape {
        &self.shape
    }

    /// Begins anew with a ring that no kernel knows, and the same buffers.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn renew(&mut self) -> CallResult<()> {
        self.entries = entries(&self.shape)?;
        self.tail = 0;
        Ok(())
    }

    /// Writes the number of a buffer that the kernel may fill. To be published.
    #[inline]
    pub(super) fn give(&mut self, id: u16) {
        let Some(offset) = self.shape.offset(id) else {
            return;
        };
        let slot = self.shape.slot(self.tail);
        // SAFETY: `slot` is below `count`, and the mapping holds `count` entries at a page's
        // beginning. The kernel does not read an entry beyond the published tail, and it writes
        // none. Entry 0 also holds the tail, in a field that the three setters do not touch.
        let entry = unsafe {
            &mut *self
                .entries
                .start()
                .cast::<BufRingEntry>()
                .as_ptr()
                .add(slot)
        };
        // The offset is inside the memory, so that the sum is an address of it.
        entry.set_addr(self.memory.start().as_ptr() as u64 + offset as u64);
        entry.set_len(self.shape.buffer_bytes as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Lets the kernel see every buffer given so far.
    #[inline]
    pub(super) fn publish(&mut self) {
        let first = self.entries.start().cast::<BufRingEntry>().as_ptr();
        // SAFETY: the mapping begins with an initialised entry (zeros are one). In it the tail is a
        // u16 aligned as such. Only this thread writes it and the kernel reads it, both atomically.
        let tail = unsafe { &*BufRingEntry::tail(first).cast::<AtomicU16>() };
        // A reader that sees the new tail must see the numbers before it.
        tail.store(self.tail, Ordering::Release);
    }

    /// Address and length in bytes of all buffers.
    #[inline]
    pub(super) fn memory(&self) -> (NonNull<u8>, usize) {
        (self.memory.start(), self.memory.bytes())
    }

    /// The first `bytes` of a buffer; none if there is no such buffer.
    ///
    /// # Safety
    /// The kernel must have completed this buffer, and it must not be given again while the answer
    /// lives.
    #[inline]
    pub(super) unsafe fn filled(&self, id: u16, bytes: usize) -> Option<&[u8]> {
        let offset = self.shape.offset(id)?;
        let bytes = bytes.min(self.shape.buffer_bytes);
        // SAFETY: the buffer lies inside the mapping, which is initialised with zeros. The caller
        // promises that it is not written meanwhile.
        Some(unsafe { slice::from_raw_parts(self.memory.start().as_ptr().add(offset), bytes) })
    }
}

fn entries(shape: &BufferRingShape) -> CallResult<Mapping> {
    Mapping::anonymous(usize::from(shape.count) * mem::size_of::<BufRingEntry>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The kernel's end: its head, and reading a number as it does (`io_ring_buffer_select`).
    fn take(ring: &BufferRing, head: &mut u16) -> Option<u16> {
        let first = ring.entries.start().cast::<BufRingEntry>().as_ptr();
        // SAFETY: as in `publish` and `give`; there is one thread.
        let (tail, entry) = unsafe {
            let tail = BufRingEntry::tail(first).read();
            (tail, &*first.add(ring.shape.slot(*head)))
        };
        if tail == *head {
            return None;
        }
        let offset = entry.addr() - ring.memory.start().as_ptr() as u64;
        assert_eq!(Some(offset as usize), ring.shape.offset(entry.bid()));
        assert_eq!(entry.len() as usize, ring.shape.buffer_bytes);
        *head = head.wrapping_add(1);
        Some(entry.bid())
    }

    proptest! {
        /// Buffers are taken and given back by turns, far beyond where 16 bits wrap; a queue
        /// predicts which must come.
        #[test]
        fn buffers_come_in_the_order_in_which_they_were_given(
            count in 1_usize..40,
            turns in proptest::collection::vec((0_usize..50, 0_usize..50), 1..60),
        ) {
            let mut ring = BufferRing::new(BufferRingShape::new(count, 100).unwrap()).unwrap();
            let mut head = 0;
            // As if the ring had been in use for long: it is about to wrap.
            ring.tail = u16::MAX - 7;
            head += ring.tail;
            ring.publish();
            let mut oracle: VecDeque<u16> = (0..ring.shape.count).collect();
            let mut taken = VecDeque::new();
            (0..ring.shape.count).for_each(|id| ring.give(id));
            prop_assert_eq!(take(&ring, &mut head), None);
            ring.publish();
            for (take_up_to, give_up_to) in turns {
                for _ in 0..take_up_to {
                    let id = take(&ring, &mut head);
                    prop_assert_eq!(id, oracle.pop_front());
                    taken.extend(id);
                }
                for id in taken.drain(..give_up_to.min(taken.len())) {
                    ring.give(id);
                    oracle.push_back(id);
                }
                ring.publish();
            }
        }

        #[test]
        fn buffers_do_not_overlap_and_end_inside_the_memory(
            count in 1_usize..70_000, buffer_bytes in 1_usize..70_000,
        ) {
            let shape = BufferRingShape::new(count, buffer_bytes).unwrap();
            prop_assert!(shape.count.is_power_of_two());
            prop_assert!(usize::from(shape.count) >= count.min(BUFFERS_MAX));
            prop_assert!(shape.stride >= buffer_bytes);
            prop_assert_eq!(shape.stride / LINE_BYTES % 2, 1);
            let last = shape.offset(shape.count - 1).unwrap();
            prop_assert!(last + shape.stride <= shape.memory_bytes());
            // Offsets have 32 bits.
            prop_assert!(u32::try_from(shape.memory_bytes()).is_ok());
            prop_assert_eq!(shape.offset(shape.count), None);
        }
    }

    #[test]
    fn a_buffer_whose_filling_cannot_be_told_is_refused() {
        let most = i32::MAX as usize;
        assert!(BufferRingShape::new(1, most).is_ok());
        for bytes in [most + 1, usize::MAX] {
            let error = BufferRingShape::new(BUFFERS_MAX, bytes).unwrap_err();
            assert_eq!(error.source.raw_os_error(), Some(libc::EINVAL));
        }
    }
}
