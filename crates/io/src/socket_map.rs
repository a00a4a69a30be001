//! The map of an XDP program that is the user's own.

use crate::Error;
use mpps_os::bpf::XskMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The AF_XDP sockets of the user's own XDP program, by queue (`BPF_MAP_TYPE_XSKMAP`):
/// [`crate::RingConfig::sockets`].
///
/// A receiver puts itself into it, and the kernel takes it out when the receiver is dropped. The
/// program decides which packets come. Its loader has the map's descriptor: aya, libbpf or any
/// other.
///
/// ```no_run
/// use mpps_io::{RxConfig, SocketMap, backend};
/// use std::os::fd::OwnedFd;
///
/// # fn loaded() -> OwnedFd { unimplemented!() }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // With aya: `XskMap::try_from(ebpf.map("SOCKETS")?)?.fd().try_clone()`, or a pinned map's file.
/// let map: OwnedFd = loaded();
/// let mut config = RxConfig::new("10.0.0.1:4321".parse()?);
/// config.ring.interface = Some("eth1".to_owned());
/// config.ring.sockets = Some(SocketMap::new(map)?);
/// let receivers = backend::find("af_xdp")?.open_rx_queues(&config)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SocketMap(Arc<XskMap>);

impl SocketMap {
    /// The map behind a descriptor.
    ///
    /// # Errors
    /// The descriptor is no such map; without `CAP_BPF` (before Linux 5.8 `CAP_SYS_ADMIN`) the
    /// kernel's refusal.
    pub fn new(fd: OwnedFd) -> Result<Self, Error> {
        Ok(Self(Arc::new(XskMap::from_fd(fd)?)))
    }

    /// How many queues it has room for.
    pub(crate) fn queues(&self) -> u32 {
        self.0.queues()
    }

    pub(crate) fn bind(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        Ok(self.0.set(queue, socket)?)
    }
}

/// Two are equal if one was cloned from the other.
impl PartialEq for SocketMap {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SocketMap {}
