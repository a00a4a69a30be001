//! Which frames are a receiver's: one rule, for a program in the kernel and for Rust.
//!
//! The rule is that of [`wire::datagram`], with a certain destination: an
//! untagged frame with a whole datagram to an address and a port. Everything else belongs to the
//! kernel. What the kernel would check besides, that a check sum is right and that the hardware
//! address is its own, is not looked at.

mod attached;
mod classic;
mod ebpf;
#[cfg(test)]
pub(crate) mod frames;

pub use attached::{FlowCounts, FlowProgram};

use crate::wire;
use mpps_os::bpf::classic::ClassicInstruction;
use mpps_os::bpf::{AssemblyError, Instruction};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// A receiver's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFilter {
    /// None takes everything.
    destination: Option<SocketAddr>,
}

/// Where a program for frames counts: entry 0 of a per-CPU array of `[taken, passed, other]`.
pub type FlowCounters = mpps_os::bpf::PerCpuMap<[u32; 1], [u64; 3]>;

impl FlowFilter {
    /// The datagrams to this port of this address. The unspecified address stands for every address
    /// of its version of IP, also for those of other hosts if their frames get here.
    pub fn new(destination: SocketAddr) -> Self {
        Self {
            destination: Some(destination),
        }
    }

    /// Every frame, whatever is in it: ARP and ssh, too.
    pub fn everything() -> Self {
        Self { destination: None }
    }

    /// Whether a frame is one of them.
    pub fn matches(&self, frame: &[u8]) -> bool {
        let Some(wanted) = self.destination else {
            return true;
        };
        wire::datagram(frame).is_some_and(|datagram| {
            let (port, address) = (datagram.destination.port(), datagram.destination.ip());
            let any = wanted.ip().is_unspecified() && wanted.is_ipv4() == address.is_ipv4();
            port == wanted.port() && (any || address == wanted.ip())
        })
    }

    /// An XDP program that redirects the frames to the AF_XDP socket of their queue, and counts:
    /// taken (redirected), passed (no socket on that queue) and others. All but the taken go on to
    /// the kernel untouched.
    ///
    /// With `fragments` it may be loaded with [`mpps_os::bpf::XDP_HAS_FRAGMENTS`], and then finds
    /// lengths by a helper that Linux has since 5.18. The headers must be in the first buffer.
    ///
    /// # Errors
    ///
    /// None that a caller could make; see [`AssemblyError`].
    pub fn redirect(
        &self,
        sockets: BorrowedFd<'_>,
        counters: BorrowedFd<'_>,
        fragments: bool,
    ) -> Result<Vec<Instruction>, AssemblyError> {
        ebpf::redirect(self.destination, sockets, counters, fragments)
    }

    /// A classifier for the ingress of an interface ([`mpps_os::bpf::Link::tcx_ingress`]) that
    /// drops the frames, counted as taken, and lets all others go on.
    ///
    /// # Errors
    ///
    /// None that a caller could make; see [`AssemblyError`].
    pub fn tcx_drop(&self, counters: BorrowedFd<'_>) -> Result<Vec<Instruction>, AssemblyError> {
        ebpf::tcx_drop(self.destination, counters)
    }

    /// A classic filter for a packet socket of type `SOCK_RAW`
    /// ([`mpps_os::bpf::classic::attach`]) on interfaces with Ethernet headers.
    pub fn classic(&self) -> Vec<ClassicInstruction> {
        classic::program(self.destination)
    }
}

#[cfg(test)]
mod tests;
