//! The arithmetic of a ring with one producer and one consumer, apart from where its memory lies.
//!
//! Documentation/networking/af_xdp.rst, net/xdp/xsk_queue.h: both indexes count up without end and
//! wrap at 32 bits; a slot is an index modulo the size, which is a power of two. Each side owns one
//! index, and the slots that lie on its side of the other one. Slots are read and written as
//! relaxed atomics, which are plain moves on every 64-bit machine. So even a side that breaks the
//! protocol makes no data race.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// `XDP_RING_NEED_WAKEUP` of include/uapi/linux/if_xdp.h.
const NEED_WAKEUP: u32 = 1;

/// The memory that the two sides of a ring share.
pub(super) trait SharedRingMemory {
    /// The end of the filled slots.
    fn producer(&self) -> &AtomicU32;
    /// The end of the emptied slots.
    fn consumer(&self) -> &AtomicU32;
    /// The flags that the kernel sets.
    fn flags(&self) -> &AtomicU32;
    /// All slots, as words.
    fn words(&self) -> &[AtomicU64];
}

impl<M: SharedRingMemory> SharedRingMemory for &M {
    #[inline]
    fn producer(&self) -> &AtomicU32 {
        (**self).producer()
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        (**self).consumer()
    }

    #[inline]
    fn flags(&self) -> &AtomicU32 {
        (**self).flags()
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }
}

/// The contents of a slot.
pub(super) trait RingSlot: Copy {
    /// Its size in words of eight bytes.
    const WORDS: usize;
    /// Reads it from [`Self::WORDS`] words.
    fn read(words: &[AtomicU64]) -> Self;
    /// Writes it to [`Self::WORDS`] words.
    fn write(self, words: &[AtomicU64]);
}

/// A frame's address, in the fill ring and in the completion ring.
impl RingSlot for u64 {
    const WORDS: usize = 1;

    #[inline]
    fn read(words: &[AtomicU64]) -> Self {
        words[0].load(Ordering::Relaxed)
    }

    #[inline]
    fn write(self, words: &[AtomicU64]) {
        words[0].store(self, Ordering::Relaxed);
    }
}

/// `struct xdp_desc`: a piece of a packet, in the receive ring and in the transmit ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its first byte, counted from the start of the umem.
    pub(super) address: u64,
    /// Its length in bytes.
    pub(super) bytes: u32,
    /// `XDP_PKT_CONTD` if another piece follows.
    pub(super) options: u32,
}

impl RingSlot for Piece {
    const WORDS: usize = 2;

    #[inline]
    fn read(words: &[AtomicU64]) -> Self {
        let [a, b, c, d, e, f, g, h] = words[1].load(Ordering::Relaxed).to_ne_bytes();
        Self {
            address: words[0].load(Ordering::Relaxed),
            bytes: u32::from_ne_bytes([a, b, c, d]),
            options: u32::from_ne_bytes([e, f, g, h]),
        }
    }

    #[inline]
    fn write(self, words: &[AtomicU64]) {
        let ([a, b, c, d], [e, f, g, h]) = (self.bytes.to_ne_bytes(), self.options.to_ne_bytes());
        words[0].store(self.address, Ordering::Relaxed);
        words[1].store(
            u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            Ordering::Relaxed,
        );
    }
}

/// The side that fills slots.
#[derive(Debug)]
pub(super) struct Producer<M, S> {
    memory: M,
    /// The next slot to fill; slots before it are filled, and published by [`Self::publish`].
    next: u32,
    /// Where the free slots end, as of the last look at the other side's index.
    end: u32,
    mask: u32,
    slot: PhantomData<S>,
}

impl<M: SharedRingMemory, S: RingSlot> Producer<M, S> {
    /// The producer of a ring that may have been used before.
    pub(super) fn new(memory: M) -> Self {
        let slots = slots::<M, S>(&memory);
        let next = memory.producer().load(Ordering::Relaxed);
        let end = memory
            .consumer()
            .load(Ordering::Acquire)
            .wrapping_add(slots);
        Self {
            memory,
            next,
            end,
            mask: slots - 1,
            slot: PhantomData,
        }
    }

    /// How many slots may be filled. The other side's index, whose cache line the other side
    /// writes, is read only if the known ones are fewer than `wanted`.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        if self.end.wrapping_sub(self.next) < wanted {
            // Acquire: the other side has read a slot before it is filled again.
            let consumer = self.memory.consumer().load(Ordering::Acquire);
            self.end = consumer.wrapping_add(self.mask + 1);
        }
        // No more than there are, whatever the other side wrote.
        self.end.wrapping_sub(self.next).min(self.mask + 1)
    }

    /// Fills the next slot; the caller has seen by [`Self::room`] that there is one.
    #[inline]
    pub(super) fn push(&mut self, value: S) {
        value.write(words_of::<M, S>(&self.memory, self.next & self.mask));
        self.next = self.next.wrapping_add(1);
    }

    /// Lets the other side see what was filled.
    #[inline]
    pub(super) fn publish(&mut self) {
        // Release: what the slots, and the frames that they name, hold comes before the index.
        self.memory.producer().store(self.next, Ordering::Release);
    }

    /// How many slots were filled and not emptied yet.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        let consumer = self.memory.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(consumer).min(self.mask + 1)
    }

    /// True if the kernel sleeps and wants to be called.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        // A driver sets the flag before it looks at the index for the last time, so the index has
        // to be out before the flag is read: otherwise each side could miss the other.
        fence(Ordering::SeqCst);
        self.memory.flags().load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// The side that empties slots.
#[derive(Debug)]
pub(super) struct Consumer<M, S> {
    memory: M,
    /// The next slot to empty.
    next: u32,
    /// Where the filled slots end, as of the last look at the other side's index.
    end: u32,
    mask: u32,
    slot: PhantomData<S>,
}

impl<M: SharedRingMemory, S: RingSlot> Consumer<M, S> {
    /// The consumer of a ring that may have been used before.
    pub(super) fn new(memory: M) -> Self {
        let slots = slots::<M, S>(&memory);
        let next = memory.consumer().load(Ordering::Relaxed);
        let end = memory.producer().load(Ordering::Acquire);
        Self {
            memory,
            next,
            end,
            mask: slots - 1,
            slot: PhantomData,
        }
    }

    /// How many slots are filled. As [`Producer::room`], it looks only if it must.
    #[inline]
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        if self.end.wrapping_sub(self.next) < wanted {
            // Acquire: what the slots hold was written before the index.
            self.end = self.memory.producer().load(Ordering::Acquire);
        }
        self.end.wrapping_sub(self.next).min(self.mask + 1)
    }

    /// The value `ahead` slots from the next one; the caller has seen by [`Self::available`] that
    /// there is one.
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> S {
        let at = self.next.wrapping_add(ahead) & self.mask;
        S::read(words_of::<M, S>(&self.memory, at))
    }

    /// Gives `count` slots, which were peeked at, back to the other side.
    #[inline]
    pub(super) fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        // Release: the slots were read before they may be filled again.
        self.memory.consumer().store(self.next, Ordering::Release);
    }

    /// True if something is there, or was at the last look.
    #[inline]
    pub(super) fn is_ready(&mut self) -> bool {
        self.available(1) > 0
    }
}

/// How many slots the memory holds; its maker must have chosen a power of two.
fn slots<M: SharedRingMemory, S: RingSlot>(memory: &M) -> u32 {
    let slots = u32::try_from(memory.words().len() / S::WORDS).unwrap_or(0);
    assert!(slots.is_power_of_two(), "a ring of {slots} slots");
    slots
}

#[inline]
fn words_of<M: SharedRingMemory, S: RingSlot>(memory: &M, slot: u32) -> &[AtomicU64] {
    let from = slot as usize * S::WORDS;
    &memory.words()[from..from + S::WORDS]
}

#[cfg(test)]
mod tests;
