//! The traffic of the comparison: the same for every path, from a sender that outruns them all.

use crate::udp;
use crate::udp::rotation::Rotation;
use crate::udp::sender::{GeneratorChoice, LabSender as Kind, SOURCE_PORT, SenderTraffic};
use anyhow::{Context, Result};
use mpps_io::Tx;
use mpps_io::backend::{self, Support};
use mpps_lab::Lab;
use std::net::IpAddr;

/// The first source port of many flows; all 65 535 of them begin at 1.
const SOURCE_PORT_OF_MANY: u16 = 1024;
/// Messages of one `sendmmsg`.
const BATCH: usize = 64;
/// Datagrams per train unless others are asked for.
const TRAIN: u16 = 16;

/// The sender and its traffic.
#[derive(Debug, Clone)]
pub(crate) struct PathSender {
    pub(crate) kind: Kind,
    pub(crate) why: String,
    flows: usize,
    payload_bytes: usize,
}

impl PathSender {
    /// The sender that the user asked for. Otherwise the kernel's generator if available, or a
    /// sending socket.
    ///
    /// # Errors
    /// If there is no such backend.
    pub(crate) fn choose(
        asked: GeneratorChoice,
        flows: usize,
        payload_bytes: usize,
    ) -> Result<Self> {
        let socket = Kind::Socket { train: TRAIN };
        let as_asked = |kind| Self::asked(kind, flows, payload_bytes);
        let (kind, why) = match asked {
            GeneratorChoice::Xdp => return Ok(as_asked(Kind::Generator)),
            GeneratorChoice::Sendmmsg => return Ok(as_asked(socket)),
            GeneratorChoice::Auto => match (backend::find(Kind::Generator.backend())?.probe)() {
                Support::Yes => (
                    Kind::Generator,
                    "the kernel's own generator, the cheapest packets there are".to_owned(),
                ),
                Support::No { why, .. } => (
                    socket,
                    format!("no xdp generator: {why}; fast paths may outrun this sender"),
                ),
            },
        };
        let asked = as_asked(kind);
        Ok(Self { why, ..asked })
    }

    /// The sender that the user asked for.
    pub(crate) fn asked(kind: Kind, flows: usize, payload_bytes: usize) -> Self {
        Self {
            kind,
            why: "as asked".to_owned(),
            flows,
            payload_bytes,
        }
    }

    /// The same with other flows, if there are to be others.
    pub(crate) fn with_flows(&self, flows: Option<usize>) -> Self {
        Self {
            flows: flows.unwrap_or(self.flows),
            ..self.clone()
        }
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
        let first = match self.flows {
            1 => SOURCE_PORT,
            flows if usize::from(SOURCE_PORT_OF_MANY) + flows <= 65_536 => SOURCE_PORT_OF_MANY,
            _ => 1,
        };
        let first = usize::from(first) + nth * self.flows;
        let source_port = u16::try_from(first)
            .with_context(|| format!("--flows {}: too few source ports; lower it", self.flows))?;
        let feed = SenderTraffic {
            target,
            source_port,
            flows: self.flows,
            payload_bytes: self.payload_bytes,
            train: self.kind.train().unwrap_or(1),
            batch: BATCH,
        };
        udp::sender::open(lab, self.kind.backend(), &feed)
    }

    /// The sender and its reason, in one line; `flows` are its numbers of flows, in turn.
    pub(crate) fn sentence(&self, flows: &[usize]) -> String {
        let plural = if flows == [1] { "flow" } else { "flows" };
        let flows: Vec<String> = flows.iter().map(usize::to_string).collect();
        let flows = flows.join(" and ");
        let trains = self.kind.train().map_or_else(String::new, |train| {
            format!(", trains of {train} cut before the link")
        });
        format!(
            "{} ({}): {flows} {plural}, {} bytes{trains}",
            self.kind.backend(),
            self.why,
            self.payload_bytes
        )
    }
}
