//! The default device: DPDK's driver for packet sockets, a tap beside the kernel.

use super::{FRAME_BYTES, lock, rx_descriptors};
use crate::backend::held_port::{HeldPort, ListenedInterface, Neighbour};
use crate::{Error, RxConfig};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The driver of the default device, and of others that are taps.
pub(super) const DRIVER: &str = "net_af_packet";
/// Packets that a ring of the default device holds: as many as the other rings here.
const FRAMES: u32 = 4096;
/// Bytes of its largest slot: jumbo frames fit, the 64 KiB of the loopback interface do not.
const FRAME_BYTES_MAX: u32 = 16_384;
/// Bytes that the kernel allocates in one piece for it, 16 pages.
const BLOCK_BYTES: u32 = 65_536;

/// The common part of the receivers on one tap.
#[derive(Debug)]
pub(super) struct DpdkTap {
    /// The port, held so that the kernel does not answer there.
    pub(super) port: HeldPort,
    /// True if no user named the device, so that there may be more of them.
    pub(super) is_default: bool,
    /// The MTU of the interface, which the driver does not know.
    pub(super) mtu: u32,
    _membership: Membership,
}

impl DpdkTap {
    /// Holds the port, and the interface that the device names.
    ///
    /// # Errors
    /// Another tap of this process is there; what a bind can meet.
    pub(super) fn claim(
        device: &str,
        address: SocketAddr,
        is_default: bool,
    ) -> Result<Self, Error> {
        let membership = Membership::claim(device)?;
        Ok(Self {
            mtu: link::of(link::index(&membership.interface)?)?.mtu,
            _membership: membership,
            port: HeldPort::open(address, Neighbour::Tolerated)?,
            is_default,
        })
    }
}

/// The device for those who named none, and the bytes of its frames: a packet socket on the
/// interface. It has one ring: of several the driver lets the kernel fill the next when one is full
/// (`PACKET_FANOUT_FLAG_ROLLOVER`), which takes a flow's packets out of their order.
pub(super) fn device(config: &RxConfig) -> Result<(String, u16), Error> {
    // Devices of one process need names of their own.
    static TAPS: AtomicU32 = AtomicU32::new(0);
    let number = TAPS.fetch_add(1, Ordering::Relaxed);
    let interface = ListenedInterface::find(config)?;
    if interface.index == 0 {
        let why = "any address says nothing of the interface; give `ring.interface`";
        return Err(Error::invalid("address", config.address, why));
    }
    let link = link::find(interface.index)?;
    let frame_bytes = link.map_or(FRAME_BYTES, |link| frame_bytes_of(link.mtu));
    let frames = rx_descriptors(config)?.map_or(FRAMES, u32::from);
    // Frames come in blocks, which hold whole frames and whole pages.
    let frames = frames.next_multiple_of(BLOCK_BYTES / u32::from(frame_bytes));
    let device = format!(
        "{DRIVER}_mpps{number},iface={},qpairs=1,blocksz={BLOCK_BYTES},\
         framesz={frame_bytes},framecnt={frames}",
        interface.name
    );
    Ok((device, frame_bytes))
}

/// Bytes of a slot for frames of this MTU with its headers, and the kernel's.
fn frame_bytes_of(mtu: u32) -> u16 {
    /// `TPACKET2_HDRLEN` (include/uapi/linux/if_packet.h), alignment and an Ethernet header with a
    /// VLAN tag are 102 bytes.
    const HEADERS_BYTES: u32 = 128;
    let bytes = mtu.saturating_add(HEADERS_BYTES).min(FRAME_BYTES_MAX);
    // At most 2 to the power of 14.
    (bytes.next_power_of_two() as u16).max(FRAME_BYTES)
}

/// The right of one tap to an interface of one network namespace, given back with this value.
///
/// The driver names its fan-out group after the process and the interface, so that a second tap
/// would be a member of the first one's group and take packets from it.
#[derive(Debug)]
struct Membership {
    namespace: u32,
    interface: String,
}

/// The memberships of this process.
static MEMBERSHIPS: Mutex<BTreeSet<(u32, String)>> = Mutex::new(BTreeSet::new());

impl Membership {
    fn claim(device: &str) -> Result<Self, Error> {
        let interface = device
            .split(',')
            .find_map(|word| word.strip_prefix("iface="));
        let interface = interface.unwrap_or_default().to_owned();
        let namespace = NetNamespace::current()?.inode();
        if lock(&MEMBERSHIPS).insert((namespace, interface.clone())) {
            return Ok(Self {
                namespace,
                interface,
            });
        }
        let why = "DPDK has a tap on it in this process, and a second would take its packets";
        Err(Error::invalid("ring.interface", interface, why))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let interface = std::mem::take(&mut self.interface);
        lock(&MEMBERSHIPS).remove(&(self.namespace, interface));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_the_frames_of_their_interface() {
        for (mtu, bytes) in [
            (68, 2048),
            (1500, 2048),
            (1921, 4096),
            (9000, 16_384),
            (65_536, 16_384),
        ] {
            assert_eq!(frame_bytes_of(mtu), bytes, "{mtu}");
        }
    }
}
