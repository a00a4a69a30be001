//! The traffic of the comparison: the same for every path, from a sender that outruns them all.

use super::rotation::Rotation;
use anyhow::{Context, Result};
use mpps_io::backend::{self, Support};
use mpps_io::{Tx, TxConfig};
use mpps_lab::Lab;
use std::net::{IpAddr, SocketAddr};

/// The article's port.
pub(crate) const PORT: u16 = 4321;
/// The first source port of many flows; all 65 535 of them begin at 1.
const SOURCE_PORT: u16 = 1024;
/// The source port of a single flow, as the article's sender has it.
const SOURCE_PORT_OF_ONE: u16 = 4320;
/// Large, so that a slow receiver does not slow a sending socket: in-flight packets stay charged
/// to it.
const SEND_BUFFER_BYTES: usize = 32 << 20;
/// Datagrams per train of a sending socket, cut before the link.
const TRAIN: u16 = 16;

/// Who sends, and what.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    backend: &'static str,
    why: String,
    pub(crate) flows: usize,
    pub(crate) payload_bytes: usize,
}

impl Sender {
    /// The kernel's own generator where it can be had, a sending socket elsewhere; or who was asked
    /// for.
    pub(crate) fn choose(asked: Option<&str>, flows: usize, payload_bytes: usize) -> Result<Self> {
        let (backend, why) = match asked {
            Some(name) => (backend::find(name)?.name, "as asked".to_owned()),
            None => match (backend::find("xdp")?.probe)() {
                Support::Yes => (
                    "xdp",
                    "the kernel's own generator outruns every receiver".to_owned(),
                ),
                Support::No { why, .. } => (
                    "sendmmsg",
                    format!("no xdp generator: {why}; fast paths may outrun this sender"),
                ),
            },
        };
        Ok(Self {
            backend,
            why,
            flows,
            payload_bytes,
        })
    }

    /// True if the frames are the kernel generator's, which no socket counts.
    pub(crate) fn redirects(&self) -> bool {
        self.backend == "xdp"
    }

    /// True if a sending socket hands over trains.
    pub(crate) fn sends_trains(&self) -> bool {
        self.backend == "sendmmsg"
    }

    /// The backend that sends.
    pub(crate) fn backend(&self) -> &'static str {
        self.backend
    }

    /// Opens it inside the sending host; to several targets in turn, a socket each.
    pub(crate) fn open(&self, lab: &Lab, targets: &[IpAddr]) -> Result<Box<dyn Tx>> {
        let opened = targets.iter().enumerate();
        let opened = opened.map(|(nth, target)| self.open_one(lab, *target, nth));
        let mut opened = opened.collect::<Result<Vec<_>>>()?;
        match opened.len() {
            1 => Ok(opened.remove(0)),
            _ => Ok(Box::new(Rotation::new(opened)?)),
        }
    }

    /// Opens the one to the nth target, with source ports of its own.
    fn open_one(&self, lab: &Lab, target: IpAddr, nth: usize) -> Result<Box<dyn Tx>> {
        let backend = backend::find(self.backend)?;
        let mut config = TxConfig::new(SocketAddr::new(target, PORT));
        let first = match self.flows {
            1 => SOURCE_PORT_OF_ONE,
            flows if usize::from(SOURCE_PORT) + flows <= 65_536 => SOURCE_PORT,
            _ => 1,
        };
        let first = usize::from(first) + nth * self.flows;
        let first = u16::try_from(first)
            .with_context(|| format!("--flows {}: no so many source ports", self.flows))?;
        let any: IpAddr = match target {
            IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        config.source = Some(SocketAddr::new(any, first));
        config.flows = self.flows;
        config.payload_bytes = self.payload_bytes;
        if self.sends_trains() {
            config.gso_segments = TRAIN;
            config.batch = 64;
        }
        if backend.tx_options.contains(&"--sndbuf") {
            config.send_buffer_bytes = Some(SEND_BUFFER_BYTES);
        }
        let opened = lab.sender().run(|| backend.open_tx(&config))?;
        opened.with_context(|| format!("cannot send by {}", self.backend))
    }

    /// Who sends and why, in one line.
    pub(crate) fn sentence(&self) -> String {
        let flows = if self.flows == 1 { "flow" } else { "flows" };
        let trains = if self.sends_trains() {
            format!(", trains of {TRAIN} cut before the link")
        } else {
            String::new()
        };
        format!(
            "{} ({}): {} {flows}, {} bytes{trains}",
            self.backend, self.why, self.flows, self.payload_bytes
        )
    }
}
