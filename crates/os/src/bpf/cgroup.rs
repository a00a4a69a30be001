//! The programs that decide what the sockets of a cgroup receive, and which socket of a namespace does.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::{Command, call, object_info, owned};
use crate::CallResult;
use crate::error::On;

/// The `BPF_PROG_QUERY` part of `union bpf_attr`.
#[repr(C)]
struct QueryAttributes {
    target: u32,
    attach_type: u32,
    flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    reserved: u32,
}

/// The `BPF_PROG_GET_FD_BY_ID` part of `union bpf_attr`.
#[repr(C)]
struct ByIdAttributes {
    program: u32,
    next: u32,
    flags: u32,
}

/// `BPF_CGROUP_INET_INGRESS` of `enum bpf_attach_type`.
const INET_INGRESS: u32 = 0;
/// `BPF_SK_LOOKUP` of `enum bpf_attach_type`.
const SOCKET_LOOKUP: u32 = 36;
/// The namespace of the calling thread.
const NAMESPACE: &str = "/proc/thread-self/ns/net";
/// `BPF_F_QUERY_EFFECTIVE`: also those of the groups above.
const EFFECTIVE: u32 = 1;
/// `BPF_CGROUP_MAX_PROGS` of `kernel/bpf/cgroup.c`.
const PROGRAMS_MAX: usize = 64;
/// Where the name is in `struct bpf_prog_info`, and its length.
const NAME: std::ops::Range<usize> = 64..80;

/// The numbers of the programs that see what sockets of this cgroup (version 2) receive: those
/// attached to it, or with `effective` also those of the groups above it.
///
/// bpf(2), `BPF_PROG_QUERY` (Linux 4.15).
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`, `EBADF` for a directory of cgroups of version 1.
pub fn ingress_programs(directory: impl AsFd, effective: bool) -> CallResult<Vec<u32>> {
    let flags = if effective { EFFECTIVE } else { 0 };
    attached(directory.as_fd(), INET_INGRESS, flags).on("bpf BPF_PROG_QUERY", "cgroup ingress")
}

/// The numbers of the programs that choose sockets in the calling thread's network namespace (`sk_lookup`, Linux 5.9).
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`, `EINVAL` in an older kernel.
pub fn socket_lookup_programs() -> CallResult<Vec<u32>> {
    let namespace = File::open(NAMESPACE).on("open", NAMESPACE)?;
    attached(namespace.as_fd(), SOCKET_LOOKUP, 0).on("bpf BPF_PROG_QUERY", "sk_lookup")
}

fn attached(target: BorrowedFd<'_>, attach_type: u32, flags: u32) -> io::Result<Vec<u32>> {
    let mut programs = [0_u32; PROGRAMS_MAX];
    let mut attributes = QueryAttributes {
        target: target.as_raw_fd() as u32,
        attach_type,
        flags,
        attach_flags: 0,
        programs: programs.as_mut_ptr() as u64,
        count: PROGRAMS_MAX as u32,
        reserved: 0,
    };
    // SAFETY: the layout is `query` of `union bpf_attr`; the kernel writes at most `count` numbers to
    // `programs`, which outlives the call.
    unsafe { call(Command::ProgramQuery, &mut attributes) }?;
    let count = programs.len().min(attributes.count as usize);
    Ok(programs.into_iter().take(count).collect())
}

/// The name of the program with this number; empty if its loader gave none.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOENT` if it has gone.
pub fn program_name(program: u32) -> CallResult<String> {
    let mut attributes = ByIdAttributes {
        program,
        next: 0,
        flags: 0,
    };
    // SAFETY: the layout is that part of `union bpf_attr`, and has no addresses.
    let fd = unsafe { call(Command::ProgramById, &mut attributes) }
        .and_then(owned)
        .on("bpf BPF_PROG_GET_FD_BY_ID", program)?;
    let mut info = [0_u8; NAME.end];
    object_info(fd.as_fd(), "program", &mut info)?;
    let name = info.get(NAME).unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cgroup_has_no_programs() {
        let directory = std::fs::File::open("/").expect("it is there");
        let errno = ingress_programs(directory, true)
            .expect_err("it is none")
            .errno();
        assert!(
            matches!(errno, Some(libc::EBADF | libc::EPERM | libc::EINVAL)),
            "{errno:?}"
        );
        assert!(program_name(u32::MAX).is_err());
    }
}
