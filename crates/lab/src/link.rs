//! The setup of a link: no segmentation offloads, and no packets that no program sent.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use mpps_os::bpf::asm::{Assembler, R0};
use mpps_os::bpf::{BpfLink, Program, XdpAttach};
use mpps_os::ethtool;
use mpps_os::netlink::{address as interface_address, link, neighbour};

use crate::LabError;
use crate::address::prefix_length;

/// Settings under `/proc/sys/net` that keep a host from sending packets by itself. They are those
/// of one namespace. They are written before it has a link, which inherits them.
///
/// Router solicitations and link-local addresses go. The kernel reports its multicast groups at
/// once, and not at some time within ten seconds.
const QUIET: [(&str, &str); 9] = [
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/dad_transmits", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv6/conf/default/autoconf", "0"),
    ("ipv6/conf/default/mldv1_unsolicited_report_interval", "1"),
    ("ipv6/conf/default/mldv2_unsolicited_report_interval", "1"),
    // IPv4 defaults come from the host, where this may be set.
    ("ipv4/conf/all/rp_filter", "0"),
];

/// Twice as long as the kernel may take. A lab that is still not silent then reports that itself.
const UP_WITHIN: Duration = Duration::from_secs(2);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Makes the calling thread's namespace quiet.
///
/// # Errors
///
/// The first refusal, as in a container that sees `/proc/sys` read-only. All settings are tried. A
/// file that this kernel does not have is no error.
pub(crate) fn quiet() -> Result<(), String> {
    let set = |(name, value): &(&str, &str)| {
        let path = format!("/proc/sys/net/{name}");
        match fs::write(&path, value) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(format!("{path}: {error}")),
            _ => Ok(()),
        }
    };
    let set: Vec<_> = QUIET.iter().map(set).collect();
    set.into_iter().collect()
}

/// Makes an interface's receive queues know their numbers: attaches an XDP program that passes all
/// frames, and detaches it.
///
/// A veth stops a transmit queue whose ring is full. Later it starts the queue of the number that
/// the receiving ring has on record for XDP (`veth_xdp_rcv` in drivers/net/veth.c). That record is
/// 0 until a program is attached. So any other queue that was stopped once would stay stopped. The
/// record outlives the program (`xdp_rxq_info_unreg` in net/core/xdp.c).
pub(crate) fn number_queues(index: u32) -> Result<(), mpps_os::CallError> {
    let passing = |_| Assembler::new().set(R0, XDP_PASS).exit().finish();
    let (program, _) = Program::load_xdp("mpps_pass", passing)?;
    drop(BpfLink::xdp(&program, index, XdpAttach::Native)?);
    Ok(())
}

/// The verdict of an XDP program that lets a packet go on (include/uapi/linux/bpf.h).
const XDP_PASS: i32 = 2;

/// Turns off the segmentation offloads of the calling thread's interface. Then only the sending
/// program divides data into packets, and only the receiving host joins them. So the interface
/// carries one datagram per packet, whatever its other end can do. Returns the refused settings,
/// with the reasons.
///
/// Checksums stay with the link, on both ends, as with a network card. The veth carries the promise
/// that the packet is intact.
pub(crate) fn carry_single_packets(interface: &str) -> Vec<String> {
    let features = match ethtool::features(interface) {
        Ok(features) => features,
        Err(error) => return vec![error.to_string()],
    };
    features
        .iter()
        .filter(|feature| feature.active && feature.changeable)
        .filter(|feature| is_segmentation(&feature.name))
        .filter_map(|feature| {
            let error = ethtool::set_feature(interface, &feature.name, false).err()?;
            Some(error.to_string())
        })
        .collect()
}

/// The kernel's names for offloads of segmentation (net/ethtool/common.c): `tx-udp-segmentation`,
/// `tx-tcp6-segmentation`, `tx-gso-list` and their kin.
fn is_segmentation(feature: &str) -> bool {
    feature.starts_with("tx-")
        && (feature.ends_with("-segmentation")
            || feature.starts_with("tx-tcp-")
            || feature.starts_with("tx-gso-"))
}

/// Gives the calling thread's host its addresses, and permanent entries for its neighbour's. So no
/// host has to ask.
pub(crate) fn introduce(
    index: u32,
    own: impl Iterator<Item = IpAddr>,
    neighbours: impl Iterator<Item = IpAddr>,
    neighbour_hardware: &[u8],
) -> Result<(), LabError> {
    for address in own {
        interface_address::add(index, address, prefix_length(address))?;
    }
    for address in neighbours {
        neighbour::add_permanent(index, address, neighbour_hardware)?;
    }
    Ok(())
}

/// Sets up the calling thread's host: its loopback interface and its link.
pub(crate) fn start(index: u32) -> Result<(), LabError> {
    link::set_up(link::index("lo")?)?;
    Ok(link::set_up(index)?)
}

/// Waits until the kernel has reported that the calling thread's link is up. Only then does it
/// report the multicast groups for the last time.
pub(crate) fn await_up(index: u32) -> Result<(), LabError> {
    let deadline = Instant::now() + UP_WITHIN;
    while !link::is_operational(index)? && Instant::now() < deadline {
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Returns true if the calling thread's namespace has IPv6.
pub(crate) fn has_v6() -> bool {
    fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6")
        .is_ok_and(|value| value.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segmentation_is_told_from_other_offloads() {
        for name in [
            "tx-tcp-segmentation",
            "tx-tcp-ecn-segmentation",
            "tx-tcp-mangleid-segmentation",
            "tx-udp-segmentation",
            "tx-generic-segmentation",
            "tx-gso-list",
            "tx-gre-segmentation",
        ] {
            assert!(is_segmentation(name), "{name}");
        }
        for name in [
            "tx-checksum-ip-generic",
            "tx-scatter-gather",
            "rx-gro",
            "rx-udp-gro-forwarding",
        ] {
            assert!(!is_segmentation(name), "{name}");
        }
    }
}
