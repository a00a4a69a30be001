//! Packets that a thread holds.

use super::RxQueue;
use super::ffi::{self, FrameAt, PacketBuffer};
use super::port::Port;
use std::ptr::NonNull;
use std::sync::Arc;

/// Packets of one port that are held until the next look, at most as many as a batch has.
#[derive(Debug)]
pub struct Lent {
    port: Arc<Port>,
    packets: Vec<*mut PacketBuffer>,
    frames: Vec<FrameAt>,
    held: usize,
    lost: u64,
}

// SAFETY: only this value owns the packets, and DPDK lets any thread give a packet back.
unsafe impl Send for Lent {}

impl Lent {
    /// Room for `batch` packets of this port.
    pub fn new(port: Arc<Port>, batch: usize) -> Self {
        // DPDK counts a burst with 16 bits.
        let batch = batch.min(usize::from(u16::MAX));
        Self {
            port,
            packets: vec![std::ptr::null_mut(); batch],
            frames: vec![FrameAt::default(); batch],
            held: 0,
            lost: 0,
        }
    }

    /// Takes what the queue has (`rte_eth_rx_burst`), as long as there is room, beside what is held
    /// already; answers how many came. A queue of another port brings nothing.
    pub fn receive(&mut self, queue: &mut RxQueue) -> usize {
        let room = self.packets.len() - self.held;
        if room == 0 || !Arc::ptr_eq(queue.port(), &self.port) {
            return 0;
        }
        enter_thread();
        let (memory, memory_bytes) = self.memory();
        // SAFETY: the port runs as long as `self.port` lives. No other code polls its queue,
        // because `queue` is borrowed for writing and is the only one of its number. Both arrays
        // have `room` entries behind `held`.
        let came = unsafe {
            ffi::mpps_dpdk_receive(
                self.port.number(),
                queue.number(),
                self.port.pool(),
                memory.as_ptr() as usize,
                memory_bytes,
                self.packets.as_mut_ptr().add(self.held),
                self.frames.as_mut_ptr().add(self.held),
                room as u16,
                &raw mut self.lost,
            )
        };
        self.held += usize::from(came);
        usize::from(came)
    }

    /// Sends what is held, from where it lies, by the transmit queue that goes with `queue`
    /// (`rte_eth_tx_burst`): of each of [`Lent::frames`] as many bytes as `bytes` says at its place,
    /// or nothing where that is zero or more than its room. Answers how many the device took; after
    /// it none is held.
    pub fn send(&mut self, queue: &mut RxQueue, bytes: &mut [u32]) -> u64 {
        let has_queue = queue.number() < self.port.facts().tx_queues;
        if !has_queue || !Arc::ptr_eq(queue.port(), &self.port) || bytes.len() != self.held {
            self.release();
            return 0;
        }
        for (bytes, frame) in bytes.iter_mut().zip(&self.frames) {
            *bytes = if *bytes > frame.room { 0 } else { *bytes };
        }
        enter_thread();
        // SAFETY: the port runs as long as `self.port` lives. No other code sends by this queue:
        // `queue` is borrowed for writing and is the only one of its number. The first `held`
        // packets are ours and have room for the given number of bytes each. The next line forgets
        // them.
        let sent = unsafe {
            ffi::mpps_dpdk_send(
                self.port.number(),
                queue.number(),
                self.packets.as_mut_ptr(),
                bytes.as_ptr(),
                self.held as u32,
            )
        };
        self.held = 0;
        u64::from(sent)
    }

    /// Gives all packets back to the pool (`rte_pktmbuf_free_bulk`).
    pub fn release(&mut self) {
        if self.held == 0 {
            return;
        }
        // SAFETY: the first `held` packets are ours, and are forgotten by the next line.
        unsafe { ffi::mpps_dpdk_release(self.packets.as_mut_ptr(), self.held as u32) };
        self.held = 0;
    }

    /// The frames held, in order of arrival.
    pub fn frames(&self) -> &[FrameAt] {
        &self.frames[..self.held]
    }

    /// The bytes of one frame that is held; of any other the bytes are empty.
    pub fn bytes(&self, at: usize) -> &[u8] {
        let Some(frame) = self.frames().get(at) else {
            return &[];
        };
        let (memory, memory_bytes) = self.memory();
        let from = (frame.offset as usize).min(memory_bytes);
        let bytes = (frame.bytes as usize).min(memory_bytes - from);
        // SAFETY: the range is inside the pool's memory. Its packet is ours until `release`, which
        // needs `self` for writing, and DPDK writes no packet that it has handed out.
        unsafe { std::slice::from_raw_parts(memory.as_ptr().add(from), bytes) }
    }

    /// The memory that frames lie in: its first byte, and how many there are.
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        self.port.memory()
    }

    /// Packets that were lost here, because no buffer was left to move them into.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.release();
    }
}

/// A thread that is known to DPDK, until it ends.
#[derive(Debug)]
struct DpdkThread(bool);

thread_local! {
    static THREAD: DpdkThread = {
        // SAFETY: the environment runs, because there is a port. A refusal, when numbers ran out,
        // is no error: the thread then works without a cache of packet buffers.
        DpdkThread(unsafe { ffi::mpps_dpdk_enter_thread() } == 0)
    };
}

/// Makes the calling thread known to DPDK, which gives it a cache of packet buffers. A thread-local
/// value that is being destroyed has done so already.
fn enter_thread() {
    // An answer is not needed, only that the value is there.
    let _ = THREAD.try_with(|_| ());
}

impl Drop for DpdkThread {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: this thread was entered and is left once.
            unsafe { ffi::mpps_dpdk_leave_thread() };
        }
    }
}
