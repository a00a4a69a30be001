//! Building frames: the headers of one sender, ready but for what differs from frame to frame.

use super::{ETHERNET_BYTES, ETHERNET_IPV4, ETHERNET_IPV6, IPV4_BYTES, IPV6_BYTES, UDP, UDP_BYTES};
use std::net::{IpAddr, SocketAddr};

/// All headers, in the longer case.
const HEADER_BYTES_MAX: usize = ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES;

/// The hop limit that Linux sends with (`net.ipv4.ip_default_ttl`, `net.ipv6.conf.*.hop_limit`).
pub(super) const HOPS: u8 = 64;
/// The "do not fragment" bit, as Linux sets it on unfragmented datagrams (`IP_PMTUDISC_WANT`).
const DO_NOT_FRAGMENT: u8 = 0x40;

/// Ethernet, IP and UDP headers from one host to one address. The source port is the first one plus
/// the flow's number. Frames differ only in it, in the payload and in the check sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    header: [u8; HEADER_BYTES_MAX],
    header_bytes: usize,
    payload_bytes: usize,
    source_port: u16,
    /// One's complement sum of all that the UDP check sum covers but the source port and the
    /// payload.
    constant_sum: u16,
}

impl Template {
    /// The headers of datagrams with `payload_bytes` of payload, whose first flow comes from
    /// `source`.
    ///
    /// Both addresses are of the same IP version, and the datagram fits into an IP packet: the
    /// opener of the sender has checked it (`TxConfig`). A length that does not fit is cut to 16
    /// bits.
    pub fn new(
        source_mac: [u8; 6],
        target_mac: [u8; 6],
        source: SocketAddr,
        target: SocketAddr,
        payload_bytes: usize,
    ) -> Self {
        let mut header = [0; HEADER_BYTES_MAX];
        header[..6].copy_from_slice(&target_mac);
        header[6..12].copy_from_slice(&source_mac);
        let udp_length = ((UDP_BYTES + payload_bytes) as u16).to_be_bytes();
        let ip = &mut header[ETHERNET_BYTES..];
        let (kind, ip_bytes, addresses) = match (source.ip(), target.ip()) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                let length = (IPV4_BYTES + UDP_BYTES + payload_bytes) as u16;
                ip[0] = 0x45;
                ip[2..4].copy_from_slice(&length.to_be_bytes());
                ip[6] = DO_NOT_FRAGMENT;
                ip[8] = HOPS;
                ip[9] = UDP;
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&target.octets());
                let check = !sum(&ip[..IPV4_BYTES]);
                ip[10..12].copy_from_slice(&check.to_be_bytes());
                (ETHERNET_IPV4, IPV4_BYTES, 12..20)
            }
            (source, target) => {
                ip[0] = 0x60;
                ip[4..6].copy_from_slice(&udp_length);
                ip[6] = UDP;
                ip[7] = HOPS;
                ip[8..24].copy_from_slice(&v6_octets(source));
                ip[24..40].copy_from_slice(&v6_octets(target));
                (ETHERNET_IPV6, IPV6_BYTES, 8..40)
            }
        };
        let addresses_sum = sum(&ip[addresses]);
        let udp = &mut ip[ip_bytes..];
        udp[..2].copy_from_slice(&source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&target.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_length);
        header[12..14].copy_from_slice(&kind.to_be_bytes());

        let length = u16::from_be_bytes(udp_length);
        // The pseudo header (RFC 768, RFC 8200 section 8.1), then the UDP header: the length is in
        // both.
        let parts = [addresses_sum, UDP.into(), length, target.port(), length];
        Self {
            header,
            header_bytes: ETHERNET_BYTES + ip_bytes + UDP_BYTES,
            payload_bytes,
            source_port: source.port(),
            constant_sum: fold(parts.iter().map(|part| u64::from(*part)).sum()),
        }
    }

    /// The same with another traffic class and hop limit, where they are given.
    #[must_use]
    pub(crate) fn marked(mut self, traffic_class: Option<u8>, hop_limit: Option<u8>) -> Self {
        let ip = &mut self.header[ETHERNET_BYTES..];
        if ip[0] >> 4 == 4 {
            ip[1] = traffic_class.unwrap_or(ip[1]);
            ip[8] = hop_limit.unwrap_or(ip[8]);
            ip[10..12].fill(0);
            let check = !sum(&ip[..IPV4_BYTES]);
            ip[10..12].copy_from_slice(&check.to_be_bytes());
        } else {
            let class = traffic_class.unwrap_or(0);
            [ip[0], ip[1]] = [0x60 | class >> 4, class << 4];
            ip[7] = hop_limit.unwrap_or(ip[7]);
        }
        self
    }

    /// Bytes of a frame, without the check sequence that the hardware appends.
    pub fn frame_bytes(&self) -> usize {
        self.header_bytes + self.payload_bytes
    }

    /// Bytes in front of the payload.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// The headers of the first flow, without the UDP check sum.
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_bytes]
    }

    /// The source port of a flow.
    pub fn source_port(&self, flow: u16) -> u16 {
        self.source_port.wrapping_add(flow)
    }

    /// Writes a frame of a flow to the first [`Template::frame_bytes`] bytes of `frame`. A payload
    /// that is too short is filled up with zeros; a longer one is cut.
    ///
    /// # Panics
    /// If `frame` is shorter than that.
    #[inline]
    pub fn write(&self, frame: &mut [u8], flow: u16, payload: &[u8]) {
        let (header, room) = frame[..self.frame_bytes()].split_at_mut(self.header_bytes);
        let bytes = payload.len().min(room.len());
        room[..bytes].copy_from_slice(&payload[..bytes]);
        room[bytes..].fill(0);
        header.copy_from_slice(self.header());

        let port = self.source_port(flow);
        let udp = &mut header[self.header_bytes - UDP_BYTES..];
        udp[..2].copy_from_slice(&port.to_be_bytes());
        let check = self.check(port, sum(room));
        udp[6..8].copy_from_slice(&check.to_be_bytes());
    }

    /// The UDP check sum of a frame from this port whose payload sums up to `payload_sum`.
    #[inline]
    fn check(&self, port: u16, payload_sum: u16) -> u16 {
        let total = u64::from(self.constant_sum) + u64::from(port) + u64::from(payload_sum);
        match !fold(total) {
            // Zero on the wire means that there is no check sum (RFC 768).
            0 => 0xffff,
            check => check,
        }
    }

    /// One's complement sum of all that the UDP check sum covers but the source port, for a
    /// payload that sums up to `payload_sum`.
    pub(crate) fn sum_without_port(&self, payload_sum: u16) -> u16 {
        fold(u64::from(self.constant_sum) + u64::from(payload_sum))
    }
}

/// The one's complement sum of the 16-bit words of `bytes` (RFC 1071), the last one filled up with
/// zero. The sum does not depend on the byte order but for its own, so that words of the machine
/// may be summed up.
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));
    u16::from_be(fold(total))
}

/// Adds the carries until none is left.
#[inline]
pub(super) fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// An address of an IPv6 header; IPv4 ones do not get here.
fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const TARGET_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// Checks a frame with another parser, etherparse.
    fn check(
        template: &Template,
        flow: u16,
        source: SocketAddr,
        target: SocketAddr,
        payload: &[u8],
    ) {
        let mut frame = vec![0xaa; template.frame_bytes() + 3];
        template.write(&mut frame, flow, payload);
        assert_eq!(frame[template.frame_bytes()..], [0xaa; 3]);
        frame.truncate(template.frame_bytes());
        assert_eq!(template.header_bytes(), frame.len() - payload.len());
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(etherparse::LinkSlice::Ethernet2(link)) = &sliced.link else {
            panic!("no Ethernet header");
        };
        assert_eq!(
            (link.source(), link.destination()),
            (SOURCE_MAC, TARGET_MAC)
        );
        let Some(TransportSlice::Udp(udp)) = &sliced.transport else {
            panic!("no UDP header");
        };
        assert_eq!(udp.payload(), payload);
        assert_eq!(usize::from(udp.length()), payload.len() + UDP_BYTES);
        let port = source.port().wrapping_add(flow);
        assert_eq!(
            (udp.source_port(), udp.destination_port()),
            (port, target.port())
        );
        let header = udp.to_header();
        let computed = match &sliced.net {
            Some(NetSlice::Ipv4(ip)) => {
                let ip = ip.header().to_header();
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                assert_eq!(usize::from(ip.total_len), frame.len() - ETHERNET_BYTES);
                let addresses: [IpAddr; 2] = [ip.source.into(), ip.destination.into()];
                assert_eq!(addresses, [source.ip(), target.ip()]);
                header.calc_checksum_ipv4(&ip, payload).unwrap()
            }
            Some(NetSlice::Ipv6(ip)) => {
                let ip = ip.header().to_header();
                assert_eq!(
                    usize::from(ip.payload_length),
                    frame.len() - ETHERNET_BYTES - IPV6_BYTES
                );
                let addresses: [IpAddr; 2] = [ip.source.into(), ip.destination.into()];
                assert_eq!(addresses, [source.ip(), target.ip()]);
                header.calc_checksum_ipv6(&ip, payload).unwrap()
            }
            _ => panic!("no IP header"),
        };
        assert_eq!(header.checksum, computed);
        assert_ne!(header.checksum, 0);
    }

    fn address() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let ports = (any::<u16>(), any::<u16>());
        let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>()).prop_map(|(a, b)| (a.into(), b.into()));
        let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|(a, b)| (a.into(), b.into()));
        let pair = prop_oneof![v4, v6];
        (pair, ports).prop_map(|((a, b), (p, q)): ((IpAddr, IpAddr), _)| {
            (SocketAddr::new(a, p), SocketAddr::new(b, q))
        })
    }

    proptest! {
        #[test]
        fn every_frame_is_valid(
            (source, target) in address(),
            flow: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..9000),
            (class, hops) in any::<(Option<u8>, Option<u8>)>(),
        ) {
            let template = Template::new(SOURCE_MAC, TARGET_MAC, source, target, payload.len());
            let template = template.marked(class, hops);
            check(&template, flow, source, target, &payload);
            let mut frame = vec![0; template.frame_bytes()];
            template.write(&mut frame, flow, &payload);
            let details = super::super::details(&frame).unwrap();
            let marks = (details.traffic_class, details.hop_limit);
            prop_assert_eq!(marks, (class.or(Some(0)), hops.or(Some(HOPS))));
        }

        #[test]
        fn short_ones_too(
            (source, target) in address(),
            flow: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let template = Template::new(SOURCE_MAC, TARGET_MAC, source, target, payload.len());
            check(&template, flow, source, target, &payload);
            let (port, payload) = (template.source_port(flow), sum(&payload));
            let check = !fold(u64::from(template.sum_without_port(payload)) + u64::from(port));
            prop_assert_eq!(template.check(port, payload), if check == 0 { 0xffff } else { check });
        }
    }

    #[test]
    fn a_check_sum_of_zero_is_sent_as_its_twin() {
        let (source, target) = (
            "10.0.0.1:1000".parse().unwrap(),
            "10.0.0.2:9".parse().unwrap(),
        );
        let template = Template::new(SOURCE_MAC, TARGET_MAC, source, target, 2);
        let filling = !fold(u64::from(template.sum_without_port(0)) + 1000);
        let payload = filling.to_be_bytes();
        let mut frame = [0; 44];
        template.write(&mut frame, 0, &payload);
        assert_eq!(frame[40..42], [0xff, 0xff]);
        check(&template, 0, source, target, &payload);
    }

    #[test]
    fn what_was_there_before_does_not_show() {
        let (source, target) = ("[::1]:1".parse().unwrap(), "[::2]:2".parse().unwrap());
        let template = Template::new(SOURCE_MAC, TARGET_MAC, source, target, 8);
        let mut frame = [0xff; 70];
        template.write(&mut frame, 0, &[1, 2]);
        assert_eq!(frame[62..], [1, 2, 0, 0, 0, 0, 0, 0]);
    }
}
