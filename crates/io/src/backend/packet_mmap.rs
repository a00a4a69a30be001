//! Packet sockets with rings: a tap on an interface (`TPACKET_V3`), and a transmit ring past the
//! queueing discipline (`TPACKET_V2`).

pub(super) mod filter;
mod rx;
mod tap;
mod tx;

use super::{Backend, Layer, Support};
use mpps_os::capability::{CAP_NET_RAW, Rights};
use mpps_os::packet_socket::PacketSocket;

pub(super) const BACKEND: Backend = Backend {
    name: "packet_mmap",
    summary: "frames from a tap in shared rings; the kernel handles each packet too",
    needs: "Linux 5.10, CAP_NET_RAW; Linux 6.6 and CAP_NET_ADMIN to drop the kernel's copy",
    layer: Layer::Frame,
    takes_nic: false,
    in_process: false,
    probe,
    rx_fields: &[
        "ring.interface",
        "ring.frames",
        "ring.all_traffic",
        "ring.take",
        "ring.fanout",
        "details.source",
        "details.local",
        "details.traffic_class",
        "details.hop_limit",
        "details.time",
        "errors",
        "answers",
    ],
    tx_fields: &[
        "flows",
        "send_buffer_bytes",
        "ring.interface",
        "ring.frames",
        "ring.target_mac",
    ],
    rx: Some(rx::open),
    tx: Some(tx::open),
};

fn probe() -> Support {
    let Err(error) = PacketSocket::new("probe") else {
        return Support::Yes;
    };
    // EPERM of packet(7); any other error means a kernel without packet sockets (EAFNOSUPPORT).
    let remedy = match error.source.kind() {
        std::io::ErrorKind::PermissionDenied => {
            right_remedy(&Rights::own(), "cap_net_raw,cap_net_admin")
        }
        _ => "sudo modprobe af_packet".to_owned(),
    };
    Support::refused(&error, remedy)
}

/// The remedy for a missing `CAP_NET_RAW`. Capabilities of a file do not help root: if a container
/// takes a capability from root, a file cannot give it, either.
pub(super) fn right_remedy(rights: &Rights, of_file: &str) -> String {
    let remedy = rights.remedy(&[CAP_NET_RAW]);
    match rights.is_root {
        true => remedy,
        false => format!("{remedy}, or: sudo setcap {of_file}=ep $(command -v mpps)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_who_lacks_the_right_is_not_sent_to_the_file() {
        let user = Rights {
            is_root: false,
            is_initial: true,
            effective: 0,
            locked_bytes: None,
            memory: [None; 2],
            processes: None,
        };
        let said = right_remedy(&user, "cap_net_raw");
        assert!(said.contains("or: sudo setcap cap_net_raw=ep"), "{said}");
        let root = Rights {
            is_root: true,
            ..user
        };
        let said = right_remedy(&root, "cap_net_raw");
        assert!(said.contains("--cap-add NET_RAW"), "{said}");
        assert!(!said.contains("sudo"), "{said}");
    }
}
