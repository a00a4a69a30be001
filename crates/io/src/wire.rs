//! Frames as they are on the wire: reading the datagram in one, and building one around a payload.

use std::net::{IpAddr, SocketAddr};

mod template;

pub use template::Template;

/// The datagram in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes to.
    pub destination: SocketAddr,
    /// What the application sent.
    pub payload: &'a [u8],
}

/// Two hardware addresses and the type of what follows (IEEE 802.3, "Ethernet II").
pub(crate) const ETHERNET_BYTES: usize = 14;
/// An IPv4 header without options (RFC 791).
pub(crate) const IPV4_BYTES: usize = 20;
/// An IPv6 header (RFC 8200).
pub(crate) const IPV6_BYTES: usize = 40;
/// A UDP header (RFC 768).
pub(crate) const UDP_BYTES: usize = 8;

/// The types of Ethernet for the two versions of IP (`ETH_P_IP` and `ETH_P_IPV6` of
/// `include/uapi/linux/if_ether.h`).
pub(crate) const ETHERNET_IPV4: u16 = 0x0800;
pub(crate) const ETHERNET_IPV6: u16 = 0x86dd;
/// The protocol number of UDP (RFC 768).
pub(crate) const UDP: u8 = 17;
/// What tells that an IPv4 packet is a fragment: "more fragments" and the offset (RFC 791).
pub(crate) const IPV4_FRAGMENT: u16 = 0x3fff;

/// The whole datagram in an untagged Ethernet frame; none if there is something else in it.
///
/// Every length has to agree with the frame's; bytes behind the IP packet are padding. A fragment
/// is not a whole datagram, and behind an IPv6 extension header none is looked for. Check sums are
/// left to whoever needs them: on the way between two programs of one machine there are none.
#[inline]
pub fn datagram(frame: &[u8]) -> Option<Datagram<'_>> {
    let (header, packet) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
    let (source, destination, segment) = match u16::from_be_bytes([header[12], header[13]]) {
        ETHERNET_IPV4 => ipv4(packet)?,
        ETHERNET_IPV6 => ipv6(packet)?,
        _ => return None,
    };
    let udp = segment.first_chunk::<UDP_BYTES>()?;
    let [source_port, destination_port, length] =
        [0, 2, 4].map(|at| u16::from_be_bytes([udp[at], udp[at + 1]]));
    Some(Datagram {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
        payload: segment.get(UDP_BYTES..usize::from(length))?,
    })
}

/// Source, destination, and what a packet with a UDP datagram carries.
type Segment<'a> = (IpAddr, IpAddr, &'a [u8]);

#[inline]
fn ipv4(packet: &[u8]) -> Option<Segment<'_>> {
    let header = packet.first_chunk::<IPV4_BYTES>()?;
    let header_bytes = usize::from(header[0] & 15) * 4;
    let length = u16::from_be_bytes([header[2], header[3]]);
    let fragment = u16::from_be_bytes([header[6], header[7]]) & IPV4_FRAGMENT;
    if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES || header[9] != UDP || fragment != 0 {
        return None;
    }
    let segment = packet.get(header_bytes..usize::from(length))?;
    let address = |at| IpAddr::from(part::<4>(header, at));
    Some((address(12), address(16), segment))
}

#[inline]
fn ipv6(packet: &[u8]) -> Option<Segment<'_>> {
    let (header, rest) = packet.split_first_chunk::<IPV6_BYTES>()?;
    if header[0] >> 4 != 6 || header[6] != UDP {
        return None;
    }
    let length = u16::from_be_bytes([header[4], header[5]]);
    let segment = rest.get(..usize::from(length))?;
    let address = |at| IpAddr::from(part::<16>(header, at));
    Some((address(8), address(24), segment))
}

/// Some bytes of a header; its fields are inside it.
#[inline]
fn part<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| header[at + index])
}

#[cfg(test)]
mod tests;
pub(crate) use template::sum;
