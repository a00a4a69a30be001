//! The attachment of a program, as a descriptor: dropping it detaches.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::{Command, Program, call, owned};
use crate::error::On;
use crate::netlink::link::object_of;
use crate::{CallError, CallResult};

/// Keeps a program attached. Dropping it detaches the program, and the kernel does so when the process
/// is killed; the [`Program`] itself may go before.
#[derive(Debug)]
pub struct BpfLink {
    fd: OwnedFd,
}

impl Drop for BpfLink {
    /// A child that another thread starts has a copy of every descriptor until it runs its program.
    /// If we only closed ours, the program would stay attached until then.
    ///
    /// bpf(2), `BPF_LINK_DETACH` (Linux 5.9).
    fn drop(&mut self) {
        let mut attributes = self.fd.as_raw_fd() as u32;
        // SAFETY: the descriptor is the whole link-detach part of `union bpf_attr`. A link that
        // cannot be detached in this way, such as a tracepoint's, is detached when it is closed.
        let _ = unsafe { call(Command::LinkDetach, &mut attributes) };
    }
}

/// The `BPF_RAW_TRACEPOINT_OPEN` part of `union bpf_attr`.
#[repr(C)]
struct RawTracepointAttributes {
    name: u64,
    program: u32,
    reserved: u32,
}

/// The `BPF_LINK_CREATE` part of `union bpf_attr`, as far as TCX and XDP read it.
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

/// How an XDP program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAttach {
    /// In the driver, before the kernel makes its own packet buffer (`XDP_FLAGS_DRV_MODE`).
    Native,
    /// In the kernel's core, behind the driver (`XDP_FLAGS_SKB_MODE`): any interface, and slower.
    Generic,
}

/// `BPF_XDP`, `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS` of `enum bpf_attach_type` (Linux 5.9, 6.6).
const XDP: u32 = 37;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of `include/uapi/linux/if_link.h`.
const XDP_GENERIC: u32 = 1 << 1;
const XDP_NATIVE: u32 = 1 << 2;

impl BpfLink {
    /// Runs the program at every passage of a kernel tracepoint, with its raw arguments.
    ///
    /// bpf(2), `BPF_RAW_TRACEPOINT_OPEN`. `tracepoint` is the bare name, `kfree_skb`.
    ///
    /// # Errors
    ///
    /// `ENOENT` if this kernel has no such tracepoint, `EPERM` without the capabilities.
    pub fn raw_tracepoint(program: &Program, tracepoint: &std::ffi::CStr) -> CallResult<Self> {
        Self::open(program, Some(tracepoint)).map_err(|refusal| {
            let object = tracepoint.to_string_lossy();
            CallError::new("bpf BPF_RAW_TRACEPOINT_OPEN", object, refusal)
        })
    }

    /// Runs the program of [`Program::load_exit`] whenever its function returns. Calls that have begun
    /// are left out.
    ///
    /// bpf(2), `BPF_RAW_TRACEPOINT_OPEN` without a name.
    ///
    /// # Errors
    ///
    /// `EPERM` without the capabilities; `E2BIG` if the function has too many programs;
    /// `EOPNOTSUPP` or `EBUSY` on machines that cannot change it.
    pub fn function_exit(program: &Program, function: &str) -> CallResult<Self> {
        Self::open(program, None).on("bpf BPF_RAW_TRACEPOINT_OPEN", function)
    }

    fn open(program: &Program, tracepoint: Option<&std::ffi::CStr>) -> std::io::Result<Self> {
        let mut attributes = RawTracepointAttributes {
            name: tracepoint.map_or(0, |name| name.as_ptr() as u64),
            program: program.as_fd().as_raw_fd() as u32,
            reserved: 0,
        };
        // SAFETY: the layout is the raw tracepoint part of `union bpf_attr`, without padding; the
        // name is null or terminated by a zero, and outlives the call.
        let fd = unsafe { call(Command::RawTracepointOpen, &mut attributes) }.and_then(owned)?;
        Ok(Self { fd })
    }

    /// Runs the XDP program on every frame that an interface receives. The interface is looked up
    /// in the calling thread's network namespace.
    ///
    /// bpf(2), `BPF_LINK_CREATE` with `BPF_XDP` (`net/core/dev.c`, Linux 5.9).
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the driver has no native XDP; `EBUSY` if a link is attached already;
    /// `EEXIST` if the interface has a program of the other mode; `ERANGE` or `EINVAL` from a
    /// driver that cannot do it with the present MTU or offloads; `ENODEV` for an interface that
    /// does not exist.
    pub fn xdp(program: &Program, interface_index: u32, attach: XdpAttach) -> CallResult<Self> {
        let (flags, mode) = match attach {
            XdpAttach::Native => (XDP_NATIVE, "native"),
            XdpAttach::Generic => (XDP_GENERIC, "generic"),
        };
        create(program, interface_index, XDP, flags).map_err(|refusal| {
            let object = format!("{mode} XDP of {}", object_of(interface_index));
            CallError::new("bpf BPF_LINK_CREATE", object, refusal)
        })
    }

    /// Attaches in the driver, or in the kernel's core if the driver does not support XDP. Returns
    /// which of the two it was.
    ///
    /// # Errors
    ///
    /// As [`xdp`](Self::xdp). An MTU or offloads that XDP does not support are an error and no
    /// reason to fall back: the user can change them.
    pub fn xdp_native_or_generic(
        program: &Program,
        interface_index: u32,
    ) -> CallResult<(Self, XdpAttach)> {
        match Self::xdp(program, interface_index, XdpAttach::Native) {
            // The answer of `dev_xdp_attach` for a driver without `ndo_bpf`.
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {
                let link = Self::xdp(program, interface_index, XdpAttach::Generic)?;
                Ok((link, XdpAttach::Generic))
            }
            link => Ok((link?, XdpAttach::Native)),
        }
    }

    /// Runs the classifier on every frame that an interface receives, behind the packet taps and
    /// before the network layer. The interface is looked up in the calling thread's namespace.
    ///
    /// bpf(2), `BPF_LINK_CREATE` with `BPF_TCX_INGRESS` (`kernel/bpf/tcx.c`, Linux 6.6).
    ///
    /// # Errors
    ///
    /// `ENODEV` for an interface that is not there, `EINVAL` before Linux 6.6.
    pub fn tcx_ingress(program: &Program, interface_index: u32) -> CallResult<Self> {
        create(program, interface_index, TCX_INGRESS, 0).map_err(|refusal| {
            let object = format!("TCX ingress of {}", object_of(interface_index));
            CallError::new("bpf BPF_LINK_CREATE", object, refusal)
        })
    }

    /// Runs the classifier on every frame that leaves an interface, before its transmit queue is
    /// chosen. The interface is looked up in the calling thread's network namespace.
    ///
    /// bpf(2), `BPF_LINK_CREATE` with `BPF_TCX_EGRESS` (`kernel/bpf/tcx.c`, Linux 6.6).
    ///
    /// # Errors
    ///
    /// `ENODEV` for an interface that is not there, `EINVAL` before Linux 6.6.
    pub fn tcx_egress(program: &Program, interface_index: u32) -> CallResult<Self> {
        create(program, interface_index, TCX_EGRESS, 0).map_err(|refusal| {
            let object = format!("TCX egress of {}", object_of(interface_index));
            CallError::new("bpf BPF_LINK_CREATE", object, refusal)
        })
    }
}

fn create(
    program: &Program,
    interface_index: u32,
    attach_type: u32,
    flags: u32,
) -> std::io::Result<BpfLink> {
    let mut attributes = LinkAttributes {
        program: program.as_fd().as_raw_fd() as u32,
        interface_index,
        attach_type,
        flags,
        relative_to: 0,
        reserved: 0,
        expected_revision: 0,
    };
    // SAFETY: the layout is the link part of `union bpf_attr`, written without padding, and it has
    // no addresses.
    let fd = unsafe { call(Command::LinkCreate, &mut attributes) }.and_then(owned)?;
    Ok(BpfLink { fd })
}
