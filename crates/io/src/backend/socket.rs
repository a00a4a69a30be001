//! The common part of the socket backends: opening, waiting, and counting refusals.

use super::Backend;
use crate::{
    Error, Layer, Mode, MulticastGroup, Property, RxCaps, RxConfig, Sent, TxCaps, TxConfig,
    TxCounters,
};
use mpps_os::messages::{self, Extras, SendError, Transmit};
use mpps_os::netlink::link;
use mpps_os::socket::UdpSocket;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

pub(super) use crate::rx::SEND_TIMEOUT;

/// The fields that every receiver over a UDP socket honours, and more.
macro_rules! socket_rx_fields {
    ($($more:literal),*) => {
        &[
            "gro",
            "busy_poll_us",
            "reuse_port",
            "groups",
            "groups.source",
            "receive_buffer_bytes",
            "buffer_bytes",
            "details.source",
            "details.local",
            "details.traffic_class",
            "details.hop_limit",
            "details.time",
            "details.hardware_time",
            "errors",
            "transmit_clock",
            "answers",
            $($more),*
        ]
    };
}
pub(super) use socket_rx_fields;

/// The fields that every sender over a UDP socket honours.
pub(super) const SOCKET_TX_FIELDS: &[&str] = &[
    "gso_segments",
    "send_buffer_bytes",
    "connect = false",
    "flows",
];

/// The extras to ask the kernel for. An answer needs the sender, and at a wildcard the address that was
/// asked.
pub(super) fn extras(config: &RxConfig) -> Extras {
    let mut details = config.details;
    if config.answers {
        details.source = true;
        details.local |= config.address.ip().is_unspecified();
    }
    Extras {
        segments: config.gro,
        details,
    }
}

/// Opens, sets up and binds a receiving socket.
pub(super) fn open_receiver(
    backend: &Backend,
    config: &RxConfig,
) -> Result<(UdpSocket, RxCaps), Error> {
    let socket = UdpSocket::new(&config.address)?;
    let receive_buffer_bytes = match config.receive_buffer_bytes {
        Some(bytes) => socket.set_receive_buffer(bytes)?,
        None => socket.receive_buffer()?,
    };
    if config.reuse_port {
        socket.set_reuse_port()?;
    }
    socket.ask(&extras(config))?;
    if config.errors {
        socket.keep_errors()?;
    }
    if let Some(clock) = config.transmit_clock {
        socket.set_transmit_clock(clock)?;
    }
    if let Some(microseconds) = config.busy_poll_us {
        socket.set_busy_poll(microseconds)?;
    }
    if config.answers {
        socket.set_send_timeout(SEND_TIMEOUT)?;
    }
    socket.bind(&config.address)?;
    for group in &config.groups {
        join(&socket, group, 0)?;
    }
    let caps = RxCaps {
        queue: None,
        backend: backend.name,
        layer: Layer::Payload,
        local_address: socket.local_address()?,
        batch: config.batch,
        buffer_bytes: config.buffer_bytes,
        receive_buffer_bytes: Some(receive_buffer_bytes),
        gro: config.gro,
        mode: Mode::new("socket, copy").with(Property::BusyPoll, config.busy_poll_us > Some(0)),
    };
    Ok((socket, caps))
}

/// Joins a group, at this interface if it names none.
pub(super) fn join(socket: &UdpSocket, group: &MulticastGroup, default: u32) -> Result<(), Error> {
    let named = group.interface.as_deref().map(link::index).transpose()?;
    let index = named.unwrap_or(default);
    Ok(socket.join_group(group.address, group.source, index)?)
}

/// Opens, sets up and connects one sending socket per flow.
pub(super) fn open_senders(
    backend: &Backend,
    config: &TxConfig,
) -> Result<(Vec<UdpSocket>, TxCaps), Error> {
    let any: IpAddr = match config.target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let first = config.source.unwrap_or(SocketAddr::new(any, 0));
    let mut sockets = Vec::with_capacity(config.flows);
    let mut local_addresses = Vec::with_capacity(config.flows);
    let mut send_buffer_bytes = None;
    for flow in 0..config.flows {
        let mut address = first;
        if first.port() != 0 {
            // `TxConfig::check` has made sure that this does not wrap.
            address.set_port(first.port().wrapping_add(flow as u16));
        }
        let socket = UdpSocket::new(&address)?;
        send_buffer_bytes = Some(match config.send_buffer_bytes {
            Some(bytes) => socket.set_send_buffer(bytes)?,
            None => socket.send_buffer()?,
        });
        socket.set_send_timeout(SEND_TIMEOUT)?;
        if address.port() != 0 {
            // Several sending threads may use one source port, to one address or to several.
            socket.set_reuse_port()?;
        }
        if config.gso_segments > 1 {
            // `TxConfig::check` has made sure that a segment is shorter than a datagram.
            socket.set_segment(config.payload_bytes as u16)?;
        }
        socket.bind(&address)?;
        if config.connect {
            socket.connect(&config.target)?;
        }
        local_addresses.push(socket.local_address()?);
        sockets.push(socket);
    }
    let caps = TxCaps {
        backend: backend.name,
        layer: Layer::Payload,
        batch: config.batch * usize::from(config.gso_segments),
        train: usize::from(config.gso_segments),
        flows: config.flows,
        local_addresses,
        send_buffer_bytes,
        template: false,
        mode: Mode::new("socket, copy"),
    };
    Ok((sockets, caps))
}

/// Receives by a call, and sorts its errors: an empty queue and a full time-out are "nothing came";
/// what an earlier send left on the socket is not this call's error.
pub(super) fn receive(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        let error = match call() {
            Ok(received) => return Ok(received),
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(0),
            // An ICMP error about a datagram that this socket sent (udp(7)).
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => {}
            // The same error for a datagram that was too long for its path.
            _ if error.raw_os_error() == Some(EMSGSIZE) => {}
            _ => return Err(error),
        }
    }
}

/// `EMSGSIZE` of include/uapi/asm-generic/errno.h.
const EMSGSIZE: i32 = 90;
/// A descriptor that is none, or none of a socket.
const HOPELESS: [i32; 2] = [9, 88];

/// Sends from a receiver's socket; [`Rx::transmit`](crate::Rx::transmit).
pub(super) fn transmit(socket: BorrowedFd<'_>, transmits: &[Transmit<'_>]) -> io::Result<Sent> {
    let mut sent = Sent::default();
    let mut failed = None;
    while let rest @ [_, ..] = &transmits[sent.offered() as usize..] {
        match messages::transmit(socket, rest) {
            Ok(taken) => sent.accepted += taken as u64,
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => break,
                _ if error
                    .raw_os_error()
                    .is_some_and(|errno| HOPELESS.contains(&errno)) =>
                {
                    return Err(error);
                }
                // Possibly the error of an earlier datagram, by ICMP. Returning it clears it (`sock_error`).
                _ if error.raw_os_error() != Some(EMSGSIZE)
                    && failed.replace(sent.offered()) != Some(sent.offered()) => {}
                _ => sent.refused += 1,
            },
        }
    }
    Ok(sent)
}

/// The errors that a receiver's socket kept; [`Rx::errors`](crate::Rx::errors).
pub(super) fn errors(socket: BorrowedFd<'_>) -> io::Result<Vec<SendError>> {
    std::iter::from_fn(|| messages::next_error(socket).transpose()).collect()
}

/// Passes messages `0..messages`, each of `datagrams_of(message)` datagrams, to the kernel by
/// `call(from, to)`, which answers how many it took or what the first of them met.
pub(super) fn send_all(
    messages: usize,
    datagrams_of: impl Fn(usize) -> u64,
    counters: &mut TxCounters,
    mut call: impl FnMut(usize, usize) -> io::Result<usize>,
) -> io::Result<Sent> {
    let mut sent = Sent::default();
    let mut at = 0;
    while at < messages {
        counters.calls += 1;
        let error = match call(at, messages) {
            Ok(taken) => {
                let taken = taken.min(messages - at);
                let datagrams: u64 = (at..at + taken).map(&datagrams_of).sum();
                sent.accepted += datagrams;
                counters.accepted += datagrams;
                at += taken;
                continue;
            }
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => {
                counters.blocked += 1;
                break;
            }
            _ if is_hopeless(&error) => return Err(error),
            _ => {
                let datagrams = datagrams_of(at);
                sent.refused += datagrams;
                *counters
                    .refused
                    .entry(error.raw_os_error().unwrap_or(0))
                    .or_default() += datagrams;
                at += 1;
            }
        }
    }
    Ok(sent)
}

/// True for what makes every further send fail the same way (send(2)).
pub(super) fn is_hopeless(error: &io::Error) -> bool {
    // Numbers of include/uapi/asm-generic/errno.h: EBADF, EACCES, EFAULT, EINVAL, ENOTSOCK,
    // EDESTADDRREQ, EMSGSIZE, EOPNOTSUPP, EAFNOSUPPORT. EPERM is not among them: a packet filter
    // answers it for single packets.
    matches!(
        error.raw_os_error(),
        Some(9 | 13 | 14 | 22 | 88 | 89 | 90 | 95 | 97)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const EAGAIN: i32 = 11;
    const EINTR: i32 = 4;
    const ECONNREFUSED: i32 = 111;
    const ENOBUFS: i32 = 105;

    /// A kernel that gives the answers of a script, one a call, and keeps the questions.
    #[derive(Default)]
    struct Script {
        answers: Vec<Result<usize, i32>>,
        asked: Vec<(usize, usize)>,
    }

    impl Script {
        fn new(answers: &[Result<usize, i32>]) -> Self {
            Self {
                answers: answers.iter().rev().copied().collect(),
                asked: Vec::new(),
            }
        }

        fn answer(&mut self, from: usize, to: usize) -> io::Result<usize> {
            self.asked.push((from, to));
            let answer = self
                .answers
                .pop()
                .expect("the script ended before the loop did");
            answer.map_err(io::Error::from_raw_os_error)
        }
    }

    fn send(script: &mut Script, messages: usize, train: u64) -> (io::Result<Sent>, TxCounters) {
        let mut counters = TxCounters::default();
        let sent = send_all(
            messages,
            |_| train,
            &mut counters,
            |from, to| script.answer(from, to),
        );
        (sent, counters)
    }

    #[test]
    fn goes_on_where_the_kernel_stopped() {
        let mut script = Script::new(&[Ok(3), Err(EINTR), Ok(7)]);
        let (sent, counters) = send(&mut script, 10, 1);
        assert_eq!(
            sent.unwrap(),
            Sent {
                accepted: 10,
                refused: 0
            }
        );
        assert_eq!(script.asked, [(0, 10), (3, 10), (3, 10)]);
        assert_eq!((counters.calls, counters.accepted), (3, 10));
    }

    #[test]
    fn a_refused_datagram_is_counted_by_errno_and_the_next_one_tried() {
        let mut script = Script::new(&[Ok(2), Err(ECONNREFUSED), Err(ENOBUFS), Ok(1)]);
        let (sent, counters) = send(&mut script, 5, 64);
        assert_eq!(
            sent.unwrap(),
            Sent {
                accepted: 3 * 64,
                refused: 2 * 64
            }
        );
        assert_eq!(counters.refused, [(ECONNREFUSED, 64), (ENOBUFS, 64)].into());
        assert_eq!(script.asked.last(), Some(&(4, 5)));
    }

    #[test]
    fn a_full_send_buffer_leaves_the_rest_unoffered() {
        let mut script = Script::new(&[Ok(4), Err(EAGAIN)]);
        let (sent, counters) = send(&mut script, 10, 1);
        assert_eq!(sent.unwrap().offered(), 4);
        assert_eq!(counters.blocked, 1);
    }

    #[test]
    fn what_can_never_work_is_an_error_and_not_a_million_refusals() {
        let mut script = Script::new(&[Err(EMSGSIZE)]);
        let (sent, counters) = send(&mut script, 10, 1);
        assert_eq!(sent.unwrap_err().raw_os_error(), Some(EMSGSIZE));
        assert_eq!(counters.refused.values().sum::<u64>(), 0);
    }

    #[test]
    fn an_empty_queue_is_no_error_and_a_signal_is_the_waiter_s() {
        let mut script = Script::new(&[Err(EAGAIN), Err(EINTR)]);
        assert_eq!(receive(|| script.answer(0, 0)).unwrap(), 0);
        let signal = receive(|| script.answer(0, 0)).unwrap_err();
        assert_eq!(signal.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn an_icmp_error_of_an_earlier_send_does_not_stop_a_receiver() {
        let mut script = Script::new(&[Err(ECONNREFUSED), Ok(1)]);
        assert_eq!(receive(|| script.answer(0, 0)).unwrap(), 1);
    }

    #[test]
    fn a_real_error_is_one() {
        let mut script = Script::new(&[Err(9)]);
        assert!(receive(|| script.answer(0, 0)).is_err());
    }
}
