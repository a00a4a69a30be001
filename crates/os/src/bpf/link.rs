//! The attachment of a program, as a descriptor: closing it detaches.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::{Command, Program, call, owned};
use crate::{Error, Result};

/// Keeps a program attached. The kernel detaches it when the last descriptor closes, so also when
/// the process is killed; the [`Program`] itself may go before.
#[derive(Debug)]
pub struct Link {
    _fd: OwnedFd,
}

/// The `BPF_RAW_TRACEPOINT_OPEN` part of `union bpf_attr`.
#[repr(C)]
struct RawTracepointAttributes {
    name: u64,
    program: u32,
    reserved: u32,
}

/// The `BPF_LINK_CREATE` part of `union bpf_attr`, as far as TCX reads it.
#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface_index: u32,
    attach_type: u32,
    flags: u32,
    relative_to: u32,
    reserved: u32,
    expected_revision: u64,
}

/// `BPF_TCX_EGRESS` of `enum bpf_attach_type` (Linux 6.6).
const TCX_EGRESS: u32 = 47;

impl Link {
    /// Runs the program at every passage of a kernel tracepoint, with its raw arguments.
    ///
    /// bpf(2), `BPF_RAW_TRACEPOINT_OPEN`. `tracepoint` is the bare name, `kfree_skb`.
    ///
    /// # Errors
    ///
    /// `ENOENT` if this kernel has no such tracepoint, `EPERM` without the capabilities.
    pub fn raw_tracepoint(program: &Program, tracepoint: &std::ffi::CStr) -> Result<Self> {
        let mut attributes = RawTracepointAttributes {
            name: tracepoint.as_ptr() as u64,
            program: program.as_fd().as_raw_fd() as u32,
            reserved: 0,
        };
        // SAFETY: the layout is the raw tracepoint part of `union bpf_attr`, without padding; the
        // name is terminated by a zero and outlives the call.
        let fd = unsafe { call(Command::RawTracepointOpen, &mut attributes) }
            .and_then(owned)
            .map_err(|refusal| {
                let object = tracepoint.to_string_lossy();
                Error::new("bpf BPF_RAW_TRACEPOINT_OPEN", object, refusal)
            })?;
        Ok(Self { _fd: fd })
    }

    /// Runs the classifier on every frame that leaves an interface, before its transmit queue is
    /// chosen. The interface is looked up in the calling thread's network namespace.
    ///
    /// bpf(2), `BPF_LINK_CREATE` with `BPF_TCX_EGRESS` (`kernel/bpf/tcx.c`, Linux 6.6).
    ///
    /// # Errors
    ///
    /// `ENODEV` for an interface that is not there, `EINVAL` before Linux 6.6.
    pub fn tcx_egress(program: &Program, interface_index: u32) -> Result<Self> {
        let mut attributes = LinkAttributes {
            program: program.as_fd().as_raw_fd() as u32,
            interface_index,
            attach_type: TCX_EGRESS,
            flags: 0,
            relative_to: 0,
            reserved: 0,
            expected_revision: 0,
        };
        // SAFETY: the layout is the link part of `union bpf_attr`, written without padding, and it
        // has no addresses.
        let fd = unsafe { call(Command::LinkCreate, &mut attributes) }
            .and_then(owned)
            .map_err(|refusal| {
                let object = format!("TCX egress of interface {interface_index}");
                Error::new("bpf BPF_LINK_CREATE", object, refusal)
            })?;
        Ok(Self { _fd: fd })
    }
}
