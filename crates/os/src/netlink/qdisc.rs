//! Queue disciplines: where packets wait in front of an interface (`tc(8)`).

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::Socket;
use crate::Result;

/// Puts one queue in front of the whole interface, first in, first out, as long as its
/// `txqueuelen` says (`tc-pfifo(8)`).
///
/// A veth whose ring is full then has packets wait, since Linux 6.16 (drivers/net/veth.c,
/// `veth_xmit`); without a queue they are dropped.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN` over the namespace; `ENODEV`; `ENOENT` in a kernel without
/// disciplines (`CONFIG_NET_SCHED`).
pub fn set_first_in_first_out(index: u32) -> Result<()> {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(index).unwrap_or(i32::MAX);
    message.header.parent = TcHandle::ROOT;
    message
        .attributes
        .push(TcAttribute::Kind("pfifo".to_owned()));
    let object = format!("interface {index}");
    Socket::open("rtnetlink RTM_NEWQDISC", &object)?.change(
        RouteNetlinkMessage::NewQueueDiscipline(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    )
}
