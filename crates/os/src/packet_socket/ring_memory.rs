//! The memory of a ring, in parts that change hands by status words.

use super::PacketSocket;
use crate::CallResult;
use crate::mmap::Mapping;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU32;

/// A ring's memory, which the kernel writes too.
#[derive(Debug)]
pub(super) struct PacketRingMemory(Mapping);

impl PacketRingMemory {
    /// Maps the ring of a packet socket (`mmap(2)`), `bytes` being the whole ring.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` if the ring has another size.
    pub(super) fn new(socket: &PacketSocket, bytes: usize) -> CallResult<Self> {
        Mapping::of(socket.as_fd(), bytes, 0).map(Self)
    }

    /// The word at `at` that says whose a part of the ring is.
    ///
    /// # Panics
    /// If it lies outside, or is not aligned: a mistake of the caller.
    #[inline]
    pub(super) fn status(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at < self.0.bytes() && self.0.bytes() - at >= 4);
        // SAFETY: inside the mapping, which is page-aligned, by the line above; the word is only
        // ever used as an atomic, here and in the kernel.
        unsafe { AtomicU32::from_ptr(self.0.start().as_ptr().add(at).cast()) }
    }

    /// A part of the ring.
    ///
    /// # Safety
    /// Neither the kernel nor another reference of ours may write it while the slice lives.
    ///
    /// # Panics
    /// If it lies outside.
    #[inline]
    pub(super) unsafe fn part(&self, at: usize, bytes: usize) -> &[u8] {
        assert!(at <= self.0.bytes() && bytes <= self.0.bytes() - at);
        // SAFETY: inside the mapping by the line above; not written by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.0.start().as_ptr().add(at), bytes) }
    }

    /// A part of the ring to write.
    ///
    /// # Safety
    /// Neither the kernel nor another reference of ours may touch it while the slice lives.
    ///
    /// # Panics
    /// If it lies outside.
    #[inline]
    pub(super) unsafe fn part_mut(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        assert!(at <= self.0.bytes() && bytes <= self.0.bytes() - at);
        // SAFETY: inside the mapping by the line above; only ours by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.start().as_ptr().add(at), bytes) }
    }
}
