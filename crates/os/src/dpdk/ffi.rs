//! The functions of `shim.c`, declared for Rust. The structures have the same layout as there.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `struct rte_mempool`: packet buffers, never looked into from here.
#[repr(C)]
pub(super) struct Pool {
    opaque: [u8; 0],
}

/// `struct rte_mbuf`: one packet buffer, never looked into from here.
#[repr(C)]
pub(super) struct PacketBuffer {
    opaque: [u8; 0],
}

/// Where a received frame lies in its port's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameAt {
    /// First byte, counted from the start of the memory.
    pub offset: u32,
    /// Bytes there.
    pub bytes: u32,
    /// Bytes that the frame has in all, with those in further buffers.
    pub wire_bytes: u32,
    /// Bytes that an answer may have from there on; none where the frame lies in several buffers.
    pub room: u32,
}

/// `struct mpps_dpdk_facts`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawFacts {
    pub(super) driver: [u8; 64],
    pub(super) rx_queues_max: u16,
    pub(super) tx_queues_max: u16,
    pub(super) rx_descriptors: u16,
    pub(super) mtu: u16,
    pub(super) is_virtual: u8,
    pub(super) mac: [u8; 6],
    pub(super) socket: c_int,
}

/// `struct mpps_dpdk_statistics`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawStatistics {
    pub(super) missed: u64,
    pub(super) errors: u64,
    pub(super) no_buffer: u64,
}

unsafe extern "C" {
    pub(super) fn mpps_dpdk_listen() -> c_int;
    pub(super) fn mpps_dpdk_heard(text: *mut c_char, bytes: usize) -> usize;
    pub(super) fn mpps_dpdk_start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(super) fn mpps_dpdk_directory() -> *const c_char;
    pub(super) fn mpps_dpdk_enter_thread() -> c_int;
    pub(super) fn mpps_dpdk_leave_thread();
    pub(super) fn mpps_dpdk_attach(device: *const c_char, port: *mut u16) -> c_int;
    pub(super) fn mpps_dpdk_facts(port: u16, facts: *mut RawFacts) -> c_int;
    pub(super) fn mpps_dpdk_configure(
        port: u16,
        rx_queues: u16,
        tx_queues: u16,
        rx_descriptors: *mut u16,
        pool: *mut Pool,
    ) -> c_int;
    pub(super) fn mpps_dpdk_detach(port: u16) -> c_int;
    pub(super) fn mpps_dpdk_statistics(port: u16, statistics: *mut RawStatistics) -> c_int;
    pub(super) fn mpps_dpdk_pool(
        name: *const c_char,
        buffers: c_uint,
        data_bytes: u16,
        socket: c_int,
        memory: *mut *mut c_void,
        memory_bytes: *mut usize,
        error: *mut c_int,
    ) -> *mut Pool;
    pub(super) fn mpps_dpdk_free_pool(pool: *mut Pool);
    pub(super) fn mpps_dpdk_receive(
        port: u16,
        queue: u16,
        pool: *mut Pool,
        memory: usize,
        memory_bytes: usize,
        packets: *mut *mut PacketBuffer,
        frames: *mut FrameAt,
        count: u16,
        lost: *mut u64,
    ) -> u16;
    pub(super) fn mpps_dpdk_send(
        port: u16,
        queue: u16,
        packets: *mut *mut PacketBuffer,
        bytes: *const u32,
        count: c_uint,
    ) -> c_uint;
    pub(super) fn mpps_dpdk_release(packets: *mut *mut PacketBuffer, count: c_uint);
}
