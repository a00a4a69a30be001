//! The answers of a build without libpcap.

use super::BACKEND;
use crate::backend::Support;
use crate::{Error, Rx, RxConfig};

pub(super) fn probe() -> Support {
    Support::no(
        "built without the feature `pcap`",
        "apt install libpcap-dev; cargo build --release --features pcap",
    )
}

pub(super) fn open_rx(_config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    Err(BACKEND.unsupported("receiving: it was built without the feature `pcap`"))
}
