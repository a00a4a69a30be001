//! The rule at work on an interface.

use super::{FlowCounters, FlowFilter, Metadata};
use crate::{Attach, Error};
use mpps_os::bpf::btf::Btf;
use mpps_os::bpf::{BpfLink, PerCpuMapKind, Program, XskMap};
use std::os::fd::{AsFd, BorrowedFd};

/// An XDP program that gives AF_XDP sockets the frames of a filter, for all queues of an interface.
///
/// It is attached by a descriptor: nothing is left on the interface when this is dropped, or when
/// the process is killed. All queues share one.
#[derive(Debug)]
pub struct FlowProgram {
    sockets: XskMap,
    counters: FlowCounters,
    native: bool,
    fragments: bool,
    _link: BpfLink,
}

/// The fate of a queue's frames, counted from when the program was attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Redirected to the socket of their queue, which may have had no room.
    pub redirected: u64,
    /// Wanted, but no socket was bound to their queue: left to the kernel.
    pub passed: u64,
    /// Left to the kernel.
    pub other: u64,
}

impl FlowProgram {
    /// Attaches a program to an interface, with room for sockets on queues 0 to `queues - 1`. It
    /// redirects nothing until a socket is [bound](Self::bind). The interface is looked up in the
    /// calling thread's network namespace.
    ///
    /// Without `attach` it attaches to the driver, or generically if the driver has no XDP;
    /// [`is_native`](Self::is_native) returns which.
    ///
    /// # Errors
    ///
    /// The kernel's refusals: see [`Program::load`] and [`BpfLink::xdp`].
    pub fn attach(
        interface_index: u32,
        filter: &FlowFilter,
        attach: Option<Attach>,
        queues: u32,
    ) -> Result<Self, Error> {
        Self::attach_with(interface_index, filter, attach, queues, &[])
    }

    /// The same; with metadata it attaches to the driver only, which is asked about each frame.
    pub(crate) fn attach_with(
        interface_index: u32,
        filter: &FlowFilter,
        attach: Option<Attach>,
        queues: u32,
        metadata: &[Metadata],
    ) -> Result<Self, Error> {
        let sockets = XskMap::create("mpps_sockets", queues)?;
        let counters = FlowCounters::create(PerCpuMapKind::Array, "mpps_counts", queues)?;
        let (program, fragments) = match metadata {
            [] => Program::load_xdp("mpps_flow", |fragments| {
                filter.redirect(sockets.as_fd(), counters.as_fd(), fragments)
            })?,
            metadata => {
                let functions = functions(metadata)?;
                let (sockets, counters) = (sockets.as_fd(), counters.as_fd());
                let program = filter.redirect_with(sockets, counters, true, &functions);
                let program = program.map_err(mpps_os::CallError::from)?;
                let bound = Program::load_bound("mpps_flow", interface_index, &program)?;
                (bound, true)
            }
        };
        let (link, attached) = match attach {
            None if metadata.is_empty() => {
                BpfLink::xdp_native_or_generic(&program, interface_index)?
            }
            attach => {
                let attach = attach.unwrap_or(Attach::Native);
                (BpfLink::xdp(&program, interface_index, attach)?, attach)
            }
        };
        Ok(Self {
            sockets,
            counters,
            native: attached == Attach::Native,
            fragments,
            _link: link,
        })
    }

    /// Gives the frames of this queue to an AF_XDP socket that is bound to it.
    ///
    /// # Errors
    ///
    /// See [`XskMap::set`].
    pub fn bind(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        Ok(self.sockets.set(queue, socket)?)
    }

    /// Leaves the frames of this queue to the kernel again.
    ///
    /// # Errors
    ///
    /// See [`XskMap::clear`].
    pub fn unbind(&self, queue: u32) -> Result<(), Error> {
        Ok(self.sockets.clear(queue)?)
    }

    /// Whether the program runs in the driver.
    pub fn is_native(&self) -> bool {
        self.native
    }

    /// Whether it takes frames that are longer than a buffer (Linux 5.18). A driver without it
    /// refuses a large MTU.
    pub fn takes_fragments(&self) -> bool {
        self.fragments
    }

    /// The counts of a queue's frames until now, on all CPUs.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn counts(&self, queue: u32) -> Result<FlowCounts, Error> {
        let cpus = self.counters.values(&[queue])?;
        let mut counts = FlowCounts::default();
        for [redirected, passed, other] in cpus {
            counts.redirected += redirected;
            counts.passed += passed;
            counts.other += other;
        }
        Ok(counts)
    }
}

/// The numbers of the kernel's functions that bring it.
fn functions(metadata: &[Metadata]) -> Result<Vec<(Metadata, u32)>, Error> {
    let btf = Btf::kernel()?;
    let number = |one: &Metadata| Ok((*one, btf.function(one.function())?.0));
    let numbers: Result<Vec<_>, mpps_os::CallError> = metadata.iter().map(number).collect();
    Ok(numbers?)
}
