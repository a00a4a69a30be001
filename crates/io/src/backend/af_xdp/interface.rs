//! The interface whose queues are read.

use crate::{Error, Queue, RingConfig};
use mpps_os::ethtool;
use mpps_os::interrupts::{self, Interrupt};
use mpps_os::netlink::{address, link};
use std::net::IpAddr;
use std::path::Path;

/// Bytes in front of an IP packet: the Ethernet header and two VLAN tags.
const LINK_HEADER_BYTES: u32 = 14 + 2 * 4;

/// An interface, as far as its sockets must know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct XdpInterface {
    pub(super) name: String,
    pub(super) index: u32,
    /// The largest IP packet.
    pub(super) mtu: u32,
    /// Receive queues in use.
    pub(super) rx_queues: u32,
    /// Transmit queues in use.
    pub(super) tx_queues: u32,
}

/// The CPUs that take an interrupt. An interrupt that was sent elsewhere goes there when it next
/// comes. Until then the kernel shows where it went before.
fn taking(interrupt: &Interrupt) -> Vec<usize> {
    let allowed = &interrupt.allowed;
    let effective = interrupt.effective.iter().copied();
    let effective: Vec<usize> = effective.filter(|cpu| allowed.contains(cpu)).collect();
    match effective.is_empty() {
        true => allowed.clone(),
        false => effective,
    }
}

impl XdpInterface {
    /// The interface that was named, otherwise the owner of the address.
    pub(super) fn find(address: IpAddr, ring: &RingConfig) -> Result<Self, Error> {
        if let Some(name) = &ring.interface {
            return Self::of(link::index(name)?);
        }
        let invalid = |why: &str| Error::invalid("ring.interface", "not given", why);
        if address.is_unspecified() || address.is_multicast() {
            let why = format!("{address} is no interface's own: name one by `ring.interface`");
            return Err(invalid(&why));
        }
        let index = address::interface_of(address)?.ok_or_else(|| {
            let why =
                format!("no interface has the address {address}: name one by `ring.interface`");
            invalid(&why)
        })?;
        Self::of(index)
    }

    /// The interface with this number.
    pub(super) fn of(index: u32) -> Result<Self, Error> {
        let link = link::of(index)?;
        // The link shows how many queues it was made with. Its driver shows how many of them it
        // uses, if it has that notion.
        let channels = ethtool::channels(&link.name).unwrap_or_default();
        let used = |some: u32, made: u32| match some + channels.combined {
            0 => made,
            used => used,
        };
        Ok(Self {
            rx_queues: used(channels.rx, link.rx_queues),
            tx_queues: used(channels.tx, link.tx_queues),
            index,
            mtu: link.mtu,
            name: link.name,
        })
    }

    /// Each receive queue, and what serves it now: where a card's interrupts go is for others to change.
    pub(super) fn queues(&self) -> Vec<Queue> {
        let root = Path::new("/");
        let driver = ethtool::driver(&self.name).ok();
        let device = driver.and_then(|driver| interrupts::device(root, &driver.bus));
        let interrupts = device.as_ref().map_or_else(Vec::new, |device| {
            let reported = interrupts::reported(&self.name);
            interrupts::of(
                root,
                device,
                &interrupts::lines(root),
                &self.name,
                &reported,
            )
        });
        let node = device.and_then(|device| interrupts::node(root, &device));
        let queue = |number| {
            let own = interrupts
                .iter()
                .filter(|one| one.queue == usize::try_from(number).ok());
            // With two interfaces of one device, the names may not show whose interrupt it is.
            let cpus = match own.collect::<Vec<_>>()[..] {
                [one] => taking(one),
                _ => Vec::new(),
            };
            let of = self.rx_queues;
            Queue {
                number,
                of,
                cpus,
                node,
            }
        };
        (0..self.rx_queues).map(queue).collect()
    }

    /// One for tests, with four queues.
    #[cfg(test)]
    pub(super) fn named(name: &str, mtu: u32) -> Self {
        Self {
            name: name.to_owned(),
            index: 2,
            mtu,
            rx_queues: 4,
            tx_queues: 4,
        }
    }

    /// The longest frame, without the check sequence.
    pub(super) fn frame_bytes_max(&self) -> u32 {
        self.mtu.saturating_add(LINK_HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_that_was_sent_elsewhere_goes_there() {
        let one = |allowed: &[usize], effective: &[usize]| Interrupt {
            allowed: allowed.to_vec(),
            effective: effective.to_vec(),
            ..Interrupt::default()
        };
        assert_eq!(taking(&one(&[0, 1, 2], &[1])), [1]);
        assert_eq!(taking(&one(&[2], &[1])), [2]);
        assert_eq!(taking(&one(&[0, 2], &[])), [0, 2]);
    }
}
