//! Packets for programs that read them through pointers, and the contexts that point to them.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Range;

/// The context that a program gets with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketContext {
    /// `struct xdp_md`, with the number of the receive queue.
    Xdp {
        /// `rx_queue_index`
        queue: u32,
    },
    /// `struct __sk_buff`, of an untagged frame.
    Classifier,
}

/// A packet below 4 GiB: `data` and `data_end` of both contexts have 32 bits. The kernel's verifier
/// makes 64-bit loads of the programs' 32-bit ones; here the program runs as it was written.
#[derive(Debug)]
pub(super) struct LowPacket {
    start: *mut u8,
    room: usize,
    /// The length of the packet, and of its part that `data_end` ends.
    bytes: usize,
    linear_bytes: usize,
}

/// Where mappings are tried: above what programs without a position usually occupy at the bottom.
const LOWEST: usize = 0x1000_0000;
const STEP: usize = 0x10_0000;
const HIGHEST: usize = 0xf000_0000;

impl LowPacket {
    /// Copies a packet to an unused place, by mmap(2) with `MAP_FIXED_NOREPLACE`.
    pub(super) fn new(packet: &[u8], linear_bytes: usize) -> io::Result<Self> {
        // An empty mapping is not possible; the verifier keeps programs from the margin.
        let room = packet.len().max(1);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        for address in (LOWEST..HIGHEST).step_by(STEP) {
            let place = std::ptr::with_exposed_provenance_mut::<c_void>(address);
            // SAFETY: the flag makes the kernel refuse a place that is in use, so this is new
            // memory. A kernel that does not know the flag (before 4.17) takes the place as a hint,
            // and answers with new memory elsewhere.
            let mapped =
                unsafe { mmap_anonymous(place, room, ProtFlags::READ | ProtFlags::WRITE, flags) };
            let Ok(start) = mapped else { continue };
            let mapped = Self {
                start: start.cast(),
                room,
                bytes: packet.len(),
                linear_bytes: linear_bytes.min(packet.len()),
            };
            if start != place {
                break;
            }
            // SAFETY: the mapping is new, writable, and has room for the packet.
            unsafe { std::ptr::copy_nonoverlapping(packet.as_ptr(), mapped.start, packet.len()) };
            return Ok(mapped);
        }
        Err(io::Error::other("no room for a packet below 4 GiB"))
    }

    /// The bytes that the interpreter lets the program read and write.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is alive as long as `self`, has been written (`mmap` zeroes the
        // rest), and is reached only through `self`, which is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// Where the linear part is.
    pub(super) fn linear(&self) -> Range<u64> {
        let start = self.start.expose_provenance() as u64;
        start..start + self.linear_bytes as u64
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for LowPacket {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and no other code knows of it. A
        // refusal would leak memory in a test, which is harmless.
        let _ = unsafe { munmap(self.start.cast(), self.room) };
    }
}

impl PacketContext {
    /// The bytes of the context for this packet.
    pub(super) fn bytes(self, packet: &LowPacket) -> Vec<u8> {
        let linear = packet.linear();
        let mut words = match self {
            // `data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex`
            Self::Xdp { queue } => vec![0, 0, linear.start as u32, 1, queue, 0],
            // `len` comes first, `data` and `data_end` at bytes 76 and 80; it ends at byte 192.
            Self::Classifier => {
                let mut words = vec![0; 48];
                words[0] = packet.len() as u32;
                words
            }
        };
        let data = self.data_offset() / 4;
        words[data] = linear.start as u32;
        words[data + 1] = linear.end as u32;
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Where `data` is in the context; `data_end` follows it.
    pub(super) fn data_offset(self) -> usize {
        match self {
            Self::Xdp { .. } => 0,
            Self::Classifier => 76,
        }
    }
}
