//! Every way to receive packets on Linux, and whether this host and this interface can.
//!
//! The table has the receive paths of this program and those of others that one might choose instead.
//! A verdict rests on [facts](PathFacts) that were read from the host, and says which.

mod bypass;
pub(crate) mod facts;
mod queue;
mod socket;
mod xdp;

#[cfg(test)]
mod tests;

pub use crate::facts::KernelAnswer;
pub use facts::{Filters, Function, HostFacts, HugePages, NicFacts, PathFacts, VirtualFunctions};
use mpps_os::text::{Foreign, ShellWord};

pub(crate) use socket::queues;
pub(crate) use xdp::{ETHERNET_MTU_BYTES, shorter_packets};

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// One way to receive packets.
#[derive(Clone, Copy)]
pub struct ReceivePath {
    /// Its name.
    pub name: &'static str,
    /// The backend of this program that uses it, where there is one.
    pub backend: Option<&'static str>,
    assess: fn(&PathFacts) -> PathVerdict,
}

/// Whether a receive path can be used on an interface, and what speaks for that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PathVerdict {
    /// Whether it can be used now.
    pub usable: Usable,
    /// The evidence.
    pub why: String,
    /// The one command that would make it usable, or, where no command can, the means.
    pub remedy: Option<String>,
    /// The part of the kernel that it takes.
    pub takes: StackPart,
    /// Whether the kernel copies packets for it.
    pub copies: Copies,
}

/// Whether a receive path can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Usable {
    /// It can.
    Yes,
    /// It cannot.
    No,
    /// Unknown until it is tried: this kernel does not show it.
    Unknown,
}

/// The part of the kernel's own network stack that a receive path takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StackPart {
    /// Nothing.
    Nothing,
    /// The wanted flow; all other traffic goes on to the kernel.
    Flow,
    /// One queue.
    Queue,
    /// A virtual function: an interface that is made for it.
    VirtualFunction,
    /// The whole card, which the kernel then no longer has.
    Nic,
}

/// Whether packets are copied on their way to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Copies {
    /// Once, by the kernel.
    Copy,
    /// Never: the card writes to the program's memory.
    ZeroCopy,
    /// As the receive path does that receives on it.
    Depends,
}

pub(crate) const AF_XDP_GENERIC: ReceivePath =
    ReceivePath::new("AF_XDP generic", Some("af_xdp"), xdp::generic);
pub(crate) const AF_XDP_NATIVE: ReceivePath =
    ReceivePath::new("AF_XDP native", Some("af_xdp"), xdp::native);
pub(crate) const AF_XDP_ZERO_COPY: ReceivePath =
    ReceivePath::new("AF_XDP zero-copy", Some("af_xdp"), xdp::zero_copy);

/// Every receive path, those that take least first.
pub static RECEIVE_PATHS: &[ReceivePath] = &[
    ReceivePath::new("recv", Some("recv"), socket::recv),
    ReceivePath::new("recvmmsg", Some("recvmmsg"), socket::recvmmsg),
    ReceivePath::new("GRO", Some("recvmmsg"), socket::gro),
    ReceivePath::new("busy polling", Some("recvmmsg"), socket::busy_poll),
    ReceivePath::new("io_uring", Some("io_uring"), socket::io_uring),
    ReceivePath::new("packet_mmap", Some("packet_mmap"), socket::packet_mmap),
    ReceivePath::new("pcap", Some("pcap"), socket::pcap),
    AF_XDP_GENERIC,
    AF_XDP_NATIVE,
    AF_XDP_ZERO_COPY,
    ReceivePath::new("bifurcated driver", Some("af_xdp"), queue::bifurcated),
    ReceivePath::new("SR-IOV VF", None, queue::virtual_function),
    ReceivePath::new("PF_RING", None, bypass::pf_ring),
    ReceivePath::new("netmap", None, bypass::netmap),
    ReceivePath::new("OpenOnload/EF_VI", None, bypass::onload),
    ReceivePath::new("Snabb", None, bypass::snabb),
    ReceivePath::new("DPDK", Some("dpdk"), bypass::dpdk),
];

impl ReceivePath {
    const fn new(
        name: &'static str,
        backend: Option<&'static str>,
        assess: fn(&PathFacts) -> PathVerdict,
    ) -> Self {
        Self {
            name,
            backend,
            assess,
        }
    }

    /// Whether it can be used with what is known of this host and interface.
    pub fn assess(&self, facts: &PathFacts) -> PathVerdict {
        let verdict = (self.assess)(facts);
        let why = Foreign(&verdict.why).to_string();
        let verdict = verdict.because(why);
        let nic = &facts.nic;
        if nic.up || verdict.usable != Usable::Yes {
            return verdict;
        }
        PathVerdict {
            usable: Usable::No,
            why: format!("{} is down", Foreign(&nic.name)),
            remedy: Some(format!("ip link set dev {} up", ShellWord::new(&nic.name))),
            ..verdict
        }
    }
}

impl fmt::Debug for ReceivePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivePath")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl PathVerdict {
    fn yes(why: impl Into<String>, takes: StackPart, copies: Copies) -> Self {
        Self {
            usable: Usable::Yes,
            why: why.into(),
            remedy: None,
            takes,
            copies,
        }
    }

    /// The same, with this evidence.
    fn because(self, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { why, ..self }
    }

    /// The same, but it cannot be used.
    fn no(self, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self.never(why)
        }
    }

    /// The same, but no means helps on this host.
    fn never(self, why: impl Into<String>) -> Self {
        Self {
            usable: Usable::No,
            remedy: None,
            ..self.because(why)
        }
    }

    /// The same, but only a trial can show it.
    fn unknown(self, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            usable: Usable::Unknown,
            ..self.no(why, remedy)
        }
    }
}

impl fmt::Display for Usable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "?",
        })
    }
}

impl fmt::Display for StackPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "nothing",
            Self::Flow => "its flow",
            Self::Queue => "a queue",
            Self::VirtualFunction => "a function",
            Self::Nic => "the whole NIC",
        })
    }
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Copy => "copy",
            Self::ZeroCopy => "zero-copy",
            Self::Depends => "depends",
        })
    }
}
