//! Small kernel programs: written with a typed assembler, loaded with bpf(2), released by closing.
//!
//! The programs of this project have ten to two hundred instructions. An assembler keeps the build
//! to a Rust tool chain, and constants known only at run time (field offsets of this very kernel,
//! port ranges) become immediates. Everything here lives as long as its file descriptor: a process
//! that dies leaves no program attached.

use crate::error::On;
use crate::{CallResult, limit};
use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub mod asm;
pub mod btf;
pub mod cgroup;
pub mod classic;
mod link;
mod map;
mod program;
#[cfg(any(test, feature = "bpf-sandbox"))]
pub mod sandbox;

pub use asm::{Assembler, AssemblyError, Instruction};
pub use link::{BpfLink, XdpAttach};
pub use map::{ArrayMap, DeviceMap, PerCpuMap, PerCpuMapKind, Plain, XskMap};
pub use program::{LiveFrames, Program, ProgramKind, TestRun, XDP_HAS_FRAGMENTS};

/// The commands of bpf(2) that are used, from `enum bpf_cmd` of `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNextKey = 4,
    ProgramLoad = 5,
    ProgramTestRun = 10,
    ProgramById = 13,
    ObjectInfo = 15,
    ProgramQuery = 16,
    RawTracepointOpen = 17,
    LinkCreate = 28,
    LinkDetach = 34,
}

/// Calls bpf(2) with the part of `union bpf_attr` that the command reads.
///
/// The kernel takes the missing rest of the union as zero, so each command passes its own struct.
///
/// # Safety
///
/// `T` must be the layout that the kernel expects for `command`, without uninitialised padding, and
/// every address in it must be valid for what the command does with it, for the whole call.
unsafe fn call<T>(command: Command, attributes: &mut T) -> io::Result<c_long> {
    let mut attempt = || {
        // SAFETY: `attributes` is a live, exclusive reference of the size that is passed; the caller
        // vouches for its content.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command as c_int,
                std::ptr::from_mut(attributes),
                size_of::<T>(),
            )
        };
        match answer {
            0.. => Ok(answer),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let makes = matches!(command, Command::MapCreate | Command::ProgramLoad);
    attempt().or_else(|refusal| {
        // Up to Linux 5.10 maps and programs count as locked memory, even just after they were
        // closed. The limit is 64 KiB; beyond it the answer is EPERM (`bpf_charge_memlock`,
        // kernel/bpf/syscall.c).
        let is_limit = makes && refusal.raw_os_error() == Some(libc::EPERM);
        match is_limit && limit::lift_locked_memory() {
            true => attempt(),
            false => Err(refusal),
        }
    })
}

/// The `BPF_OBJ_GET_INFO_BY_FD` part of `union bpf_attr`.
#[repr(C)]
struct InfoAttributes {
    fd: u32,
    size: u32,
    info: u64,
}

/// Reads the first bytes of `struct bpf_prog_info` or `struct bpf_map_info`. Fields that the kernel
/// does not know keep their value. The bytes are zeroed first, because some are addresses that the
/// kernel would write to.
fn object_info(object: BorrowedFd<'_>, name: &str, info: &mut [u8]) -> CallResult<()> {
    info.fill(0);
    let mut attributes = InfoAttributes {
        fd: object.as_raw_fd() as u32,
        size: u32::try_from(info.len()).unwrap_or(u32::MAX),
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the layout is `info` of `union bpf_attr`; the kernel writes at most `size` bytes to
    // `info`, which outlives the call. All the address fields in the zeroed input are null.
    unsafe { call(Command::ObjectInfo, &mut attributes) }
        .on("bpf BPF_OBJ_GET_INFO_BY_FD", name)
        .map(drop)
}

/// Takes ownership of a descriptor that a bpf(2) command has just returned.
fn owned(answer: c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us (bpf(2) opens close-on-exec). No
    // other code knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Object names are at most 15 letters, digits, `_` or `.` (`BPF_OBJ_NAME_LEN`); others are cut.
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let letters = name
        .bytes()
        .filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    for (to, from) in bytes.iter_mut().take(15).zip(letters) {
        *to = from;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::object_name;

    #[test]
    fn names_fit_the_kernel_field() {
        assert_eq!(&object_name("drop-probe"), b"dropprobe\0\0\0\0\0\0\0");
        assert_eq!(
            &object_name("a_name_that_is_too_long"),
            b"a_name_that_is_\0"
        );
    }
}
