//! NAPI contexts: the kernel's receivers, one for each receive queue of an interface.

use super::generic::{Question, u32_of};
use crate::Result;

/// The command and attributes of include/uapi/linux/netdev.h.
const NAPI_GET: u8 = 11;
const INTERFACE: u16 = 1;
const ID: u16 = 2;
const THREAD: u16 = 4;

/// One NAPI context of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Napi {
    /// Its number, unique on this host for as long as it lives.
    pub id: u32,
    /// The kernel thread that polls it, in threaded mode, numbered as in the initial process
    /// namespace.
    pub thread: Option<u32>,
}

/// The NAPI contexts of the interface with this number, ascending by their own (the generic
/// netlink family `netdev`, Linux 6.8).
///
/// # Errors
///
/// `ENOENT` or `EOPNOTSUPP` before Linux 6.8; `ENODEV`.
pub fn list(index: u32) -> Result<Vec<Napi>> {
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
                thread: u32_of(attributes, THREAD),
            })
        })
        .collect();
    contexts.sort_unstable();
    Ok(contexts)
}
