//! The memory that packets lie in: frames of one size, registered with the kernel, and a tail that
//! is only ours.

use super::SocketConfig;
use crate::CallResult;
use crate::mmap::Mapping;
use std::ptr::NonNull;

/// Frames, and a tail behind them.
#[derive(Debug)]
pub(super) struct Umem {
    mapping: Mapping,
    frames: u32,
    frame_bytes: u32,
    tail_bytes: usize,
}

impl Umem {
    /// Maps it; it is not registered yet.
    pub(super) fn new(config: &SocketConfig<'_>, tail_bytes: usize) -> CallResult<Self> {
        let (frames, frame_bytes) = (config.frames, config.frame_bytes);
        let bytes = frames as usize * frame_bytes as usize + tail_bytes;
        let mapping = if config.hugepages {
            Mapping::huge(bytes)?
        } else {
            Mapping::anonymous(bytes)?
        };
        Ok(Self {
            mapping,
            frames,
            frame_bytes,
            tail_bytes,
        })
    }

    /// Its first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.mapping.start()
    }

    /// Bytes of a frame.
    pub(super) fn frame_bytes(&self) -> u64 {
        u64::from(self.frame_bytes)
    }

    /// Bytes of all frames: where the tail begins.
    pub(super) fn frame_area_bytes(&self) -> usize {
        self.frames as usize * self.frame_bytes as usize
    }

    /// Bytes of frames and tail.
    pub(super) fn bytes(&self) -> usize {
        self.frame_area_bytes() + self.tail_bytes
    }

    /// The address of every frame, counted from the start.
    pub(super) fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        let frame_bytes = u64::from(self.frame_bytes);
        (0..u64::from(self.frames)).map(move |frame| frame * frame_bytes)
    }

    /// Lends a frame for writing, or nothing if the address lies outside.
    ///
    /// # Safety
    /// The frame must belong to this process: it is in no ring.
    pub(super) unsafe fn frame_mut(&mut self, address: u64) -> Option<&mut [u8]> {
        let from = usize::try_from(address).ok()?;
        let bytes = self.frame_bytes as usize;
        if from.checked_add(bytes)? > self.frame_area_bytes() {
            return None;
        }
        // SAFETY: the range lies in the mapping by the check above. The kernel does not touch it by
        // the contract of this function. `&mut self` keeps all other code in the process away.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr().add(from), bytes) })
    }

    /// Copies `bytes` from a frame to `to`, a place in the tail; false if either lies outside.
    ///
    /// # Safety
    /// The frame must belong to this process: it was taken from the receive ring and not given
    /// back.
    pub(super) unsafe fn copy_to_tail(&mut self, address: u64, bytes: usize, to: usize) -> bool {
        let from = usize::try_from(address).unwrap_or(usize::MAX);
        let frames_end = self.frame_area_bytes();
        let fits = from.checked_add(bytes).is_some_and(|end| end <= frames_end)
            && to >= frames_end
            && to.checked_add(bytes).is_some_and(|end| end <= self.bytes());
        if fits {
            // SAFETY: both ranges lie in the mapping, one before and one behind the end of the
            // frames, so that they do not overlap; the kernel does not write the first by the
            // contract of this function, and knows nothing of the tail.
            unsafe {
                let start = self.start().as_ptr();
                std::ptr::copy_nonoverlapping(start.add(from), start.add(to), bytes);
            }
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn umem() -> Umem {
        let config = SocketConfig {
            frames: 2,
            frame_bytes: 2048,
            ..SocketConfig::new("x", 1, 0)
        };
        Umem::new(&config, 100).unwrap()
    }

    #[test]
    fn frames_are_lent_and_pieces_collected_behind_them() {
        let mut umem = umem();
        assert_eq!(umem.addresses().collect::<Vec<_>>(), [0, 2048]);
        // SAFETY: no kernel knows this memory.
        unsafe {
            umem.frame_mut(2048).unwrap().fill(7);
            assert!(umem.copy_to_tail(2048, 50, 4096));
            assert_eq!(umem.start().add(4096 + 49).read(), 7);
            assert_eq!(umem.start().add(4096 + 50).read(), 0);
        }
    }

    #[test]
    fn nothing_reaches_outside() {
        let mut umem = umem();
        // SAFETY: no kernel knows this memory.
        unsafe {
            assert!(umem.frame_mut(2049).is_none());
            assert!(umem.frame_mut(u64::MAX).is_none());
            assert!(!umem.copy_to_tail(0, 101, 4096));
            assert!(!umem.copy_to_tail(4000, 97, 4096));
            assert!(!umem.copy_to_tail(0, 10, 4000));
            assert!(!umem.copy_to_tail(u64::MAX, 10, 4096));
        }
    }
}
