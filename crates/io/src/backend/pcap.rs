//! libpcap: frames through whatever that library was built for.

#[cfg(feature = "pcap")]
mod enabled;
#[cfg(feature = "pcap")]
use enabled as build;

#[cfg(not(feature = "pcap"))]
mod disabled;
#[cfg(not(feature = "pcap"))]
use disabled as build;

use super::{Backend, Layer};

pub(super) const BACKEND: Backend = Backend {
    name: "pcap",
    summary: "frames through libpcap, with PF_RING or netmap where it was built for them",
    needs: "a build with --features pcap, CAP_NET_RAW",
    layer: Layer::Frame,
    takes_nic: false,
    in_process: false,
    probe: build::probe,
    rx_fields: &[
        "ring.interface",
        "ring.frames",
        "ring.all_traffic",
        "details.source",
        "details.local",
        "details.traffic_class",
        "details.hop_limit",
        "answers",
    ],
    tx_fields: &[],
    rx: Some(build::open_rx),
    tx: None,
};
