//! What a build without libpcap says.

use super::BACKEND;
use crate::backend::Support;
use crate::{Error, Rx, RxConfig};

pub(super) fn probe() -> Support {
    Support::No {
        why: "built without the feature `pcap`".to_owned(),
        remedy: "apt install libpcap-dev; cargo build --release --features pcap".to_owned(),
    }
}

pub(super) fn open_rx(_config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    Err(BACKEND.unsupported("receiving: it was built without the feature `pcap`"))
}
