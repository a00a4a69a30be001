//! A ring that lies in memory mapped from an AF_XDP socket.

use super::ring::{RingSlot, SharedRingMemory};
use crate::CallResult;
use crate::mmap::Mapping;
use rustix::net::xdp::XdpRingOffset;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The indexes and slots of a mapped ring.
#[derive(Debug)]
pub(super) struct MappedRing {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    words: NonNull<AtomicU64>,
    word_count: usize,
    /// Keeps the memory that the addresses above point to.
    _mapping: Mapping,
}

// SAFETY: the addresses lead to atomics in memory that belongs to the process and lives as long as
// this value; a thread is as good as another.
unsafe impl Send for MappedRing {}
// SAFETY: all access through a shared reference is atomic.
unsafe impl Sync for MappedRing {}

impl MappedRing {
    /// Maps the ring of `slots` slots that the socket keeps at `page_offset`.
    pub(super) fn new<S: RingSlot>(
        fd: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &XdpRingOffset,
        slots: u32,
    ) -> CallResult<Self> {
        let word_count = slots as usize * S::WORDS;
        let bytes_of = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let (producer, consumer) = (bytes_of(offsets.producer), bytes_of(offsets.consumer));
        let (descriptors, flags) = (bytes_of(offsets.desc), offsets.flags.map(bytes_of));
        let bytes = descriptors.saturating_add(word_count * size_of::<AtomicU64>());
        let mapping = Mapping::of(fd, bytes, page_offset)?;
        // Linux before 5.4 has no flags and puts the offsets elsewhere.
        let flags = flags.ok_or_else(|| too_old("ring flags (Linux 5.4)"))?;
        let lie_before = [producer, consumer, flags].iter().all(|at| {
            let end = at.checked_add(size_of::<AtomicU32>());
            at.is_multiple_of(align_of::<AtomicU32>()) && end.is_some_and(|end| end <= bytes)
        });
        if !lie_before || !descriptors.is_multiple_of(align_of::<AtomicU64>()) {
            return Err(too_old("ring offsets"));
        }
        // SAFETY: all four offsets lie inside the mapping with their sizes, and are aligned, by
        // the checks above.
        let (producer, consumer, flags, words) = unsafe {
            let start = mapping.start();
            (
                start.add(producer).cast(),
                start.add(consumer).cast(),
                start.add(flags).cast(),
                start.add(descriptors).cast(),
            )
        };
        Ok(Self {
            producer,
            consumer,
            flags,
            words,
            word_count,
            _mapping: mapping,
        })
    }
}

impl SharedRingMemory for MappedRing {
    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: an aligned place in the mapping, by `new`, which lives as long as `self`; the
        // kernel writes it as a whole word.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: this number of aligned words lies in the mapping, by `new`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.word_count) }
    }
}

fn too_old(object: &str) -> crate::CallError {
    let source = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    crate::CallError::new("getsockopt XDP_MMAP_OFFSETS", object, source)
}
