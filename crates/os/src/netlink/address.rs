//! IP addresses of interfaces.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::NetlinkSocket;
use crate::CallResult;

/// An address of an interface, with the length of its network prefix in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address itself.
    pub address: IpAddr,
    /// How many leading bits name the network.
    pub prefix_length: u8,
}

/// Gives an interface an address, usable at once: duplicate address detection, which keeps an
/// IPv6 address back for a second, is left out (`IFA_F_NODAD`).
///
/// # Errors
///
/// `EEXIST` where it has that address; `EPERM` without `CAP_NET_ADMIN`; `EACCES` or `EOPNOTSUPP`
/// for IPv6 where the host has it switched off.
pub fn add(index: u32, address: IpAddr, prefix_length: u8) -> CallResult<()> {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix_length;
    message.header.index = index;
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    // For IPv4 the kernel wants the local address; on a link with two ends the other attribute
    // would be the peer's. IPv6 takes either.
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
    ];
    let object = format!("{address}/{prefix_length}");
    NetlinkSocket::open("rtnetlink RTM_NEWADDR", &object)?.change(
        RouteNetlinkMessage::NewAddress(message),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

/// The addresses of the interface with this number.
///
/// # Errors
///
/// Netlink is refused, or its answer cannot be read.
pub fn list(index: u32) -> CallResult<Vec<InterfaceAddress>> {
    let all = list_all()?.into_iter();
    Ok(all
        .filter(|(owner, _)| *owner == index)
        .map(|(_, address)| address)
        .collect())
}

/// The number of the interface that owns `address`; none where no interface of this namespace
/// does. An address of the loopback network that was never set (127.1.2.3) is the loopback
/// interface's, because its network is.
///
/// # Errors
///
/// Netlink is refused, or its answer cannot be read.
pub fn interface_of(address: IpAddr) -> CallResult<Option<u32>> {
    let all = list_all()?;
    let exact = all.iter().find(|(_, own)| own.address == address);
    let looped = |own: IpAddr| {
        own.is_loopback() && address.is_loopback() && own.is_ipv4() == address.is_ipv4()
    };
    let owner = exact.or_else(|| all.iter().find(|(_, own)| looped(own.address)));
    Ok(owner.map(|(index, _)| *index))
}

/// All addresses of the namespace, each with its interface's number.
fn list_all() -> CallResult<Vec<(u32, InterfaceAddress)>> {
    let socket = NetlinkSocket::open("rtnetlink RTM_GETADDR", "all addresses")?;
    let replies = socket.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    Ok(replies
        .into_iter()
        .filter_map(|reply| match reply {
            RouteNetlinkMessage::NewAddress(message) => {
                Some((message.header.index, address_of(&message)?))
            }
            _ => None,
        })
        .collect())
}

fn address_of(message: &AddressMessage) -> Option<InterfaceAddress> {
    let own = |attribute: &AddressAttribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    };
    let any = |attribute: &AddressAttribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    };
    let attributes = &message.attributes;
    let address = attributes
        .iter()
        .find_map(own)
        .or_else(|| attributes.iter().find_map(any))?;
    Some(InterfaceAddress {
        address,
        prefix_length: message.header.prefix_len,
    })
}

/// The kernel's number for the family of an address.
pub(super) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
