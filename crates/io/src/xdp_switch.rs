//! Switches on a driver's transmission by XDP.

use crate::Error;
use crate::carrier::await_carrier;
use mpps_os::bpf::asm::{Assembler, R0};
use mpps_os::bpf::{BpfLink, Program, ProgramKind, XDP_HAS_FRAGMENTS, XdpAttach};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// `XDP_PASS` of `enum xdp_action`.
const PASS: i32 = 2;
/// Of include/uapi/asm-generic/errno-base.h.
const EBUSY: i32 = 16;

/// Keeps a driver's XDP side switched on.
///
/// Some drivers have queues for XDP frames, and for zero-copy sockets, only while an XDP program is
/// attached: igb, ixgbe, i40e, ice and virtio_net. Any program will do. This attaches a program
/// that lets everything pass, by a descriptor, so that a killed process leaves nothing. If another
/// program is there already, that is enough, and it is not changed.
///
/// All senders of this process share the program of an interface: the first one to end must not
/// take it from the others.
#[derive(Debug)]
pub struct XdpSwitch {
    /// None if another program is there already.
    program: Option<Arc<BpfLink>>,
    carrier_wait: Duration,
}

/// An interface of a network namespace: the namespace's inode and the interface's number.
type NamespaceInterface = (u32, u32);

/// The programs that this process keeps attached.
static ATTACHED: Mutex<Vec<(NamespaceInterface, Weak<BpfLink>)>> = Mutex::new(Vec::new());

impl XdpSwitch {
    /// Switches it on, and waits until the link is up again: most drivers take it down for that.
    ///
    /// # Errors
    /// The driver's refusal; a carrier that does not come back.
    pub fn on(interface_index: u32) -> Result<Self, Error> {
        let place = (NetNamespace::current()?.inode(), interface_index);
        let program = attach(place)?;
        Ok(Self {
            program,
            carrier_wait: await_carrier(interface_index)?,
        })
    }
}

fn attach(place: NamespaceInterface) -> Result<Option<Arc<BpfLink>>, mpps_os::CallError> {
    let mut attached = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
    attached.retain(|(_, link)| link.strong_count() > 0);
    let ours = attached.iter().find(|(other, _)| *other == place);
    if let Some(link) = ours.and_then(|(_, link)| link.upgrade()) {
        return Ok(Some(link));
    }
    match BpfLink::xdp(&passing()?, place.1, XdpAttach::Native) {
        Ok(link) => {
            let link = Arc::new(link);
            attached.push((place, Arc::downgrade(&link)));
            Ok(Some(link))
        }
        // A native program is there already (`dev_xdp_attach` in net/core/dev.c); or the driver is busy.
        Err(error) if error.errno() == Some(EBUSY) => {
            let is_there = link::find(place.1)?.is_some_and(|link| link.native_xdp.is_some());
            if is_there { Ok(None) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// A program that lets every frame pass, of any length where the kernel knows of that (Linux 5.18).
fn passing() -> Result<Program, mpps_os::CallError> {
    let instructions = Assembler::new().set(R0, PASS).exit().finish()?;
    let load =
        |flags| Program::load_with_flags(ProgramKind::Xdp, "mpps_pass", &instructions, flags);
    load(XDP_HAS_FRAGMENTS).or_else(|_| load(0))
}

impl fmt::Display for XdpSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.program {
            Some(_) => write!(f, "behind an XDP program of ours that passes")?,
            None => write!(f, "behind the XDP program that is there")?,
        }
        if self.carrier_wait.is_zero() {
            return Ok(());
        }
        let seconds = self.carrier_wait.as_secs_f64();
        write!(f, ", carrier back after {seconds:.1} s")
    }
}
