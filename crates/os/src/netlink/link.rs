//! Interfaces: names, numbers, counters, and veth pairs.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BridgePortState, In6AddrGenMode, InfoBridgePort, InfoData,
    InfoIpVlan, InfoKind, InfoMacVlan, InfoMacVtap, InfoPortData, InfoVeth, IpVlanFlags,
    LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, MacVlanMode, State, XdpAttached,
};

use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use super::NetlinkSocket;
use crate::error::On;
use crate::{CallError, CallResult, text};

/// A network interface of the calling thread's namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetlinkLink {
    /// The interface's number in the kernel, from 1.
    pub index: u32,
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its hardware address; empty where it has none.
    pub address: Vec<u8>,
    /// The kind of a virtual device, such as `vxlan` or `bond` (`IFLA_INFO_KIND`); empty for others.
    pub kind: String,
    /// The number of the interface below it, if that is in this namespace: of a VLAN, a macvlan or a tunnel
    /// (`IFLA_LINK`).
    pub lower: Option<u32>,
    /// The number of the bridge or bond that it is a port of (`IFLA_MASTER`).
    pub controller: Option<u32>,
    /// The state of a bridge's port that forwards nothing, such as `learning`; none if it forwards
    /// (`IFLA_BRPORT_STATE`).
    pub held_back: Option<&'static str>,
    /// True for a port of a bridge that passes nothing to other such ports (`IFLA_BRPORT_ISOLATED`).
    pub isolated: bool,
    /// The mode of a macvlan or ipvlan that keeps it from others on the same interface: `private`, `vepa` or
    /// `source` (`IFLA_MACVLAN_MODE`, `IFLA_IPVLAN_FLAGS`).
    pub apart: Option<&'static str>,
    /// Whether it was set up by its owner (`IFF_UP`).
    pub up: bool,
    /// Whether it is up and its driver sees the other end of the line (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// The largest packet in bytes, without the link header.
    pub mtu: u32,
    /// How many transmit queues it was made with.
    pub tx_queues: u32,
    /// How many receive queues it was made with.
    pub rx_queues: u32,
    /// Whether the XDP program that is attached to it runs in its driver, or on its card; none if none
    /// is attached (`IFLA_XDP_ATTACHED`).
    pub native_xdp: Option<bool>,
    /// The number of that program (`IFLA_XDP_PROG_ID`).
    pub xdp_program: Option<u32>,
    /// How often its carrier came or went since it was made (`IFLA_CARRIER_CHANGES`).
    pub carrier_changes: u32,
    /// The number of the interface that it is bound to: the other end of a veth, or the lower interface
    /// of a VLAN (`IFLA_LINK`).
    pub bound_to: Option<u32>,
    /// The namespace of that interface, as this one numbers it ([`namespace_id`]); none if it is this one
    /// (`IFLA_LINK_NETNSID`).
    pub bound_namespace: Option<i32>,
    /// Its counters, if the kernel has them.
    pub statistics: Option<LinkStatistics>,
}

/// The counters of an interface since it was made (`IFLA_STATS64`, include/uapi/linux/if_link.h).
///
/// A packet is what the driver counted: with segmentation or receive offload one such packet can
/// be a train of datagrams.
pub use netlink_packet_route::link::Stats64 as LinkStatistics;

/// The number of the interface called `name` (`SIOCGIFINDEX`, `netdevice(7)`).
///
/// # Errors
///
/// `ENODEV` where there is none of that name.
pub fn index(name: &str) -> CallResult<u32> {
    const CALL: &str = "ioctl SIOCGIFINDEX";
    let bytes = CString::new(text::to_bytes(name).into_vec()).ok();
    // C libraries differ about a longer name, which cannot be that of an interface.
    let bytes = bytes.filter(|bytes| bytes.as_bytes().len() < libc::IFNAMSIZ);
    let bytes = bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV));
    let bytes = bytes.on(CALL, name)?;
    // SAFETY: the name ends with a zero, and outlives the call.
    match unsafe { libc::if_nametoindex(bytes.as_ptr()) } {
        0 => Err(CallError::last(CALL, name)),
        index => Ok(index),
    }
}

/// All interfaces of the calling thread's namespace.
///
/// # Errors
///
/// Netlink is refused, or its answer cannot be read.
pub fn list() -> CallResult<Vec<NetlinkLink>> {
    let socket = NetlinkSocket::open(GETLINK, "all interfaces")?;
    let replies = socket.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    Ok(replies.into_iter().filter_map(link_of).collect())
}

/// The interface with this number, if there is one.
///
/// # Errors
///
/// As for [`list`].
pub fn find(index: u32) -> CallResult<Option<NetlinkLink>> {
    Ok(list()?.into_iter().find(|link| link.index == index))
}

/// The interface with this number.
///
/// # Errors
///
/// There is none; as for [`list`].
pub fn of(index: u32) -> CallResult<NetlinkLink> {
    let none = || CallError::new(GETLINK, index, std::io::ErrorKind::NotFound.into());
    find(index)?.ok_or_else(none)
}

/// How the calling thread's namespace numbers another one, in attributes such as `IFLA_LINK_NETNSID`;
/// none if it has no number here (`RTM_GETNSID`).
///
/// # Errors
///
/// Netlink is refused, or its answer cannot be read.
pub fn namespace_id(namespace: BorrowedFd<'_>) -> CallResult<Option<i32>> {
    let socket = NetlinkSocket::open("rtnetlink RTM_GETNSID", "namespace")?;
    let mut message = NsidMessage::default();
    let number = namespace.as_raw_fd().cast_unsigned();
    message.attributes.push(NsidAttribute::Fd(number));
    let RouteNetlinkMessage::NewNsId(told) =
        socket.request(RouteNetlinkMessage::GetNsId(message))?
    else {
        return Err(socket.error(std::io::ErrorKind::InvalidData.into()));
    };
    let mut ids = told.attributes.into_iter();
    Ok(ids.find_map(|attribute| match attribute {
        NsidAttribute::Id(id) if id >= 0 => Some(id),
        _ => None,
    }))
}

/// The counters of the interface with this number.
///
/// # Errors
///
/// `ENODEV` where there is no such interface.
pub fn statistics(index: u32) -> CallResult<LinkStatistics> {
    let told = attributes_of(index)?.into_iter();
    let mut told = told.filter_map(|attribute| match attribute {
        LinkAttribute::Stats64(kernel) => Some(kernel),
        _ => None,
    });
    told.next().ok_or_else(|| {
        let none = std::io::ErrorKind::Unsupported.into();
        CallError::new(GETLINK, object_of(index), none)
    })
}

const GETLINK: &str = "rtnetlink RTM_GETLINK";

/// The attributes that the kernel reports for one interface.
fn attributes_of(index: u32) -> CallResult<Vec<LinkAttribute>> {
    let object = object_of(index);
    let socket = NetlinkSocket::open(GETLINK, &object)?;
    let reply = socket.request(RouteNetlinkMessage::GetLink(message_for(index)))?;
    let RouteNetlinkMessage::NewLink(link) = reply else {
        return Err(socket.error(std::io::ErrorKind::InvalidData.into()));
    };
    Ok(link.attributes)
}

/// Whether the kernel has made known that this interface works (`IF_OPER_UP`, operstates.rst), which
/// it does up to a second after the carrier has come. Since Linux 6.8 it does so when it is asked
/// for one interface (`rtnl_getlink` in net/core/rtnetlink.c).
///
/// # Errors
///
/// `ENODEV` where there is no such interface.
pub fn is_operational(index: u32) -> CallResult<bool> {
    let up = LinkAttribute::OperState(State::Up);
    Ok(attributes_of(index)?.contains(&up))
}

/// Makes a veth pair (`veth(4)`): `name` in the calling thread's namespace, and its peer in
/// another, each with as many transmit as receive queues.
///
/// # Errors
///
/// `EEXIST` where a name is taken; `EPERM` without `CAP_NET_ADMIN` over both namespaces.
pub fn create_veth(
    name: &str,
    queues: u16,
    peer_name: &str,
    peer_queues: u16,
    peer_namespace: BorrowedFd<'_>,
) -> CallResult<()> {
    let mut peer = named(peer_name, peer_queues);
    peer.attributes
        .push(LinkAttribute::NetNsFd(peer_namespace.as_raw_fd()));
    let mut link = named(name, queues);
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    NetlinkSocket::open("rtnetlink RTM_NEWLINK", name)?.change(
        RouteNetlinkMessage::NewLink(link),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

/// Sets the interface up.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN` over the namespace; `ENODEV`.
pub fn set_up(index: u32) -> CallResult<()> {
    let mut message = message_for(index);
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    change(index, message)
}

/// Keeps an interface from sending anything by itself, without a file of `/proc/sys`. Without ARP
/// and neighbour discovery (`IFF_NOARP`) it joins no group that it would report, and probes no
/// address. With `has_v6` it also gives itself no address (`IN6_ADDR_GEN_MODE_NONE`). Call this
/// before it has addresses and is up. Its neighbours must be set
/// ([`super::neighbour::add_permanent`]).
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN` over the namespace; `ENODEV`; with `has_v6` `EAFNOSUPPORT` of a
/// kernel without IPv6.
pub fn silence(index: u32, has_v6: bool) -> CallResult<()> {
    let mut message = message_for(index);
    message.header.flags = LinkFlags::Noarp;
    message.header.change_mask = LinkFlags::Noarp;
    if has_v6 {
        let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let v6 = AfSpecUnspec::Inet6(vec![none]);
        message
            .attributes
            .push(LinkAttribute::AfSpecUnspec(vec![v6]));
    }
    change(index, message)
}

/// Sets the largest packet in bytes.
///
/// # Errors
///
/// `EINVAL` beyond what the driver allows; `EPERM`; `ENODEV`.
pub fn set_mtu(index: u32, mtu: u32) -> CallResult<()> {
    let mut message = message_for(index);
    message.attributes.push(LinkAttribute::Mtu(mtu));
    change(index, message)
}

/// Removes the interface; of a veth pair both ends go.
///
/// # Errors
///
/// `EOPNOTSUPP` for an interface that cannot be removed; `EPERM`; `ENODEV`.
pub fn delete(index: u32) -> CallResult<()> {
    let object = object_of(index);
    NetlinkSocket::open("rtnetlink RTM_DELLINK", &object)?
        .change(RouteNetlinkMessage::DelLink(message_for(index)), 0)
}

fn change(index: u32, message: LinkMessage) -> CallResult<()> {
    let object = object_of(index);
    NetlinkSocket::open("rtnetlink RTM_NEWLINK", &object)?
        .change(RouteNetlinkMessage::NewLink(message), 0)
}

fn message_for(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn named(name: &str, queues: u16) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::NumTxQueues(queues.into()),
        LinkAttribute::NumRxQueues(queues.into()),
    ];
    message
}

fn link_of(reply: RouteNetlinkMessage) -> Option<NetlinkLink> {
    let RouteNetlinkMessage::NewLink(message) = reply else {
        return None;
    };
    let mut link = NetlinkLink {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
        carrier: message.header.flags.contains(LinkFlags::LowerUp),
        ..NetlinkLink::default()
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.iter().find_map(kind).unwrap_or_default();
                link.held_back = infos.iter().find_map(held_back);
                link.isolated = infos.iter().any(is_isolated);
                link.apart = infos.iter().find_map(apart);
            }
            LinkAttribute::Controller(controller) => link.controller = Some(controller),
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(address) => link.address = address,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::NumTxQueues(queues) => link.tx_queues = queues,
            LinkAttribute::NumRxQueues(queues) => link.rx_queues = queues,
            LinkAttribute::CarrierChanges(changes) => link.carrier_changes = changes,
            LinkAttribute::Link(bound_to) => link.bound_to = Some(bound_to),
            LinkAttribute::LinkNetNsId(id) => link.bound_namespace = Some(id),
            LinkAttribute::Stats64(kernel) => link.statistics = Some(kernel),
            LinkAttribute::Xdp(told) => {
                link.native_xdp = told.iter().find_map(attached);
                link.xdp_program = told.iter().find_map(|one| match one {
                    LinkXdp::ProgId(id) => Some(*id),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    // A veth and its peer are side by side; other interfaces are above theirs.
    if link.bound_namespace.is_none() && link.kind != "veth" {
        link.lower = link.bound_to;
    }
    Some(link)
}

fn kind(info: &LinkInfo) -> Option<String> {
    match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    }
}

fn port(info: &LinkInfo) -> &[InfoBridgePort] {
    match info {
        LinkInfo::PortData(InfoPortData::BridgePort(port)) => port,
        _ => &[],
    }
}

fn is_isolated(info: &LinkInfo) -> bool {
    port(info).contains(&InfoBridgePort::Isolated(true))
}

fn held_back(info: &LinkInfo) -> Option<&'static str> {
    port(info).iter().find_map(|one| match one {
        InfoBridgePort::State(BridgePortState::Disabled) => Some("disabled"),
        InfoBridgePort::State(BridgePortState::Listening) => Some("listening"),
        InfoBridgePort::State(BridgePortState::Learning) => Some("learning"),
        InfoBridgePort::State(BridgePortState::Blocking) => Some("blocking"),
        _ => None,
    })
}

fn apart(info: &LinkInfo) -> Option<&'static str> {
    let LinkInfo::Data(data) = info else {
        return None;
    };
    let mode = |mode: &MacVlanMode| match mode {
        MacVlanMode::Private => Some("private"),
        MacVlanMode::Vepa => Some("vepa"),
        MacVlanMode::Source => Some("source"),
        _ => None,
    };
    let flag = |flags: &IpVlanFlags| match flags.bits() {
        1 => Some("private"),
        2 => Some("vepa"),
        _ => None,
    };
    match data {
        InfoData::MacVlan(all) => all.iter().find_map(|one| match one {
            InfoMacVlan::Mode(told) => mode(told),
            _ => None,
        }),
        InfoData::MacVtap(all) => all.iter().find_map(|one| match one {
            InfoMacVtap::Mode(told) => mode(told),
            _ => None,
        }),
        InfoData::IpVlan(all) => all.iter().find_map(|one| match one {
            InfoIpVlan::Flags(told) => flag(told),
            _ => None,
        }),
        _ => None,
    }
}

fn attached(told: &LinkXdp) -> Option<bool> {
    match told {
        LinkXdp::Attached(XdpAttached::None) => None,
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(false),
        LinkXdp::Attached(_) => Some(true),
        _ => None,
    }
}

/// The name of an interface in an error, with its number for the case that it is gone.
pub(crate) fn object_of(index: u32) -> String {
    to_ask()
        .and_then(|socket| rustix::net::netdevice::index_to_name(&socket, index))
        .unwrap_or_else(|_| format!("interface {index}"))
}

/// Opens a socket for requests about interfaces; its kind does not matter.
pub(crate) fn to_ask() -> rustix::io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    socket_with(family, SocketType::DGRAM, flags, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_keeps_apart_is_told() {
        let told = |info| {
            let mut message = message_for(1);
            message.attributes = vec![LinkAttribute::LinkInfo(vec![info])];
            link_of(RouteNetlinkMessage::NewLink(message)).expect("a link")
        };
        let macvlan = |mode| {
            told(LinkInfo::Data(InfoData::MacVlan(vec![InfoMacVlan::Mode(
                mode,
            )])))
            .apart
        };
        assert_eq!(macvlan(MacVlanMode::Private), Some("private"));
        assert_eq!(macvlan(MacVlanMode::Bridge), None);
        let ipvlan = InfoIpVlan::Flags(IpVlanFlags::from_bits_retain(2));
        let ipvlan = told(LinkInfo::Data(InfoData::IpVlan(vec![ipvlan])));
        assert_eq!(ipvlan.apart, Some("vepa"));
        for isolated in [true, false] {
            let port = InfoPortData::BridgePort(vec![InfoBridgePort::Isolated(isolated)]);
            assert_eq!(told(LinkInfo::PortData(port)).isolated, isolated);
        }
    }
}
