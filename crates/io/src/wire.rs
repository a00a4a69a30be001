//! Frames as they are on the wire: reading the datagram in one, and building one around a payload.

use crate::DatagramDetails;
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
    /// The payload that the application sent.
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
/// That of TCP (RFC 9293).
const TCP: u8 = 6;
/// The bits of an IPv4 fragment: "more fragments" and the offset (RFC 791).
pub(crate) const IPV4_FRAGMENT: u16 = 0x3fff;

/// The whole datagram in an untagged Ethernet frame; none if it holds something different.
///
/// Every length has to agree with the frame's; bytes behind the IP packet are padding. A fragment
/// is not a whole datagram, and behind an IPv6 extension header none is looked for. Check sums are
/// not checked: between two programs of one machine there are none.
///
/// ```
/// use mpps_io::wire::{self, Template};
///
/// let [from, to] = ["10.0.0.9:1234", "10.0.0.1:53"].map(|address| address.parse().unwrap());
/// let template = Template::new([2; 6], [4; 6], from, to, 3);
/// let mut frame = vec![0; template.frame_bytes()];
/// template.write(&mut frame, 0, b"abc");
/// let datagram = wire::datagram(&frame).unwrap();
/// assert_eq!((datagram.source, datagram.payload), (from, &b"abc"[..]));
/// ```
#[inline]
pub fn datagram(frame: &[u8]) -> Option<Datagram<'_>> {
    let (source, destination, segment) = segment(frame, UDP)?;
    let udp = segment.first_chunk::<UDP_BYTES>()?;
    let [source_port, destination_port, length] =
        [0, 2, 4].map(|at| u16::from_be_bytes([udp[at], udp[at + 1]]));
    Some(Datagram {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
        payload: segment.get(UDP_BYTES..usize::from(length))?,
    })
}

/// Details that the headers of a frame with a UDP datagram hold.
pub(crate) fn details(frame: &[u8]) -> Option<DatagramDetails> {
    let datagram = datagram(frame)?;
    let packet = &frame[ETHERNET_BYTES..];
    let (traffic_class, hop_limit) = match datagram.source {
        SocketAddr::V4(_) => (packet[1], packet[8]),
        // It lies across two bytes, after the version.
        SocketAddr::V6(_) => (packet[0] << 4 | packet[1] >> 4, packet[7]),
    };
    Some(DatagramDetails {
        source: Some(datagram.source),
        local: Some(datagram.destination.ip()),
        traffic_class: Some(traffic_class),
        hop_limit: Some(hop_limit),
        ..DatagramDetails::default()
    })
}

/// The source and the target of the TCP segment in a frame; none where [`datagram`] would also find
/// none.
#[doc(hidden)]
pub fn tcp_ends(frame: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (source, destination, segment) = segment(frame, TCP)?;
    let ports = segment.first_chunk::<4>()?;
    let port = |at| u16::from_be_bytes([ports[at], ports[at + 1]]);
    let source = SocketAddr::new(source, port(0));
    Some((source, SocketAddr::new(destination, port(2))))
}

/// Source, destination, and what a packet of a protocol carries.
type Segment<'a> = (IpAddr, IpAddr, &'a [u8]);

#[inline]
fn segment(frame: &[u8], protocol: u8) -> Option<Segment<'_>> {
    let (header, packet) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
    match u16::from_be_bytes([header[12], header[13]]) {
        ETHERNET_IPV4 => ipv4(packet, protocol),
        ETHERNET_IPV6 => ipv6(packet, protocol),
        _ => None,
    }
}

#[inline]
fn ipv4(packet: &[u8], protocol: u8) -> Option<Segment<'_>> {
    let header = packet.first_chunk::<IPV4_BYTES>()?;
    let header_bytes = usize::from(header[0] & 15) * 4;
    let length = u16::from_be_bytes([header[2], header[3]]);
    let fragment = u16::from_be_bytes([header[6], header[7]]) & IPV4_FRAGMENT;
    if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES || header[9] != protocol || fragment != 0 {
        return None;
    }
    let segment = packet.get(header_bytes..usize::from(length))?;
    let address = |at| IpAddr::from(part::<4>(header, at));
    Some((address(12), address(16), segment))
}

#[inline]
fn ipv6(packet: &[u8], protocol: u8) -> Option<Segment<'_>> {
    let (header, rest) = packet.split_first_chunk::<IPV6_BYTES>()?;
    if header[0] >> 4 != 6 || header[6] != protocol {
        return None;
    }
    let length = u16::from_be_bytes([header[4], header[5]]);
    let segment = rest.get(..usize::from(length))?;
    let address = |at| IpAddr::from(part::<16>(header, at));
    Some((address(8), address(24), segment))
}

/// Turns a frame with a UDP datagram into its answer: addresses and ports change places, and `write`
/// makes the payload, as of [`crate::Request::reply_in_place`]. `bytes` of the buffer are the frame.
/// Answers how many bytes the new one has, lengths and check sums being right; none if there is no
/// datagram in it, or no answer. No answer comes from, or
/// goes to, the address of a group or of everybody. A 802.1Q tag is not looked behind, and IPv4 options stay.
pub(crate) fn answer(
    buffer: &mut [u8],
    bytes: usize,
    write: impl FnOnce(&mut [u8], usize) -> Option<usize>,
) -> Option<usize> {
    let frame = buffer.get(..bytes)?;
    let came = datagram(frame)?;
    let is_group = |address: SocketAddr| match address.ip() {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
    };
    // The lowest bit of the first byte says that a hardware address is a group's.
    let has_group = frame[0] & 1 != 0 || frame[6] & 1 != 0;
    if has_group || is_group(came.destination) || is_group(came.source) {
        return None;
    }
    let (payload_bytes, is_v4) = (came.payload.len(), came.source.is_ipv4());
    let ip_bytes = match is_v4 {
        true => usize::from(frame[ETHERNET_BYTES] & 15) * 4,
        false => IPV6_BYTES,
    };
    let (headers, room) = buffer.split_at_mut(ETHERNET_BYTES + ip_bytes + UDP_BYTES);
    let payload_bytes = write(room, payload_bytes)?;
    let payload = room.get(..payload_bytes)?;
    let udp_bytes = u16::try_from(UDP_BYTES + payload_bytes).ok()?;
    let (ethernet, rest) = headers.split_at_mut(ETHERNET_BYTES);
    swap::<6>(ethernet, 0);
    let (ip, udp) = rest.split_at_mut(ip_bytes);
    let addresses = if is_v4 {
        let length = u16::try_from(ip_bytes).ok()?.checked_add(udp_bytes)?;
        ip[2..4].copy_from_slice(&length.to_be_bytes());
        ip[8] = template::HOPS;
        swap::<4>(ip, 12);
        ip[10..12].fill(0);
        let check = !sum(ip);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        &ip[12..20]
    } else {
        ip[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        ip[7] = template::HOPS;
        swap::<16>(ip, 8);
        &ip[8..40]
    };
    swap::<2>(udp, 0);
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    set_check_sum(addresses, udp, payload);
    Some(headers.len() + payload_bytes)
}

/// Makes the check sum of a frame's datagram anew; false if there is no datagram in it.
pub(crate) fn renew_check_sum(frame: &mut [u8]) -> bool {
    let Some(came) = datagram(frame) else {
        return false;
    };
    let payload_bytes = came.payload.len();
    let (ip_bytes, addresses) = match came.source.is_ipv4() {
        true => (usize::from(frame[ETHERNET_BYTES] & 15) * 4, 12..20),
        false => (IPV6_BYTES, 8..40),
    };
    let (headers, rest) = frame.split_at_mut(ETHERNET_BYTES + ip_bytes);
    let (udp, rest) = rest.split_at_mut(UDP_BYTES);
    let addresses = &headers[ETHERNET_BYTES..][addresses];
    set_check_sum(addresses, udp, &rest[..payload_bytes]);
    true
}

/// Sets the check sum in a UDP header (RFC 768, RFC 8200).
fn set_check_sum(addresses: &[u8], udp: &mut [u8], payload: &[u8]) {
    udp[6..8].fill(0);
    let bytes = (udp.len() + payload.len()) as u16;
    let parts = [sum(addresses), UDP.into(), bytes, sum(udp), sum(payload)];
    let check = !template::fold(parts.iter().map(|part| u64::from(*part)).sum());
    // Zero means that there is none.
    let check = if check == 0 { u16::MAX } else { check };
    udp[6..8].copy_from_slice(&check.to_be_bytes());
}

/// Two fields of `N` bytes, one behind the other, change places.
fn swap<const N: usize>(header: &mut [u8], at: usize) {
    let (first, second) = header[at..at + 2 * N].split_at_mut(N);
    first.swap_with_slice(second);
}

/// Some bytes of a header; its fields are inside it.
#[inline]
fn part<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| header[at + index])
}

#[cfg(test)]
mod tests;
pub(crate) use template::sum;
