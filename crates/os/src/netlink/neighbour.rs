//! Neighbours: which hardware address answers for an IP address.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};

use super::NetlinkSocket;
use super::address::family;
use crate::CallResult;

/// Sets the hardware address of `address` for good, so that the interface never has to ask
/// (`NUD_PERMANENT`).
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`; `EINVAL` for a hardware address of another length than the
/// interface's; `ENODEV`.
pub fn add_permanent(index: u32, address: IpAddr, hardware_address: &[u8]) -> CallResult<()> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(destination(address)),
        NeighbourAttribute::LinkLayerAddress(hardware_address.to_vec()),
    ];
    NetlinkSocket::open("rtnetlink RTM_NEWNEIGH", &address.to_string())?.change(
        RouteNetlinkMessage::NewNeighbour(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    )
}

/// Lets the kernel ask the link for the hardware address of `address`, as if a packet waited for
/// it. It asks by ARP or neighbour discovery for about three seconds; [`find`] returns the outcome.
///
/// `RTM_NEWNEIGH` with `NTF_USE` (`neigh_add` in net/core/neighbour.c).
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`; `ENODEV`.
pub fn ask(index: u32, address: IpAddr) -> CallResult<()> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.flags = NeighbourFlags::Use;
    message.attributes = vec![NeighbourAttribute::Destination(destination(address))];
    NetlinkSocket::open("rtnetlink RTM_NEWNEIGH", &address.to_string())?
        .change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
}

/// The hardware address that answers for `address` on the interface with this number; none where
/// the kernel does not know it, or not any more.
///
/// `RTM_GETNEIGH` for a single neighbour, Linux 5.0.
///
/// # Errors
///
/// `ENODEV` where there is no such interface; `EINVAL` before Linux 5.0.
pub fn find(index: u32, address: IpAddr) -> CallResult<Option<Vec<u8>>> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.attributes = vec![NeighbourAttribute::Destination(destination(address))];
    let object = address.to_string();
    let socket = NetlinkSocket::open("rtnetlink RTM_GETNEIGH", &object)?;
    let reply = match socket.request(RouteNetlinkMessage::GetNeighbour(message)) {
        Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(None),
        reply => reply?,
    };
    let RouteNetlinkMessage::NewNeighbour(neighbour) = reply else {
        return Err(socket.error(std::io::ErrorKind::InvalidData.into()));
    };
    if matches!(
        neighbour.header.state,
        NeighbourState::Incomplete | NeighbourState::Failed | NeighbourState::None
    ) {
        return Ok(None);
    }
    let hardware_address = |attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => Some(bytes),
        _ => None,
    };
    Ok(neighbour.attributes.into_iter().find_map(hardware_address))
}

/// The neighbours that were asked for and have not answered, each with the number of its interface, and
/// true if the kernel still asks. The kernel forgets them some time after the last packet for them.
///
/// `RTM_GETNEIGH` for all, `NUD_INCOMPLETE` and `NUD_FAILED` (include/uapi/linux/neighbour.h).
///
/// # Errors
///
/// A table that changes while it is read.
pub fn unanswered() -> CallResult<Vec<((u32, IpAddr), bool)>> {
    let socket = NetlinkSocket::open("rtnetlink RTM_GETNEIGH", "all neighbours")?;
    let replies = socket.dump(RouteNetlinkMessage::GetNeighbour(
        NeighbourMessage::default(),
    ))?;
    let silent = replies.into_iter().filter_map(|reply| {
        let RouteNetlinkMessage::NewNeighbour(neighbour) = reply else {
            return None;
        };
        let (state, index) = (neighbour.header.state, neighbour.header.ifindex);
        let is_silent = matches!(state, NeighbourState::Incomplete | NeighbourState::Failed);
        let addresses = neighbour.attributes.into_iter();
        let mut addresses = addresses.filter_map(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
                Some(IpAddr::V4(address))
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
                Some(IpAddr::V6(address))
            }
            _ => None,
        });
        let is_asked = state == NeighbourState::Incomplete;
        let address = addresses.next().filter(|_| is_silent)?;
        Some(((index, address), is_asked))
    });
    Ok(silent.collect())
}

fn destination(address: IpAddr) -> NeighbourAddress {
    match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    }
}
