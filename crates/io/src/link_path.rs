//! The way to a target for senders that write whole frames: interface, hardware addresses, source.

use crate::carrier::await_carrier;
use crate::wire::Template;
use crate::{Error, RingConfig};
use mpps_os::netlink::link::{self, NetlinkLink};
use mpps_os::netlink::neighbour;
use mpps_os::netlink::route::{self, Route, RouteKind};
use mpps_os::socket::UdpSocket;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

/// Headers of an IPv4 or IPv6 datagram without options, IP and UDP together.
const HEADER_BYTES_V4: usize = 28;
const HEADER_BYTES_V6: usize = 48;
/// Hardware address of all hosts of a link (IEEE 802.3).
const BROADCAST_MAC: [u8; 6] = [0xff; 6];
/// The loopback interface's, on both ends.
const LOOPBACK_MAC: [u8; 6] = [0; 6];

/// How long a neighbour may take to answer: more than the three questions of the kernel, a second
/// each (`mcast_solicit` and `retrans_time_ms`, arp(7)), because another card may still be coming up.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How often the neighbour table is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// All that a frame's headers are made of, and where it leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPath {
    /// The interface's name.
    pub interface: String,
    /// Its number.
    pub interface_index: u32,
    /// Its hardware address.
    pub(crate) source_mac: [u8; 6],
    /// The next hop's.
    pub target_mac: [u8; 6],
    /// Source address and port of the first flow.
    pub source: SocketAddr,
    /// Where to.
    pub target: SocketAddr,
    /// Largest IP packet of the interface in bytes.
    pub mtu: usize,
}

impl LinkPath {
    /// The way to `target`: by the kernel's routing and its neighbour table, as far as `ring` does
    /// not say otherwise. A neighbour that is not in the table is asked for. The source address is `source`'s, or what the kernel would choose; port 0
    /// is replaced by a free one.
    ///
    /// # Errors
    /// No route; no such interface, or one without a carrier or Ethernet addresses; a next hop that
    /// does not answer.
    pub fn find(
        target: SocketAddr,
        source: Option<SocketAddr>,
        ring: &RingConfig,
    ) -> Result<Self, Error> {
        Self::within(target, source, ring, ANSWER_WAIT)
    }

    /// The same as far as it is known now: no neighbour is asked for.
    pub(crate) fn known(
        target: SocketAddr,
        source: SocketAddr,
        ring: &RingConfig,
    ) -> Result<Self, Error> {
        Self::within(target, Some(source), ring, Duration::ZERO)
    }

    fn within(
        target: SocketAddr,
        source: Option<SocketAddr>,
        ring: &RingConfig,
        patience: Duration,
    ) -> Result<Self, Error> {
        let wanted = match &ring.interface {
            Some(name) => Some(link::index(name)?),
            None => None,
        };
        let source_ip = source.map(|source| source.ip());
        let source_ip = source_ip.filter(|address| !address.is_unspecified());
        let route = match (wanted, source_ip, ring.target_mac) {
            // All is given: frames may go out where the kernel knows no way.
            (Some(interface_index), Some(address), Some(_)) => Route {
                interface_index,
                gateway: None,
                source: Some(address),
                kind: RouteKind::Unicast,
            },
            _ => route::find(target.ip(), source_ip, wanted)?,
        };
        let link = interface(route.interface_index)?;
        let source_mac = ethernet_address(&link)?;
        if !patience.is_zero() {
            await_carrier(link.index)?;
        }
        let target_mac = match ring.target_mac {
            Some(address) => address,
            None => next_hop(target.ip(), &route, &link, patience)?,
        };
        let source_ip = source_ip.or(route.source).ok_or_else(|| Error::Invalid {
            field: "source",
            value: "none".to_owned(),
            why: format!("the route to {target} names no source address; give one"),
        })?;
        let source_port = match source.map_or(0, |source| source.port()) {
            0 => free_port(target)?,
            port => port,
        };
        Ok(Self {
            interface: link.name,
            interface_index: link.index,
            source_mac,
            target_mac,
            source: SocketAddr::new(source_ip, source_port),
            target,
            mtu: link.mtu as usize,
        })
    }

    /// A copy whose first source port has room for `flows` flows, a port each, behind it. A port
    /// that a user chose has it already (`TxConfig` is checked).
    #[must_use]
    pub fn with_flows(mut self, flows: usize) -> Self {
        let last_start = 65_536_usize.saturating_sub(flows).max(1);
        let port = usize::from(self.source.port()).min(last_start);
        // A port is below 65 536, so the cast keeps its value.
        self.source.set_port(port as u16);
        self
    }

    /// The headers of datagrams with `payload_bytes` of payload on this path.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a datagram that is larger than the MTU: nothing would fragment it.
    pub fn template(&self, payload_bytes: usize) -> Result<Template, Error> {
        let header_bytes = match self.target {
            SocketAddr::V4(_) => HEADER_BYTES_V4,
            SocketAddr::V6(_) => HEADER_BYTES_V6,
        };
        if header_bytes + payload_bytes > self.mtu {
            let most = self.mtu.saturating_sub(header_bytes);
            let why = format!(
                "the MTU of {} is {}, so a datagram carries at most {most} bytes",
                self.interface, self.mtu
            );
            return Err(Error::invalid("payload_bytes", payload_bytes, why));
        }
        Ok(Template::new(
            self.source_mac,
            self.target_mac,
            self.source,
            self.target,
            payload_bytes,
        ))
    }
}

/// The interface with this number.
fn interface(index: u32) -> Result<NetlinkLink, Error> {
    link::find(index)?.ok_or_else(|| Error::Invalid {
        field: "ring.interface",
        value: index.to_string(),
        why: "the interface that the route names is gone".to_owned(),
    })
}

fn ethernet_address(link: &NetlinkLink) -> Result<[u8; 6], Error> {
    let address = link.address.as_slice();
    address.try_into().map_err(|_| Error::Invalid {
        field: "ring.interface",
        value: link.name.clone(),
        why: "it has no Ethernet address; use a socket backend (sendmmsg)".to_owned(),
    })
}

/// The hardware address that a frame to `target` has to bear.
fn next_hop(
    target: IpAddr,
    route: &Route,
    link: &NetlinkLink,
    patience: Duration,
) -> Result<[u8; 6], Error> {
    if route.kind == RouteKind::Local {
        return Ok(LOOPBACK_MAC);
    }
    if route.kind == RouteKind::Broadcast {
        return Ok(BROADCAST_MAC);
    }
    if let Some(address) = group_address(target) {
        return Ok(address);
    }
    let hop = route.gateway.unwrap_or(target);
    let unknown = |why: &str| Error::Invalid {
        field: "ring.target_mac",
        value: "none".to_owned(),
        why: format!(
            "the hardware address of {hop} on {} is unknown: {why}",
            link.name
        ),
    };
    let known = || -> Result<_, Error> {
        let known = neighbour::find(link.index, hop)?;
        Ok(known.and_then(|address| address.as_slice().try_into().ok()))
    };
    let deadline = Instant::now() + patience;
    loop {
        if let Some(address) = known()? {
            return Ok(address);
        }
        if Instant::now() >= deadline {
            return Err(unknown(
                "it does not answer; is its host up, and is the address right? `ring.target_mac` \
                 does without an answer",
            ));
        }
        // Asking anew costs nothing while the kernel is asking.
        match neighbour::ask(link.index, hop) {
            Err(error) if error.source.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(unknown(
                    "ping it once, give `ring.target_mac`, or run with CAP_NET_ADMIN to have it \
                     asked",
                ));
            }
            asked => asked?,
        }
        thread::sleep(LOOK);
    }
}

/// The hardware address of a multicast group (RFC 1112 section 6.4, RFC 2464 section 7).
fn group_address(target: IpAddr) -> Option<[u8; 6]> {
    match target {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, b, c, d] = group.octets();
            Some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) if group.is_multicast() => {
            let [.., a, b, c, d] = group.octets();
            Some([0x33, 0x33, a, b, c, d])
        }
        _ => None,
    }
}

/// A port that no socket of this IP version uses now. It is not held: nothing is received at it,
/// and two senders with one source port do no harm.
fn free_port(target: SocketAddr) -> Result<u16, Error> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let address = SocketAddr::new(any, 0);
    let socket = UdpSocket::new(&address)?;
    socket.bind(&address)?;
    Ok(socket.local_address()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(source: &str, mtu: usize) -> LinkPath {
        LinkPath {
            interface: "eth7".to_owned(),
            interface_index: 7,
            source_mac: [2, 0, 0, 0, 0, 1],
            target_mac: [2, 0, 0, 0, 0, 2],
            source: source.parse().unwrap(),
            target: "10.0.0.2:9".parse().unwrap(),
            mtu,
        }
    }

    #[test]
    fn groups_have_addresses_of_their_own() {
        let group = |text: &str| group_address(text.parse().unwrap());
        assert_eq!(group("239.129.2.3"), Some([1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(group("ff02::1:2"), Some([0x33, 0x33, 0, 1, 0, 2]));
        assert_eq!(group("10.0.0.1"), None);
    }

    #[test]
    fn a_datagram_larger_than_the_mtu_is_refused() {
        let path = path("10.0.0.1:5000", 1500);
        assert_eq!(path.template(1472).unwrap().frame_bytes(), 1514);
        let error = path.template(1473).unwrap_err().to_string();
        assert!(
            error.contains("payload_bytes 1473") && error.contains("at most 1472"),
            "{error}"
        );
    }

    #[test]
    fn all_flows_have_a_port() {
        let port = |first: &str, flows| path(first, 1500).with_flows(flows).source.port();
        assert_eq!(port("10.0.0.1:60000", 1000), 60_000);
        assert_eq!(port("10.0.0.1:60000", 5536), 60_000);
        assert_eq!(port("10.0.0.1:60000", 5537), 59_999);
        assert_eq!(port("10.0.0.1:60000", 65_535), 1);
    }

    #[test]
    fn the_way_to_this_host_is_the_loopback_interface() {
        for (target, own) in [("127.0.0.1:9", "127.0.0.1"), ("[::1]:9", "::1")] {
            let target = target.parse().unwrap();
            // A host without IPv6, or a build box without a network, has nothing to be tested.
            let Ok(path) = LinkPath::find(target, None, &RingConfig::default()) else {
                continue;
            };
            assert_eq!(path.target_mac, LOOPBACK_MAC);
            assert_eq!(path.source.ip(), own.parse::<IpAddr>().unwrap());
            assert_ne!(path.source.port(), 0);
        }
    }
}
