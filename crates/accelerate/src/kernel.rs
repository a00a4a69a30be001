//! The kernel's own calls, past the functions that this library replaces.

use libc::{c_int, c_long, c_void, socklen_t, timespec};
use std::mem::{size_of, transmute, zeroed};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::time::Duration;

type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// `syscall` of the C library, once it was looked up.
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Makes a system call as `syscall(2)` does: -1 and `errno` for a refusal.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn call(number: c_long, words: [usize; 6]) -> isize {
    let mut real = SYSCALL.load(Relaxed);
    if real.is_null() {
        // SAFETY: the name ends with a zero.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
        SYSCALL.store(real, Relaxed);
    }
    // SAFETY: every C library has it, with up to six words behind the number.
    let real: Syscall = unsafe { transmute(real) };
    let [a, b, c, d, e, f] = words;
    // SAFETY: by the contract of this function.
    unsafe { real(number, a, b, c, d, e, f) as isize }
}

/// Sets `errno` and returns -1.
pub(crate) fn refuse(errno: c_int) -> isize {
    // SAFETY: the place of `errno` of this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The last `errno` of this thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: as in `refuse`.
    unsafe { *libc::__errno_location() }
}

/// Runs `look` and leaves `errno` as it was.
pub(crate) fn keeping_errno<T>(look: impl FnOnce() -> T) -> T {
    let before = errno();
    let seen = look();
    refuse(before);
    seen
}

/// An option of a socket (`getsockopt(2)`), if it has it, and how many bytes came.
pub(crate) fn option<T: Copy>(fd: c_int, level: c_int, name: c_int) -> Option<(T, socklen_t)> {
    // SAFETY: all callers ask for numbers, or structures of numbers.
    let mut value: T = unsafe { zeroed() };
    let mut bytes = size_of::<T>() as socklen_t;
    let value_at = (&raw mut value) as usize;
    let words = [
        fd as usize,
        level as usize,
        name as usize,
        value_at,
        (&raw mut bytes) as usize,
        0,
    ];
    // SAFETY: the kernel writes at most `bytes` to the value.
    (unsafe { call(libc::SYS_getsockopt, words) } == 0).then_some((value, bytes))
}

/// `recvmsg(2)`.
///
/// # Safety
/// The kernel can fill the message.
pub(crate) unsafe fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
    // SAFETY: by the contract of this function.
    unsafe {
        call(
            libc::SYS_recvmsg,
            [fd as usize, message as usize, flags as usize, 0, 0, 0],
        )
    }
}

/// `close(2)`.
pub(crate) fn close(fd: c_int) -> isize {
    // SAFETY: the caller wants this descriptor closed.
    unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) }
}

/// `fcntl(2)`.
pub(crate) fn fcntl(fd: c_int, command: c_int, value: usize) -> c_int {
    // SAFETY: only commands with numbers are used.
    unsafe {
        call(
            libc::SYS_fcntl,
            [fd as usize, command as usize, value, 0, 0, 0],
        ) as c_int
    }
}

/// `ppoll(2)`; without a time it waits until something comes.
///
/// # Safety
/// The signal mask must be null, or one of the C library.
pub(crate) unsafe fn ppoll(
    fds: &mut [libc::pollfd],
    time: Option<Duration>,
    mask: *const libc::sigset_t,
) -> isize {
    let mut time = time.map(timespec_of);
    let time = time.as_mut().map_or(null(), |time| &raw const *time);
    let (fds_at, mask_bytes) = (fds.as_mut_ptr() as usize, MASK_BYTES);
    let words = [
        fds_at,
        fds.len(),
        time as usize,
        mask as usize,
        mask_bytes,
        0,
    ];
    // SAFETY: the slice has that length; the mask by the contract of this function.
    unsafe { call(libc::SYS_ppoll, words) }
}

/// Bytes of the kernel's signal mask.
pub(crate) const MASK_BYTES: usize = 8;

/// A time as the kernel takes it.
pub(crate) fn timespec_of(time: Duration) -> timespec {
    timespec {
        tv_sec: time.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    }
}
