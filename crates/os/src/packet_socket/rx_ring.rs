//! The receive ring: blocks of frames (`TPACKET_V3`).
//!
//! The kernel fills one block after the other, frames of any length one behind the other, and hands
//! a block over when it is full or a time has passed. It comes back to a block when it has been
//! right round; if that block was not given back by then, the ring is *frozen* and frames are
//! dropped. See `Documentation/networking/packet_mmap.rst` and `include/uapi/linux/if_packet.h`.

use super::PacketSocket;
use super::ring_memory::PacketRingMemory;
use crate::CallResult;
use crate::native;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Offsets in `struct tpacket_block_desc`: `block_status`, `num_pkts`, `offset_to_first_pkt`.
const BLOCK_STATUS: usize = 8;
const BLOCK_FRAMES: usize = 12;
const BLOCK_FIRST: usize = 16;
/// Offsets in `struct tpacket3_hdr`: `tp_next_offset`, `tp_sec`, `tp_nsec`, `tp_snaplen`,
/// `tp_len`, `tp_status`, `tp_mac`.
const FRAME_NEXT: usize = 0;
const FRAME_SECONDS: usize = 4;
const FRAME_NANOSECONDS: usize = 8;
const FRAME_KEPT: usize = 12;
const FRAME_LENGTH: usize = 16;
const FRAME_STATUS: usize = 20;
const FRAME_START: usize = 24;
/// The bytes of that header that are read.
const FRAME_HEADER_BYTES: usize = 26;
/// The bytes before the frames of a block: `sizeof(struct tpacket_block_desc)`, to a multiple of 8
/// (`BLK_HDR_LEN` of net/packet/af_packet.c).
const BLOCK_HEADER_BYTES: usize = 48;
/// The bytes before a frame without a VLAN tag: `TPACKET3_HDRLEN` of 68 and room for a link-layer
/// header, to a multiple of 16, less 14 bytes of Ethernet (`tpacket_rcv`).
const FRAME_HEADROOM_BYTES: usize = 82;
/// `TPACKET_V3` of `enum tpacket_versions`.
const TPACKET_V3: libc::c_int = 2;

/// How large a receive ring is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxRingSize {
    /// Blocks; while one is read the others are filled.
    pub blocks: u32,
    /// Bytes of a block, a power of two of at least a page.
    pub block_bytes: u32,
    /// How long a frame waits for its block to be full before it is handed over, in milliseconds.
    /// Up to Linux 6.17 the kernel rounds it up to its tick.
    pub retire_ms: u32,
}

/// A receive ring over a packet socket. Reading lends frames, and gives back at the next call the
/// block that was read to its end.
#[derive(Debug)]
pub struct PacketRxRing {
    memory: PacketRingMemory,
    socket: PacketSocket,
    size: RxRingSize,
    /// The block to read next, or being read.
    block: usize,
    /// Where the reading of `block` stands; none if it is still the kernel's.
    place: Option<ReadPosition>,
}

/// Where the reading of a block stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadPosition {
    /// Of the next frame's header, from the start of the block.
    offset: usize,
    /// Frames that were not read yet.
    left: u32,
}

/// A frame in the block that [`PacketRxRing::block`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxFrame {
    /// Its first byte, from the start of the block.
    pub offset: u32,
    /// Bytes of it in the ring.
    pub bytes: u32,
    /// Bytes that it had; more than `bytes` if it was cut.
    pub wire_bytes: u32,
    /// A VLAN tag was taken out of it (`TP_STATUS_VLAN_VALID`).
    pub vlan: bool,
    /// When the kernel got it, since 1970 (`CLOCK_REALTIME`).
    pub time: Duration,
}

impl PacketRxRing {
    /// Gives a socket a receive ring (`PACKET_VERSION`, `PACKET_RX_RING`, packet(7)) and maps it.
    ///
    /// # Errors
    /// `EINVAL` for sizes that cannot be, `ENOMEM`.
    pub fn new(socket: PacketSocket, size: RxRingSize) -> CallResult<Self> {
        let version = "setsockopt PACKET_VERSION";
        socket.set_int(libc::PACKET_VERSION, version, TPACKET_V3)?;
        let request = libc::tpacket_req3 {
            tp_block_size: size.block_bytes,
            tp_block_nr: size.blocks,
            // Frames of this version have no fixed size; the kernel checks that the figures match.
            tp_frame_size: size.block_bytes,
            tp_frame_nr: size.blocks,
            tp_retire_blk_tov: size.retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let call = "setsockopt PACKET_RX_RING";
        socket.set(libc::PACKET_RX_RING, call, &request)?;
        let bytes = size.blocks as usize * size.block_bytes as usize;
        let memory = PacketRingMemory::new(&socket, bytes)?;
        Ok(Self {
            memory,
            socket,
            size,
            block: 0,
            place: None,
        })
    }

    /// The socket under the ring.
    pub fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Reads up to `most` frames of the block at hand into `see`, without waiting, and says how
    /// many there were. They lie in [`PacketRxRing::block`] and stay until the next call. A block that
    /// was read to its end goes back to the kernel first.
    #[inline]
    pub fn read(&mut self, most: usize, see: impl FnMut(RxFrame)) -> usize {
        if self.place.is_some_and(|place| place.left == 0) {
            let status = self.memory.status(self.block_at() + BLOCK_STATUS);
            // Release: our reads of the block come before the kernel's writes to it.
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.place = None;
            self.block = (self.block + 1) % self.size.blocks as usize;
        }
        let place = match self.place {
            Some(place) => place,
            None => {
                let status = self.memory.status(self.block_at() + BLOCK_STATUS);
                // Acquire: the kernel's writes to the block come before our reads of it.
                if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                    return 0;
                }
                // The block is ours now.
                self.place = Some(ReadPosition { offset: 0, left: 0 });
                first_place(self.block())
            }
        };
        let (after, seen) = walk(self.block(), place, most, see);
        self.place = Some(after);
        seen
    }

    /// The block that the last call of [`PacketRxRing::read`] brought frames of; empty if there is none.
    #[inline]
    pub fn block(&self) -> &[u8] {
        if self.place.is_none() {
            return &[];
        }
        let bytes = self.size.block_bytes as usize;
        // SAFETY: while `place` is set, the block's status says that it is ours: the kernel does
        // not write to it. Only `read` gives it back, and it borrows the ring mutably.
        unsafe { self.memory.part(self.block_at(), bytes) }
    }

    /// The longest frame that is kept whole.
    pub fn frame_bytes_max(&self) -> usize {
        self.size.block_bytes as usize - BLOCK_HEADER_BYTES - FRAME_HEADROOM_BYTES
    }

    /// Bytes before the current block.
    fn block_at(&self) -> usize {
        self.block * self.size.block_bytes as usize
    }
}

impl RxRingSize {
    /// A ring that holds at least `frames` frames of up to `frame_bytes`, and more of shorter ones.
    pub fn holding(frames: u32, frame_bytes: u32, retire_ms: u32) -> Self {
        // A block also holds the longest packet there is, 64 KiB and its headers.
        const BLOCK_BYTES: u64 = 128 << 10;
        // With few blocks, the block being read would be a large part of the ring.
        const BLOCKS_MIN: u64 = 16;
        // The ring's size has 32 bits in the kernel.
        const BLOCKS_MAX: u64 = (2 << 30) / BLOCK_BYTES;
        let slot = (u64::from(frame_bytes) + FRAME_HEADROOM_BYTES as u64).next_multiple_of(16);
        let per_block = ((BLOCK_BYTES - BLOCK_HEADER_BYTES as u64) / slot).max(1);
        // One more block than the frames need: the block being read holds nothing new.
        let blocks = u64::from(frames).div_ceil(per_block) + 1;
        Self {
            blocks: blocks.clamp(BLOCKS_MIN, BLOCKS_MAX) as u32,
            block_bytes: BLOCK_BYTES as u32,
            retire_ms,
        }
    }

    /// Bytes of the whole ring.
    pub fn bytes(&self) -> usize {
        self.blocks as usize * self.block_bytes as usize
    }
}

/// Where the reading of a block begins.
fn first_place(block: &[u8]) -> ReadPosition {
    ReadPosition {
        offset: word(block, BLOCK_FIRST) as usize,
        left: word(block, BLOCK_FRAMES),
    }
}

/// Shows up to `most` frames of a block, from `place` on, and says where it stands then and how
/// many there were. A block that makes no sense ends there.
#[inline]
fn walk(
    block: &[u8],
    place: ReadPosition,
    most: usize,
    mut see: impl FnMut(RxFrame),
) -> (ReadPosition, usize) {
    let ReadPosition { mut offset, left } = place;
    let count = left.min(u32::try_from(most).unwrap_or(u32::MAX));
    for seen in 0..count {
        let header = block
            .get(offset..)
            .and_then(|rest| rest.first_chunk::<FRAME_HEADER_BYTES>());
        let Some(header) = header else {
            return (ReadPosition { offset, left: 0 }, seen as usize);
        };
        let start = u16::from_ne_bytes([header[FRAME_START], header[FRAME_START + 1]]);
        see(RxFrame {
            // Blocks are far shorter than 2^32 bytes, and `Batch` checks against their end.
            offset: (offset + usize::from(start)) as u32,
            bytes: word(header, FRAME_KEPT),
            wire_bytes: word(header, FRAME_LENGTH),
            time: Duration::from_secs(word(header, FRAME_SECONDS).into())
                + Duration::from_nanos(word(header, FRAME_NANOSECONDS).into()),
            vlan: word(header, FRAME_STATUS) & libc::TP_STATUS_VLAN_VALID != 0,
        });
        offset = offset.saturating_add(word(header, FRAME_NEXT) as usize);
    }
    let left = left - count;
    (ReadPosition { offset, left }, count as usize)
}

/// The word at an offset; 0 outside.
#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    native::word(bytes, at).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block as the kernel writes it, with frames of these bytes.
    fn block(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut block = vec![0_u8; BLOCK_HEADER_BYTES];
        block[BLOCK_FRAMES..][..4].copy_from_slice(&(frames.len() as u32).to_ne_bytes());
        block[BLOCK_FIRST..][..4].copy_from_slice(&(BLOCK_HEADER_BYTES as u32).to_ne_bytes());
        for frame in frames {
            let at = block.len();
            let next = (FRAME_HEADROOM_BYTES + frame.len()).next_multiple_of(8);
            block.resize(at + next, 0);
            let mut set = |offset: usize, value: u32| {
                block[at + offset..][..4].copy_from_slice(&value.to_ne_bytes());
            };
            set(FRAME_NEXT, next as u32);
            set(FRAME_KEPT, frame.len() as u32);
            set(FRAME_LENGTH, frame.len() as u32 + 1);
            set(FRAME_STATUS, libc::TP_STATUS_USER);
            set(FRAME_START, FRAME_HEADROOM_BYTES as u32);
            block[at + FRAME_HEADROOM_BYTES..][..frame.len()].copy_from_slice(frame);
        }
        block
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..99), 0..20),
            most in 1_usize..8,
        ) {
            let block = block(&frames);
            let mut place = first_place(&block);
            let mut read = Vec::new();
            while place.left > 0 {
                let before = read.len();
                let (after, seen) = walk(&block, place, most, |frame| {
                    let bytes = &block[frame.offset as usize..][..frame.bytes as usize];
                    read.push(bytes.to_vec());
                    assert_eq!(frame.wire_bytes, frame.bytes + 1);
                    assert!(!frame.vlan);
                });
                prop_assert_eq!(read.len() - before, seen);
                prop_assert!(seen > 0 && seen <= most);
                place = after;
            }
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn a_block_that_makes_no_sense_ends(
            block in proptest::collection::vec(any::<u8>(), 0..300),
            offset in 0_usize..400,
            left in 0_u32..50,
        ) {
            let mut frames = 0;
            let (_, seen) = walk(&block, ReadPosition { offset, left }, 64, |_| frames += 1);
            prop_assert_eq!(frames, seen);
            prop_assert!(seen <= left as usize);
        }

        #[test]
        fn a_ring_holds_what_was_asked(frames in 0_u32..100_000, frame_bytes in 0_u32..70_000) {
            let size = RxRingSize::holding(frames, frame_bytes, 1);
            let slot = (frame_bytes as usize + FRAME_HEADROOM_BYTES).next_multiple_of(16);
            let per_block = (size.block_bytes as usize - BLOCK_HEADER_BYTES) / slot;
            let holds = (size.blocks as usize - 1) * per_block;
            prop_assert!(holds >= frames as usize || size.bytes() >= 1 << 31);
            prop_assert!(size.bytes() <= 1 << 31);
        }
    }
}
