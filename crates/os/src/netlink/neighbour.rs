//! Neighbours: which hardware address answers for an IP address.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};

use super::Socket;
use super::address::family;
use crate::Result;

/// Tells the interface for ever where an address lives, so that it never has to ask
/// (`NUD_PERMANENT`).
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`; `EINVAL` for a hardware address of another length than the
/// interface's; `ENODEV`.
pub fn add_permanent(index: u32, address: IpAddr, hardware_address: &[u8]) -> Result<()> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    let destination = match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes = vec![
        NeighbourAttribute::Destination(destination),
        NeighbourAttribute::LinkLayerAddress(hardware_address.to_vec()),
    ];
    Socket::open("rtnetlink RTM_NEWNEIGH", &address.to_string())?.change(
        RouteNetlinkMessage::NewNeighbour(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    )
}
