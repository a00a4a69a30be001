//! Memory that is shared with the kernel: rings of sockets, and the packet memory that they point to.

use crate::error::On;
use crate::{CallError, CallResult};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

/// A mapped range of memory, unmapped when dropped.
///
/// It hands out an address and no slices, because other code or the kernel may write there. Only
/// the protocol of the ring that lies in it defines which bytes may be touched.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process and not to a thread; this type only holds its address,
// and reaches into it nowhere.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process in pages of the usual size (`mmap(2)`, `MAP_ANONYMOUS`).
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` for no bytes at all.
    pub fn anonymous(bytes: usize) -> CallResult<Self> {
        Self::private(bytes, MapFlags::PRIVATE)
    }

    /// Zeroed memory in huge pages of the default size (`MAP_HUGETLB`), which spares translations:
    /// `bytes` is rounded up to whole ones. The pages must have been set aside before
    /// (`vm.nr_hugepages`, Documentation/admin-guide/mm/hugetlbpage.rst).
    ///
    /// # Errors
    /// `ENOMEM` if too few huge pages are free; `ENOENT` if the kernel reports no size for them.
    pub fn huge(bytes: usize) -> CallResult<Self> {
        let page_bytes = huge_page_bytes().ok_or_else(|| {
            let source = io::Error::from_raw_os_error(libc::ENOENT);
            CallError::new("read", "/proc/meminfo Hugepagesize", source)
        })?;
        // munmap(2) takes only whole huge pages.
        let bytes = bytes.next_multiple_of(page_bytes);
        Self::private(bytes, MapFlags::PRIVATE | MapFlags::HUGETLB)
    }

    /// The ring that a socket or an io_uring keeps at `offset` of its descriptor (`MAP_SHARED`).
    ///
    /// # Errors
    /// `EINVAL` for an offset or a length that the descriptor does not know.
    pub fn of(fd: BorrowedFd<'_>, bytes: usize, offset: u64) -> CallResult<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: without an address the kernel chooses a free range, so that no memory in use is
        // replaced; nothing refers to the new range yet.
        let start = unsafe { rustix::mm::mmap(null_mut(), bytes, access(), flags, fd, offset) };
        let object = || {
            format!(
                "{bytes} bytes at {offset:#x} of descriptor {}",
                fd.as_raw_fd()
            )
        };
        Self::new(start, bytes, object)
    }

    /// Its first byte; the address is a multiple of the page size.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How long it is in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn private(bytes: usize, flags: MapFlags) -> CallResult<Self> {
        // SAFETY: as in `of`.
        let start = unsafe { rustix::mm::mmap_anonymous(null_mut(), bytes, access(), flags) };
        let kind = if flags.contains(MapFlags::HUGETLB) {
            "huge pages"
        } else {
            "memory"
        };
        Self::new(start, bytes, || format!("{bytes} bytes of {kind}"))
    }

    fn new(
        start: rustix::io::Result<*mut std::ffi::c_void>,
        bytes: usize,
        object: impl Fn() -> String,
    ) -> CallResult<Self> {
        let start = start.on("mmap", object())?;
        let start = NonNull::new(start.cast()).ok_or_else(|| {
            CallError::new(
                "mmap",
                object(),
                io::Error::from(io::ErrorKind::InvalidData),
            )
        })?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`. The owner of this value has seen to it that its
        // address is not used any longer. A refusal would leave it mapped, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn access() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

/// The default huge page, from `/proc/meminfo` (proc_meminfo(5)).
fn huge_page_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_there_and_zeroed() {
        let mapping = Mapping::anonymous(10_000).unwrap();
        assert_eq!(mapping.bytes(), 10_000);
        // SAFETY: the last byte of the mapping, which no other code knows.
        let last = unsafe { mapping.start().add(9_999).read() };
        assert_eq!(last, 0);
    }

    #[test]
    fn nothing_is_refused() {
        let error = Mapping::anonymous(0).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
    }

    #[test]
    fn huge_pages_that_nobody_set_aside_are_an_error() {
        // A thousand terabytes are more than any machine has set aside.
        if let Err(error) = Mapping::huge(1 << 50) {
            assert!(
                matches!(error.errno(), Some(libc::ENOMEM | libc::ENOENT)),
                "{error}"
            );
        }
    }
}
