//! Routes: which way the kernel would send.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};

use netlink_packet_route::rule::{RuleAttribute, RuleMessage};

use super::NetlinkSocket;
use super::address::family;
use crate::CallResult;

/// The way to one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The interface that packets leave by.
    pub interface_index: u32,
    /// The router that they go to; none where the address is on the interface's own link.
    pub gateway: Option<IpAddr>,
    /// The source address that the kernel would choose.
    pub source: Option<IpAddr>,
    /// Where packets end up.
    pub kind: RouteKind,
}

/// The kind of an address, as seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteKind {
    /// Another host.
    Unicast,
    /// This host itself: packets loop back.
    Local,
    /// All hosts of a link.
    Broadcast,
    /// A group of hosts.
    Multicast,
}

/// The way to `target`, as the kernel's routing decides it now (`RTM_GETROUTE`, `rtnetlink(7)`);
/// from `source`, and out of the interface with that number, where they are given.
///
/// # Errors
///
/// `ENETUNREACH` or `EHOSTUNREACH` where there is none; `EINVAL` for a source address that is not
/// this host's.
pub fn find(
    target: IpAddr,
    source: Option<IpAddr>,
    interface_index: Option<u32>,
) -> CallResult<Route> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(target);
    message.header.destination_prefix_length = bits(target);
    message
        .attributes
        .push(RouteAttribute::Destination(target.into()));
    if let Some(source) = source {
        message.header.source_prefix_length = bits(source);
        message
            .attributes
            .push(RouteAttribute::Source(source.into()));
    }
    message
        .attributes
        .extend(interface_index.map(RouteAttribute::Oif));
    let object = target.to_string();
    let socket = NetlinkSocket::open("rtnetlink RTM_GETROUTE", &object)?;
    let RouteNetlinkMessage::NewRoute(reply) =
        socket.request(RouteNetlinkMessage::GetRoute(message))?
    else {
        return Err(socket.error(std::io::ErrorKind::InvalidData.into()));
    };
    route_of(&reply)
        // The kernel does not repeat a source address that it was given.
        .map(|route| Route {
            source: route.source.or(source),
            ..route
        })
        // A route that leads nowhere ("blackhole", "prohibit") has no interface.
        .ok_or_else(|| socket.error(std::io::ErrorKind::NetworkUnreachable.into()))
}

/// Whether other rules than the kernel's own three choose the routing table (`RTM_GETRULE`,
/// `ip rule`).
///
/// # Errors
///
/// Netlink is refused, or its answer cannot be read.
pub fn has_policies() -> CallResult<bool> {
    let socket = NetlinkSocket::open("rtnetlink RTM_GETRULE", "all rules")?;
    let replies = socket.dump(RouteNetlinkMessage::GetRule(RuleMessage::default()))?;
    Ok(replies.iter().any(|reply| match reply {
        RouteNetlinkMessage::NewRule(rule) => {
            rule.attributes.iter().any(|attribute| match attribute {
                RuleAttribute::Priority(priority) => !OWN_PRIORITIES.contains(priority),
                _ => false,
            })
        }
        _ => false,
    }))
}

/// The rules for the tables `local`, `main` and `default`; the first has no number.
const OWN_PRIORITIES: [u32; 3] = [0, 32_766, 32_767];

fn route_of(reply: &RouteMessage) -> Option<Route> {
    let kind = match reply.header.kind {
        RouteType::Local => RouteKind::Local,
        RouteType::Broadcast => RouteKind::Broadcast,
        RouteType::Multicast => RouteKind::Multicast,
        RouteType::Unicast | RouteType::Anycast => RouteKind::Unicast,
        _ => return None,
    };
    let mut route = Route {
        interface_index: 0,
        gateway: None,
        source: None,
        kind,
    };
    for attribute in &reply.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.interface_index = *index,
            RouteAttribute::Gateway(address) => route.gateway = address_of(address),
            RouteAttribute::PrefSource(address) => route.source = address_of(address),
            // An IPv4 route may lead through an IPv6 router (RFC 5549).
            RouteAttribute::Via(via) => route.gateway = via_of(via),
            _ => {}
        }
    }
    (route.interface_index != 0).then_some(route)
}

fn address_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn via_of(via: &RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(address) => Some((*address).into()),
        RouteVia::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// How many bits an address has.
fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}
