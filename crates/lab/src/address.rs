//! The addresses of the two hosts: those of the 2015 article, and a twin in IPv6 for each.
//!
//! The last number of an address and of its twin are the same, 20 being written `14` in IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// The last numbers of the receiver's addresses.
pub const RECEIVER: RangeInclusive<u8> = 1..=20;

/// The last numbers of the sender's addresses, where it has one of each family.
pub const SENDER: RangeInclusive<u8> = 30..=30;

/// The last numbers of the addresses of a sender that has `addresses` of them. None if they do not
/// fit below the broadcast address, 255.
pub(crate) fn sender(addresses: u8) -> Option<RangeInclusive<u8>> {
    let last = SENDER.start().checked_add(addresses.checked_sub(1)?)?;
    (last < u8::MAX).then_some(*SENDER.start()..=last)
}

/// The length of the network prefix that both hosts share, in bits.
pub(crate) fn prefix_length(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 24,
        IpAddr::V6(_) => 64,
    }
}

/// The IPv4 address with this last number: `192.168.254.N`.
pub fn v4(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 254, last)
}

/// Its twin: `fd00:254::N`, of the range for private use (RFC 4193).
pub fn v6(last: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x254, 0, 0, 0, 0, 0, last.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_has_as_many_addresses_as_were_asked_for() {
        assert_eq!(sender(1), Some(SENDER));
        assert_eq!(sender(225), Some(30..=254));
        assert_eq!((sender(0), sender(226), sender(255)), (None, None, None));
    }

    #[test]
    fn twins_end_alike() {
        for last in RECEIVER.chain(SENDER) {
            assert_eq!(v4(last).octets()[3], v6(last).octets()[15]);
        }
        assert_eq!(v4(20).to_string(), "192.168.254.20");
        assert_eq!(v6(20).to_string(), "fd00:254::14");
    }
}
