//! The answers of a build without DPDK.

use super::BACKEND;
use crate::backend::Support;
use crate::{Error, Rx, RxConfig};

pub(super) fn probe() -> Support {
    Support::no(
        "built without the feature `dpdk`",
        "apt install libdpdk-dev; cargo build --release --features dpdk",
    )
}

pub(super) fn open_rx(_config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    Err(BACKEND.unsupported("receiving: it was built without the feature `dpdk`"))
}
