//! Options of sockets: `setsockopt(2)`, `getsockopt(2)`.

use crate::CallResult;
use crate::error::On;
use rustix::net::sockopt;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Numbers of include/uapi/linux/udp.h.
pub(crate) const UDP_SEGMENT: libc::c_int = 103;
pub(crate) const UDP_GRO: libc::c_int = 104;

/// The kernel doubles the size of a buffer and keeps it in an int.
pub(crate) const BUFFER_BYTES_MAX: usize = i32::MAX as usize / 2;

/// Sets an option to a value of any plain C type.
pub(crate) fn set_option<T: Copy>(
    fd: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is readable for the size given, and the kernel only reads it.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an option that consists of `N` words; those that the kernel does not fill are 0.
pub(crate) fn words<const N: usize>(
    fd: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<[u32; N]> {
    let mut words = [0_u32; N];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: `words` is writable for `length` bytes, any bytes are valid words, and both
    // pointers live across the call.
    let answer = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            words.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    match answer {
        0 => Ok(words),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Asks for a send buffer of `bytes` and answers what was granted, without the kernel's doubling
/// (`SO_SNDBUFFORCE`, `SO_SNDBUF`, socket(7)).
pub(crate) fn set_send_buffer(
    fd: impl AsFd,
    object: impl fmt::Display,
    bytes: usize,
) -> CallResult<usize> {
    let asked = bytes.min(BUFFER_BYTES_MAX);
    if sockopt::set_socket_send_buffer_size_force(&fd, asked).is_err() {
        let set = sockopt::set_socket_send_buffer_size(&fd, asked);
        set.on("setsockopt SO_SNDBUF", &object)?;
    }
    send_buffer(fd, object)
}

/// The send buffer in bytes, without the kernel's doubling.
pub(crate) fn send_buffer(fd: impl AsFd, object: impl fmt::Display) -> CallResult<usize> {
    let doubled = sockopt::socket_send_buffer_size(fd);
    Ok(doubled.on("getsockopt SO_SNDBUF", object)? / 2)
}
