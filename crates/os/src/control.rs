//! Control messages: details that the kernel or a sender gives of a datagram (cmsg(3), ip(7), ipv6(7),
//! socket(7)).

use crate::error::On;
use crate::native::{double_word, half_word, word};
use crate::option::{UDP_GRO, UDP_SEGMENT, set_option};
use crate::{CallResult, clock};
use libc::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

/// `SO_TIMESTAMPNS_NEW` and the message of that number, of include/uapi/asm-generic/socket.h: two
/// 64-bit numbers on every machine (kernel 5.1).
const SO_TIMESTAMPNS_NEW: c_int = 64;
/// The same of `SO_TIMESTAMPING_NEW`, whose message has three times: the kernel's, none, the card's. Its
/// value is flags of include/uapi/linux/net_tstamp.h.
const SO_TIMESTAMPING_NEW: c_int = 65;
const RX_HARDWARE: c_int = 1 << 2;
const RAW_HARDWARE: c_int = 1 << 6;
/// `SO_TXTIME` and its message (kernel 4.19).
const SO_TXTIME: c_int = 61;
/// `sizeof(struct cmsghdr)` on 64-bit Linux: a length of 64 bits, the level, the type.
const HEADER_BYTES: usize = 16;

/// Details of a datagram, as far as they were asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatagramDetails {
    /// The sender.
    pub source: Option<SocketAddr>,
    /// The destination in its header. A receiver on a wildcard needs it to answer.
    pub local: Option<IpAddr>,
    /// The index of the interface that it came by.
    pub interface: Option<u32>,
    /// The byte of the IP header that holds the code point (upper six bits, RFC 2474) and congestion
    /// (lower two, RFC 3168).
    pub traffic_class: Option<u8>,
    /// How many more hops it could have made: `TTL` or hop limit.
    pub hop_limit: Option<u8>,
    /// When the kernel got it from the driver, by the clock of the machine (`CLOCK_REALTIME`).
    pub time: Option<SystemTime>,
    /// When the card got it, by the card's own clock, since the start of that (with PTP, 1970 in TAI).
    /// None unless its interface is set to take times, as by `hwstamp_ctl -r 1`.
    pub hardware_time: Option<Duration>,
    /// The card's hash, which chose its queue.
    pub hash: Option<u32>,
    /// The number of its VLAN, if the card took the tag off.
    pub vlan: Option<u16>,
}

impl DatagramDetails {
    /// The two bits of congestion notification (RFC 3168).
    pub fn ecn(&self) -> Option<u8> {
        self.traffic_class.map(|class| class & 3)
    }

    /// The code point of differentiated services (RFC 2474).
    pub fn dscp(&self) -> Option<u8> {
        self.traffic_class.map(|class| class >> 2)
    }
}

/// The details that are asked for. Those that are not cost nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WantedDetails {
    /// [`DatagramDetails::source`].
    pub source: bool,
    /// [`DatagramDetails::local`] and [`DatagramDetails::interface`].
    pub local: bool,
    /// [`DatagramDetails::traffic_class`].
    pub traffic_class: bool,
    /// [`DatagramDetails::hop_limit`].
    pub hop_limit: bool,
    /// [`DatagramDetails::time`].
    pub time: bool,
    /// [`DatagramDetails::hardware_time`].
    pub hardware_time: bool,
    /// [`DatagramDetails::hash`].
    pub hash: bool,
    /// [`DatagramDetails::vlan`].
    pub vlan: bool,
}

impl WantedDetails {
    /// True if anything is.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// Extra information that a receive brings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extras {
    /// The segment size of GRO trains.
    pub segments: bool,
    /// Details of each datagram.
    pub details: WantedDetails,
}

/// A control message: whether it is wanted, the options that ask for it over IPv4 and IPv6, what
/// to set them to, and the bytes of the message's value, the larger of the two.
struct Message {
    is_wanted: fn(&Extras) -> bool,
    options: [(c_int, c_int, &'static str); 2],
    value: c_int,
    bytes: usize,
}

/// A message whose option is there or not.
const fn message(
    is_wanted: fn(&Extras) -> bool,
    options: [(c_int, c_int, &'static str); 2],
    bytes: usize,
) -> Message {
    Message {
        is_wanted,
        options,
        value: 1,
        bytes,
    }
}

const MESSAGES: [Message; 6] = [
    message(
        |extras| extras.segments,
        [(libc::IPPROTO_UDP, UDP_GRO, "setsockopt UDP_GRO"); 2],
        4,
    ),
    message(
        |extras| extras.details.local,
        [
            (libc::IPPROTO_IP, libc::IP_PKTINFO, "setsockopt IP_PKTINFO"),
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVPKTINFO,
                "setsockopt IPV6_RECVPKTINFO",
            ),
        ],
        20,
    ),
    message(
        |extras| extras.details.traffic_class,
        [
            (libc::IPPROTO_IP, libc::IP_RECVTOS, "setsockopt IP_RECVTOS"),
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVTCLASS,
                "setsockopt IPV6_RECVTCLASS",
            ),
        ],
        4,
    ),
    message(
        |extras| extras.details.hop_limit,
        [
            (libc::IPPROTO_IP, libc::IP_RECVTTL, "setsockopt IP_RECVTTL"),
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVHOPLIMIT,
                "setsockopt IPV6_RECVHOPLIMIT",
            ),
        ],
        4,
    ),
    message(
        |extras| extras.details.time,
        [(
            libc::SOL_SOCKET,
            SO_TIMESTAMPNS_NEW,
            "setsockopt SO_TIMESTAMPNS_NEW",
        ); 2],
        16,
    ),
    Message {
        value: RX_HARDWARE | RAW_HARDWARE,
        ..message(
            |extras| extras.details.hardware_time,
            [(
                libc::SOL_SOCKET,
                SO_TIMESTAMPING_NEW,
                "setsockopt SO_TIMESTAMPING_NEW",
            ); 2],
            48,
        )
    },
];

impl Extras {
    fn messages(&self) -> impl Iterator<Item = &'static Message> {
        let extras = *self;
        MESSAGES
            .iter()
            .filter(move |message| (message.is_wanted)(&extras))
    }

    /// Room for the control messages of one datagram, in bytes: `CMSG_SPACE` of each.
    pub(crate) fn control_bytes(&self) -> usize {
        let space = |message: &Message| HEADER_BYTES + message.bytes.next_multiple_of(8);
        self.messages().map(space).sum()
    }

    /// Asks a socket of the address's family for them.
    pub(crate) fn ask(&self, socket: impl AsFd, is_ipv4: bool, name: &str) -> CallResult<()> {
        for message in self.messages() {
            let (level, option, call) = message.options[usize::from(!is_ipv4)];
            set_option(socket.as_fd(), level, option, &message.value).on(call, name)?;
        }
        Ok(())
    }
}

/// The control messages in a buffer that the kernel filled: level, type and value.
fn messages(mut rest: &[u8]) -> impl Iterator<Item = (c_int, c_int, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::try_from(double_word(rest, 0)?).ok()?;
        let value = rest.get(HEADER_BYTES..length)?;
        let kind = (word(rest, 8)? as c_int, word(rest, 12)? as c_int);
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or(&[]);
        Some((kind.0, kind.1, value))
    })
}

/// The size in bytes of each datagram of a train but the last; 0 for a single datagram.
#[inline]
pub(crate) fn segment_bytes(control: &[u8]) -> u16 {
    let train =
        messages(control).find(|message| (message.0, message.1) == (libc::IPPROTO_UDP, UDP_GRO));
    let bytes = train.and_then(|(_, _, value)| word(value, 0));
    bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or(0)
}

/// The error of a datagram that was sent (`IP_RECVERR`, ip(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendError {
    /// Where it was sent to.
    pub destination: SocketAddr,
    /// The error: `ECONNREFUSED` for a port without a socket, `EHOSTUNREACH`, `EMSGSIZE`, ...
    pub errno: i32,
    /// The largest packet that the path takes, in bytes with the IP header; of `EMSGSIZE` only.
    pub mtu: Option<u32>,
    /// The host that said so by ICMP; none if it was this one.
    pub reporter: Option<IpAddr>,
}

/// Asks a socket of the address's family to keep its errors (`IP_RECVERR`, `IPV6_RECVERR`).
pub(crate) fn keep_errors(socket: impl AsFd, is_ipv4: bool, name: &str) -> CallResult<()> {
    let (level, option, call) = match is_ipv4 {
        true => (libc::IPPROTO_IP, libc::IP_RECVERR, "setsockopt IP_RECVERR"),
        false => (
            libc::IPPROTO_IPV6,
            libc::IPV6_RECVERR,
            "setsockopt IPV6_RECVERR",
        ),
    };
    let on: c_int = 1;
    set_option(socket, level, option, &on).on(call, name)
}

/// The error that control messages hold: a `struct sock_extended_err` and an address behind it
/// (include/uapi/linux/errqueue.h).
pub(crate) fn send_error(control: &[u8], destination: SocketAddr) -> Option<SendError> {
    let is_error = |level, kind| {
        [
            (libc::IPPROTO_IP, libc::IP_RECVERR),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        ]
        .contains(&(level, kind))
    };
    let (_, _, value) = messages(control).find(|(level, kind, _)| is_error(*level, *kind))?;
    let errno = word(value, 0)? as i32;
    Some(SendError {
        destination,
        errno,
        mtu: word(value, 8).filter(|_| errno == libc::EMSGSIZE),
        reporter: address(value.get(16..)?).map(|reporter| reporter.ip()),
    })
}

/// Reads a `struct sockaddr_in` or `sockaddr_in6` (ip(7), ipv6(7)).
pub(crate) fn address(name: &[u8]) -> Option<SocketAddr> {
    let family = half_word(name, 0)?;
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = *name.get(4..)?.first_chunk()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = *name.get(8..)?.first_chunk()?;
            let scope = word(name, 24)?;
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

/// The details that control messages hold.
pub(crate) fn details(control: &[u8]) -> DatagramDetails {
    let mut details = DatagramDetails::default();
    for (level, kind, value) in messages(control) {
        match (level, kind) {
            // struct in_pktinfo: index, address of the route back, address in the header.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                details.interface = word(value, 0);
                let address = value.get(8..).and_then(|rest| rest.first_chunk::<4>());
                details.local = address.map(|octets| Ipv4Addr::from(*octets).into());
            }
            // struct in6_pktinfo: address in the header, index.
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let address = value.first_chunk::<16>();
                details.local = address.map(|octets| Ipv6Addr::from(*octets).into());
                details.interface = word(value, 16);
            }
            // A byte over IPv4, a number over IPv6.
            (libc::IPPROTO_IP, libc::IP_TOS) => details.traffic_class = value.first().copied(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                details.traffic_class = word(value, 0).map(|class| class as u8);
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                details.hop_limit = word(value, 0).map(|hops| hops as u8);
            }
            (libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW) => {
                let since = time_spec(value, 0);
                details.time = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
            }
            (libc::SOL_SOCKET, SO_TIMESTAMPING_NEW) => {
                details.hardware_time = time_spec(value, 32).filter(|time| !time.is_zero());
            }
            _ => {}
        }
    }
    details
}

/// A `struct __kernel_timespec`.
fn time_spec(value: &[u8], at: usize) -> Option<Duration> {
    let nanoseconds = u32::try_from(double_word(value, at + 8)?).ok()?;
    let whole = nanoseconds < 1_000_000_000;
    whole.then_some(Duration::new(double_word(value, at)?, nanoseconds))
}

/// Room for [`source_address`], in bytes.
pub(crate) const SOURCE_BYTES: usize = 40;

/// Writes the control message that sets the source address (`IP_PKTINFO`, `IPV6_PKTINFO`), and returns
/// its bytes. The route decides on the interface.
pub(crate) fn source_address(control: &mut [u8], address: IpAddr) -> usize {
    let mut info = [0; 20];
    match address {
        // `ipi_spec_dst` is the second of three.
        IpAddr::V4(address) => {
            info[4..8].copy_from_slice(&address.octets());
            write(control, libc::IPPROTO_IP, libc::IP_PKTINFO, &info[..12])
        }
        IpAddr::V6(address) => {
            info[..16].copy_from_slice(&address.octets());
            write(control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)
        }
    }
}

/// Writes a control message, and returns the bytes that it takes. The room must be there.
fn write(control: &mut [u8], level: c_int, kind: c_int, value: &[u8]) -> usize {
    let length = HEADER_BYTES + value.len();
    let space = length.next_multiple_of(8);
    let control = &mut control[..space];
    control[..8].copy_from_slice(&(length as u64).to_ne_bytes());
    control[8..12].copy_from_slice(&level.to_ne_bytes());
    control[12..16].copy_from_slice(&kind.to_ne_bytes());
    control[16..length].copy_from_slice(value);
    control[length..].fill(0);
    space
}

/// A datagram to send, or a train of equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// Where to.
    pub destination: SocketAddr,
    /// Its bytes.
    pub payload: &'a [u8],
    /// Bytes of each datagram of a train but the last (`UDP_SEGMENT`, Linux 4.18); none for one datagram.
    pub segment_bytes: Option<u16>,
    /// The address of this host that it leaves from; without it the route decides.
    pub source: Option<IpAddr>,
    /// The code point (upper six bits) and congestion (lower two).
    pub traffic_class: Option<u8>,
    /// How many hops it may make.
    pub hop_limit: Option<u8>,
    /// When it is to leave, by the clock that was asked for; refused without one. A queueing discipline
    /// must keep it until then: `fq` or `etf` (tc-fq(8), tc-etf(8)). Others send it at once.
    pub time: Option<Duration>,
}

/// The clock of [`Transmit::time`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum TransmitClock {
    /// `CLOCK_MONOTONIC`, for `fq`.
    Monotonic = libc::CLOCK_MONOTONIC,
    /// `CLOCK_TAI`, for `etf`; it needs `CAP_NET_ADMIN`.
    Tai = libc::CLOCK_TAI,
}

impl TransmitClock {
    /// The time now.
    pub fn now(self) -> Duration {
        Duration::from_nanos(match self {
            Self::Monotonic => clock::monotonic_ns(),
            Self::Tai => clock::tai_ns(),
        })
    }

    /// Asks a socket to take times by this clock.
    pub(crate) fn ask(self, socket: impl AsFd, name: &str) -> CallResult<()> {
        // `struct sock_txtime` of include/uapi/linux/net_tstamp.h: clock and flags.
        let value = [self as c_int, 0];
        set_option(socket, libc::SOL_SOCKET, SO_TXTIME, &value).on("setsockopt SO_TXTIME", name)
    }
}

impl<'a> Transmit<'a> {
    /// A datagram to a destination, the kernel deciding on the rest.
    pub fn new(destination: SocketAddr, payload: &'a [u8]) -> Self {
        Self {
            destination,
            payload,
            segment_bytes: None,
            source: None,
            traffic_class: None,
            hop_limit: None,
            time: None,
        }
    }

    /// Writes its control messages, and returns their bytes.
    pub(crate) fn control(&self, control: &mut [u8; TRANSMIT_BYTES]) -> usize {
        let (level, class, hops) = match self.destination {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
            SocketAddr::V6(_) => {
                let hops = libc::IPV6_HOPLIMIT;
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, hops)
            }
        };
        let mut used = self
            .source
            .map_or(0, |source| source_address(control, source));
        let mut number = |level, kind, value: u8| {
            used += write(
                &mut control[used..],
                level,
                kind,
                &c_int::from(value).to_ne_bytes(),
            );
        };
        if let Some(value) = self.traffic_class {
            number(level, class, value);
        }
        if let Some(value) = self.hop_limit {
            number(level, hops, value);
        }
        if let Some(bytes) = self.segment_bytes {
            let rest = &mut control[used..];
            used += write(rest, libc::IPPROTO_UDP, UDP_SEGMENT, &bytes.to_ne_bytes());
        }
        if let Some(time) = self.time {
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let rest = &mut control[used..];
            used += write(
                rest,
                libc::SOL_SOCKET,
                SO_TXTIME,
                &nanoseconds.to_ne_bytes(),
            );
        }
        used
    }
}

/// Room for the control messages of a [`Transmit`], in bytes.
pub(crate) const TRANSMIT_BYTES: usize = SOURCE_BYTES + 4 * 24;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Extras = Extras {
        segments: true,
        details: WantedDetails {
            source: true,
            local: true,
            traffic_class: true,
            hop_limit: true,
            time: true,
            hardware_time: true,
            hash: false,
            vlan: false,
        },
    };

    fn control_message(level: c_int, kind: c_int, value: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + value.len()) as u64;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([level, kind].map(c_int::to_ne_bytes).as_flattened());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn room_is_that_of_the_messages_which_are_asked_for() {
        assert_eq!(Extras::default().control_bytes(), 0);
        let segments = Extras {
            segments: true,
            ..Extras::default()
        };
        assert_eq!(segments.control_bytes(), 24);
        assert_eq!(ALL.control_bytes(), 24 + 40 + 24 + 24 + 32 + 64);
    }

    proptest! {
        #[test]
        fn reads_what_the_kernel_writes(
            v4 in any::<[u8; 4]>(), v6 in any::<[u8; 16]>(), index in any::<u32>(),
            class in any::<u8>(), hops in any::<u8>(), is_v6 in any::<bool>(),
            segment in 0_u16.., seconds in 0_u64..1 << 40, nanoseconds in 0_u64..1_000_000_000,
        ) {
            let time = [seconds, nanoseconds].map(u64::to_ne_bytes);
            let (level, local, rest) = if is_v6 {
                let info = [&v6[..], &index.to_ne_bytes()].concat();
                let kinds = [libc::IPV6_PKTINFO, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT];
                (libc::IPPROTO_IPV6, IpAddr::from(v6), (info, kinds))
            } else {
                let info = [&index.to_ne_bytes()[..], &[9; 4], &v4].concat();
                let kinds = [libc::IP_PKTINFO, libc::IP_TOS, libc::IP_TTL];
                (libc::IPPROTO_IP, IpAddr::from(v4), (info, kinds))
            };
            let (info, [pktinfo, tos, ttl]) = rest;
            let class_value = u32::from(class).to_ne_bytes();
            let class_bytes = if is_v6 { &class_value[..] } else { &[class] };
            let control = [
                control_message(libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW, time.as_flattened()),
                control_message(libc::SOL_SOCKET, SO_TIMESTAMPING_NEW, &[&[0; 32], time.as_flattened()].concat()),
                control_message(level, pktinfo, &info),
                control_message(level, tos, class_bytes),
                control_message(level, ttl, &u32::from(hops).to_ne_bytes()),
                control_message(libc::IPPROTO_UDP, UDP_GRO, &u32::from(segment).to_ne_bytes()),
            ].concat();
            prop_assert!(control.len() <= ALL.control_bytes());
            prop_assert_eq!(segment_bytes(&control), segment);
            let since = Duration::new(seconds, nanoseconds as u32);
            prop_assert_eq!(details(&control), DatagramDetails {
                source: None,
                local: Some(local),
                interface: Some(index),
                traffic_class: Some(class),
                hop_limit: Some(hops),
                time: SystemTime::UNIX_EPOCH.checked_add(since),
                hardware_time: Some(since).filter(|time| !time.is_zero()),
                ..DatagramDetails::default()
            });
        }

        #[test]
        fn no_bytes_are_a_fault(control in proptest::collection::vec(any::<u8>(), 0..200)) {
            details(&control);
            segment_bytes(&control);
            send_error(&control, ([127, 0, 0, 1], 1).into());
        }
    }
}
