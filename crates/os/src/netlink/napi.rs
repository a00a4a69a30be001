//! NAPI contexts: the kernel's receivers, one for each receive queue of an interface.

use super::generic::{Question, u32_of, u64_of};
use crate::CallResult;

/// The command and attributes of include/uapi/linux/netdev.h.
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const INTERFACE: u16 = 1;
const ID: u16 = 2;
const THREAD: u16 = 4;
const IRQ_SUSPEND_TIMEOUT: u16 = 7;

/// One NAPI context of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Napi {
    /// Its number, unique on this host for as long as it lives.
    pub id: u32,
    /// The kernel thread that polls it, in threaded mode; none if this PID namespace does not hold
    /// it. Older kernels number it as the initial PID namespace does: check its name.
    pub thread: Option<u32>,
    /// For how long its interrupts stay off, in nanoseconds, after epoll_wait(2) that prefers to
    /// poll it has found packets (Linux 6.13, Documentation/networking/napi.rst, "IRQ suspension").
    pub irq_suspend_timeout_ns: Option<u64>,
}

/// The NAPI contexts of the interface with this number, ascending by their own (the generic
/// netlink family `netdev`, Linux 6.8).
///
/// # Errors
///
/// `ENOENT` or `EOPNOTSUPP` before Linux 6.8; `ENODEV`.
pub fn list(index: u32) -> CallResult<Vec<Napi>> {
    let question = Question {
        call: "netlink NETDEV_CMD_NAPI_GET",
        object: &format!("interface {index}"),
        family: "netdev",
        command: NAPI_GET,
        attributes: &[(INTERFACE, index.to_ne_bytes().to_vec())],
    };
    let mut contexts: Vec<Napi> = question
        .dump()?
        .iter()
        .filter_map(|attributes| {
            Some(Napi {
                id: u32_of(attributes, ID)?,
                // 0 is a thread outside this PID namespace (task_pid_nr_ns, kernel/pid.c).
                thread: u32_of(attributes, THREAD).filter(|pid| *pid != 0),
                irq_suspend_timeout_ns: u64_of(attributes, IRQ_SUSPEND_TIMEOUT),
            })
        })
        .collect();
    contexts.sort_unstable();
    Ok(contexts)
}

/// Sets [`Napi::irq_suspend_timeout_ns`] of the context with this number; 0 suspends nothing.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`, `ENOENT` if there is no such context, `EOPNOTSUPP` before Linux
/// 6.13.
pub fn suspend_irqs(id: u32, time_ns: u32) -> CallResult<()> {
    let attributes = [
        (ID, id.to_ne_bytes().to_vec()),
        (IRQ_SUSPEND_TIMEOUT, time_ns.to_ne_bytes().to_vec()),
    ];
    Question {
        call: "netlink NETDEV_CMD_NAPI_SET",
        object: &format!("NAPI context {id}"),
        family: "netdev",
        command: NAPI_SET,
        attributes: &attributes,
    }
    .execute()
}
