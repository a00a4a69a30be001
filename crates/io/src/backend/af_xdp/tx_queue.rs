//! The other interface that a receiver's frames may leave by.

use super::interface::XdpInterface;
use crate::{Error, RingConfig};
use mpps_os::netlink::link;
use mpps_os::xdp::InterfaceQueue;

/// A transmit queue of another interface.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) interface: XdpInterface,
    queue: u32,
}

impl Out {
    /// The queue out for packets that come by `queue`, if there is one.
    pub(super) fn find(ring: &RingConfig, queue: u32) -> Result<Option<Self>, Error> {
        let Some(to) = &ring.forward_to else {
            return Ok(None);
        };
        let interface = XdpInterface::of(link::index(&to.interface)?)?;
        let first = ring.queue.unwrap_or(0);
        let queue = to.queue.saturating_add(queue.saturating_sub(first));
        if queue >= interface.tx_queues {
            let why = format!("it has {} transmit queues", interface.tx_queues);
            return Err(Error::invalid(
                "ring.forward_to",
                format!("queue {queue} of {}", to.interface),
                why,
            ));
        }
        Ok(Some(Self { interface, queue }))
    }

    pub(super) fn place(&self) -> InterfaceQueue<'_> {
        InterfaceQueue {
            interface: &self.interface.name,
            interface_index: self.interface.index,
            queue: self.queue,
        }
    }
}
