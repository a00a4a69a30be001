//! Opens what a thread of a lab's sending host sends with.

use anyhow::{Context, Result};
use clap::ValueEnum;
use mpps_io::{Tx, TxConfig, backend};
use mpps_lab::Lab;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The sender of a lab that the user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GeneratorChoice {
    /// Use xdp if available, otherwise sendmmsg
    Auto,
    /// The kernel's XDP generator: most packets per second. Needs root and Linux 6.1
    Xdp,
    /// A socket with sendmmsg(2)
    Sendmmsg,
}

/// The sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabSender {
    /// A socket and `sendmmsg`, with trains of this many datagrams. A train is cut before the link.
    Socket { train: u16 },
    /// The kernel's own generator, `xdp`, whose frames no socket counts.
    Generator,
}

impl LabSender {
    /// The backend that sends.
    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Socket { .. } => "sendmmsg",
            Self::Generator => "xdp",
        }
    }

    /// Datagrams in a train; none if it has no trains.
    pub(crate) fn train(self) -> Option<u16> {
        match self {
            Self::Socket { train } => Some(train),
            Self::Generator => None,
        }
    }
}

impl fmt::Display for LabSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket { train: 1 } => f.write_str("sendmmsg, single datagrams"),
            Self::Socket { train } => write!(f, "sendmmsg, trains of {train}"),
            Self::Generator => f.write_str("xdp"),
        }
    }
}

/// Datagrams in a train of a sending socket, which with them mostly outruns a receiver on a CPU of its
/// own.
pub(crate) const TRAIN: u16 = 4;
/// The article's port.
pub(crate) const PORT: u16 = 4321;
/// The article's source port, the first of those that are used.
pub(crate) const SOURCE_PORT: u16 = 65_400;
/// Large, so that a slow receiver does not slow the sender: in-flight packets stay charged to the
/// sending socket.
pub(crate) const SEND_BUFFER_BYTES: usize = 32 << 20;

/// The traffic of one sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SenderTraffic {
    /// To [`PORT`] of this address.
    pub(crate) target: IpAddr,
    pub(crate) source_port: u16,
    /// Flows, by source port.
    pub(crate) flows: usize,
    pub(crate) payload_bytes: usize,
    /// Datagrams in a train, of a sender that has trains.
    pub(crate) train: u16,
    /// Messages of one call, of a socket.
    pub(crate) batch: usize,
}

/// Opens a sender inside the sending host.
pub(crate) fn open(lab: &Lab, backend: &str, feed: &SenderTraffic) -> Result<Box<dyn Tx>> {
    let backend = backend::find(backend)?;
    let any: IpAddr = match feed.target {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut config = TxConfig {
        source: Some(SocketAddr::new(any, feed.source_port)),
        flows: feed.flows,
        payload_bytes: feed.payload_bytes,
        ..TxConfig::new(SocketAddr::new(feed.target, PORT))
    };
    if backend.tx_fields.contains(&"send_buffer_bytes") {
        config.send_buffer_bytes = Some(SEND_BUFFER_BYTES);
        config.gso_segments = feed.train;
        config.batch = feed.batch;
    }
    let opened = lab.sender().run(|| backend.open_tx(&config))?;
    opened.with_context(|| format!("cannot send by {}", backend.name))
}
