//! The configuration of receivers and senders. It is checked before the first packet, and no
//! backend ignores a part of it.

use crate::{Destination, Error, RingConfig, TransmitClock, WantedDetails};
use std::net::{IpAddr, SocketAddr};

/// The largest UDP payload over IPv4: 65 535 less the IP header of 20 bytes and the UDP header of 8.
pub(crate) const PAYLOAD_BYTES_MAX_V4: usize = 65_507;
/// The largest UDP payload over IPv6 without jumbograms: the IP header does not count (RFC 8200).
pub(crate) const PAYLOAD_BYTES_MAX_V6: usize = 65_527;
/// `UDP_MAX_SEGMENTS` of include/linux/udp.h: 64 before kernel 6.9, 128 since.
pub(crate) const SEGMENTS_MAX: u16 = 128;
/// `UIO_MAXIOV`, the most messages that one `recvmmsg(2)` or `sendmmsg(2)` takes.
pub(crate) const BATCH_MAX: usize = 1024;
/// Most destinations of a receiver.
const DESTINATIONS_MAX: usize = 256;
/// Bytes kept of a datagram, unless the user sets a number.
const BUFFER_BYTES: usize = 2048;
/// The same of a train, which is a datagram of the largest size to everybody but its receiver.
const TRAIN_BUFFER_BYTES: usize = 65_536;

/// A multicast group to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MulticastGroup {
    /// The group's address.
    pub address: IpAddr,
    /// The sender whose datagrams to take (RFC 4607); none takes every sender's.
    pub source: Option<IpAddr>,
    /// The interface; none lets the route decide.
    pub interface: Option<String>,
}

impl MulticastGroup {
    /// The group, by every sender, on the interface of the route.
    pub fn new(address: IpAddr) -> Self {
        Self {
            address,
            source: None,
            interface: None,
        }
    }
}

/// The configuration of a receiver.
///
/// ```
/// use mpps_io::{RxConfig, backend};
///
/// # fn main() -> Result<(), mpps_io::Error> {
/// let mut config = RxConfig::new("127.0.0.1:0".parse().unwrap());
/// config.receive_buffer_bytes = Some(1 << 20);
/// config.details.source = true;
/// let rx = backend::find("recvmmsg")?.open_rx(&config)?;
/// println!("at {}, {:?} bytes", rx.caps().local_address, rx.caps().receive_buffer_bytes);
///
/// // A socket has no queue to choose: it is refused, and by name.
/// config.ring.queue = Some(1);
/// let refused = backend::find("recvmmsg")?.open_rx(&config).unwrap_err();
/// assert_eq!(refused.to_string(), "backend recvmmsg does not support ring.queue");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RxConfig {
    /// Local address and port; port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// Most datagrams (or GRO trains) per call, 1 to 1024.
    pub batch: usize,
    /// Bytes kept of each datagram; a longer one is cut and counted as truncated.
    pub buffer_bytes: usize,
    /// Socket receive buffer to ask for, in bytes without the kernel's doubling.
    pub receive_buffer_bytes: Option<usize>,
    /// Let other sockets bind the same address (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// Take trains of datagrams in one buffer (`UDP_GRO`).
    pub gro: bool,
    /// Poll the device queue for this time in microseconds while waiting (`SO_BUSY_POLL`).
    pub busy_poll_us: Option<u32>,
    /// Multicast groups to join. A receiver at a wildcard gets no group that only others joined.
    pub groups: Vec<MulticastGroup>,
    /// The details to report of each datagram ([`crate::Packet::details`]).
    pub details: WantedDetails,
    /// Keep what the kernel learns of datagrams that were sent ([`crate::Rx::errors`]).
    pub errors: bool,
    /// Take times for datagrams to leave ([`crate::Transmit::time`]), by this clock.
    pub transmit_clock: Option<TransmitClock>,
    /// Make ready to answer what comes ([`crate::Rx::serve`]).
    pub answers: bool,
    /// Options of backends that take frames from an interface.
    pub ring: RingConfig,
}

impl RxConfig {
    /// The default receiver at `address`: batches of 1024 datagrams of up to 2048 bytes.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            batch: BATCH_MAX,
            buffer_bytes: BUFFER_BYTES,
            receive_buffer_bytes: None,
            reuse_port: false,
            gro: false,
            busy_poll_us: None,
            groups: Vec::new(),
            details: WantedDetails::default(),
            errors: false,
            transmit_clock: None,
            answers: false,
            ring: RingConfig::default(),
        }
    }

    /// Turns GRO on, with buffers that hold whole trains and a batch that keeps memory in bounds.
    #[must_use]
    pub fn with_gro(mut self) -> Self {
        self.gro = true;
        self.buffer_bytes = TRAIN_BUFFER_BYTES;
        // 64 buffers of 64 KiB are 4 MiB a thread.
        self.batch = self.batch.min(64);
        self
    }

    /// The fields that are not at their default.
    #[doc(hidden)]
    pub fn asked(&self) -> Vec<&'static str> {
        let buffer_bytes = if self.gro {
            TRAIN_BUFFER_BYTES
        } else {
            BUFFER_BYTES
        };
        let has_source = self.groups.iter().any(|group| group.source.is_some());
        let asked = [
            (self.gro, "gro"),
            (self.busy_poll_us.is_some(), "busy_poll_us"),
            (self.reuse_port, "reuse_port"),
            (has_source, "groups.source"),
            (!self.groups.is_empty(), "groups"),
            (self.receive_buffer_bytes.is_some(), "receive_buffer_bytes"),
            (self.buffer_bytes != buffer_bytes, "buffer_bytes"),
            (self.details.source, "details.source"),
            (self.details.local, "details.local"),
            (self.details.traffic_class, "details.traffic_class"),
            (self.details.hop_limit, "details.hop_limit"),
            (self.details.time, "details.time"),
            (self.details.hardware_time, "details.hardware_time"),
            (self.details.hash, "details.hash"),
            (self.details.vlan, "details.vlan"),
            (self.errors, "errors"),
            (self.transmit_clock.is_some(), "transmit_clock"),
            (self.answers, "answers"),
        ];
        self.ring.asked_beside(&asked)
    }

    /// Checks what no backend could do.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_batch(self.batch)?;
        if self.buffer_bytes == 0 || self.buffer_bytes > 65_536 {
            let why = "a buffer holds 1 to 65536 bytes";
            return Err(Error::invalid("buffer_bytes", self.buffer_bytes, why));
        }
        if self.answers && self.gro {
            let why = "a train is answered datagram by datagram; leave GRO out";
            return Err(Error::invalid("answers", "with gro", why));
        }
        check_destinations(&self.ring.destinations)?;
        for group in &self.groups {
            if !group.address.is_multicast() {
                let why = "not a multicast group (224.0.0.0/4 or ff00::/8)";
                return Err(Error::invalid("groups", group.address, why));
            }
            for address in [group.address].into_iter().chain(group.source) {
                if address.is_ipv4() != self.address.is_ipv4() {
                    let why = format!("of another IP version than the socket at {}", self.address);
                    return Err(Error::invalid("groups", address, why));
                }
            }
        }
        Ok(())
    }
}

/// The configuration of a sender.
///
/// ```
/// use mpps_io::{TxConfig, backend};
///
/// let mut config = TxConfig::new("127.0.0.1:4321".parse().unwrap());
/// config.payload_bytes = 64;
/// config.flows = 4;
/// let tx = backend::find("sendmmsg").unwrap().open_tx(&config).unwrap();
/// assert_eq!(tx.caps().flows, 4);
/// // A datagram over IPv4 holds no more than 65 507 bytes.
/// config.payload_bytes = 100_000;
/// assert!(backend::find("sendmmsg").unwrap().open_tx(&config).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxConfig {
    /// Where to.
    pub target: SocketAddr,
    /// Local address and first source port; port 0 lets the kernel choose.
    pub source: Option<SocketAddr>,
    /// Source ports to use, one flow each: `source`'s and those that follow.
    pub flows: usize,
    /// UDP payload of each datagram in bytes.
    pub payload_bytes: usize,
    /// Most datagrams per call, 1 to 1024 (times the train length with GSO).
    pub batch: usize,
    /// Datagrams per train that the kernel cuts (`UDP_SEGMENT`); 1 is off.
    pub gso_segments: u16,
    /// Fix the peer with `connect(2)`.
    pub connect: bool,
    /// Socket send buffer to ask for, in bytes without the kernel's doubling.
    pub send_buffer_bytes: Option<usize>,
    /// Options of backends that put frames on an interface.
    pub ring: RingConfig,
}

impl TxConfig {
    /// The default sender to `target`: connected, 32 bytes, batches of 1024, as in the article.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            source: None,
            flows: 1,
            payload_bytes: 32,
            batch: BATCH_MAX,
            gso_segments: 1,
            connect: true,
            send_buffer_bytes: None,
            ring: RingConfig::default(),
        }
    }

    /// The fields that are not at their default.
    #[doc(hidden)]
    pub fn asked(&self) -> Vec<&'static str> {
        let asked = [
            (self.gso_segments > 1, "gso_segments"),
            (self.send_buffer_bytes.is_some(), "send_buffer_bytes"),
            (!self.connect, "connect = false"),
            (self.flows > 1, "flows"),
        ];
        self.ring.asked_beside(&asked)
    }

    /// Checks what no backend could do.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_batch(self.batch)?;
        let payload_bytes_max = match self.target {
            SocketAddr::V4(_) => PAYLOAD_BYTES_MAX_V4,
            SocketAddr::V6(_) => PAYLOAD_BYTES_MAX_V6,
        };
        if self.payload_bytes > payload_bytes_max {
            let why = format!("a UDP datagram carries at most {payload_bytes_max} bytes");
            return Err(Error::invalid("payload_bytes", self.payload_bytes, why));
        }
        if self.gso_segments == 0 || self.gso_segments > SEGMENTS_MAX {
            let why = format!("a train has 1 to {SEGMENTS_MAX} segments (64 before Linux 6.9)");
            return Err(Error::invalid("gso_segments", self.gso_segments, why));
        }
        let train_bytes = self.payload_bytes * usize::from(self.gso_segments);
        if self.gso_segments > 1 && (self.payload_bytes == 0 || train_bytes > payload_bytes_max) {
            let most = payload_bytes_max
                .checked_div(self.payload_bytes)
                .unwrap_or(0);
            let why = format!(
                "a train carries at most {payload_bytes_max} bytes: {most} segments of {} bytes",
                self.payload_bytes
            );
            return Err(Error::invalid("gso_segments", self.gso_segments, why));
        }
        if self.flows == 0 || self.flows > 65_535 {
            return Err(Error::invalid(
                "flows",
                self.flows,
                "there are 1 to 65535 source ports",
            ));
        }
        if self.target.port() == 0 {
            let why = "port 0 cannot be sent to; give ADDR:PORT";
            return Err(Error::invalid("target", self.target, why));
        }
        if let Some(source) = self.source {
            if source.is_ipv4() != self.target.is_ipv4() {
                let why = format!("of another IP version than the target {}", self.target);
                return Err(Error::invalid("source", source, why));
            }
            if source.port() != 0 && usize::from(source.port()) + self.flows > 65_536 {
                let why = format!(
                    "too few source ports after {}; lower `flows` or the source port",
                    source.port()
                );
                return Err(Error::invalid("flows", self.flows, why));
            }
        }
        Ok(())
    }
}

/// The filter compares one after the other, for each packet, in a program of limited length.
fn check_destinations(destinations: &[Destination]) -> Result<(), Error> {
    let refused = |value: String, why: String| Err(Error::invalid("ring.destinations", value, why));
    if let Some(empty) = destinations.iter().find(|one| one.ports.is_empty()) {
        let value = format!("ports {}-{}", empty.ports.start(), empty.ports.end());
        return refused(value, "the first port comes first".to_owned());
    }
    if destinations.len() > DESTINATIONS_MAX {
        let why = format!("there may be {DESTINATIONS_MAX} beside the address");
        return refused(destinations.len().to_string(), why);
    }
    Ok(())
}

/// Checks that this process gets memory for the buffers, and a little more: a failed allocation
/// would end it.
pub(crate) fn check_room(batch: usize, bytes: usize) -> Result<(), Error> {
    let all = batch.saturating_mul(bytes).saturating_add(1 << 20);
    let room = Vec::<u8>::new().try_reserve_exact(all);
    room.map_err(|_| Error::Invalid {
        field: "batch",
        value: batch.to_string(),
        why: format!(
            "this process gets no memory for that, {bytes} bytes each (`ulimit -v` or `-d`?)"
        ),
    })
}

fn check_batch(batch: usize) -> Result<(), Error> {
    if (1..=BATCH_MAX).contains(&batch) {
        return Ok(());
    }
    let why = format!("a call takes 1 to {BATCH_MAX} messages (UIO_MAXIOV)");
    Err(Error::invalid("batch", batch, why))
}
