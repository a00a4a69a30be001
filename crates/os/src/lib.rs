//! Linux made safe for packet programs.
//!
//! Every system call of mpps is wrapped here, and with a few named exceptions this is the only
//! crate with `unsafe` code.
#![allow(unsafe_code, reason = "system calls are wrapped here")]

/// Lends the descriptor that a type has in this field.
macro_rules! lends_descriptor {
    ($owner:ty, $($field:ident).+) => {
        impl std::os::fd::AsFd for $owner {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                std::os::fd::AsFd::as_fd(&self.$($field).+)
            }
        }
    };
}

pub mod borrowed;
pub mod bpf;
pub mod capability;
pub mod clock;
mod control;
pub mod cpu_list;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod epoll;
mod error;
pub mod ethtool;
pub mod file;
pub mod interrupts;
pub mod limit;
pub mod messages;
pub mod mmap;
pub mod namespace;
mod native;
pub mod netlink;
mod option;
pub mod packet_socket;
pub mod poll;
pub mod private_directory;
pub mod process;
pub mod sched;
pub mod signal;
pub mod socket;
pub mod sysfs;
pub mod tcp;
pub mod terminal;
pub mod text;
pub mod uring;
pub mod user;
pub mod wake;
pub mod xdp;

pub use cpu_list::{CpuList, CpuListError};
pub use error::{CallError, CallResult, On, errno_text};
