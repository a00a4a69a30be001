//! A device that receives.

use super::driver_sockets::{DriverSockets, Leftovers, OpenSockets};
use super::environment::{failure, listen};
use super::ffi::{self, Pool, RawFacts, RawStatistics};
use crate::bpf::classic::ClassicInstruction;
use crate::{CallError, CallResult};
use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// For a driver that has no figure of its own: twice `RTE_ETH_DEV_FALLBACK_RX_RINGSIZE`
/// (rte_ethdev.h), which is meant for slower days.
const RX_DESCRIPTORS: u16 = 1024;

/// For how long the kernel may keep a queue whose AF_XDP socket was closed.
const BUSY_PAUSES_MS: [u64; 7] = [5, 10, 20, 40, 80, 160, 320];

/// Held while a device is opened.
static OPENING: Mutex<()> = Mutex::new(());

/// How a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortOptions {
    /// Packets that each receive queue holds; none is the driver's own figure.
    pub rx_descriptors: Option<u16>,
    /// Most receive queues of a hardware device. A virtual one is opened with all that it was made
    /// with, because it deals packets out to all of them.
    pub rx_queues_max: u16,
    /// Packets that each queue's receiver holds at a time.
    pub batch: usize,
    /// Bytes of the largest frame that is kept in one piece.
    pub frame_bytes: u16,
}

/// The properties of an open device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortFacts {
    /// The driver's name, such as `net_af_packet`.
    pub driver: String,
    /// True if it is made of software (DPDK's bus `vdev`).
    pub is_virtual: bool,
    /// Receive queues in use.
    pub rx_queues: u16,
    /// Transmit queues in use.
    pub tx_queues: u16,
    /// The longest packet behind its Ethernet header (`rte_eth_dev_get_mtu`).
    pub mtu: u16,
    /// Packets that each receive queue holds, as far as the driver says.
    pub rx_descriptors: u16,
    /// The hardware address.
    pub mac: [u8; 6],
}

/// Packets that a port lost, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortDrops {
    /// The device had no descriptor (`imissed`).
    pub missed: u64,
    /// Frames that arrived broken (`ierrors`).
    pub errors: u64,
    /// The pool had no buffer (`rx_nombuf`).
    pub no_buffer: u64,
    /// The kernel found the ring of the driver's socket full.
    pub ring_full: u64,
}

/// A running device. It stops when the last reference to it is dropped.
#[derive(Debug)]
pub struct Port {
    // The order of the fields is the order of the drops: copies of the driver's sockets and their
    // watcher, the device, the sockets that the driver forgets, the device's buffers.
    readiness: Option<OwnedFd>,
    sockets: DriverSockets,
    device: DpdkDevice,
    _leftovers: Leftovers,
    buffers: Buffers,
    facts: PortFacts,
    /// Drops added up from sockets whose counter starts again at each read.
    packet_ring_full: AtomicU64,
}

/// One receive queue of a port; there is no other value for the same queue.
#[derive(Debug)]
pub struct RxQueue {
    port: Arc<Port>,
    number: u16,
}

impl RxQueue {
    /// The port that it is of.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Port {
    /// Adds a device and starts it (`rte_dev_probe`, `rte_eth_dev_start`):
    /// `net_af_packet0,iface=eth0` makes one of software, `0000:01:00.0` takes a device that is
    /// bound to VFIO. A driver that opens sockets opens them in the calling thread's network
    /// namespace. Returns the queues. The port ends with the last of them.
    ///
    /// # Errors
    /// The output of DPDK and the driver.
    pub fn open(device: &str, options: &PortOptions) -> CallResult<Vec<RxQueue>> {
        // The driver's sockets are found by comparison with those open before: one device at a
        // time.
        let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pauses = BUSY_PAUSES_MS.into_iter();
        let port = loop {
            let opened = Self::open_once(device, options);
            match (opened, pauses.next()) {
                // A queue whose AF_XDP socket was just closed is busy for a moment. The driver
                // answers `EINVAL` for it, as for every other failure.
                (Err(_), Some(pause)) if device.starts_with("net_af_xdp") => {
                    thread::sleep(Duration::from_millis(pause));
                }
                (opened, _) => break Arc::new(opened?),
            }
        };
        let queue = |number| RxQueue {
            port: Arc::clone(&port),
            number,
        };
        Ok((0..port.facts.rx_queues).map(queue).collect())
    }

    fn open_once(device: &str, options: &PortOptions) -> CallResult<Self> {
        let before = OpenSockets::now()?;
        let device = DpdkDevice::attach(device)?;
        let raw = device.facts()?;
        let rx_queues = match raw.is_virtual {
            0 => raw.rx_queues_max.min(options.rx_queues_max),
            _ => raw.rx_queues_max,
        };
        let rx_queues = rx_queues.max(1);
        let asked = options.rx_descriptors.unwrap_or(match raw.rx_descriptors {
            0 => RX_DESCRIPTORS,
            own => own,
        });
        // Both rings of a socket driver, what a receiver holds, and the caches of the threads.
        let each = 2 * usize::from(asked) + 2 * options.batch + 1024;
        let wanted = usize::from(rx_queues) * each;
        let buffers = Buffers::new(wanted, options.frame_bytes, raw.socket)?;
        let tx_queues = rx_queues.min(raw.tx_queues_max);
        let rx_descriptors = device.start(rx_queues, tx_queues, asked, &buffers)?;
        let (sockets, leftovers) = DriverSockets::since(&before)?;
        Ok(Self {
            readiness: sockets.readiness()?,
            sockets,
            device,
            _leftovers: leftovers,
            buffers,
            facts: PortFacts {
                driver: text(&raw.driver),
                is_virtual: raw.is_virtual != 0,
                rx_queues,
                tx_queues,
                mtu: raw.mtu,
                rx_descriptors,
                mac: raw.mac,
            },
            packet_ring_full: AtomicU64::new(0),
        })
    }

    /// A descriptor that is readable while one of the driver's sockets has packets, for `poll(2)`
    /// and `epoll(7)`; none for a driver without sockets, which can only be polled.
    pub fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.readiness.as_ref().map(OwnedFd::as_fd)
    }

    /// Lets only what a program accepts into the packet sockets of the driver, if it has some, so
    /// that what they drop from now on is what was wanted.
    ///
    /// # Errors
    /// As for [`crate::bpf::classic::attach`].
    pub fn set_filter(&self, program: &[ClassicInstruction]) -> CallResult<()> {
        self.sockets.set_filter(program)
    }

    /// The properties of the device.
    pub fn facts(&self) -> &PortFacts {
        &self.facts
    }

    /// The packets lost so far (`rte_eth_stats_get`, and the driver's sockets).
    pub fn drops(&self) -> PortDrops {
        let mut statistics = RawStatistics::default();
        // SAFETY: the port runs as long as `self` lives; on a refusal the zeros stay.
        unsafe { ffi::mpps_dpdk_statistics(self.number(), &raw mut statistics) };
        let sockets = self.sockets.drops();
        let new = sockets.packet_ring_full;
        let packet = self.packet_ring_full.fetch_add(new, Ordering::Relaxed) + new;
        PortDrops {
            missed: statistics.missed,
            errors: statistics.errors,
            no_buffer: statistics.no_buffer,
            ring_full: packet + sockets.xdp_ring_full,
        }
    }

    pub(super) fn number(&self) -> u16 {
        self.device.number
    }

    pub(super) fn pool(&self) -> *mut Pool {
        self.buffers.pool.as_ptr()
    }

    pub(super) fn memory(&self) -> (NonNull<u8>, usize) {
        (self.buffers.memory, self.buffers.memory_bytes)
    }
}

/// A device that was added, and is removed with this value.
#[derive(Debug)]
struct DpdkDevice {
    number: u16,
    name: String,
}

impl DpdkDevice {
    fn attach(name: &str) -> CallResult<Self> {
        let refused = |_| {
            let source = io::Error::from(io::ErrorKind::InvalidInput);
            CallError::new("rte_dev_probe", name, source)
        };
        let owned = CString::new(name).map_err(refused)?;
        let mut number = 0;
        // SAFETY: the string lives as long as the call, and DPDK copies what it keeps.
        let attach = || unsafe { ffi::mpps_dpdk_attach(owned.as_ptr(), &raw mut number) };
        call("rte_dev_probe", name, attach)?;
        let name = name.to_owned();
        Ok(Self { number, name })
    }

    fn facts(&self) -> CallResult<RawFacts> {
        let mut facts = RawFacts {
            driver: [0; 64],
            rx_queues_max: 0,
            tx_queues_max: 0,
            rx_descriptors: 0,
            mtu: 0,
            is_virtual: 0,
            mac: [0; 6],
            socket: 0,
        };
        // SAFETY: the device is attached, and the structure is good for the call.
        let ask = || unsafe { ffi::mpps_dpdk_facts(self.number, &raw mut facts) };
        call("rte_eth_dev_info_get", &self.name, ask)?;
        Ok(facts)
    }

    /// Answers how many packets each queue holds.
    fn start(
        &self,
        rx_queues: u16,
        tx_queues: u16,
        asked: u16,
        buffers: &Buffers,
    ) -> CallResult<u16> {
        let mut granted = asked;
        // SAFETY: the device is attached and not yet started; the buffers outlive it, as `Port`
        // drops them after it.
        let start = || unsafe {
            let pool = buffers.pool.as_ptr();
            ffi::mpps_dpdk_configure(self.number, rx_queues, tx_queues, &raw mut granted, pool)
        };
        call("rte_eth_dev_start", &self.name, start)?;
        Ok(granted)
    }
}

impl Drop for DpdkDevice {
    fn drop(&mut self) {
        // SAFETY: the device is attached. No code receives from it, because each queue holds its
        // port. No caller is left for an error.
        let _ = listen(|| unsafe { ffi::mpps_dpdk_detach(self.number) });
    }
}

/// Packet buffers, and the memory that all of them lie in.
#[derive(Debug)]
struct Buffers {
    pool: NonNull<Pool>,
    memory: NonNull<u8>,
    memory_bytes: usize,
}

// SAFETY: DPDK's pools may be used by any thread; the memory is only read, through `Lent`.
unsafe impl Send for Buffers {}
// SAFETY: as above.
unsafe impl Sync for Buffers {}

impl Buffers {
    fn new(wanted: usize, frame_bytes: u16, socket: c_int) -> CallResult<Self> {
        const CALL: &str = "rte_pktmbuf_pool_create";
        // A name may come again once its pool is gone, but pools of several ports live at once.
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let name = format!("mpps{}", POOLS.fetch_add(1, Ordering::Relaxed));
        let owned =
            CString::new(name).map_err(|error| failure(CALL, libc::EINVAL, &error.to_string()))?;
        // DPDK's pool is a ring, which is best used at one less than a power of two.
        let count = (wanted + 1).next_power_of_two().max(8192) - 1;
        let count = u32::try_from(count).map_err(|_| failure(CALL, libc::ENOMEM, ""))?;
        let mut pool = std::ptr::null_mut();
        let (mut memory, mut memory_bytes, mut errno) = (std::ptr::null_mut(), 0, 0);
        call(
            CALL,
            &format!("{count} buffers of {frame_bytes} bytes"),
            || {
                // SAFETY: all pointers are good for the call, and the name is copied.
                pool = unsafe {
                    ffi::mpps_dpdk_pool(
                        owned.as_ptr(),
                        count,
                        frame_bytes,
                        socket,
                        &raw mut memory,
                        &raw mut memory_bytes,
                        &raw mut errno,
                    )
                };
                if pool.is_null() { -errno.max(1) } else { 0 }
            },
        )?;
        let (Some(pool), Some(memory)) = (NonNull::new(pool), NonNull::new(memory.cast())) else {
            return Err(failure(CALL, libc::ENOMEM, ""));
        };
        let buffers = Self {
            pool,
            memory,
            memory_bytes,
        };
        // The place of a frame is stored in 32 bits.
        if u32::try_from(memory_bytes).is_err() {
            return Err(failure(
                CALL,
                libc::EFBIG,
                "buffers spread over more than 4 GiB",
            ));
        }
        Ok(buffers)
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the device that filled them is gone, and each packet that was lent held it.
        unsafe { ffi::mpps_dpdk_free_pool(self.pool.as_ptr()) };
    }
}

/// A call into DPDK about something.
fn call(call: &'static str, object: &str, work: impl FnOnce() -> c_int) -> CallResult<()> {
    listen(work).map_err(|(errno, said)| match said.is_empty() {
        true => failure(call, errno, object),
        false => failure(call, errno, &format!("{object} ({said})")),
    })
}

/// The text of an array that C filled.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
