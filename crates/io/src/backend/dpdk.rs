//! DPDK: frames through one of its poll-mode drivers.
//!
//! A part of the build (`--features dpdk`), because it needs DPDK's libraries. Without them the row
//! is there, and says how to get them.

#[cfg(not(feature = "dpdk"))]
mod disabled;
#[cfg(feature = "dpdk")]
mod enabled;

#[cfg(not(feature = "dpdk"))]
use disabled::{open_rx, probe};
#[cfg(feature = "dpdk")]
use enabled::{open_rx, probe};

use super::{Backend, Layer};

pub(super) const BACKEND: Backend = Backend {
    name: "dpdk",
    summary: "frames through a poll-mode driver of DPDK",
    needs: "a build with --features dpdk, root, a device that DPDK can drive",
    layer: Layer::Frame,
    takes_nic: true,
    in_process: false,
    probe,
    rx_fields: &[
        "answers",
        "ring.interface",
        "ring.frames",
        "ring.all_traffic",
        "ring.hugepages",
        "ring.arguments",
    ],
    tx_fields: &[],
    rx: Some(open_rx),
    tx: None,
};
