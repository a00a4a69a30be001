//! The values that a stream ring hands out and takes back: sockets, addresses, buffers.

use super::ring_id::RingId;
use crate::messages::storage;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// A socket, or another file that a ring may be asked about.
///
/// An ordinary one is closed when dropped. A direct one is a slot of its ring: it is no descriptor
/// of the process, no other ring knows it, and only [`super::StreamRing::close`] or the end of the
/// ring gives the slot back. Another ring answers `EBADF`.
///
/// Neither kind may be dropped or closed while a request about it has not been passed on. An
/// ordinary one must also stay open until every chain about it is answered. The later parts look
/// the descriptor up when their turn comes, and by then it may be another file.
pub struct RingSocket(pub(super) RingDescriptor);

pub(super) enum RingDescriptor {
    /// Of the process.
    Ordinary(OwnedFd),
    /// A slot of that ring.
    Direct { ring: RingId, slot: u32 },
}

impl RingSocket {
    /// True for a slot of the ring.
    pub fn is_direct(&self) -> bool {
        matches!(self.0, RingDescriptor::Direct { .. })
    }
}

impl From<OwnedFd> for RingSocket {
    fn from(fd: OwnedFd) -> Self {
        Self(RingDescriptor::Ordinary(fd))
    }
}

impl fmt::Debug for RingSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            RingDescriptor::Ordinary(fd) => write!(f, "Socket(descriptor {})", fd.as_raw_fd()),
            RingDescriptor::Direct { slot, .. } => write!(f, "Socket(slot {slot})"),
        }
    }
}

/// Which kind of descriptor a new socket gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorKind {
    /// One of the process.
    Ordinary,
    /// A slot that the kernel chooses: the lowest free one after the last.
    Chosen,
}

/// An address as the kernel reads it. Cheap to clone.
#[derive(Clone)]
pub struct Address(pub(super) Arc<(libc::sockaddr_storage, libc::socklen_t)>);

impl Address {
    /// The address family, as `socket(2)` takes it.
    pub(super) fn family(&self) -> i32 {
        i32::from(self.0.0.ss_family)
    }

    pub(super) fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.0.0).cast()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self(Arc::new(storage(&address)))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("family", &self.family())
            .finish_non_exhaustive()
    }
}

/// Bytes that were received or read, or room for some.
///
/// One of a ring's own buffers must be given back to that ring
/// ([`super::StreamRing::give_back`]); the other kind is freed when dropped.
pub struct Buffer(pub(super) Memory);

pub(super) enum Memory {
    /// Of that ring's buffers: its number, and how much of it is filled.
    Lent { ring: RingId, id: u16, filled: u32 },
    /// On the heap.
    Own { memory: Vec<u8>, filled: u32 },
}

impl Buffer {
    /// Room for this number of bytes, on the heap.
    pub fn new(bytes: usize) -> Self {
        Self(Memory::Own {
            memory: vec![0; bytes],
            filled: 0,
        })
    }

    /// Bytes in it.
    pub fn filled(&self) -> usize {
        match self.0 {
            Memory::Lent { filled, .. } | Memory::Own { filled, .. } => filled as usize,
        }
    }

    /// Nothing, for the end of a stream.
    pub(super) fn none() -> Self {
        Self(Memory::Own {
            memory: Vec::new(),
            filled: 0,
        })
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_lent = matches!(self.0, Memory::Lent { .. });
        f.debug_struct("Buffer")
            .field("filled", &self.filled())
            .field("is_lent", &is_lent)
            .finish()
    }
}
