//! AF_XDP: packets straight from the driver, past the kernel's network stack.
//!
//! An XDP program on the interface hands only the wanted flow to a socket per queue. Its packets
//! lie in memory that this process shares with the kernel, and are lent from there.
//! docs/backends/af_xdp.md says what was found about its counters.

mod driving;
mod interface;
mod peers;
mod port_counts;
mod rx;
mod steering;
mod tx;
mod tx_queue;

use super::{Backend, Layer, Support};
use crate::{Error, RingConfig};
use interface::XdpInterface;
use mpps_os::capability::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, Rights};
use mpps_os::limit::{self, LOCKED_MEMORY_REMEDY};
use mpps_os::text::ShellWord;
use mpps_os::xdp::{self, FRAMES_MAX, SocketConfig, WakePolling};

pub(super) const BACKEND: Backend = Backend {
    name: "af_xdp",
    summary: "the wanted flow past the kernel's stack, by an XDP program and shared memory",
    needs: "Linux 5.10, CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON; a driver with native XDP to \
            be fast",
    layer: Layer::Frame,
    takes_nic: false,
    in_process: false,
    probe,
    rx_fields: &[
        "busy_poll_us",
        "groups",
        "details.source",
        "details.local",
        "details.traffic_class",
        "details.hop_limit",
        "details.hardware_time",
        "details.hash",
        "details.vlan",
        "errors",
        "answers",
        "ring.interface",
        "ring.queue",
        "ring.attach",
        "ring.copy",
        "ring.frames",
        "ring.all_traffic",
        "ring.destinations",
        "ring.sockets",
        "ring.forward_to",
        "ring.hugepages",
    ],
    tx_fields: &[
        "send_buffer_bytes",
        "connect = false",
        "flows",
        "ring.interface",
        "ring.queue",
        "ring.copy",
        "ring.frames",
        "ring.hugepages",
        "ring.target_mac",
    ],
    rx: Some(rx::open),
    tx: Some(tx::open),
};

/// Frames of a socket, unless the user sets a number: 8 MiB, four times the largest batch.
const FRAMES: u32 = 4096;
/// Packets of one busy poll: `NAPI_POLL_WEIGHT` of include/linux/netdevice.h, what an interrupt's
/// poll would take.
const BUSY_POLL_BUDGET: u16 = 64;

fn probe() -> Support {
    let Err(error) = xdp::probe() else {
        return Support::Yes;
    };
    let remedy = match error.source.kind() {
        // The filter adds a value that it read in a packet to a pointer. The verifier grants that
        // only to CAP_PERFMON (kernel/bpf/verifier.c).
        std::io::ErrorKind::PermissionDenied => {
            Rights::own().remedy(&[CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON])
        }
        _ => "a kernel with CONFIG_XDP_SOCKETS".to_owned(),
    };
    Support::refused(&error, remedy)
}

/// The socket that is asked for on one queue, with frames that hold the interface's longest packet
/// behind `room_bytes`, or pieces of it.
fn socket_config<'a>(
    ring: &RingConfig,
    interface: &'a XdpInterface,
    queue: u32,
    room_bytes: u32,
) -> Result<SocketConfig<'a>, Error> {
    let frames = ring.frames.unwrap_or(FRAMES);
    if !(1..=FRAMES_MAX).contains(&frames) {
        let why = format!("a socket has 1 to {FRAMES_MAX} frames");
        return Err(Error::invalid("ring.frames", frames, why));
    }
    let wanted_bytes = interface.frame_bytes_max().saturating_add(room_bytes);
    let frame_bytes = if wanted_bytes <= 2048 { 2048 } else { 4096 };
    Ok(SocketConfig {
        interface: &interface.name,
        interface_index: interface.index,
        queue,
        frames,
        frame_bytes,
        zero_copy: ring.copy.map(|copy| copy == crate::CopyMode::ZeroCopy),
        segments: wanted_bytes > frame_bytes,
        adapts: false,
        hugepages: ring.hugepages,
        transmits: false,
        forwards: None,
    })
}

/// How a receive call polls the device, if that was asked for.
fn busy_poll(time_us: Option<u32>) -> Result<Option<WakePolling>, Error> {
    if time_us == Some(0) {
        let why = "no time at all turns polling off; leave the option out";
        return Err(Error::invalid("busy_poll_us", "0", why));
    }
    Ok(time_us.map(|time_us| WakePolling {
        time_us,
        budget: BUSY_POLL_BUDGET,
    }))
}

/// Adds what a user can do to refusals that the kernel does not explain.
fn explain(error: mpps_os::CallError, config: &SocketConfig<'_>) -> Error {
    let is_map = error.call == "mmap" && config.hugepages;
    match error.errno() {
        Some(errno::ENOMEM | errno::ENOENT) if is_map => Error::Invalid {
            field: "ring.hugepages",
            value: format!("{} frames", config.frames),
            why: format!(
                "{error}; set some aside: sysctl vm.nr_hugepages={}",
                (u64::from(config.frames) * u64::from(config.frame_bytes)).div_ceil(2 << 20) + 1
            ),
        },
        Some(errno::EOPNOTSUPP) if config.zero_copy == Some(true) => Error::Invalid {
            field: "ring.copy",
            value: "zero".to_owned(),
            why: format!(
                "the driver of {} has no zero-copy here",
                error.object.split(' ').next().unwrap_or(config.interface)
            ),
        },
        Some(errno::EINVAL) if error.call == "bind AF_XDP" && config.segments => Error::Invalid {
            field: "ring.interface",
            value: config.interface.to_owned(),
            why: format!(
                "{error}: at its MTU a packet comes in several pieces, and that needs Linux 6.6; \
                 ip link set dev {} mtu 1500",
                ShellWord::new(config.interface)
            ),
        },
        Some(errno::EINVAL) if error.call == "bind AF_XDP" && config.zero_copy == Some(true) => {
            Error::Invalid {
                field: "ring.copy",
                value: "zero".to_owned(),
                why: format!(
                    "{error}: the driver refuses zero-copy on this queue; `mpps backends {}` may know \
                     why",
                    ShellWord::operand(config.interface)
                ),
            }
        }
        Some(errno::ENOBUFS) if error.call == "setsockopt XDP_UMEM_REG" => Error::Invalid {
            field: "ring.frames",
            value: config.frames.to_string(),
            why: format!(
                "{} KiB of frames, and this process may lock {} KiB of memory: fewer frames, or \
                 {LOCKED_MEMORY_REMEDY}",
                u64::from(config.frames) * u64::from(config.frame_bytes) / 1024,
                limit::locked_memory().unwrap_or(0) / 1024
            ),
        },
        _ => error.into(),
    }
}

/// Numbers of include/uapi/asm-generic/errno-base.h and errno.h.
mod errno {
    pub(super) const ENOENT: i32 = 2;
    pub(super) const EINTR: i32 = 4;
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const ENOMEM: i32 = 12;
    pub(super) const EBUSY: i32 = 16;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const ERANGE: i32 = 34;
    pub(super) const EOPNOTSUPP: i32 = 95;
    pub(super) const ENOBUFS: i32 = 105;
}
