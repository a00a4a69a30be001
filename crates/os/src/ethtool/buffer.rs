//! A buffer behind which nothing can be written.

use crate::native::{double_word, word};
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr;
use std::slice;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Memory for a call whose kernel side writes as much as it likes.
///
/// Some ethtool commands write as many elements as the driver has at that moment, whatever the
/// caller has room for. The buffer therefore ends where a page without access begins: such a call
/// fails with `EFAULT` and harms nothing.
#[derive(Debug)]
pub(super) struct GuardedBuffer {
    /// There until the buffer is dropped.
    room: ManuallyDrop<Room>,
    length: usize,
}

thread_local! {
    /// The room of the buffer that was dropped last. A look at a thousand interfaces needs five
    /// thousand buffers; mapping, protecting and unmapping each took a fifth of its time.
    static KEPT: Cell<Option<Room>> = const { Cell::new(None) };
}

/// A larger room goes back to the kernel at once, bytes.
const KEPT_MAX: usize = 1 << 16;

/// Writable pages, and one without access behind them.
#[derive(Debug)]
struct Room {
    mapping: *mut c_void,
    /// Without the last page.
    length: usize,
}

impl Room {
    fn new(length: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let length = length.next_multiple_of(page);
        // SAFETY: without MAP_FIXED a new mapping touches no memory that is in use.
        let mapping = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                length + page,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let room = Self { mapping, length };
        // SAFETY: the last page of the mapping above, which has one page more than its room. No
        // other code has seen it yet.
        unsafe { mprotect(mapping.byte_add(length), page, MprotectFlags::empty()) }?;
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let whole = self.length + rustix::param::page_size();
        // SAFETY: the mapping made in `new`. No reference to it is left. The kernel refuses only a
        // range that is no mapping, so the answer is of no use.
        let _ = unsafe { munmap(self.mapping, whole) };
    }
}

impl GuardedBuffer {
    /// A buffer of zeros. The length must be a multiple of four, which keeps it aligned.
    pub(super) fn new(length: usize) -> io::Result<Self> {
        assert!(
            length.is_multiple_of(4),
            "{length} is no whole number of words"
        );
        // A thread that ends has no room to keep any more.
        let kept = KEPT.try_with(Cell::take).ok().flatten();
        let room = match kept.filter(|kept| kept.length >= length) {
            Some(kept) => kept,
            None => Room::new(length)?,
        };
        let mut buffer = Self {
            room: ManuallyDrop::new(room),
            length,
        };
        buffer.bytes_mut().fill(0);
        Ok(buffer)
    }

    /// A buffer that begins with a request and has zeros up to `length`.
    pub(super) fn holding(request: &[u8], length: usize) -> io::Result<Self> {
        let length = length.max(request.len()).next_multiple_of(4);
        let mut buffer = Self::new(length)?;
        buffer.bytes_mut()[..request.len()].copy_from_slice(request);
        Ok(buffer)
    }

    /// Where the buffer begins, for the kernel.
    pub(super) fn start<T>(&mut self) -> *mut T {
        self.first().cast()
    }

    /// Its first byte: it ends where the room does.
    fn first(&self) -> *mut c_void {
        // SAFETY: the room is as long as the buffer or longer.
        unsafe { self.room.mapping.byte_add(self.room.length - self.length) }
    }

    /// The four bytes at `place`, in the order of this machine; 0 beyond the end.
    pub(super) fn u32_at(&self, place: usize) -> u32 {
        word(self.bytes(), place).unwrap_or(0)
    }

    /// The eight bytes at `place`; 0 beyond the end.
    pub(super) fn u64_at(&self, place: usize) -> u64 {
        double_word(self.bytes(), place).unwrap_or(0)
    }

    /// The name at `place`: 32 bytes, or up to the first zero. Empty beyond the end.
    pub(super) fn string_at(&self, place: usize) -> String {
        let bytes = self.bytes();
        let bytes = bytes
            .get(place..place + super::STRING_LENGTH)
            .unwrap_or_default();
        let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Writes four bytes at `place`, which is the caller's own layout.
    pub(super) fn put_u32(&mut self, place: usize, value: u32) {
        self.bytes_mut()[place..place + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// Writes eight bytes at `place`.
    pub(super) fn put_u64(&mut self, place: usize, value: u64) {
        self.bytes_mut()[place..place + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// All that the buffer holds.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies within the readable part of the mapping, was zeroed by the
        // kernel, and lives as long as `self`; writing needs `&mut self`.
        unsafe { slice::from_raw_parts(self.first().cast(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes it the only reference.
        unsafe { slice::from_raw_parts_mut(self.first().cast(), self.length) }
    }
}

impl Drop for GuardedBuffer {
    fn drop(&mut self) {
        // SAFETY: it is there since `new`, and nothing looks at it after this.
        let room = unsafe { ManuallyDrop::take(&mut self.room) };
        if room.length <= KEPT_MAX {
            let _ = KEPT.try_with(|kept| kept.set(Some(room)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_found(words in 1_usize..3000, value: u32) {
            let mut buffer = GuardedBuffer::new(4 * words).expect("memory");
            prop_assert_eq!(buffer.u32_at(4 * (words - 1)), 0);
            buffer.put_u32(4 * (words - 1), value);
            prop_assert_eq!(buffer.u32_at(4 * (words - 1)), value);
        }

        #[test]
        fn reading_never_leaves_the_buffer(words in 1_usize..20, place in 0_usize..200) {
            let buffer = GuardedBuffer::new(4 * words).expect("memory");
            prop_assert_eq!(buffer.u32_at(place), 0);
            prop_assert_eq!(buffer.u64_at(place), 0);
            prop_assert_eq!(buffer.string_at(place), "");
        }
    }

    #[test]
    fn the_kernel_cannot_write_behind_it() {
        let mut buffer = GuardedBuffer::new(8).expect("memory");
        let zero = std::fs::File::open("/dev/zero").expect("/dev/zero");
        let start: *mut c_void = buffer.start();
        use std::os::fd::AsRawFd;
        // SAFETY: eight bytes belong to the buffer, and what lies behind it cannot be written.
        let read = unsafe { libc::read(zero.as_raw_fd(), start, 16) };
        assert!(read <= 8, "{read} bytes were written");
    }

    #[test]
    fn one_in_the_room_of_another_holds_zeros_and_ends_where_it_did() {
        let mut first = GuardedBuffer::new(6000).expect("memory");
        let end = first.start::<u8>() as usize + 6000;
        first.bytes_mut().fill(0xff);
        drop(first);
        let (mut second, mut beside) = (GuardedBuffer::new(4096), GuardedBuffer::new(4096));
        let second = second.as_mut().expect("memory");
        assert_eq!(second.start::<u8>() as usize + 4096, end, "the same room");
        assert!(second.bytes().iter().all(|byte| *byte == 0));
        let beside = beside.as_mut().expect("memory");
        assert_ne!(beside.start::<u8>() as usize + 4096, end, "it is in use");
    }

    #[test]
    fn a_name_ends_at_the_first_zero() {
        let mut buffer = GuardedBuffer::new(36).expect("memory");
        buffer.bytes_mut()[4..8].copy_from_slice(b"drop");
        assert_eq!(buffer.string_at(4), "drop");
    }
}
