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
    needs: "Linux 5.10, CAP_NET_RAW; Linux 6.12 and CAP_NET_ADMIN for --take",
    layer: Layer::Frame,
    takes_nic: false,
    in_process: false,
    probe,
    rx_options: &[
        "--interface",
        "--ring",
        "--all-traffic",
        "--take",
        "--fanout",
        "sources",
        "answers",
    ],
    tx_options: &[
        "--flows",
        "--sndbuf",
        "--interface",
        "--ring",
        "--target-mac",
    ],
    rx: Some(rx::open),
    tx: Some(tx::open),
};

fn probe() -> Support {
    let Err(error) = PacketSocket::new("probe") else {
        return Support::Yes;
    };
    // EPERM of packet(7); all else is a kernel without packet sockets (EAFNOSUPPORT).
    let remedy = match error.source.kind() {
        std::io::ErrorKind::PermissionDenied => format!(
            "{}, or: sudo setcap cap_net_raw,cap_net_admin=ep $(command -v mpps)",
            Rights::own().remedy(&[CAP_NET_RAW])
        ),
        _ => "sudo modprobe af_packet".to_owned(),
    };
    Support::no(error.to_string(), remedy)
}
