//! Which frames are a receiver's: one rule, for a program in the kernel and for Rust.
//!
//! The rule is that of [`wire::datagram`], with certain destinations: an untagged frame with a
//! whole datagram to an address and a port, or a range of them. All other frames belong to the
//! kernel. The rule does not check the check sum or the hardware address, as the kernel would.

mod attached;
mod classic;
mod ebpf;
#[cfg(test)]
pub(crate) mod frames;

pub use attached::{FlowCounts, FlowProgram};
pub(crate) use ebpf::{METADATA_BYTES, Metadata};

use crate::wire;
use mpps_os::bpf::classic::ClassicInstruction;
use mpps_os::bpf::{AssemblyError, Instruction};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

/// A receiver's frames.
///
/// ```
/// use mpps_io::wire::Template;
/// use mpps_io::Destination;
/// use mpps_io::parts::FlowFilter;
/// use std::net::SocketAddr;
///
/// let [dns, quic]: [SocketAddr; 2] = ["10.0.0.1:53", "[fd00::1]:443"].map(|at| at.parse().unwrap());
/// let filter = FlowFilter::new(dns).or(Destination { ports: 443..=450, ..quic.into() });
///
/// let template = Template::new([2; 6], [4; 6], "10.0.0.9:1234".parse().unwrap(), dns, 3);
/// let mut frame = vec![0; template.frame_bytes()];
/// template.write(&mut frame, 0, b"abc");
/// assert!(filter.matches(&frame));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowFilter {
    /// None takes everything.
    destinations: Option<Vec<Destination>>,
}

/// The datagrams to an address, at one port or at several that follow each other.
///
/// ```
/// use mpps_io::Destination;
///
/// let one = Destination::from("10.0.0.1:53".parse::<std::net::SocketAddr>().unwrap());
/// assert_eq!(one.ports, 53..=53);
/// let many = Destination { ports: 5000..=5999, ..one };
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The address. The unspecified one stands for every address of its version of IP. That
    /// includes other hosts', if their frames get here.
    pub address: IpAddr,
    /// The ports.
    pub ports: RangeInclusive<u16>,
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self {
            address: address.ip(),
            ports: address.port()..=address.port(),
        }
    }
}

impl Destination {
    /// Whether that is one of them.
    pub fn contains(&self, to: SocketAddr) -> bool {
        let same_version = self.address.is_ipv4() == to.is_ipv4();
        let any = self.address.is_unspecified() && same_version;
        self.ports.contains(&to.port()) && (any || self.address == to.ip())
    }

    /// The words of the address, in network order; none where every address will do.
    fn words(&self) -> Vec<[u8; 4]> {
        if self.address.is_unspecified() {
            return Vec::new();
        }
        match self.address {
            IpAddr::V4(address) => vec![address.octets()],
            IpAddr::V6(address) => address.octets().as_chunks::<4>().0.to_vec(),
        }
    }
}

/// Where a program for frames counts, a per-CPU array of `[taken, passed, other]`: that for XDP in the
/// entry of the queue, that for an ingress in entry 0.
pub type FlowCounters = mpps_os::bpf::PerCpuMap<[u32; 1], [u64; 3]>;

impl FlowFilter {
    /// The datagrams to this port of this address, or to these ports of it.
    pub fn new(destination: impl Into<Destination>) -> Self {
        Self {
            destinations: Some(vec![destination.into()]),
        }
    }

    /// Those to another destination as well.
    #[must_use]
    pub fn or(mut self, destination: impl Into<Destination>) -> Self {
        if let Some(destinations) = &mut self.destinations {
            destinations.push(destination.into());
        }
        self
    }

    /// Every frame, whatever is in it: ARP and ssh, too.
    pub fn everything() -> Self {
        Self { destinations: None }
    }

    /// Whether a frame is one of them.
    pub fn matches(&self, frame: &[u8]) -> bool {
        let Some(wanted) = &self.destinations else {
            return true;
        };
        wire::datagram(frame).is_some_and(|datagram| {
            let mut wanted = wanted.iter();
            wanted.any(|wanted| wanted.contains(datagram.destination))
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
    /// More than a thousand destinations ([`AssemblyError::JumpTooFar`]).
    pub fn redirect(
        &self,
        sockets: BorrowedFd<'_>,
        counters: BorrowedFd<'_>,
        fragments: bool,
    ) -> Result<Vec<Instruction>, AssemblyError> {
        self.redirect_with(sockets, counters, fragments, &[])
    }

    /// The same; the program writes what the driver knows of a frame in front of it.
    fn redirect_with(
        &self,
        sockets: BorrowedFd<'_>,
        counters: BorrowedFd<'_>,
        fragments: bool,
        metadata: &[(Metadata, u32)],
    ) -> Result<Vec<Instruction>, AssemblyError> {
        let wanted = self.destinations.as_deref();
        ebpf::redirect(wanted, sockets, counters, fragments, metadata)
    }

    /// A classifier for the ingress of an interface ([`mpps_os::bpf::BpfLink::tcx_ingress`]) that
    /// drops the frames, counted as taken, and lets all others go on.
    ///
    /// # Errors
    ///
    /// More than a thousand destinations ([`AssemblyError::JumpTooFar`]).
    pub fn tcx_drop(&self, counters: BorrowedFd<'_>) -> Result<Vec<Instruction>, AssemblyError> {
        ebpf::tcx_drop(self.destinations.as_deref(), counters)
    }

    /// A classic filter for a packet socket of type `SOCK_RAW`
    /// ([`mpps_os::bpf::classic::attach`]) on interfaces with Ethernet headers. The kernel takes 4096
    /// instructions: some 100 destinations.
    pub fn classic(&self) -> Vec<ClassicInstruction> {
        classic::program(self.destinations.as_deref())
    }
}

#[cfg(test)]
mod tests;
