//! Network set-up and its counters, by synchronous rtnetlink (`rtnetlink(7)`).
//!
//! All functions work in the network namespace of the calling thread.

pub mod address;
pub(crate) mod generic;
pub mod link;
mod lossy;
pub mod napi;
pub mod neighbour;
pub mod netdev;
pub mod netfilter_rule;
pub mod qdisc;
pub mod queue_statistics;
pub mod route;
pub mod sock_diag;

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket as RawSocket, SocketAddr};

use crate::error::On;
use crate::{CallError, CallResult};

/// A list that changed while the kernel wrote it is asked for again this often.
const DUMP_ATTEMPTS: usize = 5;

/// The kernel writes a list in parts as large as the largest buffer that it was offered, up to this
/// (`netlink_recvmsg` in net/netlink/af_netlink.c).
const PART: usize = 32 * 1024;

/// Netlink messages start at multiples of four bytes (`NLMSG_ALIGNTO`, include/uapi/linux/netlink.h).
const ALIGNMENT: usize = 4;

/// One conversation with the kernel about one object: it names both in its errors.
struct NetlinkSocket<'a> {
    raw: RawSocket,
    call: &'static str,
    object: &'a str,
}

impl<'a> NetlinkSocket<'a> {
    fn open(call: &'static str, object: &'a str) -> CallResult<Self> {
        let raw = RawSocket::new(NETLINK_ROUTE)
            .and_then(|socket| {
                socket.connect(&SocketAddr::new(0, 0))?;
                Ok(socket)
            })
            .on("socket AF_NETLINK", object)?;
        Ok(Self { raw, call, object })
    }

    /// Asks for a change and waits for the acknowledgement. `flags` are added to the usual ones.
    fn change(&self, message: RouteNetlinkMessage, flags: u16) -> CallResult<()> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .map(|_| ())
    }

    /// Asks for one object.
    fn request(&self, message: RouteNetlinkMessage) -> CallResult<RouteNetlinkMessage> {
        let replies = self.exchange(message, NLM_F_REQUEST | NLM_F_ACK)?;
        replies
            .messages
            .into_iter()
            .next()
            .ok_or_else(|| self.error(io::Error::from(io::ErrorKind::UnexpectedEof)))
    }

    /// Asks for all objects of a kind.
    fn dump(&self, message: RouteNetlinkMessage) -> CallResult<Vec<RouteNetlinkMessage>> {
        for _ in 0..DUMP_ATTEMPTS {
            let replies = self.exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            if !replies.torn {
                return Ok(replies.messages);
            }
        }
        Err(self.error(io::Error::from_raw_os_error(libc::EAGAIN)))
    }

    fn exchange(&self, message: RouteNetlinkMessage, flags: u16) -> CallResult<Replies> {
        self.exchange_raw(message, flags)
            .map_err(|source| self.error(source))
    }

    fn exchange_raw(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Replies> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.raw.send(&bytes, 0)?;

        let mut replies = Replies::default();
        loop {
            if replies.take(&receive(&self.raw)?)? {
                return Ok(replies);
            }
        }
    }

    fn error(&self, source: io::Error) -> CallError {
        CallError::new(self.call, self.object, source)
    }
}

/// Receives one whole datagram.
fn receive(socket: &RawSocket) -> io::Result<Vec<u8>> {
    let mut datagram = Vec::new();
    let mut receive = |room: usize, flags: i32| loop {
        datagram.clear();
        datagram.reserve(room);
        match socket.recv(&mut datagram, flags) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
    };
    let length = receive(1, libc::MSG_PEEK | libc::MSG_TRUNC)?;
    receive(length.max(PART), 0)?;
    Ok(datagram)
}

/// The kernel's answers so far.
#[derive(Default)]
struct Replies {
    messages: Vec<RouteNetlinkMessage>,
    /// The list changed while it was read, and may lack something (`NLM_F_DUMP_INTR`).
    torn: bool,
}

impl Replies {
    /// Takes the messages of one datagram; true at the end of the answer.
    fn take(&mut self, mut datagram: &[u8]) -> io::Result<bool> {
        while !datagram.is_empty() {
            let parse = NetlinkMessage::<RouteNetlinkMessage>::deserialize;
            let length = lossy::length_of(datagram).unwrap_or(datagram.len());
            let whole = datagram.get(..length).unwrap_or(datagram);
            let as_text = || lossy::with_text_names(datagram);
            let reply = match parse(datagram) {
                Ok(_) if lossy::has_bytes_as_text(whole) => {
                    as_text().map_or_else(|| parse(datagram), |it| parse(&it))
                }
                Err(error) => as_text().map_or(Err(error), |it| parse(&it)),
                reply => reply,
            };
            let reply = reply.map_err(foreign_answer)?;
            self.torn |= reply.header.flags & NLM_F_DUMP_INTR != 0;
            match reply.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => self.messages.push(message),
                _ => {}
            }
            // A length below the header's own would loop without end; the parser has refused it.
            let length = length.next_multiple_of(ALIGNMENT);
            datagram = datagram.get(length..).unwrap_or_default();
        }
        Ok(false)
    }
}

fn foreign_answer(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
